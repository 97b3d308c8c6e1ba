//! The service: takes readings from agents, remote write and simulations, stores and scores them, and serves events,
//! scores and metrics over HTTP.

mod alerts;
mod backtest;
mod counts;
mod embeddings;
mod error;
mod export;
pub mod http;
mod ingest;
mod input;
mod job_traces;
pub mod learning;
mod live;
pub mod mlflow;
mod modelling;
mod models;
mod notify;
mod operations;
mod peer;
mod recorder;
pub mod rehearsal;
mod reload;
pub mod remote_write;
mod scoring;
mod service;
mod settings;
mod shadow;
mod similar_jobs;
mod tasks;
mod traces;
mod uploads;
mod usage;
mod workflow_runs;

pub use counts::{Counts, Ignored, Input};
pub use error::ServeError;
pub use learning::LearningSettings;
pub use notify::Supervisor;
pub use service::{Running, Service, Simulation, start};
pub use settings::{
    AgentSettings, AlertSettings, ExportSettings, Length, LoginSettings, MlflowSettings, OidcSettings,
    PollSettings, ReceiverKind, ReceiverSettings, RequestLimits, ScoringSettings, ServeSettings,
    SettingsError,
};
