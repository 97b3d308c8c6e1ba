//! Tables of jobs: typed columns, in the order of the file.

use std::collections::HashMap;

use crate::format::{Format, is_missing};

/// The cells of a column.
#[derive(Debug, Clone, PartialEq)]
pub enum Values {
    /// NaN is an unknown value.
    Numbers { values: Vec<f64>, format: Format },
    /// Indices into `names`; the empty name is an unknown value.
    Text { codes: Vec<u32>, names: Vec<String> },
}

#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    pub name: String,
    pub values: Values,
}

/// Columns of equal length.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Table {
    pub columns: Vec<Column>,
    /// Header comments of the file, line by line.
    pub notes: Vec<String>,
}

/// The cells of a column while a file is read, one after another in one text: a short cell takes a few bytes, so that
/// a file of many of them does not take many times its size.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cells {
    text: String,
    ends: Vec<usize>,
}

impl Cells {
    pub fn push(&mut self, cell: &str) {
        self.text += cell;
        self.ends.push(self.text.len());
    }

    pub fn n_cells(&self) -> usize {
        self.ends.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = &str> + Clone {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| &self.text[start..*end])
    }
}

/// Gives each distinct name a code, in the order of first appearance.
#[derive(Debug, Default)]
pub(crate) struct NameCodes {
    names: Vec<String>,
    code_of: HashMap<String, u32>,
}

impl NameCodes {
    pub fn code(&mut self, name: &str) -> u32 {
        if let Some(code) = self.code_of.get(name) {
            return *code;
        }
        let code = self.names.len() as u32;
        self.names.push(name.to_owned());
        self.code_of.insert(name.to_owned(), code);
        code
    }

    pub fn into_names(self) -> Vec<String> {
        self.names
    }
}

impl Column {
    pub fn numbers(name: impl Into<String>, values: Vec<f64>, format: Format) -> Self {
        Self { name: name.into(), values: Values::Numbers { values, format } }
    }

    pub fn text(name: impl Into<String>, cells: impl IntoIterator<Item: AsRef<str>>) -> Self {
        let mut names = NameCodes::default();
        let codes = cells.into_iter().map(|cell| names.code(cell.as_ref())).collect();
        Self { name: name.into(), values: Values::Text { codes, names: names.into_names() } }
    }

    /// Numbers if every known cell is one, text otherwise.
    pub fn from_cells<'a>(name: impl Into<String>, cells: impl Iterator<Item = &'a str> + Clone) -> Self {
        let Some(format) = Format::of(cells.clone()) else {
            return Self::text(name, cells);
        };
        let value =
            |cell: &str| if is_missing(cell) { f64::NAN } else { format.parse(cell).unwrap_or(f64::NAN) };
        Self::numbers(name, cells.map(value).collect(), format)
    }

    pub fn len(&self) -> usize {
        match &self.values {
            Values::Numbers { values, .. } => values.len(),
            Values::Text { codes, .. } => codes.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A cell as it is written to a file.
    pub fn cell(&self, row: usize) -> String {
        match &self.values {
            Values::Numbers { values, format } => format.show(values[row]),
            Values::Text { codes, names } => names[codes[row] as usize].clone(),
        }
    }

    pub fn as_numbers(&self) -> Option<&[f64]> {
        match &self.values {
            Values::Numbers { values, .. } => Some(values),
            Values::Text { .. } => None,
        }
    }

    /// The column as categories: a code per row, and the names of the codes. Each distinct number is formatted once.
    pub fn categories(&self) -> (Vec<u32>, Vec<String>) {
        match &self.values {
            Values::Numbers { values, format } => {
                let mut names = NameCodes::default();
                let mut code_of_bits: HashMap<u64, u32> = HashMap::new();
                let code = |value: &f64| {
                    *code_of_bits.entry(value.to_bits()).or_insert_with(|| names.code(&format.show(*value)))
                };
                let codes = values.iter().map(code).collect();
                (codes, names.into_names())
            }
            Values::Text { codes, names } => {
                // Rows may have been removed since the codes were given: number the remaining names anew.
                let mut renumbered = NameCodes::default();
                let mut new_code: Vec<Option<u32>> = vec![None; names.len()];
                let code = |code: &u32| {
                    let at = *code as usize;
                    *new_code[at].get_or_insert_with(|| renumbered.code(&names[at]))
                };
                let codes = codes.iter().map(code).collect();
                (codes, renumbered.into_names())
            }
        }
    }

    /// The given rows, in the given order.
    #[must_use]
    pub fn select(mut self, rows: &[usize]) -> Self {
        match &mut self.values {
            Values::Numbers { values, .. } => *values = rows.iter().map(|row| values[*row]).collect(),
            Values::Text { codes, .. } => *codes = rows.iter().map(|row| codes[*row]).collect(),
        }
        self
    }
}

impl Table {
    pub fn n_rows(&self) -> usize {
        self.columns.first().map_or(0, Column::len)
    }

    pub fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|column| column.name == name)
    }

    pub(crate) fn column_mut(&mut self, name: &str) -> Option<&mut Column> {
        self.columns.iter_mut().find(|column| column.name == name)
    }

    pub(crate) fn column_names(&self) -> Vec<String> {
        self.columns.iter().map(|column| column.name.clone()).collect()
    }

    /// The given rows, in the given order.
    #[must_use]
    pub fn select(self, rows: &[usize]) -> Self {
        let columns = self.columns.into_iter().map(|column| column.select(rows)).collect();
        Self { columns, notes: self.notes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn categories_of_numbers_and_text_are_numbered_by_first_appearance() {
        let numbers = Column::numbers("user", vec![7.0, 3.0, 7.0, f64::NAN], Format::Plain { decimals: 0 });
        assert_eq!(numbers.categories(), (vec![0, 1, 0, 2], vec!["7".into(), "3".into(), String::new()]));
        let text = Column::text("user", ["a", "b", "c", "b"].map(String::from)).select(&[3, 0, 1]);
        assert_eq!(text.categories(), (vec![0, 1, 0], vec!["b".into(), "a".into()]));
        // Numbers that are written alike are one category.
        let alike = Column::numbers("user", vec![0.001, 0.0], Format::Plain { decimals: 1 });
        assert_eq!(alike.categories(), (vec![0, 0], vec!["0".into()]));
    }
}
