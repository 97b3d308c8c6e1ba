//! Charts as SVG: the chart that networks are trained on, and one with names, a legend, the critical path and retries.

use std::collections::BTreeMap;
use std::fmt::Write;

use report::escaped;

use super::{Gantt, Part, Row};

/// How a chart is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// The chart of Krawczuk et al. (PEARC 2021), without text and axes.
    Paper,
    /// For people.
    Named,
}

/// Rows that are drawn one by one; in larger charts, several tasks of a kind share a row, and several kinds too if
/// there are more kinds than this.
const MAX_ROWS: usize = 160;
/// No axis has more ticks, whatever the duration of the run.
const MAX_TICKS: usize = 10;
const ROW: f64 = 12.0;
const LEFT: f64 = 190.0;
const TOP: f64 = 58.0;
const BOTTOM: f64 = 34.0;

pub fn svg(gantt: &Gantt, style: Style, width: f64) -> String {
    match style {
        Style::Paper => paper(gantt, width),
        Style::Named => named(gantt, width.max(LEFT + 300.0)),
    }
}

fn colour([red, green, blue]: [u8; 3]) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}

fn paper(gantt: &Gantt, side: f64) -> String {
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{side}\" height=\"{side}\" shape-rendering=\"crispEdges\">"
    );
    let (scale, height) = (side / gantt.seconds.max(1e-9), side / gantt.rows.len().max(1) as f64);
    for (at, row) in gantt.rows.iter().enumerate() {
        for (part, start, end) in row.parts() {
            let _ = write!(
                text,
                "<rect x=\"{:.2}\" y=\"{:.2}\" width=\"{:.2}\" height=\"{height:.2}\" fill=\"{}\"/>",
                start * scale,
                at as f64 * height,
                (end - start) * scale,
                colour(part.paper_colour())
            );
        }
    }
    text + "</svg>"
}

/// A row of the chart: one task, or several of a kind.
struct Band<'a> {
    rows: Vec<&'a Row>,
}

impl Band<'_> {
    fn name(&self) -> String {
        let first = self.rows[0];
        match self.rows.len() {
            1 => {
                let number = (first.attempt > 1).then(|| format!("attempt {}", first.attempt));
                let note = first.note.map(|note| note.name().to_owned());
                let notes: Vec<String> = number.into_iter().chain(note).collect();
                with_notes(&first.task, &notes)
            }
            many if self.rows.iter().all(|row| row.kind == first.kind) => {
                shortened(&format!("{} × {many}", first.kind), MAX_CHARACTERS)
            }
            many => format!("{many} tasks of several kinds"),
        }
    }
}

/// Tasks sorted by the start of their kind and their own start. If there are too many, neighbours share a row.
fn bands(gantt: &Gantt) -> Vec<Band<'_>> {
    let mut begins: BTreeMap<&str, f64> = BTreeMap::new();
    for row in &gantt.rows {
        let known = begins.entry(row.kind.as_str()).or_insert(f64::INFINITY);
        *known = known.min(row.start());
    }
    let mut rows: Vec<&Row> = gantt.rows.iter().collect();
    let order = |a: &&Row, b: &&Row| {
        begins[a.kind.as_str()]
            .total_cmp(&begins[b.kind.as_str()])
            .then_with(|| a.kind.cmp(&b.kind))
            .then_with(|| a.start().total_cmp(&b.start()))
            .then_with(|| (&a.task, a.attempt).cmp(&(&b.task, b.attempt)))
    };
    rows.sort_by(order);
    let size = rows.len().div_ceil(MAX_ROWS).max(1);
    if begins.len() > MAX_ROWS {
        return rows.chunks(size).map(|rows| Band { rows: rows.to_vec() }).collect();
    }
    let mut bands = Vec::new();
    for kind in rows.chunk_by(|a, b| a.kind == b.kind) {
        bands.extend(kind.chunks(size).map(|rows| Band { rows: rows.to_vec() }));
    }
    bands
}

fn named(gantt: &Gantt, width: f64) -> String {
    let bands = bands(gantt);
    let height = TOP + bands.len() as f64 * ROW + BOTTOM;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"sans-serif\" font-size=\"9\"><rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\
         <text x=\"8\" y=\"18\" font-size=\"14\">{}</text>",
        escaped(&gantt.name)
    );
    legend(&mut text, width);
    let plot = width - LEFT - 16.0;
    let scale = plot / gantt.seconds.max(1e-9);
    axis(&mut text, gantt.seconds, scale, TOP + bands.len() as f64 * ROW);
    for (at, band) in bands.iter().enumerate() {
        let y = TOP + at as f64 * ROW;
        let has_failed = band.rows.iter().any(|row| row.has_failed);
        let is_critical = band.rows.iter().any(|row| row.is_critical);
        let fill = if has_failed { "#c62828" } else { "#333" };
        let weight = if is_critical { " font-weight=\"bold\"" } else { "" };
        let _ = write!(
            text,
            "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"{fill}\"{weight}>{}</text>",
            LEFT - 6.0,
            y + ROW - 3.0,
            escaped(&band.name())
        );
        // Tasks that share a row are drawn over each other with low opacity.
        let opacity = (1.0 / band.rows.len() as f64).max(0.08);
        for row in &band.rows {
            for (part, start, end) in
                row.parts().filter(|(part, ..)| !matches!(part, Part::Ready | Part::Finished))
            {
                let (x, length) = (LEFT + start * scale, ((end - start) * scale).max(0.3));
                let faint =
                    if band.rows.len() > 1 { format!(" opacity=\"{opacity:.2}\"") } else { String::new() };
                let _ = write!(
                    text,
                    "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"{length:.1}\" height=\"{}\" fill=\"{}\"{faint}/>",
                    y + 1.0,
                    ROW - 2.0,
                    colour(part.colour())
                );
            }
            if row.has_failed {
                let x = LEFT + row.end() * scale;
                let _ = write!(
                    text,
                    "<text x=\"{:.1}\" y=\"{:.1}\" fill=\"#c62828\">x</text>",
                    x + 1.0,
                    y + ROW - 3.0
                );
            }
        }
        if is_critical {
            let row = band.rows.iter().find(|row| row.is_critical).unwrap_or(&band.rows[0]);
            let _ = write!(
                text,
                "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{}\" fill=\"none\" stroke=\"#111\"/>",
                LEFT + row.start() * scale,
                y + 0.5,
                ((row.end() - row.start()) * scale).max(1.0),
                ROW - 1.0
            );
        }
    }
    text + "</svg>"
}

fn legend(text: &mut String, width: f64) {
    let shown = Part::ALL.into_iter().filter(|part| !matches!(part, Part::Ready | Part::Finished));
    let step = ((width - LEFT) / 10.0).min(104.0);
    for (at, part) in shown.enumerate() {
        let x = LEFT + at as f64 * step;
        let _ = write!(
            text,
            "<rect x=\"{x:.1}\" y=\"30\" width=\"10\" height=\"10\" fill=\"{}\"/><text x=\"{:.1}\" y=\"39\">{}</text>",
            colour(part.colour()),
            x + 13.0,
            part.name()
        );
    }
    let x = LEFT + 8.0 * step;
    let _ = write!(
        text,
        "<rect x=\"{x:.1}\" y=\"30.5\" width=\"9\" height=\"9\" fill=\"none\" stroke=\"#111\"/>\
         <text x=\"{:.1}\" y=\"39\">critical path</text>",
        x + 13.0
    );
}

fn axis(text: &mut String, seconds: f64, scale: f64, bottom: f64) {
    let rough = seconds / 8.0;
    let steps = [
        1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, 7200.0, 21600.0,
        86400.0,
    ];
    let step = steps.into_iter().find(|step| *step >= rough).unwrap_or(rough.max(1.0));
    let ticks = (0..MAX_TICKS).map(|number| number as f64 * step);
    for at in ticks.take_while(|at| *at <= seconds) {
        let x = LEFT + at * scale;
        let _ = write!(
            text,
            "<path d=\"M{x:.1} {}V{bottom:.1}\" stroke=\"#eee\"/><text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\" \
             fill=\"#555\">{}</text>",
            TOP - 6.0,
            bottom + 14.0,
            clock(at, step)
        );
    }
}

fn clock(seconds: f64, step: f64) -> String {
    match step {
        step if step >= 3_600.0 => format!("{:.0} h", seconds / 3_600.0),
        step if step >= 60.0 => format!("{:.0} min", seconds / 60.0),
        _ => format!("{seconds:.0} s"),
    }
}

/// Characters that fit next to the chart.
const MAX_CHARACTERS: usize = 34;

fn shortened(name: &str, max_characters: usize) -> String {
    match name.chars().count() {
        count if count <= max_characters => name.to_owned(),
        _ => name.chars().take(max_characters - 1).chain(['…']).collect(),
    }
}

/// A name with notes in brackets, which stay readable if the name is long.
fn with_notes(name: &str, notes: &[String]) -> String {
    if notes.is_empty() {
        return shortened(name, MAX_CHARACTERS);
    }
    let notes = format!(" ({})", notes.join(", "));
    shortened(name, MAX_CHARACTERS.saturating_sub(notes.len()).max(10)) + &notes
}
