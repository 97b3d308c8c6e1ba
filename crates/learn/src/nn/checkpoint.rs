//! Checkpoints: an artifact from which interrupted training continues exactly as it would have.

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::adam::Adam;
use super::parameters::Parameters;
use super::train::{Best, MAX_COUNT, TrainState};
use crate::artifact::restore::{RestoreError, ensure, expect};
use crate::artifact::{Artifact, ArtifactError, Provenance, Tensor, Tensors};

const KIND: &str = "checkpoint";

#[derive(Serialize, Deserialize)]
struct Body {
    /// Identifies what is trained on which data; another training ignores the checkpoint.
    of: Value,
    epoch: usize,
    n_steps: i32,
    best: Option<BestBody>,
}

#[derive(Serialize, Deserialize)]
struct BestBody {
    /// The bits of the number, so that it is read exactly as it was written.
    validation_bits: u64,
    epoch: usize,
}

impl TrainState {
    /// Writes the state of training. `of` identifies what is trained on which data.
    pub fn save(&self, dir: &Path, of: &Value) -> Result<(), ArtifactError> {
        let mut tensors = prefixed("now", &self.parameters);
        let (n_steps, means, squares) = self.adam.moments();
        for (name, values) in [("adam.means", means), ("adam.squares", squares)] {
            tensors.insert(name.into(), Tensor::row(values.to_vec()));
        }
        if let Some(best) = &self.best {
            tensors.extend(prefixed("best", &best.parameters));
        }
        let best = self
            .best
            .as_ref()
            .map(|best| BestBody { validation_bits: best.validation.to_bits(), epoch: best.epoch });
        let body = json!(Body { of: of.clone(), epoch: self.epoch, n_steps, best });
        Artifact { kind: KIND.into(), body, tensors, provenance: Provenance::default() }.write(dir)
    }

    /// Reads the state of training; nothing if there is no checkpoint of the same training. `parameters`
    /// are the initial ones, for their names and shapes.
    pub fn load(
        dir: &Path,
        of: &Value,
        parameters: &Parameters,
        rate: f32,
    ) -> Result<Option<Self>, ArtifactError> {
        if !dir.exists() {
            return Ok(None);
        }
        let artifact = Artifact::read(dir, KIND)?;
        let body: Body =
            serde_json::from_value(artifact.body).map_err(|error| ArtifactError::damaged(dir, error))?;
        if body.of != *of {
            return Ok(None);
        }
        let restored = Self::restore(&body, &artifact.tensors, parameters, rate);
        restored.map(Some).map_err(|error| ArtifactError::damaged(dir, error))
    }

    fn restore(
        body: &Body,
        tensors: &Tensors,
        parameters: &Parameters,
        rate: f32,
    ) -> Result<Self, RestoreError> {
        let best_epoch = body.best.as_ref().map_or(0, |best| best.epoch);
        ensure(best_epoch <= body.epoch && body.epoch <= MAX_COUNT, "its epochs are not in order")?;
        ensure(body.n_steps >= 0, "the number of its steps is negative")?;
        let take = |prefix: &str| {
            let strip = |(name, tensor): (&String, &Tensor)| {
                Some((name.strip_prefix(prefix)?.strip_prefix('/')?.to_owned(), tensor.clone()))
            };
            let tensors: Tensors = tensors.iter().filter_map(strip).collect();
            let mut taken = parameters.clone();
            taken.load(&tensors)?;
            Ok::<_, RestoreError>(taken)
        };
        let moments = |name: &str| expect(tensors, name, &[parameters.values().len()]).map(<[f32]>::to_vec);
        let best = match &body.best {
            Some(best) => Some(Best {
                validation: f64::from_bits(best.validation_bits),
                epoch: best.epoch,
                parameters: take("best")?,
            }),
            None => None,
        };
        let squares = moments("adam.squares")?;
        ensure(squares.iter().all(|square| *square >= 0.0), "a mean of squares is negative")?;
        let adam = Adam::resumed(rate, body.n_steps, moments("adam.means")?, squares);
        Ok(Self { parameters: take("now")?, adam, epoch: body.epoch, best })
    }
}

fn prefixed(prefix: &str, parameters: &Parameters) -> Tensors {
    parameters.to_tensors().into_iter().map(|(name, tensor)| (format!("{prefix}/{name}"), tensor)).collect()
}
