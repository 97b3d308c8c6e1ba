//! Output for people: charts as SVG and PNG, self-contained HTML pages, and tables as text.

#[cfg(feature = "charts")]
mod axis;
#[cfg(feature = "charts")]
pub mod chart;
mod file_stem;
#[cfg(feature = "charts")]
mod folder;
#[cfg(feature = "charts")]
mod heat;
#[cfg(feature = "charts")]
mod page;
#[cfg(feature = "charts")]
mod png;
pub mod text;

pub use file_stem::file_stem;

#[cfg(feature = "charts")]
pub use {
    axis::{Axis, Scale},
    chart::{Chart, Mark, Series},
    folder::{ReportError, ReportFolder},
    heat::HeatMaps,
    page::{Block, Page},
    png::png,
};

/// Escapes text for XML and HTML. Characters that XML forbids even as references become `�`.
pub fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\t' | '\n' => escaped.push(character),
            '\u{fffe}' | '\u{ffff}' => escaped.push(char::REPLACEMENT_CHARACTER),
            _ if character.is_control() => escaped.push(char::REPLACEMENT_CHARACTER),
            _ => escaped.push(character),
        }
    }
    escaped
}

/// JSON that can stand inside a `<script>` element: no text in it can end the element, begin a comment, or end
/// a line of JavaScript.
#[cfg(feature = "charts")]
pub fn script_json(value: &serde_json::Value) -> String {
    let json = value.to_string();
    let mut safe = String::with_capacity(json.len());
    // These characters occur only inside strings of JSON, where an escape means the same.
    for character in json.chars() {
        match character {
            '<' => safe.push_str("\\u003c"),
            '>' => safe.push_str("\\u003e"),
            '&' => safe.push_str("\\u0026"),
            '\u{2028}' => safe.push_str("\\u2028"),
            '\u{2029}' => safe.push_str("\\u2029"),
            _ => safe.push(character),
        }
    }
    safe
}

#[cfg(all(test, feature = "charts"))]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_control_characters_can_be_drawn() {
        let name = "a\u{0}\u{1b}[31m\u{85}\u{ffff}<b> & \"c\"";
        let svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"9\" height=\"9\"><text>{}</text></svg>",
            escaped(name)
        );
        png(&svg, 1.0).unwrap();
        assert_eq!(escaped("<a> & \"b\"\n"), "&lt;a&gt; &amp; &quot;b&quot;\n");
    }

    #[test]
    fn json_in_a_script_element_keeps_its_meaning_and_cannot_leave_the_element() {
        let value = serde_json::json!({ "<!--<script>": "</script>&\u{2028}\u{2029}\u{1b}" });
        let text = script_json(&value);
        assert!(!text.contains(['<', '>', '&', '\u{2028}', '\u{2029}', '\u{1b}']), "{text}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
    }
}
