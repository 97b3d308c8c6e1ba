//! The report on a synthetic trace, for people.

use std::path::{Path, PathBuf};

use report::{Axis, Chart, HeatMaps, Mark, Page, ReportError, ReportFolder, Series};

use super::columns::{Figures, PairFidelity};
use super::order::{autocorrelation, profile};
use super::{Fidelity, Likeness};
use crate::features::Jobs;
use crate::schema::Role;

/// Points of a line that is looked at.
const MOST_POINTS: usize = 400;
const MOST_LAGS: usize = 100;
/// Numbers that a heat map has room for.
const MOST_NAMES: usize = 10;

/// A header and rows: every figure, beside those of two halves of the real trace.
pub fn table(fidelity: &Fidelity) -> (Vec<&'static str>, Vec<Vec<String>>) {
    let all = [&fidelity.likeness, &fidelity.ceiling_random, &fidelity.ceiling_by_time];
    let mut rows: Vec<Vec<String>> = Vec::new();
    let mut row = |name: String, figure: &dyn Fn(&Likeness) -> String| {
        rows.push(std::iter::once(name).chain(all.iter().map(|one| figure(one))).collect());
    };
    for (at, column) in fidelity.likeness.columns.iter().enumerate() {
        let kind = match column.figures {
            Figures::Number { .. } => "KS complement",
            Figures::Category { .. } => "TV complement",
        };
        row(format!("{} ({kind})", column.name), &|one| format!("{:.3}", one.columns[at].figures.score()));
    }
    row("pairs of columns".into(), &|one| format!("{:.3}", one.pair_score));
    for (at, one) in fidelity.likeness.order.autocorrelation.iter().enumerate() {
        let name = format!("autocorrelation of {} at lag {}", one.name, one.lag);
        row(name, &|one| {
            one.order
                .autocorrelation
                .get(at)
                .map_or("–".into(), |found| both(found.both.synthetic, found.both.real))
        });
    }
    row("hourly dispersion".into(), &|one| {
        both(one.order.hourly_dispersion.synthetic, one.order.hourly_dispersion.real)
    });
    row("daily dispersion".into(), &|one| {
        both(one.order.daily_dispersion.synthetic, one.order.daily_dispersion.real)
    });
    row("hours of the day".into(), &|one| format!("{:.3}", one.order.daily_profile));
    row("days of the week".into(), &|one| format!("{:.3}", one.order.weekly_profile));
    row("same user as before".into(), &|one| {
        one.order.same_user.map_or("–".into(), |found| both(found.synthetic, found.real))
    });
    row("told apart by rows (AUC)".into(), &|one| format!("{:.3}", one.classifier.row_auc));
    row("told apart by stretches (AUC)".into(), &|one| {
        one.classifier.stretch_auc.map_or("–".into(), |auc| format!("{auc:.3}"))
    });
    (vec!["", ">SYNTHETIC", ">RANDOM HALVES", ">FIRST AND SECOND HALF"], rows)
}

fn both(made: f64, real: f64) -> String {
    format!("{made:.3} ({real:.3})")
}

/// Writes HTML with charts, JSON and Markdown into a folder.
pub fn write(
    fidelity: &Fidelity,
    real: &Jobs,
    made: &Jobs,
    out: &Path,
    origin: &str,
) -> Result<PathBuf, ReportError> {
    let folder = ReportFolder::create(out)?;
    let mut page = Page::new("A synthetic job trace beside the real one", origin);
    page.lead(fidelity.in_words());
    page.text(format!(
        "{} real jobs, {} synthetic ones. One is perfect for complements, one half for AUCs; where two numbers stand beside each \
         other, the second is that of the real trace. The last two columns hold the real trace against itself: one half against the \
         other, drawn at random, and the first half in time against the second.",
        fidelity.n_real, fidelity.n_synthetic
    ));
    let (header, rows) = table(fidelity);
    page.table(&header, rows);
    page.heading("Distributions");
    for (at, spec) in real.specs.iter().enumerate().filter(|(_, spec)| !spec.is_category()) {
        let Some(of_made) = made.specs.iter().position(|other| other.name == spec.name) else { continue };
        let chart = Chart::new(
            format!("{}: share of jobs at or below", spec.name),
            Axis::log(&spec.name),
            Axis::linear("share"),
        )
        .with(Series::new("real", Mark::Line, distribution(&real.values[at])))
        .with(Series::new("synthetic", Mark::Line, distribution(&made.values[of_made])));
        page.figure(folder.chart(&format!("cdf-{}", file_name(&spec.name)), &chart)?, spec.name.clone());
    }
    page.heading("Pairs of columns");
    let caption = "Rank correlations of numbers";
    page.figure(folder.picture("pairs", correlations(fidelity).svg())?, caption);
    let pairs = fidelity.likeness.pairs.iter().map(|pair| {
        let shown = |value: Option<f64>| value.map_or("–".to_owned(), |value| format!("{value:.2}"));
        vec![pair.names.join(" and "), shown(pair.real), shown(pair.synthetic), format!("{:.3}", pair.score)]
    });
    page.table(&["columns", ">real", ">synthetic", ">score"], pairs.collect());
    page.heading("Order");
    for role in [Role::Interval, Role::RunTime] {
        let (Some(of_real), Some(of_made)) = (real.with_role(role), made.with_role(role)) else { continue };
        let line = |values: &[f64]| -> Vec<(f64, f64)> {
            let most = MOST_LAGS.min(values.len() / 2);
            (1..=most).map(|lag| (lag as f64, autocorrelation(values, lag))).collect()
        };
        let title = format!("Autocorrelation of the logarithm of the {}", role.name());
        let chart = Chart::new(title, Axis::linear("lag, in jobs"), Axis::linear("autocorrelation"))
            .with(Series::new("real", Mark::Line, line(of_real)))
            .with(Series::new("synthetic", Mark::Line, line(of_made)));
        page.figure(
            folder.chart(&format!("order-{}", role.name()), &chart)?,
            "What one job says of those after it",
        );
    }
    for (name, title, width, n_bins) in [
        ("day", "Arrivals by hour of the day", 3_600.0, 24),
        ("week", "Arrivals by day of the week", 86_400.0, 7),
    ] {
        let line = |jobs: &Jobs| -> Vec<(f64, f64)> {
            profile(jobs, width, n_bins)
                .into_iter()
                .enumerate()
                .map(|(bin, share)| (bin as f64, share))
                .collect()
        };
        let chart =
            Chart::new(title, Axis::linear("from the first job on"), Axis::linear("share").including([0.0]))
                .with(Series::new("real", Mark::LineAndDots, line(real)))
                .with(Series::new("synthetic", Mark::LineAndDots, line(made)));
        page.figure(folder.chart(&format!("profile-{name}"), &chart)?, title);
    }
    add_privacy(fidelity, &mut page);
    add_utility(fidelity, &mut page);
    folder.page("fidelity", &page, fidelity)
}

fn add_privacy(fidelity: &Fidelity, page: &mut Page) {
    let privacy = &fidelity.privacy;
    page.heading("Copies");
    let percent = |share: f64| format!("{:.2} %", share * 100.0);
    page.table(
        &["", ">share"],
        vec![
            vec!["jobs that are real ones to the digit".into(), percent(privacy.exact_copies)],
            vec![
                "the same user and size, interval and run time within 2 %".into(),
                percent(privacy.near_copies),
            ],
            vec!["three jobs in a row that the real trace has".into(), percent(privacy.stretch_copies)],
        ],
    );
    page.text(format!(
        "The median distance of a synthetic job to the closest real one is {:.3}, that of a real job to the closest other one {:.3}.",
        privacy.closest_record, privacy.closest_record_of_real
    ));
}

fn add_utility(fidelity: &Fidelity, page: &mut Page) {
    let Some(utility) = &fidelity.utility else { return };
    page.heading("What a scheduler makes of it");
    page.text(format!("Both traces on a machine of {} nodes.", utility.n_nodes));
    let rows = utility.policies.iter().flat_map(|one| {
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
}

/// The rank correlations of all numbers.
fn correlations(fidelity: &Fidelity) -> HeatMaps {
    let known = fidelity.likeness.pairs.iter().filter(|pair| pair.real.is_some());
    let mut names: Vec<String> = Vec::new();
    for name in known.clone().flat_map(|pair| &pair.names) {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    names.truncate(MOST_NAMES);
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

/// Points of a distribution function, from one on, since the axis is logarithmic.
fn distribution(values: &[f64]) -> Vec<(f64, f64)> {
    let mut known: Vec<f64> =
        values.iter().copied().filter(|value| !value.is_nan()).map(|value| value.max(1.0)).collect();
    known.sort_by(f64::total_cmp);
    let n_points = MOST_POINTS.min(known.len());
    (1..=n_points)
        .map(|point| {
            let at = (point * known.len()).div_ceil(n_points) - 1;
            (known[at], (at + 1) as f64 / known.len() as f64)
        })
        .collect()
}

fn file_name(name: &str) -> String {
    name.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' }).collect()
}
