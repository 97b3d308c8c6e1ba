//! The class with the nearest mean delays: a simple classifier to compare others with.

use learn::artifact::restore::{self, RestoreError, ensure, expect, expect_rows};
use learn::artifact::{Tensor, Tensors};
use learn::stats::{softmax, squared_distance};

use super::{Classifier, Evidence, TrainingSet};
use crate::features::{FeatureSet, Quantity, RunSummary, Statistic};

const QUANTITIES: [Quantity; 4] = [Quantity::Runtime, Quantity::StageIn, Quantity::StageOut, Quantity::Cpu];

pub struct Centroid {
    features: FeatureSet,
    /// The mean and the standard deviation of every feature over all runs.
    means: Vec<f32>,
    std_devs: Vec<f32>,
    /// The standardised mean of every class.
    centres: Vec<Vec<f32>>,
}

impl Centroid {
    pub fn fit(training: &TrainingSet<'_>) -> Self {
        let features = FeatureSet::of(&training.runs, &QUANTITIES, &[Statistic::Median]);
        let rows = features.rows(&training.runs);
        let n_columns = features.features.len();
        let (mut means, mut std_devs) = (vec![0.0; n_columns], vec![1.0; n_columns]);
        for column in 0..n_columns {
            let known: Vec<f32> =
                rows.rows().map(|row| row[column]).filter(|value| !value.is_nan()).collect();
            let n = known.len().max(1) as f32;
            means[column] = known.iter().sum::<f32>() / n;
            let square = known.iter().map(|value| (value - means[column]).powi(2)).sum::<f32>() / n;
            std_devs[column] = square.sqrt().max(1e-6);
        }
        let mut centroid = Self { features, means, std_devs, centres: Vec::new() };
        for class in 0..training.n_classes {
            let mut sum = vec![0.0; n_columns];
            let mut n_members = 0.0f32;
            for (row, _) in rows.rows().zip(&training.classes).filter(|(_, of)| **of == class) {
                n_members += 1.0;
                for (sum, value) in sum.iter_mut().zip(centroid.standardised(row)) {
                    *sum += value;
                }
            }
            for sum in &mut sum {
                *sum /= n_members.max(1.0);
            }
            centroid.centres.push(sum);
        }
        centroid
    }

    /// Features in standard deviations from the mean; an unknown value becomes the mean.
    fn standardised(&self, row: &[f32]) -> Vec<f32> {
        let cell = |((value, mean), std_dev): ((&f32, &f32), &f32)| {
            if value.is_nan() { 0.0 } else { (value - mean) / std_dev }
        };
        row.iter().zip(&self.means).zip(&self.std_devs).map(cell).collect()
    }

    pub fn restore(settings: &serde_json::Value, tensors: &Tensors) -> Result<Self, RestoreError> {
        let features: FeatureSet = restore::settings(settings)?;
        let n_columns = features.features.len();
        let row = |name: &str| expect(tensors, name, &[n_columns]).map(<[f32]>::to_vec);
        let (means, std_devs) = (row("means")?, row("deviations")?);
        ensure(std_devs.iter().all(|std_dev| *std_dev > 0.0), "a standard deviation is not positive")?;
        let centres = expect_rows(tensors, "centres", n_columns)?;
        let centres = centres.chunks_exact(n_columns).map(<[f32]>::to_vec).collect();
        Ok(Self { features, means, std_devs, centres })
    }
}

impl Classifier for Centroid {
    fn probabilities(&self, run: &RunSummary<'_>) -> Vec<f64> {
        let row = self.standardised(&self.features.row(run));
        let distance = |centre: &Vec<f32>| squared_distance(&row, centre).sqrt();
        softmax(&self.centres.iter().map(|centre| -distance(centre)).collect::<Vec<_>>())
    }

    /// How much nearer each feature is to the centre of the class than to that of healthy runs.
    fn evidence(&self, run: &RunSummary<'_>, class: usize) -> Evidence {
        let row = self.standardised(&self.features.row(run));
        let other = usize::from(class == 0);
        let gain = |((value, own), other): ((&f32, &f32), &f32)| {
            f64::from((value - other).abs() - (value - own).abs())
        };
        let gains = row.iter().zip(&self.centres[class]).zip(&self.centres[other]).map(gain);
        Evidence::Features(self.features.features.iter().cloned().zip(gains).collect())
    }

    fn n_classes(&self) -> usize {
        self.centres.len()
    }

    fn tensors(&self) -> Tensors {
        let n_columns = self.features.features.len();
        let centres = Tensor::new(vec![self.centres.len(), n_columns], self.centres.concat());
        [
            ("means", Tensor::row(self.means.clone())),
            ("deviations", Tensor::row(self.std_devs.clone())),
            ("centres", centres),
        ]
        .map(|(name, tensor)| (name.to_owned(), tensor))
        .into()
    }

    fn settings(&self) -> serde_json::Value {
        serde_json::json!(self.features)
    }
}
