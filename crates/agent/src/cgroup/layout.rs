//! Which control group is a job's, judged by its path alone.
//!
//! Every batch system names its groups in its own way, and sites move them to other slices. So a
//! group is recognised by its own name and those just above it, wherever it lies; except below
//! `user.slice`, where users may make groups of any name.

/// Who put a job where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Manager {
    Slurm,
    HtCondor,
    Kubernetes,
    Pbs,
    /// A slice or service of systemd's own, which counts only if it is confined to some CPUs.
    Systemd,
}

impl Manager {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Slurm => "slurm",
            Self::HtCondor => "htcondor",
            Self::Kubernetes => "kubernetes",
            Self::Pbs => "pbs",
            Self::Systemd => "systemd",
        }
    }
}

/// What the path of a control group reveals about a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    pub manager: Manager,
    pub name: JobName,
    pub uid: Option<u32>,
}

/// What a job is called on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobName {
    /// The id that the batch system gave it.
    Id(String),
    /// A Slurm unique id (Slurm 26.05 and later), from which the number has to be found.
    Sluid(String),
    /// A slot of HTCondor, in which some job runs.
    Slot(String),
}

/// Whether a directory of this name holds the groups of users who are logged in.
pub fn is_of_users(name: &str) -> bool {
    name == "user.slice"
}

/// Recognises the last part of a path (relative to the root of its hierarchy) as a job.
pub fn recognise(parts: &[&str]) -> Option<Named> {
    if parts.iter().any(|part| is_of_users(part)) {
        return None;
    }
    let (last, above) = parts.split_last()?;
    slurm(last, above)
        .or_else(|| htcondor(last, above))
        .or_else(|| kubernetes(last, above))
        .or_else(|| pbs(last, above))
        .or_else(|| systemd(last, above))
}

/// Whether a batch system keeps its jobs below a directory of this name, which outlives them.
pub fn is_nest(name: &str) -> bool {
    let is_slurm = is_stepd_scope(name) || is_slurm_base(name);
    let is_kubernetes = matches!(name, "kubepods" | "kubepods.slice");
    is_slurm || is_kubernetes || is_condor_base(name) || is_pbs_base(name)
}

fn is_stepd_scope(name: &str) -> bool {
    name == "slurmstepd.scope" || name.ends_with("_slurmstepd.scope")
}

fn is_slurm_base(name: &str) -> bool {
    name == "slurm" || name.starts_with("slurm_")
}

fn is_condor_base(name: &str) -> bool {
    name.starts_with("htcondor")
}

fn is_pbs_base(name: &str) -> bool {
    name == "torque" || name.starts_with("pbs_jobs") || name.starts_with("pbspro")
}

fn named(manager: Manager, name: JobName, uid: Option<u32>) -> Option<Named> {
    Some(Named { manager, name, uid })
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn slurm(last: &str, above: &[&str]) -> Option<Named> {
    let parent = *above.last()?;
    let uid = parent.strip_prefix("uid_").and_then(|uid| uid.parse().ok());
    let is_v1 = uid.is_some() && above.len() >= 2 && is_slurm_base(above[above.len() - 2]);
    let is_v2 = is_stepd_scope(parent);
    if !is_v1 && !is_v2 {
        return None;
    }
    if let Some(id) = last.strip_prefix("job_").filter(|id| is_number(id)) {
        return named(Manager::Slurm, JobName::Id(id.to_owned()), uid);
    }
    is_sluid(last).then(|| Named { manager: Manager::Slurm, name: JobName::Sluid(last.to_owned()), uid })
}

/// `s` and thirteen characters of Crockford's base 32.
fn is_sluid(name: &str) -> bool {
    let is_digit =
        |byte: u8| byte.is_ascii_digit() || (byte.is_ascii_uppercase() && !b"ILOU".contains(&byte));
    name.strip_prefix('s').is_some_and(|rest| rest.len() == 13 && rest.bytes().all(is_digit))
}

/// When a job with this SLUID was submitted, in milliseconds since the epoch.
pub fn sluid_submit_millis(sluid: &str) -> Option<u64> {
    const DIGITS: &[u8] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
    let value = sluid.strip_prefix('s')?.bytes().try_fold(0u128, |value, byte| {
        Some(value << 5 | DIGITS.iter().position(|digit| *digit == byte)? as u128)
    })?;
    Some((value >> 10 & ((1 << 42) - 1)) as u64)
}

fn htcondor(last: &str, above: &[&str]) -> Option<Named> {
    // v2: …/htcondor/<execute>_<slot>@<host>.slice/<the same>.scope; v1: htcondor/condor_…_slot1_2@host
    let slot = |text: &str| {
        let at = text.rfind("slot")?;
        let name = text[at..].split('@').next()?;
        Some(name.to_owned()).filter(|name| name.len() > "slot".len())
    };
    let parent = *above.last()?;
    let is_in_base = |parts: &[&str]| parts.last().is_some_and(|base| is_condor_base(base));
    let v1 = is_in_base(above) && last.starts_with("condor") && !last.ends_with(".slice");
    let v2 = parent.strip_suffix(".slice") == last.strip_suffix(".scope")
        && last.ends_with(".scope")
        && is_in_base(&above[..above.len() - 1]);
    if !v1 && !v2 {
        return None;
    }
    named(Manager::HtCondor, JobName::Slot(slot(last.trim_end_matches(".scope"))?), None)
}

fn kubernetes(last: &str, above: &[&str]) -> Option<Named> {
    if !above.iter().any(|part| matches!(*part, "kubepods" | "kubepods.slice")) {
        return None;
    }
    // systemd's driver: kubepods-burstable-pod2fc932ce_fdcc….slice; cgroupfs: pod2fc932ce-fdcc…
    let pod = match last.strip_suffix(".slice") {
        Some(slice) => slice.strip_prefix("kubepods")?.rsplit_once("-pod")?.1.replace('_', "-"),
        None => last.strip_prefix("pod")?.to_owned(),
    };
    let is_uid = pod.len() >= 32 && pod.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    if is_uid { named(Manager::Kubernetes, JobName::Id(pod), None) } else { None }
}

fn pbs(last: &str, above: &[&str]) -> Option<Named> {
    let parent = *above.last()?;
    let in_base =
        is_pbs_base(parent) || (parent == "jobid" && above.len() >= 2 && is_pbs_base(above[above.len() - 2]));
    // 123.server, 123[4].server; systemd's names put the base before it and escape the rest.
    let name = last.trim_end_matches(".slice").trim_end_matches(".service");
    let name = name.strip_prefix("pbs_jobs-").or_else(|| name.strip_prefix("pbspro-")).unwrap_or(name);
    let number = name.split(['.', '[']).next().unwrap_or_default();
    if in_base && is_number(number) { named(Manager::Pbs, JobName::Id(name.to_owned()), None) } else { None }
}

fn systemd(last: &str, above: &[&str]) -> Option<Named> {
    let is_unit = [".slice", ".service", ".scope"].iter().any(|suffix| last.ends_with(suffix));
    let belongs_elsewhere = |part: &str| part.contains("slurm") || part.contains("kubepods");
    let holds_others = matches!(last, "system.slice" | "machine.slice" | "init.scope");
    if !is_unit || holds_others || belongs_elsewhere(last) || above.iter().any(|part| belongs_elsewhere(part))
    {
        return None;
    }
    named(Manager::Systemd, JobName::Id(last.to_owned()), None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str) -> Option<(Manager, String, Option<u32>)> {
        let parts: Vec<&str> = path.split('/').collect();
        recognise(&parts).map(|named| {
            let name = match named.name {
                JobName::Id(name) | JobName::Sluid(name) | JobName::Slot(name) => name,
            };
            (named.manager, name, named.uid)
        })
    }

    #[test]
    fn every_layout_is_recognised_by_its_path() {
        use Manager::{HtCondor, Kubernetes, Pbs, Slurm};
        let pod = "2fc932ce-fdcc-454b-97bd-aadfdeb4c340";
        let kube = format!(
            "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{}.slice",
            pod.replace('-', "_")
        );
        let guaranteed = format!("kubepods.slice/kubepods-pod{}.slice", pod.replace('-', "_"));
        let cgroupfs = format!("kubepods/besteffort/pod{pod}");
        let cases = [
            ("system.slice/slurmstepd.scope/job_42", Slurm, "42", None),
            ("system.slice/n001_slurmstepd.scope/job_42", Slurm, "42", None),
            ("other.slice/slurmstepd.scope/s5K1KKYAYG5D00", Slurm, "s5K1KKYAYG5D00", None),
            ("slurm/uid_1000/job_42", Slurm, "42", Some(1000)),
            ("slurm_n001/uid_0/job_7", Slurm, "7", Some(0)),
            (
                "system.slice/htcondor/condor_var_lib_condor_execute_slot1_2@n001.slice/condor_var_lib_condor_execute_slot1_2@n001.scope",
                HtCondor,
                "slot1_2",
                None,
            ),
            ("htcondor/condor_var_lib_condor_execute_slot1", HtCondor, "slot1", None),
            (kube.as_str(), Kubernetes, pod, None),
            (guaranteed.as_str(), Kubernetes, pod, None),
            (cgroupfs.as_str(), Kubernetes, pod, None),
            ("torque/123.server", Pbs, "123.server", None),
            ("pbs_jobs.service/jobid/123[4].server", Pbs, "123[4].server", None),
            ("pbspro.slice/pbspro-123.server.slice", Pbs, "123.server", None),
        ];
        for (path, manager, name, uid) in cases {
            assert_eq!(found(path), Some((manager, name.to_owned(), uid)), "{path}");
        }
    }

    #[test]
    fn what_is_no_job_is_not_taken_for_one() {
        for path in [
            "system.slice",
            "user.slice",
            "job_42",
            "system.slice/slurmstepd.scope",
            "system.slice/slurmstepd.scope/system",
            "system.slice/slurmstepd.scope/job_42x",
            "system.slice/slurmstepd.scope/job_42/step_0",
            "system.slice/slurmstepd.scope/sILOUILOUILOUI",
            "slurm/uid_1000",
            "kubepods.slice/kubepods-burstable.slice",
            "torque",
        ] {
            let found = found(path).filter(|(manager, ..)| *manager != Manager::Systemd);
            assert_eq!(found, None, "{path}");
        }
    }

    #[test]
    fn no_group_below_the_slice_of_users_is_a_job() {
        let pod = "kubepods/pod2fc932ce-fdcc-454b-97bd-aadfdeb4c340";
        for job in ["slurm/uid_0/job_4711", "x_slurmstepd.scope/job_1", "torque/1.server", "a.slice", pod] {
            assert!(found(job).is_some(), "{job}");
            let of_user = "user.slice/user-1000.slice/user@1000.service";
            for path in
                [format!("user.slice/{job}"), format!("{of_user}/{job}"), format!("a/user.slice/{job}")]
            {
                assert_eq!(found(&path), None, "{path}");
            }
        }
        assert_eq!(found("user.slice/user-1000.slice"), None);
    }

    #[test]
    fn a_sluid_tells_when_the_job_was_submitted() {
        // 12 bits of cluster, 42 of milliseconds, 10 of sequence.
        let millis: u128 = 1_763_193_600_000;
        let value: u128 = 5 << 52 | millis << 10 | 3;
        let digits: Vec<char> = "0123456789ABCDEFGHJKMNPQRSTVWXYZ".chars().collect();
        let text: String = (0..13).rev().map(|place| digits[(value >> (5 * place) & 31) as usize]).collect();
        assert!(is_sluid(&format!("s{text}")));
        assert_eq!(sluid_submit_millis(&format!("s{text}")), Some(millis as u64));
    }
}
