//! CSV with a header, separated by commas or by bars (`sacct --parsable2`).

use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use files::{Limited, unguarded};

use super::{check_columns, table_of};
use crate::error::{Error, LineError, Result, TraceError};
use crate::table::{Cells, Table};

/// Parses text; `path` is for error messages. Bars separate cells if the header contains one, commas otherwise.
pub fn parse(text: Limited<impl Read>, path: &Path) -> Result<Table> {
    let mut meter = text.meter();
    let mut text = BufReader::new(text);
    let start = text.fill_buf().map_err(Error::io(path))?;
    let header = start.split(|byte| *byte == b'\n').next().unwrap_or_default();
    if header.starts_with(b";") {
        return Err(Error::in_file(path)(TraceError::LooksLikeSwf));
    }
    let delimiter = if header.contains(&b'|') { b'|' } else { b',' };
    let mut reader = csv::ReaderBuilder::new().delimiter(delimiter).flexible(false).from_reader(text);
    let names: Vec<String> =
        reader.headers().map_err(fault(path))?.iter().map(|name| unguarded(name.trim()).to_owned()).collect();
    if names.iter().all(String::is_empty) {
        return Err(Error::in_file(path)(TraceError::Empty));
    }
    check_columns(names.len(), path)?;
    let mut cells = vec![Cells::default(); names.len()];
    let mut record = csv::StringRecord::new();
    meter.next_record();
    while reader.read_record(&mut record).map_err(fault(path))? {
        meter.next_row().map_err(Error::limit(path))?;
        for (column, cell) in cells.iter_mut().zip(&record) {
            column.push(unguarded(cell.trim()));
        }
    }
    Ok(table_of(names, &cells))
}

fn fault(path: &Path) -> impl Fn(csv::Error) -> Error {
    move |error| {
        let line = error.position().map_or(1, csv::Position::line);
        let at_line = |reason: LineError| Error::line(path, line, reason);
        match error.kind() {
            csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
                at_line(LineError::Cells { found: *len, expected: *expected_len })
            }
            csv::ErrorKind::Utf8 { .. } => at_line(LineError::NotUtf8),
            _ => Error::Csv { path: path.display().to_string(), source: error },
        }
    }
}

#[cfg(test)]
mod tests {
    use files::Limits;
    use proptest::prelude::*;

    use super::*;

    fn parsed_within(text: impl Read, limits: &Limits) -> Result<Table> {
        parse(Limited::new(text, limits), Path::new("trace.csv"))
    }

    fn parsed(text: &[u8]) -> Result<Table> {
        parsed_within(text, &Limits::default())
    }

    proptest! {
        #[test]
        fn any_bytes_give_columns_of_equal_length_or_an_error(text in proptest::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(table) = parsed(&text) {
                prop_assert!(table.columns.iter().all(|column| column.len() == table.n_rows()));
            }
        }

        #[test]
        fn cells_come_back_whatever_they_contain(
            rows in proptest::collection::vec(proptest::collection::vec("[a-z0-9,|\"\n .-]{0,8}", 3), 1..12),
        ) {
            let mut writer = csv::Writer::from_writer(Vec::new());
            writer.write_record(["a", "b", "c"]).unwrap();
            for row in &rows {
                writer.write_record(row).unwrap();
            }
            let table = parsed(&writer.into_inner().unwrap()).unwrap();
            prop_assert_eq!(table.n_rows(), rows.len());
            for (at, column) in table.columns.iter().enumerate().filter(|(_, column)| column.as_numbers().is_none()) {
                for (row, cells) in rows.iter().enumerate() {
                    prop_assert_eq!(column.cell(row), cells[at].trim());
                }
            }
        }
    }

    #[test]
    fn faults_name_the_line() {
        let text = |bytes: &[u8]| parsed(bytes).unwrap_err().to_string();
        assert_eq!(text(b""), "trace.csv: the file is empty");
        assert!(text(b"; Version: 2.2\n1 2 3\n").ends_with("which is preset swf"));
        assert_eq!(text(b"a,b\n1,2\n3\n"), "trace.csv, line 3: 1 cells, but the header has 2");
        assert_eq!(text(b"a,b\n1,\xff\n"), "trace.csv, line 2: the text is not UTF-8");
    }

    #[test]
    fn rows_records_and_columns_are_bounded() {
        let limits = Limits { rows: 3, record_bytes: 100_000, ..Limits::default() };
        let error = |text: &mut dyn Read| parsed_within(text, &limits).unwrap_err().to_string();
        assert_eq!(parsed_within("a\n1\n2\n3\n".as_bytes(), &limits).unwrap().n_rows(), 3);
        let cases: [(&mut dyn Read, &str); 4] = [
            (&mut "a\n1\n2\n3\n4\n".as_bytes(), "limits.rows"),
            (&mut "a,b\n\"".as_bytes().chain(std::io::repeat(b'x')), "limits.record_bytes"),
            (&mut std::io::repeat(b'x'), "limits.record_bytes"),
            (&mut "a".as_bytes().chain(std::io::repeat(b',').take(9_000)), "9001 columns"),
        ];
        for (text, expected) in cases {
            let error = error(text);
            assert!(error.contains(expected), "{error}");
        }
    }
}
