//! Hints: what to do about an error, in terms of commands, flags and settings. Libraries report what
//! happened; the command line adds these.

use archive::Error;

/// What to do about an error, if there is something to do.
pub fn hint(error: &anyhow::Error) -> Option<&'static str> {
    error.chain().find_map(|cause| cause.downcast_ref::<Error>()).and_then(archive_hint)
}

fn archive_hint(error: &Error) -> Option<&'static str> {
    Some(match error {
        Error::NotAnArchive { .. } => {
            "`tracewise archive import` and `tracewise record` create archives; --data names one that exists"
        }
        Error::NewerFormat { .. } => "use a newer version of tracewise",
        Error::NoSpool { .. } => "set archive.spool in tracewise.toml",
        Error::Damaged { .. } => "`tracewise archive verify` lists every damaged file",
        Error::Gone { .. } => "run the command again, or compact with --grace 10m",
        Error::Timeout { .. } => "raise --timeout, or import a shorter time range",
        Error::NoMetric { .. } => "name your metric with --metric and its node label with --node-label",
        Error::Unfinished { cause } => return archive_hint(cause),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    #[test]
    fn a_hint_is_found_below_what_was_added_to_an_error() {
        let gone = || Error::Gone { path: "x.parquet".into() };
        let wrapped: anyhow::Error = Err::<(), _>(gone()).context("exporting").unwrap_err();
        assert!(hint(&wrapped).unwrap().contains("--grace"));
        let unfinished = Error::Unfinished { cause: Box::new(gone()) };
        assert!(hint(&unfinished.into()).unwrap().contains("--grace"));
        assert_eq!(hint(&anyhow::anyhow!("other")), None);
    }
}
