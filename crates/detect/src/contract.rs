//! What every detector has to keep, on small data of known kinds.

use std::collections::BTreeMap;

use rand::{RngExt, SeedableRng};
use rand_distr::StandardNormal;
use rand_xoshiro::Xoshiro256PlusPlus;
use workload::{Cpu, JobId, Millis, NodeName, Timestamp};

use super::autoencoder::net::NetConfig;
use super::channel::Extra;
use super::{Data, DetectorConfig, Finding, Model, Moment, Sample, ThreadWindow, Trained};

const N_STEPS: usize = 40;

fn config() -> DetectorConfig {
    let net = NetConfig {
        widths: vec![8, 8],
        n_hidden: 16,
        n_latent: 4,
        n_graph_hidden: 8,
        ..NetConfig::default()
    };
    let mut config = DetectorConfig { window: N_STEPS, net, n_remembered: 200, ..DetectorConfig::default() };
    config.train.n_epochs = 8;
    config.train.batch = 64;
    config.train.rate = 3e-3;
    config
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
fn moment(start: i64, n_channels: usize, seed: u64) -> Moment {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ start as u64);
    let mut threads = Vec::new();
    for node in ["n1", "n2"] {
        for (job, is_busy, n_threads) in [("a", true, 3), ("b", false, 2)] {
            for cpu in 0..n_threads {
                threads.push(ThreadWindow {
                    node: NodeName::new(node).unwrap(),
                    cpu: Cpu(cpu + 10 * u16::from(is_busy)),
                    job: JobId::new(format!("{job}-{node}")).unwrap(),
                    values: values(&mut rng, is_busy, n_channels),
                });
            }
        }
    }
    Moment { start: Timestamp::from_seconds(start), n_channels, threads }
}

fn data(n_channels: usize) -> Data {
    let sample = |seed: u64, n_moments: i64| {
        let moments: Vec<Moment> = (0..n_moments).map(|at| moment(at * 40, n_channels, seed)).collect();
        let n_seen = moments.iter().map(|moment| moment.threads.len()).sum();
        Sample { moments, n_seen }
    };
    Data {
        train: sample(1, 60),
        validation: sample(2, 40),
        kinds: BTreeMap::new(),
        period: Millis::SECOND,
        address: "memory".into(),
    }
}

fn fit(model: Model, data: &Data, config: &DetectorConfig) -> Trained {
    Trained::fit(data, model, config, 7, None, |_| {}).unwrap()
}

/// The first thread waits for a disk as nothing in training did.
fn troubled(mut moment: Moment) -> Moment {
    for step in moment.threads[0].values.chunks_exact_mut(moment.n_channels) {
        step[..4].copy_from_slice(&[0.1, 0.05, 0.8, 0.05]);
    }
    moment
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
fn every_detector_finds_what_is_strange_and_says_by_how_much_and_where() {
    let data = data(4);
    for model in Model::ALL {
        let trained = fit(model, &data, &config());
        let fresh = moment(100_000, 4, 3);
        let (calm, strange) = (trained.examine(&fresh), trained.examine(&troubled(fresh.clone())));
        assert_eq!(calm.len(), fresh.threads.len());
        for finding in calm.iter().chain(&strange) {
            assert!(finding.score.is_finite() && finding.errors.iter().all(|error| error.is_finite()));
            assert_eq!((finding.errors.len(), finding.embedding.len()), (4, 4), "{}", model.name());
            assert_eq!(finding.expected.len(), 4 * N_STEPS);
        }
        assert!(strange[0].score > trained.thresholds.for_all.score, "{}", model.name());
        assert!(strange[0].score > 2.0 * calm[0].score, "{}", model.name());
        let share = strange[0].errors[2] / strange[0].errors.iter().sum::<f64>();
        assert!(share > 0.25, "{}: iowait makes {share} of the error", model.name());
        assert_eq!(calm[0].uncertainty.is_some(), model == Model::Vae);
    }
}

#[test]
fn one_seed_is_one_model_and_what_is_on_disk_is_that_model() {
    let data = data(4);
    let folder = tempfile::tempdir().unwrap();
    for model in Model::ALL {
        let trained = fit(model, &data, &config());
        assert_eq!(trained.to_artifact(), fit(model, &data, &config()).to_artifact(), "{}", model.name());
        let path = folder.path().join(model.name());
        trained.write(&path).unwrap();
        let again = Trained::read(&path).unwrap();
        assert_eq!((again.model, &again.thresholds), (model, &trained.thresholds));
        let fresh = troubled(moment(100_000, 4, 3));
        for (one, other) in trained.examine(&fresh).iter().zip(again.examine(&fresh)) {
            assert_close(one, &other);
        }
    }
}

#[test]
fn what_others_do_changes_only_what_a_detector_says_it_looks_at() {
    let data = data(4);
    let fresh = moment(100_000, 4, 3);
    // The last window of the other node, and the last of another job on the same node.
    for model in Model::ALL.into_iter().filter(|model| *model != Model::Hierarchy) {
        let trained = fit(model, &data, &config());
        let before = trained.examine(&fresh);
        for (changed, may_tell) in
            [(9, false), (4, model == Model::NodeGnn), (1, matches!(model, Model::NodeGnn | Model::JobGnn))]
        {
            let mut other = fresh.clone();
            other.threads[changed]
                .values
                .chunks_exact_mut(4)
                .for_each(|step| step.copy_from_slice(&[0.1, 0.1, 0.7, 0.1]));
            let after = trained.examine(&other);
            let is_same =
                before[0].expected.iter().zip(&after[0].expected).all(|(a, b)| (a - b).abs() < 1e-6);
            assert_eq!(is_same, !may_tell, "{}: window {changed}", model.name());
        }
        // Graphs of any size in one moment, and alone.
        let alone = Moment { threads: fresh.threads[9..].to_vec(), ..fresh.clone() };
        let found = trained.examine(&alone);
        if !matches!(model, Model::NodeGnn | Model::JobGnn) {
            assert_close(&found[0], &before[9]);
        }
    }
}

#[test]
fn more_channels_work_too() {
    let data = data(6);
    let channels = vec![Extra::Memory, Extra::IoPressure];
    for model in Model::ALL {
        let trained = fit(model, &data, &DetectorConfig { channels: channels.clone(), ..config() });
        let mut fresh = moment(100_000, 6, 3);
        let calm = trained.examine(&fresh);
        fresh.threads[0].values.chunks_exact_mut(6).for_each(|step| step[5] = 0.9);
        let strange = trained.examine(&fresh);
        assert_eq!(strange[0].errors.len(), 6);
        assert!(strange[0].score > 2.0 * calm[0].score, "{}: pressure counts as well", model.name());
    }
}

#[test]
fn training_that_was_interrupted_goes_on_as_if_it_had_not_been() {
    let data = data(4);
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = folder.path().join("checkpoint");
    let whole = fit(Model::Ae, &data, &config());
    // A panic in the middle of an epoch's report is as good as a power cut.
    let interrupted = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _ = Trained::fit(&data, Model::Ae, &config(), 7, Some(&checkpoint), |step| {
            if let super::Progress::Epoch(epoch) = step {
                assert!(epoch.epoch < 4, "stopped here");
            }
        });
    }));
    assert!(interrupted.is_err());
    let mut resumed = None;
    let rest = Trained::fit(&data, Model::Ae, &config(), 7, Some(&checkpoint), |step| {
        if let super::Progress::Resumed { epoch } = step {
            resumed = Some(epoch);
        }
    });
    assert_eq!(resumed, Some(3));
    assert_eq!(rest.unwrap().to_artifact(), whole.to_artifact());
}
