//! Data to stdout, the rest to stderr.

use std::io::{self, Write};

use report::text::show_table;
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
    say(&show_table(header, rows))
}
