//! Requests of remote write: they are decoded or refused, whatever they contain. The first byte chooses the version, and
//! whether the rest is compressed.
#![no_main]

use libfuzzer_sys::fuzz_target;
use remote_write::{Encoding, TimeSeries, v1, v2};

/// In the first byte.
const TWO: u8 = 1;
const SNAPPY: u8 = 2;
const ZSTD: u8 = 4;

/// Reads a series to its end, and returns whether it was whole.
fn read<'a>(series: &impl TimeSeries<'a>) -> bool {
    let n_samples = series.samples().filter(|sample| sample.as_ref().is_ok_and(|one| !one.is_stale())).count();
    assert!(n_samples <= series.n_samples());
    let _ = (series.n_histograms(), series.n_exemplars());
    series.labels().all(|label| label.is_ok()) && series.samples().all(|sample| sample.is_ok())
}

fuzz_target!(|bytes: &[u8]| {
    let Some((choice, body)) = bytes.split_first() else { return };
    let encoding = match choice & (SNAPPY | ZSTD) {
        SNAPPY => Some(Encoding::Snappy),
        ZSTD => Some(Encoding::Zstd),
        _ => None,
    };
    let body = match encoding.map_or_else(|| Ok(body.to_vec()), |encoding| encoding.decode(body)) {
        Ok(body) => body,
        Err(_) => return fuzz::expect(false),
    };
    if choice & TWO == 0 {
        let whole: Vec<bool> = v1::series(&body).map(|series| series.is_ok_and(|series| read(&series))).collect();
        fuzz::expect(!whole.is_empty() && whole.into_iter().all(|whole| whole));
    } else {
        let mut symbols = Vec::new();
        let Ok(request) = v2::Request::parse(&body, &mut symbols) else { return fuzz::expect(false) };
        let whole: Vec<bool> = request.series().map(|series| series.is_ok_and(|series| read(&series))).collect();
        fuzz::expect(!whole.is_empty() && whole.into_iter().all(|whole| whole));
    }
});
