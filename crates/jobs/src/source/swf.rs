//! The Standard Workload Format of the Parallel Workloads Archive: 18 numbers per job, header comments after `;`.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use files::Limited;

use crate::error::{Error, LineError, Result};
use crate::format::Format;
use crate::table::{Column, Table};

/// Column names of the 18 fields.
pub const FIELDS: [&str; 18] = [
    "job",
    "submit",
    "wait",
    "run_time",
    "processors",
    "cpu_time",
    "memory",
    "requested_processors",
    "requested_time",
    "requested_memory",
    "status",
    "user",
    "group",
    "executable",
    "queue",
    "partition",
    "preceding_job",
    "think_time",
];
/// Digits after the decimal point of fields that are not whole.
const DECIMALS: u8 = 2;

/// Parses text; `path` is for error messages.
pub fn parse(text: Limited<impl Read>, path: &Path) -> Result<Table> {
    let mut notes = Vec::new();
    let mut values: Vec<Vec<f64>> = vec![Vec::new(); FIELDS.len()];
    let mut meter = text.meter();
    let mut text = BufReader::new(text);
    let (mut line, mut number) = (Vec::new(), 0);
    loop {
        line.clear();
        if text.read_until(b'\n', &mut line).map_err(Error::io(path))? == 0 {
            break;
        }
        meter.next_row().map_err(Error::limit(path))?;
        number += 1;
        let fault = |reason: LineError| Error::line(path, number, reason);
        let comment = line.trim_ascii_start().strip_prefix(b";");
        if let Some(comment) = comment {
            // Headers of old traces contain names in Latin-1.
            notes.push(String::from_utf8_lossy(comment).trim().to_owned());
            continue;
        }
        let line = std::str::from_utf8(&line).map_err(|_| fault(LineError::NotUtf8))?;
        let mut n_fields = 0;
        for cell in line.split_ascii_whitespace() {
            if let Some(column) = values.get_mut(n_fields) {
                let not_a_number =
                    || fault(LineError::NotANumber { field: FIELDS[n_fields], cell: cell.to_owned() });
                let value: f64 = cell.parse().map_err(|_| not_a_number())?;
                if !value.is_finite() {
                    return Err(not_a_number());
                }
                column.push(value);
            }
            n_fields += 1;
        }
        if n_fields != FIELDS.len() && n_fields != 0 {
            return Err(fault(LineError::SwfFields { found: n_fields, expected: FIELDS.len() }));
        }
    }
    let columns = FIELDS.iter().zip(values).map(|(name, values)| {
        let is_whole = values.iter().all(|value| value.fract() == 0.0);
        Column::numbers(*name, values, Format::Plain { decimals: if is_whole { 0 } else { DECIMALS } })
    });
    Ok(Table { columns: columns.collect(), notes })
}

#[cfg(test)]
mod tests {
    use files::Limits;
    use proptest::prelude::*;

    use super::*;

    fn parsed(text: &[u8]) -> Result<Table> {
        parse(Limited::new(text, &Limits::default()), Path::new("log.swf"))
    }

    proptest! {
        #[test]
        fn any_bytes_give_columns_of_equal_length_or_an_error(text in proptest::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(table) = parsed(&text) {
                prop_assert!(table.columns.iter().all(|column| column.len() == table.n_rows()));
            }
        }

        #[test]
        fn fields_are_read_in_order(jobs in proptest::collection::vec(proptest::array::uniform18(-1i32..100_000), 0..20)) {
            let line = |job: &[i32; 18]| job.map(|field| field.to_string()).join("  ");
            let text: Vec<String> = jobs.iter().map(line).collect();
            let table = parsed(format!("; Computer: toy\n\n{}\r\n", text.join("\n")).as_bytes()).unwrap();
            prop_assert_eq!(table.n_rows(), jobs.len());
            prop_assert_eq!(&table.notes, &["Computer: toy"]);
            for (at, column) in table.columns.iter().enumerate() {
                let expected: Vec<f64> = jobs.iter().map(|job| f64::from(job[at])).collect();
                prop_assert_eq!(column.as_numbers().unwrap(), expected);
            }
        }
    }

    #[test]
    fn faults_name_the_line_and_the_field() {
        let text = |bytes: &[u8]| parsed(bytes).unwrap_err().to_string();
        assert_eq!(text(b"; note\n1 2 3"), "log.swf, line 2: 3 fields, but SWF has 18");
        assert_eq!(text(b"1 2 x"), "log.swf, line 1: wait is \"x\", which is not a finite number");
        assert_eq!(text(b"1 inf 3"), "log.swf, line 1: submit is \"inf\", which is not a finite number");
        let long = vec!["7"; 19].join(" ");
        assert_eq!(text(long.as_bytes()), "log.swf, line 1: 19 fields, but SWF has 18");
    }

    #[test]
    fn lines_and_their_number_are_bounded() {
        let limits = Limits { rows: 3, record_bytes: 100_000, ..Limits::default() };
        let error = |text: &mut dyn Read| {
            parse(Limited::new(text, &limits), Path::new("log.swf")).unwrap_err().to_string()
        };
        let comments = error(&mut ";\n;\n;\n;\n".as_bytes());
        assert!(comments.contains("limits.rows"), "{comments}");
        let endless = error(&mut std::io::repeat(b'1'));
        assert!(endless.contains("limits.record_bytes"), "{endless}");
    }
}
