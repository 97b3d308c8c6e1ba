//! Text in CSV files that spreadsheets open: a cell that begins like a formula gets an apostrophe in front, which
//! our readers take away again. Numbers stay as they are.

use std::borrow::Cow;

const FORMULA_STARTS: [char; 6] = ['=', '+', '-', '@', '\t', '\r'];
const GUARD: char = '\'';

/// A text as it is written to CSV.
pub fn guarded(cell: &str) -> Cow<'_, str> {
    if is_like_formula(cell) { format!("{GUARD}{cell}").into() } else { cell.into() }
}

/// The text that [`guarded`] was given.
pub fn unguarded(cell: &str) -> &str {
    cell.strip_prefix(GUARD).filter(|rest| is_like_formula(rest)).unwrap_or(cell)
}

/// Whether a spreadsheet could take a text for a formula, or [`unguarded`] could shorten it. A lone sign is no
/// formula, and neither is a number.
fn is_like_formula(cell: &str) -> bool {
    let text = cell.trim_start_matches(GUARD);
    text.len() > 1 && text.starts_with(FORMULA_STARTS) && text.parse::<f64>().is_err()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formulas_are_guarded_and_come_back() {
        let formulas = ["=1+1", "+SUM(A1)", "-cmd|x", "@now", "\t=1", "\r=1", "'=1", "''@x"];
        for cell in formulas {
            assert_eq!(guarded(cell), format!("'{cell}"));
            assert_eq!(unguarded(&guarded(cell)), cell);
        }
        for cell in ["", "-", "+", "-17", "+1e3", "-0.5", "4711", "a=b", "'quoted'", "'", "-inf"] {
            assert_eq!(guarded(cell), cell);
            assert_eq!(unguarded(cell), cell);
        }
    }
}
