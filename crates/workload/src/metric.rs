//! Names of the agent's metrics that another crate looks for in a Prometheus.

/// Counter of the seconds each hardware thread spent in each mode; labels `cpu` and `mode`.
pub const CPU_SECONDS: &str = "tracewise_cpu_seconds_total";

/// Who owns each hardware thread; labels `cpu`, `owner` (see [`Owner::state`](crate::Owner::state)) and
/// `jobid`.
pub const CPU_OWNER: &str = "tracewise_cpu_owner_info";
