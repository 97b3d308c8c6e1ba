//! Arguments about servers that are queried.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args as ClapArgs;
use workload::units::parse_duration;

/// How a server is reached.
#[derive(Debug, ClapArgs)]
#[group(skip)]
pub struct AccessArgs {
    /// How long to wait for an answer of the server
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = parse_duration, conflicts_with = "files")]
    pub timeout: Duration,
    /// The user to log in as; the password is read from --password-file, else from TRACEWISE_PASSWORD
    #[arg(long, value_name = "NAME", conflicts_with = "files")]
    pub user: Option<String>,
    /// A file with the password of --user
    #[arg(long, value_name = "FILE", requires = "user")]
    pub password_file: Option<PathBuf>,
    /// A file with a bearer token [default: TRACEWISE_BEARER_TOKEN, if there is no --user]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["files", "user"])]
    pub bearer_token_file: Option<PathBuf>,
    /// Send credentials to other machines over http://, where others may read them
    #[arg(long, conflicts_with = "files")]
    pub allow_http: bool,
}
