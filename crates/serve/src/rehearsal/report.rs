//! The report of a rehearsal: what happened on each day.

use std::path::{Path, PathBuf};

use report::text::show_duration;
use report::{Axis, Chart, Mark, Page, ReportError, ReportFolder, Series};
use serde_json::json;

use super::{Day, FalseAlarms, RehearsalSettings};

/// The sums over some days.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Sums {
    pub anomalous_jobs: usize,
    pub found: usize,
    pub raised: usize,
    pub events: usize,
    pub false_events: usize,
    pub verdicts: usize,
    pub competition_seconds: f64,
    pub seconds: f64,
}

impl Sums {
    pub fn of<'a>(days: impl IntoIterator<Item = &'a Day>) -> Self {
        let mut sums = Self::default();
        for day in days {
            sums.anomalous_jobs += day.anomalous_jobs;
            sums.found += day.found;
            sums.raised += day.raised;
            sums.events += day.events;
            sums.false_events += day.false_events;
            sums.verdicts += day.verdicts;
            sums.competition_seconds += day.competition_seconds;
            sums.seconds += day.simulation_seconds + day.scoring_seconds + day.competition_seconds;
        }
        sums
    }
}

/// The columns of a table of days; those with `>` are numbers.
pub const HEADER: [&str; 10] = [
    ">DAY",
    "CHAMPION",
    ">ANOMALIES",
    ">FOUND",
    ">EVENTS",
    ">FALSE",
    ">HIDDEN",
    ">VERDICTS",
    ">NIGHT",
    "WINNER",
];

/// One day as a row of a table.
pub fn row(day: &Day) -> Vec<String> {
    let model = |version: &Option<String>| version.clone().unwrap_or_else(|| "–".into());
    let champion = match (&day.champion, &day.detector) {
        (Some(version), Some(detector)) => format!("{version} ({detector})"),
        _ => "none yet".into(),
    };
    vec![
        day.day.to_string(),
        champion,
        day.anomalous_jobs.to_string(),
        day.found.to_string(),
        day.events.to_string(),
        day.false_events.to_string(),
        day.hidden_events.to_string(),
        day.verdicts.to_string(),
        show_duration(day.competition_seconds),
        model(&day.winner),
    ]
}

/// Writes `rehearsal.json`, `rehearsal.md` and `rehearsal.html` with its charts; returns the path of the page.
pub fn write(days: &[Day], settings: &RehearsalSettings, folder: &Path) -> Result<PathBuf, ReportError> {
    let folder = ReportFolder::create(folder)?;
    let sums = Sums::of(days);
    let command = format!(
        "tracewise rehearse --days {} --nodes {} --threads {} --hours {} --seed {} --error-rate {}",
        settings.n_days,
        settings.n_nodes,
        settings.threads_per_node,
        settings.hours,
        settings.seed,
        settings.error_rate,
    );
    let mut page = Page::new("Rehearsal", format!("Made by `{command}`."));
    page.lead(format!(
        "{} of {} anomalous jobs raised an event; {} of {} events were false.",
        sums.found, sums.anomalous_jobs, sums.false_events, sums.events
    ));
    page.text(format!(
        "{} days of {} hours on {} nodes with {} threads each. A scripted administrator answers every event 15 minutes \
         after it was opened; {:.0} % of the answers are wrong. Models compete every night. The whole rehearsal took {}.",
        settings.n_days,
        settings.hours,
        settings.n_nodes,
        settings.threads_per_node,
        100.0 * settings.error_rate,
        show_duration(sums.seconds),
    ));
    page.heading("Days");
    page.table(&HEADER, days.iter().map(row).collect());
    let points = |value: &dyn Fn(&Day) -> usize| {
        days.iter().map(|day| (f64::from(day.day), value(day) as f64)).collect::<Vec<(f64, f64)>>()
    };
    let chart = Chart::new("Events by day", Axis::linear("day"), Axis::linear("count"))
        .with(Series::new("anomalous jobs", Mark::Line, points(&|day| day.anomalous_jobs)))
        .with(Series::new("found", Mark::Line, points(&|day| day.found)))
        .with(Series::new("false events", Mark::Line, points(&|day| day.false_events)));
    let svg = folder.chart("events", &chart)?;
    page.figure(svg, "Anomalous jobs, those that were found, and false events.");
    page.heading("Anomalies");
    page.text(
        "`Raised` counts anomalous jobs with an event before verdicts hide anything, `found` those whose event was \
         reported. The delay is from the start of the job to the event.",
    );
    page.table(
        &[">DAY", ">JOBS", ">RAISED", ">FOUND", ">WITHIN TWO WINDOWS", ">MEDIAN DELAY", "FOUND BY KIND"],
        anomalies(days),
    );
    page.heading("False alarms");
    page.text(
        "What each way of suppressing false alarms leaves of them: an alarm for every window above its threshold; one \
         until the subject is below it again; events, which have to last and have one cause; events that no verdict hides. \
         Subjects on nodes with an anomalous job do not count.",
    );
    let of_day = |day: &Day| {
        let FalseAlarms { windows, stretches, events, reported } = day.false_alarms;
        [day.day as usize, windows, stretches, events, reported].map(|count| count.to_string()).to_vec()
    };
    page.table(
        &[">DAY", ">EVERY WINDOW", ">ONCE", ">EVENTS", ">REPORTED"],
        days.iter().filter(|day| day.champion.is_some()).map(of_day).collect(),
    );
    page.heading("Nights");
    page.text(
        "Drift names the rates whose distribution over jobs differs from that of the champion's training data by more \
         than chance; new jobs resemble none of those.",
    );
    let night = |day: &Day| {
        vec![
            day.day.to_string(),
            if day.drift.is_empty() { "–".into() } else { day.drift.join(", ") },
            day.new_jobs.to_string(),
            show_duration(day.simulation_seconds),
            show_duration(day.scoring_seconds),
            show_duration(day.competition_seconds),
            day.decision.clone(),
        ]
    };
    page.table(
        &[">DAY", "DRIFT", ">NEW JOBS", ">SIMULATION", ">SCORING", ">COMPETITION", "DECISION"],
        days.iter().map(night).collect(),
    );
    let numbers = json!({
        "seed": settings.seed, "nodes": settings.n_nodes, "threads": settings.threads_per_node,
        "hours": settings.hours, "error_rate": settings.error_rate, "days": days,
    });
    folder.page("rehearsal", &page, &numbers)
}

fn anomalies(days: &[Day]) -> Vec<Vec<String>> {
    let row = |day: &Day| {
        let kinds = day.by_kind.iter().map(|(kind, [found, all])| format!("{kind} {found} of {all}"));
        vec![
            day.day.to_string(),
            day.anomalous_jobs.to_string(),
            day.raised.to_string(),
            day.found.to_string(),
            day.in_time.to_string(),
            day.median_delay.map_or_else(|| "–".into(), |delay| format!("{delay:.0} s")),
            kinds.collect::<Vec<_>>().join(", "),
        ]
    };
    days.iter().filter(|day| day.anomalous_jobs > 0).map(row).collect()
}
