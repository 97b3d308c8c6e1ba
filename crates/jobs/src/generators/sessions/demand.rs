//! Nodes in demand: those of the jobs that would be running if no job waited. Users hold back when the machine is full.

use std::collections::BTreeMap;

/// More nodes than the peak are in demand for this fraction of the time.
const FRACTION_ABOVE_PEAK: f64 = 0.001;

/// The number of nodes that is rarely exceeded: `jobs` are arrivals in seconds, run times and nodes.
pub(super) fn peak_of(jobs: impl Iterator<Item = (f64, f64, f64)>) -> f64 {
    let mut changes: Vec<(f64, f64)> = Vec::new();
    for (arrival, run_seconds, n_nodes) in jobs {
        changes.extend([(arrival, n_nodes), (arrival + run_seconds, -n_nodes)]);
    }
    changes.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut n_in_demand = 0.0;
    let level = |pair: &[(f64, f64)]| {
        n_in_demand += pair[0].1;
        (n_in_demand, pair[1].0 - pair[0].0)
    };
    let mut levels: Vec<(f64, f64)> = changes.windows(2).map(level).collect();
    levels.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mut seconds_above = FRACTION_ABOVE_PEAK * levels.iter().map(|(_, seconds)| seconds).sum::<f64>();
    let is_peak = |(_, seconds): &&(f64, f64)| {
        seconds_above -= seconds;
        seconds_above < 0.0
    };
    levels.iter().find(is_peak).map_or(f64::INFINITY, |(n_nodes, _)| *n_nodes)
}

/// The nodes in demand while a trace is sampled.
#[derive(Debug)]
pub(super) struct Demand {
    peak: f64,
    /// Seconds since the trace started.
    now: f64,
    n_in_demand: f64,
    /// Nodes by the end of the job and its number. Times are not negative, so that their bits are in the same order.
    running: BTreeMap<(u64, usize), f64>,
    n_submitted: usize,
}

impl Demand {
    pub fn new(peak: f64) -> Self {
        Self { peak, now: 0.0, n_in_demand: 0.0, running: BTreeMap::new(), n_submitted: 0 }
    }

    /// Seconds until a job can be submitted without exceeding the peak.
    pub fn seconds_until_room(&self, n_nodes: f64) -> f64 {
        let mut n_in_demand = self.n_in_demand + n_nodes;
        let mut ends = self.running.iter();
        let mut until = self.now;
        while n_in_demand > self.peak {
            let Some(((end, _), n_nodes)) = ends.next() else { break };
            until = f64::from_bits(*end);
            n_in_demand -= n_nodes;
        }
        until - self.now
    }

    /// Submits a job `seconds` after the previous one.
    pub fn submit(&mut self, seconds: f64, run_seconds: f64, n_nodes: f64) {
        self.now += seconds.max(0.0);
        while let Some(first) = self.running.first_entry() {
            if f64::from_bits(first.key().0) > self.now {
                break;
            }
            self.n_in_demand -= first.remove();
        }
        let end = self.now + run_seconds.max(0.0);
        self.running.insert((end.to_bits(), self.n_submitted), n_nodes);
        self.n_submitted += 1;
        self.n_in_demand += n_nodes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_leaves_out_what_is_exceeded_for_moments() {
        let steady = (0..100).map(|hour| (f64::from(hour) * 3_600.0, 3_600.0, 10.0));
        assert_eq!(peak_of(steady.clone().chain([(5_000.0, 60.0, 500.0)])), 10.0);
        assert_eq!(peak_of(steady.chain([(5_000.0, 7_200.0, 500.0)])), 510.0);
        assert_eq!(peak_of(std::iter::empty()), f64::INFINITY);
    }

    #[test]
    fn a_job_waits_until_enough_others_have_ended() {
        let mut demand = Demand::new(10.0);
        demand.submit(0.0, 100.0, 6.0);
        demand.submit(10.0, 50.0, 4.0);
        assert_eq!(demand.seconds_until_room(0.0), 0.0);
        assert_eq!(demand.seconds_until_room(4.0), 50.0);
        assert_eq!(demand.seconds_until_room(5.0), 90.0);
        assert_eq!(demand.seconds_until_room(64.0), 90.0, "a larger job waits for an empty machine");
        demand.submit(60.0, 1.0, 4.0);
        assert_eq!(demand.seconds_until_room(4.0), 1.0);
    }
}
