//! Exit status of jobs in the codes of SWF: 1 completed, 0 failed, 5 cancelled, -1 unknown.

const COMPLETED: f64 = 1.0;
const FAILED: f64 = 0.0;
const CANCELLED: f64 = 5.0;
const UNKNOWN: f64 = -1.0;

/// Job states in the database of Slurm.
const SLURM_COMPLETED: [u32; 1] = [3];
const SLURM_CANCELLED: [u32; 3] = [4, 6, 8];
const SLURM_FAILED: [u32; 4] = [5, 7, 10, 11];

/// The SWF code for a cell: a status in text, a Slurm state number in a column called `state`, or an exit code.
pub fn code_of(column: &str, cell: &str) -> f64 {
    if let Ok(number) = cell.parse::<f64>() {
        let is_of = |states: &[u32]| states.iter().any(|state| f64::from(*state) == number);
        return if !column.eq_ignore_ascii_case("state") {
            if number == 0.0 { COMPLETED } else { FAILED }
        } else if is_of(&SLURM_COMPLETED) {
            COMPLETED
        } else if is_of(&SLURM_CANCELLED) {
            CANCELLED
        } else if is_of(&SLURM_FAILED) {
            FAILED
        } else {
            UNKNOWN
        };
    }
    let text = cell.to_ascii_lowercase();
    let begins = |prefixes: &[&str]| prefixes.iter().any(|prefix| text.starts_with(prefix));
    if begins(&["pass", "complete", "success", "done", "ok"]) {
        COMPLETED
    } else if begins(&["cancel", "kill", "timeout", "preempt", "revoke"]) {
        CANCELLED
    } else if begins(&["fail", "error", "node_fail", "boot_fail", "out_of_memory", "oom", "deadline"]) {
        FAILED
    } else {
        UNKNOWN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_of_batch_systems_become_swf_codes() {
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
