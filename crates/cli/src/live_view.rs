//! Lines on a terminal that are redrawn in place, such as the threads of a machine once a second.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use report::text::printable;

/// Draws to stdout if that is a terminal.
pub struct LiveView(Option<ProgressBar>);

impl LiveView {
    pub fn new() -> Self {
        let bar = std::io::stdout().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stdout());
            let style = ProgressStyle::with_template("{msg}");
            bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        });
        Self(bar)
    }

    /// Whether anything is drawn; if not, plain lines from time to time are the better output.
    pub fn is_drawn(&self) -> bool {
        self.0.is_some()
    }

    /// Replaces what was drawn before.
    pub fn draw(&self, lines: &[String]) {
        if let Some(bar) = &self.0 {
            let lines: Vec<_> = lines.iter().map(|line| printable(line)).collect();
            bar.set_message(lines.join("\n"));
            bar.tick();
        }
    }
}

impl Drop for LiveView {
    fn drop(&mut self) {
        // The last view stays on the screen.
        if let Some(bar) = &self.0 {
            bar.abandon();
        }
    }
}
