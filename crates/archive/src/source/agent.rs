//! Every reading that an agent still has, out of its `/samples`.

use std::time::Duration;

use reqwest::StatusCode;
use workload::{NodeReading, Source, Timestamp, samples};

use crate::error::Result;
use crate::net::Peer;
use crate::{Archive, LoadReport};

/// The readings of one agent.
pub struct AgentImport {
    address: String,
    readings: Vec<NodeReading>,
    source: Source,
}

impl AgentImport {
    /// Asks for what was read at `from` or later.
    pub fn fetch(url: &str, from: Option<Timestamp>, timeout: Duration) -> Result<Self> {
        let peer = Peer::new(url, "http://n001:9742", timeout)?;
        let mut url = peer.base.clone();
        url.set_path("/samples");
        if let Some(from) = from {
            url.query_pairs_mut().append_pair("since", &from.as_epoch_seconds().to_string());
        }
        let (status, body) = peer.get(url).map_err(|(reason, _)| peer.failed(reason))?;
        let failed = |reason: String| peer.failed(reason);
        match status {
            StatusCode::OK => {}
            StatusCode::UNAUTHORIZED => {
                return Err(failed(format!("it answers {status}; write http://user:password@host")));
            }
            StatusCode::NOT_FOUND => return Err(failed(format!("it answers {status}; is it an agent?"))),
            status => return Err(failed(format!("it answers {status}"))),
        }
        let mut readings = Vec::new();
        let mut source = None;
        samples::for_each(&body, |from_source, reading| {
            source.get_or_insert_with(|| from_source.clone());
            if from.is_none_or(|from| reading.time >= from) {
                readings.push(reading);
            }
        })
        .map_err(|error| failed(error.to_string()))?;
        let source = source.ok_or_else(|| failed("it has no readings in that stretch of time".into()))?;
        let source = Source { origin: format!("{} {}", peer.shown, source.origin), ..source };
        Ok(Self { address: peer.shown, readings, source })
    }

    /// The address, without a password.
    pub fn address(&self) -> &str {
        &self.address
    }

    pub fn load(&self, archive: &Archive) -> Result<LoadReport> {
        let mut loader = archive.loader(self.source.clone())?;
        self.readings.iter().try_for_each(|reading| loader.push_node(reading))?;
        loader.finish()
    }
}
