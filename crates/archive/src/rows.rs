//! Rows of the two tables in memory, column by column, as files hold them.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

use workload::derive::Scale;
use workload::{Cpu, JobId, JobReading, Millis, Mode, Owner, ThreadReading, Ticks, Timestamp};

use crate::error::Result;

/// Rows of the `cpu` table of one node.
#[derive(Debug, Clone, Default)]
pub struct ThreadRows {
    pub times: Vec<i64>,
    pub cpus: Vec<u16>,
    /// A column a mode, in the order of [`Mode::ALL`].
    pub ticks: [Vec<i64>; Mode::COUNT],
    /// Index into `owners`.
    pub owner_of_row: Vec<u32>,
    pub owners: Numbered<Owner>,
    /// Index into `scales`.
    pub scale_of_row: Vec<u16>,
    pub scales: Numbered<Scale>,
}

impl ThreadRows {
    pub fn len(&self) -> usize {
        self.times.len()
    }

    pub fn push(&mut self, time: Timestamp, reading: &ThreadReading, scale: Scale) {
        self.times.push(time.0);
        self.cpus.push(reading.cpu.0);
        for (column, ticks) in self.ticks.iter_mut().zip(reading.ticks.0) {
            column.push(i64::try_from(ticks).unwrap_or(i64::MAX));
        }
        let owner = self.owners.number_of(&reading.owner);
        self.owner_of_row.push(owner);
        let scale = self.scales.number_of(&scale) as u16;
        self.scale_of_row.push(scale);
    }

    /// Adds rows that were written later than these.
    pub fn append(&mut self, later: &Self) {
        self.times.extend_from_slice(&later.times);
        self.cpus.extend_from_slice(&later.cpus);
        for (column, more) in self.ticks.iter_mut().zip(&later.ticks) {
            column.extend_from_slice(more);
        }
        let owners: Vec<u32> = later.owners.iter().map(|one| self.owners.number_of(one)).collect();
        self.owner_of_row.extend(later.owner_of_row.iter().map(|number| owners[*number as usize]));
        let scales: Vec<u16> = later.scales.iter().map(|one| self.scales.number_of(one) as u16).collect();
        self.scale_of_row.extend(later.scale_of_row.iter().map(|number| scales[*number as usize]));
    }

    /// Gives the memory of the columns back for the next rows: they are large, and memory that is
    /// new has to be cleared by the kernel first.
    pub fn recycle(self) {
        self.ticks.into_iter().chain([self.times]).for_each(spare::give);
    }

    /// Merges sorted pieces, in the order in which they were written, into sorted rows.
    pub fn merged(pieces: impl Iterator<Item = Result<Self>>) -> Result<Self> {
        let mut merged: Option<Self> = None;
        let mut n_pieces = 0;
        for piece in pieces {
            let piece = piece?;
            n_pieces += 1;
            match &mut merged {
                None => merged = Some(piece),
                Some(rows) => {
                    rows.append(&piece);
                    piece.recycle();
                }
            }
        }
        let merged = merged.unwrap_or_default();
        Ok(if n_pieces > 1 { merged.sorted() } else { merged })
    }

    pub fn row_ticks(&self, row: usize) -> Ticks {
        Ticks(std::array::from_fn(|mode| self.ticks[mode][row].max(0) as u64))
    }

    pub fn owner(&self, row: usize) -> &Owner {
        &self.owners[self.owner_of_row[row] as usize]
    }

    pub fn scale(&self, row: usize) -> Scale {
        self.scales[self.scale_of_row[row] as usize]
    }

    /// Rows in the order of files, by hour, then thread, then time. Of two readings of one thread
    /// at one moment for one owner, the one written last is kept. Those for different owners are
    /// all kept: two sources may each know of a job on the thread.
    pub fn sorted(self) -> Self {
        let key = |row: usize| {
            let hour = self.times[row].div_euclid(Millis::HOUR.0);
            (hour, self.cpus[row], self.times[row])
        };
        if (1..self.len()).all(|row| key(row - 1) < key(row)) {
            return self;
        }
        let mut order: Vec<u32> = (0..self.len() as u32).collect();
        order.sort_by_key(|row| key(*row as usize));
        let mut kept: Vec<u32> = Vec::with_capacity(order.len());
        for same in order.chunk_by(|a, b| key(*a as usize) == key(*b as usize)) {
            if let [row] = same {
                kept.push(*row);
                continue;
            }
            let n_before = kept.len();
            let mut owners = HashSet::new();
            let is_last_of_owner = |row: &&u32| owners.insert(self.owner_of_row[**row as usize]);
            kept.extend(same.iter().rev().filter(is_last_of_owner));
            kept[n_before..].reverse();
        }
        self.picked(&kept)
    }

    /// Sorted rows with one for each thread and moment: that of `job`, if it has one, else the one
    /// written last.
    pub fn resolved(self, job: Option<&JobId>) -> Self {
        let key = |row: usize| (self.cpus[row], self.times[row]);
        if (1..self.len()).all(|row| key(row - 1) != key(row)) {
            return self;
        }
        let rows: Vec<u32> = (0..self.len() as u32).collect();
        let is_of_job = |row: &&u32| job.is_some() && self.owner(**row as usize).job() == job;
        let same_moment = rows.chunk_by(|a, b| key(*a as usize) == key(*b as usize));
        let kept: Vec<u32> =
            same_moment.filter_map(|same| same.iter().rfind(is_of_job).or(same.last()).copied()).collect();
        self.picked(&kept)
    }

    /// Keeps the rows before `at`, and returns the others.
    pub fn split_off(&mut self, at: usize) -> Self {
        Self {
            times: self.times.split_off(at),
            cpus: self.cpus.split_off(at),
            ticks: std::array::from_fn(|mode| self.ticks[mode].split_off(at)),
            owner_of_row: self.owner_of_row.split_off(at),
            owners: self.owners.clone(),
            scale_of_row: self.scale_of_row.split_off(at),
            scales: self.scales.clone(),
        }
    }

    /// The rows with a time in `[from, to)`.
    pub fn between(self, from: Timestamp, to: Timestamp) -> Self {
        let inside = |time: &i64| (from.0..to.0).contains(time);
        if self.times.iter().all(inside) {
            return self;
        }
        let kept: Vec<u32> =
            (0..self.len() as u32).filter(|row| inside(&self.times[*row as usize])).collect();
        self.picked(&kept)
    }

    fn picked(&self, rows: &[u32]) -> Self {
        fn pick<T: Copy>(column: &[T], rows: &[u32]) -> Vec<T> {
            rows.iter().map(|row| column[*row as usize]).collect()
        }
        Self {
            times: pick(&self.times, rows),
            cpus: pick(&self.cpus, rows),
            ticks: std::array::from_fn(|mode| pick(&self.ticks[mode], rows)),
            owner_of_row: pick(&self.owner_of_row, rows),
            owners: self.owners.clone(),
            scale_of_row: pick(&self.scale_of_row, rows),
            scales: self.scales.clone(),
        }
    }

    /// The stretches of rows that belong to one thread.
    pub fn by_thread(&self) -> impl Iterator<Item = (Cpu, std::ops::Range<usize>)> + '_ {
        let mut start = 0;
        std::iter::from_fn(move || {
            let cpu = *self.cpus.get(start)?;
            let len = self.cpus[start..].iter().take_while(|other| **other == cpu).count();
            start += len;
            Some((Cpu(cpu), start - len..start))
        })
    }
}

/// Memory of columns that are not needed any more.
pub mod spare {
    use std::sync::{Mutex, PoisonError};

    /// Enough for the columns of a few row groups that are read at the same time.
    const MOST: usize = 64;
    static COLUMNS: Mutex<Vec<Vec<i64>>> = Mutex::new(Vec::new());

    pub fn give(mut column: Vec<i64>) {
        column.clear();
        let mut columns = COLUMNS.lock().unwrap_or_else(PoisonError::into_inner);
        if column.capacity() > 0 && columns.len() < MOST {
            columns.push(column);
        }
    }

    /// An empty column with room for `n_rows`.
    pub fn take(n_rows: usize) -> Vec<i64> {
        let spare = COLUMNS.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut column = spare.unwrap_or_default();
        column.reserve(n_rows);
        column
    }
}

/// Distinct values, each with a number: its index.
#[derive(Debug, Clone)]
pub struct Numbered<T> {
    values: Vec<T>,
    numbers: HashMap<T, u32>,
}

impl<T: Eq + Hash + Clone> FromIterator<T> for Numbered<T> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        let mut numbered = Self::default();
        for value in values {
            numbered.number_of(&value);
        }
        numbered
    }
}

/// How many of the newest values are compared before they are looked up.
const NEWEST: usize = 4;

impl<T: Eq + Hash + Clone> Numbered<T> {
    /// The number of a value, which is added if need be.
    pub fn number_of(&mut self, value: &T) -> u32 {
        let first = self.values.len().saturating_sub(NEWEST);
        if let Some(found) = self.values[first..].iter().rposition(|known| known == value) {
            return (first + found) as u32;
        }
        if let Some(number) = self.numbers.get(value) {
            return *number;
        }
        let number = self.values.len() as u32;
        self.values.push(value.clone());
        self.numbers.insert(value.clone(), number);
        number
    }
}

impl<T> Default for Numbered<T> {
    fn default() -> Self {
        Self { values: Vec::new(), numbers: HashMap::new() }
    }
}

impl<T> std::ops::Deref for Numbered<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.values
    }
}

/// Rows of the `cgroup` table of one node.
#[derive(Debug, Clone, Default)]
pub struct JobRows {
    pub rows: Vec<(Timestamp, JobReading)>,
}

impl JobRows {
    /// Rows by hour, then job, then time; of two readings of one job at one moment, the one
    /// written last is kept.
    pub fn sorted(mut self) -> Self {
        let key = |(time, reading): &(Timestamp, JobReading)| {
            (time.floor(Millis::HOUR), reading.job.clone(), *time)
        };
        self.rows.sort_by_key(key);
        let mut kept: Vec<(Timestamp, JobReading)> = Vec::with_capacity(self.rows.len());
        for row in self.rows {
            match kept.last_mut() {
                Some(last) if last.0 == row.0 && last.1.job == row.1.job => *last = row,
                _ => kept.push(row),
            }
        }
        Self { rows: kept }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use workload::Measure;

    const SCALE: Scale = Scale { measure: Measure::Counter, ticks_per_second: 100, period: Millis::SECOND };

    fn rows(readings: &[(i64, u16)]) -> ThreadRows {
        let mut rows = ThreadRows::default();
        for (written, (time, cpu)) in readings.iter().enumerate() {
            let ticks = Ticks([written as u64; Mode::COUNT]);
            let reading = ThreadReading { cpu: Cpu(*cpu), ticks, owner: Owner::Nobody };
            rows.push(Timestamp(*time), &reading, SCALE);
        }
        rows
    }

    proptest! {
        #[test]
        fn sorting_keeps_the_last_written_of_each_thread_and_moment(
            readings in prop::collection::vec((0i64..8_000_000, 0u16..3), 0..60),
        ) {
            // Few distinct moments, so that many readings collide.
            let readings: Vec<(i64, u16)> =
                readings.into_iter().map(|(time, cpu)| (time / 1_000_000 * 1_000_000, cpu)).collect();
            let mut expected = std::collections::BTreeMap::new();
            for (written, (time, cpu)) in readings.iter().enumerate() {
                expected.insert((time.div_euclid(Millis::HOUR.0), *cpu, *time), written as i64);
            }
            let sorted = rows(&readings).sorted();
            let found: Vec<_> = (0..sorted.len())
                .map(|i| ((sorted.times[i].div_euclid(Millis::HOUR.0), sorted.cpus[i], sorted.times[i]),
                          sorted.ticks[0][i]))
                .collect();
            prop_assert_eq!(found, expected.into_iter().collect::<Vec<_>>());
        }
    }

    #[test]
    fn readings_for_different_owners_stay_until_one_is_asked_for() {
        let mut several = ThreadRows::default();
        let job = |id: &str| JobId::new(id).unwrap();
        for (id, ticks) in [("a", 1), ("b", 2), ("a", 3)] {
            let ticks = Ticks([ticks; Mode::COUNT]);
            let reading = ThreadReading { cpu: Cpu(0), ticks, owner: Owner::Job(job(id)) };
            several.push(Timestamp(0), &reading, SCALE);
        }
        let sorted = several.sorted();
        assert_eq!(sorted.ticks[0], [2, 3]);
        assert_eq!(sorted.clone().resolved(Some(&job("b"))).ticks[0], [2]);
        assert_eq!(sorted.clone().resolved(Some(&job("c"))).ticks[0], [3]);
        assert_eq!(sorted.resolved(None).ticks[0], [3]);
    }

    #[test]
    fn appended_rows_keep_their_owners_and_scales() {
        let mut first = rows(&[(0, 0)]);
        let mut second = ThreadRows::default();
        let owner = Owner::Job(JobId::new("7").unwrap());
        let reading = ThreadReading { cpu: Cpu(1), ticks: Ticks::default(), owner: owner.clone() };
        let percent = Scale { measure: Measure::Interval, ..SCALE };
        second.push(Timestamp(1_000), &reading, percent);
        first.append(&second);
        assert_eq!((first.owner(0), first.owner(1)), (&Owner::Nobody, &owner));
        assert_eq!((first.scale(0), first.scale(1)), (SCALE, percent));
    }
}
