//! A small synthetic trace with sessions: users who submit several similar jobs in a row.

use std::fmt::Write;

use jobs::trace::ReadOptions;
use jobs::{Preset, Trace};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

pub const HEADER: &str = "u_id,user,gpu_num,cpu_num,node_num,interval,run_time,wall_time,new_status";

/// CSV in the layout of preset dirlab.
pub fn csv(n_jobs: usize, seed: u64) -> String {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut text = format!("{HEADER}\n");
    let (mut user, mut nodes, mut left) = (0, 1, 0);
    for job in 0..n_jobs {
        let is_first = left == 0;
        if is_first {
            user = rng.random_range(0..12);
            nodes = [1, 2, 8, 128][user % 4];
            left = rng.random_range(1..8);
        }
        left -= 1;
        let interval = if is_first { rng.random_range(60..4_000) } else { rng.random_range(1..20) };
        let wall = [600, 3_600, 21_600][user % 3];
        let run = rng.random_range(0.02..1.02) * f64::from(wall);
        let status = if run > f64::from(wall) { "Killed" } else { "Pass" };
        let cores = nodes * 64;
        writeln!(text, "{job},{user},0,{cores},{nodes},{interval},{run:.2},{wall},{status}").unwrap();
    }
    text
}

pub fn trace_of(text: &str, preset: Preset) -> jobs::Result<Trace> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.csv");
    std::fs::write(&path, text).unwrap();
    Trace::read(&path, &ReadOptions::preset(preset))
}

pub fn trace(n_jobs: usize) -> Trace {
    trace_of(&csv(n_jobs, 1), Preset::Dirlab).unwrap()
}
