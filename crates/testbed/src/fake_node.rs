//! A node as a directory of plain files: `proc/` and `cgroup/` (version 2, Slurm), of any size.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

pub struct FakeNode {
    pub folder: PathBuf,
    pub n_threads: usize,
    /// Ticks a mode and thread.
    ticks: Vec<[u64; 8]>,
    state: u64,
}

impl FakeNode {
    pub fn create(folder: &Path, n_threads: usize) -> Self {
        let node = Self {
            folder: folder.to_owned(),
            n_threads,
            ticks: (0..n_threads as u64).map(|cpu| [1_000_000 + cpu; 8]).collect(),
            state: 1,
        };
        fs::create_dir_all(node.proc().join("pressure")).unwrap();
        fs::create_dir_all(node.scope().join("system")).unwrap();
        node.write("cgroup/cgroup.controllers", "cpuset cpu io memory pids\n");
        node.write("cgroup/cpuset.cpus.effective", &format!("0-{}\n", n_threads - 1));
        for unit in 0..60 {
            fs::create_dir_all(node.cgroup().join(format!("system.slice/unit{unit}.service"))).unwrap();
        }
        node.write("proc/loadavg", "12.50 8.25 4.00 3/812 4711\n");
        let meminfo: String = (0..50).map(|line| format!("Line{line}:   {} kB\n", line * 1024)).collect();
        node.write("proc/meminfo", &format!("MemTotal: 527951872 kB\n{meminfo}"));
        for resource in ["cpu", "memory", "io"] {
            node.write(&format!("proc/pressure/{resource}"), &pressure(1_000));
        }
        node.write_stat();
        node
    }

    pub fn proc(&self) -> PathBuf {
        self.folder.join("proc")
    }

    pub fn cgroup(&self) -> PathBuf {
        self.folder.join("cgroup")
    }

    fn scope(&self) -> PathBuf {
        self.cgroup().join("system.slice/slurmstepd.scope")
    }

    fn write(&self, path: &str, text: &str) {
        fs::write(self.folder.join(path), text).unwrap();
    }

    /// A number that looks random, from a fixed seed.
    pub fn random(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state
    }

    /// Lets a second pass: a third of the threads are idle, a third busy, the rest in between.
    pub fn tick(&mut self) {
        for cpu in 0..self.n_threads {
            let noise = self.random() % 8;
            let busy = match cpu % 3 {
                0 => noise / 4,
                1 => 100 - noise,
                _ => 40 + self.random() % 30,
            };
            let ticks = &mut self.ticks[cpu];
            let in_kernel = busy / 10;
            ticks[0] += busy - in_kernel;
            ticks[2] += in_kernel;
            ticks[3] += 100 - busy;
        }
        self.write_stat();
    }

    pub fn ticks(&self, cpu: usize) -> [u64; 8] {
        self.ticks[cpu]
    }

    /// Replaces `/proc/stat` at once, as a reader sees it.
    pub fn write_stat(&self) {
        let mut text = String::from("cpu  1 2 3 4 5 6 7 8 0 0\n");
        for (cpu, ticks) in self.ticks.iter().enumerate() {
            let _ = write!(text, "cpu{cpu}");
            ticks.iter().for_each(|ticks| {
                let _ = write!(text, " {ticks}");
            });
            text.push_str(" 0 0\n");
        }
        let _ = writeln!(text, "intr 123456{}", " 0".repeat(4 * self.n_threads));
        text.push_str("ctxt 987654\nbtime 1763193600\nprocesses 4711\nprocs_running 3\nprocs_blocked 0\n");
        let path = self.proc().join("stat.new");
        fs::write(&path, text).unwrap();
        fs::rename(path, self.proc().join("stat")).unwrap();
    }

    /// Starts a Slurm job on some threads, with every file that the kernel has for it.
    pub fn start_job(&mut self, id: u64, cpus: &str) {
        let scope = self.scope().join(format!("job_{id}"));
        let task = scope.join("step_0/user/task_0");
        fs::create_dir_all(&task).unwrap();
        fs::create_dir_all(scope.join("step_extern/user")).unwrap();
        fs::write(task.join("cgroup.procs"), "1\n").unwrap();
        for (name, text) in [
            ("cgroup.procs", ""),
            ("cgroup.events", "populated 1\nfrozen 0\n"),
            ("cpuset.cpus", cpus),
            ("cpuset.cpus.effective", cpus),
            ("memory.max", "4294967296"),
            ("memory.peak", "1073741824"),
            ("memory.swap.current", "0"),
            ("memory.events", "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0"),
            ("io.stat", "8:0 rbytes=180224 wbytes=4096 rios=3 wios=1 dbytes=0 dios=0"),
            ("pids.current", "17"),
        ] {
            fs::write(scope.join(name), format!("{}\n", text.trim_end())).unwrap();
        }
        self.touch_job(id);
    }

    /// Changes what a job has used.
    pub fn touch_job(&mut self, id: u64) {
        let random = self.random() % 1_000_000;
        let scope = self.scope().join(format!("job_{id}"));
        let stat: String = (0..40).map(|line| format!("field_{line} {}\n", line * 4096)).collect();
        for (name, text) in [
            (
                "cpu.stat",
                format!(
                    "usage_usec {0}\nuser_usec {0}\nsystem_usec {1}\nnr_periods 10\nnr_throttled 2\nthrottled_usec 30\n",
                    random * 1_000,
                    random
                ),
            ),
            ("memory.current", format!("{}\n", random * 4_096)),
            ("memory.stat", format!("anon {}\nfile {}\n{stat}", random * 4_000, random * 90)),
            ("cpu.pressure", pressure(random)),
            ("memory.pressure", pressure(random / 7)),
            ("io.pressure", pressure(random / 3)),
        ] {
            fs::write(scope.join(name), text).unwrap();
        }
    }

    pub fn end_job(&self, id: u64) {
        fs::remove_dir_all(self.scope().join(format!("job_{id}"))).unwrap();
    }

    /// The given number of jobs on disjoint threads; some share threads if there are more jobs.
    pub fn start_jobs(&mut self, n_jobs: usize) {
        for job in 0..n_jobs {
            let cpu = job * self.n_threads / n_jobs;
            self.start_job(1_000 + job as u64, &cpu.to_string());
        }
    }
}

fn pressure(usec: u64) -> String {
    format!(
        "some avg10=0.00 avg60=0.00 avg300=0.00 total={usec}\nfull avg10=0.00 avg60=0.00 avg300=0.00 total={}\n",
        usec / 2
    )
}
