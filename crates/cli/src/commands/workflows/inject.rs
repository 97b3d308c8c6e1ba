//! `tracewise workflows inject`

use std::collections::HashSet;
use std::fs::{self, File};
use std::process::ExitCode;

use anyhow::Context;
use workflows::inject::{Trouble, inject};
use workflows::read::table;

use super::read_run;
use crate::args::InjectRunArgs;
use crate::output::{eprint_note, print};

pub fn run(args: &InjectRunArgs) -> anyhow::Result<ExitCode> {
    let troubles: Vec<Trouble> =
        args.trouble.iter().map(|text| Trouble::parse(text)).collect::<Result<_, _>>()?;
    let (mut written, mut is_good) = (HashSet::new(), true);
    for path in &args.runs {
        let recording = match read_run(path) {
            Ok(recording) => recording,
            Err(error) => {
                eprint_note(&format!("{error:#}"));
                is_good = false;
                continue;
            }
        };
        if !written.insert(recording.run.name.clone()) {
            eprint_note(&format!(
                "{}: another run is called {}, too: rename one",
                path.display(),
                recording.run.name
            ));
            is_good = false;
            continue;
        }
        for trouble in &troubles {
            let made = inject(&recording.run, *trouble, args.cores, args.seed)?;
            let folder = args.out.join(trouble.label());
            fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
            let out = folder.join(format!("{}.csv", made.name));
            let file = File::create(&out).with_context(|| out.display().to_string())?;
            table::write(&made, &[], file).with_context(|| out.display().to_string())?;
            print(&format!(
                "{}: {:.0} s, {:.0} s before",
                out.display(),
                made.makespan(),
                recording.run.makespan()
            ))?;
        }
    }
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
