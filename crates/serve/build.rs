//! Embeds the web UI, if it has been built: lists the files of `ui/dist` with their contents.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

fn main() -> io::Result<()> {
    // Not `env!`: a target directory may have been moved since this program was compiled.
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR")
        .ok_or_else(|| io::Error::other("CARGO_MANIFEST_DIR is not set"))?;
    let folder = Path::new(&manifest).join("../../ui/dist");
    println!("cargo:rerun-if-changed={}", folder.display());
    let mut files = Vec::new();
    find(&folder, &mut files)?;
    files.sort();
    let mut code = String::from("static FILES: &[(&str, &[u8])] = &[\n");
    for path in &files {
        let name = path.strip_prefix(&folder).map_err(io::Error::other)?;
        code += &format!("    ({:?}, include_bytes!({:?})),\n", name.display().to_string(), path);
    }
    code += "];\n";
    let out = std::env::var_os("OUT_DIR").ok_or_else(|| io::Error::other("OUT_DIR is not set"))?;
    fs::write(Path::new(&out).join("ui_files.rs"), code)
}

/// The files below a folder; none if it does not exist.
fn find(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry?.path();
        let is_hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        if path.is_dir() {
            find(&path, files)?;
        } else if !is_hidden {
            files.push(path);
        }
    }
    Ok(())
}
