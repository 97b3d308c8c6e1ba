//! The nearest mean: what anything else has to be better than.

use crate::workflow::WorkflowRun;
use learn::artifact::{Tensor, Tensors};
use learn::stats::{softmax, squared_distance};

use super::{Classifier, Evidence, Lesson};
use crate::features::{Quantity, Statistic, View};

const QUANTITIES: [Quantity; 4] = [Quantity::Run, Quantity::StageIn, Quantity::StageOut, Quantity::Cpu];

pub struct Centroid {
    view: View,
    /// Of every column over all runs.
    means: Vec<f32>,
    deviations: Vec<f32>,
    /// A row a class, in units of deviations from the mean.
    centres: Vec<Vec<f32>>,
}

impl Centroid {
    pub fn fit(lesson: &Lesson<'_>) -> Self {
        let view = View::of(&lesson.runs, &QUANTITIES, &[Statistic::Median]);
        let rows = view.rows(&lesson.runs);
        let n_columns = view.features.len();
        let (mut means, mut deviations) = (vec![0.0; n_columns], vec![1.0; n_columns]);
        for column in 0..n_columns {
            let known: Vec<f32> =
                rows.rows().map(|row| row[column]).filter(|value| !value.is_nan()).collect();
            let n = known.len().max(1) as f32;
            means[column] = known.iter().sum::<f32>() / n;
            let square = known.iter().map(|value| (value - means[column]).powi(2)).sum::<f32>() / n;
            deviations[column] = square.sqrt().max(1e-6);
        }
        let mut centroid = Self { view, means, deviations, centres: Vec::new() };
        for class in 0..lesson.n_classes {
            let mut sum = vec![0.0; n_columns];
            let members = rows.rows().zip(&lesson.classes).filter(|(_, of)| **of == class);
            let mut n_members = 0.0f32;
            for (row, _) in members {
                n_members += 1.0;
                sum.iter_mut().zip(centroid.scaled(row)).for_each(|(sum, value)| *sum += value);
            }
            sum.iter_mut().for_each(|sum| *sum /= n_members.max(1.0));
            centroid.centres.push(sum);
        }
        centroid
    }

    /// In deviations from the mean; what is not known is the mean.
    fn scaled(&self, row: &[f32]) -> Vec<f32> {
        let cell = |((value, mean), deviation): ((&f32, &f32), &f32)| {
            if value.is_nan() { 0.0 } else { (value - mean) / deviation }
        };
        row.iter().zip(&self.means).zip(&self.deviations).map(cell).collect()
    }

    pub fn restore(settings: &serde_json::Value, tensors: &Tensors) -> Option<Self> {
        let view: View = serde_json::from_value(settings.clone()).ok()?;
        let row = |name: &str| tensors.get(name).and_then(Tensor::as_f32).map(<[f32]>::to_vec);
        let n_columns = view.features.len();
        let centres = row("centres")?.chunks_exact(n_columns.max(1)).map(<[f32]>::to_vec).collect();
        let (means, deviations) = (row("means")?, row("deviations")?);
        (means.len() == n_columns && deviations.len() == n_columns).then_some(Self {
            view,
            means,
            deviations,
            centres,
        })
    }
}

impl Classifier for Centroid {
    fn chances(&self, run: &WorkflowRun) -> Vec<f64> {
        let row = self.scaled(&self.view.row(run));
        let distance = |centre: &Vec<f32>| squared_distance(&row, centre).sqrt();
        softmax(&self.centres.iter().map(|centre| -distance(centre)).collect::<Vec<_>>())
    }

    fn evidence(&self, run: &WorkflowRun, class: usize) -> Evidence {
        let row = self.scaled(&self.view.row(run));
        // What is nearer to the centre of the class than to that of healthy runs speaks for it.
        let against = usize::from(class == 0);
        let gain = |((value, own), other): ((&f32, &f32), &f32)| {
            f64::from((value - other).abs() - (value - own).abs())
        };
        let gains = row.iter().zip(&self.centres[class]).zip(&self.centres[against]).map(gain);
        Evidence::Features(self.view.features.iter().cloned().zip(gains).collect())
    }

    fn n_classes(&self) -> usize {
        self.centres.len()
    }

    fn tensors(&self) -> Tensors {
        let row = |values: &[f32]| Tensor::row(values.to_vec());
        let n_columns = self.view.features.len();
        let centres = Tensor::new(vec![self.centres.len(), n_columns], self.centres.concat());
        [("means", row(&self.means)), ("deviations", row(&self.deviations)), ("centres", centres)]
            .map(|(name, tensor)| (name.to_owned(), tensor))
            .into()
    }

    fn settings(&self) -> serde_json::Value {
        serde_json::json!(self.view)
    }
}
