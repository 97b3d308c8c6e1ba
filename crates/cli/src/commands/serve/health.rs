//! `tracewise health`

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::process::ExitCode;

use ::serve::ServeSettings;
use anyhow::Context;
use url::Url;

use super::runtime;
use crate::args::HealthArgs;
use crate::config::Config;

pub fn run(args: HealthArgs, file: Option<&Path>) -> anyhow::Result<ExitCode> {
    let (url, is_own) = match args.url {
        Some(url) => (url, false),
        None => (address(&Config::load(file)?.serve)?, true),
    };
    runtime()?.block_on(agent::health::check(url, is_own))?;
    Ok(ExitCode::SUCCESS)
}

/// Where the service answers on this machine.
fn address(settings: &ServeSettings) -> anyhow::Result<Url> {
    let ip = match settings.listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    let scheme = if settings.web_config.is_some() { "https" } else { "http" };
    let address = SocketAddr::new(ip, settings.listen.port());
    Url::parse(&format!("{scheme}://{address}/healthz")).context("serve.listen is no address")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_that_listens_everywhere_is_asked_on_this_machine() {
        for (listen, has_tls, url) in [
            ("127.0.0.1:9743", false, "http://127.0.0.1:9743/healthz"),
            ("0.0.0.0:80", false, "http://127.0.0.1/healthz"),
            ("[::]:9743", true, "https://[::1]:9743/healthz"),
            ("10.0.0.1:9743", true, "https://10.0.0.1:9743/healthz"),
        ] {
            let settings = ServeSettings {
                listen: listen.parse().unwrap(),
                web_config: has_tls.then(|| "web.yml".into()),
                ..ServeSettings::default()
            };
            assert_eq!(address(&settings).unwrap().as_str(), url);
        }
    }
}
