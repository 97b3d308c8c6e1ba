//! Records of a single execution by Pegasus kickstart (`<task>.out.NNN`) and PegasusLite (`<task>.err.NNN`).

use crate::workflow::{Span, TaskAttempt};
use serde::Deserialize;

use super::values;

#[derive(Debug, Deserialize)]
struct Record {
    hostname: Option<String>,
    mainjob: Option<MainJob>,
}

#[derive(Debug, Deserialize)]
struct MainJob {
    usage: Option<Usage>,
    status: Option<Status>,
}

#[derive(Debug, Deserialize)]
struct Usage {
    utime: f64,
    stime: f64,
}

#[derive(Debug, Deserialize)]
struct Status {
    regular_exitcode: Option<i32>,
}

/// The part of a record that is used.
#[derive(Debug, Default, PartialEq)]
struct Invocation {
    host: Option<String>,
    cpu_seconds: Option<f64>,
    exit_code: Option<i32>,
}

/// The first line of a record in YAML.
const YAML_START: &str = "- invocation:";

/// Adds the host, CPU time and exit code from kickstart records: YAML since Pegasus 5, XML before. Clustered tasks have
/// several records.
pub fn add_records(text: &str, attempt: &mut TaskAttempt) -> Result<(), String> {
    let invocations = if text.contains(YAML_START) { from_yaml(text)? } else { from_xml(text)? };
    let cpu: Vec<f64> = invocations.iter().filter_map(|one| one.cpu_seconds).collect();
    if !cpu.is_empty() {
        attempt.cpu_seconds = Some(cpu.iter().sum());
    }
    if let Some(host) = invocations.iter().find_map(|one| one.host.clone()) {
        attempt.host = Some(host);
    }
    if let Some(bad) = invocations.iter().filter_map(|one| one.exit_code).find(|code| *code != 0) {
        attempt.exit_code = Some(bad);
    }
    Ok(())
}

/// Parses records with output of PegasusLite and the task between them. A record ends at the first line that is not
/// indented.
fn from_yaml(text: &str) -> Result<Vec<Invocation>, String> {
    let mut yaml = String::new();
    let mut is_inside = false;
    for line in text.lines() {
        is_inside = line.starts_with(YAML_START) || is_inside && (line.is_empty() || line.starts_with(' '));
        if is_inside {
            yaml.extend([line, "\n"]);
        }
    }
    let records: Vec<Record> = serde_saphyr::from_str(&yaml)
        .map_err(|error| error.to_string().lines().next().unwrap_or_default().to_owned())?;
    let invocation = |record: Record| {
        let (usage, status) = record.mainjob.map_or((None, None), |main| (main.usage, main.status));
        Invocation {
            host: record.hostname,
            cpu_seconds: usage.and_then(|usage| values::cpu_time(usage.utime + usage.stime)),
            exit_code: status.and_then(|status| status.regular_exitcode),
        }
    };
    Ok(records.into_iter().map(invocation).collect())
}

/// Parses XML documents with output of the task between them.
fn from_xml(text: &str) -> Result<Vec<Invocation>, String> {
    const END: &str = "</invocation>";
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.find("<invocation") {
        let end = rest[start..].find(END).ok_or("the XML is cut off")? + start + END.len();
        let document = roxmltree::Document::parse(&rest[start..end]).map_err(|error| error.to_string())?;
        let root = document.root_element();
        let main = root.children().find(|node| node.tag_name().name() == "mainjob");
        let below = |name: &str| main?.descendants().find(|node| node.tag_name().name() == name);
        let usage = below("usage");
        let seconds = |name: &str| usage?.attribute(name)?.parse::<f64>().ok();
        found.push(Invocation {
            host: root.attribute("hostname").map(str::to_owned),
            cpu_seconds: seconds("utime")
                .zip(seconds("stime"))
                .and_then(|(user, system)| values::cpu_time(user + system)),
            exit_code: below("regular").and_then(|node| node.attribute("exitcode")?.parse().ok()),
        });
        rest = &rest[end..];
    }
    Ok(found)
}

/// Adds the transfers of PegasusLite before and after the task of the user.
pub fn add_transfers(text: &str, attempt: &mut TaskAttempt) {
    let Some(execution) = attempt.execution else { return };
    let (before, after) = text.split_once("Executing the user task").unwrap_or((text, ""));
    let (stage_in, stage_out) = (transferred(before), transferred(after));
    if let Some((bytes, seconds)) = stage_in {
        let end = (execution.start() + seconds).min(execution.end());
        attempt.stage_in = Span::new(execution.start(), end).ok();
        attempt.stage_in_bytes = Some(bytes);
    }
    if let Some((bytes, seconds)) = stage_out {
        let start = (execution.end() - seconds).max(execution.start());
        attempt.stage_out = Span::new(start, execution.end()).ok();
        attempt.stage_out_bytes = Some(bytes);
    }
}

/// Bytes and seconds of `Stats: Total 2 transfers, 1.7 KB transferred in 2 seconds.`
fn transferred(text: &str) -> Option<(f64, f64)> {
    let mut total = None;
    for line in text.lines().filter_map(|line| line.split_once("Stats: Total ")).map(|(_, rest)| rest) {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let found = words.iter().position(|word| word.starts_with("transfers")).and_then(|at| {
            let amount: f64 = words.get(at + 1)?.parse().ok()?;
            let factor = match *words.get(at + 2)? {
                "B" => 1.0,
                "KB" => 1024.0,
                "MB" => 1024.0 * 1024.0,
                "GB" => 1024.0 * 1024.0 * 1024.0,
                "TB" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
                _ => return None,
            };
            let seconds: f64 = words.get(at + 5)?.parse().ok()?;
            values::bytes(amount * factor).zip(values::duration(seconds))
        });
        if let Some((bytes, seconds)) = found {
            let (all, long) = total.unwrap_or((0.0, 0.0));
            total = Some((all + bytes, long + seconds));
        }
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_as_xml_and_as_yaml() {
        let xml = |host: &str, user: f64, code: i32| {
            format!(
                "what the task printed\n<?xml version=\"1.0\" encoding=\"ISO-8859-1\"?>\n\
                <invocation xmlns=\"http://pegasus.isi.edu/schema/invocation\" hostname=\"{host}\" duration=\"3.1\">\n\
                <mainjob duration=\"3.0\"><usage utime=\"{user}\" stime=\"0.5\" nswap=\"0\"/>\n\
                <status raw=\"0\"><regular exitcode=\"{code}\"/></status></mainjob>\n\
                <usage utime=\"9\" stime=\"9\"/></invocation>\n"
            )
        };
        let yaml = "- invocation: True\n  hostname: node7\n  mainjob:\n    usage:\n      utime: 2.0\n      stime: 0.5\n    \
            status:\n      regular_exitcode: 3\n";
        for (text, cpu, code) in [
            (xml("node7", 2.0, 3), 2.5, 3),
            (xml("node7", 2.0, 3) + &xml("node8", 1.0, 4), 4.0, 3),
            (yaml.into(), 2.5, 3),
            (format!("{yaml}---------------pegasus-multipart\n- timestamp: 1\n  bytes: 7\n"), 2.5, 3),
            (
                format!(
                    "{yaml}[cluster-task id=2, name=\"b\", status=0]\n{yaml}[cluster-summary stat=\"ok\"]\n"
                ),
                5.0,
                3,
            ),
        ] {
            let mut attempt = TaskAttempt::new("a", crate::workflow::TaskRole::Compute, "a", 1);
            add_records(&text, &mut attempt).unwrap();
            assert_eq!((attempt.host.as_deref(), attempt.cpu_seconds), (Some("node7"), Some(cpu)));
            assert_eq!(attempt.exit_code, Some(code));
        }
        let whole = xml("node7", 2.0, 0);
        let mut attempt = TaskAttempt::new("a", crate::workflow::TaskRole::Compute, "a", 1);
        assert!(add_records(&whole[..whole.len() - 30], &mut attempt).unwrap_err().contains("cut off"));
        assert_eq!(add_records("nothing of kickstart", &mut attempt), Ok(()));
    }

    #[test]
    fn transfers_before_the_task_are_stage_in_and_those_after_it_stage_out() {
        let text = "x INFO:  Stats: Total 2 transfers, 1.5 MB transferred in 4 seconds. Rate: 1 B/s\n\
            ###[Pegasus Lite] Executing the user task ###\n\
            x INFO:  Stats: Total 1 transfers, 2.0 KB transferred in 1 seconds. Rate: 2 KB/s\n";
        let mut attempt = TaskAttempt::new("a", crate::workflow::TaskRole::Compute, "a", 1);
        attempt.execution = Span::new(100.0, 130.0).ok();
        add_transfers(text, &mut attempt);
        assert_eq!(attempt.stage_in_bytes, Some(1.5 * 1024.0 * 1024.0));
        assert_eq!(attempt.stage_in.map(Span::seconds), Some(4.0));
        assert_eq!(attempt.stage_out, Span::new(129.0, 130.0).ok());
    }
}
