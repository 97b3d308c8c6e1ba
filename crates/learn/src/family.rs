//! Families of models: the kinds of detector, generator or classifier that a user can choose from, by
//! name, and how a trained one is stored.

use std::fmt::Display;
use std::path::Path;
use std::str::FromStr;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::artifact::{Artifact, ArtifactError, Provenance, Tensors};

/// A name that no member of a family has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no {family} {name}; known are {known}")]
pub struct UnknownMember {
    pub family: &'static str,
    pub name: String,
    /// All names, separated by commas.
    pub known: String,
}

/// A trained model as it was stored: which member of the family, its settings and its weights.
#[derive(Debug, Clone, PartialEq)]
pub struct Stored<F, B> {
    pub member: F,
    pub body: B,
    pub tensors: Tensors,
    pub provenance: Provenance,
}

/// The kinds of model in one family. Implemented by the macro [`family!`](crate::family!).
pub trait Family: Copy + PartialEq + Display + FromStr<Err = UnknownMember> + 'static {
    /// The first part of the kind of an artifact: `detect` in `detect/ae`.
    const DOMAIN: &'static str;
    /// Names that the domain had in older artifacts.
    const FORMER_DOMAINS: &'static [&'static str];

    fn all() -> &'static [Self];

    fn name(self) -> &'static str;

    /// A trained model, ready to be written. `body` contains everything that is not a weight.
    fn to_artifact(
        self,
        body: &impl Serialize,
        tensors: Tensors,
        provenance: &Provenance,
    ) -> Result<Artifact, ArtifactError> {
        let body = serde_json::to_value(body).map_err(ArtifactError::Body)?;
        let kind = format!("{}/{}", Self::DOMAIN, self.name());
        Ok(Artifact { kind, body, tensors, provenance: provenance.clone() })
    }

    /// Reads a trained model of any member.
    fn read<B: DeserializeOwned>(dir: &Path) -> Result<Stored<Self, B>, ArtifactError> {
        // A manifest may be large; this one is dropped before it is read again with the weights.
        let former = {
            let manifest = Artifact::manifest(dir)?;
            Self::FORMER_DOMAINS.iter().copied().find(|domain| manifest.is_of(domain))
        };
        let artifact = Artifact::read(dir, former.unwrap_or(Self::DOMAIN))?;
        let name = artifact.kind.split_once('/').map_or("", |(_, name)| name);
        let member = name.parse().map_err(|error| ArtifactError::damaged(dir, error))?;
        let body =
            serde_json::from_value(artifact.body).map_err(|error| ArtifactError::damaged(dir, error))?;
        Ok(Stored { member, body, tensors: artifact.tensors, provenance: artifact.provenance })
    }
}

/// Defines a family of models: an enum whose variants have a name, a description and perhaps former
/// names, with `ALL`, `BEST`, `name`, `description`, `Display`, `FromStr`, serde by name, and
/// [`Family`](crate::family::Family).
///
/// ```
/// learn::family! {
///     /// The shapes that can be fitted.
///     pub enum Shape("shape", domain "shapes", formerly ["forms"]) {
///         Line = "line": "A straight line",
///         Parabola = "parabola" | "quadratic": "A parabola",
///     }
///     best Parabola
/// }
/// assert_eq!("quadratic".parse(), Ok(Shape::Parabola));
/// assert_eq!(Shape::BEST.to_string(), "parabola");
/// assert_eq!(Shape::ALL.map(Shape::description), ["A straight line", "A parabola"]);
/// assert_eq!("circle".parse::<Shape>().unwrap_err().to_string(), "there is no shape circle; known are line, parabola");
/// ```
#[macro_export]
macro_rules! family {
    (
        $(#[$attribute:meta])*
        $visibility:vis enum $family:ident(
            $word:literal, domain $domain:literal $(, formerly [$($former_domain:literal),*])?
        ) {
            $($(#[$variant_attribute:meta])* $variant:ident = $name:literal $(| $former:literal)*: $description:expr),+ $(,)?
        }
        best $best:ident
    ) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        $visibility enum $family {
            $($(#[$variant_attribute])* $variant),+
        }

        impl $family {
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$variant),+];

            /// The one that the measured results recommend.
            pub const BEST: Self = Self::$best;

            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name),+
                }
            }

            pub const fn description(self) -> &'static str {
                match self {
                    $(Self::$variant => $description),+
                }
            }
        }

        impl ::std::fmt::Display for $family {
            fn fmt(&self, formatter: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                formatter.pad(self.name())
            }
        }

        impl ::std::str::FromStr for $family {
            type Err = $crate::family::UnknownMember;

            fn from_str(name: &str) -> Result<Self, Self::Err> {
                match name {
                    $($name $(| $former)* => Ok(Self::$variant),)+
                    _ => Err($crate::family::UnknownMember {
                        family: $word,
                        name: name.to_owned(),
                        known: [$($name),+].join(", "),
                    }),
                }
            }
        }

        impl $crate::family::serde::Serialize for $family {
            fn serialize<S: $crate::family::serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.name())
            }
        }

        impl<'de> $crate::family::serde::Deserialize<'de> for $family {
            fn deserialize<D: $crate::family::serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let name = <::std::borrow::Cow<'de, str> as $crate::family::serde::Deserialize>::deserialize(deserializer)?;
                name.parse().map_err($crate::family::serde::de::Error::custom)
            }
        }

        impl $crate::family::Family for $family {
            const DOMAIN: &'static str = $domain;
            const FORMER_DOMAINS: &'static [&'static str] = &[$($($former_domain),*)?];

            fn all() -> &'static [Self] {
                &Self::ALL
            }

            fn name(self) -> &'static str {
                self.name()
            }
        }
    };
}

#[doc(hidden)]
pub use serde;

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use workload::Timestamp;

    use super::*;
    use crate::artifact::Tensor;

    crate::family! {
        enum Shape("shape", domain "shapes", formerly ["forms"]) {
            Line = "line": "A straight line",
            Parabola = "parabola" | "quadratic": "A parabola",
        }
        best Line
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Body {
        degree: u32,
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        for shape in Shape::ALL {
            assert_eq!(shape.to_string().parse(), Ok(shape));
            let text = serde_json::to_string(&shape).unwrap();
            assert_eq!(serde_json::from_str::<Shape>(&text).unwrap(), shape);
        }
        assert_eq!(serde_json::from_value::<Shape>("quadratic".into()).unwrap(), Shape::Parabola);
        let error = serde_json::from_str::<Shape>("\"circle\"").unwrap_err().to_string();
        assert!(error.contains("there is no shape circle; known are line, parabola"), "{error}");
        assert_eq!((Shape::BEST, Shape::Line.description()), (Shape::Line, "A straight line"));
        assert_eq!(Shape::all(), Shape::ALL);
        assert_eq!(format!("{:>6}", Shape::Line), "  line");
    }

    #[test]
    fn a_model_is_stored_under_its_domain_and_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("model");
        let tensors: Tensors = [("weights".to_owned(), Tensor::row(vec![1.0f32, 2.0]))].into();
        let body = Body { degree: 2 };
        let provenance = Provenance::at(Timestamp(7_000));
        let artifact = Shape::Parabola.to_artifact(&body, tensors.clone(), &provenance).unwrap();
        artifact.write(&path).unwrap();
        assert_eq!(Artifact::manifest(&path).unwrap().kind, "shapes/parabola");
        let expected = Stored {
            member: Shape::Parabola,
            body,
            tensors: tensors.clone(),
            provenance: Provenance::at(Timestamp(7_000)),
        };
        assert_eq!(Shape::read::<Body>(&path).unwrap(), expected);

        let written = |kind: &str| {
            let artifact = Artifact {
                kind: kind.into(),
                body: serde_json::json!({ "degree": 2 }),
                tensors: tensors.clone(),
                provenance: Provenance::default(),
            };
            artifact.write(&path).unwrap();
            Shape::read::<Body>(&path).map(|stored| stored.member).map_err(|error| error.to_string())
        };
        assert_eq!(written("forms/quadratic"), Ok(Shape::Parabola));
        assert!(written("shapes/circle").unwrap_err().contains("there is no shape circle"));
        assert!(
            written("jobs/sessions").unwrap_err().contains("is a model of kind jobs/sessions, not shapes")
        );
    }
}
