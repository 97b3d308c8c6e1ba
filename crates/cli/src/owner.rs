//! Root leaves files that the user of the service cannot read or replace. Commands that write to a directory of another user
//! are therefore refused when root runs them.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::bail;

/// Refuses to write as root to a directory of another user, or to an archive at an address in it.
pub fn refuse_root(folder: impl AsRef<Path>) -> anyhow::Result<()> {
    let folder = folder.as_ref();
    // What does not exist is created, and belongs to root then. A bucket has no owner.
    let Ok(metadata) = std::fs::metadata(folder) else { return Ok(()) };
    if !rustix::process::geteuid().is_root() || metadata.uid() == 0 {
        return Ok(());
    }
    let user = name(metadata.uid());
    bail!(
        "{folder} belongs to {user}, who could not read what root writes there; run it as that user: sudo -u {user} tracewise …",
        folder = folder.display()
    )
}

/// The name of a user, or its number as sudo accepts it.
fn name(uid: u32) -> String {
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let of = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next()?.to_owned();
        (fields.nth(1)?.parse() == Ok(uid)).then_some(name)
    };
    users.lines().find_map(of).unwrap_or_else(|| format!("'#{uid}'"))
}
