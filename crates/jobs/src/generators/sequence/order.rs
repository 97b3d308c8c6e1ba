//! An autoregressive model of the order of jobs: small networks for who submits next, after which interval, and with
//! which size and run time, each given the jobs before and what was already drawn of this job.

use learn::artifact::Tensors;
use learn::artifact::restore::{self, RestoreError, ensure};
use learn::nn::adam::Adam;
use learn::nn::ops::linear::{Activation, Linear};
use learn::nn::ops::loss::class_entropy;
use learn::nn::parameters::Parameters;
use learn::nn::tape::{Tape, Value};
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use workload::{Stop, Stopped};

use super::bins::Bins;
use super::history::{History, N_RECENT_USERS};
use crate::features::{FeatureKind, FeatureSpec, FeatureTable};
use crate::generators::output::sample_index;
use crate::schema::Role;

const WIDTH: usize = 64;
const N_EPOCHS: usize = 12;
/// Small traces take more epochs.
const MIN_STEPS: usize = 600;
const BATCH_ROWS: usize = 128;
const LEARNING_RATE: f32 = 2e-3;
/// The trace is divided into parts of about this many jobs; each has its own rate and users.
const JOBS_PER_SEGMENT: usize = 100;
const MAX_SEGMENTS: usize = 64;
/// Jobs between two checks of whether to stop.
const JOBS_PER_CHECK: usize = 1_024;

/// A number that the order is about.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Mark {
    feature: usize,
    bins: Bins,
}

/// How many jobs a user has in a segment, and how many of them come when the user is not among the last ones.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct UserCount {
    user: usize,
    n_jobs: f64,
    n_returns: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Layout {
    /// The interval, and the size and the run time if the trace has them.
    marks: Vec<Mark>,
    user_feature: Option<usize>,
    n_users: usize,
    /// By segment. Without users, empty lists.
    segments: Vec<Vec<UserCount>>,
    n_jobs: usize,
}

impl Layout {
    fn segment(&self, position: f64) -> &[UserCount] {
        &self.segments[((position * self.segments.len() as f64) as usize).min(self.segments.len() - 1)]
    }

    /// The part of the training trace; a longer trace runs through it again.
    fn position(&self, job: usize) -> f64 {
        (job % self.n_jobs) as f64 / self.n_jobs as f64
    }

    fn history(&self) -> History {
        History::new(self.marks.len(), self.segments.len(), self.n_users)
    }

    /// Inputs and outputs of the network of the user, if there are users, and of one network per mark.
    fn shapes(&self) -> Vec<(String, [usize; 2])> {
        let n_history = History::n_inputs(self.marks.len(), self.segments.len());
        let user = ("user".to_owned(), [n_history + History::N_USER_INPUTS, N_RECENT_USERS + 1]);
        let n_first = n_history + History::n_choice_inputs(self.marks.len());
        let mark = |(at, mark): (usize, &Mark)| (format!("mark.{at}"), [n_first + at, mark.bins.n_bins()]);
        self.user_feature.map(|_| user).into_iter().chain(self.marks.iter().enumerate().map(mark)).collect()
    }

    fn share(segment: &[UserCount], user: usize) -> f64 {
        let n_jobs: f64 = segment.iter().map(|one| one.n_jobs).sum();
        let found = segment.iter().find(|one| one.user == user);
        found.map_or(0.0, |one| one.n_jobs / n_jobs.max(1.0))
    }

    fn check(&self, specs: &[FeatureSpec]) -> Result<(), RestoreError> {
        ensure(
            self.marks.first().is_some_and(|mark| mark.feature == 0),
            "its first mark is not the interval",
        )?;
        for mark in &self.marks {
            let is_number = specs.get(mark.feature).is_some_and(|spec| !spec.is_category());
            ensure(is_number, "a mark is not a number")?;
            mark.bins.check()?;
        }
        let n_names = match self.user_feature.map(|feature| specs.get(feature).map(|spec| &spec.kind)) {
            None => 0,
            Some(Some(FeatureKind::Category { names })) => names.len(),
            Some(_) => return Err(RestoreError::Invalid("its user is not a category".into())),
        };
        let has_users = self.n_users <= n_names && (self.n_users > 0 || self.user_feature.is_none());
        ensure(has_users, "it has other users than the trace")?;
        ensure(self.n_jobs > 0 && !self.segments.is_empty(), "it has no jobs")?;
        ensure(self.segments.len() <= MAX_SEGMENTS, "it has too many segments")?;
        let is_valid = |one: &UserCount| one.user < self.n_users && one.n_jobs >= 0.0 && one.n_returns >= 0.0;
        ensure(self.segments.iter().flatten().all(is_valid), "a segment has jobs of an unknown user")
    }
}

/// Inputs → 64 → one score per bin or user.
#[derive(Debug, Clone)]
struct Network {
    hidden: Linear,
    last: Linear,
}

impl Network {
    fn new(
        parameters: &mut Parameters,
        name: &str,
        [n_in, n_out]: [usize; 2],
        rng: &mut Xoshiro256PlusPlus,
    ) -> Self {
        let hidden = Linear::new(parameters, &format!("{name}.hidden"), [n_in, WIDTH], Activation::Relu, rng);
        let last = Linear::new(parameters, &format!("{name}.last"), [WIDTH, n_out], Activation::None, rng);
        Self { hidden, last }
    }

    /// Samples an index given the inputs, many of which are zero.
    fn sample(&self, parameters: &Parameters, inputs: &[f32], rng: &mut Xoshiro256PlusPlus) -> usize {
        let hidden = products(parameters, &self.hidden, inputs, |sum| sum.max(0.0));
        sample_index(&mut products(parameters, &self.last, &hidden, |sum| sum), rng)
    }
}

fn products(
    parameters: &Parameters,
    layer: &Linear,
    inputs: &[f32],
    activate: impl Fn(f32) -> f32,
) -> Vec<f32> {
    let mut sums = parameters.get(layer.bias).to_vec();
    let weights = parameters.get(layer.weight).chunks_exact(sums.len());
    for (input, weights) in inputs.iter().zip(weights).filter(|(input, _)| **input != 0.0) {
        sums.iter_mut().zip(weights).for_each(|(sum, weight)| *sum += input * weight);
    }
    sums.iter_mut().for_each(|sum| *sum = activate(*sum));
    sums
}

/// An order that jobs can be arranged in.
pub struct Places {
    pub intervals: Vec<f64>,
    /// The feature of the user, and the user of each place.
    pub users: Option<(usize, Vec<f64>)>,
    /// Features with the rank, between 0 and 1, that each place has.
    pub ranks: Vec<(usize, Vec<f64>)>,
}

pub struct OrderModel {
    layout: Layout,
    /// Each with its own parameters.
    networks: Vec<(Network, Parameters)>,
}

/// What one network is trained on.
struct Examples {
    inputs: Vec<f32>,
    targets: Vec<usize>,
}

impl OrderModel {
    pub fn fit(jobs: &FeatureTable, seed: u64, stop: &Stop) -> Result<Self, Stopped> {
        let layout = layout_of(jobs);
        let examples = examples(&layout, jobs);
        let shapes = layout.shapes();
        let train = |(at, (examples, (name, shape))): (usize, (Examples, (String, [usize; 2])))| {
            train(&examples, &name, shape, seed ^ at as u64, stop)
        };
        let parts: Vec<_> = examples.into_iter().zip(shapes).enumerate().collect();
        let networks: Result<Vec<_>, Stopped> = parts.into_par_iter().map(train).collect();
        Ok(Self { layout, networks: networks? })
    }

    pub fn restore(
        specs: &[FeatureSpec],
        settings: &serde_json::Value,
        tensors: &Tensors,
    ) -> Result<Self, RestoreError> {
        let layout: Layout = restore::settings(settings)?;
        layout.check(specs)?;
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(0);
        let mut restore = |(name, shape): (String, [usize; 2])| {
            Parameters::restore(tensors, |parameters| Network::new(parameters, &name, shape, &mut rng))
        };
        let networks = layout.shapes().into_iter().map(&mut restore).collect::<Result<_, _>>()?;
        Ok(Self { layout, networks })
    }

    pub fn sample(
        &self,
        n_jobs: usize,
        rng: &mut Xoshiro256PlusPlus,
        stop: &Stop,
    ) -> Result<Places, Stopped> {
        let layout = &self.layout;
        let mut history = layout.history();
        let mut users = Vec::new();
        let mut ranks = vec![Vec::with_capacity(n_jobs); layout.marks.len()];
        for job in 0..n_jobs {
            if job % JOBS_PER_CHECK == 0 {
                stop.check()?;
            }
            let position = layout.position(job);
            let mut inputs = Vec::new();
            history.push_inputs(position, &mut inputs);
            let mut networks = self.networks.iter();
            let (mut choice, mut user) = (N_RECENT_USERS, None);
            if let Some((network, parameters)) = layout.user_feature.and_then(|_| networks.next()) {
                let n_history = inputs.len();
                let segment = layout.segment(position);
                history.push_user_inputs(|user| Layout::share(segment, user), &mut inputs);
                choice = network.sample(parameters, &inputs, rng);
                inputs.truncate(n_history);
                user = history.user(choice).or_else(|| Some(self.other_user(segment, rng)));
                choice = user.map_or(choice, |user| history.choice(user));
                users.extend(user.map(|user| user as f64));
            }
            history.push_choice_inputs(choice, user, &mut inputs);
            let mut scores = Vec::new();
            for ((mark, ranks), (network, parameters)) in layout.marks.iter().zip(&mut ranks).zip(networks) {
                let bin = network.sample(parameters, &inputs, rng);
                let score = mark.bins.score(bin);
                inputs.push(score);
                scores.push(score);
                ranks.push(mark.bins.rank(bin, rng));
            }
            let interval = layout.marks[0].bins.quantile(ranks[0][job]);
            history.push(user, choice, interval, scores);
        }
        let intervals = self.intervals(&ranks[0]);
        let ranks = layout.marks.iter().map(|mark| mark.feature).zip(ranks).skip(1).collect();
        Ok(Places { intervals, users: layout.user_feature.map(|feature| (feature, users)), ranks })
    }

    /// A user who returns in this segment.
    fn other_user(&self, segment: &[UserCount], rng: &mut Xoshiro256PlusPlus) -> usize {
        let n_returns: f64 = segment.iter().map(|one| one.n_returns).sum();
        let mut left = rng.random::<f64>() * n_returns;
        for one in segment {
            left -= one.n_returns;
            if left < 0.0 {
                return one.user;
            }
        }
        segment.last().map_or_else(|| rng.random_range(0..self.layout.n_users), |one| one.user)
    }

    /// Intervals with exactly the distribution of the training trace, in the order of the sampled ones.
    fn intervals(&self, sampled: &[f64]) -> Vec<f64> {
        let mut order: Vec<usize> = (0..sampled.len()).collect();
        order.sort_by(|a, b| sampled[*a].total_cmp(&sampled[*b]));
        let mut intervals = vec![0.0; sampled.len()];
        for (rank, job) in order.into_iter().enumerate() {
            intervals[job] = self.layout.marks[0].bins.quantile((rank as f64 + 0.5) / sampled.len() as f64);
        }
        intervals
    }

    pub fn tensors(&self) -> Tensors {
        self.networks.iter().flat_map(|(_, parameters)| parameters.to_tensors()).collect()
    }

    pub fn settings(&self) -> serde_json::Value {
        serde_json::to_value(&self.layout).unwrap_or_default()
    }
}

fn layout_of(jobs: &FeatureTable) -> Layout {
    let mark = |role: Role| {
        let feature = jobs.position(role).filter(|feature| !jobs.specs()[*feature].is_category())?;
        Some(Mark { feature, bins: Bins::fit(jobs.column(feature)) }).filter(|mark| mark.bins.has_values())
    };
    // The size with most values: one of them may be constant, or a ratio of another.
    let sizes = [Role::Gpus, Role::Cores, Role::Nodes].into_iter().filter_map(mark);
    let size = sizes.max_by_key(|mark| mark.bins.n_bins());
    let interval = Mark { feature: 0, bins: Bins::fit(jobs.intervals()) };
    let marks = [Some(interval), size, mark(Role::RunTime)].into_iter().flatten().collect();
    let user_feature = jobs.position(Role::User).filter(|feature| jobs.specs()[*feature].is_category());
    let n_jobs = jobs.n_jobs();
    let n_segments = (n_jobs / JOBS_PER_SEGMENT).clamp(1, MAX_SEGMENTS);
    let mut segments: Vec<Vec<UserCount>> = vec![Vec::new(); n_segments];
    let mut n_users = 0;
    if let Some(feature) = user_feature {
        let users: Vec<usize> = jobs.column(feature).iter().map(|user| *user as usize).collect();
        n_users = users.iter().max().map_or(0, |last| last + 1);
        let mut history = History::new(0, 1, n_users);
        for (job, user) in users.into_iter().enumerate() {
            let is_return = history.choice(user) == N_RECENT_USERS;
            history.push_user(user);
            let segment = &mut segments[job * n_segments / n_jobs];
            let at = segment.iter().position(|one| one.user == user).unwrap_or_else(|| {
                segment.push(UserCount { user, n_jobs: 0.0, n_returns: 0.0 });
                segment.len() - 1
            });
            segment[at].n_jobs += 1.0;
            segment[at].n_returns += f64::from(u8::from(is_return));
        }
    }
    Layout { marks, user_feature, n_users, segments, n_jobs }
}

/// The jobs of a trace as examples for each network, given their true predecessors.
fn examples(layout: &Layout, jobs: &FeatureTable) -> Vec<Examples> {
    let mut all: Vec<Examples> =
        layout.shapes().iter().map(|_| Examples { inputs: Vec::new(), targets: Vec::new() }).collect();
    let mut history = layout.history();
    for job in 0..jobs.n_jobs() {
        let position = layout.position(job);
        let mut inputs = Vec::new();
        history.push_inputs(position, &mut inputs);
        let user = layout.user_feature.map(|feature| jobs.value(feature, job) as usize);
        let choice = user.map_or(N_RECENT_USERS, |user| history.choice(user));
        let mut parts = all.iter_mut();
        if let (Some(_), Some(part)) = (user, layout.user_feature.and_then(|_| parts.next())) {
            let n_history = inputs.len();
            let segment = layout.segment(position);
            history.push_user_inputs(|user| Layout::share(segment, user), &mut inputs);
            part.inputs.extend(&inputs);
            part.targets.push(choice);
            inputs.truncate(n_history);
        }
        history.push_choice_inputs(choice, user, &mut inputs);
        let mut scores = Vec::new();
        for (mark, part) in layout.marks.iter().zip(parts) {
            let bin = mark.bins.bin(jobs.value(mark.feature, job));
            part.inputs.extend(&inputs);
            part.targets.push(bin);
            inputs.push(mark.bins.score(bin));
            scores.push(mark.bins.score(bin));
        }
        // The interval of the first job is not the time since another.
        let interval = if job == 0 { 0.0 } else { jobs.value(0, job) };
        history.push(user, choice, interval, scores);
    }
    all
}

fn train(
    examples: &Examples,
    name: &str,
    shape: [usize; 2],
    seed: u64,
    stop: &Stop,
) -> Result<(Network, Parameters), Stopped> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut parameters = Parameters::default();
    let network = Network::new(&mut parameters, name, shape, &mut rng);
    let mut adam = Adam::new(LEARNING_RATE, parameters.values().len());
    let mut order: Vec<usize> = (0..examples.targets.len()).collect();
    let mut gradient = vec![0.0; parameters.values().len()];
    let n_epochs = N_EPOCHS.max(MIN_STEPS / order.len().div_ceil(BATCH_ROWS).max(1));
    for _ in 0..n_epochs {
        order.shuffle(&mut rng);
        for batch in order.chunks(BATCH_ROWS) {
            stop.check()?;
            let row = |at: &usize| &examples.inputs[at * shape[0]..(at + 1) * shape[0]];
            let inputs: Vec<f32> = batch.iter().flat_map(row).copied().collect();
            let targets: Vec<usize> = batch.iter().map(|at| examples.targets[*at]).collect();
            let mut tape = Tape::new(&parameters);
            let x = tape.input(Value::plain(inputs, shape[0]));
            let hidden = network.hidden.forward(&mut tape, x);
            let scores = network.last.forward(&mut tape, hidden);
            let weights = vec![1.0 / batch.len() as f32; batch.len()];
            let loss = class_entropy(&mut tape, scores, &targets, &weights);
            gradient.fill(0.0);
            tape.backward(loss, &mut gradient);
            adam.step(&mut parameters, &gradient);
        }
    }
    Ok((network, parameters))
}
