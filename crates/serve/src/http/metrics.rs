//! `/metrics`: scores of nodes, jobs and events, and what the service counts about itself.

use std::sync::Arc;
use std::time::SystemTime;

use agent::exposition::{Family, Format, Kind, Page, Sink};
use axum::extract::State;
use axum::http::HeaderMap;
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use lifecycle::{Night, RecordedEvent, ShadowFigures, VettingFigures};
use workload::{Millis, Timestamp};

use crate::live::{JobScore, Live};
use crate::service::Service;
use crate::settings::ServeSettings;

/// The days over which verdicts are counted.
const VETTED_DAYS: [i64; 2] = [7, 30];

/// The page in the format that the client accepts.
pub async fn page(State(service): State<Arc<Service>>, headers: HeaderMap) -> Response {
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let format = Format::accepted(accept);
    let mut page = Page::new(format, 1 << 16);
    expose(&service, &mut page).await;
    ([(CONTENT_TYPE, format.content_type())], page.finish()).into_response()
}

/// Everything that is exported.
pub async fn expose(service: &Service, sink: &mut impl Sink) {
    let open = service.store.reported_events().await;
    service.counts.expose(sink);
    expose_memory(sink);
    let settings = service.settings();
    if let Some(model) = service.scoring.current_model() {
        let live = service.scoring.live();
        let detector = model.detector.kind.name();
        Scores { settings: &settings, detector, version: &model.version }.expose(&live, sink);
    }
    if let Ok(open) = open {
        expose_events(&open, &settings.cluster, sink);
    }
    let now = Timestamp::from(SystemTime::now());
    let mut figures = Vec::new();
    for days in VETTED_DAYS {
        let since = now - Millis(days * Millis::DAY.0);
        figures.extend(service.store.vetting_figures(since).await.ok().map(|figures| (days, figures)));
    }
    expose_vetting(&figures, sink);
    if let Ok(nights) = service.store.nights(1).await {
        expose_night(nights.first(), sink);
    }
    let challenger = service.registry.challenger().await.ok().flatten().map(|holder| holder.version);
    let figures = match &challenger {
        Some(version) => service.store.shadow_figures(version).await.ok().flatten(),
        None => None,
    };
    expose_shadow(challenger.as_deref().unwrap_or_default(), figures.as_ref(), sink);
}

/// What the challenger would have reported.
fn expose_shadow(version: &str, figures: Option<&ShadowFigures>, sink: &mut impl Sink) {
    type Value = fn(&ShadowFigures) -> f64;
    let families: [(&str, &str, Value); 3] = [
        ("tracewise_shadow_hours", "For how long the challenger has scored in shadow mode.", |one| one.hours),
        ("tracewise_shadow_events", "Events that the challenger would have reported.", |one| {
            one.n_events as f64
        }),
        ("tracewise_shadow_champion_events", "Events that the champion reported in the same time.", |one| {
            one.n_champion_events as f64
        }),
    ];
    for (name, help, value) in families {
        sink.family(Family { name, kind: Kind::Gauge, help });
        if let Some(figures) = figures {
            sink.sample(&[("model_version", version)], value(figures), None);
        }
    }
}

/// How good events were, by the verdicts about them.
fn expose_vetting(figures: &[(i64, VettingFigures)], sink: &mut impl Sink) {
    type Value = fn(&VettingFigures) -> Option<f64>;
    let families: [(&str, &str, Value); 4] = [
        (
            "tracewise_events_precision",
            "Confirmed anomalies as a fraction of events with a clear verdict.",
            VettingFigures::precision,
        ),
        (
            "tracewise_events_unvetted_ratio",
            "The fraction of events without a verdict.",
            VettingFigures::unvetted,
        ),
        (
            "tracewise_verdict_delay_seconds",
            "The median time from an event to its first verdict.",
            |figures| figures.seconds_to_verdict,
        ),
        ("tracewise_events_hidden", "Events that verdicts hid.", |figures| Some(figures.n_hidden as f64)),
    ];
    for (name, help, value) in families {
        sink.family(Family { name, kind: Kind::Gauge, help });
        for (days, figures) in figures {
            if let Some(value) = value(figures) {
                sink.sample(&[("days", &days.to_string())], value, None);
            }
        }
    }
}

/// How long the parts of the last competition took.
fn expose_night(night: Option<&Night>, sink: &mut impl Sink) {
    let help = "The time that each part of the last competition took.";
    sink.family(Family { name: "tracewise_competition_seconds", kind: Kind::Gauge, help });
    for (part, seconds) in night.iter().flat_map(|night| night.timings.parts()) {
        sink.sample(&[("part", part)], seconds, None);
    }
    let help = "How much the jobs of the last competition differ from the champion's, as a ratio to chance.";
    sink.family(Family { name: "tracewise_drift_ratio", kind: Kind::Gauge, help });
    for distance in night.iter().filter_map(|night| night.drift.as_ref()).flat_map(|drift| &drift.distances) {
        let ratio = distance.distance / distance.threshold.max(f64::MIN_POSITIVE);
        sink.sample(&[("quantity", &distance.name)], ratio, None);
    }
    let help = "When models competed last.";
    sink.family(Family { name: "tracewise_competition_timestamp_seconds", kind: Kind::Gauge, help });
    if let Some(night) = night {
        sink.sample(&[], night.time.0 as f64 / 1e3, None);
    }
}

fn expose_memory(sink: &mut impl Sink) {
    let resident = std::fs::read_to_string("/proc/self/statm")
        .ok()
        .and_then(|text| text.split(' ').nth(1)?.parse::<u64>().ok())
        .unwrap_or(0);
    let help = "Memory that the service uses.";
    sink.family(Family { name: "process_resident_memory_bytes", kind: Kind::Gauge, help });
    sink.sample(&[], (resident * rustix::param::page_size() as u64) as f64, None);
}

struct Scores<'a> {
    settings: &'a ServeSettings,
    detector: &'a str,
    version: &'a str,
}

impl Scores<'_> {
    fn expose(&self, live: &Live, sink: &mut impl Sink) {
        let (cluster, model) = (self.settings.cluster.as_str(), self.detector);
        let version = self.version;
        let summaries = live.summaries();
        let gauge = |name, help| Family { name, kind: Kind::Gauge, help };
        sink.family(gauge("anomaly_score", "The evidence for an anomaly; above 1 is anomalous."));
        let mut jobs: Vec<(&str, &str, &JobScore)> = Vec::new();
        for (name, node) in &live.nodes {
            jobs.extend(node.jobs.iter().map(|(job, score)| (name.as_str(), job.as_str(), score)));
        }
        jobs.sort_by(|a, b| b.2.score.total_cmp(&a.2.score));
        let n_exported = jobs.len().min(self.settings.export.max_jobs);
        for one in &summaries {
            let labels = [
                ("cluster", cluster),
                ("node", one.node.as_str()),
                ("model", model),
                ("model_version", version),
            ];
            sink.sample(&labels, one.max_score, None);
        }
        for (node, job, score) in &jobs[..n_exported] {
            let labels = [
                ("cluster", cluster),
                ("node", node),
                ("jobid", job),
                ("model", model),
                ("model_version", version),
            ];
            sink.sample(&labels, score.score, None);
        }
        if self.settings.export.threads {
            for (name, node) in &live.nodes {
                for thread in &node.threads {
                    let (cpu, job) =
                        (thread.cpu.0.to_string(), thread.job.as_ref().map_or("", |job| job.as_str()));
                    let labels = [
                        ("cluster", cluster),
                        ("node", name.as_str()),
                        ("cpu", cpu.as_str()),
                        ("jobid", job),
                        ("model", model),
                        ("model_version", version),
                    ];
                    sink.sample(&labels, thread.score, None);
                }
            }
        }
        sink.family(gauge(
            "tracewise_node_score_p99",
            "The 99th percentile of the scores of a node's threads.",
        ));
        for one in &summaries {
            sink.sample(&[("cluster", cluster), ("node", one.node.as_str())], one.p99_score, None);
        }
        sink.family(gauge("tracewise_node_anomalous_threads", "Threads of a node with a score above 1."));
        for one in &summaries {
            sink.sample(&[("cluster", cluster), ("node", one.node.as_str())], one.n_anomalous as f64, None);
        }
        sink.family(gauge(
            "tracewise_job_reconstruction_error",
            "The mean reconstruction error of a job's threads.",
        ));
        for (node, job, score) in &jobs[..n_exported] {
            sink.sample(&[("cluster", cluster), ("node", node), ("jobid", job)], score.error, None);
        }
        sink.family(gauge("tracewise_jobs_omitted", "Jobs without series of their own."));
        sink.sample(&[], (jobs.len() - n_exported) as f64, None);
    }
}

fn expose_events(open: &[RecordedEvent], cluster: &str, sink: &mut impl Sink) {
    let help = "The strength of an open event.";
    sink.family(Family { name: "tracewise_event_strength", kind: Kind::Gauge, help });
    for RecordedEvent { event, .. } in open {
        let (subject, level) = (event.subject.to_string(), event.level.name());
        let node = event.node.as_ref().map_or("", |node| node.as_str());
        let job = event.jobs.first().map_or("", |job| job.as_str());
        let labels = [
            ("cluster", cluster),
            ("event", event.id.as_str()),
            ("subject", subject.as_str()),
            ("node", node),
            ("jobid", job),
            ("level", level),
        ];
        sink.sample(&labels, event.strength, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counts::Counts;

    /// Keeps which families there are.
    #[derive(Default)]
    struct Families(Vec<(String, Kind, String)>);

    impl Sink for Families {
        fn family(&mut self, family: Family<'_>) {
            self.0.push((family.name.to_owned(), family.kind, family.help.to_owned()));
        }

        fn sample(&mut self, _: &[(&str, &str)], _: f64, _: Option<Timestamp>) {}
    }

    /// All metrics, as rows of a table.
    pub fn table() -> String {
        let mut families = Families::default();
        Counts::default().expose(&mut families);
        expose_memory(&mut families);
        let settings = ServeSettings::default();
        Scores { settings: &settings, detector: "", version: "" }.expose(&Live::default(), &mut families);
        expose_events(&[], "", &mut families);
        expose_vetting(&[], &mut families);
        expose_night(None, &mut families);
        expose_shadow("", None, &mut families);
        families.0.sort_by(|a, b| a.0.cmp(&b.0));
        let row = |(name, kind, help): &(String, Kind, String)| {
            let kind = match kind {
                Kind::Counter => "counter",
                Kind::Gauge => "gauge",
                Kind::Info => "info",
            };
            format!("| `{name}` | {kind} | {help} |\n")
        };
        families.0.iter().map(row).collect()
    }

    #[test]
    fn the_reference_in_the_repository_is_current() {
        testbed::check_document("serve-reference.md", &crate::http::tests::reference(&table()));
    }
}
