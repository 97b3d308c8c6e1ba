//! Checked names of nodes and jobs. Names are cheap to clone.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Longer than any hostname, job array id or pod uid that schedulers make.
const MAX_LENGTH: usize = 255;

/// Why a name is rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// It has no characters.
    #[error("a {what} cannot be empty")]
    Empty {
        /// What it names.
        what: &'static str,
    },
    /// It is longer than any scheduler makes it.
    #[error("a {what} of {length} bytes is too long (at most {MAX_LENGTH})")]
    TooLong {
        /// What it names.
        what: &'static str,
        /// Its length in bytes.
        length: usize,
    },
    /// It would garble a terminal or a file.
    #[error("{name:?} has a control character, which a {what} cannot have")]
    ControlCharacter {
        /// What it names.
        what: &'static str,
        /// The name.
        name: String,
    },
}

fn checked(what: &'static str, name: &str) -> Result<Arc<str>, IdError> {
    if name.is_empty() {
        return Err(IdError::Empty { what });
    }
    if name.len() > MAX_LENGTH {
        return Err(IdError::TooLong { what, length: name.len() });
    }
    if name.chars().any(char::is_control) {
        return Err(IdError::ControlCharacter { what, name: name.to_owned() });
    }
    Ok(Arc::from(name))
}

macro_rules! name_type {
    ($(#[$doc:meta])* $type:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $type(Arc<str>);

        impl $type {
            /// Checks a name.
            pub fn new(name: impl AsRef<str>) -> Result<Self, IdError> {
                checked($what, name.as_ref()).map(Self)
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $type {
            type Error = IdError;
            fn try_from(name: String) -> Result<Self, IdError> {
                Self::new(name)
            }
        }

        impl std::str::FromStr for $type {
            type Err = IdError;
            fn from_str(name: &str) -> Result<Self, IdError> {
                Self::new(name)
            }
        }

        impl From<$type> for String {
            fn from(id: $type) -> String {
                id.0.as_ref().to_owned()
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name_type!(
    /// A compute node, by the name its cluster knows it by.
    NodeName,
    "node name"
);
name_type!(
    /// A job, by the id its scheduler gave it.
    JobId,
    "job id"
);

/// The number of a hardware thread on its node, as the kernel counts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Cpu(pub u16);

impl fmt::Display for Cpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One hardware thread of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ThreadId {
    /// The node.
    pub node: NodeName,
    /// The number of the thread on its node.
    pub cpu: Cpu,
}

impl fmt::Display for ThreadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/cpu{}", self.node, self.cpu)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_would_break_a_path_or_a_line_are_refused() {
        assert_eq!(NodeName::new(""), Err(IdError::Empty { what: "node name" }));
        assert!(matches!(JobId::new("a\nb"), Err(IdError::ControlCharacter { .. })));
        assert!(matches!(JobId::new("x".repeat(256)), Err(IdError::TooLong { .. })));
        assert_eq!(NodeName::new("n001:9100").unwrap().as_str(), "n001:9100");
    }

    #[test]
    fn a_bad_name_is_refused_when_it_is_deserialised() {
        assert!(serde_json::from_str::<NodeName>("\"\"").is_err());
        assert!(serde_json::from_str::<NodeName>("\"n1\"").is_ok());
    }
}
