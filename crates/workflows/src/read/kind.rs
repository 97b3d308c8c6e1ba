//! The role and the kind of a task, from its name: `individuals_ID0000012` is of the kind `individuals`.
//!
//! Digits directly after a word are ambiguous: `mProject12` is the twelfth of many, but `sha256` is a program. The names of
//! all tasks of a run decide.

use std::collections::{BTreeSet, HashMap, HashSet};

use crate::workflow::{TaskName, TaskRole, WorkflowRun};

/// Numbers without leading zeros that are needed to recognise them as numbers of tasks.
const MIN_NUMBERS: usize = 3;
/// Numbers of tasks are dense: at most so many times their count lie between the first and the last.
const MAX_SPREAD: u64 = 2;
/// More digits are not a number of a task.
const MAX_DIGITS: usize = 18;

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

/// The word and the number of a name that ends in digits without a separator. Of a task of a sub-workflow, the part after
/// the name of the node counts.
fn split_number(task: &str) -> Option<(&str, &str)> {
    let name = task.rsplit('/').next().unwrap_or(task);
    let word = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let number = &name[word.len()..];
    let is_numbered = word.ends_with(|c: char| c.is_alphabetic()) && (1..=MAX_DIGITS).contains(&number.len());
    is_numbered.then_some((word, number))
}

/// What the names of a run say about the numbers after a word.
#[derive(Default)]
struct Numbers {
    found: BTreeSet<u64>,
    has_leading_zero: bool,
    /// The lengths of the numbers, in digits.
    lengths: HashSet<usize>,
}

impl Numbers {
    /// Whether they are numbers of tasks: padded with zeros to one length, or at least three that are close together.
    fn are_of_tasks(&self) -> bool {
        let n_numbers = self.found.len();
        let is_padded = self.has_leading_zero && self.lengths.len() == 1 && !self.lengths.contains(&1);
        let span = self.found.last().zip(self.found.first()).map_or(0, |(last, first)| last - first + 1);
        is_padded && n_numbers > 1 || n_numbers >= MIN_NUMBERS && span <= MAX_SPREAD * n_numbers as u64
    }
}

/// Decides over the whole run whether digits directly after a word are the number of a task, and if so removes them from
/// the kinds: `mProject1`, `mProject2` and `mProject3` are of the kind `mProject`. Names whose digits mean something
/// stay apart: `sha1`, `sha256` and `sha512` are not numbered one after another, and in `step1`, `step2` and `step3`, of
/// which each waits for the one before it, the digits name a stage. Kinds that do not come from names stay.
pub fn settle(run: &mut WorkflowRun) {
    let mut by_word: HashMap<&str, Numbers> = HashMap::new();
    for task in run.attempts.iter().map(|attempt| &attempt.task).chain(run.graph.tasks()) {
        let Some((word, number)) = split_number(&task.0) else { continue };
        let Ok(parsed) = number.parse() else { continue };
        let numbers = by_word.entry(word).or_default();
        numbers.found.insert(parsed);
        numbers.has_leading_zero |= number.starts_with('0');
        numbers.lengths.insert(number.len());
    }
    by_word.retain(|_, numbers| numbers.are_of_tasks());
    if by_word.is_empty() {
        return;
    }
    for one in run.graph.dependencies() {
        let words = |tasks: &[TaskName]| -> HashSet<String> {
            tasks.iter().filter_map(|task| Some(split_number(&task.0)?.0.to_owned())).collect()
        };
        for stage in words(&one.parents).intersection(&words(&one.children)) {
            by_word.remove(stage.as_str());
        }
    }
    let words: HashSet<String> = by_word.into_keys().map(str::to_owned).collect();
    for attempt in run.attempts.iter_mut().filter(|attempt| attempt.role == TaskRole::Compute) {
        let Some((word, number)) = split_number(&attempt.task.0) else { continue };
        let is_from_name = attempt.kind.strip_suffix(number) == Some(word);
        if is_from_name && words.contains(word) {
            attempt.kind = word.to_owned();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Dependency;
    use crate::workflow::TaskAttempt;

    /// The kinds of tasks with these names in one run.
    fn kinds(names: &[&str], dependencies: &[(&str, &str)]) -> Vec<String> {
        let attempt = |name: &&str| {
            let inside = name.rsplit('/').next().unwrap();
            TaskAttempt::new(*name, TaskRole::Compute, from_name(inside).1, 1)
        };
        let mut run = WorkflowRun { attempts: names.iter().map(attempt).collect(), ..WorkflowRun::default() };
        for (parent, child) in dependencies {
            run.graph.add(Dependency::new([*parent], [*child]));
        }
        settle(&mut run);
        run.attempts.into_iter().map(|attempt| attempt.kind).collect()
    }

    #[test]
    fn numbers_without_a_separator_are_recognised_over_the_whole_run() {
        assert_eq!(
            kinds(&["mProject1", "mProject2", "mProject12", "mAdd"], &[]),
            ["mProject1", "mProject2", "mProject12", "mAdd"]
        );
        assert_eq!(kinds(&["mProject1", "mProject2", "mProject3"], &[]), ["mProject"; 3]);
        assert_eq!(kinds(&["individuals00000", "individuals00007"], &[]), ["individuals"; 2]);
        // Tasks that have not started yet count.
        let planned = [("mProject2", "mAdd"), ("mProject3", "mAdd")];
        assert_eq!(kinds(&["mProject1"], &planned), ["mProject"]);
        // Tasks of several sub-workflows are numbered from one in each.
        let nested = ["a/x1", "a/x2", "b/x1", "b/x3"];
        assert_eq!(kinds(&nested, &[]), ["x"; 4]);
    }

    #[test]
    fn digits_that_belong_to_a_kind_stay() {
        for names in [
            &["sha1", "sha256", "sha512"][..],
            &["sha256_ID0000001", "sha256_ID0000002", "sha256_ID0000003"],
            &["bowtie2", "bowtie1"],
            &["a/sha256", "b/sha256", "c/sha256"],
            &["int8", "int16", "int32", "int64"],
            &["1", "2", "3"],
        ] {
            let found = kinds(names, &[]);
            let alone: Vec<String> =
                names.iter().map(|name| from_name(name.rsplit('/').next().unwrap()).1).collect();
            assert_eq!(found, alone);
        }
        let stages = [("step1", "step2"), ("step2", "step3")];
        assert_eq!(kinds(&["step1", "step2", "step3"], &stages), ["step1", "step2", "step3"]);
        // What the file says about a kind is not changed.
        let named = |number: u32| TaskAttempt::new(format!("x{number}"), TaskRole::Compute, "blast", 1);
        let mut run = WorkflowRun { attempts: (1..5).map(named).collect(), ..WorkflowRun::default() };
        settle(&mut run);
        assert!(run.attempts.iter().all(|one| one.kind == "blast"));
    }

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
