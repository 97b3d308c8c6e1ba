//! Names of the agent's metrics that another crate looks for in a Prometheus.

use crate::JobReading;

/// Counter of the seconds each hardware thread spent in each mode; labels `cpu` and `mode`.
pub const CPU_SECONDS: &str = "tracewise_cpu_seconds_total";

/// Who owns each hardware thread; labels `cpu`, `owner` (see [`Owner::state`](crate::Owner::state)) and
/// `jobid`.
pub const CPU_OWNER: &str = "tracewise_cpu_owner_info";

/// When the files of a job were read last, in seconds since the epoch; label `jobid`. [`JOB_COUNTS`] are
/// as they were then.
pub const JOB_READ_TIME: &str = "tracewise_job_read_timestamp_seconds";

/// What the files of a job had, in the order of [`JobReading::COUNTS`] without the last of them, which is
/// [`NODE_MEMORY`]; label `jobid`. Times are in seconds.
pub const JOB_COUNTS: [&str; JobReading::N_COUNTS - 1] = [
    "tracewise_job_memory_bytes",
    "tracewise_job_memory_peak_bytes",
    "tracewise_job_memory_limit_bytes",
    "tracewise_job_pressure_cpu_waiting_seconds_total",
    "tracewise_job_pressure_cpu_stalled_seconds_total",
    "tracewise_job_pressure_memory_waiting_seconds_total",
    "tracewise_job_pressure_memory_stalled_seconds_total",
    "tracewise_job_pressure_io_waiting_seconds_total",
    "tracewise_job_pressure_io_stalled_seconds_total",
    "tracewise_job_cpu_user_seconds_total",
    "tracewise_job_cpu_system_seconds_total",
];

/// The memory of the node.
pub const NODE_MEMORY: &str = "tracewise_memory_mem_total_bytes";
