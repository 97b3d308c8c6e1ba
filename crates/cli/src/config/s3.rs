//! `[archive.s3]`: how buckets are reached.

use anyhow::bail;
use archive::S3Settings;
use serde::{Deserialize, Serialize};
use url::Url;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct S3Config {
    pub endpoint: Option<String>,
    pub region: Option<String>,
    pub allow_http: bool,
}

impl S3Config {
    pub fn settings(&self) -> S3Settings {
        S3Settings { endpoint: self.endpoint.clone(), region: self.region.clone() }
    }

    /// Rejects an endpoint to which keys must not be sent, and a region that is part of no host name.
    pub fn check(&self) -> anyhow::Result<()> {
        if let Some(endpoint) = &self.endpoint {
            let Some(url) = Url::parse(endpoint).ok().filter(|url| matches!(url.scheme(), "http" | "https"))
            else {
                bail!("endpoint is no address; write it like https://s3.example.org");
            };
            if !self.allow_http && !net::is_confidential(&url) {
                bail!(
                    "requests to {} are signed with your keys and may contain a session token: use https://, or set \
                     allow_http = true",
                    net::without_password(&url)
                );
            }
        }
        let is_part_of_name = |region: &String| {
            !region.is_empty() && region.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        };
        match &self.region {
            Some(region) if !is_part_of_name(region) => {
                bail!("{region:?} is not a region, such as us-east-1")
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_endpoint(endpoint: &str) -> S3Config {
        S3Config { endpoint: Some(endpoint.into()), ..S3Config::default() }
    }

    #[test]
    fn keys_are_sent_over_tls_or_to_this_machine() {
        for good in ["https://s3.example.org", "http://127.0.0.1:9000", "http://localhost:9000"] {
            with_endpoint(good).check().unwrap();
        }
        for bad in ["http://s3.example.org", "http://10.0.0.1:9000", "s3.example.org", "ftp://127.0.0.1"] {
            assert!(with_endpoint(bad).check().is_err(), "{bad}");
        }
        S3Config { allow_http: true, ..with_endpoint("http://s3.example.org") }.check().unwrap();
    }

    #[test]
    fn a_region_cannot_name_another_host() {
        let with_region = |region: &str| S3Config { region: Some(region.into()), ..S3Config::default() };
        with_region("eu-central-1").check().unwrap();
        for bad in ["evil.org/", "evil.org#", "", "a b"] {
            assert!(with_region(bad).check().is_err(), "{bad}");
        }
    }
}
