//! Embeddings of windows in two dimensions: recent ones over those of the time that the model was trained with.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use archive::Archive;
use detect::{DetectError, Reading, Scope, Span, TrainedDetector, WindowBatch};
use learn::stats::squared_distance;
use learn::umap::{Umap, UmapSettings};
use learn::{Matrix, Pca, PcaError};
use lifecycle::Diagnosis;
use serde::Serialize;
use workload::{Control, JobId, Millis, NodeName, Timestamp};

/// Moments at which the windows of all threads are taken, of the training time and of the recent time each.
const N_MOMENTS: i64 = 12;
const MAX_POINTS: usize = 10_000;
/// The position of iowait among the rates.
const IOWAIT: usize = 2;
/// Known anomalies that distances are given to.
const MAX_KINDS: usize = 5;
/// The kind of windows whose job has no label.
const UNLABELLED: &str = "unlabelled";
const IDLE: &str = "idle";

#[derive(Debug, thiserror::Error)]
pub enum EmbeddingError {
    #[error("the archive has no windows of this time")]
    NoWindows,
    #[error(transparent)]
    Detect(#[from] DetectError),
    #[error(transparent)]
    Pca(#[from] PcaError),
}

/// How embeddings are projected. Both are fitted to the training windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Projection {
    Pca,
    Umap,
}

/// The kind of a job, and whether it is anomalous.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownKind {
    pub kind: String,
    pub is_anomalous: bool,
}

/// What is wanted.
pub struct EmbeddingQuery {
    pub projection: Projection,
    pub from: Timestamp,
    pub to: Timestamp,
    pub kinds: KnownKinds,
    pub seed: u64,
}

/// What windows are known to be.
#[derive(Debug, Default)]
pub struct KnownKinds {
    /// Jobs whose kind is known, by label or by verdict.
    pub jobs: BTreeMap<JobId, KnownKind>,
    /// Windows of jobs that diagnoses name.
    parts: BTreeMap<JobId, Vec<DiagnosedPart>>,
}

/// A window that a diagnosis is about.
#[derive(Debug)]
struct DiagnosedPart {
    node: NodeName,
    cpu: u16,
    start: Timestamp,
    /// Other windows of the thread are the same if they begin at most so much earlier or later.
    margin: Millis,
    known: KnownKind,
}

impl DiagnosedPart {
    fn contains(&self, point: &Point) -> bool {
        let distance = (point.time - self.start).0.abs();
        self.node == point.node && self.cpu == point.cpu && distance <= self.margin.0
    }
}

impl KnownKinds {
    pub fn new(jobs: BTreeMap<JobId, KnownKind>, diagnoses: &[Diagnosis]) -> Self {
        let mut parts: BTreeMap<JobId, Vec<DiagnosedPart>> = BTreeMap::new();
        for diagnosis in diagnoses {
            let known = KnownKind { kind: diagnosis.kind.clone(), is_anomalous: diagnosis.is_anomalous };
            for window in &diagnosis.windows {
                parts.entry(window.job.clone()).or_default().push(DiagnosedPart {
                    node: window.node.clone(),
                    cpu: window.cpu.0,
                    start: window.start,
                    margin: Millis(diagnosis.window_length.0 / 2),
                    known: known.clone(),
                });
            }
        }
        Self { jobs, parts }
    }

    /// The kind of a window, if it is known. A diagnosis is more precise than what is known about the whole job.
    pub fn of(&self, point: &Point) -> Option<&KnownKind> {
        let job = point.job.as_ref()?;
        let parts = self.parts.get(job).into_iter().flatten();
        let part = parts.rev().find(|part| part.contains(point));
        part.map(|part| &part.known).or_else(|| self.jobs.get(job))
    }

    fn anomalous(&self) -> BTreeSet<&str> {
        let parts = self.parts.values().flatten().map(|part| &part.known);
        let all = self.jobs.values().chain(parts);
        all.filter(|known| known.is_anomalous).map(|known| known.kind.as_str()).collect()
    }
}

/// Points in two dimensions, as columns of the same length. `node`, `job` and `kind` are positions in the lists of names.
#[derive(Debug, Default, Serialize)]
pub struct Embeddings {
    pub axes: [String; 2],
    /// The length of the windows.
    pub window_seconds: f64,
    pub x: Vec<f32>,
    pub y: Vec<f32>,
    pub time: Vec<Timestamp>,
    pub node: Vec<usize>,
    pub cpu: Vec<u16>,
    /// Null if no job owned the thread, or several.
    pub job: Vec<Option<usize>>,
    pub kind: Vec<usize>,
    pub score: Vec<f64>,
    pub max_iowait: Vec<f32>,
    /// Whether the window is of the time that the model was trained with.
    pub is_training: Vec<bool>,
    pub nodes: Vec<String>,
    pub jobs: Vec<String>,
    pub kinds: Vec<String>,
    /// For each known anomaly, the distance of every point to its centroid.
    pub distances: BTreeMap<String, Vec<f64>>,
}

/// One window.
pub struct Point {
    pub embedding: Vec<f32>,
    pub time: Timestamp,
    pub node: NodeName,
    pub cpu: u16,
    pub job: Option<JobId>,
    pub score: f64,
    pub max_iowait: f32,
    /// The mean rate of each channel.
    pub rates: Vec<f32>,
}

impl EmbeddingQuery {
    /// Reads and projects windows.
    pub fn run(
        &self,
        archive: &Archive,
        detector: &TrainedDetector,
        control: Control<'_>,
    ) -> Result<Embeddings, EmbeddingError> {
        let trained = detector.data.as_ref().and_then(|data| data.from.zip(data.to));
        let (from, to) = trained.unwrap_or((self.from, self.to));
        let training = points(archive, detector, from, to, control)?;
        let recent = points(archive, detector, self.from, self.to, control)?;
        if training.is_empty() || recent.is_empty() {
            return Err(EmbeddingError::NoWindows);
        }
        control.check().map_err(DetectError::from)?;
        let (fitted, others) = (matrix(&training), matrix(&recent));
        let (axes, places) = match self.projection {
            Projection::Pca => {
                let pca = Pca::fit(&fitted, 2)?;
                let axes = [0, 1].map(|axis| pca.axis_label(axis));
                (axes, [pca.transform(&fitted), pca.transform(&others)])
            }
            Projection::Umap => {
                let umap = Umap::fit(&fitted, &UmapSettings { seed: self.seed, ..UmapSettings::default() })?;
                let others = umap.transform(&others);
                (["UMAP 1".into(), "UMAP 2".into()], [umap.layout, others])
            }
        };
        let window_seconds = detector.window_seconds();
        let mut embeddings = Embeddings { axes, window_seconds, ..Embeddings::default() };
        embeddings.distances = self.distances(&training, &recent);
        let mut names = Names::default();
        for ((points, places), is_training) in
            [&training, &recent].into_iter().zip(&places).zip([true, false])
        {
            for (point, place) in points.iter().zip(places.rows()) {
                embeddings.push(point, place, is_training, self.kind(point), &mut names);
            }
        }
        (embeddings.nodes, embeddings.jobs, embeddings.kinds) =
            (names.nodes.into_list(), names.jobs.into_list(), names.kinds.into_list());
        Ok(embeddings)
    }

    fn kind(&self, point: &Point) -> &str {
        match (&point.job, self.kinds.of(point)) {
            (_, Some(known)) => &known.kind,
            (Some(_), None) => UNLABELLED,
            (None, None) => IDLE,
        }
    }

    /// The distance of all points to the centroid of each known anomaly.
    fn distances(&self, training: &[Point], recent: &[Point]) -> BTreeMap<String, Vec<f64>> {
        let all = || training.iter().chain(recent);
        let mut distances = BTreeMap::new();
        for kind in self.kinds.anomalous() {
            let members: Vec<&Point> = all().filter(|point| self.kind(point) == kind).collect();
            if members.is_empty() || distances.len() == MAX_KINDS {
                continue;
            }
            let mut centroid = vec![0.0_f32; members[0].embedding.len()];
            for point in &members {
                for (sum, value) in centroid.iter_mut().zip(&point.embedding) {
                    *sum += value / members.len() as f32;
                }
            }
            let distance = |point: &Point| squared_distance(&point.embedding, &centroid).sqrt();
            distances.insert(kind.to_owned(), all().map(distance).collect());
        }
        distances
    }
}

impl Embeddings {
    fn push(&mut self, point: &Point, place: &[f32], is_training: bool, kind: &str, names: &mut Names) {
        self.x.push(place[0]);
        self.y.push(place[1]);
        self.time.push(point.time);
        self.node.push(names.nodes.position(point.node.as_str()));
        self.cpu.push(point.cpu);
        self.job.push(point.job.as_ref().map(|job| names.jobs.position(job.as_str())));
        self.kind.push(names.kinds.position(kind));
        self.score.push(point.score);
        self.max_iowait.push(point.max_iowait);
        self.is_training.push(is_training);
    }
}

#[derive(Default)]
struct Names {
    nodes: Numbered,
    jobs: Numbered,
    kinds: Numbered,
}

/// Names in the order in which they were first seen.
#[derive(Default)]
struct Numbered(BTreeMap<String, usize>);

impl Numbered {
    fn position(&mut self, name: &str) -> usize {
        if let Some(position) = self.0.get(name) {
            return *position;
        }
        let position = self.0.len();
        self.0.insert(name.to_owned(), position);
        position
    }

    fn into_list(self) -> Vec<String> {
        let mut names: Vec<(usize, String)> =
            self.0.into_iter().map(|(name, position)| (position, name)).collect();
        names.sort_unstable();
        names.into_iter().map(|(_, name)| name).collect()
    }
}

fn matrix(points: &[Point]) -> Matrix {
    let n_columns = points[0].embedding.len();
    Matrix::new(points.iter().flat_map(|point| point.embedding.iter().copied()).collect(), n_columns)
}

/// The windows of all threads at some moments of a stretch of time, evenly thinned out if they are too many.
fn points(
    archive: &Archive,
    detector: &TrainedDetector,
    from: Timestamp,
    to: Timestamp,
    control: Control<'_>,
) -> Result<Vec<Point>, DetectError> {
    let mut thinned = Thinned::default();
    let moments = moments(detector, from, to, N_MOMENTS);
    for_each_point(archive, detector, moments, from, to, control, |point| thinned.add(point))?;
    Ok(thinned.kept)
}

/// At least half as many as the most points that are kept, if there were so many, at even distances.
struct Thinned {
    kept: Vec<Point>,
    n_seen: usize,
    every: usize,
}

impl Default for Thinned {
    fn default() -> Self {
        Self { kept: Vec::new(), n_seen: 0, every: 1 }
    }
}

impl Thinned {
    fn add(&mut self, point: Point) {
        if self.n_seen.is_multiple_of(self.every) {
            self.kept.push(point);
        }
        self.n_seen += 1;
        if self.kept.len() > MAX_POINTS / 2 {
            let mut is_even = false;
            self.kept.retain(|_| {
                is_even = !is_even;
                is_even
            });
            self.every *= 2;
        }
    }
}

/// Moments of a stretch of time, each long enough for a whole window.
pub fn moments(detector: &TrainedDetector, from: Timestamp, to: Timestamp, n_moments: i64) -> Vec<Span> {
    let length = detector.event_spec().length();
    // Windows start at multiples of their length, so a stretch of two lengths has a whole one.
    let between = ((to - from).0 / n_moments).max(2 * length.0);
    let starts = (0..n_moments).map(|moment| from + Millis(between * moment));
    starts
        .map(|start| Span::of_time(start, start + Millis(2 * length.0)))
        .filter(|span| span.from < to)
        .collect()
}

/// The windows within `included` that lie between two times.
pub fn for_each_point(
    archive: &Archive,
    detector: &TrainedDetector,
    included: Vec<Span>,
    from: Timestamp,
    to: Timestamp,
    control: Control<'_>,
    mut each: impl FnMut(Point),
) -> Result<(), DetectError> {
    let length = detector.event_spec().length();
    let spec = detector.window_spec(detector.config.window);
    let filter = Scope { included, excluded: Vec::new() }.filter();
    let reading = Reading { archive, filter: &filter, spec: &spec, control };
    reading.for_each_batch::<DetectError>(|batch| {
        if batch.start() >= from && batch.start() + length <= to {
            points_of(&batch, detector).into_iter().for_each(&mut each);
        }
        Ok(ControlFlow::Continue(()))
    })
}

fn points_of(batch: &WindowBatch, detector: &TrainedDetector) -> Vec<Point> {
    let n_channels = batch.n_channels();
    let point = |(thread, finding): (&detect::ThreadWindow, detect::Finding)| Point {
        score: detector.strength(&finding, None).unwrap_or(0.0),
        embedding: finding.embedding,
        time: batch.start(),
        node: thread.node.clone(),
        cpu: thread.cpu.0,
        job: thread.job().cloned(),
        max_iowait: thread.values.chunks_exact(n_channels).map(|step| step[IOWAIT]).fold(0.0, f32::max),
        rates: mean_rates(&thread.values, n_channels),
    };
    batch.threads().iter().zip(detector.examine(batch)).map(point).collect()
}

/// The mean of each channel over the steps of a window.
fn mean_rates(values: &[f32], n_channels: usize) -> Vec<f32> {
    let n_steps = (values.len() / n_channels.max(1)).max(1) as f32;
    let of = |channel: usize| values.iter().skip(channel).step_by(n_channels).sum::<f32>() / n_steps;
    (0..n_channels).map(of).collect()
}

#[cfg(test)]
mod tests {
    use lifecycle::DiagnosedWindow;
    use workload::Cpu;

    use super::*;

    fn point(cpu: u16, second: i64) -> Point {
        Point {
            embedding: Vec::new(),
            time: Timestamp::from_seconds(second),
            node: NodeName::new("n1").unwrap(),
            cpu,
            job: Some(JobId::new("a").unwrap()),
            score: 0.0,
            max_iowait: 0.0,
            rates: Vec::new(),
        }
    }

    #[test]
    fn many_points_are_thinned_out_evenly() {
        let mut thinned = Thinned::default();
        (0..100_000).for_each(|second| thinned.add(point(0, second)));
        let times: Vec<i64> = thinned.kept.iter().map(|point| point.time.0 / 1_000).collect();
        assert!((MAX_POINTS / 4..=MAX_POINTS / 2).contains(&times.len()), "{}", times.len());
        assert!(times.windows(2).all(|pair| pair[1] - pair[0] == thinned.every as i64));
    }

    #[test]
    fn a_diagnosis_is_about_the_selected_windows_only() {
        let window = |cpu: u16, second: i64| DiagnosedWindow {
            node: NodeName::new("n1").unwrap(),
            cpu: Cpu(cpu),
            job: JobId::new("a").unwrap(),
            start: Timestamp::from_seconds(second),
        };
        let diagnosis = Diagnosis {
            number: 1,
            kind: "slow-storage".into(),
            is_anomalous: true,
            comment: String::new(),
            actor: "ann".into(),
            time: Timestamp(0),
            window_length: Millis::from_seconds(60),
            windows: vec![window(0, 60), window(0, 600)],
        };
        let kinds = KnownKinds::new(BTreeMap::new(), &[diagnosis]);
        let is_known = |cpu: u16, second: i64| kinds.of(&point(cpu, second)).is_some();
        assert!(is_known(0, 60) && is_known(0, 90) && is_known(0, 600));
        assert!(!is_known(0, 300), "between two selected windows");
        assert!(!is_known(1, 60), "another thread");
    }
}
