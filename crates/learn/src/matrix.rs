//! A matrix of `f32`, one point per row.

/// Rows of equal length.
#[derive(Debug, Clone, PartialEq)]
pub struct Matrix {
    values: Vec<f32>,
    n_columns: usize,
}

impl Matrix {
    /// # Panics
    /// If the values are not whole rows.
    pub fn new(values: Vec<f32>, n_columns: usize) -> Self {
        assert!(n_columns > 0 && values.len().is_multiple_of(n_columns), "the values are not whole rows");
        Self { values, n_columns }
    }

    pub fn n_rows(&self) -> usize {
        self.values.len() / self.n_columns
    }

    pub fn n_columns(&self) -> usize {
        self.n_columns
    }

    pub fn row(&self, index: usize) -> &[f32] {
        &self.values[index * self.n_columns..(index + 1) * self.n_columns]
    }

    pub fn rows(&self) -> impl ExactSizeIterator<Item = &[f32]> {
        self.values.chunks_exact(self.n_columns)
    }

    pub fn as_slice(&self) -> &[f32] {
        &self.values
    }

    /// The rows with these indices, in this order.
    #[must_use]
    pub fn select(&self, rows: &[usize]) -> Self {
        let values = rows.iter().flat_map(|row| self.row(*row).iter().copied()).collect();
        Self { values, n_columns: self.n_columns }
    }

    pub fn column_means(&self) -> Vec<f64> {
        let mut sums = vec![0.0; self.n_columns];
        for row in self.rows() {
            sums.iter_mut().zip(row).for_each(|(sum, value)| *sum += f64::from(*value));
        }
        let n_rows = self.n_rows().max(1) as f64;
        sums.iter_mut().for_each(|sum| *sum /= n_rows);
        sums
    }
}
