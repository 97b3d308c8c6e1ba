//! The command line, with the flags that exporters share.

use std::path::PathBuf;
use std::time::Duration;

use agent::cgroup::MOST_JOBS;
use agent::node::Collector;
use agent::remote_write::Protocol;
use agent::web::listener::ListenAddress;
use clap::{Arg, ArgAction, ArgMatches, Args as ClapArgs, Command, FromArgMatches, Parser, Subcommand};
use url::Url;
use workload::NodeName;
use workload::units::{parse_bytes, parse_duration};

/// `make agent` and packages set this to the version with the commit. A build script would know the commit in every build, but
/// this crate is also a library, and all that use it would be compiled again after each commit.
const VERSION: &str = match option_env!("TRACEWISE_VERSION") {
    Some(version) => version,
    None => env!("CARGO_PKG_VERSION"),
};

/// Exposes the CPU time of every hardware thread, and the job that owns it, to Prometheus
#[derive(Debug, Parser)]
#[command(
    name = "tracewise-agent",
    version = VERSION,
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  tracewise-agent                                   listen on 127.0.0.1:9742
  tracewise-agent --web.listen-address=:9742        listen on every interface; see --web.config.file
  tracewise-agent --remote-write.url=http://prometheus:9090/api/v1/write
  tracewise-agent doctor                            show which jobs are found, and what to change"
)]
pub struct Args {
    #[command(subcommand)]
    pub command: Option<AgentCommand>,
    #[command(flatten)]
    pub serve: ServeArgs,
}

#[derive(Debug, Subcommand)]
pub enum AgentCommand {
    /// Show the jobs found on this node and the threads they own, and suggest changes
    Doctor {
        #[command(flatten)]
        roots: Roots,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Ask a running agent whether it is healthy; exit code 1 if it is not
    Health {
        /// What to ask
        #[arg(long, default_value = "http://127.0.0.1:9742/healthz")]
        url: Url,
    },
}

#[derive(Debug, ClapArgs)]
pub struct Roots {
    /// Where the proc file system is mounted
    #[arg(long = "path.procfs", value_name = "FOLDER", default_value = "/proc")]
    pub procfs: PathBuf,
    /// Where control groups are mounted
    #[arg(long = "path.cgroupfs", value_name = "FOLDER", default_value = "/sys/fs/cgroup")]
    pub cgroupfs: PathBuf,
}

#[derive(Debug, ClapArgs)]
pub struct ServeArgs {
    /// Address to listen on: :9742 (every interface), 10.0.0.1:9742 or unix:/path; repeatable
    #[arg(long = "web.listen-address", value_name = "ADDRESS", default_value = "127.0.0.1:9742")]
    pub listen: Vec<ListenAddress>,
    /// File with TLS, client certificates and passwords, in the format of Prometheus exporters
    #[arg(long = "web.config.file", value_name = "FILE")]
    pub web_config: Option<PathBuf>,
    /// Maximum number of connections
    #[arg(long = "web.max-connections", value_name = "NUMBER", default_value_t = 64, value_parser = at_least_one)]
    pub most_connections: usize,
    /// Maximum number of connections from one address or, on a Unix socket, from one user
    #[arg(long = "web.max-connections-per-client", value_name = "NUMBER", default_value_t = 16, value_parser = at_least_one)]
    pub most_connections_per_client: usize,
    #[command(flatten)]
    pub roots: Roots,
    #[command(flatten)]
    pub collectors: Switches,
    /// How often the files of each job are read
    #[arg(long = "collector.cgroup.interval", value_name = "DURATION", default_value = "10s", value_parser = parse_duration)]
    pub job_interval: Duration,
    /// Maximum number of jobs that are exposed
    #[arg(long = "collector.cgroup.max-jobs", value_name = "NUMBER", default_value_t = MOST_JOBS, value_parser = at_least_one)]
    pub most_jobs: usize,
    /// Also expose steps and tasks of Slurm jobs
    #[arg(long = "collector.cgroup.steps")]
    pub has_steps: bool,
    /// Also expose cgroup_*{jobid,step,task}, for jobstats and its dashboard
    #[arg(long = "compat.jobstats")]
    pub has_jobstats: bool,
    /// How often the node is read, such as 1s or 100ms
    #[arg(long = "sample.interval", value_name = "DURATION", default_value = "1s", value_parser = parse_duration)]
    pub interval: Duration,
    /// How long every reading is kept in memory, for /samples and remote write
    #[arg(long = "samples.keep", value_name = "DURATION", default_value = "1h", value_parser = parse_duration)]
    pub keep: Duration,
    /// Maximum memory of these readings
    #[arg(long = "samples.max-size", value_name = "SIZE", default_value = "64MiB", value_parser = parse_bytes)]
    pub keep_bytes: u64,
    /// The name of this node in samples [default: its hostname]
    #[arg(long = "node.name", value_name = "NAME")]
    pub node: Option<NodeName>,
    #[command(flatten)]
    pub remote_write: RemoteWriteArgs,
    /// error, warn, info or debug
    #[arg(long = "log.level", value_name = "LEVEL", default_value = "info")]
    pub log_level: tracing::Level,
}

#[derive(Debug, ClapArgs)]
pub struct RemoteWriteArgs {
    /// Push every reading to this URL; it may contain user:password@
    #[arg(
        long = "remote-write.url",
        value_name = "URL",
        env = "TRACEWISE_REMOTE_WRITE_URL",
        hide_env_values = true
    )]
    pub url: Option<Url>,
    /// How often to push
    #[arg(long = "remote-write.interval", value_name = "DURATION", default_value = "15s", value_parser = parse_duration)]
    pub push_interval: Duration,
    #[arg(long = "remote-write.protocol", value_name = "VERSION", value_enum, default_value = "auto")]
    pub protocol: Protocol,
    /// A label for every pushed series, such as cluster=a; repeatable
    #[arg(long = "remote-write.label", value_name = "NAME=VALUE", value_parser = parse_label)]
    pub labels: Vec<(String, String)>,
    /// A file with a bearer token
    #[arg(long = "remote-write.bearer-token-file", value_name = "FILE")]
    pub bearer_token_file: Option<PathBuf>,
    /// Send credentials over http:// to another machine, where others may read them
    #[arg(long = "remote-write.allow-http")]
    pub allow_http: bool,
}

fn at_least_one(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|number| *number > 0).ok_or_else(|| "give a number above 0".into())
}

fn parse_label(text: &str) -> Result<(String, String), String> {
    let is_name = |name: &str| {
        name.starts_with(|letter: char| letter.is_ascii_alphabetic() || letter == '_')
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
            && !name.starts_with("__")
    };
    match text.split_once('=') {
        Some((name, value)) if is_name(name) && !value.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write it like cluster=a".into()),
    }
}

/// `--collector.x` and `--no-collector.x` for every collector.
#[derive(Debug)]
pub struct Switches {
    pub enabled: Vec<Collector>,
}

const DISABLE_DEFAULTS: &str = "collector.disable-defaults";

const fn flags(collector: Collector) -> (&'static str, &'static str) {
    match collector {
        Collector::Cpu => ("collector.cpu", "no-collector.cpu"),
        Collector::Cgroup => ("collector.cgroup", "no-collector.cgroup"),
        Collector::Pressure => ("collector.pressure", "no-collector.pressure"),
        Collector::Memory => ("collector.memory", "no-collector.memory"),
        Collector::Load => ("collector.load", "no-collector.load"),
        Collector::Own => ("collector.self", "no-collector.self"),
    }
}

impl ClapArgs for Switches {
    fn augment_args(command: Command) -> Command {
        let flag = |name: &'static str| Arg::new(name).long(name).action(ArgAction::SetTrue);
        let about = "Disable all collectors except those given by --collector.<name>";
        let command = command.arg(flag(DISABLE_DEFAULTS).help(about));
        Collector::ALL.into_iter().fold(command, |command, collector| {
            let (on, off) = flags(collector);
            let about = format!("Read {}; --{off} does not", collector.about());
            command.arg(flag(on).help(about).overrides_with(off)).arg(flag(off).hide(true).overrides_with(on))
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Switches {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let are_on = !matches.get_flag(DISABLE_DEFAULTS);
        let is_enabled = |collector: &Collector| {
            let (on, off) = flags(*collector);
            matches.get_flag(on) || (are_on && !matches.get_flag(off))
        };
        Ok(Self { enabled: Collector::ALL.into_iter().filter(is_enabled).collect() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_reference_of_flags_is_current() {
        let help = Args::command().term_width(110).render_long_help().to_string();
        let help: Vec<&str> = help.trim_end().lines().map(str::trim_end).collect();
        let text = format!(
            "# Flags of the agent\n\nGenerated from the program; a test checks that it is current. `tracewise-agent --help` \
             prints the same. [The agent](agent.md) explains them.\n\n```text\n{}\n```\n",
            help.join("\n")
        );
        testbed::check_document("agent-flags.md", &text);
    }
}
