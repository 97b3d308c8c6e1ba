//! What threads of a node did over a time, what was expected of them, and how far they deviated.

use std::collections::BTreeMap;

use archive::{Archive, Replay, Selection};
use detect::{DetectError, DetectorConfig, TrainedDetector, WindowBatch, WindowBuffer, WindowFilter};
use workload::{Cpu, JobId, Millis, NodeName, Timestamp};

/// The most moments of all threads that are read at once.
const MAX_MOMENTS: usize = 4_000_000;

/// What is asked for.
#[derive(Debug, Clone)]
pub struct TraceQuery {
    pub node: NodeName,
    pub from: Timestamp,
    pub to: Timestamp,
    /// Only this thread.
    pub cpu: Option<Cpu>,
    /// The most moments of a thread. Of several that share one, the one with the largest error is shown.
    pub max_points: usize,
}

/// One moment of a thread.
#[derive(Debug, Clone, PartialEq)]
pub struct Moment {
    pub time: Timestamp,
    pub job: Option<JobId>,
    /// The rate of each channel.
    pub observed: Vec<f32>,
    /// As a model reconstructs it; empty without a model.
    pub expected: Vec<f32>,
    /// The mean squared difference of both.
    pub error: f32,
    /// The score of the window that ends last with this moment.
    pub score: f32,
}

/// The traces of a node.
#[derive(Debug)]
pub struct NodeTraces {
    pub channels: Vec<&'static str>,
    pub window: Millis,
    pub has_model: bool,
    pub threads: BTreeMap<Cpu, Vec<Moment>>,
}

/// Why there are no traces.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    #[error(
        "there are more than {MAX_MOMENTS} moments of threads: ask for less time, or for one thread with `cpu`"
    )]
    TooMuch,
    #[error(transparent)]
    Archive(#[from] archive::Error),
    #[error(transparent)]
    Detect(#[from] DetectError),
}

/// Reads and examines the windows of a node. A thread that changed its owner within a window is missing there.
pub fn traces(
    archive: &Archive,
    detector: Option<&TrainedDetector>,
    query: &TraceQuery,
) -> Result<NodeTraces, TraceError> {
    let mut spec = match detector {
        Some(detector) => detector.event_spec(),
        None => {
            let config = DetectorConfig::default().validate().map_err(DetectError::from)?;
            config.event_spec(Millis::SECOND)
        }
    };
    spec.stride = (spec.n_steps / 2).max(1);
    let length = spec.length();
    // Windows that begin before the first moment or end after the last one contain them, too.
    let selection = Selection {
        node: Some(query.node.clone()),
        from: query.from - length,
        to: query.to + length,
        ..Selection::default()
    };
    let snapshot = archive.snapshot(selection)?;
    let mut found = NodeTraces {
        channels: detect::channel::names(&spec.job_channels),
        window: length,
        has_model: detector.is_some(),
        threads: BTreeMap::new(),
    };
    let mut moments: BTreeMap<Cpu, BTreeMap<Timestamp, Moment>> = BTreeMap::new();
    let mut buffer = WindowBuffer::new(spec.clone(), WindowFilter::All);
    for replayed in Replay::new(&snapshot, None)? {
        let replayed = replayed?;
        for batch in buffer.push(&replayed.reading, replayed.scale) {
            take(&batch, detector, query, spec.period, &mut moments);
            if moments.values().map(BTreeMap::len).sum::<usize>() > MAX_MOMENTS {
                return Err(TraceError::TooMuch);
            }
        }
    }
    for (cpu, moments) in moments {
        found.threads.insert(cpu, reduced(moments.into_values().collect(), query.max_points));
    }
    Ok(found)
}

/// Adds the moments of a batch; those of later windows replace those of earlier ones.
fn take(
    batch: &WindowBatch,
    detector: Option<&TrainedDetector>,
    query: &TraceQuery,
    period: Millis,
    moments: &mut BTreeMap<Cpu, BTreeMap<Timestamp, Moment>>,
) {
    let findings = detector.map(|detector| detector.examine(batch));
    let n_channels = batch.n_channels();
    for (index, thread) in batch.threads().iter().enumerate() {
        if query.cpu.is_some_and(|cpu| cpu != thread.cpu) {
            continue;
        }
        let finding = findings.as_ref().map(|findings| &findings[index]);
        let score = detector.zip(finding).and_then(|(detector, finding)| detector.strength(finding, None));
        for (step, observed) in thread.values.chunks_exact(n_channels).enumerate() {
            let time = batch.start() + Millis(period.0 * step as i64);
            if !(query.from..query.to).contains(&time) {
                continue;
            }
            let expected =
                finding.map_or(&[][..], |finding| &finding.expected[step * n_channels..][..n_channels]);
            let squared: f32 = observed.iter().zip(expected).map(|(one, other)| (one - other).powi(2)).sum();
            let moment = Moment {
                time,
                job: thread.job().cloned(),
                observed: observed.to_vec(),
                expected: expected.to_vec(),
                error: squared / n_channels as f32,
                score: score.unwrap_or(0.0) as f32,
            };
            moments.entry(thread.cpu).or_default().insert(time, moment);
        }
    }
}

/// At most so many moments: of each stretch, the one with the largest error.
fn reduced(moments: Vec<Moment>, max_points: usize) -> Vec<Moment> {
    let n_each = moments.len().div_ceil(max_points.max(1)).max(1);
    let largest = |stretch: &[Moment]| {
        let score = stretch.iter().map(|moment| moment.score).fold(0.0, f32::max);
        let worst = stretch.iter().max_by(|a, b| a.error.total_cmp(&b.error)).cloned();
        worst.map(|worst| Moment { score, ..worst })
    };
    moments.chunks(n_each).filter_map(largest).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_moment_of_a_stretch_is_kept() {
        let moment = |second: i64| Moment {
            time: Timestamp::from_seconds(second),
            job: None,
            observed: vec![0.0; 4],
            expected: vec![0.0; 4],
            error: if second == 37 { 1.0 } else { 0.1 },
            score: if second == 36 { 3.0 } else { 0.5 },
        };
        let kept = reduced((0..100).map(moment).collect(), 10);
        assert_eq!(kept.len(), 10);
        assert_eq!((kept[3].time, kept[3].score), (Timestamp::from_seconds(37), 3.0));
        assert_eq!(reduced((0..5).map(moment).collect(), 10).len(), 5);
        assert!(reduced(Vec::new(), 10).is_empty());
    }
}
