//! The program `tracewise-manual`: writes man pages and shell completions of `tracewise` and `tracewise-agent`, from the same
//! definitions as their `--help`.

#[path = "../../agent/src/args.rs"]
#[allow(dead_code, reason = "only the definitions are used, not what was parsed")]
mod agent_args;
#[allow(dead_code, unused_imports, reason = "only the definitions are used, not what was parsed")]
mod args;
#[allow(dead_code, reason = "arguments use a part of it")]
mod times;

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;

fn main() -> anyhow::Result<()> {
    let folder = std::env::args_os().nth(1).context("usage: tracewise-manual DIRECTORY")?;
    let folder = PathBuf::from(folder);
    // `tracewise agent` and the program `tracewise-agent` would have pages of the same name; the program is a daemon.
    let programs = [(args::Args::command(), "1"), (agent_args::Args::command(), "8")];
    for (mut command, section) in programs {
        let name = command.get_name().to_owned();
        for shell in [Shell::Bash, Shell::Fish, Shell::Zsh] {
            let into = folder.join(shell.to_string());
            std::fs::create_dir_all(&into)?;
            clap_complete::generate_to(shell, &mut command, &name, &into)?;
        }
        let into = folder.join("man");
        std::fs::create_dir_all(&into)?;
        command.build();
        write_pages(&command, section, &into)?;
    }
    Ok(())
}

/// Writes the page of a command and those of its subcommands.
fn write_pages(command: &Command, section: &str, into: &Path) -> std::io::Result<()> {
    Man::new(command.clone()).section(section).manual("Tracewise").generate_to(into)?;
    // Completions add a command `help`, which needs no page.
    let shown = command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help");
    for command in shown {
        write_pages(command, section, into)?;
    }
    Ok(())
}
