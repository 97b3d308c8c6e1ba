//! CSV files, plain or compressed, through a column map.
//!
//! A file is read twice: first to find how often it was read and how many decimals it keeps,
//! and to reject it as a whole if a cell is invalid; then to load it.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::io::Read;
use std::path::{Path, PathBuf};

use csv::{ByteRecord, Reader, ReaderBuilder};
use files::{Limits, Meter};
use workload::{
    Control, Cpu, JobId, Measure, Millis, Mode, ModeSet, NodeName, Owner, Source, Stop, ThreadReading, Ticks,
    Timestamp,
};

use super::column_map::{ColumnMap, Layout, TimeFormat, match_column};
use super::{Intake, nominal_period};
use crate::error::{Error, Result};
use crate::layout::is_storable;
use crate::{Archive, LoadReport};

/// How much of a cell an error shows.
const MAX_SHOWN_BYTES: usize = 200;
/// No tool measures finer than this.
const MAX_DECIMALS: u32 = 6;

/// A CSV file that was checked from its first row to its last.
pub struct CsvImport<'a> {
    table: Table<'a>,
    survey: Survey,
    source: Source,
    job: Option<JobId>,
}

impl<'a> CsvImport<'a> {
    /// Reads the file once. `layout` is the name of the map, for the source; `job` is the job that
    /// every row belongs to; it overrides the map.
    pub fn survey(
        file: &Path,
        map: &'a ColumnMap,
        layout: &str,
        job: Option<JobId>,
        intake: &Intake,
        stop: &Stop,
    ) -> Result<Self> {
        let table = Table::open(file, map, intake)?;
        let survey = table.survey(stop)?;
        let source = Source {
            origin: format!("{} ({layout})", file_name(file)),
            measure: map.unit.measure(),
            ticks_per_second: map.unit.ticks_per_second(survey.decimals),
            modes: table.modes(),
            period: survey.period,
        };
        let job = job.map_or_else(|| table.job_of_file(), |job| Ok(Some(job)))?;
        Ok(Self { table, survey, source, job })
    }

    /// Loads the file. Progress is counted in rows; stopped, it leaves nothing.
    pub fn load(&self, archive: &Archive, control: &Control<'_>) -> Result<LoadReport> {
        let Self { table, survey, source, job } = self;
        let mut loader = archive.with_stop(control.stop()).loader(source.clone())?;
        let mut n_rows = 0;
        table.for_each_row(|row| {
            n_rows += 1;
            if n_rows % 64 == 0 {
                control.report(n_rows, survey.n_rows)?;
            }
            let time = row.time()?;
            for thread in row.threads()? {
                let Some(ticks) = row.ticks(&thread, survey.decimals)? else {
                    loader.note_missing(1);
                    continue;
                };
                let owner = job.clone().or(thread.job).map_or(Owner::Unknown, Owner::Job);
                loader.push(&thread.node, time, &ThreadReading { cpu: thread.cpu, ticks, owner })?;
            }
            Ok(())
        })?;
        control.report(survey.n_rows, survey.n_rows)?;
        loader.finish()
    }
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// The columns of one thread.
#[derive(Debug, Clone)]
struct ThreadColumns {
    node: NodeName,
    cpu: Cpu,
    modes: Vec<(Mode, usize)>,
}

/// Where in a row things are.
enum Places {
    Wide(Vec<ThreadColumns>),
    Long { node: usize, cpu: usize, job: Option<usize>, modes: Vec<(Mode, usize)> },
}

struct Table<'a> {
    path: PathBuf,
    intake: Intake,
    map: &'a ColumnMap,
    time: usize,
    places: Places,
    last_node: RefCell<Option<NodeName>>,
}

struct Survey {
    decimals: u32,
    period: Millis,
    n_rows: u64,
}

impl<'a> Table<'a> {
    /// Reads the header and finds every column that the map names.
    fn open(path: &Path, map: &'a ColumnMap, intake: &Intake) -> Result<Self> {
        let refused = |reason: String| Error::Csv { file: path.display().to_string(), row: None, reason };
        let (mut reader, _) = reader(path, &intake.limits)?;
        let header = reader.headers().map_err(|error| refused(csv_message(&error)))?.clone();
        if header.is_empty() {
            return Err(refused("it is empty; a header line is needed".into()));
        }
        if header.get(0).is_some_and(|first| first.starts_with("PAR1")) {
            return Err(refused("it is Parquet, not CSV".into()));
        }
        let column = |name: &str| {
            let found = header.iter().position(|column| column == name);
            found
                .ok_or_else(|| refused(format!("column {name:?} is missing; there are {}", some_of(&header))))
        };
        let time = column(&map.time)?;
        let places = match &map.layout {
            Layout::Wide { columns } => {
                let mut threads: BTreeMap<(NodeName, Cpu), Vec<(Mode, usize)>> = BTreeMap::new();
                for (index, name) in header.iter().enumerate() {
                    if let Some((node, cpu, mode)) = match_column(columns, &map.modes, name) {
                        threads.entry((node, cpu)).or_default().push((mode, index));
                    }
                }
                if threads.is_empty() {
                    let found = some_of(&header);
                    return Err(refused(format!("no column is named like {columns:?}; there are {found}")));
                }
                for ((node, cpu), modes) in &threads {
                    let lacking =
                        map.modes.iter().find(|(_, mode)| !modes.iter().any(|(had, _)| had == *mode));
                    if let Some((name, _)) = lacking {
                        return Err(refused(format!("the {name} column of {node} CPU {cpu} is missing")));
                    }
                }
                let columns = |((node, cpu), modes)| ThreadColumns { node, cpu, modes };
                Places::Wide(threads.into_iter().map(columns).collect())
            }
            Layout::Long { node, cpu, job } => {
                let modes = map.modes.iter().map(|(name, mode)| Ok((*mode, column(name)?)));
                Places::Long {
                    node: column(node)?,
                    cpu: column(cpu)?,
                    job: job.as_deref().map(column).transpose()?,
                    modes: modes.collect::<Result<_>>()?,
                }
            }
        };
        Ok(Self { path: path.to_owned(), intake: *intake, map, time, places, last_node: RefCell::default() })
    }

    fn is_interval(&self) -> bool {
        self.map.unit.measure() == Measure::Interval
    }

    /// The modes of the source; of intervals, idle is the remainder.
    fn modes(&self) -> ModeSet {
        let rest = self.is_interval().then_some(Mode::Idle);
        self.map.modes.values().copied().chain(rest).collect()
    }

    fn job_of_file(&self) -> Result<Option<JobId>> {
        let name = file_name(&self.path);
        let stem = name.trim_end_matches(".zst").trim_end_matches(".gz").trim_end_matches(".csv");
        let job = self.map.job_is_file_name.then(|| JobId::new(stem)).transpose();
        job.map_err(|error| self.refused(None, error.to_string()))
    }

    fn refused(&self, row: Option<u64>, reason: String) -> Error {
        Error::Csv { file: self.path.display().to_string(), row, reason }
    }

    fn for_each_row(&self, mut visit: impl FnMut(Row<'_>) -> Result<()>) -> Result<()> {
        let (mut reader, meter) = reader(&self.path, &self.intake.limits)?;
        let mut record = ByteRecord::new();
        loop {
            meter.next_record();
            let line = reader.position().line();
            match reader.read_byte_record(&mut record) {
                Ok(true) => {
                    let line = record.position().map_or(line, |position| position.line());
                    visit(Row { table: self, record: &record, line })?;
                }
                Ok(false) => return Ok(()),
                Err(error) => return Err(self.refused(Some(line), csv_message(&error))),
            }
        }
    }

    /// Reads the whole file once, and rejects it if any cell is invalid.
    fn survey(&self, stop: &Stop) -> Result<Survey> {
        let (mut decimals, mut n_rows) = (0, 0);
        let mut last_times: HashMap<(NodeName, Cpu), i64> = HashMap::new();
        let mut gaps: BTreeMap<i64, u64> = BTreeMap::new();
        self.for_each_row(|row| {
            n_rows += 1;
            if n_rows % 64 == 0 {
                stop.check()?;
            }
            let time = row.time()?.0;
            for (index, thread) in row.threads()?.into_iter().enumerate() {
                for (_, column) in thread.modes {
                    decimals = decimals.max(row.decimals(*column)?);
                }
                row.ticks(&thread, MAX_DECIMALS)?;
                // The threads of a wide row are read at the same time, so the first one is enough.
                if index == 0 {
                    let last = last_times.insert((thread.node, thread.cpu), time);
                    let gap = last.map_or(0, |last| time - last);
                    *gaps.entry(gap).or_default() += u64::from(gap > 0);
                }
            }
            Ok(())
        })?;
        if n_rows == 0 {
            return Err(self.refused(None, "it has a header but no rows".into()));
        }
        let half = gaps.values().sum::<u64>().div_ceil(2);
        let mut n_seen = 0;
        let median = gaps.iter().find(|(_, n)| {
            n_seen += **n;
            n_seen >= half && half > 0
        });
        let period = median.map_or(Millis::SECOND, |(gap, _)| nominal_period(*gap));
        Ok(Survey { decimals, period, n_rows })
    }
}

fn reader(path: &Path, limits: &Limits) -> Result<(Reader<impl Read>, Meter)> {
    let file = files::open(path, limits)?;
    let meter = file.meter();
    Ok((ReaderBuilder::new().from_reader(file), meter))
}

fn some_of(header: &csv::StringRecord) -> String {
    let shown: Vec<&str> = header.iter().take(6).collect();
    let rest = if header.len() > 6 { format!(" and {} more", header.len() - 6) } else { String::new() };
    format!("{}{rest}", shown.join(", "))
}

fn csv_message(error: &csv::Error) -> String {
    match error.kind() {
        csv::ErrorKind::Io(error) => format!("it cannot be read to the end: {error}"),
        csv::ErrorKind::Utf8 { .. } => "it is not text".into(),
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            format!("it has {len} cells where the header has {expected_len}")
        }
        _ => error.to_string(),
    }
}

/// A thread of a row.
struct RowThread<'t> {
    node: NodeName,
    cpu: Cpu,
    job: Option<JobId>,
    modes: &'t [(Mode, usize)],
}

struct Row<'t> {
    table: &'t Table<'t>,
    record: &'t ByteRecord,
    line: u64,
}

impl<'t> Row<'t> {
    fn refused(&self, column: usize, what: &str) -> Error {
        let cell = &self.record[column];
        let cell = String::from_utf8_lossy(&cell[..cell.len().min(MAX_SHOWN_BYTES)]);
        self.table.refused(Some(self.line), format!("{cell:?} in column {} is not a {what}", column + 1))
    }

    fn text(&self, column: usize) -> Result<&str> {
        let text =
            std::str::from_utf8(&self.record[column]).map_err(|_| self.refused(column, "text in UTF-8"))?;
        Ok(text.trim())
    }

    fn time(&self) -> Result<Timestamp> {
        let column = self.table.time;
        let text = self.text(column)?;
        let time = match self.table.map.time_format {
            TimeFormat::EpochSeconds => decimal(text, 3).map(Timestamp),
            TimeFormat::EpochMilliseconds => decimal(text, 0).map(Timestamp),
            TimeFormat::Rfc3339 => {
                let moment = chrono::DateTime::parse_from_rfc3339(text).ok();
                moment.map(|moment| Timestamp(moment.timestamp_millis()))
            }
        };
        let time = time.filter(|time| is_storable(*time)).ok_or_else(|| self.refused(column, "time"))?;
        if self.table.intake.is_ahead(time) {
            return Err(self.refused(column, "time before now"));
        }
        Ok(time)
    }

    fn threads(&self) -> Result<Vec<RowThread<'t>>> {
        match &self.table.places {
            Places::Wide(threads) => Ok(threads
                .iter()
                .map(|thread| RowThread {
                    node: thread.node.clone(),
                    cpu: thread.cpu,
                    job: None,
                    modes: &thread.modes,
                })
                .collect()),
            Places::Long { node, cpu, job, modes } => {
                let cpu_text = self.text(*cpu)?;
                let job = match job.map(|column| (column, self.text(column))) {
                    None | Some((_, Ok(""))) => None,
                    Some((column, text)) => Some(
                        JobId::new(files::unguarded(text?)).map_err(|_| self.refused(column, "job id"))?,
                    ),
                };
                Ok(vec![RowThread {
                    node: self.node(*node)?,
                    cpu: Cpu(cpu_text.parse().map_err(|_| self.refused(*cpu, "number of a CPU"))?),
                    job,
                    modes,
                }])
            }
        }
    }

    /// The node of a long row. Most rows are of the same node as the one before.
    fn node(&self, column: usize) -> Result<NodeName> {
        let name = files::unguarded(self.text(column)?);
        let mut last = self.table.last_node.borrow_mut();
        if let Some(known) = last.as_ref().filter(|known| known.as_str() == name) {
            return Ok(known.clone());
        }
        let node = NodeName::new(name).map_err(|_| self.refused(column, "node name"))?;
        *last = Some(node.clone());
        Ok(node)
    }

    fn is_missing(&self, text: &str) -> bool {
        text.is_empty() || self.table.map.missing.iter().any(|missing| missing == text)
    }

    fn decimals(&self, column: usize) -> Result<u32> {
        let text = self.text(column)?;
        if self.is_missing(text) {
            return Ok(0);
        }
        if text.contains(['e', 'E']) {
            return Ok(MAX_DECIMALS);
        }
        let digits = text.split_once('.').map_or(0, |(_, digits)| digits.trim_end_matches('0').len());
        Ok((digits as u32).min(MAX_DECIMALS))
    }

    /// The ticks of a thread; `None` if any of its cells is missing.
    fn ticks(&self, thread: &RowThread<'_>, decimals: u32) -> Result<Option<Ticks>> {
        let mut ticks = Ticks::default();
        for (mode, column) in thread.modes {
            let text = self.text(*column)?;
            if self.is_missing(text) {
                return Ok(None);
            }
            let value = decimal(text, decimals).and_then(|value| u64::try_from(value).ok());
            ticks[*mode] =
                ticks[*mode].saturating_add(value.ok_or_else(|| self.refused(*column, "fraction of time"))?);
        }
        if self.table.is_interval() {
            let whole = u64::from(self.table.map.unit.ticks_per_second(decimals));
            if thread.modes.iter().all(|(mode, _)| *mode != Mode::Idle) {
                ticks[Mode::Idle] = whole.saturating_sub(ticks.total());
            }
            // Rounded fractions may sum to slightly more than one; twice as much is an error.
            if ticks.total() > 2 * whole {
                let (_, column) = thread.modes[0];
                return Err(self.refused(
                    column,
                    "fraction of time: the modes of its thread sum to more than the whole",
                ));
            }
        }
        Ok(Some(ticks))
    }
}

/// A decimal number times ten to the power of `decimals`, rounded.
fn decimal(text: &str, decimals: u32) -> Option<i64> {
    if text.contains(['e', 'E']) {
        let value = text.parse::<f64>().ok()? * 10f64.powi(decimals as i32);
        return (value.is_finite() && value.abs() < 9e15).then(|| value.round() as i64);
    }
    let (sign, digits) = text.strip_prefix('-').map_or((1, text), |digits| (-1, digits));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if (whole.is_empty() && fraction.is_empty())
        || !(whole.bytes().chain(fraction.bytes())).all(|b| b.is_ascii_digit())
    {
        return None;
    }
    let mut value: i64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let mut digits = fraction.bytes();
    for _ in 0..decimals {
        let digit = digits.next().map_or(0, |byte| i64::from(byte - b'0'));
        value = value.checked_mul(10)?.checked_add(digit)?;
    }
    let round_up = digits.next().is_some_and(|byte| byte >= b'5');
    Some(sign * (value + i64::from(round_up)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_kept_exactly() {
        assert_eq!(decimal("94.9", 1), Some(949));
        assert_eq!(decimal("100", 1), Some(1_000));
        assert_eq!(decimal("-1", 1), Some(-10));
        assert_eq!(decimal(".5", 2), Some(50));
        assert_eq!(decimal("0.1234", 3), Some(123));
        assert_eq!(decimal("0.1235", 3), Some(124));
        assert_eq!(decimal("1e-3", 6), Some(1_000));
        assert_eq!(decimal("1525707211.25", 3), Some(1_525_707_211_250));
        for bad in ["", ".", "-", "abc", "1.2.3", "nan", "1e999", "99999999999999999999"] {
            assert_eq!(decimal(bad, 3), None, "{bad}");
        }
    }
}
