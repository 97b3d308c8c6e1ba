//! Stored generators of job traces, with the right hash of their weights: a generator that is read can be used.
#![no_main]

use std::num::NonZeroUsize;

use jobs::generators::{SampleExtent, SampleRequest, TrainedGenerator};
use libfuzzer_sys::fuzz_target;
use workload::Stop;

const N_JOBS: NonZeroUsize = NonZeroUsize::new(3).expect("three is not zero");

fuzz_target!(init: fuzz::without_threads(), |bytes: &[u8]| {
    let generator = TrainedGenerator::read(&fuzz::model(bytes));
    fuzz::expect(generator.is_ok());
    let Ok(generator) = generator else { return };
    let request = SampleRequest { extent: SampleExtent::Jobs(N_JOBS), ..SampleRequest::default() };
    if let Ok(table) = generator.sample(&request, &Stop::default()) {
        assert_eq!(table.n_rows(), N_JOBS.get());
    }
});
