//! A real Slurm of one node: this machine. It confines jobs by control groups of version 1.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Server, eventually, free_port, program, skip};

const CGROUPS: &str = "/sys/fs/cgroup";

pub struct Slurm {
    folder: tempfile::TempDir,
    root: PathBuf,
    node: String,
    _slurmd: Option<Server>,
    _slurmctld: Server,
}

impl Slurm {
    /// `None` after [`skip`] where Slurm is not installed, or the kernel does not let it work.
    pub fn start(n_cpus: usize) -> Option<Self> {
        Self::start_with(n_cpus, "")
    }

    /// The same, with further lines of `slurm.conf`.
    pub fn start_with(n_cpus: usize, settings: &str) -> Option<Self> {
        let root = program("slurm/usr/sbin/slurmd")?.ancestors().nth(3).unwrap().to_owned();
        let is_root = rustix::process::geteuid().is_root();
        let cpuset = Path::new(CGROUPS).join("cpuset");
        let probe = cpuset.join(format!("tracewise-test-{}", std::process::id()));
        if !is_root || fs::create_dir(&probe).is_err() {
            skip("kernel: no cpuset hierarchy of version 1 that this user may write to");
            return None;
        }
        fs::remove_dir(&probe).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let (ctld_port, slurmd_port) = (free_port(), free_port());
        let node = format!("tw{slurmd_port}");
        write_configuration(folder.path(), &root, &node, n_cpus, (ctld_port, slurmd_port), settings);
        let arguments = |daemon: &str, more: &[String]| {
            let mut arguments = environment(folder.path(), &root);
            arguments.push(root.join("usr/sbin").join(daemon).display().to_string());
            arguments.extend(more.iter().cloned());
            arguments
        };
        let env = Path::new("/usr/bin/env");
        let slurmctld =
            Server::start_on(ctld_port, env, |_| arguments("slurmctld", &["-D".into(), "-c".into()]));
        let stepd = root.join("usr/sbin/slurmstepd").display().to_string();
        let more = ["-D".into(), "-N".into(), node.clone(), "-d".into(), stepd];
        let slurmd = Server::start_on(slurmd_port, env, |_| arguments("slurmd", &more));
        let slurm = Self { folder, root, node, _slurmd: Some(slurmd), _slurmctld: slurmctld };
        eventually("an idle node", || slurm.run("sinfo", &["-h", "-o", "%T"]).contains("idle").then_some(()));
        Some(slurm)
    }

    /// The output of a Slurm command.
    pub fn run(&self, command: &str, arguments: &[&str]) -> String {
        let output = self.command(command).args(arguments).output().unwrap();
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    }

    /// Lets a program find this Slurm's commands.
    pub fn configure(&self, program: &mut Command) {
        for setting in environment(self.folder.path(), &self.root) {
            let (name, value) = setting.split_once('=').unwrap();
            program.env(name, value);
        }
        let path = std::env::var("PATH").unwrap_or_default();
        program.env("PATH", format!("{}:{path}", self.root.join("usr/bin").display()));
    }

    pub fn command(&self, command: &str) -> Command {
        let mut env = Command::new("/usr/bin/env");
        env.args(environment(self.folder.path(), &self.root)).arg(self.root.join("usr/bin").join(command));
        env
    }

    /// Submits a job that sleeps on one CPU; returns its number.
    pub fn submit(&self) -> String {
        let log = self.folder.path().join("job.log");
        let wrap = ["--parsable", "-n1", "-c1", "--wrap", "sleep 300", "-o"];
        let said = self.run("sbatch", &[&wrap[..], &[log.to_str().unwrap()]].concat());
        let id = said.trim().to_owned();
        assert!(id.parse::<u32>().is_ok(), "{said}");
        id
    }

    /// The CPU that Slurm reports for a running job.
    pub fn cpu_of(&self, job: &str) -> String {
        eventually("a job that runs", || {
            let said = self.run("scontrol", &["-d", "show", "job", job]);
            let word = said.split_whitespace().find_map(|word| word.strip_prefix("CPU_IDs="))?;
            said.contains("JobState=RUNNING").then(|| word.to_owned())
        })
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        self.run("scancel", &["--state=RUNNING", "--state=PENDING", "-u", "root"]);
        for _ in 0..100 {
            if self.run("squeue", &["-h"]).trim().is_empty() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        self._slurmd = None;
        for tree in fs::read_dir(CGROUPS).into_iter().flatten().flatten() {
            remove_groups(&tree.path().join(format!("slurm_{}", self.node)));
        }
    }
}

/// Removes a control group and those below it.
pub fn remove_groups(group: &Path) {
    for entry in fs::read_dir(group).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_groups(&entry.path());
        }
    }
    let _ = fs::remove_dir(group);
}

fn environment(folder: &Path, root: &Path) -> Vec<String> {
    let libraries = root.join("usr/lib/x86_64-linux-gnu");
    vec![
        format!("LD_LIBRARY_PATH={0}/slurm-wlm:{0}", libraries.display()),
        format!("SLURM_CONF={}", folder.join("slurm.conf").display()),
    ]
}

fn write_configuration(
    folder: &Path,
    root: &Path,
    node: &str,
    n_cpus: usize,
    ports: (u16, u16),
    settings: &str,
) {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let (here, plugins) = (folder.display(), root.join("usr/lib/x86_64-linux-gnu/slurm-wlm"));
    let text = format!(
        "ClusterName=test\nSlurmctldHost={host}(127.0.0.1)\nSlurmctldPort={}\n\
         AuthType=auth/none\nCredType=cred/none\nPluginDir={}\nSlurmUser=root\nSlurmdUser=root\n\
         StateSaveLocation={here}/state\nSlurmdSpoolDir={here}/spool\n\
         SlurmctldPidFile={here}/slurmctld.pid\nSlurmdPidFile={here}/slurmd.pid\n\
         ProctrackType=proctrack/cgroup\nTaskPlugin=task/affinity,task/cgroup\n\
         SelectType=select/cons_tres\nSelectTypeParameters=CR_CPU\nMpiDefault=none\n\
         AccountingStorageType=accounting_storage/none\nJobAcctGatherType=jobacct_gather/none\n\
         ReturnToService=2\nNodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={} CPUs={n_cpus} \
         RealMemory=500 State=UNKNOWN\nPartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n{settings}\n",
        ports.0,
        plugins.display(),
        ports.1,
    );
    fs::create_dir(folder.join("state")).unwrap();
    fs::create_dir(folder.join("spool")).unwrap();
    fs::write(folder.join("slurm.conf"), text).unwrap();
    fs::write(folder.join("cgroup.conf"), "CgroupPlugin=cgroup/v1\nCgroupAutomount=no\nConstrainCores=yes\n")
        .unwrap();
}
