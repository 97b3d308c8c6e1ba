//! Which value of a category follows which, in the training trace.
//!
//! Only older models of the kind `sequence-copulagan` have transitions: networks that were trained on pairs of a job and
//! its true predecessor. Their conditions are drawn from the values that followed that of the previous job.

use learn::artifact::restore::{RestoreError, ensure};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};

use super::pick;
use crate::generators::encoding::{Encoder, is_distribution};

/// The values that followed one value, with their counts.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
struct Following {
    values: Vec<usize>,
    counts: Vec<f64>,
}

/// By condition column and value.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Transitions {
    columns: Vec<Vec<Following>>,
}

impl Transitions {
    /// Samples a value that follows that of the previous row; none if the previous row has none or nothing followed.
    pub fn next(
        &self,
        encoder: &Encoder,
        column: usize,
        previous: &[f32],
        rng: &mut Xoshiro256PlusPlus,
    ) -> Option<usize> {
        let span = &encoder.spans()[encoder.conditions()[column].span];
        let one_hot = &previous[span.first..span.first + span.len];
        let value = one_hot.iter().position(|value| *value > 0.5)?;
        let following = self.columns.get(column)?.get(value).filter(|one| !one.values.is_empty())?;
        Some(following.values[pick(&following.counts, rng)])
    }

    /// Checks transitions that were read from a file, against the encoder they are for.
    pub fn check(&self, encoder: &Encoder) -> Result<(), RestoreError> {
        ensure(self.columns.len() <= encoder.conditions().len(), "there are transitions of unknown columns")?;
        for (column, condition) in self.columns.iter().zip(encoder.conditions()) {
            let n_values = condition.fractions.len();
            for one in column {
                let is_known = one.values.iter().all(|value| *value < n_values);
                ensure(is_known && one.values.len() == one.counts.len(), "a transition leads to no value")?;
                let has_counts = one.counts.is_empty() || is_distribution(&one.counts);
                ensure(has_counts, "the counts of transitions are not a distribution")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use workload::Stop;

    use super::*;
    use crate::features::{FeatureKind, FeatureSpec, FeatureTable};
    use crate::format::Format;
    use crate::generators::encoding::TransformKind;
    use crate::schema::Role;

    #[test]
    fn a_value_is_followed_by_what_followed_it_in_the_trace() {
        let names = ["a", "b", "c"].map(String::from).to_vec();
        let number = FeatureKind::Number { format: Format::Plain { decimals: 0 } };
        let specs = vec![
            FeatureSpec { name: "interval".into(), role: Some(Role::Interval), kind: number },
            FeatureSpec {
                name: "user".into(),
                role: Some(Role::User),
                kind: FeatureKind::Category { names },
            },
        ];
        let users: Vec<f64> = (0..99).map(|job| f64::from(job % 3)).collect();
        let jobs = FeatureTable::new(specs, vec![vec![1.0; 99], users]).unwrap();
        let encoder = Encoder::fit(&jobs, TransformKind::Log, true, 0, &Stop::default()).unwrap();
        let next = |user: usize| Following { values: vec![(user + 1) % 3], counts: vec![1.0] };
        let transitions = Transitions { columns: vec![(0..3).map(next).collect()] };
        assert_eq!(transitions.check(&encoder), Ok(()));
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let rows = encoder.encode(&jobs, &mut rng);
        for user in 0..3 {
            let row = &rows[user * encoder.width()..(user + 1) * encoder.width()];
            assert_eq!(transitions.next(&encoder, 0, row, &mut rng), Some((user + 1) % 3));
        }
        for (values, counts) in [(vec![3], vec![1.0]), (vec![0], vec![]), (vec![0], vec![-1.0])] {
            let column = vec![Following { values, counts }];
            assert!(Transitions { columns: vec![column] }.check(&encoder).is_err());
        }
        let nothing = vec![0.0; encoder.width()];
        assert_eq!(transitions.next(&encoder, 0, &nothing, &mut rng), None);
    }
}
