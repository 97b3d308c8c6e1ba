//! What a page of the documentation asks its readers to do: commands to run, files to write.
//!
//! Comments before a block say what is special about it; readers do not see them:
//!
//! | comment | the block |
//! |---|---|
//! | `<!-- not run: REASON -->` | is not run |
//! | `<!-- file: NAME -->` | is written to a file |
//! | `<!-- needs: PROGRAM -->` | is run if `scripts/components` has installed the program |
//! | `<!-- until Ctrl-C -->` | is a command that runs until the end of the page or until `<!-- Ctrl-C -->` |
//! | `<!-- on n001 and n002 -->` | is run on two nodes |
//! | `<!-- fails -->` | ends with an error, as the text says |
//! | `<!-- may fail: REASON -->` | ends with an error on some machines |
//! | `<!-- columns: FILE -->` | is a table that has to name the columns of a Parquet file |
//! | `<!-- given: WHAT -->` | is about something that a reader has and a test does not: [`super::given`] |

use std::path::Path;

/// A step of a page, and the line that it begins at.
#[derive(Debug)]
pub struct Step {
    pub line: usize,
    pub action: Action,
}

#[derive(Debug)]
pub enum Action {
    /// Shell commands.
    Run { script: String, ends: Ends, nodes: Vec<&'static str>, needs: Option<String> },
    /// A program in Python.
    Python { program: String },
    /// A file for later commands.
    Write { name: String, text: String },
    /// Settings that have to be valid.
    CheckSettings { text: String },
    /// A table whose first column has to name the columns of a Parquet file. A name that ends with `*` is a beginning.
    CheckColumns { file: String, names: Vec<String> },
    /// Ends what was started last.
    Stop,
    /// Makes what a reader would have.
    Given { what: String },
    /// Commands that cannot be run here.
    Skip { script: String, reason: String },
}

/// How the commands of a block end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Ends {
    #[default]
    WithSuccess,
    WithError,
    WithEither,
    /// They run in the background.
    WithCtrlC,
}

#[derive(Debug)]
pub struct Page {
    pub steps: Vec<Step>,
}

/// What the comments before a block say about it.
#[derive(Debug, Default)]
struct Marks {
    not_run: Option<String>,
    file: Option<String>,
    needs: Option<String>,
    ends: Ends,
    nodes: Vec<&'static str>,
}

impl Page {
    /// Reads a page. A comment or a block that could be misunderstood is an error, so that none is left out in silence.
    pub fn read(path: &Path, name: &str) -> Result<Self, String> {
        let text = std::fs::read_to_string(path).map_err(|error| format!("{name}: {error}"))?;
        let mut steps = Vec::new();
        let mut marks = Marks::default();
        let mut lines = text.lines().enumerate().peekable();
        while let Some((at, line)) = lines.next() {
            let line_number = at + 1;
            let wrong = |what: &str| format!("{name}:{line_number}: {what}");
            if let Some(comment) = line.strip_prefix("<!-- ").and_then(|line| line.strip_suffix(" -->")) {
                if let Some(file) = comment.strip_prefix("columns: ") {
                    let mut names = Vec::new();
                    while let Some((_, row)) = lines.next_if(|(_, line)| line.starts_with('|')) {
                        let cell = row.trim_start_matches('|').split('|').next().unwrap_or_default();
                        names.extend(cell.split('`').skip(1).step_by(2).map(str::to_owned));
                    }
                    let action = Action::CheckColumns { file: file.to_owned(), names };
                    steps.push(Step { line: line_number, action });
                } else if let Some(action) = marks.take(comment).map_err(|what| wrong(&what))? {
                    steps.push(Step { line: line_number, action });
                }
            } else if let Some(language) = line.strip_prefix("```") {
                let mut block = String::new();
                loop {
                    match lines.next() {
                        Some((_, "```")) => break,
                        Some((_, line)) => block += &format!("{line}\n"),
                        None => return Err(wrong("the block has no end")),
                    }
                }
                if let Some(action) =
                    std::mem::take(&mut marks).action(language, block).map_err(|what| wrong(&what))?
                {
                    steps.push(Step { line: line_number, action });
                }
            } else if line.trim_start().starts_with("```") {
                return Err(wrong("an indented block is not run; begin it at the margin"));
            } else if !line.trim().is_empty() && !marks.is_empty() {
                return Err(wrong("a comment about a block has to be right before it"));
            }
        }
        Ok(Self { steps })
    }
}

impl Marks {
    fn is_empty(&self) -> bool {
        self.not_run.is_none()
            && self.file.is_none()
            && self.needs.is_none()
            && self.nodes.is_empty()
            && self.ends == Ends::WithSuccess
    }

    /// Notes a comment. Some are steps by themselves.
    fn take(&mut self, comment: &str) -> Result<Option<Action>, String> {
        let (key, value) = comment.split_once(':').map_or((comment, ""), |(key, value)| (key, value.trim()));
        match key {
            "not run" | "may fail" if value.len() < 10 => return Err("say why".into()),
            "not run" => self.not_run = Some(value.into()),
            "file" => self.file = Some(value.into()),
            "needs" => self.needs = Some(value.into()),
            "until Ctrl-C" => self.ends = Ends::WithCtrlC,
            "fails" => self.ends = Ends::WithError,
            "may fail" => self.ends = Ends::WithEither,
            "on n001 and n002" => self.nodes = vec!["n001", "n002"],
            "Ctrl-C" => return Ok(Some(Action::Stop)),
            "given" => return Ok(Some(Action::Given { what: value.into() })),
            "generated" => {}
            _ => return Err(format!("the comment {comment:?} has no meaning")),
        }
        Ok(None)
    }

    fn action(self, language: &str, text: String) -> Result<Option<Action>, String> {
        if let Some(reason) = self.not_run {
            return Ok(Some(Action::Skip { script: text, reason }));
        }
        if let Some(name) = self.file {
            return Ok(Some(Action::Write { name, text }));
        }
        if language == "sh"
            && let Some(word) = changes_the_machine(&text)
        {
            return Err(format!(
                "{word:?} changes the machine of whoever runs the tests: mark the block as not run"
            ));
        }
        Ok(Some(match language {
            "sh" => Action::Run { script: text, ends: self.ends, nodes: self.nodes, needs: self.needs },
            "python" => Action::Python { program: text },
            "toml" => Action::CheckSettings { text },
            "json" => {
                serde_json::from_str::<serde_json::Value>(&text)
                    .map_err(|error| format!("it is not JSON: {error}"))?;
                return Ok(None);
            }
            "text" | "yaml" | "csv" | "promql" | "rust" | "ini" => return Ok(None),
            other => {
                return Err(format!(
                    "a block of {other:?} is not run; use sh, python, toml, json, yaml, csv, ini or text"
                ));
            }
        }))
    }
}

/// What a script has that changes more than its own directory. A test may run as root.
fn changes_the_machine(script: &str) -> Option<&'static str> {
    const PROGRAMS: [&str; 14] = [
        "sudo",
        "systemctl",
        "systemd-run",
        "systemd-sysusers",
        "systemd-tmpfiles",
        "apt",
        "apt-get",
        "dnf",
        "yum",
        "dpkg",
        "rpm",
        "install",
        "mount",
        "editor",
    ];
    const PLACES: [&str; 5] = ["/usr/", "/etc/", "/var/", "/opt/", "~/"];
    // These become directories of the test.
    let own = script.replace("/etc/tracewise", "").replace("/var/lib/tracewise", "");
    let runs = |program: &str| {
        own.split(['\n', ';', '|', '&', '(']).any(|part| part.split_whitespace().next() == Some(program))
    };
    let place = PLACES.iter().find(|place| own.contains(**place));
    place.or_else(|| PROGRAMS.iter().find(|program| runs(program))).copied()
}

/// The number of commands of a script: its lines, without comments and continuations.
pub fn n_commands(script: &str) -> usize {
    let mut n_commands = 0;
    let mut is_continued = false;
    for line in script.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        n_commands += usize::from(!is_continued);
        is_continued = line.ends_with('\\');
    }
    n_commands
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Page, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("page.md");
        std::fs::write(&path, text).unwrap();
        Page::read(&path, "page")
    }

    #[test]
    fn a_block_is_not_left_out_without_a_reason() {
        let page =
            read("<!-- not run: needs systemd -->\n```sh\na \\\n  b\n# c\nd\n```\n```sh\ne\n```\n").unwrap();
        let skipped = matches!(&page.steps[0].action, Action::Skip { script, .. } if n_commands(script) == 2);
        assert!(skipped && matches!(page.steps[1].action, Action::Run { .. }));
        for (bad, complaint) in [
            ("<!-- not run -->\n```sh\na\n```\n", "say why"),
            ("<!-- not run: no -->\n```sh\na\n```\n", "say why"),
            ("<!-- notrun: needs systemd -->\n```sh\na\n```\n", "has no meaning"),
            ("<!-- fails -->\ntext\n```sh\na\n```\n", "right before"),
            ("- list\n  ```sh\n  a\n  ```\n", "indented"),
            ("```bash\na\n```\n", "is not run"),
            ("```sh\na\n", "no end"),
            ("```sh\ntrue && systemctl stop a\n```\n", "changes the machine"),
            ("```sh\ncp a /etc/grafana\n```\n", "changes the machine"),
        ] {
            let error = read(bad).unwrap_err();
            assert!(error.contains(complaint), "{bad:?}: {error}");
        }
    }
}
