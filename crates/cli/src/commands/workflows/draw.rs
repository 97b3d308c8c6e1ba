//! `tracewise workflows draw`

use std::process::ExitCode;

use anyhow::{Context, bail};
use workflows::draw::{Gantt, Style, html, pixels, png, svg};

use super::read_run;
use crate::args::{DrawArgs, DrawStyle};

pub fn run(args: &DrawArgs) -> anyhow::Result<ExitCode> {
    let gantt = Gantt::new(&read_run(&args.run)?.run);
    let style = match args.style {
        DrawStyle::Named => Style::Named,
        DrawStyle::Seed => Style::Seed,
    };
    let side = args.size as usize;
    let bytes = match args.out.extension().and_then(|extension| extension.to_str()) {
        Some("png") if style == Style::Seed => png(&pixels::draw(&gantt, side, side))?,
        Some("png") => report::png(&svg(&gantt, style, f64::from(args.size)), 1.0)?,
        Some("svg") => svg(&gantt, style, f64::from(args.size)).into_bytes(),
        Some("html") => html(&gantt).into_bytes(),
        _ => bail!("{}: a chart is a .png, a .svg or an .html", args.out.display()),
    };
    std::fs::write(&args.out, bytes).with_context(|| args.out.display().to_string())?;
    Ok(ExitCode::SUCCESS)
}
