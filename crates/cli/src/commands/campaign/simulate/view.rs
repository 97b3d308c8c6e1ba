//! What a live simulation prints: lines of JSON, or one line per node.

use campaign::simulate::StreamStatus;
use serde_json::json;
use workload::{Mode, NodeReading, Owner};

use crate::live_view::LiveView;
use crate::output::{print, print_json_line};
use crate::times::show_time;

/// Nodes that are shown on a terminal.
const MAX_NODES: usize = 24;
/// Without a terminal, one summary is printed for this many seconds.
const SECONDS_PER_SUMMARY: u64 = 10;

pub struct View {
    is_json: bool,
    live: LiveView,
    /// Whether stdout was closed; the simulation continues.
    is_closed: bool,
    previous: Vec<NodeReading>,
}

impl View {
    pub fn new(is_json: bool) -> Self {
        Self { is_json, live: LiveView::new(), is_closed: false, previous: Vec::new() }
    }

    pub fn show(&mut self, status: &StreamStatus, readings: &[NodeReading]) {
        if !self.is_closed {
            self.is_closed = self.print(status, readings).is_err();
        }
    }

    fn print(&mut self, status: &StreamStatus, readings: &[NodeReading]) -> anyhow::Result<()> {
        if self.is_json {
            let threads: usize = readings.iter().map(|reading| reading.threads.len()).sum();
            let (took, late) = (status.took.as_secs_f64(), status.late.as_secs_f64());
            return print_json_line(
                &json!({ "time": status.time, "threads": threads, "took_seconds": took, "late_seconds": late }),
            );
        }
        let second = status.n_seconds % SECONDS_PER_SUMMARY;
        if (self.live.is_drawn() || second == 2) && self.previous.len() == readings.len() {
            self.draw(status, readings)?;
        }
        if self.live.is_drawn() || second == 1 {
            self.previous = readings.to_vec();
        }
        Ok(())
    }

    fn draw(&self, status: &StreamStatus, readings: &[NodeReading]) -> anyhow::Result<()> {
        let late = match status.late.as_secs() {
            0 => String::new(),
            seconds => format!(", {seconds} s late"),
        };
        let took = status.took.as_secs_f64() * 1e3;
        let mut lines = vec![format!("{}  {took:.0} ms per second{late}", show_time(status.time))];
        for (before, now) in self.previous.iter().zip(readings).take(MAX_NODES) {
            lines.push(node_line(before, now));
        }
        if readings.len() > MAX_NODES {
            lines.push(format!("… and {} more nodes", readings.len() - MAX_NODES));
        }
        if self.live.is_drawn() {
            self.live.draw(&lines);
            return Ok(());
        }
        print(&lines.join("\n"))
    }
}

fn node_line(before: &NodeReading, now: &NodeReading) -> String {
    let spent = |mode: Mode| {
        let ticks =
            |reading: &NodeReading| reading.threads.iter().map(|thread| thread.ticks[mode]).sum::<u64>();
        (ticks(now).saturating_sub(ticks(before))) as f64
    };
    let all: f64 = Mode::ALL.into_iter().map(spent).sum::<f64>().max(1.0);
    let percent = |mode: Mode| spent(mode) / all * 100.0;
    let owned = now.threads.iter().filter(|thread| matches!(thread.owner, Owner::Job(_))).count();
    format!(
        "{:<8} {:>3} jobs on {:>3} of {} threads  user {:5.1} %  system {:5.1} %  iowait {:5.1} %",
        now.node.as_str(),
        now.jobs.len(),
        owned,
        now.threads.len(),
        percent(Mode::User),
        percent(Mode::System),
        percent(Mode::Iowait),
    )
}
