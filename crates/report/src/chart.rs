//! Charts: series of points between two axes, drawn as SVG.

use std::fmt::Write;

use crate::axis::{Axis, Span};
use crate::escaped;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 380.0;
const LEFT: f64 = 64.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 52.0;
const RIGHT: f64 = 20.0;
const LEGEND: f64 = 150.0;
/// The greatest number of series in a legend.
const MAX_LEGEND_ENTRIES: usize = 16;

/// A palette that is safe for colour-blind readers (after Okabe and Ito, 2008), then further colours.
const COLOURS: [&str; 12] = [
    "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#7f7f7f", "#b5a300", "#4b3f72",
    "#8fbc8f", "#c49c94", "#17becf",
];

/// How the points of a series are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    Line,
    Dots,
    /// A line with a dot at each point.
    LineAndDots,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    pub name: String,
    pub mark: Mark,
    pub points: Vec<(f64, f64)>,
    /// The error bar of each point, in both directions; one per point, or none.
    pub spread: Vec<f64>,
}

impl Series {
    pub fn new(name: impl Into<String>, mark: Mark, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.into(), mark, points, spread: Vec::new() }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Chart {
    pub title: String,
    pub x: Axis,
    pub y: Axis,
    pub series: Vec<Series>,
    /// Annotated places on the x axis.
    pub notes: Vec<(f64, String)>,
}

impl Chart {
    pub fn new(title: impl Into<String>, x: Axis, y: Axis) -> Self {
        Self { title: title.into(), x, y, series: Vec::new(), notes: Vec::new() }
    }

    #[must_use]
    pub fn with(mut self, series: Series) -> Self {
        self.series.push(series);
        self
    }

    #[must_use]
    pub fn note(mut self, x: f64, why: impl Into<String>) -> Self {
        self.notes.push((x, why.into()));
        self
    }

    /// The chart as a self-contained SVG.
    pub fn svg(&self) -> String {
        let points = || self.series.iter().flat_map(|series| &series.points);
        let x = self.x.span(points().map(|point| point.0).chain(self.notes.iter().map(|note| note.0)));
        let spread = self.series.iter().flat_map(|series| {
            series.points.iter().zip(&series.spread).flat_map(|(point, off)| [point.1 - off, point.1 + off])
        });
        let y = self.y.span(points().map(|point| point.1).chain(spread));
        let frame = Frame { x, y, width: if self.series.len() > 1 { WIDTH - LEGEND } else { WIDTH } };
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" \
             height=\"{HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\" fill=\"#333\">\
             <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>"
        );
        let title = escaped(&self.title);
        let _ = write!(svg, "<text x=\"{LEFT}\" y=\"22\" font-size=\"15\">{title}</text>");
        self.draw_axes(&mut svg, &frame);
        for (index, series) in self.series.iter().enumerate() {
            self.draw_series(&mut svg, &frame, series, COLOURS[index % COLOURS.len()]);
        }
        self.draw_notes(&mut svg, &frame);
        if self.series.len() > 1 {
            self.draw_legend(&mut svg, &frame);
        }
        svg.push_str("</svg>");
        svg
    }

    fn draw_axes(&self, svg: &mut String, frame: &Frame<'_>) {
        let (right, bottom) = (frame.right(), HEIGHT - BOTTOM);
        for (value, name) in frame.x.ticks() {
            let at = frame.at_x(value);
            let _ = write!(
                svg,
                "<path d=\"M{at:.1} {TOP}V{bottom}\" stroke=\"#e6e6e6\"/>\
                 <text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{name}</text>",
                bottom + 17.0
            );
        }
        for (value, name) in frame.y.ticks() {
            let at = frame.at_y(value);
            let _ = write!(
                svg,
                "<path d=\"M{LEFT} {at:.1}H{right}\" stroke=\"#e6e6e6\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{name}</text>",
                LEFT - 6.0,
                at + 4.0
            );
        }
        let _ = write!(
            svg,
            "<path d=\"M{LEFT} {TOP}V{bottom}H{right}\" stroke=\"#888\" fill=\"none\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\
             <text transform=\"translate(16 {:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            (LEFT + right) / 2.0,
            HEIGHT - 14.0,
            escaped(&self.x.label),
            (TOP + bottom) / 2.0,
            escaped(&self.y.label),
        );
    }

    fn draw_series(&self, svg: &mut String, frame: &Frame<'_>, series: &Series, colour: &str) {
        let is_shown = |point: &(f64, f64)| self.x.can_show(point.0) && self.y.can_show(point.1);
        let places: Vec<(f64, f64)> = series
            .points
            .iter()
            .filter(|point| is_shown(point))
            .map(|point| (frame.at_x(point.0), frame.at_y(point.1)))
            .collect();
        let name = escaped(&series.name);
        let _ = write!(svg, "<g stroke=\"{colour}\" fill=\"none\"><title>{name}</title>");
        if series.mark != Mark::Dots && !places.is_empty() {
            svg.push_str("<path stroke-width=\"1.6\" stroke-linejoin=\"round\" d=\"M");
            for (index, (x, y)) in places.iter().enumerate() {
                let _ = write!(svg, "{}{x:.1} {y:.1}", if index == 0 { "" } else { "L" });
            }
            svg.push_str("\"/>");
        }
        if series.mark != Mark::Line && !places.is_empty() {
            let (width, opacity) = if series.mark == Mark::Dots { (4.0, 0.55) } else { (6.0, 1.0) };
            let _ = write!(
                svg,
                "<path stroke-linecap=\"round\" stroke-width=\"{width}\" stroke-opacity=\"{opacity}\" d=\""
            );
            // A dot is a line of almost no length with round caps.
            for (x, y) in &places {
                let _ = write!(svg, "M{x:.1} {y:.1}h.01");
            }
            svg.push_str("\"/>");
        }
        for (point, off) in series.points.iter().zip(&series.spread).filter(|(point, _)| is_shown(point)) {
            let (x, low, high) = (frame.at_x(point.0), frame.at_y(point.1 - off), frame.at_y(point.1 + off));
            let _ = write!(svg, "<path d=\"M{:.1} {low:.1}h8M{:.1} {high:.1}h8", x - 4.0, x - 4.0);
            let _ = write!(svg, "M{x:.1} {low:.1}V{high:.1}\"/>");
        }
        svg.push_str("</g>");
    }

    fn draw_notes(&self, svg: &mut String, frame: &Frame<'_>) {
        for (index, (value, why)) in self.notes.iter().enumerate().filter(|(_, note)| self.x.can_show(note.0))
        {
            let (x, y) = (frame.at_x(*value), TOP + 12.0 + 14.0 * index as f64);
            let is_left = x < (LEFT + frame.right()) / 2.0;
            let (anchor, text_x) = if is_left { ("start", x + 4.0) } else { ("end", x - 4.0) };
            let _ = write!(
                svg,
                "<path d=\"M{x:.1} {TOP}V{}\" stroke=\"#333\" stroke-dasharray=\"4 3\"/>\
                 <text x=\"{text_x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>",
                HEIGHT - BOTTOM,
                escaped(why)
            );
        }
    }

    fn draw_legend(&self, svg: &mut String, frame: &Frame<'_>) {
        let x = frame.right() + 14.0;
        if self.series.len() > MAX_LEGEND_ENTRIES {
            let y = TOP + 10.0 + 18.0 * MAX_LEGEND_ENTRIES as f64;
            let _ = write!(
                svg,
                "<text x=\"{x}\" y=\"{y:.1}\">… and {} more</text>",
                self.series.len() - MAX_LEGEND_ENTRIES
            );
        }
        for (index, series) in self.series.iter().take(MAX_LEGEND_ENTRIES).enumerate() {
            let (y, colour) = (TOP + 10.0 + 18.0 * index as f64, COLOURS[index % COLOURS.len()]);
            let _ = write!(
                svg,
                "<rect x=\"{x}\" y=\"{:.1}\" width=\"12\" height=\"4\" fill=\"{colour}\"/>\
                 <text x=\"{:.1}\" y=\"{y:.1}\">{}</text>",
                y - 6.0,
                x + 18.0,
                escaped(&series.name)
            );
        }
    }
}

struct Frame<'a> {
    x: Span<'a>,
    y: Span<'a>,
    width: f64,
}

impl Frame<'_> {
    fn right(&self) -> f64 {
        self.width - RIGHT
    }

    fn at_x(&self, value: f64) -> f64 {
        LEFT + self.x.position(value) * (self.right() - LEFT)
    }

    fn at_y(&self, value: f64) -> f64 {
        let bottom = HEIGHT - BOTTOM;
        (bottom - self.y.position(value) * (bottom - TOP)).clamp(TOP, bottom)
    }
}
