//! The members of a tar archive, with bounds on everything that an archive can contain.
//!
//! The `tar` crate reads long names into memory whatever their size, so headers for long names are read here.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use files::{LimitExceeded, Meter};
use tar::{Archive, Entry, EntryType, PaxExtensions};

/// Bytes of a header for the name of a member. Paths have at most 4,096.
const MAX_NAME_BYTES: u64 = 64 << 10;

/// Gives every plain file of an archive to a function. The meter belongs to the reader of the archive.
pub fn each<R: Read>(
    reader: R,
    meter: &mut Meter,
    mut take: impl FnMut(&Path, &mut Entry<'_, R>, &mut Meter) -> Result<(), LimitExceeded>,
) -> Result<(), String> {
    let damaged = |error: io::Error| format!("the archive is damaged: {error}");
    let mut archive = Archive::new(reader);
    let mut long_name: Option<PathBuf> = None;
    for member in archive.entries().map_err(damaged)?.raw(true) {
        let mut member = member.map_err(damaged)?;
        meter.next_record();
        match member.header().entry_type() {
            EntryType::GNULongName => {
                let name = header_text(&mut member)?;
                let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
                long_name = Some(String::from_utf8_lossy(name).into_owned().into());
            }
            EntryType::XHeader => {
                let header = header_text(&mut member)?;
                let path =
                    PaxExtensions::new(&header).filter_map(Result::ok).find(|one| one.key() == Ok("path"));
                let path = path.map(|path| String::from_utf8_lossy(path.value_bytes()).into_owned().into());
                long_name = path.or(long_name);
            }
            EntryType::GNULongLink | EntryType::XGlobalHeader => {
                header_text(&mut member)?;
            }
            EntryType::Regular | EntryType::Continuous => {
                let own = member.path().map_err(damaged)?.into_owned();
                let name = long_name.take().unwrap_or(own);
                take(&name, &mut member, meter).map_err(|limit| format!("{}: {limit}", name.display()))?;
            }
            _ => long_name = None,
        }
        skip(&mut member, meter).map_err(damaged)?;
    }
    Ok(())
}

/// The content of a header that comes before a member.
fn header_text<R: Read>(member: &mut Entry<'_, R>) -> Result<Vec<u8>, String> {
    if member.size() > MAX_NAME_BYTES {
        return Err(format!(
            "the archive has a name of {} bytes; at most {MAX_NAME_BYTES} are read",
            member.size()
        ));
    }
    let mut bytes = Vec::new();
    member.read_to_end(&mut bytes).map_err(|error| format!("the archive is damaged: {error}"))?;
    Ok(bytes)
}

/// Reads what is left of a member, which may be longer than a record.
fn skip<R: Read>(member: &mut Entry<'_, R>, meter: &Meter) -> io::Result<()> {
    let mut buffer = vec![0; 1 << 16];
    loop {
        meter.next_record();
        if member.read(&mut buffer)? == 0 {
            meter.next_record();
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use files::{Limited, Limits};

    fn members(archive: &[u8]) -> Result<Vec<(PathBuf, u64)>, String> {
        let limited = Limited::new(archive, &Limits { record_bytes: 200_000, ..Limits::default() });
        let mut meter = limited.meter();
        let mut found = Vec::new();
        each(limited, &mut meter, |path, member, _| {
            found.push((path.to_owned(), member.size()));
            Ok(())
        })?;
        Ok(found)
    }

    fn header(name: &str, kind: EntryType, size: u64) -> tar::Header {
        let mut header = tar::Header::new_gnu();
        header.set_path(name).unwrap();
        header.set_entry_type(kind);
        header.set_size(size);
        header.set_cksum();
        header
    }

    #[test]
    fn short_and_long_names_are_read() {
        let mut builder = tar::Builder::new(Vec::new());
        let long = format!("{}/run.csv", "x".repeat(200));
        for name in ["normal/run.csv", &long] {
            let mut header = header("x", EntryType::Regular, 500_000);
            builder.append_data(&mut header, name, &vec![0; 500_000][..]).unwrap();
        }
        let pax = "25 path=normal/named.csv\n";
        builder.append(&header("pax", EntryType::XHeader, pax.len() as u64), pax.as_bytes()).unwrap();
        builder.append(&header("y", EntryType::Regular, 3), &b"abc"[..]).unwrap();
        let found = members(&builder.into_inner().unwrap()).unwrap();
        let names: Vec<&str> = found.iter().map(|(path, _)| path.to_str().unwrap()).collect();
        assert_eq!(names, ["normal/run.csv", &long, "normal/named.csv"]);
    }

    #[test]
    fn an_endless_name_is_refused_before_it_is_read() {
        for kind in
            [EntryType::GNULongName, EntryType::GNULongLink, EntryType::XHeader, EntryType::XGlobalHeader]
        {
            let header = header("x", kind, 6 << 30);
            let error = members(header.as_bytes()).unwrap_err();
            assert!(error.contains("a name of 6442450944 bytes"), "{error}");
        }
    }
}
