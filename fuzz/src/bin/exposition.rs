//! A label's value cannot break out of its line, whatever it is.
#![no_main]

use agent::exposition::{Family, Format, Kind, Page, Sink};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|value: &str| {
    let mut page = Page::new(Format::Text, 0);
    page.family(Family { name: "a_info", kind: Kind::Info, help: "Help." });
    page.sample(&[("name", value)], 1.0, None);
    let page = page.finish();
    assert_eq!(page.split('\n').count(), 4, "{page:?}");
    let line = page.split('\n').nth(2).unwrap_or_default();
    let quoted =
        line.strip_prefix("a_info{name=\"").and_then(|rest| rest.strip_suffix("\"} 1")).unwrap_or_default();
    let mut read = String::new();
    let mut letters = quoted.chars();
    while let Some(letter) = letters.next() {
        read.push(match letter {
            '\\' => match letters.next() {
                Some('n') => '\n',
                Some(other) => other,
                None => '\\',
            },
            '"' => panic!("a quote that is not escaped: {line}"),
            letter => letter,
        });
    }
    assert_eq!(read, value);
});
