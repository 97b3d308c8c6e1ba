//! Output for people: charts as SVG and PNG, self-contained HTML pages, and tables as text.

#[cfg(feature = "charts")]
mod axis;
#[cfg(feature = "charts")]
pub mod chart;
#[cfg(feature = "charts")]
mod folder;
#[cfg(feature = "charts")]
mod heat;
#[cfg(feature = "charts")]
mod page;
#[cfg(feature = "charts")]
mod png;
pub mod text;

#[cfg(feature = "charts")]
pub use {
    axis::{Axis, Scale},
    chart::{Chart, Mark, Series},
    folder::{ReportError, ReportFolder},
    heat::HeatMaps,
    page::{Block, Page},
    png::png,
};

/// Escapes text for XML and HTML.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
