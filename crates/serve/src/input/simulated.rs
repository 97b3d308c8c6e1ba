//! A simulated cluster as an input.

use std::sync::Arc;

use archive::Archive;
use campaign::simulate::cluster::Cluster;
use campaign::simulate::schedule::ClusterSettings;
use campaign::simulate::{SimulateError, recorded_model, stream};
use workload::{NodeReading, Stop};

use crate::counts::Input;
use crate::ingest::{Ingest, NotTaken};

/// Delivers a simulated cluster, `speed` times as fast as the clock, until `stop`. It blocks, and so needs a thread of its
/// own.
pub fn run(
    settings: &ClusterSettings,
    archive: &Archive,
    speed: f64,
    ingest: &Ingest,
    runtime: &tokio::runtime::Handle,
    stop: &Stop,
) -> Result<(), SimulateError> {
    let source = Arc::new(Cluster::source(settings));
    let deliver = |readings: &[NodeReading]| {
        let delivery = ingest.deliver(Input::Simulated, source.clone(), readings.to_vec());
        match runtime.block_on(delivery) {
            Ok(()) | Err(NotTaken::Stopping) => Ok(()),
            Err(error) => Err(SimulateError::NotStored(error.to_string())),
        }
    };
    stream(settings, &recorded_model()?, archive, speed, stop, deliver, |_, _| {})
}
