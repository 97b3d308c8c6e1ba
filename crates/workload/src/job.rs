//! Job traces: one record a job, as the batch system accounts for it.

use serde::{Deserialize, Serialize};

/// How a job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobStatus {
    Completed,
    Failed,
    Cancelled,
    TimedOut,
    Unknown,
}

/// One job of a job trace. What a trace does not tell is absent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobRecord {
    /// Seconds since the start of the trace.
    pub submit_seconds: f64,
    pub wait_seconds: Option<f64>,
    pub run_seconds: f64,
    pub requested_seconds: Option<f64>,
    pub n_nodes: Option<u32>,
    pub n_cores: Option<u32>,
    pub n_gpus: Option<u32>,
    /// The user's number in the trace; traces are anonymous.
    pub user: Option<u32>,
    pub status: JobStatus,
}

#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum JobRecordError {
    #[error("{field} is {value}, but a time in a job record is finite and not negative")]
    NotATime { field: &'static str, value: f64 },
    #[error("{field} is zero, but a job that asks for it asks for at least one")]
    Zero { field: &'static str },
}

impl JobRecord {
    /// Refuses what no batch system can mean: negative or infinite times, jobs on no node.
    /// A run longer than requested is allowed, since real traces have them.
    pub fn check(&self) -> Result<(), JobRecordError> {
        let times = [
            ("submit time", Some(self.submit_seconds)),
            ("wait time", self.wait_seconds),
            ("run time", Some(self.run_seconds)),
            ("requested time", self.requested_seconds),
        ];
        for (field, value) in times {
            if let Some(value) = value.filter(|seconds| !seconds.is_finite() || *seconds < 0.0) {
                return Err(JobRecordError::NotATime { field, value });
            }
        }
        for (field, value) in [("number of nodes", self.n_nodes), ("number of cores", self.n_cores)] {
            if value == Some(0) {
                return Err(JobRecordError::Zero { field });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> JobRecord {
        JobRecord {
            submit_seconds: 0.0,
            wait_seconds: Some(3.0),
            run_seconds: 7_300.0,
            requested_seconds: Some(7_200.0),
            n_nodes: Some(1),
            n_cores: None,
            n_gpus: Some(0),
            user: Some(4),
            status: JobStatus::TimedOut,
        }
    }

    #[test]
    fn a_job_may_run_longer_than_it_asked_for() {
        assert_eq!(record().check(), Ok(()));
    }

    #[test]
    fn times_are_finite_and_not_negative() {
        for bad in [-1.0, f64::NAN, f64::INFINITY] {
            let record = JobRecord { run_seconds: bad, ..record() };
            assert!(matches!(record.check(), Err(JobRecordError::NotATime { field: "run time", .. })));
        }
    }

    #[test]
    fn a_job_runs_on_at_least_one_node() {
        let record = JobRecord { n_nodes: Some(0), ..record() };
        assert_eq!(record.check(), Err(JobRecordError::Zero { field: "number of nodes" }));
    }
}
