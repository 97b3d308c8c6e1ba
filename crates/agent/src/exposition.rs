//! Metrics as text: the format of Prometheus, and OpenMetrics.

use std::fmt::Write;

use workload::Timestamp;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Counter,
    Gauge,
    /// Labels that are worth a one.
    Info,
}

#[derive(Debug, Clone, Copy)]
pub struct Family<'a> {
    /// With the suffix of its kind: `_total`, `_info`.
    pub name: &'a str,
    pub kind: Kind,
    pub help: &'a str,
}

/// Where metrics go: a page, or a server that they are pushed to.
pub trait Sink {
    /// The samples that follow are of this family.
    fn family(&mut self, family: Family<'_>);
    fn sample(&mut self, labels: &[(&str, &str)], value: f64, time: Option<Timestamp>);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Text,
    OpenMetrics,
}

impl Format {
    /// The better of the two that a client accepts; without a word, text.
    pub fn accepted(accept: &str) -> Self {
        let quality = |kind: &str| {
            accept.split(',').find(|part| part.trim().starts_with(kind)).map_or(0.0, |part| {
                let q =
                    part.split(';').find_map(|field| field.trim().strip_prefix("q=")?.trim().parse().ok());
                q.unwrap_or(1.0f64)
            })
        };
        let openmetrics = quality("application/openmetrics-text");
        if openmetrics > 0.0 && openmetrics >= quality("text/plain") { Self::OpenMetrics } else { Self::Text }
    }

    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// A page of metrics.
#[derive(Debug)]
pub struct Page {
    text: String,
    format: Format,
    name: String,
    /// Written when the family has its first sample; a family without any is left out.
    heading: String,
}

impl Page {
    pub fn new(format: Format, capacity: usize) -> Self {
        Self { text: String::with_capacity(capacity), format, name: String::new(), heading: String::new() }
    }

    pub fn finish(mut self) -> String {
        if self.format == Format::OpenMetrics {
            self.text.push_str("# EOF\n");
        }
        self.text
    }
}

impl Sink for Page {
    fn family(&mut self, family: Family<'_>) {
        self.name.clear();
        self.name.push_str(family.name);
        let bare = match (self.format, family.kind) {
            (Format::OpenMetrics, Kind::Counter) => family.name.trim_end_matches("_total"),
            (Format::OpenMetrics, Kind::Info) => family.name.trim_end_matches("_info"),
            _ => family.name,
        };
        let kind = match (self.format, family.kind) {
            (_, Kind::Counter) => "counter",
            (Format::OpenMetrics, Kind::Info) => "info",
            (_, Kind::Gauge | Kind::Info) => "gauge",
        };
        self.heading.clear();
        // Writing to a string cannot fail.
        let _ = write!(self.heading, "# HELP {bare} {}\n# TYPE {bare} {kind}\n", family.help);
    }

    fn sample(&mut self, labels: &[(&str, &str)], value: f64, time: Option<Timestamp>) {
        self.text.push_str(&self.heading);
        self.heading.clear();
        self.text.push_str(&self.name);
        let mut before = '{';
        for (name, value) in labels {
            self.text.push(before);
            self.text.push_str(name);
            self.text.push_str("=\"");
            push_escaped(&mut self.text, value);
            self.text.push('"');
            before = ',';
        }
        if before == ',' {
            self.text.push('}');
        }
        self.text.push(' ');
        push_value(&mut self.text, value);
        if let Some(time) = time {
            self.text.push(' ');
            let _ = match self.format {
                Format::Text => write!(self.text, "{}", time.0),
                Format::OpenMetrics => write!(self.text, "{}", time.as_epoch_seconds()),
            };
        }
        self.text.push('\n');
    }
}

fn push_escaped(text: &mut String, value: &str) {
    if !value.contains(['\\', '"', '\n']) {
        return text.push_str(value);
    }
    for letter in value.chars() {
        match letter {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            letter => text.push(letter),
        }
    }
}

fn push_value(text: &mut String, value: f64) {
    let _ = if value.is_nan() {
        write!(text, "NaN")
    } else if value.is_infinite() {
        write!(text, "{}Inf", if value > 0.0 { '+' } else { '-' })
    } else if value.fract() == 0.0 && value.abs() < 1e15 {
        write!(text, "{}", value as i64)
    } else if value.abs() < 1e15 {
        write!(text, "{value}")
    } else {
        write!(text, "{value:e}")
    };
}

/// Puts a number into a label's text without a new string.
pub fn set_number(text: &mut String, number: u32) {
    text.clear();
    let _ = write!(text, "{number}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(format: Format) -> String {
        let mut page = Page::new(format, 0);
        page.family(Family { name: "a_seconds_total", kind: Kind::Counter, help: "Help." });
        page.sample(&[("cpu", "0"), ("mode", "user")], 1.25, Some(Timestamp(1_500)));
        page.family(Family { name: "none", kind: Kind::Gauge, help: "Nothing." });
        page.family(Family { name: "b_info", kind: Kind::Info, help: "Help." });
        page.sample(&[("name", "x\"}\n\\")], 1.0, None);
        page.finish()
    }

    #[test]
    fn both_formats_are_written_as_they_should_be() {
        assert_eq!(
            page(Format::Text),
            "# HELP a_seconds_total Help.\n# TYPE a_seconds_total counter\n\
             a_seconds_total{cpu=\"0\",mode=\"user\"} 1.25 1500\n\
             # HELP b_info Help.\n# TYPE b_info gauge\nb_info{name=\"x\\\"}\\n\\\\\"} 1\n"
        );
        assert_eq!(
            page(Format::OpenMetrics),
            "# HELP a_seconds Help.\n# TYPE a_seconds counter\n\
             a_seconds_total{cpu=\"0\",mode=\"user\"} 1.25 1.500\n\
             # HELP b Help.\n# TYPE b info\nb_info{name=\"x\\\"}\\n\\\\\"} 1\n# EOF\n"
        );
    }

    #[test]
    fn numbers_are_written_so_that_nothing_is_lost() {
        let written = |value| {
            let mut text = String::new();
            push_value(&mut text, value);
            text
        };
        for value in [0.0, 1e14, 12_345.67, 1e-9, 1.8446744073709552e19, -0.5, f64::MAX] {
            assert_eq!(written(value).parse::<f64>().unwrap(), value);
        }
        assert_eq!((written(f64::NAN), written(f64::NEG_INFINITY)), ("NaN".into(), "-Inf".into()));
    }

    #[test]
    fn the_format_is_the_one_the_client_prefers() {
        let prometheus = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        assert_eq!(Format::accepted(prometheus), Format::OpenMetrics);
        for text in ["", "*/*", "text/html", "text/plain", "text/plain,application/openmetrics-text;q=0.5"] {
            assert_eq!(Format::accepted(text), Format::Text, "{text}");
        }
    }
}
