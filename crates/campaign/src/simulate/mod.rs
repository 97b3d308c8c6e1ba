//! A simulated cluster: jobs of known kinds, placed by a small scheduler, whose seconds are sampled from models
//! fitted to recordings. The same seed gives the same cluster.

pub mod cluster;
pub mod compare;
mod environment;
pub mod fit;
pub mod model;
pub mod sampler;
pub mod schedule;

use std::time::{Duration, Instant};

use archive::{Archive, LoadReport, Selection};
use workload::{Control, IdError, Label, Millis, NodeName, NodeReading, Set, Stop, Stopped, Timestamp};

use crate::plan::PlannedCampaign;
use cluster::Cluster;
use model::{Model, ModelError};
use schedule::{ClusterSettings, node_name, schedule};

/// Fitted to the recording that docs/results/campaign.md describes.
const RECORDED: &str = include_str!("recorded.json");
/// Campaigns have at least this length.
pub const MIN_CAMPAIGN_SECONDS: u64 = 600;
/// The load of a cluster is between these.
pub const MIN_LOAD: f64 = 0.01;
pub const MAX_LOAD: f64 = 0.95;

#[derive(Debug, thiserror::Error)]
pub enum SimulateError {
    #[error("a cluster needs at least one node, one thread per node and one campaign")]
    Empty,
    #[error("a cluster cannot start before 1970")]
    StartBeforeEpoch,
    #[error("a campaign of {0} s is too short; it needs at least {MIN_CAMPAIGN_SECONDS} s")]
    CampaignTooShort(u64),
    #[error("the load has to be between {MIN_LOAD} and {MAX_LOAD}, not {0}")]
    Load(f64),
    #[error("the jobs do not fit into the campaigns")]
    DoesNotFit,
    #[error("the model does not have the kind {0}")]
    NoKind(String),
    #[error("campaign {0} is in the archive already")]
    KnownCampaign(String),
    #[error("the archive has readings of {0} at that time already")]
    TimeTaken(NodeName),
    #[error("{0}")]
    NotStored(String),
    #[error("the built-in model cannot be read: {0}")]
    BuiltInModel(ModelError),
    #[error(transparent)]
    Name(#[from] IdError),
    #[error(transparent)]
    Archive(archive::Error),
    #[error("{0}")]
    Stopped(#[from] Stopped),
}

impl From<archive::Error> for SimulateError {
    fn from(error: archive::Error) -> Self {
        match error {
            archive::Error::Stopped(stopped) => Self::Stopped(stopped),
            error => Self::Archive(error),
        }
    }
}

/// The model that comes with Tracewise.
pub fn recorded_model() -> Result<Model, SimulateError> {
    Model::from_json(RECORDED).map_err(SimulateError::BuiltInModel)
}

/// The number of campaigns of one set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CampaignCount {
    pub set: Set,
    pub count: usize,
}

impl ClusterSettings {
    /// Campaigns of each set in this order, named after the set and numbered.
    pub fn campaigns(counts: &[CampaignCount]) -> Vec<PlannedCampaign> {
        let of_set = |CampaignCount { set, count }: &CampaignCount| {
            let set = *set;
            (1..=*count).map(move |number| PlannedCampaign { name: format!("{set}-{number}"), set })
        };
        counts.iter().flat_map(of_set).collect()
    }

    /// The same settings, with job numbers that no labelled job has.
    fn numbered_after(&self, known: &[Label]) -> Self {
        let last = known.iter().filter_map(|label| label.job.as_str().parse::<u64>().ok()).max();
        Self { first_job: last.map_or(self.first_job, |last| last + 1), ..self.clone() }
    }

    fn check(&self) -> Result<(), SimulateError> {
        if self.n_nodes == 0 || self.threads_per_node == 0 || self.campaigns.is_empty() {
            return Err(SimulateError::Empty);
        }
        if self.start < Timestamp(0) {
            return Err(SimulateError::StartBeforeEpoch);
        }
        if self.campaign_seconds < MIN_CAMPAIGN_SECONDS {
            return Err(SimulateError::CampaignTooShort(self.campaign_seconds));
        }
        if !(MIN_LOAD..=MAX_LOAD).contains(&self.load) {
            return Err(SimulateError::Load(self.load));
        }
        Ok(())
    }
}

/// Writes simulated campaigns with their labels into an archive: completely, or not at all.
pub fn into_archive(
    settings: &ClusterSettings,
    model: &Model,
    archive: &Archive,
    control: &Control<'_>,
) -> Result<(LoadReport, Vec<Label>), SimulateError> {
    settings.check()?;
    let archive = archive.with_stop(control.stop());
    let known = archive.labels()?;
    let is_known = |campaign: &&PlannedCampaign| known.iter().any(|label| label.campaign == campaign.name);
    if let Some(campaign) = settings.campaigns.iter().find(is_known) {
        return Err(SimulateError::KnownCampaign(campaign.name.clone()));
    }
    let settings = &settings.numbered_after(&known);
    let n_seconds = settings.campaign_seconds * settings.campaigns.len() as u64;
    let end = settings.start + Millis::from_seconds(n_seconds as i64);
    let time = Selection { from: settings.start, to: end + Millis(1), ..Selection::default() };
    let there = archive.snapshot(time)?;
    for node in (0..settings.n_nodes as usize).map(node_name) {
        let node = node?;
        // Nodes of a snapshot may have readings of the same hour only.
        if there.bounds(&node).is_some() {
            return Err(SimulateError::TimeTaken(node));
        }
    }
    let jobs = schedule(settings, control.stop())?;
    let labels: Vec<Label> = jobs.iter().map(|job| job.label.clone()).collect();
    let mut loader = archive.loader(Cluster::source(settings))?;
    loader.add_labels(&labels)?;
    let mut cluster = Cluster::new(settings, &jobs, model)?;
    for node in 0..cluster.n_nodes() {
        for second in 0..=n_seconds {
            control.check()?;
            let time = settings.start + Millis::from_seconds(second as i64);
            loader.push_node(cluster.node_second(node, time))?;
        }
        control.report(node as u64 + 1, cluster.n_nodes() as u64)?;
    }
    Ok((loader.finish()?, labels))
}

/// The state of a stream after one simulated second.
#[derive(Debug, Clone, Copy)]
pub struct StreamStatus {
    pub time: Timestamp,
    pub n_seconds: u64,
    /// How long the last second took to simulate and to store.
    pub took: Duration,
    /// How far the stream is behind the clock.
    pub late: Duration,
}

/// Streams a simulated cluster to `store`, `speed` times as fast as the clock, until `stop`. One campaign of the test
/// set follows the other; the labels of each are added to the archive when it is complete.
pub fn stream(
    settings: &ClusterSettings,
    model: &Model,
    archive: &Archive,
    speed: f64,
    stop: &Stop,
    mut store: impl FnMut(&[NodeReading]) -> Result<(), SimulateError>,
    mut on_second: impl FnMut(StreamStatus, &[NodeReading]),
) -> Result<(), SimulateError> {
    settings.check()?;
    let mut started: Option<Instant> = None;
    let mut n_seconds = 0;
    let mut settings = settings.numbered_after(&archive.labels()?);
    settings.is_busy_at_start = true;
    let mut previous: Vec<NodeReading> = Vec::new();
    loop {
        let name = format!("live-{}", settings.start.as_epoch_seconds());
        settings.campaigns = vec![PlannedCampaign { name, set: Set::Test }];
        let jobs = match schedule(&settings, stop) {
            Err(SimulateError::Stopped(_)) => return Ok(()),
            jobs => jobs?,
        };
        let mut cluster = Cluster::new(&settings, &jobs, model)?;
        cluster.resume(&previous);
        for second in 0..settings.campaign_seconds {
            let started = *started.get_or_insert_with(Instant::now);
            let due = started + Duration::from_secs_f64(n_seconds as f64 / speed);
            if stop.wait(due.saturating_duration_since(Instant::now())) {
                return Ok(());
            }
            let (time, begin) = (settings.start + Millis::from_seconds(second as i64), Instant::now());
            let readings = cluster.second(time);
            store(readings)?;
            n_seconds += 1;
            let late = Instant::now().saturating_duration_since(due);
            on_second(StreamStatus { time, n_seconds, took: begin.elapsed(), late }, readings);
        }
        archive.add_labels(&jobs.iter().map(|job| job.label.clone()).collect::<Vec<_>>())?;
        previous = cluster.readings().to_vec();
        settings.start = settings.start + Millis::from_seconds(settings.campaign_seconds as i64);
        settings.first_job += jobs.len() as u64;
        settings.is_busy_at_start = false;
    }
}

#[cfg(test)]
mod tests {
    use archive::Settings;

    use super::schedule::Variation;
    use super::*;

    fn settings() -> ClusterSettings {
        let start = Timestamp::from_seconds(1_767_571_200);
        ClusterSettings {
            n_nodes: 2,
            threads_per_node: 4,
            campaign_seconds: 3_600,
            campaigns: ClusterSettings::campaigns(&[CampaignCount { set: Set::Train, count: 2 }]),
            seed: 1,
            load: 0.5,
            start,
            origin: start,
            first_job: 1,
            is_busy_at_start: false,
            variation: Variation::default(),
        }
    }

    #[test]
    fn invalid_settings_are_rejected() {
        let rejected = |settings: ClusterSettings| settings.check().unwrap_err();
        assert!(settings().check().is_ok());
        assert!(matches!(rejected(ClusterSettings { n_nodes: 0, ..settings() }), SimulateError::Empty));
        let early = ClusterSettings { start: Timestamp(-1), ..settings() };
        assert!(matches!(rejected(early), SimulateError::StartBeforeEpoch));
        let short = ClusterSettings { campaign_seconds: 599, ..settings() };
        assert!(matches!(rejected(short), SimulateError::CampaignTooShort(599)));
        assert!(matches!(rejected(ClusterSettings { load: 1.0, ..settings() }), SimulateError::Load(_)));
    }

    #[test]
    fn a_cluster_may_be_simulated_right_before_other_readings_and_not_at_the_same_time() {
        let folder = tempfile::tempdir().unwrap();
        let archive = Archive::open_or_create(folder.path().to_str().unwrap(), &Settings::default()).unwrap();
        let one = |name: &str, start: Timestamp| {
            let campaigns = vec![PlannedCampaign { name: name.into(), set: Set::Train }];
            let settings =
                ClusterSettings { campaigns, campaign_seconds: 600, start, origin: start, ..settings() };
            into_archive(&settings, &recorded_model().unwrap(), &archive, &Control::default())
        };
        let live = settings().start + Millis::from_seconds(1_800);
        one("live", live).unwrap();
        // In the same hour, up to the second before.
        one("history", live - Millis::from_seconds(601)).unwrap();
        let taken = one("again", live - Millis::from_seconds(600));
        assert!(matches!(taken, Err(SimulateError::TimeTaken(_))), "{taken:?}");
    }

    #[test]
    fn a_simulation_that_is_stopped_ends_within_a_second_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let address = folder.path().to_str().unwrap();
        let archive = Archive::open_or_create(address, &Settings::default()).unwrap();
        let stop = Stop::after(Some(Duration::from_millis(300)));
        // This would take minutes.
        let large = ClusterSettings { n_nodes: 500, threads_per_node: 64, ..settings() };
        let begin = Instant::now();
        let outcome =
            into_archive(&large, &recorded_model().unwrap(), &archive, &Control::new(&stop, &|_, _| {}));
        assert!(matches!(outcome, Err(SimulateError::Stopped(_))), "{outcome:?}");
        assert!(begin.elapsed() < Duration::from_millis(1_300), "{:?}", begin.elapsed());
        assert!(archive.labels().unwrap().is_empty());
        assert!(archive.snapshot(Selection::default()).unwrap().nodes().is_empty());
    }
}
