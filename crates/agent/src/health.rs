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

/// Whether the program at this address is healthy. One that asks for a password is: it responds.
pub async fn check(url: Url) -> Result<(), HealthError> {
    net::install_tls_provider();
    let url = net::without_password(&url);
    let no_response = |error: reqwest::Error| HealthError::NoResponse {
        url: url.clone(),
        cause: net::root_cause(&error).to_string(),
    };
    let client = Client::builder().timeout(TIMEOUT).redirect(Policy::none()).no_proxy().build();
    let mut response = client.map_err(no_response)?.get(url.clone()).send().await.map_err(no_response)?;
    let status = response.status();
    if status.is_success() || status == StatusCode::UNAUTHORIZED {
        return Ok(());
    }
    let body = response.chunk().await.map_err(no_response)?.unwrap_or_default();
    let body = String::from_utf8_lossy(&body[..body.len().min(MAX_SHOWN)]).trim().to_owned();
    Err(HealthError::Unhealthy { url, status, body })
}
