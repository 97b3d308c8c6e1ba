//! Asks a running program whether it is healthy, for health checks of containers without curl.

use std::time::Duration;

use reqwest::redirect::Policy;
use reqwest::{Client, StatusCode};
use url::Url;

/// Less than the time that supervisors usually give a check.
const TIMEOUT: Duration = Duration::from_secs(4);
/// How much of an unhealthy answer is shown.
const MAX_SHOWN: usize = 200;

#[derive(Debug, thiserror::Error)]
pub enum HealthError {
    #[error("{url} does not respond: {cause}")]
    NoResponse { url: Url, cause: String },
    #[error("{url} responds with {status}: {body}")]
    Unhealthy { url: Url, status: StatusCode, body: String },
}

/// Whether the program at this address is healthy. One that asks for a password is: it responds. `is_own` says that it is the
/// program of this machine, as every loopback address is: its certificate is not verified, because it is for the name that
/// other machines use, and nothing secret is sent.
pub async fn check(url: Url, is_own: bool) -> Result<(), HealthError> {
    net::install_tls_provider();
    let is_own = is_own || net::is_loopback(&url);
    let url = net::without_password(&url);
    let no_response = |error: reqwest::Error| HealthError::NoResponse {
        url: url.clone(),
        cause: net::root_cause(&error).to_string(),
    };
    let client = Client::builder()
        .timeout(TIMEOUT)
        .redirect(Policy::none())
        .no_proxy()
        .tls_danger_accept_invalid_certs(is_own)
        .build()
        .map_err(no_response)?;
    let mut response = client.get(url.clone()).send().await.map_err(no_response)?;
    let status = response.status();
    if status.is_success() || status == StatusCode::UNAUTHORIZED {
        return Ok(());
    }
    let body = response.chunk().await.map_err(no_response)?.unwrap_or_default();
    let body = String::from_utf8_lossy(&body[..body.len().min(MAX_SHOWN)]).trim().to_owned();
    Err(HealthError::Unhealthy { url, status, body })
}
