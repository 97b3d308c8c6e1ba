//! What no job decides for itself: behaviour that drifts over days, and storage that all writers share.
//! How strong these are is assumed, not fitted: an hour's recording cannot say.

use std::collections::BTreeMap;

use rand::{RngExt, SeedableRng};
use rand_distr::{Exp1, StandardNormal};
use rand_xoshiro::Xoshiro256PlusPlus;
use workload::Timestamp;
use workload::label::family;

use super::model::N_STICKS;
use super::schedule::{ClusterSettings, ScheduledJob};

const KNOT_SECONDS: usize = 600;
/// Drift, in standard deviations of a stick, and how long it takes to forget where it was.
const DRIFT: f64 = 0.25;
const DRIFT_DAYS: f64 = 2.0;
/// How often storage stalls while as many write as usual, and for how long.
const STALL_EVERY_SECONDS: f64 = 1_800.0;
const STALL_SECONDS: f64 = 4.0;
/// How storage's mood changes from second to second, in the same unit as drift.
const MOOD: f64 = 0.3;
const MOOD_MEMORY: f64 = 0.95;

/// What holds for a kind of job at a moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Weather {
    pub shift: [f32; N_STICKS],
    /// The share of a writer's second that is lost to storage.
    pub stall: f32,
}

pub struct World {
    start: Timestamp,
    origin: Timestamp,
    /// By family, at every knot since the origin.
    drift: BTreeMap<String, Vec<[f32; N_STICKS]>>,
    /// By second.
    stall: Vec<f32>,
    mood: Vec<f32>,
}

impl World {
    pub fn new(settings: &ClusterSettings, jobs: &[ScheduledJob]) -> Self {
        let n_seconds = settings.seconds as usize * settings.campaigns.len() + 1;
        let since_origin = (settings.start - settings.origin).0.max(0) as u64;
        let of_what = |what: u64| Xoshiro256PlusPlus::seed_from_u64(settings.seed ^ what);
        let mut families: Vec<String> = jobs.iter().map(|job| family(&job.label.kind).to_owned()).collect();
        families.sort();
        families.dedup();
        let n_knots = (since_origin as usize / 1_000 + n_seconds) / KNOT_SECONDS + 2;
        let seed_of = |family: &str| u64::from(hash_of(family));
        let drift = families
            .into_iter()
            .map(|family| {
                let knots = drift(n_knots, &mut of_what(seed_of(&family)));
                (family, knots)
            })
            .collect();
        let mut rng = of_what(0x0077_6f72_6c64 ^ since_origin);
        let stall = stalls(settings, jobs, n_seconds, &mut rng);
        let mut mood = Vec::with_capacity(n_seconds);
        let mut here = 0.0;
        for _ in 0..n_seconds {
            let fresh = MOOD * (1.0 - MOOD_MEMORY * MOOD_MEMORY).sqrt();
            here = MOOD_MEMORY * here + fresh * rng.sample::<f64, _>(StandardNormal);
            mood.push(here as f32);
        }
        Self { start: settings.start, origin: settings.origin, drift, stall, mood }
    }

    pub fn at(&self, job: &ScheduledJob, time: Timestamp) -> Weather {
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
        if !job.kind.writes() {
            return Weather { shift, stall: 0.0 };
        }
        let of_second = |values: &[f32]| values.get(second).copied().unwrap_or(0.0);
        let mood = of_second(&self.mood);
        shift[0] += mood;
        shift[1] += mood;
        Weather { shift, stall: of_second(&self.stall) }
    }
}

/// A number for each name, the same on every machine.
fn hash_of(name: &str) -> u32 {
    name.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// A walk that stays near zero.
fn drift(n_knots: usize, rng: &mut Xoshiro256PlusPlus) -> Vec<[f32; N_STICKS]> {
    let memory = (-(KNOT_SECONDS as f64) / (DRIFT_DAYS * 86_400.0)).exp();
    let mut here = [0.0; N_STICKS];
    (0..n_knots)
        .map(|_| {
            for stick in &mut here {
                let fresh = DRIFT * (1.0 - memory * memory).sqrt();
                *stick = memory * *stick + fresh * rng.sample::<f64, _>(StandardNormal);
            }
            here.map(|stick| stick as f32)
        })
        .collect()
}

/// Times at which storage does not answer: more of them while more threads write.
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
    let usual = (writers.iter().sum::<f64>() / n_seconds as f64).max(1.0);
    let mut stall = vec![0.0; n_seconds];
    for at in 0..n_seconds {
        if rng.random::<f64>() < writers[at] / usual / STALL_EVERY_SECONDS {
            let length = 1 + (STALL_SECONDS * rng.sample::<f64, _>(Exp1)) as usize;
            let depth = rng.random_range(0.2..0.8);
            stall[at..(at + length).min(n_seconds)]
                .iter_mut()
                .for_each(|share: &mut f32| *share = share.max(depth));
        }
    }
    stall
}

#[cfg(test)]
mod tests {
    use workload::{Millis, Set};

    use super::super::schedule::schedule;
    use super::*;
    use crate::kind::Kind;

    fn settings(start: i64) -> ClusterSettings {
        let origin = Timestamp::from_seconds(1_767_571_200);
        ClusterSettings {
            n_nodes: 2,
            threads_a_node: 8,
            seconds: 7_200,
            campaigns: vec![("a".into(), Set::Test)],
            seed: 3,
            load: 0.7,
            start: origin + Millis::from_seconds(start),
            origin,
            first_job: 1,
        }
    }

    #[test]
    fn writers_stall_and_others_do_not() {
        let settings = settings(0);
        let jobs = schedule(&settings).unwrap();
        let world = World::new(&settings, &jobs);
        let stalls = |kind: Kind| -> Vec<f32> {
            let job = jobs.iter().find(|job| job.kind == kind).unwrap();
            (0..7_200)
                .map(|second| world.at(job, settings.start + Millis::from_seconds(second)).stall)
                .collect()
        };
        assert!(stalls(Kind::GoodIo).iter().any(|stall| *stall > 0.2));
        assert_eq!(stalls(Kind::GoodIo), stalls(Kind::BadIo));
        assert!(stalls(Kind::Np).iter().all(|stall| *stall == 0.0));
    }

    #[test]
    fn drift_goes_on_where_a_campaign_ends() {
        let (first, second) = (settings(0), settings(7_200));
        let at = |settings: &ClusterSettings, time: Timestamp| {
            let jobs = schedule(settings).unwrap();
            let fit = jobs.iter().find(|job| job.kind == Kind::Np).unwrap();
            World::new(settings, &jobs).at(fit, time).shift
        };
        assert_eq!(at(&first, second.start), at(&second, second.start));
        assert_ne!(at(&first, first.start), at(&first, second.start));
    }
}
