//! State of the service that outlives it: events and their history, verdicts, models and who promoted them, what has been
//! delivered to whom, access tokens, and an audit log. Kept in SQLite or PostgreSQL through the same statements. Clocks are
//! parameters.

mod acceptance;
mod audit;
mod cadence;
mod competition;
mod deliveries;
mod diagnoses;
mod differences;
mod drift;
mod events;
mod exclusions;
mod policy;
mod regions;
mod registry;
mod schema;
mod shadow;
mod silences;
mod store;
mod tokens;
mod verdicts;
mod vetting;

pub use acceptance::{AcceptedRegion, AcceptedScope, NotAccepted};
pub use audit::{AuditEntry, AuditError};
pub use cadence::{Cadence, CadenceAtSize};
pub use competition::{
    Assignment, Candidate, Entrant, EpochLoss, Held, Night, NightError, NightSettings, NightStep,
    NightTimings, OnAnomalies, Plan,
};
pub use diagnoses::{DiagnosedWindow, Diagnosis, MIN_DIAGNOSED, NewDiagnosis};
pub use differences::Difference;
pub use drift::{Distance, Drift};
pub use events::{EventFilter, EventPage, RecordedChange, RecordedEvent, SimilarEvent};
pub use exclusions::Exclusion;
pub use policy::{Decision, Figures, Policy};
pub use regions::RegionInForce;
pub use registry::{Alias, Loaded, ModelVersion, Move, Promotion, Registry, RegistryError};
pub use shadow::{ShadowFigures, ShadowOutcome, is_same_event, judge_shadow};
pub use silences::Silence;
pub use store::{Store, StoreError};
pub use tokens::{NewToken, Role, Secret, Session, Token};
pub use verdicts::{Answer, NewVerdict, Standing, VETTED, Verdict, VettedEvent, VettingFigures};
pub use vetting::{KnownPoints, Preview, Vetting, VettingError};
