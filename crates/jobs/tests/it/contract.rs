//! What every generator has to keep to.

use jobs::generators::{Ask, FitSettings, Fitted, Model};
use jobs::{Preset, Table, Trace};
use learn::artifact::Provenance;
use testbed::workspace;

use crate::made::{HEADER, csv, trace, trace_of};

fn fitted(trace: &Trace, model: Model) -> Fitted {
    Fitted::fit(trace, model, FitSettings { n_epochs: Some(2), seed: 3 }, |_| {}).unwrap()
}

fn ask(n_jobs: usize, seed: u64) -> Ask {
    Ask { n_jobs: Some(n_jobs), seed, ..Ask::default() }
}

fn numbers<'a>(table: &'a Table, name: &str) -> &'a [f64] {
    table.column(name).unwrap().as_numbers().unwrap()
}

#[test]
fn what_is_made_has_the_columns_of_what_was_learnt_from_and_keeps_to_its_rules() {
    for model in Model::ALL {
        let trace = trace(400);
        let fitted = fitted(&trace, model);
        let table = fitted.sample(&ask(150, 1)).unwrap();
        let names = |table: &Table| -> Vec<String> {
            table.columns.iter().map(|column| column.name.clone()).collect()
        };
        assert_eq!(names(&table), names(&trace.table), "{}", model.name());
        assert_eq!(table.n_rows(), 150);
        for name in ["u_id", "cpu_num", "node_num", "interval", "wall_time"] {
            let is_whole = numbers(&table, name).iter().all(|value| value.fract() == 0.0 && *value >= 0.0);
            assert!(is_whole, "{} makes counts that are none of {name}", model.name());
        }
        let (cores, nodes) = (numbers(&table, "cpu_num"), numbers(&table, "node_num"));
        assert!(cores.iter().zip(nodes).all(|(cores, nodes)| cores % nodes == 0.0), "{}", model.name());
        assert!(numbers(&table, "run_time").iter().all(|value| value.is_finite() && *value >= 0.0));
        let status = table.column("new_status").unwrap();
        assert!((0..150).all(|row| ["Pass", "Killed"].contains(&status.cell(row).as_str())));
    }
}

#[test]
fn one_seed_makes_one_trace_also_after_it_was_on_disk() {
    for model in Model::ALL {
        let fitted = fitted(&trace(300), model);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model");
        fitted.write(&path, &Provenance::default()).unwrap();
        let again = Fitted::read(&path).unwrap();
        let table = fitted.sample(&ask(80, 5)).unwrap();
        assert!(table == again.sample(&ask(80, 5)).unwrap(), "{}", model.name());
        assert!(table != fitted.sample(&ask(80, 6)).unwrap(), "{}", model.name());
        let second = Fitted::fit(&trace(300), model, fitted.origin.settings, |_| {}).unwrap();
        assert!(table == second.sample(&ask(80, 5)).unwrap(), "{} learns the same", model.name());
    }
}

#[test]
fn odd_traces_are_learnt_from_without_making_nonsense() {
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
        for model in Model::ALL {
            let trace = trace_of(&text, Preset::Dirlab).unwrap();
            let table = fitted(&trace, model).sample(&ask(60, 1)).unwrap();
            let is_missing = what.starts_with("missing");
            for column in table.columns.iter().filter(|column| !(is_missing && column.name == "wall_time")) {
                let is_known =
                    column.as_numbers().is_none_or(|values| values.iter().all(|value| value.is_finite()));
                assert!(is_known, "{}: {what}: {} has holes", model.name(), column.name);
            }
        }
    }
}

#[test]
fn conditions_loads_and_spans_are_met() {
    let fitted = fitted(&trace(600), Model::Sessions);
    let condition = vec![("user".to_owned(), "3".to_owned()), ("nodes".to_owned(), "128".to_owned())];
    let table = fitted.sample(&Ask { condition, ..ask(20, 1) }).unwrap();
    assert!(numbers(&table, "user").iter().all(|user| *user == 3.0));
    assert!(numbers(&table, "node_num").iter().all(|nodes| *nodes == 128.0));
    let refused = |name: &str, cell: &str| {
        let condition = vec![(name.to_owned(), cell.to_owned())];
        fitted.sample(&Ask { condition, ..ask(20, 1) }).unwrap_err().to_string()
    };
    assert!(refused("colour", "red").starts_with("there is no column colour; there are interval, user"));
    assert_eq!(refused("user", "99"), "user was never 99 in the trace learnt from");
    assert_eq!(refused("nodes", "many"), "nodes=many: many is no number");
    assert!(refused("nodes", "3").contains("meet the condition"));
    let sum = |table: &Table| numbers(table, "interval").iter().sum::<f64>();
    let (once, twice) = (
        fitted.sample(&ask(300, 2)).unwrap(),
        fitted.sample(&Ask { scale: Some(2.0), ..ask(300, 2) }).unwrap(),
    );
    assert!((sum(&once) / sum(&twice) - 2.0).abs() < 0.1);
    let span = fitted.sample(&Ask { n_jobs: None, span: Some((1e9, 1e9 + 86_400.0)), ..ask(1, 1) }).unwrap();
    assert!(span.n_rows() > 20 && numbers(&span, "interval")[1..].iter().sum::<f64>() < 86_400.0);
}

#[test]
fn sessions_keep_the_order_that_rows_lose() {
    let real = trace(3_000);
    let jobs = real.jobs().unwrap();
    let settings = jobs::fidelity::ScoreSettings { n_nodes: None, seed: 0 };
    let mut found = Vec::new();
    for model in [Model::Sessions, Model::GaussianCopula] {
        let made = fitted(&real, model).jobs(3_000, 1);
        found.push(jobs::fidelity::score(&jobs, &made, settings).unwrap());
    }
    let [sessions, copula] = &found[..] else { panic!("there are two") };
    assert!(sessions.likeness.column_score > 0.95 && copula.likeness.column_score > 0.95);
    let order = |one: &jobs::fidelity::Fidelity| one.likeness.order.autocorrelation[0].both.apart();
    assert!(order(sessions) < 0.05 && order(copula) > 0.08, "{} {}", order(sessions), order(copula));
    let stretches = |one: &jobs::fidelity::Fidelity| one.likeness.classifier.stretch_auc.unwrap();
    assert!(
        stretches(sessions) < 0.8 && stretches(copula) > 0.9,
        "{} {}",
        stretches(sessions),
        stretches(copula)
    );
}

#[test]
fn a_model_of_the_first_version_is_still_read() {
    let fitted = Fitted::read(&workspace().join("fixtures/artifact/jobs-v1")).unwrap();
    assert_eq!(fitted.model, Model::Sessions);
    assert_eq!(fitted.sample(&ask(10, 1)).unwrap().n_rows(), 10);
}
