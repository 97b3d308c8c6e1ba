//! Arguments of `tracewise serve`, `tracewise health`, `tracewise models`, `tracewise token` and `tracewise demo`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand};
use lifecycle::Role;
use url::Url;
use workload::{NodeName, Timestamp};

use crate::times::parse_time;

#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Settings are in [serve] of the configuration; `tracewise config example` explains them.\n\n\
Examples:
    tracewise serve --agent n001:9742 --agent n002:9742
    tracewise serve --config /etc/tracewise/tracewise.toml
    curl http://127.0.0.1:9743/api/v1/events"
)]
pub struct ServeArgs {
    /// The address for HTTP [default: serve.listen of the configuration]
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<SocketAddr>,
    /// The directory of everything that the service keeps [default: serve.data of the configuration]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// An agent to read, such as n001:9742; may be repeated
    #[arg(long = "agent", value_name = "ADDRESS")]
    pub agents: Vec<String>,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "For health checks of containers, which have no curl.\n\nExamples:
    tracewise health
    tracewise health --url https://tracewise.example.org/readyz")]
pub struct HealthArgs {
    /// What to ask: /healthz for the process, /readyz also for the metadata store [default: /healthz at serve.listen of the
    /// configuration]
    #[arg(long)]
    pub url: Option<Url>,
}

/// Where the service keeps its state.
#[derive(Debug, ClapArgs)]
pub struct StoreArgs {
    /// The directory of the service [default: serve.data of the configuration]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub enum ModelsCommand {
    /// List all versions, the newest first
    List {
        #[command(flatten)]
        store: StoreArgs,
        /// Print the result as JSON
        #[arg(long)]
        json: bool,
    },
    /// Show a version: its training data, its metrics, and when it was in use
    Show {
        /// The version [default: the champion]
        #[arg(id = "model", value_name = "VERSION")]
        version: Option<String>,
        #[command(flatten)]
        store: StoreArgs,
        /// Print the result as JSON
        #[arg(long)]
        json: bool,
    },
    /// Copy a model that was trained elsewhere
    #[command(after_help = "Example:
    tracewise models add model --promote \"trained with a whole week\"")]
    Add {
        /// The directory of the model
        model: PathBuf,
        /// The name of the version [default: the name of the directory]
        #[arg(long, value_name = "VERSION")]
        name: Option<String>,
        /// Make it the champion, for this reason
        #[arg(long, value_name = "REASON")]
        promote: Option<String>,
        #[command(flatten)]
        store: StoreArgs,
    },
    /// Make a version the champion; a running service uses it a few seconds later
    Promote {
        #[arg(id = "model", value_name = "VERSION")]
        version: String,
        /// Why; it is kept in the history
        #[arg(long, default_value = "")]
        reason: String,
        #[command(flatten)]
        store: StoreArgs,
    },
    /// Make the champion before this one the champion again
    Rollback {
        /// Why; it is kept in the history
        #[arg(long, default_value = "")]
        reason: String,
        #[command(flatten)]
        store: StoreArgs,
    },
    /// Show which model was the champion when, and who promoted it
    #[command(after_help = "Examples:
    tracewise models history
    tracewise models history --at 2026-11-10T03:12:00Z")]
    History {
        /// Only the champion at this time
        #[arg(long, value_name = "TIME", value_parser = parse_time)]
        at: Option<Timestamp>,
        #[command(flatten)]
        store: StoreArgs,
        /// Print the result as JSON
        #[arg(long)]
        json: bool,
    },
    /// Show in which settings, thresholds and metrics two versions differ
    Diff {
        before: String,
        after: String,
        #[command(flatten)]
        store: StoreArgs,
        /// Print the result as JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Create a token and print it; it cannot be printed again
    #[command(after_help = "Examples:
    tracewise token add --role viewer grafana
    tracewise token add --role ingest --node n001 --node n002 \"agents of rack 1\"
    tracewise token add --role admin --initial /var/lib/tracewise/admin.token \"first administrator\"")]
    Add {
        /// What the token is for
        name: String,
        /// What it may do: ingest, viewer, vetter or admin
        #[arg(long, default_value = "viewer")]
        role: Role,
        /// A node whose readings it may send, for the role ingest; may be repeated [default: all nodes]
        #[arg(long = "node", value_name = "NAME")]
        nodes: Vec<NodeName>,
        /// If nobody has a token: write it to this file, which only its owner can read
        #[arg(long, value_name = "FILE", conflicts_with = "json")]
        initial: Option<PathBuf>,
        #[command(flatten)]
        store: StoreArgs,
        /// Print the result as JSON
        #[arg(long)]
        json: bool,
    },
    /// List all tokens, without their secrets
    List {
        #[command(flatten)]
        store: StoreArgs,
        /// Print the result as JSON
        #[arg(long)]
        json: bool,
    },
    /// Revoke a token, and end the sessions that were opened with it
    Revoke {
        /// The id of the token, as `tracewise token list` prints it
        id: String,
        #[command(flatten)]
        store: StoreArgs,
    },
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:
    tracewise demo
    tracewise demo --nodes 20 --threads 64 --port 8080")]
pub struct DemoArgs {
    /// The port of the page; 0 for any that is free
    #[arg(long, default_value_t = 9743)]
    pub port: u16,
    /// The random seed of the cluster
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Nodes of the simulated cluster
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub nodes: u32,
    /// Hardware threads of each node
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: u16,
    /// How many times as fast as the clock the cluster runs
    #[arg(long, default_value_t = 1.0)]
    pub speed: f64,
    /// The directory of the demonstration; it is emptied first
    #[arg(long, value_name = "DIR", default_value = "run/demo")]
    pub data: PathBuf,
    /// Do not open the page in a browser
    #[arg(long)]
    pub no_open: bool,
}
