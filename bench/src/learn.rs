//! Measures `learn`: `bench-learn silhouette FILE POINTS COLUMNS` and `bench-learn welch FILE SERIES LENGTH
//! SEGMENT`, on numbers that `bench/learn.py` has written (f32, row after row; then a byte a point for its
//! group), each as one JSON line.

#![allow(clippy::print_stdout, reason = "the result is what it prints")]

use std::time::Instant;

use anyhow::bail;
use learn::{Matrix, Welch, silhouette};
use rayon::prelude::*;
use serde_json::{Value, json};

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match arguments[..] {
        ["silhouette", file, points, columns] => of_points(file, points.parse()?, columns.parse()?)?,
        ["welch", file, series, length, segment] => {
            of_series(file, series.parse()?, length.parse()?, segment.parse()?)?
        }
        _ => bail!("usage: bench-learn silhouette FILE POINTS COLUMNS | welch FILE SERIES LENGTH SEGMENT"),
    };
    println!("{result}");
    Ok(())
}

fn numbers(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|bytes| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])).collect()
}

fn of_points(file: &str, n_points: usize, n_columns: usize) -> anyhow::Result<Value> {
    let bytes = std::fs::read(file)?;
    let (values, groups) = bytes.split_at(n_points * n_columns * 4);
    let points = Matrix::new(numbers(values), n_columns);
    let groups: Vec<usize> = groups.iter().map(|group| usize::from(*group)).collect();
    let begun = Instant::now();
    let found = silhouette(&points, &groups)?;
    Ok(json!({ "seconds": begun.elapsed().as_secs_f64(), "silhouette": found }))
}

fn of_series(file: &str, n_series: usize, length: usize, segment: usize) -> anyhow::Result<Value> {
    let values = numbers(&std::fs::read(file)?);
    if values.len() != n_series * length {
        bail!("{file} has {} numbers", values.len());
    }
    let begun = Instant::now();
    let welch = Welch::new(segment, segment / 2, 1.0)?;
    let spectra: Result<Vec<_>, _> = values.par_chunks(length).map(|series| welch.spectrum(series)).collect();
    let total: f64 = spectra?.iter().flat_map(|spectrum| &spectrum.density).sum();
    Ok(json!({ "seconds": begun.elapsed().as_secs_f64(), "total": total }))
}
