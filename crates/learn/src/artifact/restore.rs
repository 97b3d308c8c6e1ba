//! What a model expects to find in its file. Expectations follow from the manifest and are compared with
//! what is stored before anything is allocated for it, because whoever can write the weights can write a
//! manifest with their hash too.

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::tensor::{Tensor, Tensors};
use crate::trees::TreesError;

/// Why a stored model cannot be used.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum RestoreError {
    #[error("there is no tensor {0}")]
    Missing(String),
    #[error("the tensor {name} has the shape {found:?}, not {expected}")]
    Shape { name: String, found: Vec<usize>, expected: String },
    #[error("the tensor {name} is not stored as {expected}")]
    Type { name: String, expected: &'static str },
    #[error("its settings cannot be read: {0}")]
    Settings(String),
    #[error(transparent)]
    Trees(#[from] TreesError),
    #[error("{0}")]
    Invalid(String),
}

/// An error unless a condition holds; `rule` says what has to be the case.
pub fn ensure(holds: bool, rule: &str) -> Result<(), RestoreError> {
    if holds { Ok(()) } else { Err(RestoreError::Invalid(rule.to_owned())) }
}

/// The settings of a part of a model.
pub fn settings<T: DeserializeOwned>(value: &Value) -> Result<T, RestoreError> {
    T::deserialize(value).map_err(|error| RestoreError::Settings(error.to_string()))
}

/// A tensor of any type and shape.
pub fn expect_tensor<'a>(tensors: &'a Tensors, name: &str) -> Result<&'a Tensor, RestoreError> {
    tensors.get(name).ok_or_else(|| RestoreError::Missing(name.to_owned()))
}

/// The values of a tensor of `f32` that has exactly this shape.
pub fn expect<'a>(tensors: &'a Tensors, name: &str, shape: &[usize]) -> Result<&'a [f32], RestoreError> {
    let tensor = expect_tensor(tensors, name)?;
    if tensor.shape() != shape {
        return Err(other_shape(tensor, name, format!("{shape:?}")));
    }
    floats(tensor, name)
}

/// The values of a matrix of `f32` with this many columns and at least one row.
pub fn expect_rows<'a>(
    tensors: &'a Tensors,
    name: &str,
    n_columns: usize,
) -> Result<&'a [f32], RestoreError> {
    let tensor = expect_tensor(tensors, name)?;
    match *tensor.shape() {
        [(1..), found @ (1..)] if found == n_columns => floats(tensor, name),
        _ => Err(other_shape(tensor, name, format!("rows of {n_columns}"))),
    }
}

/// The values of a vector of `f32` with at least one value.
pub fn expect_vector<'a>(tensors: &'a Tensors, name: &str) -> Result<&'a [f32], RestoreError> {
    let tensor = expect_tensor(tensors, name)?;
    match *tensor.shape() {
        [(1..)] => floats(tensor, name),
        _ => Err(other_shape(tensor, name, "a vector".to_owned())),
    }
}

fn other_shape(tensor: &Tensor, name: &str, expected: String) -> RestoreError {
    RestoreError::Shape { name: name.to_owned(), found: tensor.shape().to_vec(), expected }
}

fn floats<'a>(tensor: &'a Tensor, name: &str) -> Result<&'a [f32], RestoreError> {
    tensor.as_f32().ok_or_else(|| RestoreError::Type { name: name.to_owned(), expected: "f32" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_of_another_name_shape_or_type_are_rejected() {
        let tensors: Tensors = [
            ("matrix".to_owned(), Tensor::new(vec![2, 3], vec![1.0f32; 6])),
            ("empty".to_owned(), Tensor::new(vec![0, 3], Vec::<f32>::new())),
            ("codes".to_owned(), Tensor::new(vec![2, 3], vec![1i64; 6])),
        ]
        .into();
        assert_eq!(expect(&tensors, "matrix", &[2, 3]).map(<[f32]>::len), Ok(6));
        assert_eq!(expect_rows(&tensors, "matrix", 3).map(<[f32]>::len), Ok(6));
        let message = |result: Result<&[f32], RestoreError>| result.unwrap_err().to_string();
        assert_eq!(message(expect(&tensors, "other", &[2])), "there is no tensor other");
        assert_eq!(
            message(expect(&tensors, "matrix", &[3, 2])),
            "the tensor matrix has the shape [2, 3], not [3, 2]"
        );
        assert_eq!(message(expect(&tensors, "codes", &[2, 3])), "the tensor codes is not stored as f32");
        for name in ["matrix", "empty"] {
            assert!(expect_rows(&tensors, name, 2).is_err() && expect_vector(&tensors, name).is_err());
        }
        assert!(expect_rows(&tensors, "empty", 3).is_err(), "there is no row");
    }
}
