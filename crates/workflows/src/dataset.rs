//! Labelled runs, stored as `<label>/<workflow>[-<batch>]-runNNNN.csv` in a directory, a `.tar` or a `.tar.zst`, and
//! their split into training, validation and test sets.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use files::{LimitExceeded, Limited, Limits, Meter};

use crate::duplicates::Seen;
use crate::error::{Error, Result};
use crate::read::Recording;
use crate::read::table::{self, TableError};
use crate::tar_members;
use crate::workflow::WorkflowRun;
use workload::Timestamp;

/// The label of healthy runs.
pub const NORMAL: &str = "normal";

#[derive(Debug, Clone, PartialEq)]
pub struct LabelledRun {
    pub recording: Recording,
    /// The fault and its strength, such as `hdd_50`.
    pub label: String,
    /// The batch: runs that were made one after another under the same conditions.
    pub batch: Option<String>,
}

impl LabelledRun {
    pub fn new(recording: Recording, label: &str) -> Self {
        let batch = batch_of(&recording.run.name).map(str::to_owned);
        Self { recording, label: label.to_owned(), batch }
    }

    pub fn name(&self) -> &str {
        &self.recording.run.name
    }

    /// The label without the strength of the fault.
    pub fn class(&self) -> &str {
        class_of(&self.label)
    }
}

/// The label without its strength, which is a number: `hdd` for `hdd_50`, `disk_slow` for `disk_slow_3`.
pub fn class_of(label: &str) -> &str {
    let is_strength = |text: &str| text.parse::<f64>().is_ok_and(f64::is_finite);
    label.rsplit_once('_').filter(|(_, strength)| is_strength(strength)).map_or(label, |(class, _)| class)
}

/// The batch in the name of a run: `20200610T041238Z` in `1000genome-20200610T041238Z-run0001`.
fn batch_of(name: &str) -> Option<&str> {
    let (rest, run) = name.rsplit_once('-')?;
    let is_run =
        run.strip_prefix("run").is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()));
    let batch = rest.rsplit_once('-')?.1;
    let n_digits = batch.bytes().filter(u8::is_ascii_digit).count();
    (is_run && batch.starts_with(|first: char| first.is_ascii_digit()) && n_digits >= 6).then_some(batch)
}

#[derive(Debug, Clone, Default)]
pub struct Dataset {
    /// Sorted by label and name.
    pub runs: Vec<LabelledRun>,
    pub warnings: Vec<String>,
}

/// Labels that a warning names.
const MAX_LABELS_NAMED: usize = 5;

/// Warnings, each with the files that it is about.
type FileWarnings = BTreeMap<String, Vec<String>>;

/// One line for a warning about many files.
fn in_one_line(text: &str, files: &[String]) -> String {
    match files {
        [first, _, ..] => format!("{} runs, such as {first}: {text}", files.len()),
        files => format!("{}: {text}", files.concat()),
    }
}

impl Dataset {
    /// Reads a directory or a tar archive. Files that cannot be read are skipped with a warning.
    pub fn read(path: &Path, limits: &Limits) -> Result<Self> {
        let mut found = Self::default();
        let mut warnings = FileWarnings::new();
        if path.is_dir() {
            found.read_directory(path, limits, &mut warnings)?;
        } else {
            found.read_archive(path, limits, &mut warnings)?;
        }
        found.warnings = warnings.into_iter().map(|(text, files)| in_one_line(&text, &files)).collect();
        found.runs.sort_by(|a, b| (&a.label, a.name()).cmp(&(&b.label, b.name())));
        found.drop_conflicts();
        if found.runs.is_empty() {
            let reason = found.warnings.first().map_or_else(
                || "expected <label>/<workflow>-runNNNN.csv".to_owned(),
                |first| format!("{} were skipped, such as {first}", found.warnings.len()),
            );
            return Err(Error::file(path, format!("no runs found: {reason}")));
        }
        Ok(found)
    }

    /// Adds a table, unless it is invalid: then it is skipped with a warning.
    fn add(
        &mut self,
        path: &Path,
        from: impl Read,
        meter: &mut Meter,
        warnings: &mut FileWarnings,
    ) -> std::result::Result<(), LimitExceeded> {
        let parts: Vec<_> = path.iter().rev().take(2).map(|part| part.to_string_lossy()).collect();
        let [file, label] = &parts[..] else { return Ok(()) };
        let Some(name) = file.strip_suffix(".csv") else { return Ok(()) };
        match table::read(name, from, meter) {
            Ok(recording) => {
                for warning in &recording.warnings {
                    warnings.entry(warning.clone()).or_default().push(file.to_string());
                }
                self.runs.push(LabelledRun::new(recording, label));
            }
            Err(TableError::Invalid(reason)) => {
                warnings.entry(reason).or_default().push(format!("{label}/{file} is skipped"));
            }
            Err(TableError::Limit(limit)) => return Err(limit),
        }
        Ok(())
    }

    fn read_directory(
        &mut self,
        directory: &Path,
        limits: &Limits,
        warnings: &mut FileWarnings,
    ) -> Result<()> {
        let entries = |directory: &Path| -> Result<Vec<PathBuf>> {
            let all: std::io::Result<Vec<_>> = fs::read_dir(directory)
                .map_err(Error::io(directory))?
                .map(|entry| entry.map(|entry| entry.path()))
                .collect();
            let mut all = all.map_err(Error::io(directory))?;
            all.sort();
            Ok(all)
        };
        for label in entries(directory)?.into_iter().filter(|path| path.is_dir()) {
            for file in entries(&label)? {
                if file.extension().is_some_and(|extension| extension == "csv") && file.is_file() {
                    let table = Limited::new(File::open(&file).map_err(Error::io(&file))?, limits);
                    let mut meter = table.meter();
                    let added = self.add(&file, table, &mut meter, warnings);
                    added.map_err(|limit| Error::file(&file, limit))?;
                }
            }
        }
        Ok(())
    }

    fn read_archive(&mut self, path: &Path, limits: &Limits, warnings: &mut FileWarnings) -> Result<()> {
        let name = path.to_string_lossy();
        if ![".tar", ".zst", ".tzst"].iter().any(|end| name.ends_with(end)) {
            return Err(Error::file(path, "expected a directory, a .tar or a .tar.zst"));
        }
        let file = files::open(path, limits)?;
        let mut meter = file.meter();
        tar_members::each(file, &mut meter, |inside, member, meter| self.add(inside, member, meter, warnings))
            .map_err(|reason| Error::file(path, reason))
    }

    /// Removes runs that appear under two labels, because neither can be trusted. Different runs may share a name: some
    /// datasets number the runs of each label from one.
    fn drop_conflicts(&mut self) {
        let mut seen = Seen::default();
        // The runs that are equal to each run that is there first.
        let mut same: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (at, run) in self.runs.iter().enumerate() {
            let first = seen.find_or_add(&run.recording, at, |at| &self.runs[at].recording);
            if let Some(first) = first {
                same.entry(first).or_insert_with(|| vec![first]).push(at);
            }
        }
        for (first, same) in &same {
            let labels = same.iter().take(MAX_LABELS_NAMED).map(|at| self.runs[*at].label.as_str());
            let labels = labels.collect::<Vec<_>>().join(" and ");
            let n_more = same.len().saturating_sub(MAX_LABELS_NAMED);
            let more = if n_more > 0 { format!(" and {n_more} more") } else { String::new() };
            let name = self.runs[*first].name();
            self.warnings.push(format!("{name} is skipped: it has the labels {labels}{more}"));
        }
        let skipped: HashSet<usize> = same.into_values().flatten().collect();
        let mut at = 0..;
        self.runs.retain(|_| at.next().is_none_or(|at| !skipped.contains(&at)));
    }

    /// Adds a run with a label and returns its index. If the run exists, its label is replaced.
    pub fn label(&mut self, recording: Recording, label: &str) -> usize {
        match self.runs.iter().position(|run| run.recording == recording) {
            Some(known) => {
                let run = &mut self.runs[known];
                if run.label != label {
                    self.warnings.push(format!(
                        "{} had the label {}, and now has {label}",
                        run.name(),
                        run.label
                    ));
                    run.label = label.to_owned();
                }
                known
            }
            None => {
                self.runs.push(LabelledRun::new(recording, label));
                self.runs.len() - 1
            }
        }
    }

    /// The classes, the healthy one first, then in alphabetical order.
    pub fn classes(&self) -> Vec<String> {
        let mut classes: Vec<String> = self.runs.iter().map(|run| run.class().to_owned()).collect();
        classes.sort_by_key(|class| (class != NORMAL, class.clone()));
        classes.dedup();
        classes
    }

    /// The first and the last time of some runs.
    pub fn span(&self, indices: &[usize]) -> Option<(Timestamp, Timestamp)> {
        let runs = || self.select(indices).into_iter().map(|run| &run.recording.run);
        let start = runs().filter_map(WorkflowRun::start).min_by(f64::total_cmp)?;
        let end = runs().filter_map(WorkflowRun::end).max_by(f64::total_cmp)?;
        Some((Timestamp((start * 1e3) as i64), Timestamp((end * 1e3) as i64)))
    }

    pub fn select(&self, indices: &[usize]) -> Vec<&LabelledRun> {
        indices.iter().map(|index| &self.runs[*index]).collect()
    }
}

/// Training, validation and test runs, by their indices.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Split {
    pub train: Vec<usize>,
    pub validation: Vec<usize>,
    pub test: Vec<usize>,
    /// Names of runs whose label in the split differs from the data; they are skipped.
    pub conflicting: Vec<String>,
    /// Names of runs that are not in the data.
    pub missing: Vec<String>,
}

impl Split {
    /// Reads a table `split,label,main_label,run`.
    pub fn read(path: &Path, runs: &Dataset, limits: &Limits) -> Result<Self> {
        let mut by_name: HashMap<&str, Vec<usize>> = HashMap::new();
        for (at, run) in runs.runs.iter().enumerate() {
            by_name.entry(run.name()).or_default().push(at);
        }
        let bytes = files::read(path, limits)?;
        let mut reader = csv::Reader::from_reader(&bytes[..]);
        let header = reader.headers().map_err(|error| Error::file(path, error))?.clone();
        let column = |name: &str| {
            header.iter().position(|found| found == name).ok_or_else(|| {
                Error::file(path, format!("no column {name}: expected split,label,main_label,run"))
            })
        };
        let (split, label, name) = (column("split")?, column("label")?, column("run")?);
        let mut found = Self::default();
        for row in reader.records() {
            let row = row.map_err(|error| Error::file(path, error))?;
            let cell = |column: usize| row.get(column).unwrap_or_default();
            let Some(alike) = by_name.get(cell(name)) else {
                found.missing.push(cell(name).to_owned());
                continue;
            };
            let Some(index) = alike.iter().copied().find(|at| runs.runs[*at].label == cell(label)) else {
                found.conflicting.push(cell(name).to_owned());
                continue;
            };
            match cell(split) {
                "train" => found.train.push(index),
                "validation" | "val" | "valid" => found.validation.push(index),
                "test" => found.test.push(index),
                other => {
                    return Err(Error::file(
                        path,
                        format!("unknown split {other}: expected train, validation or test"),
                    ));
                }
            }
        }
        let trained: HashSet<usize> = found.train.iter().chain(&found.validation).copied().collect();
        if let Some(both) = found.test.iter().find(|test| trained.contains(*test)) {
            return Err(Error::file(
                path,
                format!("{} is in the test set and in another set", runs.runs[*both].name()),
            ));
        }
        found.conflicting.sort();
        if found.train.is_empty() || found.test.is_empty() {
            return Err(Error::file(path, "no training runs or no test runs of the split are in the data"));
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_and_strengths_are_parsed_from_names() {
        assert_eq!(batch_of("1000genome-20200610T041238Z-run0001"), Some("20200610T041238Z"));
        assert_eq!(batch_of("1000-genome-run0136"), None);
        assert_eq!(batch_of("montage-run0001"), None);
        assert_eq!(batch_of("montage-20240101-run0001"), Some("20240101"));
        assert_eq!(class_of("loss_0.1"), "loss");
        assert_eq!((class_of("disk_slow_3"), class_of("disk_full")), ("disk_slow", "disk_full"));
    }
}
