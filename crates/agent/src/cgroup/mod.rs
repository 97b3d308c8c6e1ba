//! The jobs on this node, found by looking at its control groups.
//!
//! A look is cheap: it lists the directories in which batch systems keep their jobs, examines new
//! groups, and examines known ones again in turn. From time to time it walks the whole tree, for
//! batch systems that have come since.

mod confine;
pub mod expose;
pub mod identity;
pub mod jobstats;
mod late;
pub mod layout;
mod search;
mod steps;
pub mod tree;
pub mod usage;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use workload::{JobId, Millis, Timestamp};

use crate::cpuset::CpuSet;
use crate::kernel::Buffer;
use confine::{confined_to, cpus_of, cpus_of_containers, is_confined_unit};
use late::LateAnswers;
use layout::{JobName, Manager, Named};
use search::{Found, Search};
pub use steps::Step;
use tree::{Hierarchy, Trees};
use usage::Usage;

/// How often the whole tree is walked, and a job that has settled is judged again.
const WALK_EVERY: Millis = Millis(10_000);
/// A batch system makes a group first, and confines it a moment later.
const SETTLES_WITHIN: Millis = Millis(10_000);
/// How often the processes of a job are examined for its identity, at growing intervals: at once, and
/// when it is 1, 3, 7, … seconds old. After that, the job stays without one.
const TIMES_ASKED: u32 = 7;
/// How many known groups are judged again at one look.
const JUDGED_AGAIN: usize = 256;
/// How many jobs are exposed unless another number is given. Each has about 25 series.
pub const MOST_JOBS: usize = 1_000;
/// How long to wait for a file of a job, unless another time is given.
const PATIENCE: Duration = Duration::from_millis(100);

/// One job's group on this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    pub id: JobId,
    pub manager: Manager,
    pub sluid: Option<String>,
    pub uid: Option<u32>,
    /// Below the root of its hierarchy.
    pub path: String,
    /// The threads it is confined to; `None` if it may run anywhere.
    pub cpus: Option<CpuSet>,
    /// What it had used when its own files were read last.
    pub used: Option<JobUsage>,
}

/// What a job had used at some moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobUsage {
    pub time: Timestamp,
    pub total: Usage,
    pub steps: Vec<Step>,
}

/// A group that looks like a job and is not counted as one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    pub path: String,
    pub reason: SkipReason,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum SkipReason {
    #[error("no process in it: a job that has ended")]
    Ended,
    #[error("its name cannot be a job's")]
    BadName,
    #[error("another control group is of the same job")]
    Repeated,
    #[error("it does not belong to root, so that jobs in it could be forged")]
    Foreign,
    #[error("more jobs than are exposed")]
    TooMany,
}

impl SkipReason {
    pub const ALL: [Self; 5] = [Self::Ended, Self::BadName, Self::Repeated, Self::Foreign, Self::TooMany];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Ended => "ended",
            Self::BadName => "bad_name",
            Self::Repeated => "repeated",
            Self::Foreign => "foreign",
            Self::TooMany => "too_many",
        }
    }
}

/// Why jobs may have been missed.
#[derive(Debug, thiserror::Error)]
pub enum LookError {
    #[error("{path}: {source}")]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("no control groups below {root}")]
    Absent { root: PathBuf },
}

/// Looks for jobs below a cgroup root, and for their processes in `procfs`.
#[derive(Debug)]
pub struct CgroupCollector {
    root: PathBuf,
    procfs: PathBuf,
    has_steps: bool,
    /// The owner of folders in which jobs are found, if not the owner of the root: on a real node, root.
    owner: Option<u32>,
    most_jobs: usize,
    n_jobs: usize,
    trees: Trees,
    known: BTreeMap<String, Known>,
    /// The folders in which batch systems keep jobs, and the tree of each, in the order of trees.
    nests: Vec<(PathBuf, String)>,
    /// Folders in which no job was looked for, because they belong to others.
    foreign: BTreeSet<String>,
    late: LateAnswers,
    walked: Option<Timestamp>,
    /// Grows whenever who owns which thread may have changed.
    generation: u64,
    buffer: Buffer,
}

#[derive(Debug)]
struct Known {
    named: Named,
    /// A group that is made again under the same name is another.
    inode: u64,
    first_seen: Timestamp,
    judged_next: Timestamp,
    read_next: Timestamp,
    n_asked: u32,
    verdict: Verdict,
}

impl Known {
    /// Whether it is time to examine the processes of a job.
    fn is_to_be_asked(&self, now: Timestamp) -> bool {
        let age = (now - self.first_seen).0;
        self.n_asked < TIMES_ASKED && age >= ((1 << self.n_asked) - 1) * Millis::SECOND.0
    }
}

#[derive(Debug)]
enum Verdict {
    Job(Arc<Job>),
    Skipped(SkipReason),
    /// Not worth a word: a unit of systemd's that is not confined.
    NoJob,
}

impl Verdict {
    fn job(&self) -> Option<&Arc<Job>> {
        match self {
            Self::Job(job) => Some(job),
            Self::Skipped(_) | Self::NoJob => None,
        }
    }
}

impl CgroupCollector {
    pub fn new(root: &Path, procfs: &Path) -> Self {
        Self {
            root: root.to_owned(),
            procfs: procfs.to_owned(),
            has_steps: false,
            owner: None,
            most_jobs: MOST_JOBS,
            n_jobs: 0,
            trees: Trees::find(root),
            known: BTreeMap::new(),
            nests: Vec::new(),
            foreign: BTreeSet::new(),
            late: LateAnswers::new(PATIENCE),
            walked: None,
            generation: 0,
            buffer: Buffer::default(),
        }
    }

    /// Reads steps and tasks of Slurm's jobs too.
    #[must_use]
    pub fn with_steps(mut self, has_steps: bool) -> Self {
        self.has_steps = has_steps;
        self
    }

    /// Exposes no more jobs than this: those that were found first.
    #[must_use]
    pub fn with_most_jobs(mut self, most_jobs: usize) -> Self {
        self.most_jobs = most_jobs;
        self
    }

    /// Looks for jobs only in folders of this user, instead of the owner of the root.
    #[must_use]
    pub fn with_owner(mut self, uid: u32) -> Self {
        self.owner = Some(uid);
        self
    }

    /// Waits no longer than this for a file of a job.
    #[must_use]
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.late = LateAnswers::new(patience);
        self
    }

    pub fn trees(&self) -> &Trees {
        &self.trees
    }

    pub fn generation(&self) -> u64 {
        self.generation
    }

    pub fn jobs(&self) -> impl Iterator<Item = &Arc<Job>> {
        self.known.values().filter_map(|known| known.verdict.job())
    }

    pub fn skipped(&self) -> impl Iterator<Item = Skipped> {
        let known = self.known.iter().filter_map(|(path, known)| match known.verdict {
            Verdict::Skipped(reason) => Some(Skipped { path: path.clone(), reason }),
            Verdict::Job(_) | Verdict::NoJob => None,
        });
        let foreign = self.foreign.iter();
        known.chain(foreign.map(|path| Skipped { path: path.clone(), reason: SkipReason::Foreign }))
    }

    /// Whether some jobs are left out because there are too many.
    pub fn is_full(&self) -> bool {
        self.n_jobs >= self.most_jobs
            && self.known.values().any(|known| matches!(known.verdict, Verdict::Skipped(SkipReason::TooMany)))
    }

    /// Finds out which jobs are there now. After an error some may have been missed, and none is forgotten.
    pub fn look(&mut self, now: Timestamp) -> Result<(), LookError> {
        if self.walked.is_some_and(|walked| now < walked) {
            self.begin_anew(now);
        }
        let owner = self.owner.or_else(|| fs::metadata(&self.root).ok().map(|root| root.uid()));
        let mut search = Search::new(owner.unwrap_or_default());
        let is_due = self.walked.is_none_or(|walked| (now - walked).0 >= WALK_EVERY.0);
        if is_due {
            self.trees = Trees::find(&self.root);
            if self.trees.hierarchy == Hierarchy::Absent {
                return Err(LookError::Absent { root: self.root.clone() });
            }
            self.trees.searched().into_iter().for_each(|tree| search.look_into(tree, ""));
            self.nests = std::mem::take(&mut search.nests);
            self.foreign = std::mem::take(&mut search.foreign);
            self.walked = Some(now);
        } else {
            self.nests.iter().for_each(|(tree, nest)| search.look_into(tree, nest));
        }
        search.drop_units_around_jobs();
        if search.unreadable.is_none() {
            self.forget_those_not_in(&search.found, is_due);
        }
        self.judge(search.found, now);
        search.unreadable.map_or(Ok(()), Err)
    }

    /// The folders in which batch systems keep their jobs, whether there are any now or not.
    pub fn nests(&self) -> impl Iterator<Item = PathBuf> {
        self.nests.iter().map(|(tree, nest)| tree.join(nest))
    }

    /// The clock was set back: nobody has to wait until it has caught up.
    fn begin_anew(&mut self, now: Timestamp) {
        self.walked = None;
        for known in self.known.values_mut() {
            (known.first_seen, known.judged_next, known.read_next) = (now, now, now);
        }
    }

    fn forget_those_not_in(&mut self, found: &BTreeMap<String, Found>, is_whole: bool) {
        let mut n_jobs_gone = 0;
        self.known.retain(|path, known| {
            let is_there = match found.get(path) {
                Some(found) => found.inode == known.inode,
                None => !is_whole && known.named.manager == Manager::Systemd,
            };
            n_jobs_gone += usize::from(!is_there && known.verdict.job().is_some());
            if !is_there {
                self.late.forget(path);
            }
            is_there
        });
        self.n_jobs -= n_jobs_gone;
        self.generation += u64::from(n_jobs_gone > 0);
    }

    fn judge(&mut self, found: BTreeMap<String, Found>, now: Timestamp) {
        let everything = cpus_of(&self.trees.cpuset, &mut self.buffer);
        for (path, Found { named, inode }) in found {
            if self.known.contains_key(&path) {
                continue;
            }
            let mut known = Known {
                named,
                inode,
                first_seen: now,
                judged_next: now,
                read_next: now,
                n_asked: 0,
                verdict: Verdict::NoJob,
            };
            self.judge_one(&path, &mut known, everything.as_ref(), now);
            self.known.insert(path, known);
        }
        let mut known = std::mem::take(&mut self.known);
        let mut due: Vec<_> = known.iter_mut().filter(|(_, known)| known.judged_next <= now).collect();
        due.sort_by_key(|(_, known)| known.judged_next);
        for (path, known) in due.into_iter().take(JUDGED_AGAIN) {
            self.judge_one(path, known, everything.as_ref(), now);
        }
        self.known = known;
    }

    fn judge_one(&mut self, path: &str, known: &mut Known, everything: Option<&CpuSet>, now: Timestamp) {
        let verdict = self.verdict(path, known, everything, now);
        let changed = match (known.verdict.job(), verdict.job()) {
            (Some(before), Some(now)) => before.cpus != now.cpus || before.id != now.id,
            (None, None) => false,
            (Some(_), None) | (None, Some(_)) => true,
        };
        self.generation += u64::from(changed);
        self.n_jobs += usize::from(verdict.job().is_some());
        self.n_jobs -= usize::from(known.verdict.job().is_some());
        known.n_asked += u32::from(known.is_to_be_asked(now));
        known.verdict = verdict;
        let has_settled = (now - known.first_seen).0 >= SETTLES_WITHIN.0;
        known.judged_next = if has_settled { next_turn(path, WALK_EVERY, now) } else { now + Millis(1) };
    }

    fn verdict(&mut self, path: &str, known: &Known, everything: Option<&CpuSet>, now: Timestamp) -> Verdict {
        if known.named.manager == Manager::Systemd
            && !is_confined_unit(&self.trees.cpuset, path, &mut self.buffer)
        {
            return Verdict::NoJob;
        }
        // Those that were found first stay, so that jobs that come later take no place of theirs.
        if known.verdict.job().is_none() && self.n_jobs >= self.most_jobs {
            return Verdict::Skipped(SkipReason::TooMany);
        }
        let places: Vec<PathBuf> = self.trees.searched().into_iter().map(|tree| tree.join(path)).collect();
        let cpus = self.cpus(path, known.named.manager, everything, &places);
        if !places.iter().any(|place| identity::is_populated(place)) {
            return Verdict::Skipped(SkipReason::Ended);
        }
        // Empty while it is not the job's turn to be examined.
        let examined: &[PathBuf] = if known.is_to_be_asked(now) { &places } else { &[] };
        let before = known.verdict.job();
        let (id, sluid) = match &known.named.name {
            JobName::Id(id) => (Some(id.clone()), None),
            JobName::Sluid(sluid) => {
                let ask = || examined.iter().find_map(|place| identity::slurm_id(place, &self.procfs));
                (ask_unless_known(before, sluid, ask), Some(sluid))
            }
            JobName::Slot(slot) => {
                let ask = || self.late.take(path).or_else(|| self.ask_condor(path, examined));
                (ask_unless_known(before, slot, ask), None)
            }
        };
        let called = match &known.named.name {
            JobName::Id(name) | JobName::Sluid(name) | JobName::Slot(name) => name,
        };
        let Ok(id) = JobId::new(id.as_ref().unwrap_or(called)) else {
            return Verdict::Skipped(SkipReason::BadName);
        };
        let find_uid = || examined.iter().find_map(|place| identity::uid(place, &self.procfs));
        let uid = known.named.uid.or_else(|| before?.uid).or_else(find_uid);
        Verdict::Job(Arc::new(Job {
            id,
            manager: known.named.manager,
            sluid: sluid.cloned(),
            uid,
            path: path.to_owned(),
            cpus,
            used: before.and_then(|job| job.used.clone()),
        }))
    }

    /// The id of an HTCondor job is in a file of its user.
    fn ask_condor(&mut self, path: &str, places: &[PathBuf]) -> Option<String> {
        if places.is_empty() {
            return None;
        }
        let (places, procfs) = (places.to_vec(), self.procfs.clone());
        self.late.ask(path, move || places.iter().find_map(|place| identity::condor_id(place, &procfs)))
    }

    /// The threads that a job is confined to, by the rules of its batch system.
    fn cpus(
        &mut self,
        path: &str,
        manager: Manager,
        everything: Option<&CpuSet>,
        places: &[PathBuf],
    ) -> Option<CpuSet> {
        let (tree, buffer) = (&self.trees.cpuset, &mut self.buffer);
        let own = confined_to(tree, path, everything, buffer);
        match manager {
            Manager::Kubernetes => own.or_else(|| cpus_of_containers(&tree.join(path), buffer)),
            Manager::HtCondor => own.or_else(|| {
                let cpus = places.iter().find_map(|place| identity::affinity(place, &self.procfs));
                cpus.filter(|cpus| everything.is_some_and(|everything| cpus != everything))
            }),
            Manager::Slurm | Manager::Pbs | Manager::Systemd => own,
        }
    }

    /// Reads the files of jobs whose turn it is, the longest unread first, for no longer than
    /// `budget`. Each is read about once in `interval`. Returns those that were read.
    pub fn read_usage(&mut self, now: Timestamp, interval: Millis, budget: Duration) -> Vec<Arc<Job>> {
        let begun = Instant::now();
        let mut due: Vec<(&String, &mut Known)> = self
            .known
            .iter_mut()
            .filter(|(_, known)| known.read_next <= now && known.verdict.job().is_some())
            .collect();
        due.sort_by_key(|(_, known)| known.read_next);
        let mut read = Vec::with_capacity(due.len());
        for (path, known) in due {
            if begun.elapsed() > budget {
                break;
            }
            let Verdict::Job(job) = &mut known.verdict else { continue };
            let total = Usage::read(&self.trees, path, &mut self.buffer);
            let has_steps = self.has_steps && job.manager == Manager::Slurm;
            let steps = if has_steps { steps::read(&self.trees, path, &mut self.buffer) } else { Vec::new() };
            Arc::make_mut(job).used = Some(JobUsage { time: now, total, steps });
            known.read_next = next_turn(path, interval, now);
            read.push(job.clone());
        }
        read
    }
}

fn ask_unless_known(
    before: Option<&Arc<Job>>,
    called: &str,
    ask: impl FnOnce() -> Option<String>,
) -> Option<String> {
    let known = before.map(|job| job.id.as_str()).filter(|id| *id != called);
    known.map(str::to_owned).or_else(ask)
}

/// The next moment at which it is this group's turn: all of them spread over `interval`.
fn next_turn(path: &str, interval: Millis, now: Timestamp) -> Timestamp {
    let interval = Millis(interval.0.max(1));
    let hash = path
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let turn = now.floor(interval) + Millis((hash % interval.0.unsigned_abs()) as i64);
    if turn > now { turn } else { turn + interval }
}
