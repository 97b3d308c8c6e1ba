//! One function a path.

use std::time::SystemTime;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, ALLOW, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use hyper::{Method, Request, Response, StatusCode};
use serde_json::json;
use workload::{NodeReading, Timestamp, samples};

use crate::exposition::Format;
use crate::service::Shared;

type Answer = Response<Full<Bytes>>;

pub fn answer(request: &Request<Incoming>, shared: &Shared) -> Answer {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut answer = text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are answered\n");
        answer.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return answer;
    }
    match request.uri().path() {
        "/" => with_type(StatusCode::OK, "text/html; charset=utf-8", landing_page(shared)),
        "/metrics" => metrics(request, shared),
        "/samples" => samples(request.uri().query().unwrap_or_default(), shared),
        "/healthz" => match shared.complaint(SystemTime::now().into()) {
            None => text(StatusCode::OK, "ok\n"),
            Some(complaint) => text(StatusCode::SERVICE_UNAVAILABLE, complaint + "\n"),
        },
        _ => text(StatusCode::NOT_FOUND, "not found; / says what there is\n"),
    }
}

pub fn unauthorised() -> Answer {
    let mut answer = text(StatusCode::UNAUTHORIZED, "unauthorized\n");
    answer.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Basic"));
    answer
}

fn text(status: StatusCode, body: impl Into<Bytes>) -> Answer {
    with_type(status, "text/plain; charset=utf-8", body)
}

fn with_type(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}

fn metrics(request: &Request<Incoming>, shared: &Shared) -> Answer {
    let accepts = request.headers().get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let format = Format::accepted(&accepts.collect::<Vec<_>>().join(","));
    with_type(StatusCode::OK, format.content_type(), shared.page(format))
}

fn samples(query: &str, shared: &Shared) -> Answer {
    let mut since = Timestamp::MIN;
    let mut as_lines = false;
    for (key, value) in query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
    {
        match (key, value, value.parse::<f64>()) {
            ("since", _, Ok(seconds)) if seconds.is_finite() => since = Timestamp((seconds * 1e3) as i64),
            ("format", "jsonl", _) => as_lines = true,
            ("format", "binary", _) => as_lines = false,
            _ => {
                let reason = "only since=<epoch seconds> and format=binary or jsonl can be asked for\n";
                return text(StatusCode::BAD_REQUEST, reason);
            }
        }
    }
    let bytes = shared.ring().since(since);
    if !as_lines {
        return with_type(StatusCode::OK, samples::MEDIA_TYPE, bytes);
    }
    let mut lines = String::new();
    let add = |_: &_, reading: NodeReading| {
        if reading.time >= since {
            lines += &line(&reading);
        }
    };
    match samples::for_each(&bytes, add) {
        Ok(()) => with_type(StatusCode::OK, "application/x-ndjson", lines),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
    }
}

/// The same as `tracewise archive replay` prints.
fn line(reading: &NodeReading) -> String {
    let threads: Vec<_> = reading
        .threads
        .iter()
        .map(|thread| {
            json!({ "cpu": thread.cpu, "owner": thread.owner.state(), "job": thread.owner.job(),
                "ticks": thread.ticks })
        })
        .collect();
    let time = reading.time.0 as f64 / 1e3;
    format!("{}\n", json!({ "time": time, "node": reading.node, "threads": threads }))
}

fn landing_page(shared: &Shared) -> String {
    let escape = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let state = match shared.complaint(SystemTime::now().into()) {
        None => "well".to_owned(),
        Some(complaint) => escape(&complaint),
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
         <code>?since=</code> epoch seconds, <code>?format=jsonl</code> for people</dd>\
         <dt><a href=\"/healthz\">/healthz</a></dt><dd>whether the node is being read</dd></dl></body></html>\n",
        node = escape(shared.node.as_str()),
        version = env!("CARGO_PKG_VERSION"),
    )
}
