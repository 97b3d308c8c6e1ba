//! Arguments of `tracewise learn`, `tracewise review`, `tracewise exclude` and `tracewise rehearse`.

use std::path::PathBuf;

use clap::Args as ClapArgs;

#[derive(Debug, ClapArgs)]
#[command(after_help = "\
The week: anomalous jobs on days 2, 3, 5 and 7; jobs behave differently from day 4 on; a harmless new kind of job from
day 6 on. The report is written as rehearsal.html, rehearsal.md and rehearsal.json.

Examples:
    tracewise rehearse --out report
    tracewise rehearse --seed 7 --error-rate 0.1 --out report-with-wrong-verdicts")]
pub struct RehearseArgs {
    /// The number of days
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=365))]
    pub days: u32,
    /// The random seed of the cluster, the administrator and the candidates
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// How many hours of each day are simulated
    #[arg(long, default_value_t = 6.0)]
    pub hours: f64,
    /// Nodes of the simulated cluster
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub nodes: u32,
    /// Hardware threads of each node
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: u16,
    /// The fraction of the administrator's verdicts that are wrong
    #[arg(long, value_name = "FRACTION", default_value_t = 0.0)]
    pub error_rate: f64,
    /// The directory of the report
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Keep the archive, the models and the events in this directory, to look at them with other commands
    #[arg(long, value_name = "DIR")]
    pub keep: Option<PathBuf>,
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
}
