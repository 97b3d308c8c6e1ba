//! `/api/v1/session`: who is logged in, logging in with a token, logging out.

#![allow(unused_qualifications, reason = "in code that utoipa generates")]

use std::net::SocketAddr;
use std::time::{Instant, SystemTime};

use axum::Json;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::header::SET_COOKIE;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use lifecycle::Secret;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use workload::{Millis, Timestamp};

use super::access::{Credentials, SESSION_COOKIE, session_secret};
use super::api::Shared;
use super::error::{ApiError, ErrorBody};
use super::extract::JsonBody;
use super::limits::too_many;

pub const SESSION_LENGTH: Millis = Millis(12 * 3_600_000);

/// Who is logged in, and how one can log in.
#[derive(Debug, Serialize, ToSchema)]
pub struct SessionItem {
    /// Null if nobody is logged in.
    pub user: Option<UserItem>,
    /// `token`, and `provider` if there is an OpenID provider.
    pub logins: Vec<&'static str>,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct UserItem {
    pub actor: String,
    /// `viewer`, `vetter` or `admin`.
    pub role: String,
    /// Whether there are no tokens: then everybody on this machine is an administrator.
    pub is_local: bool,
}

/// Who is logged in.
#[utoipa::path(get, path = "/api/v1/session", tag = "service", responses((status = 200, body = SessionItem)))]
pub async fn current(State(service): Shared, request: Request) -> Response {
    let credentials = Credentials::of(&request, &service.settings().login);
    let user = match credentials.client(&service).await {
        Ok(client) => client,
        // A page of another site uses the session.
        Err(refusal) if refusal.status() == StatusCode::FORBIDDEN => None,
        Err(refusal) => return refusal,
    };
    let user = user.map(|client| UserItem {
        actor: client.actor,
        role: client.role.to_string(),
        is_local: client.is_local,
    });
    let has_provider = service.settings().login.oidc.is_some();
    let logins = ["token"].into_iter().chain(has_provider.then_some("provider")).collect();
    Json(SessionItem { user, logins }).into_response()
}

/// A token to log in with.
#[derive(Debug, Deserialize, ToSchema)]
pub struct Login {
    pub token: String,
}

/// Logs a browser in: exchanges a token for a session cookie.
#[utoipa::path(post, path = "/api/v1/session", request_body = Login, tag = "service", responses(
    (status = 204, description = "the cookie is set"), (status = 400, body = ErrorBody), (status = 401, body = ErrorBody),
    (status = 415, body = ErrorBody), (status = 422, body = ErrorBody)))]
pub async fn log_in(
    State(service): Shared,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    JsonBody(login): JsonBody<Login>,
) -> Result<Response, ApiError> {
    if service.failures.is_empty(peer.ip(), Instant::now()) {
        return Ok(too_many("too many logins of this address failed; wait"));
    }
    let wrong = || {
        service.note_failure(peer.ip());
        ApiError { message: "this token is not valid".into(), ..ApiError::unauthorized() }
    };
    let secret = Secret::parse(login.token.trim()).ok_or_else(wrong)?;
    let token = service.store.token_of(&secret).await?.ok_or_else(wrong)?;
    let now = Timestamp::from(SystemTime::now());
    let store = &service.store;
    let session = store.open_session(&token.name, token.role, Some(&token.id), now, SESSION_LENGTH).await?;
    Ok(with_cookie(session.reveal(), SESSION_LENGTH.0 / 1_000, service.is_tls))
}

/// Logs a browser out.
#[utoipa::path(delete, path = "/api/v1/session", tag = "service", responses((status = 204, description = "logged out")))]
pub async fn log_out(State(service): Shared, headers: HeaderMap) -> Result<Response, ApiError> {
    if let Some(secret) = session_secret(&headers) {
        service.store.close_session(&secret).await?;
    }
    Ok(with_cookie("", 0, service.is_tls))
}

fn with_cookie(value: &str, seconds: i64, is_tls: bool) -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    if let Ok(cookie) = HeaderValue::from_str(&session_cookie(value, seconds, is_tls)) {
        response.headers_mut().insert(SET_COOKIE, cookie);
    }
    response
}

/// The cookie of a session.
pub fn session_cookie(value: &str, seconds: i64, is_tls: bool) -> String {
    let secure = if is_tls { "; Secure" } else { "" };
    format!("{SESSION_COOKIE}={value}; Path=/; HttpOnly; SameSite=Lax; Max-Age={seconds}{secure}")
}
