//! How far long work has come: a bar on a terminal, a line now and then elsewhere.

use std::io::IsTerminal;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::output::eprint_note;

const LINE_EVERY: Duration = Duration::from_secs(5);

pub struct Progress {
    what: String,
    bar: Option<ProgressBar>,
    last_line: Mutex<Instant>,
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
        Self { what, bar, last_line: Mutex::new(Instant::now()) }
    }

    pub fn update(&self, done: u64, total: u64) {
        if let Some(bar) = &self.bar {
            bar.set_length(total);
            bar.set_position(done);
            return;
        }
        let mut last = self.last_line.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if last.elapsed() >= LINE_EVERY {
            *last = Instant::now();
            eprint_note(&format!("{}: {} %", self.what, done * 100 / total.max(1)));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
