//! Tests of the 2.0 decoder: hand-made bytes, and prost as the reference.

use proptest::prelude::*;
use prost::Message;

use super::*;
use crate::series::STALE_MARKER_BITS;
use crate::series::tests::{Contents, contents};

/// The request as prost reads it. Strings are declared as bytes, doubles as their bits and references as
/// 64-bit numbers: these are the same on the wire, and comparable without UTF-8, NaN and truncation.
mod proto {
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Request {
        #[prost(bytes = "vec", repeated, tag = "4")]
        pub symbols: Vec<Vec<u8>>,
        #[prost(message, repeated, tag = "5")]
        pub timeseries: Vec<TimeSeries>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct TimeSeries {
        #[prost(uint64, repeated, tag = "1")]
        pub labels_refs: Vec<u64>,
        #[prost(message, repeated, tag = "2")]
        pub samples: Vec<Sample>,
        #[prost(bytes = "vec", repeated, tag = "3")]
        pub histograms: Vec<Vec<u8>>,
        #[prost(bytes = "vec", repeated, tag = "4")]
        pub exemplars: Vec<Vec<u8>>,
    }

    #[derive(Clone, Copy, PartialEq, prost::Message)]
    pub struct Sample {
        #[prost(fixed64, tag = "1")]
        pub value: u64,
        #[prost(int64, tag = "2")]
        pub timestamp: i64,
        #[prost(int64, tag = "3")]
        pub start_timestamp: i64,
    }
}

type Decoded = Result<Vec<Result<Contents, SeriesError>>, RequestError>;

fn decode(body: &[u8]) -> Decoded {
    let mut symbols = Vec::new();
    let request = Request::parse(body, &mut symbols)?;
    let read = |series: Series<'_>| contents(&series).expect("a yielded series is valid");
    Ok(request.series().map(|series| series.map(read)).collect())
}

/// The rules of the module, written plainly.
fn expected(request: &proto::Request) -> Decoded {
    if request.symbols.first() != Some(&vec![]) {
        return Err(RequestError::FirstSymbol);
    }
    Ok(request.timeseries.iter().map(|series| expected_series(series, &request.symbols)).collect())
}

fn expected_series(series: &proto::TimeSeries, symbols: &[Vec<u8>]) -> Result<Contents, SeriesError> {
    let symbol = |&reference: &u64| {
        let symbol = usize::try_from(reference).ok().and_then(|index| symbols.get(index));
        symbol.cloned().ok_or(SeriesError::ReferenceOutOfRange(reference))
    };
    let mut labels: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    for pair in series.labels_refs.chunks(2) {
        let name = symbol(&pair[0])?;
        match labels.last() {
            _ if name.is_empty() => return Err(SeriesError::EmptyName),
            Some((previous, _)) if *previous == name => return Err(SeriesError::DuplicateName),
            Some((previous, _)) if *previous > name => return Err(SeriesError::UnsortedNames),
            _ => {}
        }
        let value = symbol(pair.get(1).ok_or(SeriesError::OddReferences)?)?;
        labels.push((name, value));
    }
    if !series.samples.is_empty() && !series.histograms.is_empty() {
        return Err(SeriesError::SamplesAndHistograms);
    }
    let start = |start: i64| if start == 0 { None } else { Some(start) };
    Ok(Contents {
        labels,
        samples: series
            .samples
            .iter()
            .map(|sample| (sample.timestamp, sample.value, start(sample.start_timestamp)))
            .collect(),
        n_histograms: series.histograms.len(),
        n_exemplars: series.exemplars.len(),
    })
}

/// A request with the symbols "", "a", "b" and "c".
fn request(timeseries: Vec<proto::TimeSeries>) -> Vec<u8> {
    let symbols = ["", "a", "b", "c"].map(|symbol| symbol.as_bytes().to_vec()).to_vec();
    proto::Request { symbols, timeseries }.encode_to_vec()
}

fn with_labels(labels_refs: &[u64]) -> proto::TimeSeries {
    proto::TimeSeries { labels_refs: labels_refs.to_vec(), ..Default::default() }
}

/// The error of a series that stands between two good ones, which must not suffer from it.
fn error_of(series: proto::TimeSeries) -> SeriesError {
    let good = with_labels(&[1, 2]);
    let decoded = decode(&request(vec![good.clone(), series, good])).unwrap();
    assert_eq!(decoded.len(), 3);
    assert!(decoded[0].is_ok() && decoded[2].is_ok());
    decoded[1].clone().unwrap_err()
}

#[test]
fn hand_made_bytes_are_decoded() {
    let body = [
        0x22, 0, 0x22, 1, b'a', 0x22, 1, b'b', // symbols "", "a", "b"
        0x2a, 20, // timeseries
        0x0a, 2, 1, 2, // labels_refs, packed
        0x12, 14, 0x09, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f, 0x10, 0xac, 0x02, 0x18, 7, // samples
    ];
    let mut symbols = Vec::new();
    let request = Request::parse(&body, &mut symbols).unwrap();
    let series = request.series().next().unwrap().unwrap();
    assert_eq!(series.labels().collect::<Vec<_>>(), [Ok((&b"a"[..], &b"b"[..]))]);
    let sample = Sample { timestamp: 300, value: 1.0, start_timestamp: Some(7) };
    assert_eq!(series.samples().collect::<Vec<_>>(), [Ok(sample)]);
    assert_eq!((series.n_samples(), series.n_histograms(), series.n_exemplars()), (1, 0, 0));
}

#[test]
fn references_may_be_packed_or_not() {
    let packed = [0x0a, 4, 1, 2, 3, 1];
    let one_by_one = [0x08, 1, 0x08, 2, 0x08, 3, 0x08, 1];
    let mixed = [0x0a, 1, 1, 0x0a, 0, 0x08, 2, 0x0a, 2, 3, 1];
    let expected = decode(&request(vec![with_labels(&[1, 2, 3, 1])]));
    for series in [packed.as_slice(), &one_by_one, &mixed] {
        let body = [request(vec![]).as_slice(), &[0x2a, series.len() as u8], series].concat();
        assert_eq!(decode(&body), expected);
    }
}

#[test]
fn symbols_may_follow_the_series() {
    let series = [0x2a, 4, 0x0a, 2, 1, 2];
    let body = [series.as_slice(), &request(vec![])].concat();
    assert_eq!(decode(&body), decode(&request(vec![with_labels(&[1, 2])])));
}

#[test]
fn the_first_symbol_must_be_empty() {
    assert_eq!(decode(&[]), Err(RequestError::FirstSymbol));
    assert_eq!(decode(&[0x22, 1, b'a', 0x22, 0]), Err(RequestError::FirstSymbol));
}

#[test]
fn the_number_of_symbols_is_limited() {
    let body = [0x22, 0].repeat(MAX_SYMBOLS);
    assert_eq!(decode(&body), Ok(vec![]));
    assert_eq!(decode(&[body.as_slice(), &[0x22, 0]].concat()), Err(RequestError::TooManySymbols));
}

#[test]
fn a_series_that_breaks_a_rule_is_refused_alone() {
    assert_eq!(error_of(with_labels(&[1, 4])), SeriesError::ReferenceOutOfRange(4));
    assert_eq!(error_of(with_labels(&[u64::MAX, 1])), SeriesError::ReferenceOutOfRange(u64::MAX));
    assert_eq!(error_of(with_labels(&[1, 2, 3])), SeriesError::OddReferences);
    assert_eq!(error_of(with_labels(&[0, 2])), SeriesError::EmptyName);
    assert_eq!(error_of(with_labels(&[1, 2, 1, 2])), SeriesError::DuplicateName);
    assert_eq!(error_of(with_labels(&[2, 1, 1, 2])), SeriesError::UnsortedNames);
    let both = proto::TimeSeries {
        samples: vec![proto::Sample::default()],
        histograms: vec![vec![]],
        ..with_labels(&[1, 2])
    };
    assert_eq!(error_of(both), SeriesError::SamplesAndHistograms);
}

#[test]
fn a_long_label_name_is_refused_and_a_long_value_is_not() {
    let symbols = vec![vec![], vec![b'a'; MAX_NAME_BYTES], vec![b'b'; MAX_NAME_BYTES + 1]];
    let timeseries = vec![with_labels(&[1, 2]), with_labels(&[2, 1])];
    let decoded = decode(&proto::Request { symbols, timeseries }.encode_to_vec()).unwrap();
    assert!(decoded[0].is_ok());
    assert_eq!(decoded[1], Err(SeriesError::NameTooLong));
}

#[test]
fn damage_inside_a_series_is_an_error_of_that_series() {
    let truncated_sample = [0x2a, 3, 0x12, 1, 0x09];
    let truncated_references = [0x2a, 3, 0x0a, 1, 0x80];
    let good = [0x2a, 0];
    let body = [request(vec![]).as_slice(), &truncated_sample, &truncated_references, &good].concat();
    let damaged = Err(SeriesError::Damaged(Damaged::Truncated));
    let decoded = decode(&body).unwrap();
    assert_eq!(decoded[..2], [damaged.clone(), damaged]);
    assert!(decoded[2].is_ok());
}

#[test]
fn damage_around_the_series_is_an_error_of_the_request() {
    let good = request(vec![with_labels(&[1, 2])]);
    for (end, damaged) in [
        (&[0x2a, 1][..], Damaged::Truncated),
        (&[0x28, 1], Damaged::WrongWireType),
        (&[0x20, 1], Damaged::WrongWireType),
        (&[0x2a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1], Damaged::Truncated),
    ] {
        let body = [good.as_slice(), end].concat();
        assert_eq!(decode(&body), Err(RequestError::Damaged(damaged)));
    }
}

#[test]
fn metadata_and_unknown_fields_are_skipped() {
    let series = [
        0x78, 1, // unknown
        0x0a, 2, 1, 2, // labels_refs
        0x2a, 2, 0x08, 1, // metadata
        0x30, 9, // created_timestamp of 2.0-rc.3, since reserved
        0x12, 5, 0x10, 3, 0x7a, 1, 0, // a sample with an unknown field
    ];
    let body = [&[0x7a, 1, 0], request(vec![]).as_slice(), &[0x2a, series.len() as u8], &series].concat();
    let sample = proto::Sample { timestamp: 3, ..Default::default() };
    let plain = proto::TimeSeries { samples: vec![sample], ..with_labels(&[1, 2]) };
    assert_eq!(decode(&body), decode(&request(vec![plain])));
}

#[test]
fn a_start_timestamp_of_zero_is_unset() {
    let body = [request(vec![]).as_slice(), &[0x2a, 4, 0x12, 2, 0x18, 0]].concat();
    assert_eq!(decode(&body).unwrap()[0].as_ref().unwrap().samples, [(0, 0, None)]);
}

#[test]
fn the_stale_marker_survives_decoding() {
    let sample = proto::Sample { value: STALE_MARKER_BITS, ..Default::default() };
    let body = request(vec![proto::TimeSeries { samples: vec![sample], ..Default::default() }]);
    let mut symbols = Vec::new();
    let request = Request::parse(&body, &mut symbols).unwrap();
    let series = request.series().next().unwrap().unwrap();
    assert!(series.samples().next().unwrap().unwrap().is_stale());
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..4)
}

/// Up to three pairs of references, mostly sorted and in the range of six symbols.
fn any_references() -> impl Strategy<Value = Vec<u64>> {
    let sorted = prop::sample::subsequence(vec![1, 2, 3, 4, 5], 0..=3)
        .prop_map(|names| names.into_iter().flat_map(|name| [name, 6 - name]).collect());
    prop_oneof![4 => sorted, 1 => prop::collection::vec(0_u64..8, 0..7)]
}

fn any_series() -> impl Strategy<Value = proto::TimeSeries> {
    let sample = (any::<u64>(), any::<i64>(), prop_oneof![Just(0), any::<i64>()])
        .prop_map(|(value, timestamp, start_timestamp)| proto::Sample { value, timestamp, start_timestamp });
    let opaque = || prop::collection::vec(bytes(), 0..2);
    (any_references(), prop::collection::vec(sample, 0..3), opaque(), opaque()).prop_map(
        |(labels_refs, samples, histograms, exemplars)| proto::TimeSeries {
            labels_refs,
            samples,
            histograms,
            exemplars,
        },
    )
}

fn any_request() -> impl Strategy<Value = proto::Request> {
    let symbols = prop::collection::btree_set(prop::collection::vec(any::<u8>(), 1..4), 5)
        .prop_map(|symbols| [vec![]].into_iter().chain(symbols).collect());
    (symbols, prop::collection::vec(any_series(), 0..4))
        .prop_map(|(symbols, timeseries)| proto::Request { symbols, timeseries })
}

proptest! {
    #[test]
    fn what_prost_encodes_is_decoded(request in any_request()) {
        prop_assert_eq!(decode(&request.encode_to_vec()), expected(&request));
    }

    #[test]
    fn a_truncated_request_fails_or_is_a_prefix(request in any_request()) {
        let body = request.encode_to_vec();
        let whole = expected(&request).unwrap();
        for end in 0..body.len() {
            if let Ok(decoded) = decode(&body[..end]) {
                prop_assert!(whole.starts_with(&decoded));
            }
        }
    }

    #[test]
    fn any_bytes_are_decoded_or_refused(body in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = decode(&body);
        let _ = decode(&[&[0x22, 0], body.as_slice()].concat());
    }

    #[test]
    fn a_changed_byte_is_read_as_prost_reads_it(
        request in any_request(),
        position: prop::sample::Index,
        byte: u8,
    ) {
        let mut body = request.encode_to_vec();
        let position = position.index(body.len());
        body[position] = byte;
        let decoded = decode(&body);
        match (damage(&decoded), proto::Request::decode(body.as_slice())) {
            // prost skips groups.
            (Some(Damaged::UnsupportedWireType), _) => {}
            (Some(_), read) => prop_assert!(read.is_err()),
            (None, Ok(read)) => prop_assert_eq!(decoded, expected(&read)),
            // A series that broke a rule before the damage was refused for that.
            (None, Err(_)) => prop_assert!(decoded.is_err() || decoded?.iter().any(Result::is_err)),
        }
    }
}

/// The first damage to the request or to one of its series.
fn damage(decoded: &Decoded) -> Option<Damaged> {
    match decoded {
        Err(RequestError::Damaged(damaged)) => Some(*damaged),
        Err(_) => None,
        Ok(series) => series.iter().find_map(|series| match series {
            Err(SeriesError::Damaged(damaged)) => Some(*damaged),
            _ => None,
        }),
    }
}
