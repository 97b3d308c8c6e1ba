//! What a series means: which counter of which thread or job on which node.

use remote_write::Label;
use workload::{Cpu, JobId, JobReading, Mode, NodeName, Owner, metric};

use crate::counts::Ignored;

/// The counter of CPU seconds of `node_exporter`.
pub const NODE_EXPORTER_METRIC: &str = "node_cpu_seconds_total";

/// What the samples of a series are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Meaning {
    /// Seconds that a thread spent in a mode.
    Cpu { node: NodeName, cpu: Cpu, mode: Mode },
    /// Who owns a thread, while the value is 1.
    Owner { node: NodeName, cpu: Cpu, owner: Owner },
    /// A value of a job, by its index in [`JobReading::COUNTS`].
    Job { node: NodeName, job: JobId, index: usize },
    /// The memory of a node.
    NodeMemory { node: NodeName },
    /// Nothing that is needed.
    Ignored(Ignored),
}

impl Meaning {
    /// The meaning of a series with these labels.
    pub fn of<'a>(labels: impl Iterator<Item = Label<'a>>) -> Self {
        let mut known = Known::default();
        for (name, value) in labels {
            known.take(name, value);
        }
        known.meaning()
    }

    /// The node that a series is about.
    pub fn node(&self) -> Option<&NodeName> {
        match self {
            Self::Cpu { node, .. }
            | Self::Owner { node, .. }
            | Self::Job { node, .. }
            | Self::NodeMemory { node } => Some(node),
            Self::Ignored(_) => None,
        }
    }
}

/// The labels that matter.
#[derive(Default)]
struct Known<'a> {
    name: &'a str,
    node: Option<&'a str>,
    instance: Option<&'a str>,
    cpu: Option<&'a str>,
    mode: Option<&'a str>,
    owner: Option<&'a str>,
    job: Option<&'a str>,
}

impl<'a> Known<'a> {
    fn take(&mut self, name: &'a [u8], value: &'a [u8]) {
        let Ok(value) = std::str::from_utf8(value) else { return };
        match name {
            b"__name__" => self.name = value,
            b"node" => self.node = Some(value),
            b"instance" => self.instance = Some(value),
            b"cpu" => self.cpu = Some(value),
            b"mode" => self.mode = Some(value),
            b"owner" => self.owner = Some(value),
            b"jobid" => self.job = Some(value),
            _ => {}
        }
    }

    fn meaning(&self) -> Meaning {
        let meaning = match self.name {
            metric::CPU_SECONDS | NODE_EXPORTER_METRIC => self.cpu_seconds(),
            metric::CPU_OWNER => self.owner(),
            metric::NODE_MEMORY => self.node().map(|node| Meaning::NodeMemory { node }),
            name => match metric::JOB_COUNTS.iter().position(|known| *known == name) {
                Some(index) => self.job(index),
                None => return Meaning::Ignored(Ignored::Metric),
            },
        };
        meaning.unwrap_or(Meaning::Ignored(Ignored::Labels))
    }

    /// The node: the label `node`, or `instance` without its port.
    fn node(&self) -> Option<NodeName> {
        let instance = || {
            let instance = self.instance?;
            match instance.rsplit_once(':') {
                Some((host, port)) if port.parse::<u16>().is_ok() => Some(host),
                _ => Some(instance),
            }
        };
        NodeName::new(self.node.or_else(instance)?).ok()
    }

    fn thread(&self) -> Option<(NodeName, Cpu)> {
        Some((self.node()?, Cpu(self.cpu?.parse().ok()?)))
    }

    fn cpu_seconds(&self) -> Option<Meaning> {
        let (node, cpu) = self.thread()?;
        Some(Meaning::Cpu { node, cpu, mode: Mode::from_name(self.mode?)? })
    }

    fn owner(&self) -> Option<Meaning> {
        let (node, cpu) = self.thread()?;
        let owner = match self.owner? {
            "job" => Owner::Job(JobId::new(self.job?).ok()?),
            "nobody" => Owner::Nobody,
            "shared" => Owner::Shared,
            "unknown" => Owner::Unknown,
            _ => return None,
        };
        Some(Meaning::Owner { node, cpu, owner })
    }

    fn job(&self, index: usize) -> Option<Meaning> {
        debug_assert!(index < JobReading::N_COUNTS);
        Some(Meaning::Job { node: self.node()?, job: JobId::new(self.job?).ok()?, index })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(labels: &[(&str, &str)]) -> Meaning {
        Meaning::of(labels.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())))
    }

    #[test]
    fn series_of_agents_and_of_node_exporters_are_understood() {
        let node = NodeName::new("n1").unwrap();
        let cpu = of(&[
            ("__name__", "node_cpu_seconds_total"),
            ("cpu", "3"),
            ("instance", "n1:9100"),
            ("mode", "iowait"),
        ]);
        assert_eq!(cpu, Meaning::Cpu { node: node.clone(), cpu: Cpu(3), mode: Mode::Iowait });
        let owner = of(&[
            ("__name__", metric::CPU_OWNER),
            ("cpu", "0"),
            ("instance", "other:9742"),
            ("jobid", "42"),
            ("node", "n1"),
            ("owner", "job"),
        ]);
        let job = JobId::new("42").unwrap();
        assert_eq!(owner, Meaning::Owner { node: node.clone(), cpu: Cpu(0), owner: Owner::Job(job.clone()) });
        let memory = of(&[("__name__", metric::JOB_COUNTS[0]), ("instance", "n1"), ("jobid", "42")]);
        assert_eq!(memory, Meaning::Job { node, job, index: 0 });
    }

    #[test]
    fn what_is_not_needed_or_not_valid_is_ignored() {
        assert_eq!(of(&[("__name__", "up"), ("instance", "n1")]), Meaning::Ignored(Ignored::Metric));
        assert_eq!(of(&[]), Meaning::Ignored(Ignored::Metric));
        let name = ("__name__", "node_cpu_seconds_total");
        for wrong in [
            &[name, ("cpu", "0"), ("mode", "user")][..],
            &[name, ("cpu", "0"), ("instance", "a\nb"), ("mode", "user")],
            &[name, ("cpu", "-1"), ("instance", "n1"), ("mode", "user")],
            &[name, ("cpu", "0"), ("instance", "n1"), ("mode", "dreaming")],
            &[name, ("cpu", "70000"), ("instance", "n1"), ("mode", "user")],
        ] {
            assert_eq!(of(wrong), Meaning::Ignored(Ignored::Labels), "{wrong:?}");
        }
    }
}
