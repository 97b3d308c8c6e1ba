//! Progress of long operations: a bar on a terminal, a line from time to time elsewhere.

use std::io::IsTerminal;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use report::text::show_duration;

use crate::output::eprint_note;

const LINE_INTERVAL: Duration = Duration::from_secs(5);

/// Shows how far an operation is. When it is dropped, a bar is cleared, and lines get a last one that
/// says how long the operation took.
pub struct Progress {
    what: String,
    begun: Instant,
    bar: Option<ProgressBar>,
    lines: Mutex<Lines>,
}

/// The lines printed so far, without a terminal.
struct Lines {
    last: Instant,
    n_printed: u32,
    is_complete: bool,
}

impl Progress {
    pub fn new(what: impl Into<String>) -> Self {
        let what = what.into();
        let bar = std::io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template("{msg} {wide_bar} {percent:>3} %  {eta} left");
            let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr_with_hz(10));
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar.set_message(what.clone());
            bar
        });
        let begun = Instant::now();
        let lines = Mutex::new(Lines { last: begun, n_printed: 0, is_complete: false });
        Self { what, begun, bar, lines }
    }

    pub fn update(&self, done: u64, total: u64) {
        if let Some(bar) = &self.bar {
            bar.set_length(total);
            bar.set_position(done);
            return;
        }
        let mut lines = self.lines();
        lines.is_complete = done >= total;
        if lines.last.elapsed() >= LINE_INTERVAL && !lines.is_complete {
            lines.last = Instant::now();
            lines.n_printed += 1;
            eprint_note(&format!("{}: {} %", self.what, done * 100 / total.max(1)));
        }
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The line that ends those that were printed, if any were.
    fn last_line(&self) -> Option<String> {
        let lines = self.lines();
        let took = show_duration(self.begun.elapsed().as_secs_f64());
        let ending = if lines.is_complete { "done in" } else { "ended after" };
        (lines.n_printed > 0).then(|| format!("{}: {ending} {took}", self.what))
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        if let Some(line) = self.last_line() {
            eprint_note(&line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_were_printed_are_ended_by_one() {
        let progress = Progress::new("reading x");
        progress.update(84, 100);
        assert_eq!(progress.last_line(), None, "nothing was printed that needs an end");
        progress.lines().n_printed = 1;
        assert_eq!(progress.last_line().as_deref(), Some("reading x: ended after 0s"));
        progress.update(100, 100);
        assert_eq!(progress.last_line().as_deref(), Some("reading x: done in 0s"));
    }
}
