//! Decodes `prometheus.WriteRequest`, the message of remote write 1.0.

use std::hash::Hasher;

use crate::series::{Label, Sample, TimeSeries, hash_each};
use crate::wire::{Damaged, Fields, repeated};

mod request {
    pub const TIMESERIES: u32 = 1;
}

mod timeseries {
    pub const LABELS: u32 = 1;
    pub const SAMPLES: u32 = 2;
    pub const EXEMPLARS: u32 = 3;
    pub const HISTOGRAMS: u32 = 4;
}

/// The series of a decompressed request. Metadata is skipped.
///
/// Damage inside a series does not end the iterator; damage to the request around the series does.
pub fn series(body: &[u8]) -> impl Iterator<Item = Result<Series<'_>, Damaged>> {
    repeated(body, request::TIMESERIES).map(|message| Series::scan(message?))
}

/// One series of a request: its fields have been counted, their contents are decoded on demand.
///
/// The specification requires sorted, unique and non-empty label names; this is not checked.
#[derive(Clone, Copy, Debug)]
pub struct Series<'a> {
    message: &'a [u8],
    /// The bytes before everything else that are labels alone. All known senders put the labels first; if one does not,
    /// this is 0.
    n_label_bytes: usize,
    n_samples: usize,
    n_histograms: usize,
    n_exemplars: usize,
}

impl<'a> Series<'a> {
    fn scan(message: &'a [u8]) -> Result<Self, Damaged> {
        let mut series = Self { message, n_label_bytes: 0, n_samples: 0, n_histograms: 0, n_exemplars: 0 };
        let (mut labels_end, mut others_begin) = (0, message.len());
        let mut fields = Fields::new(message);
        let mut begin = 0;
        while let Some(field) = fields.next() {
            let field = field?;
            let end = message.len() - fields.n_left();
            if field.number == timeseries::LABELS {
                labels_end = end;
            } else {
                others_begin = others_begin.min(begin);
            }
            begin = end;
            let count = match field.number {
                timeseries::SAMPLES => &mut series.n_samples,
                timeseries::HISTOGRAMS => &mut series.n_histograms,
                timeseries::EXEMPLARS => &mut series.n_exemplars,
                _ => continue,
            };
            field.bytes()?;
            *count += 1;
        }
        if labels_end <= others_begin {
            series.n_label_bytes = labels_end;
        }
        Ok(series)
    }
}

impl<'a> TimeSeries<'a> for Series<'a> {
    #[inline]
    fn labels(&self) -> impl Iterator<Item = Result<Label<'a>, Damaged>> {
        let part = if self.n_label_bytes > 0 { &self.message[..self.n_label_bytes] } else { self.message };
        repeated(part, timeseries::LABELS).map(|message| label(message?))
    }

    /// The encoded labels at once, which is several times faster than one after another.
    fn hash_labels(&self, hasher: &mut impl Hasher) -> Result<(), Damaged> {
        match self.n_label_bytes {
            0 => hash_each(self.labels(), hasher),
            n_bytes => {
                hasher.write(&self.message[..n_bytes]);
                Ok(())
            }
        }
    }

    #[inline]
    fn samples(&self) -> impl Iterator<Item = Result<Sample, Damaged>> {
        repeated(&self.message[self.n_label_bytes..], timeseries::SAMPLES).map(|message| sample(message?))
    }

    fn n_samples(&self) -> usize {
        self.n_samples
    }

    fn n_histograms(&self) -> usize {
        self.n_histograms
    }

    fn n_exemplars(&self) -> usize {
        self.n_exemplars
    }
}

#[inline]
fn label(message: &[u8]) -> Result<Label<'_>, Damaged> {
    let mut label: Label<'_> = (&[], &[]);
    for field in Fields::new(message) {
        let field = field?;
        match field.number {
            1 => label.0 = field.bytes()?,
            2 => label.1 = field.bytes()?,
            _ => {}
        }
    }
    Ok(label)
}

#[inline]
fn sample(message: &[u8]) -> Result<Sample, Damaged> {
    let mut sample = Sample { timestamp: 0, value: 0.0, start_timestamp: None };
    for field in Fields::new(message) {
        let field = field?;
        match field.number {
            1 => sample.value = field.double()?,
            2 => sample.timestamp = field.int64()?,
            _ => {}
        }
    }
    Ok(sample)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::Message;

    use super::*;
    use crate::series::STALE_MARKER_BITS;
    use crate::series::tests::{Contents, contents};

    /// The request as prost reads it. Strings are declared as bytes and doubles as their bits: these are the
    /// same on the wire, and comparable without regard to UTF-8 and NaN.
    mod proto {
        #[derive(Clone, PartialEq, prost::Message)]
        pub struct WriteRequest {
            #[prost(message, repeated, tag = "1")]
            pub timeseries: Vec<TimeSeries>,
        }

        #[derive(Clone, PartialEq, prost::Message)]
        pub struct TimeSeries {
            #[prost(message, repeated, tag = "1")]
            pub labels: Vec<Label>,
            #[prost(message, repeated, tag = "2")]
            pub samples: Vec<Sample>,
            #[prost(bytes = "vec", repeated, tag = "3")]
            pub exemplars: Vec<Vec<u8>>,
            #[prost(bytes = "vec", repeated, tag = "4")]
            pub histograms: Vec<Vec<u8>>,
        }

        #[derive(Clone, PartialEq, prost::Message)]
        pub struct Label {
            #[prost(bytes = "vec", tag = "1")]
            pub name: Vec<u8>,
            #[prost(bytes = "vec", tag = "2")]
            pub value: Vec<u8>,
        }

        #[derive(Clone, Copy, PartialEq, prost::Message)]
        pub struct Sample {
            #[prost(fixed64, tag = "1")]
            pub value: u64,
            #[prost(int64, tag = "2")]
            pub timestamp: i64,
        }
    }

    fn decode(body: &[u8]) -> Result<Vec<Contents>, Damaged> {
        series(body).map(|series| contents(&series?)).collect()
    }

    fn expected(request: &proto::WriteRequest) -> Vec<Contents> {
        let contents = |series: &proto::TimeSeries| Contents {
            labels: series.labels.iter().map(|label| (label.name.clone(), label.value.clone())).collect(),
            samples: series.samples.iter().map(|sample| (sample.timestamp, sample.value, None)).collect(),
            n_histograms: series.histograms.len(),
            n_exemplars: series.exemplars.len(),
        };
        request.timeseries.iter().map(contents).collect()
    }

    /// `{a="b"}` with the value 1.0 at 300 ms.
    const ONE_SERIES: [u8; 24] = [
        0x0a, 22, // request: timeseries
        0x0a, 6, 0x0a, 1, b'a', 0x12, 1, b'b', // labels
        0x12, 12, 0x09, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f, 0x10, 0xac, 0x02, // samples
    ];

    #[test]
    fn hand_made_bytes_are_decoded() {
        let series = series(&ONE_SERIES).next().unwrap().unwrap();
        assert_eq!(series.labels().collect::<Vec<_>>(), [Ok((&b"a"[..], &b"b"[..]))]);
        let sample = Sample { timestamp: 300, value: 1.0, start_timestamp: None };
        assert_eq!(series.samples().collect::<Vec<_>>(), [Ok(sample)]);
        assert_eq!((series.n_samples(), series.n_histograms(), series.n_exemplars()), (1, 0, 0));
    }

    #[test]
    fn an_empty_request_has_no_series() {
        assert_eq!(decode(&[]), Ok(vec![]));
    }

    #[test]
    fn absent_fields_have_their_defaults() {
        let body = [0x0a, 4, 0x0a, 0, 0x12, 0];
        let series = series(&body).next().unwrap().unwrap();
        assert_eq!(series.labels().next(), Some(Ok((&b""[..], &b""[..]))));
        let sample = Sample { timestamp: 0, value: 0.0, start_timestamp: None };
        assert_eq!(series.samples().next(), Some(Ok(sample)));
    }

    #[test]
    fn the_stale_marker_survives_decoding() {
        let sample = proto::Sample { value: STALE_MARKER_BITS, timestamp: -1 };
        let series = proto::TimeSeries { samples: vec![sample], ..Default::default() };
        let body = proto::WriteRequest { timeseries: vec![series] }.encode_to_vec();
        let decoded = super::series(&body).next().unwrap().unwrap().samples().next().unwrap().unwrap();
        assert!(decoded.is_stale());
        assert_eq!(decoded.timestamp, -1);
    }

    #[test]
    fn unknown_fields_are_skipped_at_every_level() {
        // Number 15 in every wire type.
        let unknown = [0x78, 1, 0x7a, 1, 0, 0x7d, 0, 0, 0, 0, 0x79, 0, 0, 0, 0, 0, 0, 0, 0];
        let surrounded = |contents: &[u8]| [&unknown, contents, &unknown].concat();
        let embedded = |tag: u8, contents: &[u8]| {
            let mut field = vec![tag];
            prost::encode_length_delimiter(contents.len(), &mut field).unwrap();
            [field.as_slice(), contents].concat()
        };
        let label = embedded(0x0a, &surrounded(&ONE_SERIES[4..10]));
        let sample = embedded(0x12, &surrounded(&ONE_SERIES[12..]));
        let body = surrounded(&embedded(0x0a, &surrounded(&[label, sample].concat())));
        assert_eq!(decode(&body), decode(&ONE_SERIES));
    }

    #[test]
    fn metadata_is_skipped() {
        let metadata = [0x1a, 2, 0x08, 1];
        assert_eq!(decode(&[&metadata, &ONE_SERIES[..], &metadata].concat()), decode(&ONE_SERIES));
    }

    #[test]
    fn a_known_field_of_another_wire_type_is_damage() {
        assert_eq!(decode(&[0x08, 1]), Err(Damaged::WrongWireType));
        for number in 1..=4 {
            assert_eq!(decode(&[0x0a, 2, number << 3, 1]), Err(Damaged::WrongWireType), "field {number}");
        }
    }

    #[test]
    fn a_length_that_overflows_is_damage() {
        let mut body = [0xff; 11];
        (body[0], body[10]) = (0x0a, 1);
        assert_eq!(decode(&body), Err(Damaged::Truncated));
    }

    #[test]
    fn damage_inside_a_series_leaves_the_next_one_readable() {
        let body = [&[0x0a, 1, 0x0a], ONE_SERIES.as_slice()].concat();
        let mut series = series(&body);
        assert_eq!(series.next().unwrap().unwrap_err(), Damaged::Truncated);
        assert!(series.next().unwrap().is_ok());
        assert!(series.next().is_none());
    }

    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(any::<u8>(), 0..6)
    }

    fn any_series() -> impl Strategy<Value = proto::TimeSeries> {
        let label = (bytes(), bytes()).prop_map(|(name, value)| proto::Label { name, value });
        let sample =
            (any::<u64>(), any::<i64>()).prop_map(|(value, timestamp)| proto::Sample { value, timestamp });
        let opaque = || prop::collection::vec(bytes(), 0..3);
        let parts =
            (prop::collection::vec(label, 0..4), prop::collection::vec(sample, 0..4), opaque(), opaque());
        parts.prop_map(|(labels, samples, exemplars, histograms)| proto::TimeSeries {
            labels,
            samples,
            exemplars,
            histograms,
        })
    }

    fn any_request() -> impl Strategy<Value = proto::WriteRequest> {
        prop::collection::vec(any_series(), 0..4).prop_map(|timeseries| proto::WriteRequest { timeseries })
    }

    proptest! {
        #[test]
        fn what_prost_encodes_is_decoded(request in any_request()) {
            prop_assert_eq!(decode(&request.encode_to_vec()), Ok(expected(&request)));
        }

        #[test]
        fn a_truncated_request_fails_or_is_a_prefix(request in any_request()) {
            let body = request.encode_to_vec();
            let whole = expected(&request);
            for end in 0..body.len() {
                if let Ok(decoded) = decode(&body[..end]) {
                    prop_assert!(whole.starts_with(&decoded));
                }
            }
        }

        #[test]
        fn any_bytes_are_decoded_or_refused(body in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = decode(&body);
        }

        #[test]
        fn a_changed_byte_is_read_as_prost_reads_it(
            request in any_request(),
            position: prop::sample::Index,
            byte: u8,
        ) {
            let mut body = request.encode_to_vec();
            if body.is_empty() {
                return Ok(());
            }
            let position = position.index(body.len());
            body[position] = byte;
            match (decode(&body), proto::WriteRequest::decode(body.as_slice())) {
                // prost skips groups.
                (Err(Damaged::UnsupportedWireType), _) => {}
                (decoded, read) => prop_assert_eq!(decoded.ok(), read.ok().as_ref().map(expected)),
            }
        }
    }
}
