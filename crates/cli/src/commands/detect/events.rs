//! `tracewise detect events`

use std::process::ExitCode;

use ::detect::{
    ArchiveEvents, Event, EventSubject, KindMatch, KnownJobs, Library, TrainedDetector, WindowFilter,
};
use anyhow::bail;
use archive::Archive;
use report::text::{show_count, show_duration};
use workload::{Control, Stop};

use super::{labelled_points, reference_of, with_hint};
use crate::args::EventsArgs;
use crate::config::Config;
use crate::output::{print, print_json};
use crate::progress::Progress;
use crate::signals::stop_on_signals;
use crate::times::show_time;

/// The number of kinds that are named on the terminal.
const MAX_KINDS: usize = 2;

pub fn run(args: &EventsArgs, config: &Config) -> anyhow::Result<ExitCode> {
    let detector = TrainedDetector::read(&args.model.model)?;
    let archive = args.model.data.open(config)?;
    detector.check_period(&archive).map_err(with_hint)?;
    let stop = stop_on_signals(None)?;
    let labels = archive.labels()?;
    let known = KnownJobs::new(&labels);
    let mut library = library(&detector, &archive, args.reference.as_deref(), config, &stop)?;
    if let Some(set) = args.model.set.filter(|_| args.reference.is_none()) {
        // What is to be found must not be known beforehand.
        let is_judged =
            |job: &workload::JobId| labels.iter().any(|label| label.set == set && label.job == *job);
        library = library.without(is_judged);
    }
    let progress = Progress::new(format!("looking for events in {}", archive.address()));
    let report = |done, total| progress.update(done, total);
    let control = Control::new(&stop, &report);
    let filter = match args.model.set {
        Some(set) => WindowFilter::of_set(
            &archive,
            &labels,
            set,
            &detector.event_spec(),
            Control::new(&stop, &|_, _| {}),
        )?,
        None => WindowFilter::All,
    };
    let events =
        ArchiveEvents { archive: &archive, detector: &detector, filter: &filter, known: &known, control };
    let found = events.find(library).map_err(with_hint)?;
    drop(progress);
    if found.n_windows == 0 {
        bail!(
            "{}: there is no window of {} s: a stretch without gaps during which a thread did not change its owner",
            archive.address(),
            detector.window_seconds()
        );
    }
    if args.json {
        print_json(&found.events)?;
        return Ok(ExitCode::SUCCESS);
    }
    for event in &found.events {
        print_event(event)?;
    }
    let budget = detector.calibration.as_ref().map_or(0.0, |calibration| calibration.false_events_per_day);
    print(&format!(
        "{} events in {} of {} ({} windows); the budget is {budget} false events per day",
        found.events.len(),
        show_duration(found.hours * 3_600.0),
        archive.address(),
        show_count(found.n_windows as u64),
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// The labelled jobs of an archive that events are compared with.
pub fn library(
    detector: &TrainedDetector,
    archive: &Archive,
    reference: Option<&str>,
    config: &Config,
    stop: &Stop,
) -> anyhow::Result<Library> {
    let reference = reference_of(archive, reference, detector, config)?;
    let known = KnownJobs::new(&reference.labels()?);
    Ok(Library::new(labelled_points(detector, &reference, stop)?, known))
}

/// An event on the terminal: what, where and since when; then why; then what it resembles.
pub fn print_event(event: &Event) -> anyhow::Result<()> {
    let end = event.end.map_or("still open".to_owned(), |end| {
        format!("for {}", show_duration((end - event.start).as_seconds()))
    });
    print(&format!("{}  {}, {end}", show_time(event.start), headline(event)))?;
    print(&format!("  {}: {}", event.level, event.why))?;
    if !event.kinds.is_empty() {
        print(&format!("  {}", kinds_text(&event.kinds)))?;
    }
    Ok(())
}

/// What an event is about.
pub fn headline(event: &Event) -> String {
    let node = event.node.as_ref().map_or(String::new(), |node| format!(" on {node}"));
    let mut jobs = event.jobs.iter().map(|job| format!("job {job}"));
    let what = match (event.subject, jobs.next()) {
        (EventSubject::Cluster, _) => format!("the cluster ({} jobs)", event.jobs.len()),
        (EventSubject::Job, Some(job)) => format!("{job}{node}"),
        (_, Some(job)) => format!("node{}, mostly {job}", node.trim_start_matches(" on")),
        (_, None) => format!("node{}", node.trim_start_matches(" on")),
    };
    let affected = match (event.subject, event.jobs.len()) {
        (EventSubject::Job, 2..) => format!(", affects {}", jobs.collect::<Vec<_>>().join(", ")),
        _ => String::new(),
    };
    let threads = match event.threads.len() {
        0 => String::new(),
        1 => ", 1 thread".to_owned(),
        count => format!(", {count} threads"),
    };
    let (strength, certainty) = (event.strength, event.certainty * 100.0);
    format!("{what}{threads}{affected}: {strength:.1} times its threshold ({certainty:.0} % certain)")
}

/// The most similar kinds. Confidence is only meaningful for a window inside the region of a kind.
pub fn kinds_text(kinds: &[KindMatch]) -> String {
    if kinds.iter().any(|kind| kind.is_inside) {
        let likely = kinds.iter().take(MAX_KINDS).filter(|kind| kind.confidence >= 0.01);
        let named: Vec<String> =
            likely.map(|kind| format!("{} ({:.0} %)", kind.kind, kind.confidence * 100.0)).collect();
        return format!("similar to {}", named.join(", "));
    }
    let nearest = kinds.iter().min_by(|a, b| a.distance.total_cmp(&b.distance));
    let nearest = nearest.map_or(String::new(), |kind| {
        format!("; the nearest is {}, {:.1} times its radius away", kind.kind, kind.distance)
    });
    format!("outside the region of every known kind{nearest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_outside_every_region_gets_no_percentage() {
        let kind = |name: &str, confidence, distance: f64| KindMatch {
            kind: name.into(),
            confidence,
            distance,
            is_inside: distance <= 1.0,
        };
        assert_eq!(
            kinds_text(&[kind("bad-io", 0.97, 0.8), kind("np", 0.03, 4.0)]),
            "similar to bad-io (97 %), np (3 %)"
        );
        assert_eq!(
            kinds_text(&[kind("bad-io", 1.0, 3.2), kind("np", 0.0, 9.0)]),
            "outside the region of every known kind; the nearest is bad-io, 3.2 times its radius away"
        );
    }
}
