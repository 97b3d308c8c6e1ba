//! What people look at: charts as SVG and PNG, and pages of them as HTML that need nothing else.

mod axis;
pub mod chart;
mod folder;
mod heat;
mod page;
mod png;

pub use axis::{Axis, Scale};
pub use chart::{Chart, Mark, Series};
pub use folder::{ReportError, ReportFolder};
pub use heat::HeatMaps;
pub use page::{Block, Page};
pub use png::png;

/// Text as XML and HTML take it for text.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
