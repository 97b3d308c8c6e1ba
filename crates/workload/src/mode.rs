//! The modes in which the kernel accounts a thread's time, and the ticks spent in each.

use std::ops::{Index, IndexMut};

use serde::{Deserialize, Serialize};

/// A mode of `/proc/stat`, in the kernel's own order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Normal processes in user mode.
    User,
    /// Niced processes in user mode.
    Nice,
    /// Processes in kernel mode.
    System,
    /// Idle.
    Idle,
    /// Idle while I/O is outstanding.
    Iowait,
    /// Servicing interrupts.
    Irq,
    /// Servicing soft interrupts.
    Softirq,
    /// Time that a hypervisor gave to others.
    Steal,
}

impl Mode {
    /// The number of modes.
    pub const COUNT: usize = 8;
    /// Every mode, in the kernel's order.
    pub const ALL: [Self; Self::COUNT] = [
        Self::User,
        Self::Nice,
        Self::System,
        Self::Idle,
        Self::Iowait,
        Self::Irq,
        Self::Softirq,
        Self::Steal,
    ];

    /// The kernel's name of the mode.
    pub const fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Nice => "nice",
            Self::System => "system",
            Self::Idle => "idle",
            Self::Iowait => "iowait",
            Self::Irq => "irq",
            Self::Softirq => "softirq",
            Self::Steal => "steal",
        }
    }

    /// The mode with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.name() == name)
    }
}

/// The modes that a source has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "Vec<Mode>", into = "Vec<Mode>")]
pub struct ModeSet(u8);

impl ModeSet {
    /// Every mode.
    pub const ALL: Self = Self(u8::MAX);
    /// No mode.
    pub const EMPTY: Self = Self(0);

    /// Whether the mode is in the set.
    pub const fn contains(self, mode: Mode) -> bool {
        self.0 & (1 << mode as u8) != 0
    }

    /// The set with one more mode.
    pub const fn with(self, mode: Mode) -> Self {
        Self(self.0 | 1 << mode as u8)
    }

    /// How many modes are in the set.
    pub const fn count(self) -> usize {
        self.0.count_ones() as usize
    }

    /// The modes of the set, in the kernel's order.
    pub fn iter(self) -> impl Iterator<Item = Mode> {
        Mode::ALL.into_iter().filter(move |mode| self.contains(*mode))
    }
}

impl FromIterator<Mode> for ModeSet {
    fn from_iter<I: IntoIterator<Item = Mode>>(modes: I) -> Self {
        Self(modes.into_iter().fold(0, |set, mode| set | 1 << mode as u8))
    }
}

impl From<Vec<Mode>> for ModeSet {
    fn from(modes: Vec<Mode>) -> Self {
        modes.into_iter().collect()
    }
}

impl From<ModeSet> for Vec<Mode> {
    fn from(set: ModeSet) -> Self {
        set.iter().collect()
    }
}

/// Ticks spent in each mode: counted since boot, or during one interval
/// (see [`Measure`](crate::Measure)).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Ticks(pub [u64; Mode::COUNT]);

impl Ticks {
    /// Ticks in all modes.
    pub fn total(&self) -> u64 {
        self.0.iter().fold(0, |sum, ticks| sum.saturating_add(*ticks))
    }
}

impl Index<Mode> for Ticks {
    type Output = u64;
    fn index(&self, mode: Mode) -> &u64 {
        &self.0[mode as usize]
    }
}

impl IndexMut<Mode> for Ticks {
    fn index_mut(&mut self, mode: Mode) -> &mut u64 {
        &mut self.0[mode as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mode_is_found_by_its_own_name() {
        for mode in Mode::ALL {
            assert_eq!(Mode::from_name(mode.name()), Some(mode));
            assert_eq!(serde_json::to_value(mode).unwrap(), mode.name());
        }
        assert_eq!(Mode::from_name("guest"), None);
    }

    #[test]
    fn a_mode_set_is_written_as_a_list_of_names() {
        let set: ModeSet = [Mode::Steal, Mode::User].into_iter().collect();
        let text = serde_json::to_string(&set).unwrap();
        assert_eq!(text, r#"["user","steal"]"#);
        assert_eq!(serde_json::from_str::<ModeSet>(&text).unwrap(), set);
    }
}
