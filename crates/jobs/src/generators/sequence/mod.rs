//! Sequence CopulaGAN: jobs of a CopulaGAN in an order that is learnt separately.
//!
//! An autoregressive model ([`order`]) samples who submits next, after which interval, and how large and long the job is,
//! given the jobs before. Jobs of the CopulaGAN are then arranged in that order ([`arrange`]): every column keeps the
//! distribution that the CopulaGAN gives it, apart from the interval, which is that of the order.

mod arrange;
mod bins;
mod history;
mod order;

use learn::artifact::restore::{RestoreError, ensure};
use learn::artifact::{Tensors, part_of, within};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};
use workload::{Stop, Stopped};

use self::order::OrderModel;
use super::gan::{Gan, GanConfig};
use super::{Generator, TrainingConfig, TrainingProgress};
use crate::features::{FeatureSpec, FeatureTable};

pub struct SequenceCopulaGan {
    gan: Gan,
    order: OrderModel,
}

#[derive(Serialize, Deserialize)]
struct Settings {
    jobs: serde_json::Value,
    order: serde_json::Value,
}

const JOBS: &str = "jobs";
const ORDER: &str = "order";

impl SequenceCopulaGan {
    pub fn fit(
        jobs: &FeatureTable,
        config: TrainingConfig,
        stop: &Stop,
        report: &mut impl FnMut(TrainingProgress),
    ) -> Result<Self, Stopped> {
        let order = OrderModel::fit(jobs, config.seed, stop)?;
        let gan = Gan::fit(jobs, GanConfig::COPULAGAN, config, stop, report)?;
        Ok(Self { gan, order })
    }

    /// Restores a model; one from before the order was learnt separately is a network that is given the previous job.
    pub fn restore(
        specs: &[FeatureSpec],
        settings: &serde_json::Value,
        tensors: &Tensors,
    ) -> Result<Box<dyn Generator>, RestoreError> {
        let Ok(parts) = learn::artifact::restore::settings::<Settings>(settings) else {
            return Ok(Box::new(Gan::restore(specs, settings, tensors)?));
        };
        let gan = Gan::restore(specs, &parts.jobs, &part_of(tensors, JOBS))?;
        ensure(!gan.has_previous(), "its jobs already have an order")?;
        let order = OrderModel::restore(specs, &parts.order, &part_of(tensors, ORDER))?;
        Ok(Box::new(Self { gan, order }))
    }
}

impl Generator for SequenceCopulaGan {
    fn sample(&self, n_jobs: usize, seed: u64, stop: &Stop) -> Result<Vec<Vec<f64>>, Stopped> {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let places = self.order.sample(n_jobs, &mut rng, stop)?;
        let columns = self.gan.sample(n_jobs, rng.random(), stop)?;
        let order = arrange::arrange(&places, &columns, &mut rng);
        let arranged = columns.iter().map(|column| order.iter().map(|job| column[*job]).collect());
        Ok(std::iter::once(places.intervals).chain(arranged.skip(1)).collect())
    }

    fn tensors(&self) -> Tensors {
        within(JOBS, self.gan.tensors()).chain(within(ORDER, self.order.tensors())).collect()
    }

    fn settings(&self) -> serde_json::Value {
        let settings = Settings { jobs: self.gan.settings(), order: self.order.settings() };
        serde_json::to_value(settings).unwrap_or_default()
    }
}
