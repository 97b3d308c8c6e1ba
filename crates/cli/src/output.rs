//! Where output goes: data to stdout, everything else to stderr. Names come from input that somebody else wrote, so
//! text is made printable here, at the one place that all commands use. JSON has escapes of its own.

use std::io::{self, Write};

use report::text::{printable_lines, show_table};
use serde::Serialize;

/// Prints text for people to stdout.
pub fn print(text: &str) -> anyhow::Result<()> {
    Ok(writeln!(io::stdout().lock(), "{}", printable_lines(text))?)
}

pub fn print_json(value: &impl Serialize) -> anyhow::Result<()> {
    print_json_text(&serde_json::to_string_pretty(value)?)
}

/// Prints JSON on one line.
pub fn print_json_line(value: &impl Serialize) -> anyhow::Result<()> {
    print_json_text(&serde_json::to_string(value)?)
}

/// Prints JSON as it is.
pub fn print_json_text(json: &str) -> anyhow::Result<()> {
    Ok(writeln!(io::stdout().lock(), "{json}")?)
}

/// Prints a table to stdout. Columns whose header starts with `>` are aligned to the right.
pub fn print_table(header: &[&str], rows: &[Vec<String>]) -> anyhow::Result<()> {
    print(&show_table(header, rows))
}

/// Prints a line for people to stderr: progress, warnings, errors. A closed stderr is ignored.
pub fn eprint_note(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{}", printable_lines(line));
}

/// An error and its causes on one line; a cause that another already contains is left out.
pub fn one_line(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if !line.contains(&cause) {
            line += &if line.is_empty() { cause } else { format!(": {cause}") };
        }
    }
    line
}

/// Whether writing failed because the reader of a pipe, such as `head`, is gone.
pub fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let io_error = error.downcast_ref::<io::Error>();
    io_error.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
