//! Compares `learn` with SciPy, scikit-learn, NumPy and PyTorch on small inputs. The reference values are in
//! `fixtures/learn` and `fixtures/torch`, next to the scripts that computed them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod convolutions;
mod golden;

use learn::metrics::{pr_auc, roc_auc, vus_pr};
use learn::{Matrix, Pca, Welch, silhouette};
use serde::Deserialize;

#[derive(Deserialize)]
struct Vectors {
    welch: Vec<WelchVector>,
    points: Vec<Vec<f32>>,
    groups: Vec<usize>,
    silhouette: f64,
    pca: PcaVector,
    detection: Vec<DetectionVector>,
}

#[derive(Deserialize)]
struct DetectionVector {
    scores: Vec<f64>,
    is_anomalous: Vec<bool>,
    max_tolerance: usize,
    roc_auc: f64,
    pr_auc: f64,
    vus_pr: f64,
}

#[derive(Deserialize)]
struct WelchVector {
    values: Vec<f32>,
    segment: usize,
    overlap: usize,
    sample_rate: f64,
    density: Vec<f64>,
}

#[derive(Deserialize)]
struct PcaVector {
    explained_variance: Vec<f64>,
    explained_share: Vec<f64>,
    transformed: Vec<Vec<f64>>,
}

fn vectors() -> Vectors {
    let path = testbed::workspace().join("fixtures/learn/peers.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn points(vectors: &Vectors) -> Matrix {
    Matrix::new(vectors.points.concat(), vectors.points[0].len())
}

fn assert_close(found: f64, expected: f64, tolerance: f64) {
    assert!((found - expected).abs() <= tolerance * expected.abs().max(1.0), "{found} is not {expected}");
}

#[test]
fn spectra_are_those_of_scipy() {
    for vector in vectors().welch {
        let welch = Welch::new(vector.segment, vector.overlap, vector.sample_rate).unwrap();
        let spectrum = welch.spectrum(&vector.values).unwrap();
        assert_eq!(spectrum.density.len(), vector.density.len());
        spectrum
            .density
            .iter()
            .zip(&vector.density)
            .for_each(|(found, expected)| assert_close(*found, *expected, 1e-6));
    }
}

#[test]
fn silhouettes_are_those_of_scikit_learn() {
    let vectors = vectors();
    assert_close(silhouette(&points(&vectors), &vectors.groups).unwrap(), vectors.silhouette, 1e-5);
}

#[test]
fn principal_components_are_those_of_scikit_learn() {
    let vectors = vectors();
    let (points, expected) = (points(&vectors), &vectors.pca);
    let pca = Pca::fit(&points, expected.explained_variance.len()).unwrap();
    for (found, expected) in pca.explained_variance.iter().zip(&expected.explained_variance) {
        assert_close(*found, *expected, 1e-5);
    }
    for (found, expected) in pca.explained_share.iter().zip(&expected.explained_share) {
        assert_close(*found, *expected, 1e-5);
    }
    for (found, expected) in pca.transform(&points).rows().zip(&expected.transformed) {
        found
            .iter()
            .zip(expected)
            .for_each(|(found, expected)| assert_close(f64::from(*found), *expected, 1e-5));
    }
}

#[test]
fn areas_under_curves_are_those_of_scikit_learn() {
    for vector in vectors().detection {
        let (scores, is_anomalous) = (&vector.scores, &vector.is_anomalous);
        assert_close(roc_auc(scores, is_anomalous).unwrap(), vector.roc_auc, 1e-12);
        assert_close(pr_auc(scores, is_anomalous).unwrap(), vector.pr_auc, 1e-12);
    }
}

#[test]
fn volumes_under_surfaces_are_those_of_the_definition() {
    for vector in vectors().detection {
        let found = vus_pr(&vector.scores, &vector.is_anomalous, vector.max_tolerance).unwrap();
        assert_close(found, vector.vus_pr, 1e-12);
    }
}
