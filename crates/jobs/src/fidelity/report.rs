//! The report of a comparison: a table for the terminal, and a page with charts.

use std::path::{Path, PathBuf};

use report::{Axis, Chart, HeatMaps, Mark, Page, ReportError, ReportFolder, Series};

use super::columns::{Figures, PairFidelity};
use super::curves::{Curve, Curves};
use super::load::{DAY_SECONDS, offered_load};
use super::sequence::Figure;
use super::{Fidelity, LoadFidelity, OfferedLoad, Similarity};
use crate::features::FeatureTable;
use crate::replay::ReplayTrace;

/// Columns of a heat map.
const MAX_HEAT_MAP_COLUMNS: usize = 10;
const NOT_AVAILABLE: &str = "–";

/// Every figure, next to those of two halves of the real trace: a header and rows.
pub fn table(fidelity: &Fidelity) -> (Vec<&'static str>, Vec<Vec<String>>) {
    let all = [&fidelity.similarity, &fidelity.random_halves, &fidelity.time_halves];
    let mut rows: Vec<Vec<String>> = Vec::new();
    let mut row = |name: String, figure: &dyn Fn(&Similarity) -> String| {
        rows.push(std::iter::once(name).chain(all.iter().map(|one| figure(one))).collect());
    };
    for (at, column) in fidelity.similarity.columns.iter().enumerate() {
        let kind = match column.figures {
            Figures::Number { .. } => "KS complement",
            Figures::Category { .. } => "TV complement",
        };
        row(format!("{} ({kind})", column.name), &|one| format!("{:.3}", one.columns[at].figures.score()));
    }
    row("pairs of columns".into(), &|one| format!("{:.3}", one.pair_score));
    for (at, one) in fidelity.similarity.sequence.autocorrelation.iter().enumerate() {
        let name = format!("autocorrelation of {} at lag {}", one.name, one.lag);
        row(name, &|one| shown(one.sequence.autocorrelation.get(at).map(|found| found.figure)));
    }
    row("hourly dispersion".into(), &|one| shown(Some(one.sequence.hourly_dispersion)));
    row("daily dispersion".into(), &|one| shown(Some(one.sequence.daily_dispersion)));
    row("profile of the day".into(), &|one| format!("{:.3}", one.sequence.daily_profile));
    row("profile of the week".into(), &|one| format!("{:.3}", one.sequence.weekly_profile));
    row("same user as the previous job".into(), &|one| shown(one.sequence.same_user));
    row("classifier on single jobs (AUC)".into(), &|one| format!("{:.3}", one.classifier.row_auc));
    row("classifier on windows of 20 jobs (AUC)".into(), &|one| {
        one.classifier.window_auc.map_or(NOT_AVAILABLE.into(), |auc| format!("{auc:.3}"))
    });
    for (name, figure) in load_rows(fidelity) {
        let name = format!("offered load in nodes, {name}");
        rows.push(vec![name, shown(Some(figure)), NOT_AVAILABLE.into(), NOT_AVAILABLE.into()]);
    }
    (vec!["", ">SYNTHETIC", ">RANDOM HALVES", ">FIRST AND SECOND HALF"], rows)
}

/// The synthetic figure, with the real one in brackets.
fn shown(figure: Option<Figure>) -> String {
    figure.map_or(NOT_AVAILABLE.into(), |one| format!("{:.3} ({:.3})", one.synthetic, one.real))
}

/// Writes a page with charts, JSON and Markdown to a directory; `command` says how the report was made.
pub fn write(
    fidelity: &Fidelity,
    real: &FeatureTable,
    synthetic: &FeatureTable,
    out: &Path,
    command: &str,
) -> Result<PathBuf, ReportError> {
    let folder = ReportFolder::create(out)?;
    let mut page = Page::new("Comparison of a synthetic job trace with the real one", command);
    page.lead(fidelity.summary());
    page.text(format!(
        "{} real jobs, {} synthetic jobs. Complements are 1 for a perfect trace, AUCs are 0.5. Numbers in brackets are those of the \
         real trace. The last two columns compare the real trace with itself: two random halves, and the first half with the second.",
        fidelity.n_real, fidelity.n_synthetic
    ));
    let (header, rows) = table(fidelity);
    page.table(&header, rows);
    let charts = Charts {
        folder: &folder,
        curves: Curves::new(real, Some(synthetic)),
        load: daily_load(real, synthetic),
    };
    charts.add_distributions(&mut page)?;
    page.heading("Pairs of columns");
    page.figure(folder.picture("pairs", correlations(fidelity).svg())?, "Rank correlations of numbers");
    add_pairs(fidelity, &mut page);
    charts.add_sequence(&mut page)?;
    add_copies(fidelity, &mut page);
    add_scheduling(fidelity, &mut page);
    charts.add_load(&mut page)?;
    folder.page("fidelity", &page, fidelity)
}

struct Charts<'a> {
    folder: &'a ReportFolder,
    curves: Curves,
    load: Option<Curve>,
}

impl Charts<'_> {
    fn add_distributions(&self, page: &mut Page) -> Result<(), ReportError> {
        page.heading("Distributions");
        for curve in &self.curves.distributions {
            let chart = Chart::new(
                format!("{}: cumulative distribution", curve.name),
                Axis::log(&curve.name),
                Axis::linear("fraction of jobs"),
            );
            let name = format!("cdf-{}", file_name(&curve.name));
            page.figure(self.folder.chart(&name, &with(chart, curve, Mark::Line))?, curve.name.clone());
        }
        Ok(())
    }

    fn add_sequence(&self, page: &mut Page) -> Result<(), ReportError> {
        page.heading("Sequence of jobs");
        for curve in &self.curves.autocorrelations {
            let title = format!("Autocorrelation of the logarithm of the {}", curve.name);
            let chart =
                Chart::new(title.clone(), Axis::linear("lag (jobs)"), Axis::linear("autocorrelation"));
            let name = format!("autocorrelation-{}", file_name(&curve.name));
            page.figure(self.folder.chart(&name, &with(chart, curve, Mark::Line))?, title);
        }
        for (curve, title, unit) in [
            (&self.curves.day, "Arrivals by hour of the day", "hours since the first job"),
            (&self.curves.week, "Arrivals by day of the week", "days since the first job"),
        ] {
            let fraction = Axis::linear("fraction of jobs").including([0.0]);
            let chart = with(Chart::new(title, Axis::linear(unit), fraction), curve, Mark::LineAndDots);
            page.figure(self.folder.chart(&format!("profile-{}", curve.name), &chart)?, title);
        }
        Ok(())
    }

    fn add_load(&self, page: &mut Page) -> Result<(), ReportError> {
        let Some(curve) = &self.load else { return Ok(()) };
        let title = "Offered load by day";
        let nodes = Axis::linear("nodes").including([0.0]);
        let chart =
            with(Chart::new(title, Axis::linear("days since the first job"), nodes), curve, Mark::Line);
        page.figure(self.folder.chart(&curve.name, &chart)?, title);
        Ok(())
    }
}

/// The work of the jobs submitted on each day, if jobs have run times.
fn daily_load(real: &FeatureTable, synthetic: &FeatureTable) -> Option<Curve> {
    let points = |jobs: &FeatureTable| -> Option<Vec<(f64, f64)>> {
        let loads = offered_load(&ReplayTrace::from_features(jobs).ok()?, DAY_SECONDS);
        Some(loads.into_iter().enumerate().map(|(day, load)| (day as f64, load)).collect())
    };
    Some(Curve { name: "load-day".into(), real: points(real)?, synthetic: Some(points(synthetic)?) })
}

/// A chart with the curves of both traces.
fn with(chart: Chart, curve: &Curve, mark: Mark) -> Chart {
    let chart = chart.with(Series::new("real", mark, curve.real.clone()));
    match &curve.synthetic {
        Some(points) => chart.with(Series::new("synthetic", mark, points.clone())),
        None => chart,
    }
}

fn add_pairs(fidelity: &Fidelity, page: &mut Page) {
    let pairs = fidelity.similarity.pairs.iter().map(|pair| {
        let shown = |value: Option<f64>| value.map_or(NOT_AVAILABLE.into(), |value| format!("{value:.2}"));
        vec![pair.names.join(" and "), shown(pair.real), shown(pair.synthetic), format!("{:.3}", pair.score)]
    });
    page.table(&["columns", ">real", ">synthetic", ">score"], pairs.collect());
}

fn add_copies(fidelity: &Fidelity, page: &mut Page) {
    let copies = &fidelity.copies;
    page.heading("Copies");
    let percent = |fraction: f64| format!("{:.2} %", fraction * 100.0);
    page.table(
        &["synthetic jobs that are", ">fraction"],
        vec![
            vec!["equal to a real job in every column".into(), percent(copies.exact_fraction)],
            vec![
                "near a real job: same user and size, interval and run time within 2 %".into(),
                percent(copies.near_fraction),
            ],
            vec!["part of three consecutive jobs of the real trace".into(), percent(copies.triple_fraction)],
        ],
    );
    page.text(format!(
        "The median distance from a synthetic job to the closest real one is {:.3}; from a real job to the closest other one it is {:.3}.",
        copies.median_distance, copies.median_distance_within_real
    ));
}

fn add_scheduling(fidelity: &Fidelity, page: &mut Page) {
    let Some(scheduling) = &fidelity.scheduling else { return };
    page.heading("Scheduling");
    page.text(format!("Both traces replayed on a machine of {} nodes.", scheduling.n_nodes));
    let rows = scheduling.policies.iter().flat_map(|one| {
        [("real", one.real), ("synthetic", one.synthetic)].map(|(name, outcome)| {
            vec![
                one.policy.to_owned(),
                name.to_owned(),
                format!("{:.0} s", outcome.mean_wait_seconds),
                format!("{:.1}", outcome.mean_bounded_slowdown),
                format!("{:.1} %", outcome.utilisation * 100.0),
            ]
        })
    });
    page.table(&["policy", "trace", ">mean wait", ">bounded slowdown", ">utilisation"], rows.collect());
    page.text("Offered load: node seconds of the jobs submitted in an hour or a day, as nodes.");
    let rows = load_rows(fidelity).into_iter().map(|(name, figure)| {
        let [real, synthetic] = [figure.real, figure.synthetic].map(|nodes| format!("{nodes:.1}"));
        vec![name, real, synthetic]
    });
    page.table(&["offered load in nodes", ">real", ">synthetic"], rows.collect());
}

fn load_rows(fidelity: &Fidelity) -> Vec<(String, Figure)> {
    let Some(scheduling) = &fidelity.scheduling else { return Vec::new() };
    let OfferedLoad { hourly, daily } = scheduling.offered_load;
    let rows = |span: &str, load: LoadFidelity| {
        [("mean", load.mean), ("standard deviation", load.std_dev), ("largest", load.largest)]
            .map(|(name, figure)| (format!("{span}: {name}"), figure))
    };
    rows("hourly", hourly).into_iter().chain(rows("daily", daily)).collect()
}

/// Rank correlations of the first few numbers.
fn correlations(fidelity: &Fidelity) -> HeatMaps {
    let known = fidelity.similarity.pairs.iter().filter(|pair| pair.real.is_some());
    let mut names: Vec<String> = Vec::new();
    for name in known.clone().flat_map(|pair| &pair.names) {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    names.truncate(MAX_HEAT_MAP_COLUMNS);
    let map = |of: fn(&PairFidelity) -> Option<f64>| -> Vec<Vec<f64>> {
        let cell = |a: &String, b: &String| {
            let is_pair = |pair: &&PairFidelity| pair.names.contains(a) && pair.names.contains(b);
            if a == b { 1.0 } else { known.clone().find(is_pair).and_then(of).unwrap_or(0.0) }
        };
        names.iter().map(|a| names.iter().map(|b| cell(a, b)).collect()).collect()
    };
    let maps = vec![
        ("Real".to_owned(), map(|pair| pair.real)),
        ("Synthetic".to_owned(), map(|pair| pair.synthetic)),
    ];
    HeatMaps { names, maps }
}

fn file_name(name: &str) -> String {
    name.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' }).collect()
}

#[cfg(test)]
mod tests {
    use workload::Stop;

    use super::*;
    use crate::features::{FeatureKind, FeatureSpec};
    use crate::fidelity::{CompareConfig, compare};
    use crate::format::Format;
    use crate::replay::POLICIES;
    use crate::schema::Role;

    fn trace(seed: usize) -> FeatureTable {
        let number = || FeatureKind::Number { format: Format::Plain { decimals: 0 } };
        let spec = |name: &str, role, kind| FeatureSpec { name: name.into(), role: Some(role), kind };
        let specs = vec![
            spec("interval", Role::Interval, number()),
            spec("run time/s", Role::RunTime, number()),
            spec("user", Role::User, FeatureKind::Category { names: vec!["a".into(), "b".into()] }),
        ];
        let column = |factor: usize, modulus: usize| {
            (0..300).map(|job| ((job * factor + seed) % modulus) as f64).collect()
        };
        FeatureTable::new(specs, vec![column(37, 101), column(53, 997), column(1, 2)]).unwrap()
    }

    #[test]
    fn the_table_has_the_figures_of_the_comparison_and_the_page_its_charts() {
        let (real, synthetic) = (trace(0), trace(5));
        let fidelity = compare(&real, &synthetic, CompareConfig::default(), &Stop::default()).unwrap();
        let (header, rows) = table(&fidelity);
        assert!(rows.iter().all(|row| row.len() == header.len()));
        let row = |name: &str| rows.iter().find(|row| row[0] == name).unwrap();
        let score = format!("{:.3}", fidelity.similarity.columns[1].figures.score());
        assert_eq!(row("run time/s (KS complement)")[1], score);
        let lag = fidelity.similarity.sequence.autocorrelation[0].figure;
        assert_eq!(
            row("autocorrelation of interval at lag 1")[1],
            format!("{:.3} ({:.3})", lag.synthetic, lag.real)
        );
        assert_eq!(row("classifier on windows of 20 jobs (AUC)")[2], "–", "halves are too short");
        let folder = tempfile::tempdir().unwrap();
        write(&fidelity, &real, &synthetic, folder.path(), "a test").unwrap();
        for name in [
            "fidelity.html",
            "fidelity.json",
            "fidelity.md",
            "cdf-run-time-s.svg",
            "profile-day.svg",
            "load-day.svg",
        ] {
            assert!(folder.path().join(name).is_file(), "{name}");
        }
        let json: serde_json::Value =
            serde_json::from_slice(&std::fs::read(folder.path().join("fidelity.json")).unwrap()).unwrap();
        assert_eq!(json["column_score"], fidelity.similarity.column_score);
        assert_eq!(json["scheduling"]["policies"].as_array().unwrap().len(), POLICIES.len());
        let largest = fidelity.scheduling.unwrap().offered_load.daily.largest;
        assert_eq!(
            row("offered load in nodes, daily: largest")[1],
            format!("{:.3} ({:.3})", largest.synthetic, largest.real)
        );
    }
}
