//! Settings in TOML: plans of campaigns and settings of detectors. What is accepted can be used.
#![no_main]

use campaign::Plan;
use detect::DetectorConfig;
use libfuzzer_sys::fuzz_target;
use workload::Millis;

const N_THREADS: usize = 4;

fuzz_target!(|text: &str| {
    let (plan, config) = (Plan::from_toml("plan.toml", text, N_THREADS), DetectorConfig::from_toml(text));
    fuzz::expect(plan.is_ok() || config.is_ok());
    if let Ok(plan) = plan {
        for campaign in 0..plan.campaign.len().min(4) {
            let jobs = plan.jobs(campaign);
            assert!(jobs.iter().all(|job| (1..=N_THREADS).contains(&usize::from(job.n_threads))));
        }
        let _ = plan.n_writers(N_THREADS);
    }
    if let Ok(config) = config {
        assert!(config.window_spec(Millis::SECOND, 1).length() >= Millis::SECOND);
    }
});
