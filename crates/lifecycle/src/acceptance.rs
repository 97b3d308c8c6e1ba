//! Accepted regions: events that resemble one that an administrator called normal are hidden.
//!
//! This is a second stage behind the detector, which stays as it is. A region hides an event that was opened by the same
//! evidence, is not much stronger, and whose window lies near a window of the accepted event.

use detect::{Event, EventSubject, EventWindow, Evidence};
use learn::stats::squared_distance;
use serde::{Deserialize, Serialize};
use workload::{Millis, NodeName};

/// The fraction of an event's windows that have another one of the event within the radius, and how much farther away
/// than that a window of another event may be.
const SPREAD_QUANTILE: f64 = 0.95;
const SPREAD_FACTOR: f64 = 1.5;
/// Events that are stronger than the accepted one by this factor are not hidden.
const MAX_STRONGER: f64 = 2.0;
/// The radius is at most this fraction of the distance to the nearest confirmed anomaly.
const KEEP_AWAY: f64 = 0.5;
/// Windows of an event that are kept.
const MAX_POINTS: usize = 200;

/// Where an accepted region applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AcceptedScope {
    /// On all nodes.
    #[default]
    Cluster,
    /// On the node of the event.
    Node,
}

impl AcceptedScope {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cluster => "cluster",
            Self::Node => "node",
        }
    }
}

impl std::str::FromStr for AcceptedScope {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "cluster" => Ok(Self::Cluster),
            "node" => Ok(Self::Node),
            _ => Err(format!("{text:?} is not `cluster` or `node`")),
        }
    }
}

/// Why an event cannot be accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotAccepted {
    #[error(
        "an event of the whole cluster cannot be accepted; exclude its time instead: tracewise exclude add"
    )]
    Cluster,
    #[error("the archive no longer has the readings of the event")]
    NoWindows,
    #[error("it resembles event {0}, which was confirmed as an anomaly")]
    Resembles(String),
}

/// What one verdict hides, in the embedding space of one model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AcceptedRegion {
    subject: EventSubject,
    level: Evidence,
    /// Only events of this node.
    node: Option<NodeName>,
    points: Vec<Vec<f32>>,
    pub radius: f64,
    max_strength: f64,
}

impl AcceptedRegion {
    /// The region around the windows of an event. `anomalies` are the embeddings of confirmed anomalies, which it never
    /// covers.
    pub fn around<'a>(
        event: &Event,
        windows: &[EventWindow],
        scope: AcceptedScope,
        window_length: Millis,
        anomalies: impl IntoIterator<Item = (&'a str, &'a [f32])>,
    ) -> Result<Self, NotAccepted> {
        if event.subject == EventSubject::Cluster {
            return Err(NotAccepted::Cluster);
        }
        if windows.is_empty() {
            return Err(NotAccepted::NoWindows);
        }
        let every = windows.len().div_ceil(MAX_POINTS);
        let kept: Vec<&EventWindow> = windows.iter().step_by(every).collect();
        let radius = spread(&kept, window_length) * SPREAD_FACTOR;
        let mut points: Vec<Vec<f32>> = kept.iter().map(|window| window.finding.embedding.clone()).collect();
        points.dedup();
        let mut region = Self {
            subject: event.subject,
            level: event.level,
            node: event.node.clone().filter(|_| scope == AcceptedScope::Node),
            points,
            radius,
            max_strength: event.strength * MAX_STRONGER,
        };
        for (id, anomaly) in anomalies {
            let distance = region.distance(anomaly);
            // The windows of both overlap: no radius separates them.
            if distance < radius / SPREAD_FACTOR * KEEP_AWAY {
                return Err(NotAccepted::Resembles(id.to_owned()));
            }
            region.radius = region.radius.min(distance * KEEP_AWAY);
        }
        Ok(region)
    }

    /// Whether an event of the same model is hidden.
    pub fn hides(&self, event: &Event) -> bool {
        event.subject == self.subject
            && event.level == self.level
            && event.strength <= self.max_strength
            && self.node.as_ref().is_none_or(|node| event.node.as_ref() == Some(node))
            && self.distance(&event.embedding) <= self.radius
    }

    /// Makes the region smaller, if it must be, so that it does not reach an event that was confirmed as an anomaly.
    /// Events that other evidence opened are not hidden anyway.
    pub fn keep_away_from(&mut self, anomaly: &Event) {
        if anomaly.level == self.level {
            self.radius = self.radius.min(self.distance(&anomaly.embedding) * KEEP_AWAY);
        }
    }

    /// The distance to the nearest window of the accepted event.
    fn distance(&self, embedding: &[f32]) -> f64 {
        let same = self.points.iter().filter(|point| point.len() == embedding.len());
        same.map(|point| squared_distance(point, embedding)).fold(f64::INFINITY, f64::min).sqrt()
    }
}

/// How far the windows of an event are from each other: the distance within which nearly all of them have another one
/// that does not overlap with them. Threads of a job may share an embedding, so windows of the same time do not count.
fn spread(windows: &[&EventWindow], window_length: Millis) -> f64 {
    let (Some(first), Some(last)) = (windows.first(), windows.last()) else { return 0.0 };
    // All windows of a short event overlap.
    let min_gap = window_length.0.min((last.start - first.start).0 / 2).max(1);
    let mut nearest: Vec<f64> = Vec::new();
    for window in windows {
        let others = windows.iter().filter(|other| (other.start - window.start).0.abs() >= min_gap);
        let distances =
            others.map(|other| squared_distance(&other.finding.embedding, &window.finding.embedding));
        let least = distances.fold(f64::INFINITY, f64::min).sqrt();
        if least.is_finite() {
            nearest.push(least);
        }
    }
    nearest.sort_by(f64::total_cmp);
    let place = (nearest.len() as f64 * SPREAD_QUANTILE) as usize;
    nearest.get(place).or(nearest.last()).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use detect::Finding;
    use serde_json::json;
    use workload::{Owner, Timestamp};

    use super::*;

    const LENGTH: Millis = Millis(100_000);

    fn event(id: &str, embedding: &[f32]) -> Event {
        let document = json!({
            "id": id, "subject": "job", "node": "n1", "nodes": ["n1"], "jobs": ["1"], "threads": [0],
            "start": 0, "end": null, "opened": 100, "strength": 1.5, "level": "job", "channels": [], "kinds": [],
            "certainty": 0.9, "why": "",
        });
        let mut event: Event = serde_json::from_value(document).unwrap();
        event.embedding = embedding.to_vec();
        event
    }

    /// Windows along a line, 0.1 apart.
    fn windows() -> Vec<EventWindow> {
        let window = |at: i64| EventWindow {
            start: Timestamp(at * LENGTH.0),
            owner: Owner::Nobody,
            finding: Finding::from_reconstruction(&[0.0; 4], vec![0.0; 4], vec![at as f32 * 0.1, 0.0], 4),
            usage: None,
        };
        (0..20).map(window).collect()
    }

    fn region(anomalies: &[(&str, &[f32])]) -> Result<AcceptedRegion, NotAccepted> {
        let scope = AcceptedScope::Node;
        let accepted = event("a", &[0.0, 0.0]);
        AcceptedRegion::around(&accepted, &windows(), scope, LENGTH, anomalies.iter().copied())
    }

    #[test]
    fn a_region_hides_similar_events_only() {
        let region = region(&[]).unwrap();
        assert!((region.radius - 0.15).abs() < 1e-6, "{}", region.radius);
        let near = event("b", &[1.04, 0.1]);
        assert!(region.hides(&near));
        assert!(!region.hides(&event("b", &[1.0, 0.2])), "too far away");
        assert!(!region.hides(&Event { strength: 3.1, ..near.clone() }), "much stronger");
        assert!(!region.hides(&Event { level: Evidence::Memory, ..near.clone() }), "for another reason");
        assert!(!region.hides(&Event { node: Some(NodeName::new("n2").unwrap()), ..near }));
        assert!(!region.hides(&event("b", &[1.0])), "of another model");
    }

    #[test]
    fn threads_that_share_an_embedding_do_not_shrink_a_region() {
        let shared: Vec<EventWindow> =
            windows().into_iter().flat_map(|window| [window.clone(), window]).collect();
        let accepted = event("a", &[0.0, 0.0]);
        let region = AcceptedRegion::around(&accepted, &shared, AcceptedScope::Cluster, LENGTH, []).unwrap();
        assert!((region.radius - 0.15).abs() < 1e-6, "{}", region.radius);
        assert!(region.hides(&event("b", &[1.04, 0.1])));
    }

    #[test]
    fn the_windows_of_a_short_event_may_overlap() {
        let short: Vec<EventWindow> = windows()
            .into_iter()
            .take(4)
            .map(|window| EventWindow { start: Timestamp(window.start.0 / 10), ..window })
            .collect();
        let accepted = event("a", &[0.0, 0.0]);
        let region = AcceptedRegion::around(&accepted, &short, AcceptedScope::Cluster, LENGTH, []).unwrap();
        assert!(region.radius > 0.1 && region.radius < 0.4, "{}", region.radius);
    }

    #[test]
    fn a_region_never_covers_a_confirmed_anomaly() {
        let anomaly: &[f32] = &[1.0, 0.12];
        let narrow = region(&[("bad", anomaly)]).unwrap();
        assert!((narrow.radius - 0.06).abs() < 1e-6, "{}", narrow.radius);
        assert!(!narrow.hides(&event("b", anomaly)));
        let inside: &[f32] = &[1.0, 0.01];
        assert_eq!(region(&[("bad", inside)]), Err(NotAccepted::Resembles("bad".into())));
    }

    #[test]
    fn events_of_the_cluster_and_without_readings_are_not_accepted() {
        let cluster = Event { subject: EventSubject::Cluster, ..event("a", &[0.0]) };
        let around = |event: &Event, windows: &[EventWindow]| {
            AcceptedRegion::around(event, windows, AcceptedScope::Cluster, LENGTH, []).unwrap_err()
        };
        assert_eq!(around(&cluster, &windows()), NotAccepted::Cluster);
        assert_eq!(around(&event("a", &[0.0]), &[]), NotAccepted::NoWindows);
    }
}
