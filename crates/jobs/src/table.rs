//! Tables: columns of numbers or of words, in the order of the file.

use std::collections::HashMap;

use crate::format::{Format, is_missing};

/// What a column holds, a value a row.
#[derive(Debug, Clone, PartialEq)]
pub enum Values {
    /// Not a number where nothing is known.
    Numbers { values: Vec<f64>, format: Format },
    /// Numbers of names; the empty name where nothing is known.
    Words { codes: Vec<u32>, names: Vec<String> },
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
    /// What the file says of itself, line by line.
    pub notes: Vec<String>,
}

impl Column {
    pub fn numbers(name: impl Into<String>, values: Vec<f64>, format: Format) -> Self {
        Self { name: name.into(), values: Values::Numbers { values, format } }
    }

    /// Words, in the order in which they first come.
    pub fn words(name: impl Into<String>, cells: impl IntoIterator<Item = String>) -> Self {
        let mut names = Vec::new();
        let mut known: HashMap<String, u32> = HashMap::new();
        let codes = cells.into_iter().map(|cell| {
            *known.entry(cell).or_insert_with_key(|cell| {
                names.push(cell.clone());
                names.len() as u32 - 1
            })
        });
        let codes = codes.collect();
        Self { name: name.into(), values: Values::Words { codes, names } }
    }

    /// Numbers if all cells are, words otherwise.
    pub fn from_cells(name: impl Into<String>, cells: Vec<String>) -> Self {
        let Some(format) = Format::of(cells.iter().map(String::as_str)) else {
            return Self::words(name, cells);
        };
        let value =
            |cell: &String| if is_missing(cell) { f64::NAN } else { format.parse(cell).unwrap_or(f64::NAN) };
        Self::numbers(name, cells.iter().map(value).collect(), format)
    }

    pub fn len(&self) -> usize {
        match &self.values {
            Values::Numbers { values, .. } => values.len(),
            Values::Words { codes, .. } => codes.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A cell as it is written.
    pub fn cell(&self, row: usize) -> String {
        match &self.values {
            Values::Numbers { values, format } => format.show(values[row]),
            Values::Words { codes, names } => names[codes[row] as usize].clone(),
        }
    }

    pub fn as_numbers(&self) -> Option<&[f64]> {
        match &self.values {
            Values::Numbers { values, .. } => Some(values),
            Values::Words { .. } => None,
        }
    }

    /// These rows, in this order.
    #[must_use]
    pub fn select(mut self, rows: &[usize]) -> Self {
        match &mut self.values {
            Values::Numbers { values, .. } => *values = rows.iter().map(|row| values[*row]).collect(),
            Values::Words { codes, .. } => *codes = rows.iter().map(|row| codes[*row]).collect(),
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

    /// These rows, in this order.
    #[must_use]
    pub fn select(self, rows: &[usize]) -> Self {
        let columns = self.columns.into_iter().map(|column| column.select(rows)).collect();
        Self { columns, notes: self.notes }
    }
}
