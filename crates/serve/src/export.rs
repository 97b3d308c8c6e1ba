//! Sends what `/metrics` shows to a server by remote write.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::SystemTime;

use agent::remote_write::{Batch, Outline, Sender, Target};
use url::Url;
use workload::Timestamp;

use crate::counts::add;
use crate::http::metrics;
use crate::peer;
use crate::service::Service;
use crate::settings::{ExportSettings, SettingsError};

/// What waits for a server that is away: an hour at the default interval.
const MAX_WAITING: usize = 240;

/// The address that is exported to, if there is one.
pub fn address(settings: &ExportSettings) -> Result<Option<Url>, SettingsError> {
    if settings.remote_write.is_empty() {
        return Ok(None);
    }
    peer::address(&settings.remote_write, settings.token_file.as_ref()).map(Some)
}

/// Sends until the service stops, to where the settings say at that time.
pub async fn run(service: Arc<Service>) {
    let mut settings = service.watch_settings();
    let mut stop = service.stop.clone();
    loop {
        let export = settings.borrow_and_update().export.clone();
        let sending = async {
            match address(&export) {
                Ok(Some(url)) => send(&service, &export, url).await,
                _ => std::future::pending().await,
            }
        };
        tokio::select! {
            () = sending => {}
            changed = settings.changed() => if changed.is_err() { return },
            _ = stop.changed() => return,
        }
    }
}

async fn send(service: &Service, export: &ExportSettings, url: Url) {
    let target = Target { url, bearer_token_file: export.token_file.clone() };
    let mut sender = match Sender::new(target) {
        Ok(sender) => sender,
        Err(error) => {
            tracing::error!("cannot export: {error}");
            return std::future::pending().await;
        }
    };
    let mut waiting: VecDeque<Batch> = VecDeque::new();
    let mut last: Option<Outline> = None;
    let mut is_failing = false;
    loop {
        tokio::time::sleep(export.every.0).await;
        let mut batch = Batch::new(Vec::new());
        batch.set_time(Timestamp::from(SystemTime::now()));
        metrics::expose(service, &mut batch).await;
        let outline = batch.outline();
        if let Some(last) = &last {
            batch.end_those_not_there(last);
        }
        last = Some(outline);
        if waiting.len() == MAX_WAITING {
            waiting.pop_front();
        }
        waiting.push_back(batch);
        while let Some(first) = waiting.front() {
            match sender.send(first).await {
                Ok(()) => {
                    add(&service.counts.exported_samples, first.n_samples() as u64);
                    if is_failing {
                        tracing::info!("{}: accepts samples again", sender.address());
                    }
                    is_failing = false;
                }
                Err(failure) => {
                    add(&service.counts.failed_exports, 1);
                    if !is_failing {
                        tracing::warn!("{}: {failure}", sender.address());
                    }
                    is_failing = true;
                    // A batch that the server refuses is dropped.
                    if failure.is_passing() {
                        break;
                    }
                }
            }
            waiting.pop_front();
        }
    }
}
