//! Every reading that an agent still has, out of its `/samples`.

use std::time::Duration;

use reqwest::{Client, StatusCode, Url};
use workload::{NodeReading, Source, Timestamp, samples};

use crate::error::{Error, Result};
use crate::{Archive, LoadReport, net};

/// The readings of one agent.
pub struct AgentImport {
    address: String,
    readings: Vec<NodeReading>,
    source: Source,
}

impl AgentImport {
    /// Asks for what was read at `from` or later.
    pub fn fetch(url: &str, from: Option<Timestamp>, timeout: Duration) -> Result<Self> {
        let shown = url.rsplit_once('@').map_or(url, |(_, host)| host).to_owned();
        let failed = |reason: String| Error::Server { url: shown.clone(), reason };
        let mut url =
            Url::parse(url).map_err(|error| failed(format!("{error}; write it like http://n001:9742")))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(failed("only http:// and https:// can be asked".into()));
        }
        url.set_path("/samples");
        if let Some(from) = from {
            url.query_pairs_mut().append_pair("since", &from.as_epoch_seconds().to_string());
        }
        net::install_tls();
        let client = Client::builder().timeout(timeout).build().map_err(|error| failed(error.to_string()))?;
        let runtime = net::runtime().map_err(|error| failed(error.to_string()))?;
        let (status, body) = runtime
            .block_on(async {
                let response = client.get(url).send().await?;
                let status = response.status();
                response.bytes().await.map(|body| (status, body))
            })
            .map_err(|error| failed(net::in_words(&error).0))?;
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
        let source = Source { origin: format!("{shown} {}", source.origin), ..source };
        Ok(Self { address: shown, readings, source })
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
