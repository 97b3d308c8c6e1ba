//! Several detectors of one kind that started from different random weights. They agree about windows like those they
//! were trained on, and differ about others: the spread is an estimate of uncertainty.

use learn::artifact::{Tensor, Tensors};
use learn::stats::{mean, std_dev};

use crate::detector::{Detector, Finding, Uncertainty};
use crate::explain::Explanation;
use crate::window::{WindowBatch, WindowSpec};

pub struct Ensemble {
    /// At least two.
    members: Vec<Box<dyn Detector>>,
}

impl Ensemble {
    /// The only member, or an ensemble of several.
    pub fn of(mut members: Vec<Box<dyn Detector>>) -> Option<Box<dyn Detector>> {
        match members.len() {
            0 => None,
            1 => members.pop(),
            _ => Some(Box::new(Self { members })),
        }
    }

    /// The tensors of one member.
    pub fn tensors_of(tensors: &Tensors, member: usize) -> Tensors {
        let prefix = prefix(member);
        let own = |(name, tensor): (&String, &Tensor)| {
            Some((name.strip_prefix(&prefix)?.to_owned(), tensor.clone()))
        };
        tensors.iter().filter_map(own).collect()
    }
}

fn prefix(member: usize) -> String {
    format!("member-{member}.")
}

impl Detector for Ensemble {
    fn examine(&self, batch: &WindowBatch) -> Vec<Finding> {
        let of_members: Vec<Vec<Finding>> = self.members.iter().map(|member| member.examine(batch)).collect();
        (0..batch.threads().len())
            .map(|window| {
                let findings: Vec<&Finding> = of_members.iter().map(|findings| &findings[window]).collect();
                combined(&findings)
            })
            .collect()
    }

    fn explain(
        &self,
        batch: &WindowBatch,
        findings: &[Finding],
        windows: &[usize],
        spec: &WindowSpec,
    ) -> Vec<Explanation> {
        self.members[0].explain(batch, findings, windows, spec)
    }

    fn tensors(&self) -> Tensors {
        let mut all = Tensors::new();
        for (number, member) in self.members.iter().enumerate() {
            let tensors = member.tensors().into_iter();
            all.extend(tensors.map(|(name, tensor)| (prefix(number) + &name, tensor)));
        }
        all
    }
}

/// The means of several findings of one window. Embeddings have no common space, so that of the first is kept.
fn combined(findings: &[&Finding]) -> Finding {
    let first = findings[0];
    let mean_of = |values: &dyn Fn(&Finding) -> f64| {
        mean(&findings.iter().map(|finding| values(finding)).collect::<Vec<f64>>())
    };
    let means = |n_values: usize, value: &dyn Fn(&Finding, usize) -> f64| -> Vec<f64> {
        (0..n_values).map(|at| mean_of(&|finding| value(finding, at))).collect()
    };
    let expected = means(first.expected.len(), &|finding, at| f64::from(finding.expected[at]));
    let spread = mean_of(&|finding| {
        let pairs = finding.expected.iter().zip(&expected);
        pairs.map(|(one, mean)| (f64::from(*one) - mean).powi(2)).sum::<f64>() / expected.len().max(1) as f64
    });
    let own = |number: fn(&Uncertainty) -> f64| {
        mean_of(&|finding| finding.uncertainty.as_ref().map_or(0.0, number))
    };
    Finding {
        score: mean_of(&|finding| finding.score),
        errors: means(first.errors.len(), &|finding, at| finding.errors[at]),
        embedding: first.embedding.clone(),
        expected: expected.into_iter().map(|value| value as f32).collect(),
        uncertainty: Some(Uncertainty {
            reconstruction: spread + own(|one| one.reconstruction),
            latent: own(|one| one.latent),
        }),
        level: first.level,
        distances: means(first.distances.len(), &|finding, at| finding.distances[at]),
        distance_spread: (0..first.distances.len())
            .map(|at| std_dev(&findings.iter().map(|finding| finding.distances[at]).collect::<Vec<f64>>()))
            .collect(),
    }
}
