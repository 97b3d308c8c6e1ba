//! Scheduling policies.

use std::cmp::Ordering;

use super::{State, Waiting};

/// Chooses the jobs that start next.
pub trait Policy: Sync {
    fn name(&self) -> &'static str;

    /// Positions in the queue of the jobs that start now, in order. Together they have to fit.
    fn next(&self, state: &State<'_>) -> Vec<usize>;

    /// Whether it needs to know when running jobs end.
    fn looks_ahead(&self) -> bool {
        false
    }
}

/// First come, first served.
struct Fcfs;

/// Shortest requested time first.
struct Sjf;

/// EASY backfilling: first come, first served, but later jobs may start if they do not delay the first in the queue
/// (Lifka, 1995).
struct Easy;

/// Users who were given least lately go first, with backfilling as in EASY.
struct FairShare;

pub const POLICIES: [&dyn Policy; 4] = [&Fcfs, &Sjf, &Easy, &FairShare];

pub fn policy_named(name: &str) -> Option<&'static dyn Policy> {
    POLICIES.into_iter().find(|policy| policy.name() == name)
}

/// The jobs that fit in this order, up to the first that does not.
fn while_they_fit(mut order: impl Iterator<Item = usize>, queue: &[Waiting], mut n_free: u64) -> Vec<usize> {
    let mut chosen = Vec::new();
    while let Some(index) = order.next().filter(|index| queue[*index].n_nodes <= n_free) {
        n_free -= queue[index].n_nodes;
        chosen.push(index);
    }
    chosen
}

impl Policy for Fcfs {
    fn name(&self) -> &'static str {
        "fcfs"
    }

    fn next(&self, state: &State<'_>) -> Vec<usize> {
        while_they_fit(0..state.queue.len(), state.queue, state.n_free)
    }
}

impl Policy for Sjf {
    fn name(&self) -> &'static str {
        "sjf"
    }

    fn next(&self, state: &State<'_>) -> Vec<usize> {
        // Few jobs start at a time, so that looking for the shortest again and again is faster than sorting.
        let mut last: Option<usize> = None;
        let shortest_first = std::iter::from_fn(|| {
            let by_length = |a: &usize, b: &usize| -> Ordering {
                let [a_seconds, b_seconds] = [a, b].map(|job| state.queue[*job].requested_seconds);
                a_seconds.total_cmp(&b_seconds).then(a.cmp(b))
            };
            let is_left = |job: &usize| last.is_none_or(|last| by_length(job, &last).is_gt());
            last = (0..state.queue.len()).filter(is_left).min_by(by_length);
            last
        });
        while_they_fit(shortest_first, state.queue, state.n_free)
    }
}

impl Policy for Easy {
    fn name(&self) -> &'static str {
        "easy"
    }

    fn looks_ahead(&self) -> bool {
        true
    }

    fn next(&self, state: &State<'_>) -> Vec<usize> {
        let order: Vec<usize> = (0..state.queue.len()).collect();
        backfilled(&order, state)
    }
}

impl Policy for FairShare {
    fn name(&self) -> &'static str {
        "fair-share"
    }

    fn looks_ahead(&self) -> bool {
        true
    }

    fn next(&self, state: &State<'_>) -> Vec<usize> {
        let mut order: Vec<usize> = (0..state.queue.len()).collect();
        order.sort_by(|a, b| {
            let [a, b] = [a, b].map(|job| state.shares.of(state.queue[*job].user));
            a.total_cmp(&b)
        });
        backfilled(&order, state)
    }
}

/// The jobs that fit in this order, and later ones that do not delay the first that does not fit.
fn backfilled(order: &[usize], state: &State<'_>) -> Vec<usize> {
    let queue = state.queue;
    let mut chosen = while_they_fit(order.iter().copied(), queue, state.n_free);
    let mut n_free = state.n_free - chosen.iter().map(|index| queue[*index].n_nodes).sum::<u64>();
    let Some(head) = order.get(chosen.len()).map(|head| queue[*head]) else { return chosen };
    if n_free == 0 {
        return chosen;
    }
    // The latest start of the first waiting job, and the nodes that are left over then.
    let mut ends: Vec<(f64, u64)> = state.running.iter().map(|one| (one.until, one.n_nodes)).collect();
    ends.extend(
        chosen.iter().map(|index| (state.now + queue[*index].requested_seconds, queue[*index].n_nodes)),
    );
    ends.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut n_then = n_free;
    let mut start = f64::MAX;
    for (end, n_nodes) in ends {
        n_then += n_nodes;
        if n_then >= head.n_nodes {
            start = end;
            break;
        }
    }
    let mut n_spare = n_then.saturating_sub(head.n_nodes);
    for index in order.iter().copied().skip(chosen.len() + 1) {
        if n_free == 0 {
            break;
        }
        let waiting = queue[index];
        let ends_before = state.now + waiting.requested_seconds <= start;
        if waiting.n_nodes <= n_free && (ends_before || waiting.n_nodes <= n_spare) {
            n_free -= waiting.n_nodes;
            if !ends_before {
                n_spare -= waiting.n_nodes;
            }
            chosen.push(index);
        }
    }
    chosen
}
