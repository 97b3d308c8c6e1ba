//! Trouble put into recorded runs, by a model that says what it does:
//!
//! - **CPU**, `k` cores of the `c` of each machine taken away: where more tasks would run at a time than cores are left, each
//!   gets its share. Run time is multiplied by `max(1, n / (c − k))`, with `n` the tasks on that machine at that time, for
//!   the part of it that is processor time; waiting is not made longer.
//! - **Disk**, slowed to a share `s` of its speed: what a task does not spend on the processor (reading, writing, waiting)
//!   takes `1 / s` times as long, as does staging as far as the disk, not the network, sets its pace (a third of it).
//! - **Loss** of a share `p` of packets: a connection sends at `min(1, 1.22 / (r · √p))` of what it could, the bound of
//!   Mathis et al. (1997), with a round trip of `r` packets in flight; staging and transfers take that much longer, each by
//!   its own luck (log-normal).
//!
//! Whatever follows moves back: a task that is ready later starts later, and nothing overtakes what it waited for.

use std::collections::{BTreeMap, HashMap};

use crate::workflow::{Span, TaskAttempt, TaskName, TaskRole, WorkflowRun};
use rand::SeedableRng;
use rand_distr::{Distribution, LogNormal};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::Serialize;

use crate::error::{Error, Result};

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Trouble {
    /// Cores taken away on every machine.
    Cpu { cores: u32 },
    /// How much of the disk's speed is left, in per cent.
    Disk { percent: f64 },
    /// Packets lost, in per cent.
    Loss { percent: f64 },
}

impl Trouble {
    /// `cpu_2`, `hdd_50`, `loss_0.5`: as the folders of labelled runs are called.
    pub fn parse(text: &str) -> Result<Self> {
        let wrong = || {
            Error::Ask(format!(
                "{text} is no trouble: write cpu_2 (cores taken), hdd_50 (per cent of speed left) or loss_0.5 (per cent lost)"
            ))
        };
        let (name, strength) = text.split_once('_').ok_or_else(wrong)?;
        let strength: f64 = strength
            .parse()
            .ok()
            .filter(|value: &f64| value.is_finite() && *value > 0.0)
            .ok_or_else(wrong)?;
        match name {
            "cpu" if strength <= 1_024.0 && strength.fract() == 0.0 => {
                Ok(Self::Cpu { cores: strength as u32 })
            }
            "hdd" if strength < 100.0 => Ok(Self::Disk { percent: strength }),
            "loss" if strength < 100.0 => Ok(Self::Loss { percent: strength }),
            _ => Err(wrong()),
        }
    }

    pub fn label(self) -> String {
        match self {
            Self::Cpu { cores } => format!("cpu_{cores}"),
            Self::Disk { percent } => format!("hdd_{percent}"),
            Self::Loss { percent } => format!("loss_{percent}"),
        }
    }
}

/// Cores of a machine, where nothing says how many there are.
pub const CORES: u32 = 4;
/// Packets in flight on a link of a cluster.
const IN_FLIGHT: f64 = 30.0;
/// The part of staging that the disk sets the pace of.
const DISK_SHARE: f64 = 1.0 / 3.0;
/// How much luck differs between connections.
const LUCK: f64 = 0.15;

/// How many times as long parts of an attempt become.
struct Slower {
    stage_in: f64,
    run: f64,
    stage_out: f64,
}

/// A copy of a run with trouble in it, under the same name.
pub fn inject(run: &WorkflowRun, trouble: Trouble, cores: u32, seed: u64) -> Result<WorkflowRun> {
    if let Trouble::Cpu { cores: taken } = trouble
        && taken >= cores
    {
        return Err(Error::Ask(format!(
            "{taken} cores cannot be taken from machines with {cores}; say how many there are with --cores"
        )));
    }
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let luck = LogNormal::new(0.0, LUCK).map_err(|error| Error::Ask(error.to_string()))?;
    let slower: Vec<Slower> = run
        .attempts
        .iter()
        .map(|attempt| slower(run, attempt, trouble, cores, luck.sample(&mut rng)))
        .collect();
    Ok(delayed(run, &slower))
}

/// Attempts on the same machine that overlap with one, itself among them: the mean over its time. Where nothing says which
/// machine it was, it was as full as can be, with a task a core.
fn crowd(run: &WorkflowRun, attempt: &TaskAttempt, cores: u32) -> f64 {
    let Some(own) = attempt.execution.filter(|span| span.seconds() > 0.0) else { return 1.0 };
    let overlap = |other: &TaskAttempt| {
        let span = other.execution.filter(|_| other.host == attempt.host)?;
        Some((span.end().min(own.end()) - span.start().max(own.start())).max(0.0))
    };
    let found = run.attempts.iter().filter_map(overlap).sum::<f64>() / own.seconds();
    if attempt.host.is_some() { found } else { found.min(f64::from(cores)) }
}

fn slower(run: &WorkflowRun, attempt: &TaskAttempt, trouble: Trouble, cores: u32, luck: f64) -> Slower {
    let seconds = |span: Option<Span>| span.map_or(0.0, Span::seconds);
    let ran = (seconds(attempt.execution) - seconds(attempt.stage_in) - seconds(attempt.stage_out)).max(0.0);
    let cpu_share = if ran > 0.0 { (attempt.cpu_seconds.unwrap_or(ran) / ran).clamp(0.0, 1.0) } else { 1.0 };
    match trouble {
        Trouble::Cpu { cores: taken } => {
            let left = f64::from(cores - taken);
            let more = (crowd(run, attempt, cores) / left).max(1.0);
            Slower { stage_in: 1.0, run: 1.0 + cpu_share * (more - 1.0), stage_out: 1.0 }
        }
        Trouble::Disk { percent } => {
            let more = 100.0 / percent;
            let staging = 1.0 + DISK_SHARE * (more - 1.0);
            // Even a task that computes all the time reads and writes a little.
            let waits = (1.0 - cpu_share).max(0.05);
            Slower { stage_in: staging, run: 1.0 + waits * (more - 1.0), stage_out: staging }
        }
        Trouble::Loss { percent } => {
            let bound = 1.22 / (IN_FLIGHT * (percent / 100.0).sqrt());
            let more = (luck / bound.min(1.0)).max(1.0);
            let run = if attempt.role == TaskRole::Transfer { more } else { 1.0 };
            Slower { stage_in: more, run, stage_out: more }
        }
    }
}

/// The run with longer parts, and all that follows moved back.
fn delayed(run: &WorkflowRun, slower: &[Slower]) -> WorkflowRun {
    // What was known before counts: everything that ended by the time a task was ready moved it, or its parents where the
    // graph is known.
    let mut parents: HashMap<&TaskName, Vec<&TaskName>> = HashMap::new();
    for (parent, children) in &run.children {
        children.iter().for_each(|child| parents.entry(child).or_default().push(parent));
    }
    let mut order: Vec<usize> = (0..run.attempts.len()).collect();
    let begins = |at: &usize| {
        let one = &run.attempts[*at];
        one.ready.or(one.submitted).or(one.execution.map(Span::start)).unwrap_or(f64::INFINITY)
    };
    order.sort_by(|a, b| begins(a).total_cmp(&begins(b)));
    let mut made = run.clone();
    // Old and new ends of what has been moved, to find by how much a task that waited has to move.
    let mut ends: HashMap<&TaskName, (f64, f64)> = HashMap::new();
    // Those that have not ended yet, by their old ends in thousandths of seconds.
    let mut to_come: BTreeMap<(i64, usize), (f64, f64)> = BTreeMap::new();
    let mut past = (f64::NEG_INFINITY, f64::NEG_INFINITY);
    for at in order {
        let (old, factors) = (&run.attempts[at], &slower[at]);
        let ready = begins(&at);
        while let Some(ended) = to_come.first_entry().filter(|first| first.get().0 <= ready + 0.5) {
            past = later(past, ended.remove());
        }
        let waited_for = match run.children.is_empty() {
            true => past,
            false => {
                let known =
                    parents.get(&old.task).into_iter().flatten().filter_map(|parent| ends.get(*parent));
                let earlier = ends.get(&old.task);
                known.chain(earlier).copied().fold((f64::NEG_INFINITY, f64::NEG_INFINITY), later)
            }
        };
        let shift = if waited_for.0.is_finite() { (waited_for.1 - waited_for.0).max(0.0) } else { 0.0 };
        let moved = |moment: Option<f64>| moment.map(|moment| moment + shift);
        let span = |span: Option<Span>| {
            span.and_then(|span| Span::new(span.start() + shift, span.end() + shift).ok())
        };
        let attempt = &mut made.attempts[at];
        attempt.ready = moved(old.ready);
        attempt.submitted = moved(old.submitted);
        attempt.pre_script = span(old.pre_script);
        attempt.post_script = span(old.post_script);
        attempt.running_since = moved(old.running_since);
        if let Some(end) = old.end() {
            ends.insert(&old.task, (end, end + shift));
        }
        let Some(execution) = old.execution else { continue };
        let seconds = |span: Option<Span>| span.map_or(0.0, Span::seconds);
        let (came, went) =
            (seconds(old.stage_in) * factors.stage_in, seconds(old.stage_out) * factors.stage_out);
        let ran =
            (execution.seconds() - seconds(old.stage_in) - seconds(old.stage_out)).max(0.0) * factors.run;
        let start = execution.start() + shift;
        let end = start + came + ran + went;
        attempt.execution = Span::new(start, end).ok();
        attempt.stage_in = old.stage_in.and_then(|_| Span::new(start, start + came).ok());
        attempt.stage_out = old.stage_out.and_then(|_| Span::new(end - went, end).ok());
        let later = end - execution.end();
        attempt.post_script =
            old.post_script.and_then(|span| Span::new(span.start() + later, span.end() + later).ok());
        let moved = (old.end().unwrap_or(execution.end()), attempt.end().unwrap_or(end));
        to_come.insert(((moved.0 * 1e3) as i64, at), moved);
        ends.insert(&old.task, moved);
    }
    made
}

/// The later of two ends, before and after.
fn later(a: (f64, f64), b: (f64, f64)) -> (f64, f64) {
    (a.0.max(b.0), a.1.max(b.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run() -> WorkflowRun {
        let task = |name: &str, ready: f64, host: &str| TaskAttempt {
            host: Some(host.into()),
            ready: Some(ready),
            submitted: Some(ready + 1.0),
            execution: Span::new(ready + 2.0, ready + 102.0).ok(),
            stage_in: Span::new(ready + 2.0, ready + 22.0).ok(),
            stage_out: Span::new(ready + 92.0, ready + 102.0).ok(),
            cpu_seconds: Some(60.0),
            ..TaskAttempt::new(name, TaskRole::Compute, "work", 1)
        };
        let attempts = vec![task("a", 0.0, "one"), task("b", 0.0, "one"), task("c", 102.0, "one")];
        WorkflowRun { name: "run".into(), attempts, ..WorkflowRun::default() }
    }

    #[test]
    fn every_trouble_shows_where_it_should_and_nowhere_else() {
        let healthy = run().delays();
        let of = |trouble: &str| inject(&run(), Trouble::parse(trouble).unwrap(), 4, 1).unwrap();
        let cpu = of("cpu_3").delays();
        assert!(cpu[0].run > healthy[0].run * 1.5 && cpu[0].stage_in == healthy[0].stage_in);
        assert_eq!(cpu[2].run, healthy[2].run, "alone on its machine, one core is enough");
        let disk = of("hdd_50").delays();
        assert!(disk[0].run > healthy[0].run && disk[0].stage_in > healthy[0].stage_in);
        let loss = of("loss_5").delays();
        assert!(loss[0].stage_in > healthy[0].stage_in * 3.0 && (loss[0].run - healthy[0].run).abs() < 1e-6);
        assert!(loss[2].ready > healthy[2].ready, "what waited waits longer");
        let slow = of("hdd_20");
        let last_of_both = slow.attempts[..2].iter().filter_map(TaskAttempt::end).fold(0.0, f64::max);
        assert!(slow.attempts[2].ready >= Some(last_of_both), "nothing overtakes what it waited for");
        let mut nameless = run();
        nameless.attempts.iter_mut().for_each(|attempt| attempt.host = None);
        let more = (0..9).map(|_| nameless.attempts[0].clone()).collect::<Vec<_>>();
        nameless.attempts.extend(more);
        let full = inject(&nameless, Trouble::parse("cpu_2").unwrap(), 4, 1).unwrap().delays();
        assert!(full[0].run < healthy[0].run * 2.1, "a machine that has no name has a task a core at most");
        let weak = of("loss_0.01").delays();
        assert!(weak[0].stage_in < healthy[0].stage_in * 1.6);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for text in ["cpu", "cpu_x", "hdd_0", "hdd_101", "loss_100", "fan_3"] {
            assert!(Trouble::parse(text).is_err(), "{text}");
        }
        assert!(inject(&run(), Trouble::Cpu { cores: 4 }, 4, 0).is_err());
    }
}
