//! DAGMan's graph files, `*.dag`: jobs, edges and sub-workflows.

use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};

use crate::graph::{Dependency, Graph};

/// What is used of a `.dag` file.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Dag {
    /// Each job with the directory of its submit file, which also receives its output files.
    pub jobs: Vec<(String, PathBuf)>,
    pub graph: Graph,
    pub subworkflows: Vec<Subworkflow>,
}

/// A node that runs a workflow of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subworkflow {
    pub node: String,
    /// Its submit directory as the file writes it: relative to the submit directory of the parent, or to the
    /// directory of all runs.
    pub directory: PathBuf,
}

/// Parses the lines `JOB`, `PARENT … CHILD …`, `SUBDAG EXTERNAL` and the `SCRIPT PRE` that plans a
/// sub-workflow. Other lines are skipped.
pub fn parse(text: &str) -> Dag {
    let mut dag = Dag::default();
    for line in text.lines() {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let [keyword, rest @ ..] = &words[..] else { continue };
        match keyword.to_ascii_uppercase().as_str() {
            "JOB" => {
                if let [name, submit_file, ..] = rest {
                    let directory = Path::new(submit_file).parent().unwrap_or(Path::new(""));
                    dag.jobs.push(((*name).to_owned(), directory.to_owned()));
                }
            }
            "PARENT" => {
                let Some(middle) = rest.iter().position(|word| word.eq_ignore_ascii_case("CHILD")) else {
                    continue;
                };
                let (parents, children) = (&rest[..middle], &rest[middle + 1..]);
                dag.graph.add(Dependency::new(parents.iter().copied(), children.iter().copied()));
            }
            // `SUBDAG EXTERNAL <node> <file> [DIR <directory>]`
            "SUBDAG" => {
                let [external, node, file, options @ ..] = rest else { continue };
                if !external.eq_ignore_ascii_case("EXTERNAL") {
                    continue;
                }
                let own = options.iter().position(|word| word.eq_ignore_ascii_case("DIR"));
                let own = own.and_then(|at| options.get(at + 1)).map(PathBuf::from);
                let of_file = || Path::new(file).parent().unwrap_or(Path::new("")).to_owned();
                let directory = own.unwrap_or_else(of_file);
                dag.subworkflows.push(Subworkflow { node: (*node).to_owned(), directory });
            }
            // `SCRIPT PRE <node> <program> … --relative-submit-dir <directory> …`: pegasus-plan.
            "SCRIPT" => {
                let ["PRE", node, arguments @ ..] = rest else { continue };
                let option = |name: &str| {
                    let at = arguments.iter().position(|word| *word == name)?;
                    arguments.get(at + 1).map(PathBuf::from)
                };
                if let Some(directory) = option("--relative-submit-dir").or_else(|| option("--relative-dir"))
                {
                    dag.subworkflows.push(Subworkflow { node: (*node).to_owned(), directory });
                }
            }
            _ => {}
        }
    }
    dag
}

impl Subworkflow {
    /// The submit directories of the sub-workflow that exist below `parent`, the submit directory of its parent. Pegasus
    /// appends `.000`, `.001` and so on, one for each time it plans. Directories may have been moved since, so the
    /// end of the path counts.
    pub fn directories(&self, parent: &Path, listings: &mut Listings) -> Vec<PathBuf> {
        let parts: Vec<Component<'_>> =
            self.directory.components().filter(|part| matches!(part, Component::Normal(_))).collect();
        for start in parts.len().saturating_sub(MAX_DEPTH)..parts.len() {
            let path = parent.join(parts[start..].iter().collect::<PathBuf>());
            let found = numbered(&path, listings);
            if !found.is_empty() {
                return found;
            }
        }
        Vec::new()
    }
}

/// Directories below that of the parent in which a sub-workflow is looked for.
const MAX_DEPTH: usize = 64;

/// The names in directories, each listed once.
#[derive(Debug, Default)]
pub struct Listings(HashMap<PathBuf, Vec<String>>);

impl Listings {
    /// The sorted names in a directory; none if it cannot be listed.
    fn names(&mut self, directory: &Path) -> &[String] {
        if !self.0.contains_key(directory) {
            let Ok(entries) = std::fs::read_dir(directory) else { return &[] };
            let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
            let mut names: Vec<String> = names.collect();
            names.sort();
            self.0.insert(directory.to_owned(), names);
        }
        self.0.get(directory).map_or(&[], Vec::as_slice)
    }
}

/// The directory itself and those with a number after its name, in order.
fn numbered(path: &Path, listings: &mut Listings) -> Vec<PathBuf> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str())) else {
        return Vec::new();
    };
    let is_same = |other: &str| {
        let Some(rest) = other.strip_prefix(name) else { return false };
        let number = rest.strip_prefix('.').unwrap_or("x");
        rest.is_empty() || !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    };
    let names = listings.names(parent);
    let first = names.partition_point(|known| known.as_str() < name);
    let alike = names[first..].iter().take_while(|known| known.starts_with(name));
    alike
        .filter(|known| is_same(known))
        .map(|known| parent.join(known))
        .filter(|path| path.is_dir())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_edges_and_both_kinds_of_subworkflow_are_parsed() {
        let dag = parse(
            "# comment\nJOB a 00/00/a.sub\nJOB b b.sub DIR here\nParent a b CHILD c\n\
             SUBDAG EXTERNAL c inner/inner.dag\nSUBDAG EXTERNAL d x.dag DIR other\n\
             JOB plan 00/00/plan.sub\nSCRIPT PRE plan plan.sh --dir /runs --relative-submit-dir u/run1/00/00/./sub --basename x\n\
             SCRIPT POST a exitcode\nPARENT cut off\nJOB\n",
        );
        assert_eq!(dag.jobs.len(), 3);
        assert_eq!(dag.jobs[0], ("a".into(), "00/00".into()));
        assert_eq!(dag.graph.dependencies(), [Dependency::new(["a", "b"], ["c"])]);
        let found: Vec<(&str, &Path)> =
            dag.subworkflows.iter().map(|one| (one.node.as_str(), one.directory.as_path())).collect();
        let expected = [("c", "inner"), ("d", "other"), ("plan", "u/run1/00/00/./sub")];
        assert_eq!(found, expected.map(|(node, path)| (node, Path::new(path))));
    }
}
