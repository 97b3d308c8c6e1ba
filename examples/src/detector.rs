//! A detector: the distance of a window from the mean of the windows that it was fitted to.

use detect::{Detector, Finding, Sample, WindowBatch};
use learn::artifact::{Tensor, Tensors};

#[derive(Debug, Clone, PartialEq)]
pub struct MeanWindow {
    mean: Vec<f32>,
}

impl MeanWindow {
    /// `None` if the sample has no window.
    pub fn fit(sample: &Sample) -> Option<Self> {
        let mut sum = vec![0.0; sample.windows().next()?.values.len()];
        for window in sample.windows() {
            for (sum, value) in sum.iter_mut().zip(&window.values) {
                *sum += f64::from(*value);
            }
        }
        let n_windows = sample.n_windows() as f64;
        Some(Self { mean: sum.into_iter().map(|sum| (sum / n_windows) as f32).collect() })
    }

    /// Reads what [`Detector::tensors`] has stored. `size` is the number of values of a window.
    pub fn restore(tensors: &Tensors, size: usize) -> Option<Self> {
        let mean = tensors.get("mean")?.as_f32().filter(|mean| mean.len() == size)?;
        Some(Self { mean: mean.to_vec() })
    }
}

impl Detector for MeanWindow {
    fn examine(&self, batch: &WindowBatch) -> Vec<Finding> {
        let examine = |values: &Vec<f32>| {
            // What this detector expects is the same for every window, so there is nothing to embed but the error.
            let mut finding =
                Finding::from_reconstruction(values, self.mean.clone(), Vec::new(), batch.n_channels());
            finding.embedding = finding.errors.iter().map(|error| *error as f32).collect();
            finding
        };
        batch.threads().iter().map(|thread| examine(&thread.values)).collect()
    }

    fn tensors(&self) -> Tensors {
        [("mean".to_owned(), Tensor::row(self.mean.clone()))].into()
    }
}

#[cfg(test)]
mod tests {
    use detect::ThreadWindow;
    use workload::{Cpu, JobId, NodeName, Owner, Timestamp};

    use super::*;

    const N_CHANNELS: usize = 4;

    /// Windows of 100 steps, one for each rate of user time; the rest is iowait.
    fn batch(user_rates: &[f32]) -> WindowBatch {
        let window = |(cpu, user): (usize, &f32)| ThreadWindow {
            node: NodeName::new("n001").unwrap(),
            cpu: Cpu(cpu as u16),
            owner: Owner::Job(JobId::new("4711").unwrap()),
            values: [*user, 0.0, 1.0 - user, 0.0].repeat(100),
        };
        WindowBatch::new(Timestamp(0), N_CHANNELS, user_rates.iter().enumerate().map(window).collect())
    }

    #[test]
    fn a_window_that_deviates_has_a_higher_score() {
        let sample = Sample { batches: vec![batch(&[0.9, 0.95, 1.0])], n_available: 3 };
        let detector = MeanWindow::fit(&sample).unwrap();
        let findings = detector.examine(&batch(&[0.95, 0.1]));
        assert!(findings[0].score < 1e-6 && findings[1].score > 0.1, "{findings:?}");
        // user and iowait deviate, system and other do not.
        assert!(findings[1].errors[0] > 0.5 && findings[1].errors[1] == 0.0);
    }

    #[test]
    fn a_stored_detector_gives_the_same_findings() {
        let sample = Sample { batches: vec![batch(&[0.2, 0.4])], n_available: 2 };
        let detector = MeanWindow::fit(&sample).unwrap();
        let restored = MeanWindow::restore(&detector.tensors(), 100 * N_CHANNELS).unwrap();
        assert_eq!(detector.examine(&batch(&[0.7])), restored.examine(&batch(&[0.7])));
        assert_eq!(MeanWindow::restore(&detector.tensors(), 1), None);
        assert_eq!(MeanWindow::fit(&Sample::default()), None);
    }
}
