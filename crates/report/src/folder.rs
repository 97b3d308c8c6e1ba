//! The directory of a report: the page, each chart as SVG and PNG, and the numbers as JSON.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::chart::Chart;
use crate::page::Page;
use crate::png::png;

/// Pixels per SVG unit.
const PIXELS: f32 = 2.0;

#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    #[error(transparent)]
    Files(#[from] files::Error),
    #[error("cannot draw a chart: {reason}")]
    Picture { reason: String },
    #[error("cannot write the numbers of a report: {0}")]
    Json(#[from] serde_json::Error),
}

/// The directory that a report is written to, each file atomically.
#[derive(Debug, Clone)]
pub struct ReportFolder(PathBuf);

impl ReportFolder {
    pub fn create(path: &Path) -> Result<Self, ReportError> {
        fs::create_dir_all(path).map_err(files::Error::io(path))?;
        Ok(Self(path.to_owned()))
    }

    /// Writes a chart as `name.svg` and `name.png`; returns the SVG, for the page.
    pub fn chart(&self, name: &str, chart: &Chart) -> Result<String, ReportError> {
        self.picture(name, chart.svg())
    }

    /// The same for an SVG.
    pub fn picture(&self, name: &str, svg: String) -> Result<String, ReportError> {
        self.write(&format!("{name}.svg"), svg.as_bytes())?;
        self.write(&format!("{name}.png"), &png(&svg, PIXELS)?)?;
        Ok(svg)
    }

    /// Writes `name.json`, `name.md` and then `name.html`; returns the path of the page.
    pub fn page(&self, name: &str, page: &Page, numbers: &impl Serialize) -> Result<PathBuf, ReportError> {
        self.write(&format!("{name}.json"), serde_json::to_string_pretty(numbers)?.as_bytes())?;
        self.write(&format!("{name}.md"), page.markdown().as_bytes())?;
        self.write(&format!("{name}.html"), page.html().as_bytes())
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Result<PathBuf, ReportError> {
        let path = self.0.join(name);
        files::write(&path, bytes)?;
        Ok(path)
    }
}
