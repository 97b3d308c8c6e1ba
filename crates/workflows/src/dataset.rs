//! Labelled runs: folders `<label>/<workflow>[-<batch>]-runNNNN.csv`, plain or in a `.tar.zst`, and how they are split.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::{self, File};
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::read::{Recording, table};

/// The label of runs with which nothing is wrong.
pub const NORMAL: &str = "normal";

#[derive(Debug, Clone, PartialEq)]
pub struct LabelledRun {
    pub recording: Recording,
    /// The trouble and its strength: `hdd_50`.
    pub label: String,
    /// Runs of a batch were made one after the other, with one label.
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

    /// The trouble without its strength.
    pub fn class(&self) -> &str {
        class_of(&self.label)
    }
}

/// `hdd` of `hdd_50`, `disk_slow` of `disk_slow_3`: a strength is a number.
pub fn class_of(label: &str) -> &str {
    let is_strength = |text: &str| text.parse::<f64>().is_ok_and(f64::is_finite);
    label.rsplit_once('_').filter(|(_, strength)| is_strength(strength)).map_or(label, |(class, _)| class)
}

/// The place of a class among classes; the first for one that is not there.
pub fn number_of(classes: &[String], class: &str) -> usize {
    classes.iter().position(|known| known == class).unwrap_or(0)
}

/// `20200610T041238Z` of `1000genome-20200610T041238Z-run0001`.
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
    /// In the order of their labels and names.
    pub runs: Vec<LabelledRun>,
    pub warnings: Vec<String>,
}

/// What is said while runs are read, and of which files.
type Said = BTreeMap<String, Vec<String>>;

/// What is said of many files is said once.
fn in_one_line(text: &str, files: &[String]) -> String {
    match files {
        [first, _, ..] => format!("{} runs, the first of which is {first}: {text}", files.len()),
        files => format!("{}: {text}", files.concat()),
    }
}

impl Dataset {
    /// Reads a folder of labels, or an archive of one. What cannot be read is left out and named.
    pub fn read(path: &Path) -> Result<Self> {
        let mut found = Self::default();
        let mut said = Said::new();
        if path.is_dir() {
            found.read_folder(path, &mut said)?;
        } else {
            found.read_archive(path, &mut said)?;
        }
        found.warnings = said.into_iter().map(|(text, files)| in_one_line(&text, &files)).collect();
        found.runs.sort_by(|a, b| (&a.label, a.name()).cmp(&(&b.label, b.name())));
        found.drop_conflicts();
        if found.runs.is_empty() {
            let reason = found.warnings.first().map_or_else(
                || "they are expected as <label>/<workflow>-runNNNN.csv".to_owned(),
                |first| format!("{} are left out, the first because {first}", found.warnings.len()),
            );
            return Err(Error::file(path, format!("there are no runs in it: {reason}")));
        }
        Ok(found)
    }

    fn add(&mut self, path: &Path, from: impl Read, said: &mut Said) {
        let parts: Vec<_> = path.iter().rev().take(2).map(|part| part.to_string_lossy()).collect();
        let [file, label] = &parts[..] else { return };
        let Some(name) = file.strip_suffix(".csv") else { return };
        match table::read(name, from) {
            Ok(recording) => {
                for warning in &recording.warnings {
                    said.entry(warning.clone()).or_default().push(file.to_string());
                }
                self.runs.push(LabelledRun::new(recording, label));
            }
            Err(reason) => said.entry(reason).or_default().push(format!("{label}/{file} is left out")),
        }
    }

    fn read_folder(&mut self, folder: &Path, said: &mut Said) -> Result<()> {
        let entries = |folder: &Path| -> Result<Vec<PathBuf>> {
            let all: std::io::Result<Vec<_>> = fs::read_dir(folder)
                .map_err(Error::io(folder))?
                .map(|entry| entry.map(|entry| entry.path()))
                .collect();
            let mut all = all.map_err(Error::io(folder))?;
            all.sort();
            Ok(all)
        };
        for label in entries(folder)?.into_iter().filter(|path| path.is_dir()) {
            for file in entries(&label)? {
                if file.extension().is_some_and(|extension| extension == "csv") {
                    self.add(&file, BufReader::new(File::open(&file).map_err(Error::io(&file))?), said);
                }
            }
        }
        Ok(())
    }

    fn read_archive(&mut self, path: &Path, said: &mut Said) -> Result<()> {
        let file = BufReader::new(File::open(path).map_err(Error::io(path))?);
        let name = path.to_string_lossy();
        let reader: Box<dyn Read> = if name.ends_with(".zst") || name.ends_with(".tzst") {
            Box::new(zstd::Decoder::new(file).map_err(Error::io(path))?)
        } else if name.ends_with(".tar") {
            Box::new(file)
        } else {
            return Err(Error::file(path, "runs are a folder, a .tar or a .tar.zst"));
        };
        let mut archive = tar::Archive::new(reader);
        for entry in archive.entries().map_err(Error::io(path))? {
            let entry =
                entry.map_err(|error| Error::file(path, format!("the archive is damaged: {error}")))?;
            if entry.header().entry_type().is_file() {
                let inside = entry.path().map_err(Error::io(path))?.into_owned();
                self.add(&inside, entry, said);
            }
        }
        Ok(())
    }

    /// A run that is filed under two labels is not known to have either. Only a name may be shared: runs are counted anew
    /// for each label in some collections.
    fn drop_conflicts(&mut self) {
        let mut by_name: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (at, run) in self.runs.iter().enumerate() {
            by_name.entry(run.name()).or_default().push(at);
        }
        let mut left_out = HashSet::new();
        for (name, alike) in by_name {
            let of = |at: &usize| &self.runs[*at];
            let is_same = |at: &&usize| {
                alike.iter().any(|other| other != *at && of(other).recording == of(at).recording)
            };
            let same: Vec<usize> = alike.iter().filter(is_same).copied().collect();
            if !same.is_empty() {
                let labels: Vec<&str> = same.iter().map(|at| of(at).label.as_str()).collect();
                self.warnings.push(format!("{name} is left out: it is filed under {}", labels.join(" and ")));
                left_out.extend(same);
            }
        }
        let mut at = 0..;
        self.runs.retain(|_| at.next().is_none_or(|at| !left_out.contains(&at)));
    }

    /// Adds a run that a person has labelled, and says where it is. If it is there already, their word counts.
    pub fn label(&mut self, recording: Recording, label: &str) -> usize {
        match self.runs.iter().position(|run| run.recording == recording) {
            Some(known) => {
                let run = &mut self.runs[known];
                if run.label != label {
                    self.warnings.push(format!(
                        "{} was filed under {}: now it is {label}",
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

    /// Classes, the healthy one first, the others in alphabetical order.
    pub fn classes(&self) -> Vec<String> {
        let mut classes: Vec<String> = self.runs.iter().map(|run| run.class().to_owned()).collect();
        classes.sort_by_key(|class| (class != NORMAL, class.clone()));
        classes.dedup();
        classes
    }

    pub fn select(&self, indices: &[usize]) -> Vec<&LabelledRun> {
        indices.iter().map(|index| &self.runs[*index]).collect()
    }
}

/// Which runs are to learn from, to choose by, and to judge by.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Split {
    pub train: Vec<usize>,
    pub validation: Vec<usize>,
    pub test: Vec<usize>,
    /// Runs of the split that are not what it says, by name.
    pub conflicting: Vec<String>,
    /// Runs of the split that are not in the data, by name.
    pub missing: Vec<String>,
}

impl Split {
    /// Reads a table `split,label,main_label,run`. Runs whose label is another in the data are left out and named.
    pub fn read(path: &Path, runs: &Dataset) -> Result<Self> {
        let mut by_name: HashMap<&str, Vec<usize>> = HashMap::new();
        for (at, run) in runs.runs.iter().enumerate() {
            by_name.entry(run.name()).or_default().push(at);
        }
        let mut reader = csv::Reader::from_path(path).map_err(|error| Error::file(path, error))?;
        let header = reader.headers().map_err(|error| Error::file(path, error))?.clone();
        let column = |name: &str| {
            header.iter().position(|found| found == name).ok_or_else(|| {
                Error::file(path, format!("there is no column {name}; it is split,label,main_label,run"))
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
                        format!("{other} is no split; there are train, validation, test"),
                    ));
                }
            }
        }
        let learnt: HashSet<usize> = found.train.iter().chain(&found.validation).copied().collect();
        if let Some(both) = found.test.iter().find(|test| learnt.contains(*test)) {
            return Err(Error::file(
                path,
                format!(
                    "{} is to be learnt from and to be judged: take it out of one",
                    runs.runs[*both].name()
                ),
            ));
        }
        found.conflicting.sort();
        if found.train.is_empty() || found.test.is_empty() {
            return Err(Error::file(
                path,
                "none of its runs are in the data, or none are to learn from or to judge by",
            ));
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_told_from_the_names_of_workflows() {
        assert_eq!(batch_of("1000genome-20200610T041238Z-run0001"), Some("20200610T041238Z"));
        assert_eq!(batch_of("1000-genome-run0136"), None);
        assert_eq!(batch_of("montage-run0001"), None);
        assert_eq!(batch_of("montage-20240101-run0001"), Some("20240101"));
        assert_eq!(class_of("loss_0.1"), "loss");
        assert_eq!((class_of("disk_slow_3"), class_of("disk_full")), ("disk_slow", "disk_full"));
    }
}
