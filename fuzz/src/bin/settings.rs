//! Settings in TOML: plans of campaigns and settings of detectors. What is accepted can be used.
#![no_main]

use campaign::Plan;
use detect::DetectorConfig;
use libfuzzer_sys::fuzz_target;
use workload::Millis;

const N_THREADS: usize = 4;

fuzz_target!(|text: &str| {
    if let Ok(plan) = Plan::from_toml("plan.toml", text, N_THREADS) {
        for campaign in 0..plan.campaign.len().min(4) {
            let jobs = plan.jobs(campaign);
            assert!(jobs.iter().all(|job| (1..=N_THREADS).contains(&usize::from(job.n_threads))));
        }
        let _ = plan.n_writers(N_THREADS);
    }
    if let Ok(config) = DetectorConfig::from_toml(text) {
        assert!(config.window_spec(Millis::SECOND, 1).length() >= Millis::SECOND);
    }
});
