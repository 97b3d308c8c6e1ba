//! How people log in, besides tokens.

use std::net::IpAddr;
use std::path::PathBuf;

use lifecycle::Role;
use serde::{Deserialize, Serialize};

use super::SettingsError;

/// How people log in, besides tokens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LoginSettings {
    /// The header in which a proxy names the user whom it has authenticated.
    pub proxy_header: String,
    /// The addresses of the proxies that may do so.
    pub proxies: Vec<IpAddr>,
    /// The role of users who are not listed.
    pub role: Role,
    pub vetters: Vec<String>,
    pub admins: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oidc: Option<OidcSettings>,
}

/// An OpenID provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OidcSettings {
    /// The address of the provider, such as `https://login.example.org/realms/hpc`.
    pub issuer: String,
    pub client_id: String,
    pub client_secret_file: PathBuf,
    /// The address of this service in the browser, such as `https://tracewise.example.org`.
    pub external_url: String,
    /// The claim that names the user.
    #[serde(default = "user_claim")]
    pub user_claim: String,
}

fn user_claim() -> String {
    "preferred_username".into()
}

impl Default for LoginSettings {
    fn default() -> Self {
        Self {
            proxy_header: String::new(),
            proxies: Vec::new(),
            role: Role::Viewer,
            vetters: Vec::new(),
            admins: Vec::new(),
            oidc: None,
        }
    }
}

impl LoginSettings {
    pub(super) fn check(&self) -> Result<(), SettingsError> {
        if !self.proxy_header.is_empty() && self.proxies.is_empty() {
            return Err(SettingsError::Login(
                "proxies is empty: list the addresses of the proxies whose header is trusted",
            ));
        }
        if !self.proxy_header.is_empty() && self.proxy_header.parse::<axum::http::HeaderName>().is_err() {
            return Err(SettingsError::Login("proxy_header is not the name of a header"));
        }
        if self.role == Role::Ingest {
            return Err(SettingsError::Login("role must be viewer, vetter or admin"));
        }
        match &self.oidc {
            Some(oidc) => crate::http::oidc::check(oidc),
            None => Ok(()),
        }
    }

    /// Whether an address is that of a trusted proxy.
    pub fn is_proxy(&self, address: IpAddr) -> bool {
        self.proxies.iter().any(|proxy| proxy.to_canonical() == address.to_canonical())
    }

    /// Whether people log in in another way than with tokens.
    pub fn is_on(&self) -> bool {
        !self.proxy_header.is_empty() || self.oidc.is_some()
    }

    /// The role of a user.
    pub fn role_of(&self, user: &str) -> Role {
        let is_in = |names: &[String]| names.iter().any(|name| name == user);
        match () {
            () if is_in(&self.admins) => Role::Admin,
            () if is_in(&self.vetters) => Role::Vetter,
            () => self.role,
        }
    }
}
