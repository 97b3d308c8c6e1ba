//! State of the service that outlives it: events and their history, models and who promoted them, what has been delivered
//! to whom, access tokens, and an audit log. Kept in SQLite or PostgreSQL through the same statements. Clocks are parameters.

mod audit;
mod deliveries;
mod events;
mod registry;
mod schema;
mod store;
mod tokens;

pub use audit::{AuditEntry, AuditError};
pub use events::{EventFilter, EventPage, RecordedChange, RecordedEvent, SimilarEvent};
pub use registry::{Alias, Difference, Loaded, ModelVersion, Move, Promotion, Registry, RegistryError};
pub use store::{Store, StoreError};
pub use tokens::{NewToken, Role, Secret, Session, Token};
