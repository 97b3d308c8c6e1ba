//! Sessions: resamples what users did, along the timeline of the training trace.
//!
//! A session is a series of jobs of one user with no job of another user in between. A sample passes along the training
//! trace and uses every session and every interval once, in a slightly different order. So as much work arrives per hour and
//! day as in the training trace. A job waits with its submission while more nodes than ever would be in demand. Requests
//! (sizes, requested times) are copied. Intervals and run times are perturbed, so that time and work keep their sums, and so
//! that near copies are about as rare as between two halves of the training trace.

mod demand;
mod draw;
mod index;
mod perturb;
mod shuffle;

use std::collections::BTreeMap;

use learn::artifact::restore::{RestoreError, ensure, expect_tensor};
use learn::artifact::{Tensor, Tensors, Values, part_of, within};
use workload::{Stop, Stopped};

use self::index::TraceIndex;
use super::Generator;
use crate::features::{FeatureSpec, FeatureTable};

#[derive(Debug, Clone)]
pub struct Sessions {
    index: TraceIndex,
}

impl Sessions {
    pub fn fit(jobs: FeatureTable, stop: &Stop) -> Result<Self, Stopped> {
        stop.check()?;
        Ok(Self { index: TraceIndex::new(jobs) })
    }

    pub fn restore(specs: &[FeatureSpec], tensors: &Tensors) -> Result<Self, RestoreError> {
        let (values, is_known) = (part_of(tensors, VALUES), part_of(tensors, IS_KNOWN));
        let column = |spec: &FeatureSpec| {
            let column = match values.get(&spec.name) {
                Some(stored) => column_of(stored, is_known.get(&spec.name)),
                None => column_of_version_1(expect_tensor(tensors, &spec.name)?),
            };
            let column =
                column.ok_or_else(|| RestoreError::Invalid(format!("{} is not a column", spec.name)))?;
            spec.check_values(&column)?;
            Ok(column)
        };
        let columns = specs.iter().map(column).collect::<Result<Vec<_>, RestoreError>>()?;
        let jobs = FeatureTable::new(specs.to_vec(), columns)
            .map_err(|error| RestoreError::Invalid(error.to_string()))?;
        ensure(jobs.n_jobs() > 0, "it has no jobs")?;
        Ok(Self { index: TraceIndex::new(jobs) })
    }
}

impl Generator for Sessions {
    fn sample(&self, n_jobs: usize, seed: u64, stop: &Stop) -> Result<Vec<Vec<f64>>, Stopped> {
        draw::draw(&self.index, n_jobs, seed, stop)
    }

    /// The training trace: one tensor per feature, and one of known values where some are unknown.
    fn tensors(&self) -> Tensors {
        let (mut values, mut is_known): (Tensors, Tensors) = (BTreeMap::new(), BTreeMap::new());
        let jobs = self.index.jobs();
        for (spec, column) in jobs.specs().iter().zip(jobs.columns()) {
            let tensor = if spec.is_category() {
                Tensor::row(column.iter().map(|code| *code as i64).collect::<Vec<i64>>())
            } else {
                let known = |value: &f64| if value.is_nan() { 0.0 } else { *value };
                Tensor::row(column.iter().map(known).collect::<Vec<f64>>())
            };
            values.insert(spec.name.clone(), tensor);
            if column.iter().any(|value| value.is_nan()) {
                let flags: Vec<u8> = column.iter().map(|value| u8::from(!value.is_nan())).collect();
                is_known.insert(spec.name.clone(), Tensor::row(flags));
            }
        }
        within(VALUES, values).chain(within(IS_KNOWN, is_known)).collect()
    }
}

const VALUES: &str = "values";
const IS_KNOWN: &str = "is_known";

fn column_of(values: &Tensor, is_known: Option<&Tensor>) -> Option<Vec<f64>> {
    let mut column: Vec<f64> = match values.values() {
        Values::F64(values) => values.clone(),
        Values::I64(codes) => codes.iter().map(|code| *code as f64).collect(),
        _ => return None,
    };
    if let Some(is_known) = is_known {
        let flags = is_known.as_u8().filter(|flags| flags.len() == column.len())?;
        for (value, flag) in column.iter_mut().zip(flags) {
            if *flag == 0 {
                *value = f64::NAN;
            }
        }
    }
    Some(column)
}

/// In version 1 of the format, a number is the sum of three `f32`, and a fourth says whether it is known.
const N_PARTS_OF_VERSION_1: usize = 3;

fn column_of_version_1(tensor: &Tensor) -> Option<Vec<f64>> {
    let [n_rows, n_values] = *tensor.shape() else { return None };
    let stored = tensor.as_f32().filter(|_| n_rows == N_PARTS_OF_VERSION_1 + 1)?;
    let value = |index: usize| {
        let part = |part: usize| f64::from(stored[part * n_values + index]);
        let is_known = part(N_PARTS_OF_VERSION_1) > 0.5;
        if is_known { (0..N_PARTS_OF_VERSION_1).rev().map(part).sum() } else { f64::NAN }
    };
    Some((0..n_values).map(value).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::features::FeatureKind;
    use crate::format::Format;
    use crate::schema::Role;

    fn specs() -> Vec<FeatureSpec> {
        let number = || FeatureKind::Number { format: Format::Plain { decimals: 3 } };
        let names = vec!["a".into(), "b".into()];
        let spec = |name: &str, role, kind| FeatureSpec { name: name.into(), role: Some(role), kind };
        vec![
            spec("interval", Role::Interval, number()),
            spec("run", Role::RunTime, number()),
            spec("user", Role::User, FeatureKind::Category { names }),
        ]
    }

    fn sessions(runs: Vec<f64>) -> Sessions {
        let users = vec![0.0, 1.0, 1.0];
        let columns = vec![vec![0.0, 1e9 + 0.123, 7.0], runs, users];
        Sessions::fit(FeatureTable::new(specs(), columns).unwrap(), &Stop::default()).unwrap()
    }

    #[test]
    fn numbers_are_stored_exactly_and_unknown_ones_stay_unknown() {
        let stored = sessions(vec![0.1, f64::NAN, 1e-7]);
        let loaded = Sessions::restore(&specs(), &stored.tensors()).unwrap();
        let bits = |sessions: &Sessions| -> Vec<u64> {
            sessions.index.jobs().columns().iter().flatten().map(|value| value.to_bits()).collect()
        };
        assert_eq!(bits(&loaded), bits(&stored));
    }

    #[test]
    fn tensors_that_do_not_fit_the_features_are_rejected() {
        let tensors = sessions(vec![1.0; 3]).tensors();
        let with = |name: &str, tensor: Tensor| {
            let mut tensors = tensors.clone();
            tensors.insert(name.to_owned(), tensor);
            Sessions::restore(&specs(), &tensors)
        };
        assert!(with("values.user", Tensor::row(vec![0i64, 1, 2])).is_err(), "there are two users");
        assert!(with("values.user", Tensor::row(vec![0i64, 1])).is_err(), "one job has no user");
        assert!(with("is_known.run", Tensor::row(vec![1u8])).is_err());
        assert!(Sessions::restore(&specs(), &Tensors::new()).is_err());
    }
}
