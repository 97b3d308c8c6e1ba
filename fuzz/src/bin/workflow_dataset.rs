//! Tar archives of labelled runs, with right checksums of their headers: any bytes are read or rejected.
#![no_main]

use files::Limits;
use libfuzzer_sys::fuzz_target;
use workflows::Dataset;

const BLOCK: usize = 512;
const SIZE: std::ops::Range<usize> = 124..136;
const CHECKSUM: std::ops::Range<usize> = 148..156;

/// Makes the checksums of all headers right, as far as their sizes can be followed.
fn with_checksums(archive: &mut [u8]) {
    let mut at = 0;
    while let Some(header) =
        archive.get_mut(at..at + BLOCK).filter(|header| header.iter().any(|byte| *byte != 0))
    {
        header[CHECKSUM].fill(b' ');
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[CHECKSUM].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        let size = std::str::from_utf8(&header[SIZE]).ok().map(|size| size.trim_matches(['\0', ' ']));
        let Some(size) = size.and_then(|size| usize::from_str_radix(size, 8).ok()) else { return };
        at = at
            .saturating_add(BLOCK)
            .saturating_add(size.div_ceil(BLOCK).saturating_mul(BLOCK))
            .min(archive.len());
    }
}

fuzz_target!(init: fuzz::without_threads(), |bytes: &[u8]| {
    let mut archive = bytes.to_vec();
    with_checksums(&mut archive);
    let dataset = Dataset::read(&fuzz::file("runs.tar", &archive), &Limits::default());
    fuzz::expect(dataset.is_ok());
    if let Ok(dataset) = dataset {
        assert!(!dataset.runs.is_empty());
        let all: Vec<usize> = (0..dataset.runs.len()).collect();
        let _ = (dataset.classes(), dataset.span(&all));
    }
});
