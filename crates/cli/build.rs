//! Sets TRACEWISE_VERSION, what `--version` prints: the version and, in release builds, the commit. Debug builds leave the
//! commit out, unless TRACEWISE_COMMIT is set, so that a commit is no reason to compile them again.

use std::path::Path;
use std::process::Command;

/// The output of a program; nothing if it fails.
fn output_of(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=TRACEWISE_COMMIT");
    let mut version = env!("CARGO_PKG_VERSION").to_owned();
    let is_release = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    if is_release || std::env::var_os("TRACEWISE_COMMIT").is_some() {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/commit");
        println!("cargo::rerun-if-changed={}", script.display());
        // Both change with every commit and checkout. Without git they do not exist, and are not named: cargo would run this
        // script in every build.
        for name in ["HEAD", "logs/HEAD"] {
            let path = output_of(Command::new("git").args(["rev-parse", "--git-path", name]));
            if let Some(path) = path.filter(|path| Path::new(path).exists()) {
                println!("cargo::rerun-if-changed={path}");
            }
        }
        if let Some(commit) = output_of(&mut Command::new(script)) {
            version += &format!(" ({commit})");
        }
    }
    println!("cargo::rustc-env=TRACEWISE_VERSION={version}");
}
