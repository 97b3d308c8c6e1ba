//! Which thread works for which job.

use std::collections::BTreeMap;

use workload::{Cpu, JobId, Owner, ThreadReading};

use crate::cgroup::Job;

/// Who owns each thread, according to cpusets.
#[derive(Debug, Clone, Default)]
pub struct Ownership {
    jobs_of: BTreeMap<Cpu, Vec<JobId>>,
    /// Jobs that may run anywhere.
    pub unconfined: Vec<JobId>,
    /// Some job may have been missed.
    pub is_incomplete: bool,
}

impl Ownership {
    pub fn of<'a>(jobs: impl Iterator<Item = &'a Job>) -> Self {
        let mut ownership = Self::default();
        for job in jobs {
            match &job.cpus {
                Some(cpus) => cpus.iter().for_each(|cpu| {
                    let jobs = ownership.jobs_of.entry(cpu).or_default();
                    // A job may have several groups.
                    if !jobs.contains(&job.id) {
                        jobs.push(job.id.clone());
                    }
                }),
                None => ownership.unconfined.push(job.id.clone()),
            }
        }
        ownership
    }

    /// One confined job owns a thread; several share it; none leaves it to nobody, unless a job
    /// without a cpuset, or one that was missed, may be running on it, which cannot be known.
    pub fn owner(&self, cpu: Cpu) -> Owner {
        match self.jobs_of.get(&cpu).map(Vec::as_slice) {
            Some([job]) => Owner::Job(job.clone()),
            Some([_, _, ..]) => Owner::Shared,
            _ if self.unconfined.is_empty() && !self.is_incomplete => Owner::Nobody,
            _ => Owner::Unknown,
        }
    }

    pub fn flag(&self, threads: &mut [ThreadReading]) {
        threads.iter_mut().for_each(|thread| thread.owner = self.owner(thread.cpu));
    }
}
