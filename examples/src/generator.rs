//! A generator of job traces: blocks of consecutive jobs, drawn at random from the real trace (a block bootstrap).

use jobs::error::TraceError;
use jobs::{FeatureTable, Trace};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

#[derive(Debug, Clone)]
pub struct Blocks {
    jobs: FeatureTable,
    n_block: usize,
}

impl Blocks {
    /// Blocks of `n_block` jobs; longer blocks keep more of the order of jobs, and copy more.
    pub fn fit(trace: &Trace, n_block: usize) -> Result<Self, TraceError> {
        let jobs = trace.features()?;
        let n_block = n_block.clamp(1, jobs.n_jobs());
        Ok(Self { jobs, n_block })
    }

    /// The features of consecutive jobs; the interval since the previous job is the first.
    #[must_use]
    pub fn sample(&self, n_jobs: usize, seed: u64) -> FeatureTable {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let n_starts = self.jobs.n_jobs() - self.n_block + 1;
        let mut rows = Vec::with_capacity(n_jobs + self.n_block);
        while rows.len() < n_jobs {
            let start = rng.random_range(0..n_starts);
            rows.extend(start..start + self.n_block);
        }
        rows.truncate(n_jobs);
        self.jobs.select(&rows)
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use jobs::fidelity::{CompareConfig, compare};
    use jobs::trace::ReadOptions;
    use jobs::{Preset, Role};
    use workload::Stop;

    use super::*;

    /// Sessions of five jobs, with a pause after each.
    fn trace() -> Trace {
        let mut text =
            "u_id,user,gpu_num,cpu_num,node_num,interval,run_time,wall_time,new_status\n".to_owned();
        for job in 0..400 {
            let (user, nodes) = (job / 5 % 7, 1 + job / 5 % 3);
            let interval = if job % 5 == 0 { 600 + job % 90 } else { 5 };
            let run = 60 + job * 37 % 1_000;
            writeln!(text, "{job},{user},0,{},{nodes},{interval},{run},3600,Pass", nodes * 32).unwrap();
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace.csv");
        std::fs::write(&path, text).unwrap();
        Trace::read(&path, &ReadOptions::preset(Preset::Dirlab)).unwrap()
    }

    #[test]
    fn a_sample_resembles_the_trace_and_its_seed_determines_it() {
        let trace = trace();
        let blocks = Blocks::fit(&trace, 20).unwrap();
        let synthetic = blocks.sample(300, 1);
        assert_eq!(synthetic.n_jobs(), 300);
        assert!(synthetic == blocks.sample(300, 1) && synthetic != blocks.sample(300, 2));
        assert!(synthetic.with_role(Role::RunTime).is_some());
        let real = trace.features().unwrap();
        let config = CompareConfig { n_nodes: None, seed: 1 };
        let fidelity = compare(&real, &synthetic, config, &Stop::default()).unwrap();
        assert!(fidelity.similarity.column_score > 0.9, "{}", fidelity.summary());
    }
}
