//! One function a path.

use std::convert::Infallible;
use std::io::Write;
use std::time::SystemTime;

use flate2::Compression;
use flate2::write::GzEncoder;
use futures_util::stream;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use hyper::header::{
    ACCEPT, ACCEPT_ENCODING, ALLOW, CONTENT_ENCODING, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER,
    WWW_AUTHENTICATE,
};
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use tokio::sync::Semaphore;
use workload::samples::{Position, Segment};
use workload::{Timestamp, samples};

use crate::exposition::Format;
use crate::ring::{Following, Kept};
use crate::service::Shared;

/// Limits concurrent requests for all samples.
static READERS: Semaphore = Semaphore::const_new(4);

pub type Answer = Response<BoxBody<Bytes, Infallible>>;

pub fn answer<B>(request: &Request<B>, shared: &Shared) -> Answer {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut answer = text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are answered\n");
        answer.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return answer;
    }
    match request.uri().path() {
        "/" => whole(StatusCode::OK, "text/html; charset=utf-8", landing_page(shared)),
        "/metrics" => metrics(request.headers(), shared),
        "/samples" => samples(request.uri().query().unwrap_or_default(), shared),
        "/healthz" => match shared.problem(SystemTime::now().into()) {
            None => text(StatusCode::OK, "ok\n"),
            Some(problem) => text(StatusCode::SERVICE_UNAVAILABLE, problem + "\n"),
        },
        _ => text(StatusCode::NOT_FOUND, "not found; see / for the endpoints\n"),
    }
}

pub fn unauthorised() -> Answer {
    let mut answer = text(StatusCode::UNAUTHORIZED, "unauthorized\n");
    answer.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Basic"));
    answer
}

pub fn too_many_guesses() -> Answer {
    let mut answer = text(StatusCode::TOO_MANY_REQUESTS, "too many wrong passwords; try again later\n");
    answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("5"));
    answer
}

fn text(status: StatusCode, body: impl Into<Bytes>) -> Answer {
    whole(status, "text/plain; charset=utf-8", body)
}

fn whole(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Answer {
    with_type(status, kind, BoxBody::new(Full::new(body.into())))
}

fn with_type(status: StatusCode, kind: &'static str, body: BoxBody<Bytes, Infallible>) -> Answer {
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}

/// The value of a header, with all its lines joined.
fn all_of(headers: &HeaderMap, name: HeaderName) -> String {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.collect::<Vec<_>>().join(",")
}

fn metrics(headers: &HeaderMap, shared: &Shared) -> Answer {
    let format = Format::accepted(&all_of(headers, ACCEPT));
    let page = shared.page(format);
    let can_inflate = all_of(headers, ACCEPT_ENCODING).split(',').any(|word| {
        let (name, parameters) = word.split_once(';').unwrap_or((word, ""));
        name.trim().eq_ignore_ascii_case("gzip") && parameters.trim() != "q=0"
    });
    match can_inflate.then(|| gzip(page.as_bytes())) {
        Some(Ok(small)) => {
            let mut answer = whole(StatusCode::OK, format.content_type(), small);
            answer.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            answer
        }
        _ => whole(StatusCode::OK, format.content_type(), page),
    }
}

fn gzip(body: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(body.len() / 8), Compression::fast());
    encoder.write_all(body)?;
    encoder.finish()
}

fn samples(query: &str, shared: &Shared) -> Answer {
    let mut since = Timestamp::MIN;
    let mut as_lines = false;
    let mut after = None;
    for (key, value) in query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
    {
        match (key, value, value.parse::<f64>()) {
            ("since", _, Ok(seconds)) if seconds.is_finite() => since = Timestamp((seconds * 1e3) as i64),
            ("after", "", _) => after = Some(None),
            ("after", position, _) if position.parse::<Position>().is_ok() => {
                after = Some(position.parse().ok())
            }
            ("format", "jsonl", _) => as_lines = true,
            ("format", "binary", _) => as_lines = false,
            _ => {
                let reason = "only since=<epoch seconds>, after=<position> and format=binary or jsonl can be \
                              asked for\n";
                return text(StatusCode::BAD_REQUEST, reason);
            }
        }
    }
    if let Some(position) = after {
        return samples_after(position, shared);
    }
    // An hour of a large node is much; it is made a segment at a time, while it is sent, and for a few
    // clients at once.
    let Ok(place) = READERS.try_acquire() else {
        return text(StatusCode::TOO_MANY_REQUESTS, "others are reading; try again\n");
    };
    let segments: Vec<Kept> = shared.ring().since(since).collect();
    let parts = segments.into_iter().enumerate().map(move |(at, segment)| {
        let _place = &place;
        let bytes = segment.bytes();
        let part = if as_lines {
            lines(&bytes, since)
        } else {
            [samples::heading(at == 0, bytes.len()), bytes].concat()
        };
        Ok(Frame::data(Bytes::from(part)))
    });
    let kind = if as_lines { "application/x-ndjson" } else { samples::MEDIA_TYPE };
    with_type(StatusCode::OK, kind, StreamBody::new(stream::iter(parts)).boxed())
}

/// Every reading after a position, once.
fn samples_after(position: Option<Position>, shared: &Shared) -> Answer {
    let Following { n_skipped, segments, n_lost, position } = shared.ring().after(position);
    let mut parts: Vec<Vec<u8>> = segments.into_iter().map(Kept::bytes).collect();
    if let Some(first) = parts.first_mut().filter(|_| n_skipped > 0) {
        let mut rest = Segment::with_capacity(first.len());
        for (source, reading) in samples::read_segment(first).flatten().skip(n_skipped) {
            rest.push(&reading, &source);
        }
        *first = rest.bytes().to_vec();
    }
    let mut answer = whole(StatusCode::OK, samples::MEDIA_TYPE, samples::join(parts.iter()));
    let headers =
        [(samples::POSITION_HEADER, position.to_string()), (samples::LOST_HEADER, n_lost.to_string())];
    for (name, value) in headers {
        if let Ok(value) = HeaderValue::from_str(&value) {
            answer.headers_mut().insert(name, value);
        }
    }
    answer
}

fn lines(segment: &[u8], since: Timestamp) -> Vec<u8> {
    let mut lines = String::new();
    for (_, reading) in samples::read_segment(segment).flatten().filter(|(_, reading)| reading.time >= since)
    {
        lines += &samples::json_line(&reading);
        lines.push('\n');
    }
    lines.into_bytes()
}

fn landing_page(shared: &Shared) -> String {
    let escape = report::escaped;
    let state = match shared.problem(SystemTime::now().into()) {
        None => "healthy".to_owned(),
        Some(problem) => escape(&problem),
    };
    let (n_threads, n_jobs) =
        shared.latest().map_or((0, 0), |latest| (latest.threads.len(), latest.jobs.len()));
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>Tracewise agent</title>\
         <style>body{{font:16px/1.5 system-ui,sans-serif;margin:3rem auto;max-width:40rem;padding:0 1rem}}\
         dt{{font-weight:600}}dd{{margin:0 0 .5rem}}</style></head><body><h1>Tracewise agent</h1>\
         <p>{node}: {n_threads} hardware threads, {n_jobs} jobs; {state}. Version {version}.</p>\
         <dl><dt><a href=\"/metrics\">/metrics</a></dt><dd>for Prometheus: CPU time of each thread, who owns \
         it, what jobs use</dd>\
         <dt><a href=\"/samples?format=jsonl\">/samples</a></dt><dd>every reading of the last hour; \
         <code>?since=</code> epoch seconds, <code>?after=</code> the position of the last response, \
         <code>?format=jsonl</code> for people</dd>\
         <dt><a href=\"/healthz\">/healthz</a></dt><dd>whether the node is being read</dd></dl></body></html>\n",
        node = escape(shared.node.as_str()),
        version = env!("CARGO_PKG_VERSION"),
    )
}
