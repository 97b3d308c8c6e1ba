//! `tracewise workflow inject`

use std::fs::{self, File};
use std::process::ExitCode;

use anyhow::Context;
use workflows::inject::{Trouble, inject};
use workflows::read::table;

use super::read_run;
use crate::args::InjectRunArgs;
use crate::output::say;

pub fn run(args: &InjectRunArgs) -> anyhow::Result<ExitCode> {
    let troubles: Vec<Trouble> =
        args.trouble.iter().map(|text| Trouble::parse(text)).collect::<Result<_, _>>()?;
    for path in &args.runs {
        let recording = read_run(path)?;
        for trouble in &troubles {
            let made = inject(&recording.run, *trouble, args.cores, args.seed)?;
            let folder = args.out.join(trouble.label());
            fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
            let out = folder.join(format!("{}.csv", made.name));
            let file = File::create(&out).with_context(|| out.display().to_string())?;
            table::write(&made, &[], file).with_context(|| out.display().to_string())?;
            say(&format!(
                "{}: {:.0} s, {:.0} s before",
                out.display(),
                made.makespan(),
                recording.run.makespan()
            ))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
