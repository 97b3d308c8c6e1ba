//! The command `tracewise`: arguments, configuration, logging, exit codes.

mod access;
mod args;
mod commands;
mod config;
mod hints;
mod live_view;
mod memory;
mod output;
mod owner;
mod progress;
mod signals;
mod times;

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::Parser;
use workload::Stopped;

fn main() -> ExitCode {
    memory::reuse_memory();
    let args = args::Args::parse();
    // The log is what a service says; other commands say what they do by themselves.
    let is_service = matches!(args.command, args::Command::Serve(_));
    start_logging(args.verbose, is_service);
    match commands::run(args) {
        Ok(code) => code,
        Err(error) if output::is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) if error.chain().any(|cause| cause.is::<Stopped>()) => {
            output::eprint_note("stopped");
            ExitCode::from(signals::exit_status())
        }
        Err(error) => {
            output::eprint_note(&format!("error: {}", output::one_line(&error)));
            if let Some(hint) = hints::hint(&error) {
                output::eprint_note(&format!("hint: {hint}"));
            }
            ExitCode::FAILURE
        }
    }
}

fn start_logging(verbose: bool, is_service: bool) {
    let level = match (verbose, is_service) {
        (true, _) => tracing::Level::DEBUG,
        (false, true) => tracing::Level::INFO,
        (false, false) => tracing::Level::WARN,
    };
    tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        .without_time()
        .init();
}
