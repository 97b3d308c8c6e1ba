//! The reference of all commands, docs/cli.md: their help, as `--help` prints it.

use clap::{Command, CommandFactory};

/// Columns of help texts in the reference.
const WIDTH: usize = 110;

/// A section for a command, and one for each of its subcommands.
fn describe(command: &Command, path: &str, text: &mut String) {
    let depth = "#".repeat(path.split(' ').count().clamp(2, 3));
    let help = command.clone().term_width(WIDTH).render_long_help().to_string();
    let help: Vec<&str> = help.trim_end().lines().map(str::trim_end).collect();
    *text += &format!("\n{depth} `{path}`\n\n```text\n{}\n```\n", help.join("\n"));
    let is_shown = |sub: &&Command| !sub.is_hide_set() && sub.get_name() != "help";
    for sub in command.get_subcommands().filter(is_shown) {
        describe(sub, &format!("{path} {}", sub.get_name()), text);
    }
}

#[test]
fn the_reference_of_commands_is_current() {
    let mut command = super::Args::command();
    command.build();
    let mut text =
        "# Commands\n\nGenerated from the program; a test checks that it is current. `tracewise COMMAND --help` prints the \
         same.\n"
            .to_owned();
    describe(&command, "tracewise", &mut text);
    testbed::check_document("cli.md", &text);
}
