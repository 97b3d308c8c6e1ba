//! `tracewise config`

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail};

use crate::args::ConfigCommand;
use crate::config::{Config, EXAMPLE, in_force};
use crate::output::{print, print_json};

pub fn run(command: ConfigCommand, file: Option<&Path>) -> anyhow::Result<ExitCode> {
    match command {
        ConfigCommand::Show { json } => {
            let config = Config::load(file)?;
            if json {
                print_json(&config)?;
            } else {
                print(toml::to_string(&config)?.trim_end())?;
            }
        }
        ConfigCommand::Check { file: named, json } => {
            let Some(file) = in_force(named.as_deref().or(file)) else {
                bail!("there is no tracewise.toml here; `tracewise config example` prints one")
            };
            let config = Config::read(&file)?;
            config.check().with_context(|| file.display().to_string())?;
            let problems = config.serve.check_files();
            if !problems.is_empty() {
                bail!("{}: [serve] names files that cannot be used: {}", file.display(), problems.join("; "));
            }
            if json {
                print_json(&serde_json::json!({ "file": file, "ok": true }))?;
            } else {
                print(&format!("{} is valid", file.display()))?;
            }
        }
        ConfigCommand::Example => print(EXAMPLE.trim_end())?,
    }
    Ok(ExitCode::SUCCESS)
}
