//! The service: takes readings from agents, remote write and simulations, stores and scores them, and serves events,
//! scores and metrics over HTTP.

mod counts;
mod error;
pub mod http;
mod ingest;
mod input;
mod live;
mod models;
mod recorder;
pub mod remote_write;
mod scoring;
mod service;
mod settings;

pub use counts::{Counts, Input};
pub use error::ServeError;
pub use service::{Running, Service, Simulation, start};
pub use settings::{AgentSettings, ExportSettings, Length, ScoringSettings, ServeSettings, SettingsError};
