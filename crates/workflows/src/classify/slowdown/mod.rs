//! Ours: trouble makes things slower, never faster, whatever the week.
//!
//! There are two views. The first does not see the weeks: for every kind of task, how long it ran for the processor's time that
//! it took, and how long staging took for its bytes. For each trouble, boosted trees tell its runs from healthy ones, and may
//! only become surer of it where something is slower. They also learn from weaker trouble, made by going part of the way
//! from a healthy run to a troubled one, so that what lies between the strengths that were recorded is trouble too. Which
//! trouble it is, where several would slow the same tasks, randomised trees say that were only shown troubled runs.
//! The second remembers: trees, randomised and boosted, on all that is known of the delays. It decides where a run is as near
//! to those that were learnt from as they are to each other; everything else is new, and the first decides if it is sure.

mod memory;
mod weekless;

use crate::workflow::WorkflowRun;
use learn::artifact::{Tensors, part_of, within};
use serde::{Deserialize, Serialize};

pub use self::memory::Memory;
pub use self::weekless::Weekless;
use super::{Classifier, Evidence, Lesson};
use crate::error::Result;

/// What can be chosen by measurement.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SlowdownSettings {
    pub n_trees: usize,
    pub depth: usize,
    /// Weaker runs that are made of each troubled one.
    pub n_weaker: usize,
    /// Memory decides for runs that are nearer to what it knows than the other share of what it knows is.
    pub novelty: f64,
    /// How sure the view without weeks has to be of a new run to decide.
    pub sureness: f64,
}

impl Default for SlowdownSettings {
    fn default() -> Self {
        Self { n_trees: 60, depth: 3, n_weaker: 2, novelty: 0.7, sureness: 0.8 }
    }
}

impl SlowdownSettings {
    pub fn is_new(&self, novelty: f64) -> bool {
        novelty > self.novelty
    }

    /// Whether the view without weeks may decide for a new run.
    pub fn is_sure(&self, chances: &[f64]) -> bool {
        chances.iter().any(|chance| *chance >= self.sureness)
    }
}

pub struct Slowdown {
    settings: SlowdownSettings,
    weekless: Weekless,
    memory: Memory,
}

#[derive(Serialize, Deserialize)]
struct Kept {
    settings: SlowdownSettings,
    weekless: serde_json::Value,
    memory: serde_json::Value,
}

impl Slowdown {
    pub fn fit(lesson: &Lesson<'_>, settings: SlowdownSettings, seed: u64) -> Result<Self> {
        let weekless = Weekless::fit(lesson, settings, seed)?;
        Ok(Self { settings, weekless, memory: Memory::fit(lesson, seed)? })
    }

    pub fn restore(settings: &serde_json::Value, tensors: &Tensors) -> Option<Self> {
        let kept: Kept = serde_json::from_value(settings.clone()).ok()?;
        let weekless = Weekless::restore(&kept.weekless, &part_of(tensors, "weekless"))?;
        let memory = Memory::restore(&kept.memory, &part_of(tensors, "memory"))?;
        Some(Self { settings: kept.settings, weekless, memory })
    }
}

impl Classifier for Slowdown {
    fn chances(&self, run: &WorkflowRun) -> Vec<f64> {
        if self.settings.is_new(self.memory.novelty(run)) {
            let chances = self.weekless.chances(run);
            if self.settings.is_sure(&chances) {
                return chances;
            }
        }
        self.memory.chances(run)
    }

    fn evidence(&self, run: &WorkflowRun, class: usize) -> Evidence {
        Evidence::Features(self.weekless.evidence(run, class))
    }

    fn n_classes(&self) -> usize {
        self.weekless.n_classes()
    }

    fn tensors(&self) -> Tensors {
        within("weekless", self.weekless.tensors()).chain(within("memory", self.memory.tensors())).collect()
    }

    fn settings(&self) -> serde_json::Value {
        serde_json::json!(Kept {
            settings: self.settings,
            weekless: self.weekless.settings(),
            memory: self.memory.settings(),
        })
    }
}
