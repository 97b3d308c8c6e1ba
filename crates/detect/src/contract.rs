//! The contract of every detector, on small data of known kinds.

mod events;

use std::path::Path;

use learn::artifact::Provenance;
use rand::{RngExt, SeedableRng};
use rand_distr::StandardNormal;
use rand_xoshiro::Xoshiro256PlusPlus;
use workload::{Control, Cpu, JobId, Millis, NodeName, Owner, Stop, Timestamp};

use crate::autoencoder::net::NetConfig;
use crate::channel::JobChannel;
use crate::config::{DetectorConfig, ValidConfig};
use crate::data::{HeldOut, KnownJobs, TrainingData};
use crate::detector::{DetectorKind, Finding, Level};
use crate::error::DetectError;
use crate::event::{Event, EventChange, EventSubject};
use crate::evidence::Evidence;
use crate::library::Library;
use crate::monitor::Monitor;
use crate::sample::Sample;
use crate::trained::TrainedDetector;
use crate::training::{Start, Training, TrainingStep};
use crate::usage::{JobUsage, MemoryUse};
use crate::window::{ThreadWindow, WindowBatch};

const N_STEPS: usize = 40;

fn unchecked_config() -> DetectorConfig {
    let net = NetConfig {
        widths: vec![8, 8],
        n_hidden: 16,
        n_latent: 4,
        n_graph_hidden: 8,
        ..NetConfig::default()
    };
    let mut config = DetectorConfig { window: N_STEPS, net, n_neighbours: 200, ..DetectorConfig::default() };
    config.train.n_epochs = 8;
    config.train.batch_size = 64;
    config.train.learning_rate = 3e-3;
    config
}

fn config() -> ValidConfig {
    unchecked_config().validate().unwrap()
}

/// A busy thread, or an idle one, with noise; further channels are constant.
fn values(rng: &mut Xoshiro256PlusPlus, is_busy: bool, n_channels: usize) -> Vec<f32> {
    let mut window = Vec::new();
    for _ in 0..N_STEPS {
        let noise: f32 = rng.sample(StandardNormal);
        let system = (0.05 + 0.01 * noise).clamp(0.0, 0.2);
        let user = if is_busy { 0.9 } else { 0.02 };
        window.extend([user, system, 0.0, 1.0 - user - system]);
        window.extend(std::iter::repeat_n(0.3, n_channels - 4));
    }
    window
}

/// Two nodes with two jobs each; a job is busy or idle.
fn batch(start: i64, n_channels: usize, seed: u64) -> WindowBatch {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ start as u64);
    let mut threads = Vec::new();
    for node in ["n1", "n2"] {
        for (job, is_busy, n_threads) in [("a", true, 3), ("b", false, 2)] {
            for cpu in 0..n_threads {
                threads.push(ThreadWindow {
                    node: NodeName::new(node).unwrap(),
                    cpu: Cpu(cpu + 10 * u16::from(is_busy)),
                    owner: Owner::Job(JobId::new(format!("{job}-{node}")).unwrap()),
                    values: values(&mut rng, is_busy, n_channels),
                });
            }
        }
    }
    WindowBatch::new(Timestamp::from_seconds(start), n_channels, threads)
}

fn data(n_channels: usize) -> TrainingData {
    let sample = |seed: u64, n_batches: i64| {
        let batches: Vec<WindowBatch> = (0..n_batches).map(|at| batch(at * 40, n_channels, seed)).collect();
        let n_available = batches.iter().map(|batch| batch.threads().len()).sum();
        Sample { batches, n_available }
    };
    TrainingData {
        train: sample(1, 60),
        validation: sample(2, 40),
        known: KnownJobs::default(),
        period: Millis::SECOND,
        address: "memory".into(),
    }
}

fn training(kind: DetectorKind, config: &ValidConfig) -> Training<'_> {
    Training { kind, config, seed: 7, checkpoint: None, start: Start::Random, control: Control::default() }
}

/// Validation batches at the stride of events.
fn held_out(data: &TrainingData) -> Vec<WindowBatch> {
    let n_channels = data.train.batches[0].n_channels();
    // Six at the stride of events in each of thirty hours.
    (0..180).map(|at| batch(at / 6 * 3_600 + at % 6 * 4, n_channels, 2)).collect()
}

fn fit(kind: DetectorKind, data: &TrainingData, config: &ValidConfig) -> TrainedDetector {
    training(kind, config).fit(data, &HeldOut::Batches(&held_out(data)), |_| {}).unwrap()
}

/// Sets the rates of one window at every step.
fn with_rates(mut batch: WindowBatch, window: usize, rates: [f32; 4]) -> WindowBatch {
    let n_channels = batch.n_channels();
    for values in batch.values_mut(window..window + 1) {
        for step in values.chunks_exact_mut(n_channels) {
            step[..4].copy_from_slice(&rates);
        }
    }
    batch
}

/// The first thread waits for a disk as nothing in the training data did.
fn faulty(batch: WindowBatch) -> WindowBatch {
    with_rates(batch, 0, [0.1, 0.05, 0.8, 0.05])
}

fn assert_close(one: &Finding, other: &Finding) {
    assert!(
        (one.score - other.score).abs() <= 1e-4 * one.score.abs().max(1.0),
        "{} {}",
        one.score,
        other.score
    );
    let pairs = one.expected.iter().zip(&other.expected);
    assert!(pairs.clone().all(|(a, b)| (a - b).abs() < 1e-4));
    assert!(one.embedding.iter().zip(&other.embedding).all(|(a, b)| (a - b).abs() < 1e-3));
}

#[test]
fn every_detector_finds_an_anomaly_and_its_channel() {
    let data = data(4);
    for kind in DetectorKind::ALL {
        let trained = fit(kind, &data, &config());
        let fresh = batch(100_000, 4, 3);
        let (normal, anomalous) = (trained.examine(&fresh), trained.examine(&faulty(fresh.clone())));
        assert_eq!(normal.len(), fresh.threads().len());
        for finding in normal.iter().chain(&anomalous) {
            assert!(finding.score.is_finite() && finding.errors.iter().all(|error| error.is_finite()));
            assert_eq!((finding.errors.len(), finding.embedding.len()), (4, 4), "{}", kind.name());
            assert_eq!(finding.expected.len(), 4 * N_STEPS);
        }
        let calibration = trained.calibration.as_ref().unwrap();
        assert!(calibration.strength(&anomalous[0], None) > 1.0, "{}", kind.name());
        assert!(normal.iter().all(|one| calibration.strength(one, None) < 1.0), "{}", kind.name());
        assert!(anomalous[0].score > 2.0 * normal[0].score, "{}", kind.name());
        // The window is reconstructed as a busy or an idle one; either way no other channel has a larger error.
        let errors = &anomalous[0].errors;
        let fraction = errors[2] / errors.iter().sum::<f64>();
        assert!(
            fraction > 0.4 && errors.iter().all(|error| *error <= errors[2]),
            "{}: {errors:?}",
            kind.name()
        );
        assert_eq!(normal[0].uncertainty.is_some(), kind == DetectorKind::Vae);
        assert_eq!(normal[0].level.is_some(), kind == DetectorKind::Hierarchy);
    }
}

#[test]
fn an_explanation_comes_from_the_level_that_determined_the_score() {
    let data = data(4);
    for kind in DetectorKind::ALL {
        let trained = fit(kind, &data, &config());
        let batch = faulty(batch(100_000, 4, 3));
        let findings = trained.examine(&batch);
        let explanations = trained.explain(&batch, &findings, &[0, 9]);
        assert_eq!(explanations.len(), 2);
        for (window, explanation) in [0, 9].into_iter().zip(&explanations) {
            assert_eq!(explanation.level, findings[window].level, "{}", kind.name());
            let is_reconstruction = explanation.level.is_none_or(|level| level == Level::Reconstruction);
            assert_eq!(explanation.features.is_empty(), is_reconstruction, "{}", kind.name());
            assert_eq!(explanation.channels.is_empty(), !is_reconstruction, "{}", kind.name());
            assert!(explanation.from < explanation.to);
        }
        assert!(explanations[0].text.contains("iowait"), "{}: {}", kind.name(), explanations[0].text);
        for deviation in explanations.iter().flat_map(|explanation| &explanation.features) {
            let difference = deviation.observed - deviation.expected;
            assert!(difference * deviation.z >= 0.0, "{}: {deviation:?}", kind.name());
        }
    }
}

#[test]
fn one_seed_is_one_model_and_the_stored_model_is_the_same() {
    let data = data(4);
    let folder = tempfile::tempdir().unwrap();
    for kind in DetectorKind::ALL {
        let trained = fit(kind, &data, &config());
        assert_eq!(
            trained.to_artifact(&Provenance::default()).unwrap(),
            fit(kind, &data, &config()).to_artifact(&Provenance::default()).unwrap(),
            "{}",
            kind.name()
        );
        let path = folder.path().join(kind.name());
        trained.write(&path, &Provenance::default()).unwrap();
        let again = TrainedDetector::read(&path).unwrap();
        assert_eq!((again.kind, &again.calibration), (kind, &trained.calibration));
        let fresh = faulty(batch(100_000, 4, 3));
        for (one, other) in trained.examine(&fresh).iter().zip(again.examine(&fresh)) {
            assert_close(one, &other);
        }
    }
}

#[test]
fn an_ensemble_says_where_its_members_differ_and_is_stored_with_all_of_them() {
    let data = data(4);
    let config = DetectorConfig { members: 3, ..unchecked_config() }.validate().unwrap();
    let folder = tempfile::tempdir().unwrap();
    for kind in [DetectorKind::Ae, DetectorKind::Vae, DetectorKind::Hierarchy] {
        let trained = fit(kind, &data, &config);
        let path = folder.path().join(kind.name());
        trained.write(&path, &Provenance::default()).unwrap();
        let again = TrainedDetector::read(&path).unwrap();
        let fresh = faulty(batch(100_000, 4, 3));
        let findings = trained.examine(&fresh);
        for (one, other) in findings.iter().zip(again.examine(&fresh)) {
            assert_close(one, &other);
        }
        let spread = |window: usize| findings[window].uncertainty.unwrap().reconstruction;
        assert!(spread(0) > 2.0 * spread(1), "{}: {} {}", kind.name(), spread(0), spread(1));
    }
    assert_eq!(fit(DetectorKind::Pca, &data, &config).examine(&batch(1, 4, 3))[0].uncertainty, None);
}

#[test]
fn training_in_a_pool_of_its_own_gives_the_same_model() {
    let data = data(4);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    let alone = pool.install(|| fit(DetectorKind::Hierarchy, &data, &config()));
    assert_eq!(
        alone.to_artifact(&Provenance::default()).unwrap(),
        fit(DetectorKind::Hierarchy, &data, &config()).to_artifact(&Provenance::default()).unwrap()
    );
}

#[test]
fn other_windows_affect_only_detectors_that_look_at_them() {
    let data = data(4);
    let fresh = batch(100_000, 4, 3);
    // A window of the other node, one of another job on the same node, one of the same job.
    let others = [9, 4, 1];
    for kind in DetectorKind::ALL {
        let trained = fit(kind, &data, &config());
        let before = trained.examine(&fresh);
        let may_differ = match kind {
            DetectorKind::NodeGnn => [false, true, true],
            DetectorKind::JobGnn => [false, false, true],
            _ => [false; 3],
        };
        for (other, may_differ) in others.into_iter().zip(may_differ) {
            let after = trained.examine(&with_rates(fresh.clone(), other, [0.1, 0.1, 0.7, 0.1]));
            let is_same =
                before[0].expected.iter().zip(&after[0].expected).all(|(a, b)| (a - b).abs() < 1e-6);
            assert_eq!(is_same, !may_differ, "{}: window {other}", kind.name());
            // The hierarchy compares threads with their job; four jobs are too few for the node and cluster levels.
            let may_score_differ = may_differ || (kind == DetectorKind::Hierarchy && other == 1);
            if !may_score_differ {
                assert_close(&before[0], &after[0]);
            }
        }
        // A batch of any size can be examined.
        assert!(trained.examine(&fresh.filtered(|_| false)).is_empty());
        let alone = fresh.filtered(|thread| thread == &fresh.threads()[9]);
        let found = trained.examine(&alone);
        if !matches!(kind, DetectorKind::NodeGnn | DetectorKind::JobGnn | DetectorKind::Hierarchy) {
            assert_close(&found[0], &before[9]);
        }
    }
}

#[test]
fn more_channels_work_too() {
    let data = data(6);
    let channels = vec![JobChannel::Memory, JobChannel::IoPressure];
    let config = DetectorConfig { channels, ..unchecked_config() }.validate().unwrap();
    for kind in DetectorKind::ALL {
        let trained = fit(kind, &data, &config);
        let mut fresh = batch(100_000, 6, 3);
        let normal = trained.examine(&fresh);
        for values in fresh.values_mut(0..1) {
            for step in values.chunks_exact_mut(6) {
                step[5] = 0.9;
            }
        }
        let anomalous = trained.examine(&fresh);
        assert_eq!(anomalous[0].errors.len(), 6);
        assert!(anomalous[0].score > 2.0 * normal[0].score, "{}: pressure counts as well", kind.name());
    }
}

#[test]
fn interrupted_training_continues_as_if_it_had_not_been() {
    let data = data(4);
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = folder.path().join("checkpoint");
    let whole = fit(DetectorKind::Ae, &data, &config());
    let config = config();
    let training = Training { checkpoint: Some(&checkpoint), ..training(DetectorKind::Ae, &config) };
    // A panic in the middle of the report of an epoch stands for a power loss.
    let interrupted = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _ = training.fit(&data, &HeldOut::Batches(&held_out(&data)), |step| {
            if let TrainingStep::Epoch(epoch) = step {
                assert!(epoch.epoch < 4, "stopped here");
            }
        });
    }));
    assert!(interrupted.is_err());
    let mut resumed = None;
    let rest = training.fit(&data, &HeldOut::Batches(&held_out(&data)), |step| {
        if let TrainingStep::Resumed { epoch } = step {
            resumed = Some(epoch);
        }
    });
    assert_eq!(resumed, Some(3));
    assert_eq!(
        rest.unwrap().to_artifact(&Provenance::default()).unwrap(),
        whole.to_artifact(&Provenance::default()).unwrap()
    );
}

#[test]
fn training_stops_on_request() {
    let (data, config, stop) = (data(4), config(), Stop::default());
    let training =
        Training { control: Control::new(&stop, &|_, _| {}), ..training(DetectorKind::Hierarchy, &config) };
    let mut n_epochs = 0;
    let stopped = training.fit(&data, &HeldOut::Batches(&held_out(&data)), |_| {
        n_epochs += 1;
        stop.now();
    });
    assert!(matches!(stopped, Err(DetectError::Stopped(_))));
    assert_eq!(n_epochs, 1);
}

#[test]
fn no_value_in_a_stored_detector_makes_it_panic_hang_or_fill_memory() {
    let store = |kind: &str, dir: &Path| {
        let trained = fit(kind.parse().unwrap(), &data(4), &config());
        trained.write(dir, &Provenance::default()).unwrap();
    };
    let use_model = |dir: &Path| {
        let trained = TrainedDetector::read(dir).map_err(|error| error.to_string())?;
        // A detector for other windows does not get these.
        if trained.window_spec(1).n_steps == N_STEPS && trained.channels().len() == 4 {
            let batch = faulty(batch(100_000, 4, 3));
            let findings = trained.examine(&batch);
            trained.explain(&batch, &findings, &[0, 9]);
            let known = KnownJobs::default();
            if let Ok(mut monitor) = Monitor::new(&trained, &known, Library::default()) {
                monitor.observe(&batch);
            }
        }
        Ok(())
    };
    let kinds = DetectorKind::ALL.map(DetectorKind::name);
    let test = "contract::no_value_in_a_stored_detector_makes_it_panic_hang_or_fill_memory";
    testbed::hostile_model::assert_harmless(test, &kinds, store, use_model);
}
