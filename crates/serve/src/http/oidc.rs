//! Login through an OpenID provider: authorization code with PKCE.
//!
//! The ID token comes from the provider itself over TLS, so its signature need not be checked (OpenID Connect Core,
//! 3.1.3.7). Its issuer, audience, age and nonce are.

#![allow(unused_qualifications, reason = "in code that utoipa generates")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use axum::extract::State;
use axum::http::header::{LOCATION, SET_COOKIE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use lifecycle::Secret;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use url::Url;
use utoipa::IntoParams;
use workload::Timestamp;

use super::access;
use super::error::{ApiError, ErrorBody};
use super::extract::Query;
use super::session::{SESSION_LENGTH, session_cookie};
use crate::peer::{self, read_secret};
use crate::service::Service;
use crate::settings::{OidcSettings, SettingsError};

/// The path that the provider sends the browser back to.
const CALLBACK: &str = "/api/v1/login/callback";
/// The cookie that ties a login to the browser that began it.
const LOGIN_COOKIE: &str = "tracewise_login";
/// How long a login may take.
const MAX_AGE: Duration = Duration::from_secs(600);
/// Logins that may be under way.
const MAX_PENDING: usize = 1_000;
const TIMEOUT: Duration = Duration::from_secs(10);
const MAX_BYTES: usize = 1 << 20;

/// Rejects settings that cannot be used.
pub fn check(settings: &OidcSettings) -> Result<(), SettingsError> {
    let issuer = Url::parse(&settings.issuer);
    if !issuer.is_ok_and(|url| url.has_host() && net::is_confidential(&url)) {
        return Err(SettingsError::Login("oidc.issuer must be an address with https"));
    }
    if !Url::parse(&settings.external_url).is_ok_and(|url| url.has_host()) {
        return Err(SettingsError::Login("oidc.external_url must be an address"));
    }
    Ok(())
}

/// Logins that were begun, by their state.
#[derive(Debug, Default)]
pub struct Pending(Mutex<BTreeMap<String, Begun>>);

#[derive(Debug, Clone)]
struct Begun {
    nonce: String,
    verifier: String,
    at: Instant,
}

impl Pending {
    fn with<T>(&self, work: impl FnOnce(&mut BTreeMap<String, Begun>) -> T) -> T {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, begun| begun.at.elapsed() < MAX_AGE);
        work(&mut all)
    }

    fn begin(&self) -> Result<(String, Begun), ApiError> {
        let random = || Ok::<_, ApiError>(Secret::random()?.reveal().to_owned());
        let (state, begun) = (random()?, Begun { nonce: random()?, verifier: random()?, at: Instant::now() });
        let is_added = self.with(|all| {
            let has_place = all.len() < MAX_PENDING;
            if has_place {
                all.insert(state.clone(), begun.clone());
            }
            has_place
        });
        if is_added { Ok((state, begun)) } else { Err(failed("too many logins are under way; try again")) }
    }

    fn take(&self, state: &str) -> Option<Begun> {
        self.with(|all| all.remove(state))
    }
}

/// What the provider says about itself.
#[derive(Debug, Deserialize)]
struct Provider {
    issuer: String,
    authorization_endpoint: String,
    token_endpoint: String,
}

#[derive(Debug, Serialize)]
struct TokenRequest<'a> {
    grant_type: &'static str,
    code: &'a str,
    redirect_uri: &'a str,
    code_verifier: &'a str,
    client_id: &'a str,
}

#[derive(Debug, Deserialize)]
struct TokenAnswer {
    id_token: String,
}

#[derive(Debug, Deserialize)]
struct Claims {
    iss: String,
    aud: Audience,
    exp: f64,
    nonce: Option<String>,
    sub: String,
    #[serde(flatten)]
    others: BTreeMap<String, serde_json::Value>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Several(Vec<String>),
}

impl Audience {
    fn contains(&self, client: &str) -> bool {
        match self {
            Self::One(one) => one == client,
            Self::Several(all) => all.iter().any(|one| one == client),
        }
    }
}

impl Claims {
    /// Reads the claims of a token without looking at its signature.
    fn of(token: &str) -> Option<Self> {
        let payload = token.split('.').nth(1)?;
        serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(payload).ok()?).ok()
    }

    /// Why these claims are not those of a login that was begun here.
    fn problem(&self, settings: &OidcSettings, nonce: &str, now_seconds: f64) -> Option<&'static str> {
        match () {
            () if self.iss.trim_end_matches('/') != settings.issuer.trim_end_matches('/') => {
                Some("the token is of another issuer")
            }
            () if !self.aud.contains(&settings.client_id) => Some("the token is for another client"),
            () if self.exp <= now_seconds => Some("the token has expired"),
            () if self.nonce.as_deref() != Some(nonce) => Some("the token is of another login"),
            () => None,
        }
    }

    fn user(&self, claim: &str) -> Option<&str> {
        let user = if claim == "sub" { Some(&*self.sub) } else { self.others.get(claim)?.as_str() };
        user.filter(|user| !user.is_empty() && !user.chars().any(char::is_control))
    }
}

fn failed(what: impl Into<String>) -> ApiError {
    ApiError { status: StatusCode::BAD_GATEWAY, code: "login_failed", message: what.into() }
}

fn client() -> Result<reqwest::Client, ApiError> {
    peer::client(TIMEOUT).map_err(|error| failed(error.to_string()))
}

async fn json<T: serde::de::DeserializeOwned>(
    request: reqwest::RequestBuilder,
    what: &str,
) -> Result<T, ApiError> {
    let cause = |error: reqwest::Error| failed(format!("{what}: {}", net::root_cause(&error)));
    let response = request.send().await.map_err(cause)?;
    if !response.status().is_success() {
        return Err(failed(format!("{what}: it responds with {}", response.status())));
    }
    let body = peer::bounded(response, MAX_BYTES).await;
    let body = body.map_err(|error| failed(format!("{what}: {error}")))?;
    serde_json::from_slice(&body).map_err(|error| failed(format!("{what}: {error}")))
}

/// The addresses of a provider for browsers and for tokens.
async fn endpoints(settings: &OidcSettings) -> Result<(Url, Url), ApiError> {
    let url = format!("{}/.well-known/openid-configuration", settings.issuer.trim_end_matches('/'));
    let provider: Provider = json(client()?.get(url), "the login provider").await?;
    if provider.issuer.trim_end_matches('/') != settings.issuer.trim_end_matches('/') {
        return Err(failed(format!("the login provider calls itself {:?}", provider.issuer)));
    }
    let url = |text: &str| Url::parse(text).map_err(|_| failed("the login provider names no valid address"));
    let (browser, token) = (url(&provider.authorization_endpoint)?, url(&provider.token_endpoint)?);
    // The signature of tokens is not checked, so they must come over TLS.
    if !net::is_confidential(&token) {
        return Err(failed("the token endpoint of the login provider is not encrypted"));
    }
    Ok((browser, token))
}

fn settings(service: &Service) -> Result<OidcSettings, ApiError> {
    let oidc = service.settings().login.oidc.clone();
    oidc.ok_or_else(|| ApiError::not_found("login through a provider is not configured"))
}

fn callback(settings: &OidcSettings) -> String {
    format!("{}{CALLBACK}", settings.external_url.trim_end_matches('/'))
}

fn redirect(to: &str, cookies: &[String]) -> Response {
    let mut response = StatusCode::SEE_OTHER.into_response();
    if let Ok(to) = HeaderValue::from_str(to) {
        response.headers_mut().insert(LOCATION, to);
    }
    for cookie in cookies.iter().filter_map(|cookie| HeaderValue::from_str(cookie).ok()) {
        response.headers_mut().append(SET_COOKIE, cookie);
    }
    response
}

fn login_cookie(value: &str, seconds: u64, is_tls: bool) -> String {
    let secure = if is_tls { "; Secure" } else { "" };
    format!("{LOGIN_COOKIE}={value}; Path={CALLBACK}; HttpOnly; SameSite=Lax; Max-Age={seconds}{secure}")
}

/// Sends a browser to the login provider.
#[utoipa::path(get, path = "/api/v1/login", tag = "service", responses(
    (status = 303, description = "to the login provider"), (status = 404, body = ErrorBody),
    (status = 502, body = ErrorBody)))]
pub async fn begin(State(service): State<Arc<Service>>) -> Result<Response, ApiError> {
    let settings = settings(&service)?;
    let (mut url, _) = endpoints(&settings).await?;
    let (state, begun) = service.logins.begin()?;
    let challenge = BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(begun.verifier.as_bytes()));
    url.query_pairs_mut()
        .append_pair("response_type", "code")
        .append_pair("client_id", &settings.client_id)
        .append_pair("redirect_uri", &callback(&settings))
        .append_pair("scope", "openid profile email")
        .append_pair("state", &state)
        .append_pair("nonce", &begun.nonce)
        .append_pair("code_challenge", &challenge)
        .append_pair("code_challenge_method", "S256");
    Ok(redirect(url.as_str(), &[login_cookie(&state, MAX_AGE.as_secs(), service.is_tls)]))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct CallbackQuery {
    /// The code of the provider.
    pub code: Option<String>,
    /// The state of the login.
    pub state: Option<String>,
    /// Why the provider did not log the user in.
    pub error: Option<String>,
}

/// Ends a login through the provider.
#[utoipa::path(get, path = "/api/v1/login/callback", params(CallbackQuery), tag = "service", responses(
    (status = 303, description = "logged in"), (status = 401, body = ErrorBody), (status = 404, body = ErrorBody),
    (status = 502, body = ErrorBody)))]
pub async fn end(
    State(service): State<Arc<Service>>,
    headers: HeaderMap,
    Query(query): Query<CallbackQuery>,
) -> Result<Response, ApiError> {
    let settings = settings(&service)?;
    let refused =
        |why: &str| ApiError { message: format!("not logged in: {why}"), ..ApiError::unauthorized() };
    if let Some(error) = query.error {
        let shown: String =
            error.chars().filter(|one| one.is_ascii_alphanumeric() || *one == '_').take(60).collect();
        return Err(refused(&format!("the provider says {shown}")));
    }
    let (Some(code), Some(state)) = (query.code, query.state) else {
        return Err(refused("the provider sent no code"));
    };
    if access::cookie(&headers, LOGIN_COOKIE) != Some(&*state) {
        return Err(refused("the login was begun by another browser"));
    }
    let begun = service.logins.take(&state).ok_or_else(|| refused("the login took too long; try again"))?;
    let (_, token_endpoint) = endpoints(&settings).await?;
    let secret = read_secret(&settings.client_secret_file).map_err(|error| {
        tracing::error!("login: {error}");
        failed("the secret for the login provider cannot be read")
    })?;
    let request = TokenRequest {
        grant_type: "authorization_code",
        code: &code,
        redirect_uri: &callback(&settings),
        code_verifier: &begun.verifier,
        client_id: &settings.client_id,
    };
    let request = client()?.post(token_endpoint).basic_auth(&settings.client_id, Some(secret)).form(&request);
    let answer: TokenAnswer = json(request, "the login provider").await?;
    let claims =
        Claims::of(&answer.id_token).ok_or_else(|| failed("the login provider sent no valid token"))?;
    let now = Timestamp::from(SystemTime::now());
    if let Some(problem) = claims.problem(&settings, &begun.nonce, now.0 as f64 / 1e3) {
        return Err(refused(problem));
    }
    let user = claims.user(&settings.user_claim);
    let user = user.ok_or_else(|| refused(&format!("the token has no claim {:?}", settings.user_claim)))?;
    let role = service.settings().login.role_of(user);
    let session = service.store.open_session(user, role, None, now, SESSION_LENGTH).await?;
    let cookies = [
        session_cookie(session.reveal(), SESSION_LENGTH.0 / 1_000, service.is_tls),
        login_cookie("", 0, service.is_tls),
    ];
    Ok(redirect("/", &cookies))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> OidcSettings {
        OidcSettings {
            issuer: "https://login.example.org/".into(),
            client_id: "tracewise".into(),
            client_secret_file: "secret".into(),
            external_url: "https://tracewise.example.org".into(),
            user_claim: "preferred_username".into(),
        }
    }

    fn token(claims: &serde_json::Value) -> String {
        format!("e30.{}.", BASE64_URL_SAFE_NO_PAD.encode(claims.to_string()))
    }

    #[test]
    fn only_a_token_of_this_login_is_accepted() {
        let good = serde_json::json!({
            "iss": "https://login.example.org", "aud": ["other", "tracewise"], "exp": 2_000.0, "nonce": "n", "sub": "1",
            "preferred_username": "ada",
        });
        let problem = |name: &str, value: serde_json::Value| {
            let mut claims = good.clone();
            claims[name] = value;
            let claims = Claims::of(&token(&claims)).unwrap();
            claims.problem(&settings(), "n", 1_000.0)
        };
        assert_eq!(problem("sub", "1".into()), None);
        for (name, value) in [
            ("iss", serde_json::json!("https://evil.example.org")),
            ("aud", serde_json::json!("other")),
            ("exp", serde_json::json!(999.0)),
            ("nonce", serde_json::json!("m")),
            ("nonce", serde_json::Value::Null),
        ] {
            assert!(problem(name, value).is_some(), "{name}");
        }
        let claims = Claims::of(&token(&good)).unwrap();
        assert_eq!((claims.user("preferred_username"), claims.user("sub")), (Some("ada"), Some("1")));
        assert_eq!(claims.user("email"), None);
        for broken in ["", "a.b", "a.e30.c", "...", "e30.!!.x"] {
            assert!(Claims::of(broken).is_none(), "{broken:?}");
        }
    }

    #[test]
    fn a_provider_without_tls_is_refused() {
        assert_eq!(check(&settings()), Ok(()));
        for issuer in ["http://login.example.org", "", "login", "file:///etc"] {
            assert!(check(&OidcSettings { issuer: issuer.into(), ..settings() }).is_err(), "{issuer}");
        }
    }
}
