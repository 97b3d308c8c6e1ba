//! Readings of jobs, put together from the agent's metrics.
//!
//! These metrics carry the time of the scrape: several scrapes may repeat one reading, and the first comes
//! after it. When the files of a job were read is a metric of its own, which is the time of the reading.

use std::collections::BTreeMap;
use std::ops::Range;

use workload::{JobId, JobReading, NodeName, NodeReading, Timestamp, metric};

use super::server::{Series, time_of};
use crate::Loader;
use crate::error::Result;

/// A sample is a floating-point number. Above this, it may stand for several numbers of bytes.
const MOST_BYTES: f64 = (1_u64 << 53) as f64;
/// Above this, its seconds may stand for several numbers of microseconds.
const MOST_USEC: f64 = (1_u64 << 51) as f64;

type Counts = [Option<u64>; JobReading::N_COUNTS];

/// Gives a loader the readings of a node's jobs whose files were read within a time range.
///
/// They are readings without threads, because the files of jobs are read less often than threads.
pub fn push_jobs(
    loader: &mut Loader,
    node: &NodeName,
    series: &[Series],
    within: &Range<Timestamp>,
) -> Result<()> {
    for (time, jobs) in readings(series, within) {
        loader.push_node(&NodeReading { node: node.clone(), time, threads: Vec::new(), jobs })?;
    }
    Ok(())
}

/// The readings of jobs, by the time at which their files were read.
fn readings(series: &[Series], within: &Range<Timestamp>) -> BTreeMap<Timestamp, Vec<JobReading>> {
    let memory = node_memory(series);
    let with_memory = |(time, jobs): (Timestamp, BTreeMap<JobId, Counts>)| {
        // A node's memory hardly ever changes, so the first sample also stands for the time before it.
        let known = memory.range(..=time).next_back().or_else(|| memory.first_key_value());
        let node_memory_bytes = known.map(|(_, bytes)| *bytes);
        let reading = |(job, counts): (JobId, Counts)| JobReading {
            node_memory_bytes,
            ..JobReading::from_counts(job, counts)
        };
        (time, jobs.into_iter().map(reading).collect::<Vec<_>>())
    };
    counts(series, within).into_iter().map(with_memory).collect()
}

/// The counts of each job, by the time at which its files were read.
fn counts(series: &[Series], within: &Range<Timestamp>) -> BTreeMap<Timestamp, BTreeMap<JobId, Counts>> {
    let read_times = read_times(series, within);
    let mut found: BTreeMap<Timestamp, BTreeMap<JobId, Counts>> = BTreeMap::new();
    for one in series {
        let index = metric::JOB_COUNTS.iter().position(|name| one.metric.name == *name);
        let (Some(index), Some(job)) = (index, one.metric.job()) else { continue };
        let Some(of_job) = read_times.get(&job) else { continue };
        for (scraped, value) in &one.values {
            // Without the time at which it was read, a count has no place.
            let Some(read) = of_job.get(&time_of(*scraped)) else { continue };
            let Some(count) = count_of(metric::JOB_COUNTS[index], value) else { continue };
            let jobs = found.entry(*read).or_default();
            jobs.entry(job.clone()).or_insert([None; JobReading::N_COUNTS])[index] = Some(count);
        }
    }
    found
}

/// When the files of each job were read, by the time of the scrape that says so.
fn read_times(
    series: &[Series],
    within: &Range<Timestamp>,
) -> BTreeMap<JobId, BTreeMap<Timestamp, Timestamp>> {
    let mut times: BTreeMap<JobId, BTreeMap<Timestamp, Timestamp>> = BTreeMap::new();
    for one in series.iter().filter(|one| one.metric.name == metric::JOB_READ_TIME) {
        let Some(job) = one.metric.job() else { continue };
        let of_job = times.entry(job).or_default();
        for (scraped, value) in &one.values {
            let seconds = value.parse::<f64>().ok().filter(|seconds| seconds.is_finite());
            let Some(read) = seconds.map(time_of).filter(|read| within.contains(read)) else { continue };
            of_job.insert(time_of(*scraped), read);
        }
    }
    times
}

fn node_memory(series: &[Series]) -> BTreeMap<Timestamp, u64> {
    let of_node = series.iter().filter(|one| one.metric.name == metric::NODE_MEMORY);
    let samples = of_node.flat_map(|one| &one.values);
    samples
        .filter_map(|(time, value)| Some((time_of(*time), count_of(metric::NODE_MEMORY, value)?)))
        .collect()
}

/// The bytes or microseconds that a sample of this metric stands for. None if it is no number, as the mark
/// that ends a series, or one that cannot be told exactly.
fn count_of(name: &str, value: &str) -> Option<u64> {
    let value: f64 = value.parse().ok()?;
    let is_time = name.ends_with("_seconds_total");
    let (count, most) = if is_time { ((value * 1e6).round(), MOST_USEC) } else { (value, MOST_BYTES) };
    ((0.0..=most).contains(&count) && count.fract() == 0.0).then_some(count as u64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const BYTES: &str = "tracewise_job_memory_bytes";
    const SECONDS: &str = "tracewise_job_cpu_user_seconds_total";

    fn series(name: &str, job: Option<&str>, values: &[(f64, &str)]) -> Series {
        let metric = match job {
            Some(job) => json!({"__name__": name, "jobid": job}),
            None => json!({"__name__": name}),
        };
        serde_json::from_value(json!({"metric": metric, "values": values})).unwrap()
    }

    fn readings_of(series: &[Series]) -> BTreeMap<Timestamp, Vec<JobReading>> {
        readings(series, &(Timestamp::from_seconds(0)..Timestamp::from_seconds(100)))
    }

    #[test]
    fn scrapes_of_one_reading_give_one_reading_at_its_own_time() {
        let found = readings_of(&[
            series(SECONDS, Some("7"), &[(11.5, "1.000003"), (12.5, "1.000003"), (21.5, "2")]),
            series(BYTES, Some("7"), &[(11.5, "NaN"), (12.5, "4096"), (21.5, "8192")]),
            series(metric::JOB_READ_TIME, Some("7"), &[(11.5, "10.2"), (12.5, "10.2"), (21.5, "20.25")]),
            series(metric::NODE_MEMORY, None, &[(15.0, "65536"), (20.0, "131072")]),
        ]);
        let reading = |bytes, usec, node_memory| JobReading {
            memory_bytes: Some(bytes),
            cpu_user_usec: Some(usec),
            node_memory_bytes: Some(node_memory),
            ..JobReading::empty(JobId::new("7").unwrap())
        };
        let expected = [
            (Timestamp(10_200), vec![reading(4_096, 1_000_003, 65_536)]),
            (Timestamp(20_250), vec![reading(8_192, 2_000_000, 131_072)]),
        ];
        assert_eq!(found, BTreeMap::from(expected));
    }

    #[test]
    fn what_has_no_time_job_or_place_in_the_range_is_left_out() {
        let found = readings_of(&[
            // Read at an unknown time, or scraped when no time was.
            series(BYTES, Some("1"), &[(10.0, "1")]),
            series(BYTES, Some("2"), &[(10.0, "1")]),
            series(metric::JOB_READ_TIME, Some("2"), &[(10.0, "NaN"), (11.0, "10")]),
            // Read outside of the range.
            series(BYTES, Some("3"), &[(10.0, "1"), (11.0, "1"), (12.0, "1")]),
            series(metric::JOB_READ_TIME, Some("3"), &[(10.0, "-1"), (11.0, "100"), (12.0, "+Inf")]),
            // Of no job, and of one whose name is refused.
            series(BYTES, None, &[(10.0, "1")]),
            series(metric::JOB_READ_TIME, None, &[(10.0, "10")]),
            series(BYTES, Some(""), &[(10.0, "1")]),
            series(metric::JOB_READ_TIME, Some(""), &[(10.0, "10")]),
            // Another metric.
            series("tracewise_job_tasks", Some("4"), &[(10.0, "1")]),
            series(metric::JOB_READ_TIME, Some("4"), &[(10.0, "10")]),
        ]);
        assert_eq!(found, BTreeMap::new());
    }

    #[test]
    fn samples_that_are_no_exact_counts_are_left_out() {
        for value in ["NaN", "+Inf", "-Inf", "-1", "1e18", "1e300", "", "many"] {
            assert_eq!((count_of(BYTES, value), count_of(SECONDS, value)), (None, None), "{value}");
        }
        assert_eq!(count_of(BYTES, "0.5"), None);
        assert_eq!(count_of(BYTES, "1.073741824e+09"), Some(1 << 30));
        assert_eq!((count_of(BYTES, "0"), count_of(SECONDS, "-0")), (Some(0), Some(0)));
    }

    proptest! {
        #[test]
        fn counts_come_back_as_the_agent_read_them(usec in 0..1_u64 << 51, bytes in 0..1_u64 << 53) {
            prop_assert_eq!(count_of(SECONDS, &(usec as f64 / 1e6).to_string()), Some(usec));
            prop_assert_eq!(count_of(BYTES, &(bytes as f64).to_string()), Some(bytes));
        }
    }
}
