//! `tracewise workflows inject`

use std::collections::HashSet;
use std::process::ExitCode;

use files::Limits;
use report::file_stem;
use workflows::inject::{Fault, Machine, inject};

use super::{read_run, with_hint, write_run};
use crate::args::InjectRunArgs;
use crate::output::{eprint_note, print};

pub fn run(args: &InjectRunArgs, limits: &Limits) -> anyhow::Result<ExitCode> {
    let faults: Vec<Fault> = args.fault.iter().map(|text| Fault::parse(text)).collect::<Result<_, _>>()?;
    let machine = Machine {
        cores: args.cores,
        disk_write_mb_per_second: args.disk_write_rate,
        connections: args.connections,
        affected_fraction: args.machines,
    };
    let (mut written, mut is_complete) = (HashSet::new(), true);
    for path in &args.runs {
        let run = match read_run(path, limits) {
            Ok(recording) => recording.run,
            Err(error) => {
                eprint_note(&format!("{error:#}"));
                is_complete = false;
                continue;
            }
        };
        // The name comes from the file.
        let name = file_stem(&run.name);
        if !written.insert(name.clone()) {
            eprint_note(&format!("{} is skipped: another run has the name {name}", path.display()));
            is_complete = false;
            continue;
        }
        for fault in &faults {
            let injected = inject(&run, *fault, &machine, args.seed).map_err(with_hint)?;
            let directory = args.out.join(fault.label());
            files::create_dirs(&directory)?;
            let out = directory.join(format!("{name}.csv"));
            write_run(&injected, &out)?;
            let (after, before) = (injected.makespan(), run.makespan());
            print(&format!("{}: {after:.0} s instead of {before:.0} s", out.display()))?;
        }
    }
    Ok(if is_complete { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
