//! What the agent counts of its own work, exposed with the metrics of the node.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::exposition::{Family, Kind, Sink};

/// Adds one.
pub fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// How remote write fares.
#[derive(Debug, Default)]
pub struct Pushed {
    pub is_on: AtomicBool,
    pub samples: AtomicU64,
    pub refused: AtomicU64,
    pub failures: AtomicU64,
}

impl Pushed {
    pub fn expose(&self, sink: &mut impl Sink) {
        if !self.is_on.load(Ordering::Relaxed) {
            return;
        }
        for (name, counter, help) in [
            ("tracewise_remote_write_samples_total", &self.samples, "Samples that the server accepted."),
            (
                "tracewise_remote_write_samples_refused_total",
                &self.refused,
                "Samples that the server refused for good.",
            ),
            (
                "tracewise_remote_write_failures_total",
                &self.failures,
                "Requests that failed and are tried again.",
            ),
        ] {
            sink.family(Family { name, kind: Kind::Counter, help });
            sink.sample(&[], counter.load(Ordering::Relaxed) as f64, None);
        }
    }
}

/// Whom the HTTP server did not serve.
#[derive(Debug, Default)]
pub struct Served {
    /// Connections that were closed at once, because all places were taken.
    pub refused: AtomicU64,
    /// Connections that were idle, closed to make room.
    pub idle: AtomicU64,
    /// Connections whose response took too long.
    pub slow: AtomicU64,
    pub wrong_passwords: AtomicU64,
    /// Logins refused without comparing the password.
    pub too_many_guesses: AtomicU64,
}

impl Served {
    pub fn expose(&self, sink: &mut impl Sink) {
        let mut by_reason = |name, counters: &[(&str, &AtomicU64)], help| {
            sink.family(Family { name, kind: Kind::Counter, help });
            for (reason, counter) in counters {
                sink.sample(&[("reason", reason)], counter.load(Ordering::Relaxed) as f64, None);
            }
        };
        by_reason(
            "tracewise_http_connections_closed_total",
            &[("limit", &self.refused), ("idle", &self.idle), ("slow", &self.slow)],
            "Connections that the agent closed: beyond its limits, idle when places were short, or slow.",
        );
        by_reason(
            "tracewise_http_logins_failed_total",
            &[("password", &self.wrong_passwords), ("limit", &self.too_many_guesses)],
            "Logins that failed: with a wrong password, or beyond the limit of wrong passwords.",
        );
    }
}
