//! An import from a server whose answers are given.

use std::sync::OnceLock;
use std::time::Duration;

use super::*;
use crate::peer::canned;

/// Imports from a server that gives these answers, one after the other, up to the point where files are written.
pub fn import_answers(archive: &Archive, intake: &Intake, answers: &[&[u8]]) -> Result<()> {
    static SERVER: OnceLock<Server> = OnceLock::new();
    let query = PrometheusQuery {
        url: "http://127.0.0.1:9".into(),
        from: Timestamp::from_seconds(1_700_000_000),
        to: Timestamp::from_seconds(1_700_000_300),
        metric: None,
        matchers: None,
        node_label: "instance".into(),
        peer: PeerSettings::with_timeout(Duration::from_secs(1)),
    };
    let server = match SERVER.get() {
        Some(server) => server,
        None => {
            let server = Server::new(&query, &intake.limits, &Stop::default())?;
            SERVER.get_or_init(|| server)
        }
    };
    canned::set(answers);
    let import = PrometheusImport::of(server.clone(), query, intake)?;
    let source = Source {
        origin: "fuzz".into(),
        measure: Measure::Counter,
        ticks_per_second: KERNEL_TICKS,
        modes: import.modes,
        period: Millis::SECOND,
    };
    let mut loader = archive.loader(source)?;
    match import.push_nodes(&mut loader, KERNEL_TICKS, &Control::default()) {
        Err(LoadError::Other(error)) => Err(error),
        Ok(()) | Err(LoadError::FinerTicks) => Ok(()),
    }
}
