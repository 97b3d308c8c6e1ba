//! `POST /api/v1/write`: the receiver of remote write 1.0 and 2.0.

use std::sync::Arc;

use axum::Extension;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};

use remote_write::{Encoding, Version};

use super::access::Client;
use crate::remote_write::receive::{Checked, check};
use crate::remote_write::request_log::Logged;
use crate::service::Service;

/// Takes samples.
pub async fn write(
    State(service): State<Arc<Service>>,
    Extension(client): Extension<Client>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let (Some(version), Some(encoding)) = (version(&headers), encoding(&headers)) else {
        let accepted = "send application/x-protobuf, compressed with snappy or zstd\n";
        return (StatusCode::UNSUPPORTED_MEDIA_TYPE, accepted).into_response();
    };
    let nodes = client.nodes;
    // Decoding takes milliseconds, which other requests should not wait for.
    let decode = move || {
        let decoded = encoding.decode(&body)?;
        let checked = check(version, &decoded, &nodes)?;
        Ok::<_, String>((Logged { version, encoding, body: body.to_vec() }, decoded, checked))
    };
    let (request, decoded, checked) = match tokio::task::spawn_blocking(decode).await {
        Ok(Ok(decoded)) => decoded,
        Ok(Err(reason)) => return (StatusCode::BAD_REQUEST, reason + "\n").into_response(),
        Err(_) => return StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    };
    if let Some(node) = &checked.foreign_node {
        let reason = format!("this token may not send readings of {node}\n");
        return (StatusCode::FORBIDDEN, reason).into_response();
    }
    if let Err(error) = service.receiving.take(request, decoded).await {
        let mut response = (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")).into_response();
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        return response;
    }
    answer(version, &checked)
}

/// 204, or 400 with the reasons if a part was refused. Version 2.0 says how much was written.
fn answer(version: Version, checked: &Checked) -> Response {
    let mut response = if checked.refused.is_empty() {
        StatusCode::NO_CONTENT.into_response()
    } else {
        let reasons: Vec<String> =
            checked.refused.iter().map(|(reason, count)| format!("refused {count}: {reason}")).collect();
        (StatusCode::BAD_REQUEST, reasons.join("\n") + "\n").into_response()
    };
    if version == Version::Two {
        let written = [
            ("x-prometheus-remote-write-samples-written", checked.n_samples),
            ("x-prometheus-remote-write-histograms-written", checked.n_histograms),
            ("x-prometheus-remote-write-exemplars-written", checked.n_exemplars),
        ];
        for (name, count) in written {
            response.headers_mut().insert(name, HeaderValue::from(count));
        }
    }
    response
}

fn version(headers: &HeaderMap) -> Option<Version> {
    let content = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    let (media, parameters) = content.split_once(';').unwrap_or((content, ""));
    if !media.trim().eq_ignore_ascii_case("application/x-protobuf") {
        return None;
    }
    match parameters.trim().strip_prefix("proto=") {
        None if parameters.trim().is_empty() => Some(Version::One),
        Some("prometheus.WriteRequest") => Some(Version::One),
        Some("io.prometheus.write.v2.Request") => Some(Version::Two),
        _ => None,
    }
}

fn encoding(headers: &HeaderMap) -> Option<Encoding> {
    match headers.get(CONTENT_ENCODING)?.to_str().ok()?.trim() {
        "snappy" => Some(Encoding::Snappy),
        "zstd" => Some(Encoding::Zstd),
        _ => None,
    }
}
