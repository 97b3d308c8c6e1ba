//! The structure of events for the OpenAPI document. A test compares it with what is sent.

use utoipa::ToSchema;

/// An anomaly, from its beginning to its end. Times are seconds since 1970.
#[derive(ToSchema)]
#[allow(dead_code, reason = "only its schema is used")]
pub struct Event {
    pub id: String,
    /// `job`, `node` or `cluster`.
    pub subject: String,
    /// Where it began; null for the cluster.
    pub node: Option<String>,
    pub nodes: Vec<String>,
    /// The responsible job first, then those that it affects.
    pub jobs: Vec<String>,
    /// Hardware threads that deviate.
    pub threads: Vec<u16>,
    pub start: f64,
    /// Null while it is open.
    pub end: Option<f64>,
    /// When there was enough evidence.
    pub opened: f64,
    /// The largest evidence in units of its threshold.
    pub strength: f64,
    /// The source of the evidence.
    pub level: String,
    pub channels: Vec<String>,
    pub kinds: Vec<Kind>,
    pub certainty: f64,
    pub why: String,
    /// The version of the model that found it.
    pub model: String,
    /// The verdict about a similar event that hides it; null if it is reported.
    pub hidden_by: Option<i64>,
    /// What the verdicts about it add up to: `unvetted`, `anomaly`, `normal`, `unsure` or `disputed`.
    pub standing: String,
}

/// A known kind of job that an event resembles.
#[derive(ToSchema)]
#[allow(dead_code, reason = "only its schema is used")]
pub struct Kind {
    pub kind: String,
    pub confidence: f64,
    pub distance: f64,
    pub is_inside: bool,
}

/// A past event that resembles another.
#[derive(ToSchema)]
#[allow(dead_code, reason = "only its schema is used")]
pub struct SimilarEvent {
    pub event: Event,
    /// The distance of their embeddings.
    pub distance: f64,
}
