//! A simulated cluster: jobs of known kinds, placed by a scheduler, drawn from models that were fitted
//! to recordings. One seed is one cluster.

pub mod cluster;
pub mod compare;
pub mod draw;
pub mod fit;
pub mod model;
pub mod schedule;
mod world;

use std::time::{Duration, Instant};

use archive::{Archive, LoadReport, Selection, WriterSettings};
use workload::Stop;
use workload::{IdError, Label, Millis, NodeName, NodeReading, Set, Timestamp};

use cluster::Cluster;
use model::Model;
use schedule::{ClusterSettings, node_name, schedule};

/// Fitted to the recording that docs/results/campaign.md describes.
const RECORDED: &str = include_str!("recorded.json");

#[derive(Debug, thiserror::Error)]
pub enum SimulateError {
    #[error("the jobs do not fit into the campaigns; ask for more --hours, or less --load")]
    Hours,
    #[error("the model has no kind {0}; fit it to a recording that has")]
    NoKind(String),
    #[error("campaign {0} is in the archive already; simulate into another one")]
    Known(String),
    #[error("{0} has readings of that time already; choose another --start, or another archive")]
    Taken(NodeName),
    #[error("{0}")]
    Settings(String),
    #[error(transparent)]
    Name(#[from] IdError),
    #[error(transparent)]
    Archive(#[from] archive::Error),
}

/// The model that comes with Tracewise.
pub fn recorded_model() -> Result<Model, SimulateError> {
    Model::from_json(RECORDED)
        .map_err(|reason| SimulateError::Settings(format!("the built-in model: {reason}")))
}

impl ClusterSettings {
    /// Campaigns of each set, named after it, in this order.
    pub fn campaigns(counts: &[(Set, usize)]) -> Vec<(String, Set)> {
        let named = |(set, count): &(Set, usize)| {
            let set = *set;
            (1..=*count).map(move |number| (format!("{set}-{number}"), set))
        };
        counts.iter().flat_map(named).collect()
    }

    /// The same with numbers for jobs that no labelled job has.
    fn numbered_after(&self, known: &[Label]) -> Self {
        let last = known.iter().filter_map(|label| label.job.as_str().parse::<u64>().ok()).max();
        Self { first_job: last.map_or(self.first_job, |last| last + 1), ..self.clone() }
    }

    fn check(&self) -> Result<(), SimulateError> {
        let refused = |reason: &str| Err(SimulateError::Settings(reason.to_owned()));
        if self.n_nodes == 0 || self.threads_a_node == 0 || self.campaigns.is_empty() {
            return refused("a cluster has at least one node of one thread, and one campaign");
        }
        if self.start < Timestamp(0) {
            return refused("a cluster does not start before 1970");
        }
        if self.seconds < 600 {
            return refused("a campaign takes at least ten minutes");
        }
        if !(0.01..=0.95).contains(&self.load) {
            return refused("the load lies between 0.01 and 0.95");
        }
        Ok(())
    }
}

/// Writes simulated campaigns into an archive: as a whole, with their labels, or not at all.
pub fn into_archive(
    settings: &ClusterSettings,
    model: &Model,
    archive: &Archive,
    mut progress: impl FnMut(u64, u64),
) -> Result<(LoadReport, Vec<Label>), SimulateError> {
    settings.check()?;
    let known = archive.labels()?;
    let is_known = |name: &String| known.iter().any(|label| label.campaign == *name);
    if let Some((name, _)) = settings.campaigns.iter().find(|(name, _)| is_known(name)) {
        return Err(SimulateError::Known(name.clone()));
    }
    let settings = &settings.numbered_after(&known);
    let n_seconds = settings.seconds * settings.campaigns.len() as u64;
    let end = settings.start + Millis::from_seconds(n_seconds as i64);
    let there =
        archive.snapshot(Selection { from: settings.start, to: end, ..Selection::default() })?.nodes();
    let ours: Vec<NodeName> = (0..settings.n_nodes as usize).map(node_name).collect::<Result<_, _>>()?;
    if let Some(node) = there.into_iter().find(|node| ours.contains(node)) {
        return Err(SimulateError::Taken(node));
    }
    let jobs = schedule(settings)?;
    let labels: Vec<Label> = jobs.iter().map(|job| job.label.clone()).collect();
    let mut loader = archive.loader(Cluster::source(settings))?;
    loader.add_labels(&labels)?;
    let mut cluster = Cluster::new(settings, &jobs, model)?;
    for node in 0..cluster.n_nodes() {
        for second in 0..=n_seconds {
            let time = settings.start + Millis::from_seconds(second as i64);
            loader.push_node(cluster.node_second(node, time))?;
        }
        progress(node as u64 + 1, cluster.n_nodes() as u64);
    }
    Ok((loader.finish()?, labels))
}

/// How a stream is doing.
#[derive(Debug, Clone, Copy)]
pub struct Streamed {
    pub time: Timestamp,
    pub n_seconds: u64,
    /// How long the last second took to make and to write.
    pub took: Duration,
    /// How far behind the clock it is.
    pub late: Duration,
}

/// Streams a simulated cluster into an archive as time passes, `speed` times as fast, until told to
/// stop: one campaign of the test set after the other, each with its labels when it is complete.
pub fn stream(
    settings: &ClusterSettings,
    model: &Model,
    archive: &Archive,
    speed: f64,
    stop: &Stop,
    mut tell: impl FnMut(Streamed, &[NodeReading]),
) -> Result<(), SimulateError> {
    settings.check()?;
    let mut writer = archive.writer(Cluster::source(settings), WriterSettings::default())?;
    let mut begun: Option<Instant> = None;
    let mut n_seconds = 0;
    let mut settings = settings.numbered_after(&archive.labels()?);
    let mut before: Vec<NodeReading> = Vec::new();
    loop {
        settings.campaigns = vec![(format!("live-{}", settings.start.as_epoch_seconds()), Set::Test)];
        let jobs = schedule(&settings)?;
        let mut cluster = Cluster::new(&settings, &jobs, model)?;
        cluster.resume(&before);
        for second in 0..settings.seconds {
            let begun = *begun.get_or_insert_with(Instant::now);
            let due = begun + Duration::from_secs_f64(n_seconds as f64 / speed);
            if stop.wait(due.saturating_duration_since(Instant::now())) {
                return Ok(writer.close()?);
            }
            let (time, start) = (settings.start + Millis::from_seconds(second as i64), Instant::now());
            let readings = cluster.second(time);
            writer.append(readings)?;
            n_seconds += 1;
            let late = Instant::now().saturating_duration_since(due);
            tell(Streamed { time, n_seconds, took: start.elapsed(), late }, readings);
        }
        archive.add_labels(&jobs.iter().map(|job| job.label.clone()).collect::<Vec<_>>())?;
        before = cluster.readings().to_vec();
        settings.start = settings.start + Millis::from_seconds(settings.seconds as i64);
        settings.first_job += jobs.len() as u64;
    }
}
