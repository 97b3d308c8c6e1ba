//! Stored detectors, with the right hash of their weights: a detector that is read can be used.
#![no_main]

use detect::{KnownJobs, Library, Monitor, ThreadWindow, TrainedDetector, WindowBatch};
use libfuzzer_sys::fuzz_target;
use workload::{Cpu, JobId, NodeName, Owner, Timestamp};

/// Larger windows are allowed, and slow.
const MOST_VALUES: usize = 1_000;

fuzz_target!(init: fuzz::without_threads(), |bytes: &[u8]| {
    let detector = TrainedDetector::read(&fuzz::model(bytes));
    fuzz::expect(detector.is_ok());
    let Ok(detector) = detector else { return };
    let spec = detector.window_spec(1);
    if spec.n_steps * spec.n_channels() > MOST_VALUES {
        return;
    }
    let step = |cpu: u16| (0..spec.n_channels()).map(move |channel| f32::from(channel as u16 == cpu % 4));
    let threads = (0..3).map(|cpu| ThreadWindow {
        node: NodeName::new("n1").expect("a name"),
        cpu: Cpu(cpu),
        owner: Owner::Job(JobId::new(if cpu == 0 { "a" } else { "b" }).expect("a job")),
        values: (0..spec.n_steps).flat_map(|_| step(cpu)).collect(),
    });
    let batch = WindowBatch::new(Timestamp(0), spec.n_channels(), threads.collect());
    let findings = detector.examine(&batch);
    assert_eq!(findings.len(), batch.threads().len());
    detector.explain(&batch, &findings, &[0, 2]);
    let known = KnownJobs::default();
    if let Ok(mut monitor) = Monitor::new(&detector, &known, Library::default()) {
        monitor.observe(&batch);
    }
});
