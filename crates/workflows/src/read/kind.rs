//! What a task does, from what it is called: `individuals_ID0000012` is one of the `individuals`.

use crate::workflow::TaskRole;

/// How the tasks begin that Pegasus puts beside those of the user.
const PEGASUS: [(&str, TaskRole); 9] = [
    ("stage_in", TaskRole::Transfer),
    ("stage_out", TaskRole::Transfer),
    ("stage_inter", TaskRole::Transfer),
    ("stage_worker", TaskRole::Transfer),
    ("create_dir", TaskRole::Auxiliary),
    ("cleanup", TaskRole::Auxiliary),
    ("clean_up", TaskRole::Auxiliary),
    ("register", TaskRole::Auxiliary),
    ("chmod", TaskRole::Auxiliary),
];

/// The role and the kind of a task by its name alone.
pub fn by_name(task: &str) -> (TaskRole, String) {
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
    fn numbers_of_tasks_are_no_part_of_their_kind() {
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
            assert_eq!(by_name(task), (TaskRole::Compute, kind.to_owned()), "{task}");
        }
        let (role, kind) = by_name("stage_out_local_condorpool_2_0");
        assert_eq!((role, kind.as_str()), (TaskRole::Transfer, "stage_out"));
        assert_eq!(by_name("create_dir_1000genome-20200520T031010Z_0_condorpool").1, "create_dir");
    }
}
