//! `tracewise jobs compare`

use std::num::NonZeroU64;
use std::process::ExitCode;

use files::Limits;
use jobs::fidelity::{CompareConfig, compare, report};

use super::{print_warnings, with_hint};
use crate::args::CompareTracesArgs;
use crate::output::{eprint_note, print, print_json, print_table};
use crate::signals::stop_on_signals;

pub fn run(args: &CompareTracesArgs, limits: &Limits) -> anyhow::Result<ExitCode> {
    let n_nodes = args.nodes.map(NonZeroU64::try_from).transpose();
    let n_nodes = n_nodes.map_err(|_| anyhow::anyhow!("--nodes has to be at least 1"))?;
    let stop = stop_on_signals(None)?;
    let real = args.reading.read(&args.real, limits)?;
    let synthetic = real.read_counterpart(&args.synthetic, limits).map_err(with_hint)?;
    print_warnings(&args.synthetic, &synthetic);
    let (real, synthetic) = (real.features()?, synthetic.features()?);
    let config = CompareConfig { n_nodes, seed: args.seed };
    let fidelity = compare(&real, &synthetic, config, &stop)?;
    if let Some(out) = &args.out {
        let command = format!(
            "tracewise jobs compare --real {} --synthetic {} --seed {}",
            args.real.display(),
            args.synthetic.display(),
            args.seed
        );
        eprint_note(&report::write(&fidelity, &real, &synthetic, out, &command)?.display().to_string());
    }
    if args.json {
        print_json(&fidelity)?;
    } else {
        let (header, rows) = report::table(&fidelity);
        print_table(&header, &rows)?;
        print(&format!("\n{}", fidelity.summary()))?;
    }
    Ok(ExitCode::SUCCESS)
}
