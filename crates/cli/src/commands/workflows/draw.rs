//! `tracewise workflows draw`

use std::process::ExitCode;

use anyhow::bail;
use files::Limits;
use workflows::draw::{Gantt, Style, html, pixels, png, svg};

use super::read_run;
use crate::args::{DrawArgs, DrawStyle};

pub fn run(args: &DrawArgs, limits: &Limits) -> anyhow::Result<ExitCode> {
    let gantt = Gantt::new(&read_run(&args.run, limits)?.run);
    let style = match args.style {
        DrawStyle::Named => Style::Named,
        DrawStyle::Paper => Style::Paper,
    };
    let side = args.size as usize;
    let bytes = match args.out.extension().and_then(|extension| extension.to_str()) {
        Some("png") if style == Style::Paper => png(&pixels::draw(&gantt, side, side))?,
        Some("png") => report::png(&svg(&gantt, style, f64::from(args.size)), 1.0)?,
        Some("svg") => svg(&gantt, style, f64::from(args.size)).into_bytes(),
        Some("html") => html(&gantt).into_bytes(),
        _ => bail!("{}: expected a file name that ends in .png, .svg or .html", args.out.display()),
    };
    files::write(&args.out, &bytes)?;
    Ok(ExitCode::SUCCESS)
}
