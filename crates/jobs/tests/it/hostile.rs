//! Files that were damaged, made to cost more than they should, or hold cells that spreadsheets run.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jobs::trace::ReadOptions;
use jobs::{Preset, Trace, sink};
use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType};
use parquet::file::metadata::{ParquetMetaDataBuilder, ParquetMetaDataReader, ParquetMetaDataWriter};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

use crate::made::{csv, trace, trace_of};

fn options() -> ReadOptions {
    ReadOptions::preset(Preset::Dirlab)
}

fn complaint(path: &Path) -> String {
    Trace::read(path, &options()).unwrap_err().to_string()
}

/// The path and the bytes of a sound file.
fn parquet_file(folder: &Path) -> (PathBuf, Vec<u8>) {
    let path = folder.join("jobs.parquet");
    let trace = trace(60);
    sink::write(&path, trace.table(), trace.schema()).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    (path, bytes)
}

#[test]
fn no_byte_of_a_parquet_file_makes_reading_panic() {
    let folder = tempfile::tempdir().unwrap();
    let (path, bytes) = parquet_file(folder.path());
    let changes = [0x01, 0x80, 0xff].into_iter().cycle();
    for (at, change) in (0..bytes.len()).zip(changes) {
        let mut damaged = bytes.clone();
        damaged[at] ^= change;
        std::fs::write(&path, damaged).unwrap();
        if let Ok(read) = Trace::read(&path, &options()) {
            let table = read.table();
            assert!(table.columns.iter().all(|column| column.len() == table.n_rows()), "byte {at}");
        }
    }
}

#[test]
fn a_footer_cannot_promise_rows_that_are_not_there() {
    let folder = tempfile::tempdir().unwrap();
    let (path, bytes) = parquet_file(folder.path());
    let promise = |n_rows: i64, n_values: i64, offset: Option<i64>| {
        let metadata = ParquetMetaDataReader::new().parse_and_finish(&File::open(&path).unwrap()).unwrap();
        let group = metadata.row_group(0).clone();
        let columns = group.columns().iter().map(|column| {
            let builder = column.clone().into_builder().set_num_values(n_values);
            let builder = offset.into_iter().fold(builder, |builder, at| {
                builder.set_data_page_offset(at).set_dictionary_page_offset(Some(at))
            });
            builder.build().unwrap()
        });
        let columns = columns.collect();
        let group = group.into_builder().set_num_rows(n_rows).set_column_metadata(columns).build().unwrap();
        let file_metadata = metadata.file_metadata().clone();
        let changed = ParquetMetaDataBuilder::new(file_metadata).set_row_groups(vec![group]).build();
        let mut out = bytes[..bytes.len() - 8].to_vec();
        let mut footer = Vec::new();
        ParquetMetaDataWriter::new(&mut footer, &changed).finish().unwrap();
        out.extend(footer);
        let hostile = folder.path().join("hostile.parquet");
        std::fs::write(&hostile, out).unwrap();
        complaint(&hostile)
    };
    let whole = promise(60, 60, Some(-5));
    assert!(whole.ends_with("its footer points outside the file"), "{whole}");
    let many = promise(1_000_000_000_000, 1_000_000_000_000, None);
    assert!(many.contains("limits.rows"), "{many}");
    let some = promise(1_000_000, 1_000_000, None);
    assert!(some.contains("has 60 values in a row group of 1000000 rows"), "{some}");
    let negative = promise(-1, -1, None);
    assert!(negative.ends_with("its footer points outside the file"), "{negative}");
    let uneven = promise(60, 59, None);
    assert!(uneven.contains("has 59 values in a row group of 60 rows"), "{uneven}");
}

#[test]
fn a_dictionary_cannot_repeat_a_long_text_for_ever() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.parquet");
    let schema = Arc::new(parse_message_type("message m { REQUIRED BYTE_ARRAY name (UTF8); }").unwrap());
    // A page without compression, so that the file is as large as its dictionary.
    let properties = WriterProperties::builder().set_dictionary_page_size_limit(8 << 20).build();
    let mut writer =
        SerializedFileWriter::new(File::create(&path).unwrap(), schema, Arc::new(properties)).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    let text = ByteArray::from(vec![b'x'; 100_000]);
    let texts = vec![text; 3_000];
    column.typed::<ByteArrayType>().write_batch(&texts, None, None).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.close().unwrap();
    assert!(std::fs::metadata(&path).unwrap().len() < 1_000_000);
    let error = complaint(&path);
    assert!(error.contains("limits.compression_ratio"), "{error}");
}

#[test]
fn a_formula_in_a_name_is_guarded_in_csv_and_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let text = csv(40, 1).replacen(",Pass\n", ",=HYPERLINK(A1)\n", 3);
    let trace = trace_of(&text, Preset::Dirlab).unwrap();
    let path = folder.path().join("out.csv");
    sink::write(&path, trace.table(), trace.schema()).unwrap();
    let written = std::fs::read_to_string(&path).unwrap();
    assert_eq!(written.matches(",'=HYPERLINK").count(), 3);
    assert!(!written.contains(",=") && !written.contains("'-"));
    let again = trace_of(&written, Preset::Dirlab).unwrap();
    assert_eq!(again.table(), trace.table());
}

#[test]
fn pages_are_not_decompressed_if_they_expand_too_far() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.parquet");
    let schema = Arc::new(parse_message_type("message m { REQUIRED DOUBLE seconds; }").unwrap());
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_dictionary_enabled(false)
        .build();
    let mut writer =
        SerializedFileWriter::new(File::create(&path).unwrap(), schema, Arc::new(properties)).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    // Unknown values, whose cells are empty: only the pages are large.
    let unknown = vec![f64::NAN; 9_000_000];
    column.typed::<DoubleType>().write_batch(&unknown, None, None).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.close().unwrap();
    assert!(std::fs::metadata(&path).unwrap().len() < 100_000);
    let error = complaint(&path);
    assert!(error.contains("limits.compression_ratio"), "{error}");
}
