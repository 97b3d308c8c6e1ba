//! The contract of every generator.

use std::num::NonZeroUsize;
use std::path::Path;
use std::time::{Duration, Instant};

use jobs::fidelity::{CompareConfig, Fidelity, compare};
use jobs::generators::{
    Condition, GeneratorKind, LoadFactor, SampleExtent, SampleRequest, TimeSpan, TrainedGenerator,
    TrainingConfig,
};
use jobs::{Error, FeatureTable, Preset, Role, Table, Trace, sink};
use learn::artifact::Provenance;
use workload::{Stop, Stopped};

use crate::made::{HEADER, csv, trace, trace_of};

const CONFIG: TrainingConfig = TrainingConfig { n_epochs: NonZeroUsize::new(2), seed: 3 };

pub fn trained(trace: &Trace, kind: GeneratorKind) -> TrainedGenerator {
    TrainedGenerator::fit(trace, kind, CONFIG, &Stop::default(), |_| {}).unwrap()
}

pub fn request(n_jobs: usize, seed: u64) -> SampleRequest {
    let extent = SampleExtent::Jobs(NonZeroUsize::new(n_jobs).unwrap());
    SampleRequest { extent, seed, ..SampleRequest::default() }
}

pub fn sampled(trained: &TrainedGenerator, request: &SampleRequest) -> Table {
    trained.sample(request, &Stop::default()).unwrap()
}

fn numbers<'a>(table: &'a Table, name: &str) -> &'a [f64] {
    table.column(name).unwrap().as_numbers().unwrap()
}

#[test]
fn synthetic_traces_have_the_columns_of_the_training_trace_and_obey_its_constraints() {
    for kind in GeneratorKind::ALL {
        let trace = trace(400);
        let trained = trained(&trace, kind);
        let table = sampled(&trained, &request(150, 1));
        let names = |table: &Table| -> Vec<String> {
            table.columns.iter().map(|column| column.name.clone()).collect()
        };
        assert_eq!(names(&table), names(trace.table()), "{kind}");
        assert_eq!(table.n_rows(), 150);
        for name in ["u_id", "cpu_num", "node_num", "interval", "wall_time"] {
            let is_whole = numbers(&table, name).iter().all(|value| value.fract() == 0.0 && *value >= 0.0);
            assert!(is_whole, "{kind} samples a fraction of {name}");
        }
        let (cores, nodes) = (numbers(&table, "cpu_num"), numbers(&table, "node_num"));
        let mut sizes = cores.iter().zip(nodes);
        let odd = sizes.find(|(cores, nodes)| *cores % *nodes != 0.0);
        assert_eq!(odd, None, "{kind}");
        assert!(numbers(&table, "run_time").iter().all(|value| value.is_finite() && *value >= 0.0));
        let status = table.column("new_status").unwrap();
        assert!((0..150).all(|row| ["Pass", "Killed"].contains(&status.cell(row).as_str())));
    }
}

#[test]
fn a_seed_determines_the_trace_also_after_storing_the_model() {
    for kind in GeneratorKind::ALL {
        let trained = trained(&trace(300), kind);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model");
        trained.write(&path, &Provenance::default()).unwrap();
        let loaded = TrainedGenerator::read(&path).unwrap();
        assert_eq!(loaded.origin(), trained.origin());
        let table = sampled(&trained, &request(80, 5));
        assert!(table == sampled(&loaded, &request(80, 5)), "{kind}");
        assert!(table != sampled(&trained, &request(80, 6)), "{kind}");
        let again = self::trained(&trace(300), kind);
        // Noise that could be reproduced could be subtracted.
        let is_reproducible = kind != GeneratorKind::Private;
        assert_eq!(table == sampled(&again, &request(80, 5)), is_reproducible, "{kind}: training");
    }
}

#[test]
fn unusual_traces_can_be_trained_on() {
    let with = |change: &dyn Fn(usize, Vec<String>) -> Vec<String>| {
        let lines = csv(120, 2);
        let rows = lines
            .lines()
            .skip(1)
            .enumerate()
            .map(|(row, line)| change(row, line.split(',').map(str::to_owned).collect()).join(","));
        format!("{HEADER}\n{}\n", rows.collect::<Vec<_>>().join("\n"))
    };
    let set = |at: usize, cell: String| {
        move |mut cells: Vec<String>| {
            cells[at].clone_from(&cell);
            cells
        }
    };
    let cases: [(&str, String); 5] = [
        ("one user", with(&|_, cells| set(1, "7".into())(cells))),
        ("a constant run time", with(&|_, cells| set(6, "60".into())(cells))),
        (
            "missing wall times",
            with(&|row, cells| if row % 3 == 0 { set(7, String::new())(cells) } else { cells }),
        ),
        (
            "a very long job",
            with(&|row, cells| if row == 5 { set(6, "1000000000".into())(cells) } else { cells }),
        ),
        ("every job its own user", with(&|row, cells| set(1, format!("u{row}"))(cells))),
    ];
    for (what, text) in cases {
        for kind in GeneratorKind::ALL {
            let trace = trace_of(&text, Preset::Dirlab).unwrap();
            let table = sampled(&trained(&trace, kind), &request(60, 1));
            let is_missing = what.starts_with("missing");
            for column in table.columns.iter().filter(|column| !(is_missing && column.name == "wall_time")) {
                let is_known =
                    column.as_numbers().is_none_or(|values| values.iter().all(|value| value.is_finite()));
                assert!(is_known, "{kind}: {what}: {} has unknown values", column.name);
            }
        }
    }
}

fn condition(column: &str, value: &str) -> Condition {
    Condition { column: column.into(), value: value.into() }
}

#[test]
fn conditions_loads_and_spans_are_met() {
    let trained = trained(&trace(600), GeneratorKind::Sessions);
    let conditions = vec![condition("user", "3"), condition("nodes", "128")];
    let table = sampled(&trained, &SampleRequest { conditions, ..request(20, 1) });
    assert!(numbers(&table, "user").iter().all(|user| *user == 3.0));
    assert!(numbers(&table, "node_num").iter().all(|nodes| *nodes == 128.0));
    let rejected = |column: &str, value: &str| {
        let conditions = vec![condition(column, value)];
        let request = SampleRequest { conditions, ..request(20, 1) };
        trained.sample(&request, &Stop::default()).unwrap_err().to_string()
    };
    assert!(
        rejected("colour", "red").starts_with("there is no column colour; the columns are interval, user")
    );
    assert_eq!(rejected("user", "99"), "user is never 99 in the training trace");
    assert_eq!(rejected("gpu_num", "4"), "gpu_num is always 0 in the training trace");
    assert_eq!(rejected("nodes", "many"), "nodes=many: many is not a number");
    assert!(rejected("nodes", "3").contains("meet the condition"));
    let length = |table: &Table| numbers(table, "interval").iter().sum::<f64>();
    let once = sampled(&trained, &request(300, 2));
    let load = LoadFactor::new(2.0).unwrap();
    let twice = sampled(&trained, &SampleRequest { load, ..request(300, 2) });
    assert!((length(&once) / length(&twice) - 2.0).abs() < 0.1);
    let extent = SampleExtent::Span(TimeSpan::new(1e9, 1e9 + 86_400.0).unwrap());
    let span = sampled(&trained, &SampleRequest { extent, ..request(1, 1) });
    assert!(span.n_rows() > 20 && numbers(&span, "interval")[1..].iter().sum::<f64>() < 86_400.0);
}

#[test]
fn sessions_keep_the_sequence_that_independent_rows_lose() {
    let real = trace(3_000);
    let features = real.features().unwrap();
    let fidelity = |kind| {
        let synthetic = trained(&real, kind).sample_features(3_000, 1, &Stop::default()).unwrap();
        compare(&features, &synthetic, CompareConfig::default(), &Stop::default()).unwrap()
    };
    let (sessions, copula) = (fidelity(GeneratorKind::Sessions), fidelity(GeneratorKind::GaussianCopula));
    assert!(sessions.similarity.column_score > 0.95 && copula.similarity.column_score > 0.95);
    let lag_1 = |one: &Fidelity| one.similarity.sequence.autocorrelation[0].figure.difference();
    assert!(lag_1(&sessions) < 0.05 && lag_1(&copula) > 0.08, "{} {}", lag_1(&sessions), lag_1(&copula));
    let windows = |one: &Fidelity| one.similarity.classifier.window_auc.unwrap();
    assert!(
        windows(&sessions) < 0.8 && windows(&copula) > 0.9,
        "{} {}",
        windows(&sessions),
        windows(&copula)
    );
}

#[test]
fn a_sequence_copulagan_has_the_autocorrelation_of_the_trace() {
    let real = trace(3_000);
    let features = real.features().unwrap();
    let synthetic =
        trained(&real, GeneratorKind::SequenceCopulagan).sample_features(3_000, 1, &Stop::default()).unwrap();
    let found = compare(&features, &synthetic, CompareConfig::default(), &Stop::default()).unwrap();
    let lag_1 = found.similarity.sequence.autocorrelation[0].figure;
    assert!(lag_1.difference() < 0.1, "{lag_1:?}");
    let interval = found.similarity.columns.iter().find(|column| column.name == "interval").unwrap();
    assert!(interval.figures.score() > 0.95, "{}", interval.figures.score());
}

#[test]
fn a_private_model_contains_no_names_ranges_or_checksum_of_the_trace() {
    let text = csv(10_000, 1).replace(",7,0,", ",secret-user,0,");
    let real = trace_of(&text, Preset::Dirlab).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model");
    let provenance = Provenance {
        data: Some(learn::artifact::DataOrigin {
            address: "trace.csv".into(),
            from: None,
            to: None,
            sha256: Some("12".repeat(32)),
        }),
        ..Provenance::default()
    };
    let trained = trained(&real, GeneratorKind::Private);
    trained.write(&path, &provenance).unwrap();
    let manifest = std::fs::read_to_string(path.join("manifest.json")).unwrap();
    let run_times = numbers(real.table(), "run_time").iter();
    let longest = run_times.fold(0.0f64, |most, one| most.max(*one));
    for secret in ["secret-user", "trace.csv", &"12".repeat(32), &longest.to_string()] {
        assert!(!manifest.contains(secret), "{secret}");
    }
    let features = real.features().unwrap();
    let synthetic = trained.sample_features(10_000, 1, &Stop::default()).unwrap();
    let found = compare(&features, &synthetic, CompareConfig::default(), &Stop::default()).unwrap();
    let score = |name: &str| {
        let column = found.similarity.columns.iter().find(|column| column.name == name).unwrap();
        column.figures.score()
    };
    for name in ["interval", "run_time", "node_num", "wall_time", "new_status"] {
        assert!(score(name) > 0.8, "{name}: {}", score(name));
    }
    assert_eq!(found.copies.near_fraction, 0.0, "users have other names");
}

#[test]
fn sessions_make_schedulers_do_what_they_do_on_the_real_trace() {
    let features = trace(3_000).features().unwrap();
    let trained = trained(&trace(3_000), GeneratorKind::Sessions);
    let synthetic = trained.sample_features(3_000, 1, &Stop::default()).unwrap();
    let found = compare(&features, &synthetic, CompareConfig::default(), &Stop::default()).unwrap();
    let scheduling = found.scheduling.unwrap();
    let is_close = |real: f64, synthetic: f64, factor: f64| {
        assert!(synthetic <= factor * real && real <= factor * synthetic, "{synthetic} instead of {real}");
    };
    for policy in &scheduling.policies {
        is_close(policy.real.mean_wait_seconds, policy.synthetic.mean_wait_seconds, 1.5);
        is_close(policy.real.mean_bounded_slowdown, policy.synthetic.mean_bounded_slowdown, 1.5);
    }
    let load = scheduling.offered_load;
    is_close(load.daily.mean.real, load.daily.mean.synthetic, 1.02);
    is_close(load.daily.std_dev.real, load.daily.std_dev.synthetic, 1.3);
    assert!(scheduling.has_same_ranking);
}

#[test]
fn a_shorter_sample_of_sessions_keeps_the_arrival_rate_and_the_columns() {
    let features = trace(6_000).features().unwrap();
    let trained = trained(&trace(6_000), GeneratorKind::Sessions);
    let synthetic = trained.sample_features(2_000, 1, &Stop::default()).unwrap();
    let found = compare(&features, &synthetic, CompareConfig::default(), &Stop::default()).unwrap();
    assert!(found.similarity.column_score > 0.9, "{}", found.similarity.column_score);
    let rate = |jobs: &FeatureTable| jobs.n_jobs() as f64 / jobs.arrivals().last().unwrap();
    let ratio = rate(&synthetic) / rate(&features);
    assert!((0.9..1.1).contains(&ratio), "{ratio}");
}

#[test]
fn sessions_need_no_users() {
    let text = csv(3_000, 1);
    let without_user = |line: &str| {
        let mut fields: Vec<&str> = line.split(',').collect();
        fields[1] = "0";
        fields.join(",")
    };
    let (header, jobs) = text.split_once('\n').unwrap();
    let nobody: String = jobs.lines().map(|line| without_user(line) + "\n").collect();
    let real = trace_of(&format!("{header}\n{nobody}"), Preset::Dirlab).unwrap();
    let synthetic =
        trained(&real, GeneratorKind::Sessions).sample_features(3_000, 1, &Stop::default()).unwrap();
    let features = real.features().unwrap();
    let found = compare(&features, &synthetic, CompareConfig::default(), &Stop::default()).unwrap();
    assert!(found.similarity.column_score > 0.95, "{}", found.similarity.column_score);
    let lag_1 = found.similarity.sequence.autocorrelation[0].figure.difference();
    assert!(lag_1 < 0.05, "{lag_1}");
    let same_size_as_before = |jobs: &FeatureTable| {
        let sizes = jobs.column(jobs.position(Role::Cores).unwrap());
        sizes.windows(2).filter(|pair| pair[0] == pair[1]).count() as f64 / sizes.len() as f64
    };
    let [of_real, of_synthetic] = [&features, &synthetic].map(same_size_as_before);
    assert!((of_real - of_synthetic).abs() < 0.1, "{of_real} {of_synthetic}");
}

/// Asks to stop after a moment, and returns how long the operation went on.
fn seconds_to_stop(operation: impl FnOnce(&Stop) -> Result<(), Error>) -> f64 {
    let stop = Stop::after(Some(Duration::from_millis(50)));
    let started = Instant::now();
    let error = operation(&stop).unwrap_err();
    assert!(matches!(error, Error::Stopped(Stopped)), "{error}");
    assert!(std::error::Error::source(&error).is_some_and(|source| source.is::<Stopped>()));
    started.elapsed().as_secs_f64()
}

#[test]
fn training_sampling_and_comparing_stop_within_a_second() {
    let real = trace(2_000);
    let many_epochs = TrainingConfig { n_epochs: NonZeroUsize::new(100_000), seed: 0 };
    for kind in [GeneratorKind::Ctgan, GeneratorKind::SequenceCopulagan, GeneratorKind::Tvae] {
        let seconds =
            seconds_to_stop(|stop| TrainedGenerator::fit(&real, kind, many_epochs, stop, |_| {}).map(|_| ()));
        assert!(seconds < 1.0, "{kind}: {seconds} s");
    }
    let kinds = [
        GeneratorKind::Sessions,
        GeneratorKind::GaussianCopula,
        GeneratorKind::SequenceCopulagan,
        GeneratorKind::Private,
    ];
    for kind in kinds {
        let trained = trained(&trace(300), kind);
        let seconds = seconds_to_stop(|stop| trained.sample(&request(2_000_000, 1), stop).map(|_| ()));
        assert!(seconds < 1.0, "{kind}: {seconds} s");
    }
    let features = trace(20_000).features().unwrap();
    let seconds =
        seconds_to_stop(|stop| compare(&features, &features, CompareConfig::default(), stop).map(|_| ()));
    assert!(seconds < 1.0, "compare: {seconds} s");
}

#[test]
fn no_value_in_a_stored_generator_makes_it_panic_hang_or_fill_memory() {
    let store = |kind: &str, dir: &Path| {
        trained(&trace(120), kind.parse().unwrap()).write(dir, &Provenance::default()).unwrap();
    };
    let use_model = |dir: &Path| {
        let said = |error: Error| error.to_string();
        let generator = TrainedGenerator::read(dir).map_err(said)?;
        let out = tempfile::tempdir().unwrap();
        let table = generator.sample(&request(70, 1), &Stop::default()).map_err(said)?;
        sink::write(&out.path().join("sampled.csv"), &table, generator.schema()).map_err(said)?;
        let extent = SampleExtent::Span(TimeSpan::new(1e9, 1e9 + 7_200.0).unwrap());
        for extent in [extent, SampleExtent::LikeTraining] {
            // A large sample is allowed, but it has to be possible to stop it.
            let stop = Stop::after(Some(Duration::from_millis(500)));
            let _ = generator.sample(&SampleRequest { extent, ..SampleRequest::default() }, &stop);
        }
        Ok(())
    };
    let kinds = GeneratorKind::ALL.map(GeneratorKind::name);
    let test = "contract::no_value_in_a_stored_generator_makes_it_panic_hang_or_fill_memory";
    testbed::hostile_model::assert_harmless(test, &kinds, store, use_model);
}
