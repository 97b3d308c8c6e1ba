//! Matrix products. The only module of this crate with `unsafe`: `gemm` takes pointers, because its
//! operands may be views whose rows overlap, as the steps of a convolution do.

#![allow(unsafe_code, reason = "gemm takes pointers; the bounds of every operand are asserted first")]

use gemm::Parallelism;

/// A matrix inside a slice, with the distances between rows and between columns.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    pub values: &'a [f32],
    pub row_stride: usize,
    pub column_stride: usize,
}

impl<'a> View<'a> {
    /// A row-major matrix. Rows overlap if `row_stride` is less than their length.
    pub fn rows(values: &'a [f32], row_stride: usize) -> Self {
        Self { values, row_stride, column_stride: 1 }
    }

    /// The transpose of [`View::rows`].
    pub fn transposed(values: &'a [f32], row_stride: usize) -> Self {
        Self { values, row_stride: 1, column_stride: row_stride }
    }

    /// Whether the last element lies inside the slice. Both counts are at least one.
    fn holds(&self, n_rows: usize, n_columns: usize) -> bool {
        let last =
            (n_rows - 1).checked_mul(self.row_stride).zip((n_columns - 1).checked_mul(self.column_stride));
        last.and_then(|(rows, columns)| rows.checked_add(columns))
            .is_some_and(|last| last < self.values.len())
    }
}

/// What happens to the values already in the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accumulate {
    Overwrite,
    Add,
}

/// `out[m × n] = a[m × k] · b[k × n]`, or `+=`; rows of `out` are `out_stride` apart. Runs on the calling
/// thread only: work is spread over threads by splitting batches.
///
/// # Panics
/// If an operand is shorter than its shape says.
pub fn multiply(
    [m, n, k]: [usize; 3],
    out: &mut [f32],
    out_stride: usize,
    how: Accumulate,
    a: View<'_>,
    b: View<'_>,
) {
    if m == 0 || n == 0 {
        return;
    }
    let end = (m - 1).checked_mul(out_stride).and_then(|first| first.checked_add(n));
    assert!(out_stride >= n && end.is_some_and(|end| end <= out.len()), "the output is too short");
    if k == 0 {
        if how == Accumulate::Overwrite {
            for row in out.chunks_mut(out_stride).take(m) {
                row[..n].fill(0.0);
            }
        }
        return;
    }
    assert!(a.holds(m, k) && b.holds(k, n), "a factor is too short");
    // SAFETY: the assertions above bound the largest index of each operand, without overflow. `out` is
    // borrowed mutably, so it overlaps neither factor, and its own rows do not overlap.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            out.as_mut_ptr(),
            1,
            out_stride as isize,
            how == Accumulate::Add,
            a.values.as_ptr(),
            a.column_stride as isize,
            a.row_stride as isize,
            b.values.as_ptr(),
            b.column_stride as isize,
            b.row_stride as isize,
            1.0,
            1.0,
            false,
            false,
            false,
            Parallelism::None,
        );
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn plain(m: usize, n: usize, k: usize, a: View<'_>, b: View<'_>) -> Vec<f32> {
        let at = |view: View<'_>, row: usize, column: usize| {
            view.values[row * view.row_stride + column * view.column_stride]
        };
        let cell = |row, column| (0..k).map(|inner| at(a, row, inner) * at(b, inner, column)).sum();
        (0..m).flat_map(|row| (0..n).map(move |column| (row, column))).map(|(r, c)| cell(r, c)).collect()
    }

    proptest! {
        #[test]
        fn products_agree_with_the_definition(m in 1usize..9, n in 1usize..9, k in 1usize..20, seed in 0u32..1000) {
            let number = |index: usize| ((index as u32).wrapping_mul(2_654_435_761).wrapping_add(seed) >> 20) as f32 / 4096.0;
            let a: Vec<f32> = (0..m * k).map(number).collect();
            let b: Vec<f32> = (0..k * n).map(|index| number(index + 77)).collect();
            for (a, b) in [
                (View::rows(&a, k), View::rows(&b, n)),
                (View::transposed(&a, m), View::rows(&b, n)),
                (View::rows(&a, k), View::transposed(&b, k)),
            ] {
                let mut out = vec![1.0; m * n];
                multiply([m, n, k], &mut out, n, Accumulate::Add, a, b);
                let expected = plain(m, n, k, a, b);
                prop_assert!(out.iter().zip(&expected).all(|(found, wanted)| (found - wanted - 1.0).abs() < 1e-3));
            }
        }
    }

    #[test]
    #[should_panic(expected = "the output is too short")]
    fn a_stride_that_overflows_is_rejected() {
        let factor = [0.0; 4];
        let views = (View::rows(&factor, 1), View::rows(&factor, 1));
        multiply([3, 1, 1], &mut [0.0], 1 << 63, Accumulate::Overwrite, views.0, views.1);
    }

    #[test]
    #[should_panic(expected = "a factor is too short")]
    fn strides_of_a_factor_that_overflow_together_are_rejected() {
        let values = [0.0; 4];
        let wide = View { values: &values, row_stride: 1 << 63, column_stride: 1 << 63 };
        multiply([2, 2, 2], &mut [0.0; 4], 2, Accumulate::Overwrite, wide, View::rows(&values, 2));
    }

    #[test]
    #[should_panic(expected = "a factor is too short")]
    fn a_factor_that_is_too_short_is_rejected() {
        multiply(
            [2, 2, 2],
            &mut [0.0; 4],
            2,
            Accumulate::Overwrite,
            View::rows(&[0.0; 3], 2),
            View::rows(&[0.0; 4], 2),
        );
    }
}
