//! The directory of a report: the page, each chart as SVG and PNG, and the numbers as JSON.

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::chart::Chart;
use crate::file_stem::file_stem;
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

/// The directory that a report is written to, each file atomically. Names of files may come from input; all files are
/// written into the directory.
#[derive(Debug, Clone)]
pub struct ReportFolder(PathBuf);

impl ReportFolder {
    pub fn create(path: &Path) -> Result<Self, ReportError> {
        files::create_dirs(path)?;
        Ok(Self(path.to_owned()))
    }

    /// Writes a chart as `name.svg` and `name.png`; returns the SVG, for the page.
    pub fn chart(&self, name: &str, chart: &Chart) -> Result<String, ReportError> {
        self.picture(name, chart.svg())
    }

    /// The same for an SVG.
    pub fn picture(&self, name: &str, svg: String) -> Result<String, ReportError> {
        self.write(name, "svg", svg.as_bytes())?;
        self.write(name, "png", &png(&svg, PIXELS)?)?;
        Ok(svg)
    }

    /// Writes `name.json`, `name.md` and then `name.html`; returns the path of the page.
    pub fn page(&self, name: &str, page: &Page, numbers: &impl Serialize) -> Result<PathBuf, ReportError> {
        self.write(name, "json", serde_json::to_string_pretty(numbers)?.as_bytes())?;
        self.write(name, "md", page.markdown().as_bytes())?;
        self.write(name, "html", page.html().as_bytes())
    }

    fn write(&self, name: &str, extension: &str, bytes: &[u8]) -> Result<PathBuf, ReportError> {
        let path = self.0.join(format!("{}.{extension}", file_stem(name)));
        files::write(&path, bytes)?;
        Ok(path)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_chart_named_by_input_stays_in_the_directory() {
        let parent = tempfile::tempdir().unwrap();
        let folder = ReportFolder::create(&parent.path().join("report")).unwrap();
        let svg = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"1\" height=\"1\"/>";
        let absolute = parent.path().join("absolute");
        for name in ["../above", absolute.to_str().unwrap(), "plain"] {
            folder.picture(name, svg.to_owned()).unwrap();
        }
        let count = |path: &Path| fs::read_dir(path).unwrap().count();
        assert_eq!((count(parent.path()), count(&parent.path().join("report"))), (1, 6));
    }
}
