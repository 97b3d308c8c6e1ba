//! Data to stdout, the rest to stderr.

use std::io::{self, Write};

use serde::Serialize;

/// Prints a line of data.
pub fn say(line: &str) -> anyhow::Result<()> {
    Ok(writeln!(io::stdout().lock(), "{line}")?)
}

pub fn say_json(value: &impl Serialize) -> anyhow::Result<()> {
    say(&serde_json::to_string_pretty(value)?)
}

/// Prints a line for people, not for programs.
pub fn complain(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// An error and its causes on one line, each said once.
pub fn in_words(error: &anyhow::Error) -> String {
    let mut words = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if !words.contains(&cause) {
            words += &if words.is_empty() { cause } else { format!(": {cause}") };
        }
    }
    words
}

/// Whether a reader such as `head` went away.
pub fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let io_error = error.downcast_ref::<io::Error>();
    io_error.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// Prints rows under a header, numbers to the right (columns whose header starts with `>`).
pub fn say_table(header: &[&str], rows: &[Vec<String>]) -> anyhow::Result<()> {
    let titles: Vec<&str> = header.iter().map(|title| title.trim_start_matches('>')).collect();
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([titles[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let line = |cells: &[&str]| {
        let padded = cells.iter().enumerate().map(|(column, cell)| match header[column].starts_with('>') {
            true => format!("{cell:>width$}", width = widths[column]),
            false => format!("{cell:<width$}", width = widths[column]),
        });
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    say(&line(&titles))?;
    for row in rows {
        say(&line(&row.iter().map(String::as_str).collect::<Vec<_>>()))?;
    }
    Ok(())
}
