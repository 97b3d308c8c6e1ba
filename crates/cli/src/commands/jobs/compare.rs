//! `tracewise jobs compare`

use std::process::ExitCode;

use jobs::fidelity::{ScoreSettings, report, score};

use crate::args::CompareTracesArgs;
use crate::output::{complain, say, say_json, say_table};

pub fn run(args: &CompareTracesArgs) -> anyhow::Result<ExitCode> {
    let real = args.reading.read(&args.real)?;
    let synthetic = args.reading.read_as(&args.synthetic, Some(real.schema.clone()))?.jobs()?;
    let real = real.jobs()?;
    let settings = ScoreSettings { n_nodes: args.nodes, seed: args.seed };
    let fidelity = score(&real, &synthetic, settings)?;
    if let Some(out) = &args.out {
        let origin = format!(
            "tracewise jobs compare --real {} --synthetic {}, seed {}",
            args.real.display(),
            args.synthetic.display(),
            args.seed
        );
        eprint_note(&report::write(&fidelity, &real, &synthetic, out, &origin)?.display().to_string());
    }
    if args.json {
        print_json(&fidelity)?;
    } else {
        let (header, rows) = report::table(&fidelity);
        print_table(&header, &rows)?;
        print(&format!("\n{}", fidelity.in_words()))?;
    }
    Ok(ExitCode::SUCCESS)
}
