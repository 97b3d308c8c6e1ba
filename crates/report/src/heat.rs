//! Heat maps of correlations: blue for positive, orange for negative.

use std::fmt::Write;

use crate::escaped;

const CELL: f64 = 46.0;
const LABEL: f64 = 130.0;
const TOP: f64 = 36.0;
/// The colours of −1 and 1; zero is white.
const NEGATIVE: [f64; 3] = [213.0, 94.0, 0.0];
const POSITIVE: [f64; 3] = [0.0, 114.0, 178.0];

/// Matrices of numbers between −1 and 1, side by side, each with a title.
#[derive(Debug, Clone, PartialEq)]
pub struct HeatMaps {
    pub names: Vec<String>,
    pub maps: Vec<(String, Vec<Vec<f64>>)>,
}

impl HeatMaps {
    /// The maps as a self-contained SVG.
    pub fn svg(&self) -> String {
        let size = CELL * self.names.len() as f64;
        let width = self.maps.len() as f64 * (LABEL + size) + 10.0;
        let height = TOP + size + LABEL;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
             height=\"{height}\" font-family=\"sans-serif\" font-size=\"12\" fill=\"#333\">\
             <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>"
        );
        for (index, (title, values)) in self.maps.iter().enumerate() {
            let left = index as f64 * (LABEL + size) + LABEL;
            let _ = write!(svg, "<text x=\"{left}\" y=\"22\" font-size=\"15\">{}</text>", escaped(title));
            for (row, of_row) in values.iter().enumerate() {
                let y = TOP + row as f64 * CELL;
                let name = escaped(&self.names[row]);
                let _ = write!(
                    svg,
                    "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{name}</text>\
                     <text transform=\"translate({} {}) rotate(-60)\" text-anchor=\"end\">{name}</text>",
                    left - 6.0,
                    y + CELL / 2.0 + 4.0,
                    left + row as f64 * CELL + CELL / 2.0 + 6.0,
                    TOP + size + 12.0,
                );
                for (column, value) in of_row.iter().enumerate() {
                    let x = left + column as f64 * CELL;
                    let ink = if value.abs() > 0.6 { "#fff" } else { "#333" };
                    let _ = write!(
                        svg,
                        "<rect x=\"{x}\" y=\"{y}\" width=\"{CELL}\" height=\"{CELL}\" fill=\"{}\"/>\
                         <text x=\"{}\" y=\"{}\" text-anchor=\"middle\" fill=\"{ink}\">{value:.2}</text>",
                        colour(*value),
                        x + CELL / 2.0,
                        y + CELL / 2.0 + 4.0,
                    );
                }
            }
        }
        svg.push_str("</svg>");
        svg
    }
}

fn colour(value: f64) -> String {
    let value = if value.is_finite() { value.clamp(-1.0, 1.0) } else { 0.0 };
    let towards = if value < 0.0 { NEGATIVE } else { POSITIVE };
    let [red, green, blue] = towards.map(|part| (255.0 + (part - 255.0) * value.abs()) as u8);
    format!("#{red:02x}{green:02x}{blue:02x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_coloured_by_their_value() {
        let names = vec!["run <time>".to_owned(), "cores".to_owned()];
        let maps =
            HeatMaps { names, maps: vec![("real".into(), vec![vec![1.0, -0.5], vec![-0.5, f64::NAN]])] };
        let svg = maps.svg();
        assert_eq!(svg.matches("<rect x").count(), 4);
        assert!(svg.contains("#0072b2") && svg.contains("run &lt;time&gt;"), "{svg}");
        assert_eq!((colour(0.0), colour(f64::NAN)), ("#ffffff".to_owned(), "#ffffff".to_owned()));
        assert!(crate::png(&svg, 1.0).is_ok());
    }
}
