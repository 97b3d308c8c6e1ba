//! Steps and tasks of Slurm's jobs.

use std::fs;

use super::tree::Trees;
use super::usage::Usage;
use crate::kernel::Buffer;

/// How many steps and tasks of a job are read. In version 1 the groups of steps belong to the user, who
/// can make any number of groups in them.
const MOST_PARTS: usize = 1_000;

/// A part of a Slurm job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    pub step: String,
    /// Absent for the step as a whole.
    pub task: Option<String>,
    pub usage: Usage,
}

/// Steps and tasks below a Slurm job: `step_0/user/task_1`, or `step_0/task_1` in version 1.
pub fn read(trees: &Trees, job: &str, buffer: &mut Buffer) -> Vec<Step> {
    let tree = trees.unified.as_deref().filter(|tree| tree.join(job).is_dir()).unwrap_or(&trees.memory);
    let below = |path: &str, prefix: &str| -> Vec<String> {
        let entries = fs::read_dir(tree.join(path)).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let mut names: Vec<String> =
            names.filter_map(|name| Some(name.strip_prefix(prefix)?.to_owned())).collect();
        names.sort();
        names.truncate(MOST_PARTS);
        names
    };
    let mut steps = Vec::new();
    for step in below(job, "step_") {
        let path = format!("{job}/step_{step}");
        let usage = Usage::read(trees, &path, buffer);
        steps.push(Step { step: step.clone(), task: None, usage });
        for folder in [format!("{path}/user"), path.clone()] {
            for task in below(&folder, "task_") {
                if steps.len() >= MOST_PARTS {
                    return steps;
                }
                let usage = Usage::read(trees, &format!("{folder}/task_{task}"), buffer);
                steps.push(Step { step: step.clone(), task: Some(task), usage });
            }
        }
    }
    steps
}
