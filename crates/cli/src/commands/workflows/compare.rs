//! `tracewise workflows compare`

use std::process::ExitCode;

use files::Limits;
use workflows::compare::compare;

use super::read_run;
use crate::args::CompareRunsArgs;
use crate::output::{print, print_json, print_table};

/// Names that are shown of tasks that only one run has.
const MAX_NAMES: usize = 5;
/// Tasks that are shown.
const MAX_TASKS: usize = 15;

pub fn run(args: &CompareRunsArgs, limits: &Limits) -> anyhow::Result<ExitCode> {
    let (before, after) = (read_run(&args.before, limits)?.run, read_run(&args.after, limits)?.run);
    let found = compare(&before, &after);
    if args.json {
        print_json(&found)?;
        return Ok(ExitCode::SUCCESS);
    }
    let rows = found.tasks.iter().take(MAX_TASKS).map(|task| {
        vec![
            task.task.clone(),
            task.delay.to_owned(),
            format!("{:.0} s", task.before),
            format!("{:.0} s", task.after),
            format!("{:+.0} s", task.after - task.before),
        ]
    });
    print_table(&["TASK", "DELAY", ">BEFORE", ">AFTER", ">CHANGE"], &rows.collect::<Vec<_>>())?;
    let missing = |names: &[String], which: &str| {
        let (shown, rest) = names.split_at(names.len().min(MAX_NAMES));
        let more = if rest.is_empty() { String::new() } else { format!(" and {} more", rest.len()) };
        if shown.is_empty() {
            String::new()
        } else {
            format!("; only in {which}: {}{more}", shown.join(", "))
        }
    };
    print(&format!(
        "\n{} took {:.0} s, {} took {:.0} s; {} tasks are in both, the {} with the largest change are shown{}{}",
        before.name,
        before.makespan(),
        after.name,
        after.makespan(),
        found.tasks.len(),
        found.tasks.len().min(MAX_TASKS),
        missing(&found.only_before, "the first"),
        missing(&found.only_after, "the second"),
    ))?;
    Ok(ExitCode::SUCCESS)
}
