//! Sets of hardware threads, as the kernel writes them: `0-3,8,12-15`.

use std::collections::BTreeSet;

use workload::Cpu;

/// More than any machine has; a line with more is garbled.
const MOST: u16 = 16_384;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CpuSet(BTreeSet<Cpu>);

impl CpuSet {
    /// `None` if the text is not a list of CPUs; an empty list is an empty set.
    pub fn parse(text: &str) -> Option<Self> {
        let mut cpus = BTreeSet::new();
        for part in text.trim().split(',').filter(|part| !part.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
            if first > last || last >= MOST {
                return None;
            }
            cpus.extend((first..=last).map(Cpu));
        }
        Some(Self(cpus))
    }

    pub fn contains(&self, cpu: Cpu) -> bool {
        self.0.contains(&cpu)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    #[must_use]
    pub fn union(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    pub fn iter(&self) -> impl Iterator<Item = Cpu> {
        self.0.iter().copied()
    }
}

impl std::fmt::Display for CpuSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut runs: Vec<(u16, u16)> = Vec::new();
        for cpu in self.iter() {
            match runs.last_mut() {
                Some((_, last)) if *last + 1 == cpu.0 => *last = cpu.0,
                _ => runs.push((cpu.0, cpu.0)),
            }
        }
        let shown = runs
            .iter()
            .map(|(first, last)| if first == last { first.to_string() } else { format!("{first}-{last}") });
        f.write_str(&shown.collect::<Vec<_>>().join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lists_are_read_as_the_kernel_writes_them() {
        let set = CpuSet::parse("0-3,8,12-13\n").unwrap();
        assert_eq!((set.len(), set.contains(Cpu(2)), set.contains(Cpu(9))), (7, true, false));
        assert!(CpuSet::parse("\n").unwrap().is_empty());
        for bad in ["a", "3-1", "0-99999", "-", "1-", "0x3"] {
            assert_eq!(CpuSet::parse(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_is_read_back(cpus in prop::collection::btree_set(0u16..200, 0..40)) {
            let set = CpuSet(cpus.into_iter().map(Cpu).collect());
            prop_assert_eq!(CpuSet::parse(&set.to_string()), Some(set));
        }

        #[test]
        fn no_text_makes_it_panic(text in "\\PC{0,40}") {
            let _ = CpuSet::parse(&text);
        }
    }
}
