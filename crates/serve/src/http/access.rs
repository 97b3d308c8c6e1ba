//! Who may do what: one table of routes and roles, and the check of every request against it.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use axum::extract::{ConnectInfo, MatchedPath, Request, State};
use axum::http::header::{ALLOW, AUTHORIZATION, COOKIE, HOST};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use lifecycle::{Role, Secret};
use workload::{NodeName, Timestamp};

use super::error::ApiError;
use super::limits::{self, peer, too_many};
use crate::service::Service;
use crate::settings::LoginSettings;

/// The cookie of a session.
pub const SESSION_COOKIE: &str = "tracewise_session";

/// What a route needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    Public,
    /// This role, or one that may do more.
    Role(Role),
}

/// The permissions: every route, and who may use it. A route that is missing here is refused.
pub const ROUTES: [(&str, &str, Access); 69] = [
    ("GET", "/", Access::Public),
    ("GET", "/assets/{file}", Access::Public),
    ("GET", "/healthz", Access::Public),
    ("GET", "/readyz", Access::Public),
    ("GET", "/openapi.json", Access::Public),
    ("GET", "/api/v1/session", Access::Public),
    ("POST", "/api/v1/session", Access::Public),
    ("DELETE", "/api/v1/session", Access::Public),
    ("GET", "/api/v1/login", Access::Public),
    ("GET", "/api/v1/login/callback", Access::Public),
    ("POST", "/api/v1/write", Access::Role(Role::Ingest)),
    ("GET", "/status", Access::Role(Role::Viewer)),
    ("GET", "/metrics", Access::Role(Role::Viewer)),
    ("GET", "/api/v1/cluster", Access::Role(Role::Viewer)),
    ("GET", "/api/v1/cluster/layout", Access::Role(Role::Viewer)),
    ("GET", "/api/v1/nodes", Access::Role(Role::Viewer)),
    ("GET", "/api/v1/nodes/{node}", Access::Role(Role::Viewer)),
    ("GET", "/api/v1/nodes/{node}/threads", Access::Role(Role::Viewer)),
    ("GET", "/api/v1/nodes/{node}/usage", Access::Role(Role::Viewer)),
    ("GET", "/api/v1/jobs", Access::Role(Role::Viewer)),
    ("GET", "/api/v1/jobs/{job}", Access::Role(Role::Viewer)),
    ("POST", "/api/v1/jobs/{job}/similar", Access::Role(Role::Viewer)),
    ("GET", "/api/v1/events", Access::Role(Role::Viewer)),
    ("GET", "/api/v1/events/{id}", Access::Role(Role::Viewer)),
    ("GET", "/api/v1/vetting", Access::Role(Role::Viewer)),
    ("GET", "/api/v1/events/{id}/verdicts", Access::Role(Role::Viewer)),
    ("POST", "/api/v1/events/{id}/verdicts", Access::Role(Role::Vetter)),
    ("GET", "/api/v1/events/{id}/preview", Access::Role(Role::Vetter)),
    ("DELETE", "/api/v1/verdicts/{number}", Access::Role(Role::Vetter)),
    ("GET", "/api/v1/diagnoses", Access::Role(Role::Viewer)),
    ("POST", "/api/v1/diagnoses", Access::Role(Role::Vetter)),
    ("DELETE", "/api/v1/diagnoses/{number}", Access::Role(Role::Vetter)),
    ("GET", "/api/v1/exclusions", Access::Role(Role::Viewer)),
    ("POST", "/api/v1/exclusions", Access::Role(Role::Vetter)),
    ("DELETE", "/api/v1/exclusions/{number}", Access::Role(Role::Vetter)),
    ("GET", "/api/v1/competitions", Access::Role(Role::Viewer)),
    ("GET", "/api/v1/models", Access::Role(Role::Viewer)),
    ("GET", "/api/v1/models/{version}", Access::Role(Role::Viewer)),
    ("GET", "/api/v1/promotions", Access::Role(Role::Viewer)),
    ("POST", "/api/v1/models/{version}/promote", Access::Role(Role::Admin)),
    ("POST", "/api/v1/rollback", Access::Role(Role::Admin)),
    ("GET", "/api/v1/operations", Access::Role(Role::Viewer)),
    ("GET", "/api/v1/operations/{number}", Access::Role(Role::Viewer)),
    ("DELETE", "/api/v1/operations/{number}", Access::Role(Role::Viewer)),
    ("POST", "/api/v1/backtests", Access::Role(Role::Vetter)),
    ("POST", "/api/v1/embeddings", Access::Role(Role::Viewer)),
    ("POST", "/api/v1/sampling", Access::Role(Role::Vetter)),
    ("GET", "/api/v1/generators", Access::Role(Role::Viewer)),
    ("GET", "/api/v1/job-traces", Access::Role(Role::Viewer)),
    ("GET", "/api/v1/job-traces/{name}", Access::Role(Role::Viewer)),
    ("PUT", "/api/v1/job-traces/{name}", Access::Role(Role::Vetter)),
    ("DELETE", "/api/v1/job-traces/{name}", Access::Role(Role::Vetter)),
    ("GET", "/api/v1/job-traces/{name}/file", Access::Role(Role::Viewer)),
    ("POST", "/api/v1/job-traces/{name}/synthesis", Access::Role(Role::Vetter)),
    ("POST", "/api/v1/job-traces/{name}/comparison", Access::Role(Role::Viewer)),
    ("GET", "/api/v1/workflows", Access::Role(Role::Viewer)),
    ("GET", "/api/v1/workflows/{name}", Access::Role(Role::Viewer)),
    ("PUT", "/api/v1/workflows/{name}", Access::Role(Role::Vetter)),
    ("DELETE", "/api/v1/workflows/{name}", Access::Role(Role::Vetter)),
    ("GET", "/api/v1/workflows/{name}/file", Access::Role(Role::Viewer)),
    ("GET", "/api/v1/workflows/{name}/chart", Access::Role(Role::Viewer)),
    ("GET", "/api/v1/workflows/{name}/comparison", Access::Role(Role::Viewer)),
    ("PUT", "/api/v1/workflows/{name}/label", Access::Role(Role::Vetter)),
    ("DELETE", "/api/v1/workflows/{name}/label", Access::Role(Role::Vetter)),
    ("GET", "/api/v1/workflow-classifier", Access::Role(Role::Viewer)),
    ("POST", "/api/v1/workflow-classifier", Access::Role(Role::Vetter)),
    ("DELETE", "/api/v1/workflow-classifier", Access::Role(Role::Vetter)),
    ("GET", "/api/v1/timings", Access::Role(Role::Viewer)),
    ("GET", "/api/v1/stream", Access::Role(Role::Viewer)),
];

/// What a route needs; `None` if it is not in the table.
pub fn needed(method: &Method, path: &str) -> Option<Access> {
    let method = if method == Method::HEAD { "GET" } else { method.as_str() };
    ROUTES.iter().find(|(of, route, _)| *of == method && *route == path).map(|(_, _, access)| *access)
}

/// The methods of a route.
fn methods(path: &str) -> String {
    let of: Vec<&str> =
        ROUTES.iter().filter(|(_, route, _)| *route == path).map(|(method, ..)| *method).collect();
    of.join(", ")
}

/// A response to a method that the route does not have.
fn method_not_allowed(methods: &str) -> Response {
    let error = ApiError {
        status: StatusCode::METHOD_NOT_ALLOWED,
        code: "method_not_allowed",
        message: format!("this route has only {methods}"),
    };
    let mut response = error.into_response();
    if let Ok(methods) = HeaderValue::from_str(methods) {
        response.headers_mut().insert(ALLOW, methods);
    }
    response
}

/// Who sent a request.
#[derive(Debug, Clone)]
pub struct Client {
    pub actor: String,
    pub role: Role,
    /// The nodes that it may send readings of; empty for all.
    pub nodes: Vec<NodeName>,
    /// Whether it is an administrator only because there are no tokens and it is on this machine.
    pub is_local: bool,
}

impl Client {
    fn new(actor: String, role: Role) -> Self {
        Self { actor, role, nodes: Vec::new(), is_local: false }
    }
}

/// Whether a role may do what needs another.
pub fn may(role: Role, needed: Role) -> bool {
    match needed {
        // Readings are sent by agents and administrators, and not by those who look at events.
        Role::Ingest => matches!(role, Role::Ingest | Role::Admin),
        _ => role >= needed,
    }
}

/// Lets a request pass if its client may do what it asks for.
pub async fn check(
    State(service): State<Arc<Service>>,
    mut request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let path = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let Some(path) = path else { return Ok(next.run(request).await) };
    let Some(needed) = needed(request.method(), &path) else {
        return match methods(&path) {
            methods if methods.is_empty() => Err(ApiError::forbidden("nobody may use this route")),
            methods => Ok(method_not_allowed(&methods)),
        };
    };
    let Access::Role(needed) = needed else { return Ok(next.run(request).await) };
    let credentials = Credentials::of(&request, &service.settings().login);
    let client = match credentials.client(&service).await {
        Ok(Some(client)) => client,
        Ok(None) => return Err(ApiError::unauthorized()),
        Err(refusal) => return Ok(refusal),
    };
    if !may(client.role, needed) {
        return Err(ApiError::forbidden(format!("this needs the role {needed}; you have {}", client.role)));
    }
    request.extensions_mut().insert(client);
    Ok(next.run(request).await)
}

/// What a request shows about its client, and where it comes from.
pub struct Credentials {
    address: IpAddr,
    shown: Shown,
}

impl Credentials {
    pub fn of(request: &Request, login: &LoginSettings) -> Self {
        Self { address: limits::client(request, login), shown: Shown::by(request, login) }
    }

    /// The client; `None` if nothing valid is shown. An address that guesses is refused.
    pub async fn client(self, service: &Service) -> Result<Option<Client>, Response> {
        if service.failures.is_empty(self.address, Instant::now()) {
            return Err(too_many("too many requests of this address had a wrong token; wait"));
        }
        let is_attempt = !matches!(self.shown, Shown::Nothing { .. });
        let client = self.shown.identify(service).await.map_err(ApiError::into_response)?;
        if client.is_none() && is_attempt {
            service.note_failure(self.address);
        }
        Ok(client)
    }
}

/// What a request shows about its client.
enum Shown {
    Token(Secret),
    Session(Secret),
    /// A user whom a trusted proxy has authenticated.
    User(String),
    /// Something that cannot be valid.
    Invalid,
    /// A session that is used by a page of another site.
    Foreign,
    /// Nothing, on this machine or from another.
    Nothing {
        is_local: bool,
    },
}

impl Shown {
    fn by(request: &Request, login: &LoginSettings) -> Self {
        let headers = request.headers();
        // A proxy may pass on the credentials that it has checked itself.
        let has_token = headers.get(AUTHORIZATION).is_some_and(is_bearer);
        if !has_token && let Some(user) = proxied_user(request, login) {
            return if is_cross_site(request) { Self::Foreign } else { Self::User(user) };
        }
        if headers.contains_key(AUTHORIZATION) {
            return bearer(headers).map_or(Self::Invalid, Self::Token);
        }
        match session_secret(headers) {
            Some(_) if is_cross_site(request) => Self::Foreign,
            Some(secret) => Self::Session(secret),
            None => Self::Nothing { is_local: is_from_here(request) && !is_cross_site(request) },
        }
    }

    /// The client; `None` if nothing valid is shown.
    async fn identify(self, service: &Service) -> Result<Option<Client>, ApiError> {
        match self {
            Self::Token(secret) => {
                let token = service.store.token_of(&secret).await?;
                Ok(token.map(|token| Client { nodes: token.nodes, ..Client::new(token.name, token.role) }))
            }
            Self::Session(secret) => {
                let session = service.store.session_of(&secret, Timestamp::from(SystemTime::now())).await?;
                Ok(session.map(|one| Client::new(one.actor, one.role)))
            }
            Self::User(user) => {
                let role = service.settings().login.role_of(&user);
                Ok(Some(Client::new(user, role)))
            }
            Self::Foreign => Err(ApiError::forbidden("a page of another site must not use this session")),
            Self::Invalid => Ok(None),
            // Without any token or other login, all users of this machine are administrators.
            Self::Nothing { is_local } => {
                let is_open =
                    is_local && !service.settings().login.is_on() && !service.store.has_tokens().await?;
                let local = || Client { is_local: true, ..Client::new("local".into(), Role::Admin) };
                Ok(is_open.then(local))
            }
        }
    }
}

/// Whether a header shows a token.
fn is_bearer(value: &HeaderValue) -> bool {
    value.as_bytes().get(..7).is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"bearer "))
}

/// The user whom a trusted proxy names.
fn proxied_user(request: &Request, login: &LoginSettings) -> Option<String> {
    if login.proxy_header.is_empty() {
        return None;
    }
    let is_trusted = login.is_proxy(peer(request));
    let mut names = request.headers().get_all(&login.proxy_header).iter();
    let name = names.next()?.to_str().ok()?.trim();
    // A client behind the proxy may have sent the header, too.
    let is_only = names.next().is_none();
    (is_trusted && is_only && !name.is_empty()).then(|| name.to_owned())
}

fn bearer(headers: &HeaderMap) -> Option<Secret> {
    let value = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, secret) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| Secret::parse(secret.trim()))?
}

/// The value of a cookie of a request.
pub fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let cookies = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs =
        cookies.flat_map(|cookies| cookies.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(known, _)| *known == name).map(|(_, value)| value)
}

/// The secret of a session in the cookies of a request.
pub fn session_secret(headers: &HeaderMap) -> Option<Secret> {
    cookie(headers, SESSION_COOKIE).and_then(Secret::parse)
}

/// Whether a request comes from a page of another site.
fn is_cross_site(request: &Request) -> bool {
    let site = request.headers().get("sec-fetch-site").and_then(|value| value.to_str().ok());
    matches!(site, Some("cross-site" | "same-site"))
}

/// Whether a request comes from this machine and was sent to it. The name is checked because a page of another site can
/// give its own name the address of this machine.
fn is_from_here(request: &Request) -> bool {
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>();
    let is_local_peer = peer.is_some_and(|ConnectInfo(peer)| peer.ip().to_canonical().is_loopback());
    let host = request.headers().get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    let is_local_name = name.eq_ignore_ascii_case("localhost")
        || name.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback());
    is_local_peer && is_local_name
}

/// Headers that keep a browser from doing more with a response than it should.
pub async fn add_headers(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = [
        (
            "content-security-policy",
            "default-src 'none'; style-src 'self' 'unsafe-inline'; script-src 'self'; img-src 'self' data:; \
             connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
        ),
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", "DENY"),
        ("referrer-policy", "no-referrer"),
        ("cache-control", "no-cache"),
    ];
    for (name, value) in headers {
        let entry = response.headers_mut().entry(HeaderName::from_static(name));
        entry.or_insert(HeaderValue::from_static(value));
    }
    response
}
