//! The agents that are read, and how the service logs in to them.

use std::path::PathBuf;

use net::{Credentials, Secret};
use reqwest::Certificate;
use reqwest::header::HeaderValue;
use serde::{Deserialize, Serialize};
use url::Url;

use super::{Length, SettingsError, seconds};

/// The agents that are read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AgentSettings {
    /// Addresses, such as `n001:9742` or `https://n001:9742`.
    pub targets: Vec<String>,
    /// Files in the format of Prometheus' `file_sd`, in JSON. They are read again when they change.
    pub file_sd: Vec<PathBuf>,
    /// Addresses that respond in the same format.
    pub http_sd: Vec<String>,
    /// Time from one request to an agent to the next.
    pub every: Length,
    /// Who logs in to the agents with a password.
    pub user: String,
    /// A file with the password of `user`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password_file: Option<PathBuf>,
    /// A file with a bearer token, such as that of a proxy in front of the agents.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_file: Option<PathBuf>,
    /// A file with the certificates of authorities, in PEM, that may have signed those of agents.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
}

impl Default for AgentSettings {
    fn default() -> Self {
        Self {
            targets: Vec::new(),
            file_sd: Vec::new(),
            http_sd: Vec::new(),
            every: seconds(5),
            user: String::new(),
            password_file: None,
            token_file: None,
            ca_file: None,
        }
    }
}

impl AgentSettings {
    /// Whether agents are shown a password or a token.
    pub fn has_credentials(&self) -> bool {
        self.password_file.is_some() || self.token_file.is_some()
    }

    /// Rejects settings that cannot be used.
    pub(super) fn check(&self) -> Result<(), SettingsError> {
        if self.user.is_empty() == self.password_file.is_some() {
            return Err(SettingsError::Agents("user and password_file belong together"));
        }
        if self.password_file.is_some() && self.token_file.is_some() {
            return Err(SettingsError::Agents("password_file and token_file exclude each other"));
        }
        for target in &self.targets {
            self.may_ask(&crate::input::targets::address(target)?)?;
        }
        Ok(())
    }

    /// Credentials are sent to an agent only encrypted, or on this machine.
    pub(crate) fn may_ask(&self, agent: &Url) -> Result<(), SettingsError> {
        if self.has_credentials() && !net::is_confidential(agent) {
            let url = agent[..url::Position::BeforePath].to_owned();
            return Err(SettingsError::Server { url, reason: "a password or token is sent only with https" });
        }
        Ok(())
    }

    /// The header that shows who asks. The files are read every time, so that secrets can be replaced.
    pub(crate) fn authorization(&self) -> Result<Option<HeaderValue>, String> {
        let credentials = match (&self.password_file, &self.token_file) {
            (Some(file), _) => Secret::read(file).and_then(|secret| Credentials::basic(&self.user, secret)),
            (None, Some(file)) => Secret::read(file).map(Credentials::bearer),
            (None, None) => return Ok(None),
        };
        let text = credentials.map_err(|error| error.to_string())?.authorization();
        let mut value = HeaderValue::try_from(text).map_err(|error| error.to_string())?;
        value.set_sensitive(true);
        Ok(Some(value))
    }

    /// The authorities of `ca_file`.
    pub(crate) fn authorities(&self) -> Result<Vec<Certificate>, String> {
        let Some(file) = &self.ca_file else { return Ok(Vec::new()) };
        let failed = |reason: String| format!("{}: {reason}", file.display());
        let text = std::fs::read(file).map_err(|error| failed(error.to_string()))?;
        let certificates = Certificate::from_pem_bundle(&text)
            .map_err(|error| failed(net::root_cause(&error).to_string()))?;
        if certificates.is_empty() {
            return Err(failed("it has no certificate in PEM".into()));
        }
        Ok(certificates)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_complete_and_sent_only_encrypted_or_on_this_machine() {
        let with = |target: &str, user: &str, password: bool, token: bool| {
            let file = |is_there: bool| is_there.then(|| PathBuf::from("secret"));
            AgentSettings {
                targets: vec![target.into()],
                user: user.into(),
                password_file: file(password),
                token_file: file(token),
                ..AgentSettings::default()
            }
        };
        for (target, user, password, token, is_valid) in [
            ("n001", "", false, false, true),
            ("https://n001", "me", true, false, true),
            ("127.0.0.1", "me", true, false, true),
            ("n001", "me", true, false, false),
            ("n001", "", false, true, false),
            ("https://n001", "", false, true, true),
            ("https://n001", "me", false, false, false),
            ("https://n001", "", true, false, false),
            ("https://n001", "me", true, true, false),
        ] {
            let checked = with(target, user, password, token).check();
            assert_eq!(checked.is_ok(), is_valid, "{target} {user} {password} {token}: {checked:?}");
        }
    }

    #[test]
    fn a_file_without_certificates_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ca.pem");
        let settings = AgentSettings { ca_file: Some(file.clone()), ..AgentSettings::default() };
        assert!(settings.authorities().unwrap_err().contains("ca.pem"));
        std::fs::write(&file, "no certificate").unwrap();
        assert!(settings.authorities().unwrap_err().contains("ca.pem: "));
        assert!(AgentSettings::default().authorities().unwrap().is_empty());
    }
}
