//! ETags: a client that has the current answer is told so, and gets no body.

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use axum::http::{HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use learn::artifact::hexadecimal;
use sha2::{Digest, Sha256};

/// The hexadecimal digits of a tag.
const N_DIGITS: usize = 32;
/// No answer is larger.
const MAX_BYTES: usize = 1 << 30;

/// Adds an ETag to answers with JSON or bytes, or replaces them by 304.
pub async fn add(request: Request, next: Next) -> Response {
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    let known = request.headers().get(IF_NONE_MATCH).cloned();
    let response = next.run(request).await;
    let content = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    // A file to save may be too large to be held in memory.
    let is_file = response.headers().contains_key(CONTENT_DISPOSITION);
    let has_tag = matches!(content, Some("application/json" | "application/octet-stream")) && !is_file;
    if !is_read || !has_tag || response.status() != StatusCode::OK {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let Ok(bytes) = to_bytes(body, MAX_BYTES).await else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    let mut digits = hexadecimal(&Sha256::digest(&bytes));
    digits.truncate(N_DIGITS);
    // Weak, because the answer may be compressed.
    let tag = format!("W/\"{digits}\"");
    let is_known = known.is_some_and(|known| is_listed(&known, &tag));
    if let Ok(value) = HeaderValue::from_str(&tag) {
        parts.headers.insert(ETAG, value);
    }
    if is_known {
        parts.status = StatusCode::NOT_MODIFIED;
        parts.headers.remove(CONTENT_TYPE);
        return Response::from_parts(parts, Body::empty());
    }
    Response::from_parts(parts, Body::from(bytes))
}

/// Whether a list of tags contains one.
fn is_listed(known: &HeaderValue, tag: &str) -> bool {
    let strong = |tag: &str| tag.trim().trim_start_matches("W/").to_owned();
    known
        .to_str()
        .is_ok_and(|known| known.split(',').any(|one| one.trim() == "*" || strong(one) == strong(tag)))
}
