//! Counts, sizes, durations and tables as text, and names from input that are safe to print.

use std::borrow::Cow;
use std::time::Duration;

/// Whether a terminal could act on a character, or show the text around it in another order.
fn is_unprintable(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn escape_where(text: &str, is_escaped: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        if is_escaped(character) {
            shown.extend(character.escape_default());
        } else {
            shown.push(character);
        }
    }
    Cow::Owned(shown)
}

/// One line without characters that a terminal acts on: they are shown as escapes such as `\u{1b}`.
pub fn printable(line: &str) -> Cow<'_, str> {
    escape_where(line, is_unprintable)
}

/// The same for text of several lines: line breaks and tabs stay.
pub fn printable_lines(text: &str) -> Cow<'_, str> {
    escape_where(text, |character| is_unprintable(character) && !matches!(character, '\n' | '\t'))
}

pub fn show_bytes(bytes: u64) -> String {
    match bytes {
        0..10_000 => format!("{bytes} B"),
        10_000..1_000_000 => format!("{:.0} kB", bytes as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}

/// A count with thousands separators.
pub fn show_count(count: u64) -> String {
    let digits = count.to_string();
    let mut shown = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

/// A duration to the second, such as `2h 5m 10s`.
pub fn show_duration(seconds: f64) -> String {
    humantime::format_duration(Duration::from_secs(seconds.max(0.0).round() as u64)).to_string()
}

/// A table as text. Columns whose header starts with `>` are aligned to the right. Cells are made printable.
pub fn show_table(header: &[&str], rows: &[Vec<String>]) -> String {
    let titles = header.iter().map(|title| printable(title.trim_start_matches('>'))).collect();
    let rows: Vec<Vec<Cow<'_, str>>> =
        rows.iter().map(|row| row.iter().map(|cell| printable(cell)).collect()).collect();
    let all = || std::iter::once(&titles).chain(&rows);
    let width = |column: usize| all().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let line = |row: &Vec<Cow<'_, str>>| {
        let padded = row.iter().enumerate().map(|(column, cell)| match header[column].starts_with('>') {
            true => format!("{cell:>width$}", width = widths[column]),
            false => format!("{cell:<width$}", width = widths[column]),
        });
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    all().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_thousands_separators() {
        assert_eq!(show_count(0), "0");
        assert_eq!(show_count(1_234_567), "1,234,567");
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [vec!["n1".to_owned(), "7".to_owned()], vec!["n100".to_owned(), "12".to_owned()]];
        assert_eq!(show_table(&["node", ">jobs"], &rows), "node  jobs\nn1       7\nn100    12");
    }

    #[test]
    fn no_name_reaches_the_terminal_with_its_control_characters() {
        let name = "a\u{1b}[2Jb\r\u{9b}31m\u{202e}c\u{7f}";
        assert_eq!(printable(name), "a\\u{1b}[2Jb\\r\\u{9b}31m\\u{202e}c\\u{7f}");
        assert_eq!(printable("two\nlines\t"), "two\\nlines\\t");
        assert_eq!(printable_lines("two\nlines\t\u{1b}"), "two\nlines\t\\u{1b}");
        assert!(matches!(printable("größer_1 日本"), Cow::Borrowed(_)));
        let table = show_table(&["job"], &[vec![name.to_owned()], vec!["new\nline".to_owned()]]);
        assert!(!table.contains('\u{1b}') && table.lines().count() == 3, "{table}");
    }
}
