//! Entry points for the fuzz targets in `fuzz/`. Checksums, which would stop a fuzzer at once, are made right before
//! anything is read.

use std::collections::VecDeque;
use std::fs;

use bytes::Bytes;
use parquet::basic::Encoding;
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::errors::Result as ParquetResult;
use workload::Timestamp;

use crate::Archive;
use crate::file::OpenFile;
use crate::layout::{StoredFile, Table};
use crate::store::Object;
use crate::text_runs;

pub use crate::source::prometheus::fuzzing::import_answers;

/// Bytes after the footer of a Parquet file: its length, and the mark of the format.
const END: usize = 8;

/// Reads every row of a stored file, and returns how many could be read.
pub fn read_file(archive: &Archive, path: &str) -> usize {
    let folder = archive.store.folder().expect("a local archive");
    let bytes = fs::read(folder.join(path)).expect("a file");
    let object = Object { path: path.to_owned(), bytes: bytes.len() as u64, modified: Timestamp(0) };
    let mut stored = StoredFile::parse(&object).expect("the path of a stored file");
    stored.name.crc = crc32fast::hash(footer(&bytes));
    let Ok(mut file) = OpenFile::open(&archive.store, &stored) else { return 0 };
    for group in &mut file.info.row_groups {
        // The file was opened, so they lie inside it.
        group.crc = crc32fast::hash(&bytes[group.offset as usize..][..group.length as usize]);
    }
    let groups = 0..file.info.row_groups.len();
    let rows = groups.map(|group| match stored.partition.table {
        Table::Cpu => file.read_threads(&archive.store, group).map_or(0, |rows| rows.sorted().len()),
        Table::Cgroup => file.read_jobs(&archive.store, group).map_or(0, |rows| rows.sorted().rows.len()),
    });
    rows.sum()
}

/// The footer as the file's name covers it.
fn footer(bytes: &[u8]) -> &[u8] {
    let Some([a, b, c, d, _, _, _, _]) = bytes.last_chunk::<END>() else { return bytes };
    let length = u32::from_le_bytes([*a, *b, *c, *d]) as usize + END;
    &bytes[bytes.len().saturating_sub(length)..]
}

/// Reads a column of text: perhaps a dictionary with a number of words, and a page. Returns for how many rows there is
/// text, or that there is none.
pub fn read_texts(dictionary: Option<(&[u8], u32)>, page: &[u8], n_rows: usize) -> Option<usize> {
    let encoding = if dictionary.is_some() { Encoding::RLE_DICTIONARY } else { Encoding::PLAIN };
    let words = dictionary.map(|(words, n_words)| Page::DictionaryPage {
        buf: Bytes::copy_from_slice(words),
        num_values: n_words,
        encoding: Encoding::PLAIN,
        is_sorted: false,
    });
    let data = Page::DataPage {
        buf: Bytes::copy_from_slice(page),
        num_values: n_rows as u32,
        encoding,
        def_level_encoding: Encoding::RLE,
        rep_level_encoding: Encoding::RLE,
        statistics: None,
    };
    let mut pages = Pages(words.into_iter().chain([data]).collect());
    let texts = text_runs::read_texts(&mut pages, n_rows).ok()?;
    Some(texts.runs.iter().map(|(n_rows, _)| n_rows).sum())
}

/// Pages that are there already.
struct Pages(VecDeque<Page>);

impl Iterator for Pages {
    type Item = ParquetResult<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.pop_front().map(Ok)
    }
}

impl PageReader for Pages {
    fn get_next_page(&mut self) -> ParquetResult<Option<Page>> {
        Ok(self.0.pop_front())
    }

    fn peek_next_page(&mut self) -> ParquetResult<Option<PageMetadata>> {
        Ok(None)
    }

    fn skip_next_page(&mut self) -> ParquetResult<()> {
        self.0.pop_front();
        Ok(())
    }
}
