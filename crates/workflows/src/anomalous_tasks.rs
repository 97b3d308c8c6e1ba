//! Ranks the tasks of runs by how anomalous they are, without labels, and gives a reason for each task.
//!
//! A fault affects a machine, so the tasks on one machine are judged together. The score of a machine in a run has two
//! parts, both in standard deviations of tasks:
//!
//! - its level: how far runtime per CPU time lies above the baseline, at most [`MAX_LEVEL`];
//! - its contrast: how much more execution and stage-in per byte deviate than on the median machine of the same run. It
//!   remains if something slows down all machines.
//!
//! A faulty machine stays faulty, so both parts are averaged over the runs before and after on the same machine
//! ([`Neighbours`]). The deviation of the task itself orders the tasks on one machine.

use std::collections::{BTreeMap, HashMap};

use learn::stats::median;
use serde::Serialize;

use crate::classify::baseline::{Baseline, BaselineComparison};
use crate::features::{Quantity, RunSummary};
use crate::workflow::WorkflowRun;

/// The quantities that deviations are computed of.
pub(crate) const QUANTITIES: [Quantity; 6] = [
    Quantity::RuntimePerCpuTime,
    Quantity::Execution,
    Quantity::StageInPerByte,
    Quantity::StageOutPerByte,
    Quantity::Cpu,
    Quantity::Queue,
];
/// Their columns.
const RUNTIME_PER_CPU_TIME: usize = 0;
const EXECUTION: usize = 1;
const STAGE_IN_PER_BYTE: usize = 2;
/// Larger deviations are clipped.
const MAX_DEVIATION: f64 = 8.0;
/// A higher level does not say which machine is at fault: if all are slow, they differ by the work they happened to get.
const MAX_LEVEL: f64 = 3.0;
/// The weight of a task's own deviation.
const OWN_WEIGHT: f64 = 0.1;
/// The standard deviation of the Gaussian weights of other runs, as a number of runs.
const N_NEAR_RUNS: f64 = 3.0;
/// Runs farther away have no weight.
const MAX_DISTANCE: usize = 9;
/// Scores below this are not remarkable.
const MIN_REMARKABLE: f64 = 1.0;

/// One deviation per quantity, in standard deviations of tasks; NaN if unknown.
pub(crate) type Deviations = [f64; QUANTITIES.len()];

/// The deviation of every attempt from the baseline.
pub(crate) fn deviations(comparison: &BaselineComparison<'_>) -> Vec<Deviations> {
    let of = |at: usize| {
        QUANTITIES.map(|quantity| {
            let deviation = comparison.deviation(at, quantity);
            deviation.map_or(f64::NAN, |deviation| deviation.clamp(-MAX_DEVIATION, MAX_DEVIATION))
        })
    };
    (0..comparison.run.attempts.len()).map(of).collect()
}

/// The deviations of the attempts on one machine. An attempt without a machine is alone.
#[derive(Clone, Copy)]
pub(crate) struct MachineDeviations {
    pub n_attempts: usize,
    /// Of each quantity: the known deviations, their sum and the largest one.
    n_known: [usize; QUANTITIES.len()],
    sum: Deviations,
    pub largest: Deviations,
}

impl MachineDeviations {
    const NONE: Self = Self {
        n_attempts: 0,
        n_known: [0; QUANTITIES.len()],
        sum: [0.0; QUANTITIES.len()],
        largest: [f64::NAN; QUANTITIES.len()],
    };

    fn add(&mut self, row: &Deviations) {
        self.n_attempts += 1;
        for (column, value) in row.iter().enumerate().filter(|(_, value)| !value.is_nan()) {
            self.n_known[column] += 1;
            self.sum[column] += value;
            self.largest[column] = self.largest[column].max(*value);
        }
    }

    /// The mean of a quantity; NaN if nothing is known.
    fn mean(&self, column: usize) -> f64 {
        self.sum[column] / self.n_known[column] as f64
    }

    /// The mean without one attempt.
    pub fn mean_of_others(&self, own: f64, column: usize) -> f64 {
        if own.is_nan() {
            return self.mean(column);
        }
        let n_others = self.n_known[column] - 1;
        if n_others == 0 { f64::NAN } else { (self.sum[column] - own) / n_others as f64 }
    }
}

/// The machines of a run.
pub(crate) struct Machines<'a> {
    /// The name of each machine, if it has one, and its deviations.
    all: Vec<(Option<&'a str>, MachineDeviations)>,
    /// The machine of each attempt.
    of_attempt: Vec<usize>,
}

impl<'a> Machines<'a> {
    pub fn new(run: &'a WorkflowRun, own: &[Deviations]) -> Self {
        let mut place_by_name: HashMap<&str, usize> = HashMap::new();
        let (mut all, mut of_attempt) = (Vec::new(), Vec::with_capacity(own.len()));
        for (attempt, row) in run.attempts.iter().zip(own) {
            let new = all.len();
            let place = attempt.host.as_deref().map_or(new, |name| *place_by_name.entry(name).or_insert(new));
            if place == new {
                all.push((attempt.host.as_deref(), MachineDeviations::NONE));
            }
            all[place].1.add(row);
            of_attempt.push(place);
        }
        Self { all, of_attempt }
    }

    /// For every attempt, the deviations on its machine, including its own.
    pub fn by_attempt(&self) -> impl Iterator<Item = &MachineDeviations> {
        self.of_attempt.iter().map(|place| &self.all[*place].1)
    }

    /// The parts of the score of every machine.
    fn parts(&self) -> Vec<Parts> {
        let centre = |column: usize| {
            let known = self.all.iter().map(|(_, found)| found.mean(column)).filter(|mean| !mean.is_nan());
            let known: Vec<f64> = known.collect();
            if known.is_empty() { 0.0 } else { median(known) }
        };
        let centres = [centre(EXECUTION), centre(STAGE_IN_PER_BYTE)];
        let parts = |found: &MachineDeviations| {
            let per_cpu_time = found.mean(RUNTIME_PER_CPU_TIME);
            Parts {
                level: if per_cpu_time.is_nan() { found.mean(EXECUTION) } else { per_cpu_time },
                execution: found.mean(EXECUTION) - centres[0],
                stage_in: found.mean(STAGE_IN_PER_BYTE) - centres[1],
            }
        };
        self.all.iter().map(|(_, found)| parts(found).known()).collect()
    }
}

/// The parts of the score of a machine in a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Parts {
    /// Runtime per CPU time compared with the baseline.
    pub level: f64,
    /// Execution compared with the other machines.
    pub execution: f64,
    /// Stage-in per byte compared with the other machines.
    pub stage_in: f64,
}

impl Parts {
    /// What is unknown is not evidence.
    fn known(self) -> Self {
        let or_zero = |value: f64| if value.is_nan() { 0.0 } else { value };
        Self {
            level: or_zero(self.level),
            execution: or_zero(self.execution),
            stage_in: or_zero(self.stage_in),
        }
    }

    fn add(&mut self, other: &Self, weight: f64) {
        self.level += weight * other.level;
        self.execution += weight * other.execution;
        self.stage_in += weight * other.stage_in;
    }

    fn score(&self) -> f64 {
        self.level.clamp(-MAX_LEVEL, MAX_LEVEL) + self.execution + self.stage_in
    }
}

/// Which other runs count for the machines of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Neighbours {
    /// None: every run by itself.
    None,
    /// Runs shortly before and after it, with Gaussian weights.
    NearInTime,
}

/// The score of one task, and what it is made of.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TaskScore {
    pub score: f64,
    /// Of its machine.
    pub machine: Parts,
    /// The largest deviation of the task itself.
    pub own: f64,
}

/// The score of every attempt, run by run.
pub fn scores(runs: &[&RunSummary<'_>], baseline: &Baseline, neighbours: Neighbours) -> Vec<Vec<TaskScore>> {
    let own: Vec<Vec<Deviations>> =
        runs.iter().map(|summary| deviations(&baseline.compare(summary))).collect();
    let machines: Vec<Machines<'_>> =
        runs.iter().zip(&own).map(|(summary, own)| Machines::new(summary.run, own)).collect();
    let mut parts: Vec<Vec<Parts>> = machines.iter().map(Machines::parts).collect();
    if neighbours == Neighbours::NearInTime {
        parts = averaged(runs, &machines, &parts);
    }
    let of_run = |((machines, parts), own): ((&Machines<'_>, &Vec<Parts>), &Vec<Deviations>)| {
        let score = |(place, own): (&usize, &Deviations)| {
            let machine = parts[*place];
            let own = own[..=STAGE_IN_PER_BYTE].iter().copied().fold(f64::NAN, f64::max);
            let own = if own.is_nan() { 0.0 } else { own };
            TaskScore { score: machine.score() + OWN_WEIGHT * own, machine, own }
        };
        machines.of_attempt.iter().zip(own).map(score).collect()
    };
    machines.iter().zip(&parts).zip(&own).map(of_run).collect()
}

/// The parts of every machine, averaged over the runs that are near in time and used the same machine.
fn averaged(runs: &[&RunSummary<'_>], machines: &[Machines<'_>], parts: &[Vec<Parts>]) -> Vec<Vec<Parts>> {
    let mut order: Vec<usize> = (0..runs.len()).collect();
    let start = |at: &usize| runs[*at].run.start().unwrap_or(f64::INFINITY);
    order.sort_by(|a, b| start(a).total_cmp(&start(b)));
    // For each machine, the places in the order of time at which it was used, with its parts.
    let mut history: BTreeMap<&str, Vec<(usize, Parts)>> = BTreeMap::new();
    for (place, run) in order.iter().enumerate() {
        for ((name, _), parts) in machines[*run].all.iter().zip(&parts[*run]) {
            if let Some(name) = name {
                history.entry(name).or_default().push((place, *parts));
            }
        }
    }
    let mut averaged = parts.to_vec();
    for (place, run) in order.iter().enumerate() {
        for ((name, _), parts) in machines[*run].all.iter().zip(&mut averaged[*run]) {
            let Some(known) = name.and_then(|name| history.get(name)) else { continue };
            let first = known.partition_point(|(at, _)| at + MAX_DISTANCE < place);
            let (mut sum, mut weights) = (Parts::default(), 0.0);
            for (at, near) in known[first..].iter().take_while(|(at, _)| *at <= place + MAX_DISTANCE) {
                let distance = at.abs_diff(place) as f64 / N_NEAR_RUNS;
                let weight = (-0.5 * distance * distance).exp();
                sum.add(near, weight);
                weights += weight;
            }
            *parts = Parts::default();
            parts.add(&sum, 1.0 / weights);
        }
    }
    averaged
}

/// A task with its score and the reason for it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AnomalousTask {
    pub run: String,
    pub task: String,
    pub attempt: u32,
    pub kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    pub score: f64,
    /// The score of its machine, by part.
    pub machine: Parts,
    /// The largest deviation of the task itself, in standard deviations.
    pub own_deviation: f64,
    pub reason: String,
}

/// The tasks of some runs with their reasons, the most anomalous first. `baseline` may be fitted to the same runs.
pub fn rank(runs: &[&RunSummary<'_>], baseline: &Baseline) -> Vec<AnomalousTask> {
    let scores = scores(runs, baseline, Neighbours::NearInTime);
    let mut ranked: Vec<AnomalousTask> = Vec::new();
    for (summary, scores) in runs.iter().zip(scores) {
        let reasons = Reasons::new(summary, baseline);
        for (at, (attempt, found)) in summary.run.attempts.iter().zip(scores).enumerate() {
            ranked.push(AnomalousTask {
                run: summary.run.name.clone(),
                task: attempt.task.0.clone(),
                attempt: attempt.attempt,
                kind: attempt.kind.clone(),
                host: attempt.host.clone(),
                score: found.score,
                machine: found.machine,
                own_deviation: found.own,
                reason: reasons.text(at, &found),
            });
        }
    }
    ranked.sort_by(|a, b| b.score.total_cmp(&a.score));
    ranked
}

/// How many times the baseline the tasks of every machine of a run take: geometric means, as logarithms.
struct Reasons<'a> {
    comparison: BaselineComparison<'a>,
    machines: Machines<'a>,
    /// By machine and by [`EXPLAINED`].
    ratios: Vec<[f64; EXPLAINED.len()]>,
    /// The medians over machines.
    centres: [f64; EXPLAINED.len()],
}

const EXPLAINED: [Quantity; 3] = [Quantity::RuntimePerCpuTime, Quantity::Execution, Quantity::StageInPerByte];

impl<'a> Reasons<'a> {
    fn new(summary: &'a RunSummary<'a>, baseline: &'a Baseline) -> Self {
        let comparison = baseline.compare(summary);
        let machines = Machines::new(summary.run, &deviations(&comparison));
        let mut sums = vec![[(0.0, 0.0); EXPLAINED.len()]; machines.all.len()];
        for (at, machine) in machines.of_attempt.iter().enumerate() {
            for (column, quantity) in EXPLAINED.into_iter().enumerate() {
                if let Some((value, range)) = comparison.of(at, quantity) {
                    let (sum, count) = &mut sums[*machine][column];
                    *sum += value - range.median;
                    *count += 1.0;
                }
            }
        }
        let ratios: Vec<[f64; 3]> =
            sums.into_iter().map(|row| row.map(|(sum, count)| sum / f64::max(count, 1.0))).collect();
        let centre = |column: usize| {
            if ratios.is_empty() { 0.0 } else { median(ratios.iter().map(|row| row[column]).collect()) }
        };
        let centres = [centre(0), centre(1), centre(2)];
        Self { comparison, machines, ratios, centres }
    }

    fn text(&self, at: usize, found: &TaskScore) -> String {
        if found.score < MIN_REMARKABLE {
            return "near the baseline and the other machines".into();
        }
        let place = self.machines.of_attempt[at];
        let (name, deviations) = &self.machines.all[place];
        let on = match (name, deviations.n_attempts) {
            (Some(name), 1) => format!("of its task on {name}"),
            (Some(name), several) => format!("of the {several} tasks on {name}"),
            (None, _) => "of the task".into(),
        };
        let ratio = |column: usize| self.ratios[place][column].exp();
        let relative = |column: usize| (self.ratios[place][column] - self.centres[column]).exp();
        let (machine, own) = (&found.machine, OWN_WEIGHT * found.own);
        let mut parts = [
            (
                machine.level.min(MAX_LEVEL),
                format!("runtime per CPU time {on} {:.1} × the baseline", ratio(0)),
            ),
            (machine.execution, format!("execution {on} {:.1} × that on other machines", relative(1))),
            (machine.stage_in, format!("stage_in per byte {on} {:.1} × that on other machines", relative(2))),
            (own, self.own_text(at)),
        ];
        parts.sort_by(|a, b| b.0.total_cmp(&a.0));
        // Parts that contribute little are left out.
        let main = parts.iter().filter(|(part, text)| *part >= 0.25 * parts[0].0 && !text.is_empty());
        main.map(|(_, text)| text.as_str()).collect::<Vec<_>>().join("; ")
    }

    /// The quantity by which the task itself deviates most.
    fn own_text(&self, at: usize) -> String {
        let deviation = |quantity: Quantity| Some((self.comparison.deviation(at, quantity)?, quantity));
        let largest = EXPLAINED.into_iter().filter_map(deviation).max_by(|a, b| a.0.total_cmp(&b.0));
        let ratio = |(_, quantity): (f64, Quantity)| {
            let (value, range) = self.comparison.of(at, quantity)?;
            Some(format!("its own {} {:.1} × the baseline", quantity.name(), (value - range.median).exp()))
        };
        largest.and_then(ratio).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workflow::{Span, TaskAttempt, TaskRole};

    const N_RUNS: usize = 9;
    const N_MACHINES: usize = 5;

    /// Runs with eight tasks on each of five machines; `seconds` is the runtime by run, machine and task.
    fn runs(seconds: impl Fn(usize, usize, usize) -> f64) -> Vec<WorkflowRun> {
        let run = |at: usize| {
            let start = 1e5 * at as f64;
            let task = |machine: usize, number: usize| TaskAttempt {
                host: Some(format!("worker{machine}")),
                ready: Some(start),
                submitted: Some(start),
                execution: Span::new(start, start + seconds(at, machine, number)).ok(),
                cpu_seconds: Some(90.0 + number as f64),
                ..TaskAttempt::new(format!("work_{machine}_{number}"), TaskRole::Compute, "work", 1)
            };
            let attempts =
                (0..N_MACHINES).flat_map(|machine| (0..8).map(move |number| task(machine, number)));
            WorkflowRun { name: format!("run{at}"), attempts: attempts.collect(), ..WorkflowRun::default() }
        };
        (0..N_RUNS).map(run).collect()
    }

    fn usual(at: usize, machine: usize, number: usize) -> f64 {
        100.0 + ((at * 7 + machine * 3 + number * 5) % 11) as f64
    }

    #[test]
    fn tasks_on_a_slow_machine_come_first_with_the_reason() {
        let all = runs(|at, machine, number| {
            usual(at, machine, number) * if (at, machine) == (4, 2) { 1.6 } else { 1.0 }
        });
        let summaries: Vec<RunSummary<'_>> = all.iter().map(RunSummary::new).collect();
        let summaries: Vec<&RunSummary<'_>> = summaries.iter().collect();
        let ranked = rank(&summaries, &Baseline::of(summaries.iter().copied()));
        assert_eq!(ranked.len(), N_RUNS * N_MACHINES * 8);
        for task in &ranked[..8] {
            assert_eq!((&*task.run, task.host.as_deref()), ("run4", Some("worker2")), "{task:?}");
            assert!(task.reason.contains("of the 8 tasks on worker2 1.6 ×"), "{}", task.reason);
        }
        assert_eq!(ranked[ranked.len() - 1].reason, "near the baseline and the other machines");
    }

    #[test]
    fn a_machine_that_is_slow_in_the_runs_around_is_suspect() {
        let slow = |at: usize| [3, 5, 6].contains(&at);
        let all = runs(|at, machine, number| {
            usual(at, machine, number) * if machine == 1 && slow(at) { 1.5 } else { 1.0 }
        });
        let summaries: Vec<RunSummary<'_>> = all.iter().map(RunSummary::new).collect();
        let summaries: Vec<&RunSummary<'_>> = summaries.iter().collect();
        let baseline = Baseline::of(summaries.iter().copied());
        // Run 4 shows nothing by itself.
        let of_machine = |neighbours: Neighbours| -> [f64; 2] {
            let found = scores(&summaries, &baseline, neighbours);
            [8, 16].map(|at| found[4][at].score)
        };
        let [alone, near] = [Neighbours::None, Neighbours::NearInTime].map(of_machine);
        assert!((alone[0] - alone[1]).abs() < 2.0, "{alone:?}");
        assert!(near[0] - near[1] > 3.0, "{near:?}");
    }

    #[test]
    fn a_slow_task_on_an_unknown_machine_is_found() {
        let mut all = runs(|at, machine, number| {
            usual(at, machine, number) + if (at, machine, number) == (1, 1, 1) { 200.0 } else { 0.0 }
        });
        for attempt in all.iter_mut().flat_map(|run| &mut run.attempts) {
            attempt.host = None;
        }
        let summaries: Vec<RunSummary<'_>> = all.iter().map(RunSummary::new).collect();
        let summaries: Vec<&RunSummary<'_>> = summaries.iter().collect();
        let ranked = rank(&summaries, &Baseline::of(summaries.iter().copied()));
        assert_eq!((&*ranked[0].run, &*ranked[0].task), ("run1", "work_1_1"));
        assert!(ranked[0].reason.starts_with("execution of the task 2.9 ×"), "{}", ranked[0].reason);
    }
}
