//! A reader of workflow runs: the job log of GNU parallel (`parallel --joblog FILE`), one row per task.

use workflows::Recording;
use workflows::workflow::{Span, TaskAttempt, TaskRole};

const HEADER: [&str; 9] =
    ["Seq", "Host", "Starttime", "JobRuntime", "Send", "Receive", "Exitval", "Signal", "Command"];

/// Whether a file that begins with this line is such a log.
pub fn is_header(line: &str) -> bool {
    line.trim_end().split('\t').map(str::trim).eq(HEADER)
}

/// Reads the text of a log. Rows that are not complete are skipped with a warning: the log may still be written.
pub fn read(name: &str, text: &str) -> Result<Recording, String> {
    let mut lines = text.lines();
    if !lines.next().is_some_and(is_header) {
        return Err("the file is not a job log of GNU parallel".into());
    }
    let mut recording = Recording::new(name);
    for (at, line) in lines.enumerate() {
        match attempt(line) {
            Some(attempt) => recording.run.attempts.push(attempt),
            None => recording.warn(format!("line {} is skipped: it is not a complete row", at + 2)),
        }
    }
    // A task that was started again has several rows.
    recording.number_attempts();
    if recording.run.attempts.is_empty() { Err("the log contains no task".into()) } else { Ok(recording) }
}

fn attempt(line: &str) -> Option<TaskAttempt> {
    let cells: Vec<&str> = line.splitn(HEADER.len(), '\t').map(str::trim).collect();
    let [number, host, start, seconds, sent, received, code, signal, command] = cells.try_into().ok()?;
    let start: f64 = start.parse().ok()?;
    let execution = Span::new(start, start + seconds.parse::<f64>().ok()?).ok()?;
    let signal: i32 = signal.parse().ok()?;
    // Tasks of one kind do the same work: the name of the program.
    let program = command.split_whitespace().next()?.rsplit('/').next()?;
    Some(TaskAttempt {
        host: Some(host.to_owned()),
        submitted: Some(start),
        execution: Some(execution),
        stage_in_bytes: sent.parse().ok(),
        stage_out_bytes: received.parse().ok(),
        exit_code: if signal == 0 { code.parse().ok() } else { Some(-signal) },
        ..TaskAttempt::new(format!("{program}_{number}"), TaskRole::Compute, program, 1)
    })
}

#[cfg(test)]
mod tests {
    use workflows::draw::{Gantt, Style, svg};

    use super::*;

    const LOG: &str = "Seq\tHost\tStarttime\tJobRuntime\tSend\tReceive\tExitval\tSignal\tCommand\n\
        1\tn001\t1794790000.500\t     2.250\t0\t120\t0\t0\t/opt/bin/align a.fq\n\
        2\tn002\t1794790001.000\t     9.000\t0\t0\t0\t15\talign b.fq\n\
        2\tn002\t1794790011.000\t     3.000\t0\t0\t0\t0\talign b.fq\n";

    #[test]
    fn every_row_is_an_attempt_and_the_run_can_be_drawn() {
        let recording = read("run", &format!("{LOG}3\tn001\t17947")).unwrap();
        let attempts = &recording.run.attempts;
        let numbers: Vec<_> = attempts.iter().map(|one| (one.task.0.as_str(), one.attempt)).collect();
        assert_eq!(numbers, [("align_1", 1), ("align_2", 1), ("align_2", 2)]);
        assert_eq!((attempts[0].exit_code, attempts[1].exit_code), (Some(0), Some(-15)));
        assert_eq!(recording.warnings, ["line 5 is skipped: it is not a complete row"]);
        assert!((recording.run.makespan() - 13.5).abs() < 1e-9);
        assert!(svg(&Gantt::new(&recording.run), Style::Named, 800.0).contains("align_2"));
    }

    #[test]
    fn other_files_are_refused() {
        assert!(read("run", "task\tsubmit\n").is_err() && read("run", "").is_err());
        assert!(read("run", LOG.lines().next().unwrap()).is_err());
    }
}
