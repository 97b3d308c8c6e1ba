//! The role and the kind of a task, from its name: `individuals_ID0000012` is of the kind `individuals`.

use crate::workflow::TaskRole;

/// How the names of the tasks begin that Pegasus adds to those of the user.
const PEGASUS: [(&str, TaskRole); 12] = [
    ("stage_in", TaskRole::Transfer),
    ("stage_out", TaskRole::Transfer),
    ("stage_inter", TaskRole::Transfer),
    ("stage_worker", TaskRole::Transfer),
    ("create_dir", TaskRole::Auxiliary),
    ("cleanup", TaskRole::Auxiliary),
    ("clean_up", TaskRole::Auxiliary),
    ("register", TaskRole::Auxiliary),
    ("chmod", TaskRole::Auxiliary),
    ("pegasus-plan", TaskRole::Auxiliary),
    ("subdax", TaskRole::Auxiliary),
    ("subdag", TaskRole::Auxiliary),
];

/// The role and the kind of a task with this name.
pub fn from_name(task: &str) -> (TaskRole, String) {
    match PEGASUS.iter().find(|(prefix, _)| task.starts_with(prefix)) {
        Some((prefix, role)) => (*role, (*prefix).to_owned()),
        None => (TaskRole::Compute, stem(task)),
    }
}

/// A name without the number of the task: `_ID0000012`, `_3`, ` (7)`, `-0001`.
fn stem(task: &str) -> String {
    let mut rest = task.trim_end_matches(')');
    loop {
        let digits = rest.trim_end_matches(|c: char| c.is_ascii_digit());
        let shorter = digits.trim_end_matches("ID").trim_end_matches(['_', '-', '.', '(', ' ', '#']);
        if digits.len() == rest.len() || shorter.len() == digits.len() || shorter.is_empty() {
            break;
        }
        rest = shorter;
    }
    if rest.is_empty() || rest.len() == task.trim_end_matches(')').len() { task } else { rest }.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_tasks_are_not_part_of_their_kind() {
        let cases = [
            ("individuals_ID0000012", "individuals"),
            ("individuals_merge_ID0000002", "individuals_merge"),
            ("mProject_3_7", "mProject"),
            ("FASTQC (12)", "FASTQC"),
            ("blast-0042", "blast"),
            ("align2", "align2"),
            ("42", "42"),
            ("report", "report"),
        ];
        for (task, kind) in cases {
            assert_eq!(from_name(task), (TaskRole::Compute, kind.to_owned()), "{task}");
        }
        let (role, kind) = from_name("stage_out_local_condorpool_2_0");
        assert_eq!((role, kind.as_str()), (TaskRole::Transfer, "stage_out"));
        assert_eq!(from_name("create_dir_1000genome-20200520T031010Z_0_condorpool").1, "create_dir");
    }
}
