//! `tracewise agent`

use std::process::ExitCode;
use std::time::SystemTime;

use agent::doctor;

use crate::args::KernelRoots;
use crate::output::{print, print_json};

/// `tracewise agent doctor`: exit code 1 if there is something to change.
pub fn doctor(roots: &KernelRoots, json: bool) -> anyhow::Result<ExitCode> {
    let report = doctor::examine(&roots.procfs, &roots.cgroupfs, SystemTime::now().into())?;
    if json {
        print_json(&report.as_json())?;
    } else {
        print(report.to_string().trim_end())?;
    }
    Ok(if report.advice.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
