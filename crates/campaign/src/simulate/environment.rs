//! Influences from outside a job: behaviour that drifts over days, and storage that all writers share. Their
//! strength is assumed, not fitted: a recording of one hour does not contain it.

use std::collections::BTreeMap;

use rand::{RngExt, SeedableRng};
use rand_distr::{Exp1, StandardNormal};
use rand_xoshiro::Xoshiro256PlusPlus;
use workload::Timestamp;
use workload::label::family;

use super::model::N_STICKS;
use super::schedule::{ClusterSettings, ScheduledJob};

const KNOT_SECONDS: usize = 600;
/// Drift: its standard deviation, as a normal deviate of a stick, and its correlation time.
const DRIFT: f64 = 0.25;
const DRIFT_DAYS: f64 = 2.0;
/// The mean time between stalls of the storage at the mean number of writers, and the mean length of a stall.
const STALL_EVERY_SECONDS: f64 = 1_800.0;
const STALL_SECONDS: f64 = 4.0;
/// Slow and fast periods of the storage: standard deviation, as a normal deviate, and correlation from one
/// second to the next.
const STORAGE_DEVIATION: f64 = 0.3;
const STORAGE_CORRELATION: f64 = 0.95;

/// The influences on a job at one moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Conditions {
    pub shift: [f32; N_STICKS],
    /// The fraction of the second that the job waits for storage.
    pub stall: f32,
}

pub struct Environment {
    start: Timestamp,
    origin: Timestamp,
    /// By family of kinds, at every knot since the origin.
    drift: BTreeMap<String, Vec<[f32; N_STICKS]>>,
    /// By second.
    stall: Vec<f32>,
    storage: Vec<f32>,
    /// Always there.
    shift: [f32; N_STICKS],
}

impl Environment {
    pub fn new(settings: &ClusterSettings, jobs: &[ScheduledJob]) -> Self {
        let n_seconds = settings.campaign_seconds as usize * settings.campaigns.len() + 1;
        let since_origin = (settings.start - settings.origin).0.max(0) as u64;
        let rng_of = |what: u64| Xoshiro256PlusPlus::seed_from_u64(settings.seed ^ what);
        let mut families: Vec<String> = jobs.iter().map(|job| family(&job.label.kind).to_owned()).collect();
        families.sort();
        families.dedup();
        let n_knots = (since_origin as usize / 1_000 + n_seconds) / KNOT_SECONDS + 2;
        let seed_of = |family: &str| u64::from(hash_of(family));
        let drift = families
            .into_iter()
            .map(|family| {
                let knots = drift(n_knots, &mut rng_of(seed_of(&family)));
                (family, knots)
            })
            .collect();
        let mut rng = rng_of(0x0077_6f72_6c64 ^ since_origin);
        let stall = stalls(settings, jobs, n_seconds, &mut rng);
        let mut storage = Vec::with_capacity(n_seconds);
        let mut here = 0.0;
        for _ in 0..n_seconds {
            let fresh = STORAGE_DEVIATION * (1.0 - STORAGE_CORRELATION * STORAGE_CORRELATION).sqrt();
            here = STORAGE_CORRELATION * here + fresh * rng.sample::<f64, _>(StandardNormal);
            storage.push(here as f32);
        }
        Self {
            start: settings.start,
            origin: settings.origin,
            drift,
            stall,
            storage,
            shift: settings.variation.shift,
        }
    }

    pub fn at(&self, job: &ScheduledJob, time: Timestamp) -> Conditions {
        let since = |moment: Timestamp| ((time - moment).0 / 1_000).max(0) as usize;
        let (second, age) = (since(self.start), since(self.origin));
        let mut shift = match self.drift.get(family(&job.label.kind)) {
            Some(knots) => {
                let (knot, rest) = (age / KNOT_SECONDS, (age % KNOT_SECONDS) as f32 / KNOT_SECONDS as f32);
                let (before, after) =
                    (knots[knot.min(knots.len() - 1)], knots[(knot + 1).min(knots.len() - 1)]);
                std::array::from_fn(|stick| before[stick] + (after[stick] - before[stick]) * rest)
            }
            None => [0.0; N_STICKS],
        };
        for (stick, always) in shift.iter_mut().zip(self.shift) {
            *stick += always;
        }
        if !job.kind.writes() {
            return Conditions { shift, stall: 0.0 };
        }
        let of_second = |values: &[f32]| values.get(second).copied().unwrap_or(0.0);
        let storage = of_second(&self.storage);
        shift[0] += storage;
        shift[1] += storage;
        Conditions { shift, stall: of_second(&self.stall) }
    }
}

/// FNV-1a, so that a name has the same number on every machine.
fn hash_of(name: &str) -> u32 {
    name.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// A first-order autoregressive process around zero.
fn drift(n_knots: usize, rng: &mut Xoshiro256PlusPlus) -> Vec<[f32; N_STICKS]> {
    let correlation = (-(KNOT_SECONDS as f64) / (DRIFT_DAYS * 86_400.0)).exp();
    let mut here = [0.0; N_STICKS];
    (0..n_knots)
        .map(|_| {
            for stick in &mut here {
                let fresh = DRIFT * (1.0 - correlation * correlation).sqrt();
                *stick = correlation * *stick + fresh * rng.sample::<f64, _>(StandardNormal);
            }
            here.map(|stick| stick as f32)
        })
        .collect()
}

/// The fraction of each second that writers wait for storage; it stalls more often while more threads write.
fn stalls(
    settings: &ClusterSettings,
    jobs: &[ScheduledJob],
    n_seconds: usize,
    rng: &mut Xoshiro256PlusPlus,
) -> Vec<f32> {
    let mut changes = vec![0.0; n_seconds + 1];
    let second = |time: Timestamp| (((time - settings.start).0 / 1_000).max(0) as usize).min(n_seconds);
    for job in jobs.iter().filter(|job| job.kind.writes()) {
        changes[second(job.label.start)] += job.label.threads.len() as f64;
        changes[second(job.label.end)] -= job.label.threads.len() as f64;
    }
    let mut writing = 0.0;
    let writers: Vec<f64> = changes
        .iter()
        .map(|change| {
            writing += change;
            writing
        })
        .collect();
    let mean_writers = (writers.iter().sum::<f64>() / n_seconds as f64).max(1.0);
    let mut stall = vec![0.0; n_seconds];
    for at in 0..n_seconds {
        if rng.random::<f64>() < writers[at] / mean_writers / STALL_EVERY_SECONDS {
            let length = 1 + (STALL_SECONDS * rng.sample::<f64, _>(Exp1)) as usize;
            let depth = rng.random_range(0.2..0.8);
            for fraction in &mut stall[at..(at + length).min(n_seconds)] {
                *fraction = f32::max(*fraction, depth);
            }
        }
    }
    stall
}

#[cfg(test)]
mod tests {
    use workload::{Millis, Set, Stop};

    use super::super::schedule::{Variation, schedule};
    use super::*;
    use crate::kind::Kind;
    use crate::plan::PlannedCampaign;

    fn settings(start: i64) -> ClusterSettings {
        let origin = Timestamp::from_seconds(1_767_571_200);
        ClusterSettings {
            n_nodes: 2,
            threads_per_node: 8,
            campaign_seconds: 7_200,
            campaigns: vec![PlannedCampaign { name: "a".into(), set: Set::Test }],
            seed: 3,
            load: 0.7,
            start: origin + Millis::from_seconds(start),
            origin,
            first_job: 1,
            is_busy_at_start: false,
            variation: Variation::default(),
        }
    }

    #[test]
    fn writers_stall_and_others_do_not() {
        let settings = settings(0);
        let jobs = schedule(&settings, &Stop::default()).unwrap();
        let environment = Environment::new(&settings, &jobs);
        let stalls = |kind: Kind| -> Vec<f32> {
            let job = jobs.iter().find(|job| job.kind == kind).unwrap();
            (0..7_200)
                .map(|second| environment.at(job, settings.start + Millis::from_seconds(second)).stall)
                .collect()
        };
        assert!(stalls(Kind::GoodIo).iter().any(|stall| *stall > 0.2));
        assert_eq!(stalls(Kind::GoodIo), stalls(Kind::BadIo));
        assert!(stalls(Kind::Np).iter().all(|stall| *stall == 0.0));
    }

    #[test]
    fn drift_continues_from_one_campaign_to_the_next() {
        let (first, second) = (settings(0), settings(7_200));
        let at = |settings: &ClusterSettings, time: Timestamp| {
            let jobs = schedule(settings, &Stop::default()).unwrap();
            let fit = jobs.iter().find(|job| job.kind == Kind::Np).unwrap();
            Environment::new(settings, &jobs).at(fit, time).shift
        };
        assert_eq!(at(&first, second.start), at(&second, second.start));
        assert_ne!(at(&first, first.start), at(&first, second.start));
    }
}
