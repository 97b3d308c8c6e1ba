//! Imports every reading that an agent still has, from its `/samples`.

use std::time::Duration;

use reqwest::StatusCode;
use workload::{Control, NodeReading, Source, Stop, Timestamp, samples};

use crate::error::Result;
use crate::peer::Peer;
use crate::{Archive, LoadReport};

/// The readings of one agent.
pub struct AgentImport {
    address: String,
    readings: Vec<NodeReading>,
    source: Source,
}

impl AgentImport {
    /// Fetches the readings since `from`.
    pub fn fetch(url: &str, from: Option<Timestamp>, timeout: Duration, stop: &Stop) -> Result<Self> {
        let peer = Peer::new(url, "http://n001:9742", timeout, stop)?;
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
                return Err(failed(format!("it responds with {status}; write http://user:password@host")));
            }
            StatusCode::NOT_FOUND => {
                return Err(failed(format!("it responds with {status}; is it an agent?")));
            }
            status => return Err(failed(format!("it responds with {status}"))),
        }
        let mut readings = Vec::new();
        let mut source = None;
        for read in samples::read(&body) {
            let (from_source, reading) = read.map_err(|error| failed(error.to_string()))?;
            source.get_or_insert_with(|| Source::clone(&from_source));
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
