//! Imports every reading that an agent still has, from its `/samples`.

use reqwest::StatusCode;
use workload::{Control, NodeReading, Source, Stop, Timestamp, samples};

use super::Intake;
use crate::error::Result;
use crate::peer::{Peer, PeerSettings};
use crate::{Archive, LoadReport};

/// The readings of one agent.
pub struct AgentImport {
    address: String,
    readings: Vec<NodeReading>,
    source: Source,
}

impl AgentImport {
    /// Fetches the readings since `from`. All must be of one node: an agent cannot speak for others.
    pub fn fetch(
        url: &str,
        from: Option<Timestamp>,
        settings: &PeerSettings,
        intake: &Intake,
        stop: &Stop,
    ) -> Result<Self> {
        let peer = Peer::new(url, "http://n001:9742", settings, &intake.limits, stop)?;
        let mut url = peer.base.clone();
        url.set_path("/samples");
        if let Some(from) = from {
            url.query_pairs_mut().append_pair("since", &from.as_epoch_seconds().to_string());
        }
        let (status, body) = peer.get(url).map_err(|cause| peer.no_answer(cause))?;
        let failed = |reason: String| peer.failed(reason);
        match status {
            StatusCode::OK => {}
            StatusCode::UNAUTHORIZED => {
                return Err(failed(format!(
                    "it responds with {status}; it needs a user and password, or a token"
                )));
            }
            StatusCode::NOT_FOUND => {
                return Err(failed(format!("it responds with {status}; is it an agent?")));
            }
            status => return Err(failed(format!("it responds with {status}"))),
        }
        let mut readings: Vec<NodeReading> = Vec::new();
        let mut source = None;
        for read in samples::read(&body) {
            let (from_source, reading) = read.map_err(|error| failed(error.to_string()))?;
            source.get_or_insert_with(|| Source::clone(&from_source));
            intake.check(&reading.node, reading.time)?;
            if let Some(first) = readings.first().filter(|first| first.node != reading.node) {
                return Err(failed(format!("it sends readings of {} and of {}", first.node, reading.node)));
            }
            if from.is_none_or(|from| reading.time >= from) {
                readings.push(reading);
            }
        }
        let source = source.ok_or_else(|| failed("it has no readings in that time range".into()))?;
        let source = Source { origin: format!("{} {}", peer.shown, source.origin), ..source };
        Ok(Self { address: peer.shown, readings, source })
    }

    /// The address, without a password.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Loads the readings. Progress is counted in readings; stopped, it leaves nothing.
    pub fn load(&self, archive: &Archive, control: &Control<'_>) -> Result<LoadReport> {
        let mut loader = archive.with_stop(control.stop()).loader(self.source.clone())?;
        let n_readings = self.readings.len() as u64;
        for (done, reading) in (0..).zip(&self.readings) {
            control.report(done, n_readings)?;
            loader.push_node(reading)?;
        }
        loader.finish()
    }
}
