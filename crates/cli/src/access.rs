//! Credentials for servers that are queried, from files or the environment.

use std::path::PathBuf;

use archive::source::PeerSettings;
use net::{Credentials, Secret};

use crate::args::AccessArgs;

pub const PASSWORD_VARIABLE: &str = "TRACEWISE_PASSWORD";
pub const TOKEN_VARIABLE: &str = "TRACEWISE_BEARER_TOKEN";

impl AccessArgs {
    pub fn peer_settings(&self) -> anyhow::Result<PeerSettings> {
        let credentials = self.credentials(|name| std::env::var(name).ok())?;
        Ok(PeerSettings { timeout: self.timeout, credentials, allow_http: self.allow_http })
    }

    fn credentials(&self, variable: impl Fn(&str) -> Option<String>) -> anyhow::Result<Option<Credentials>> {
        let from_variable = |name: &str| variable(name).map(|text| Secret::new(&text, name)).transpose();
        let secret = |file: Option<&PathBuf>, name: &str| match file {
            Some(file) => Secret::read(file).map(Some),
            None => from_variable(name),
        };
        if let Some(user) = &self.user {
            let Some(password) = secret(self.password_file.as_ref(), PASSWORD_VARIABLE)? else {
                anyhow::bail!(
                    "--user needs a password: name a file with --password-file, or set {PASSWORD_VARIABLE}"
                );
            };
            return Ok(Some(Credentials::basic(user, password)?));
        }
        Ok(secret(self.bearer_token_file.as_ref(), TOKEN_VARIABLE)?.map(Credentials::bearer))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn args(user: Option<&str>) -> AccessArgs {
        AccessArgs {
            timeout: Duration::from_secs(1),
            user: user.map(str::to_owned),
            password_file: None,
            bearer_token_file: None,
            allow_http: false,
        }
    }

    #[test]
    fn secrets_come_from_files_before_the_environment() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("secret");
        std::fs::write(&file, "from-file\n").unwrap();
        let variable = |_: &str| Some("from-variable".to_owned());
        let header = |args: AccessArgs| args.credentials(variable).unwrap().unwrap().authorization();
        assert_eq!(header(args(None)), "Bearer from-variable");
        assert_eq!(
            header(AccessArgs { bearer_token_file: Some(file.clone()), ..args(None) }),
            "Bearer from-file"
        );
        let basic = |password: &str| Credentials::basic("me", Secret::new(password, "").unwrap()).unwrap();
        assert_eq!(header(args(Some("me"))), basic("from-variable").authorization());
        let from_file = AccessArgs { password_file: Some(file), ..args(Some("me")) };
        assert_eq!(header(from_file), basic("from-file").authorization());
        assert_eq!(args(None).credentials(|_| None).unwrap(), None);
        assert!(args(Some("me")).credentials(|_| None).unwrap_err().to_string().contains("--password-file"));
    }
}
