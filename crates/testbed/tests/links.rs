//! Holds the documentation together: every relative link leads to a file and, where it names one, to a heading.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use testbed::workspace;

/// Documents below a folder, without those of other projects.
fn documents(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() && !path.is_symlink() && name != "node_modules" && name != "target" {
            documents(&path, found);
        } else if name.ends_with(".md") {
            found.push(path);
        }
    }
}

fn all_documents() -> Vec<PathBuf> {
    let root = workspace();
    let mut found: Vec<PathBuf> = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"]
        .map(|name| root.join(name))
        .to_vec();
    for folder in ["docs", "deploy", "examples"] {
        documents(&root.join(folder), &mut found);
    }
    found
}

/// The lines of a document that are text, not code.
fn prose(text: &str) -> Vec<String> {
    let mut is_code = false;
    let mut lines = Vec::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if !is_code {
            // Spans of code have no links.
            let outside = line.split('`').enumerate().filter(|(at, _)| at % 2 == 0).map(|(_, part)| part);
            lines.push(outside.collect::<Vec<_>>().join("`"));
        }
    }
    lines
}

/// The targets of `[text](target)` and of images.
fn links(text: &str) -> Vec<String> {
    let text = prose(text).join("\n");
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split_once(')').map(|(target, _)| target));
    targets.map(|target| target.split_whitespace().next().unwrap_or_default().to_owned()).collect()
}

/// The anchors of headings, as GitHub and mdBook make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut is_code = false;
    let mut n_seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut found = BTreeSet::new();
    for line in text.lines() {
        if line.starts_with("```") {
            is_code = !is_code;
        }
        if is_code || !line.starts_with('#') {
            continue;
        }
        let heading = line.trim_start_matches('#').trim().to_lowercase();
        let kept = heading.chars().filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter));
        let anchor: String = kept.map(|letter| if letter == ' ' { '-' } else { letter }).collect();
        let n_before = n_seen.entry(anchor.clone()).or_default();
        found.insert(if *n_before == 0 { anchor } else { format!("{anchor}-{n_before}") });
        *n_before += 1;
    }
    found
}

/// A path without `..`.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(normal.pop()),
            Component::CurDir => {}
            part => normal.push(part),
        }
    }
    normal
}

#[test]
fn every_link_leads_somewhere() {
    let mut broken = Vec::new();
    for document in all_documents() {
        let text = std::fs::read_to_string(&document).unwrap();
        for link in links(&text) {
            if ["http:", "https:", "mailto:"].iter().any(|scheme| link.starts_with(scheme)) {
                continue;
            }
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = if file.is_empty() {
                document.clone()
            } else {
                normal(&document.with_file_name("").join(file))
            };
            let has_anchor = anchor.is_empty()
                || std::fs::read_to_string(&target).is_ok_and(|text| anchors(&text).contains(anchor));
            if !target.exists() || !has_anchor {
                let document = document.strip_prefix(workspace()).unwrap_or(&document);
                broken.push(format!("{}: {link}", document.display()));
            }
        }
    }
    assert!(broken.is_empty(), "broken links:\n{}", broken.join("\n"));
}

#[test]
fn every_page_is_in_the_table_of_contents() {
    let docs = workspace().join("docs");
    let contents = links(&std::fs::read_to_string(docs.join("SUMMARY.md")).unwrap());
    let mut pages = Vec::new();
    documents(&docs, &mut pages);
    let missing: Vec<String> = pages
        .iter()
        .map(|page| page.strip_prefix(&docs).unwrap().display().to_string())
        // scripts/docs adds decision records.
        .filter(|page| page != "SUMMARY.md" && !page.starts_with("adr/") && !contents.contains(page))
        .collect();
    assert!(missing.is_empty(), "docs/SUMMARY.md does not name {}", missing.join(", "));
}

#[test]
fn anchors_are_those_that_sites_make() {
    let text = "# A page\n## `learn tonight`: when?\n```sh\n# no heading\n```\n## Limits\n### Limits\n";
    let expected = ["a-page", "learn-tonight-when", "limits", "limits-1"].map(str::to_owned);
    assert_eq!(anchors(text), expected.into());
    let text = "[one](a.md#b) `[none](x)` ![two](c.png)\n```\n[none](y)\n```\n";
    assert_eq!(links(text), ["a.md#b", "c.png"]);
}
