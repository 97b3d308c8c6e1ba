//! How jobs ended, as SWF numbers it: 1 completed, 0 failed, 5 cancelled, -1 not known.

/// Slurm's numbers of states, as its database has them.
const SLURM_COMPLETED: [u32; 1] = [3];
const SLURM_CANCELLED: [u32; 3] = [4, 6, 8];
const SLURM_FAILED: [u32; 4] = [5, 7, 10, 11];

/// The number that SWF has for a cell of a column: a word, a number of Slurm's in a column called `state`, or an exit code.
pub fn code_of(column: &str, cell: &str) -> f64 {
    if let Ok(number) = cell.parse::<f64>() {
        let is_of = |states: &[u32]| states.iter().any(|state| f64::from(*state) == number);
        return match column.eq_ignore_ascii_case("state") {
            true if is_of(&SLURM_COMPLETED) => 1.0,
            true if is_of(&SLURM_CANCELLED) => 5.0,
            true if is_of(&SLURM_FAILED) => 0.0,
            true => -1.0,
            false => f64::from(u8::from(number == 0.0)),
        };
    }
    let word = cell.to_ascii_lowercase();
    let begins = |beginnings: &[&str]| beginnings.iter().any(|beginning| word.starts_with(beginning));
    if begins(&["pass", "complete", "success", "done", "ok"]) {
        1.0
    } else if begins(&["cancel", "kill", "timeout", "preempt", "revoke"]) {
        5.0
    } else if begins(&["fail", "error", "node_fail", "boot_fail", "out_of_memory", "oom", "deadline"]) {
        0.0
    } else {
        -1.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_numbers_of_batch_systems_are_those_of_swf() {
        for (column, cell, code) in [
            ("new_status", "Pass", 1.0),
            ("new_status", "Failed", 0.0),
            ("new_status", "Killed", 5.0),
            ("State", "CANCELLED by 1001", 5.0),
            ("State", "TIMEOUT", 5.0),
            ("state", "3", 1.0),
            ("state", "5", 0.0),
            ("state", "6", 5.0),
            ("EXIT_STATUS", "0", 1.0),
            ("EXIT_STATUS", "137.0", 0.0),
            ("State", "RUNNING", -1.0),
        ] {
            assert_eq!(code_of(column, cell), code, "{column} {cell}");
        }
    }
}
