//! Named arrays of numbers, and their safetensors encoding.

use std::collections::BTreeMap;

use safetensors::SafeTensorError;
use safetensors::tensor::{Dtype, SafeTensors, TensorView};

/// The values of a tensor; the variant is their type on disk (safetensors calls it dtype).
#[derive(Debug, Clone, PartialEq)]
pub enum Values {
    F32(Vec<f32>),
    F64(Vec<f64>),
    I64(Vec<i64>),
    U8(Vec<u8>),
}

impl Values {
    fn len(&self) -> usize {
        match self {
            Self::F32(values) => values.len(),
            Self::F64(values) => values.len(),
            Self::I64(values) => values.len(),
            Self::U8(values) => values.len(),
        }
    }

    fn dtype(&self) -> Dtype {
        match self {
            Self::F32(_) => Dtype::F32,
            Self::F64(_) => Dtype::F64,
            Self::I64(_) => Dtype::I64,
            Self::U8(_) => Dtype::U8,
        }
    }

    fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::F32(values) => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
            Self::F64(values) => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
            Self::I64(values) => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
            Self::U8(values) => values.clone(),
        }
    }

    fn from_bytes(dtype: Dtype, bytes: &[u8]) -> Option<Self> {
        Some(match dtype {
            Dtype::F32 => Self::F32(bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect()),
            Dtype::F64 => Self::F64(bytes.as_chunks().0.iter().map(|b| f64::from_le_bytes(*b)).collect()),
            Dtype::I64 => Self::I64(bytes.as_chunks().0.iter().map(|b| i64::from_le_bytes(*b)).collect()),
            Dtype::U8 => Self::U8(bytes.to_vec()),
            _ => return None,
        })
    }

    fn is_finite(&self) -> bool {
        match self {
            Self::F32(values) => values.iter().all(|value| value.is_finite()),
            Self::F64(values) => values.iter().all(|value| value.is_finite()),
            Self::I64(_) | Self::U8(_) => true,
        }
    }
}

impl From<Vec<f32>> for Values {
    fn from(values: Vec<f32>) -> Self {
        Self::F32(values)
    }
}

impl From<Vec<f64>> for Values {
    fn from(values: Vec<f64>) -> Self {
        Self::F64(values)
    }
}

impl From<Vec<i64>> for Values {
    fn from(values: Vec<i64>) -> Self {
        Self::I64(values)
    }
}

impl From<Vec<u8>> for Values {
    fn from(values: Vec<u8>) -> Self {
        Self::U8(values)
    }
}

/// An array of numbers with a shape, in row-major order.
#[derive(Debug, Clone, PartialEq)]
pub struct Tensor {
    shape: Vec<usize>,
    values: Values,
}

/// Tensors by name.
pub type Tensors = BTreeMap<String, Tensor>;

impl Tensor {
    /// # Panics
    /// If the number of values is not the product of the shape.
    pub fn new(shape: Vec<usize>, values: impl Into<Values>) -> Self {
        let values = values.into();
        assert_eq!(n_elements(&shape), Some(values.len()), "a tensor of shape {shape:?}");
        Self { shape, values }
    }

    /// A one-dimensional tensor.
    pub fn row(values: impl Into<Values>) -> Self {
        let values = values.into();
        Self { shape: vec![values.len()], values }
    }

    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    pub fn len(&self) -> usize {
        self.values.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn values(&self) -> &Values {
        &self.values
    }

    /// The values, if they are stored as `f32`.
    pub fn as_f32(&self) -> Option<&[f32]> {
        if let Values::F32(values) = &self.values { Some(values) } else { None }
    }

    /// The values, if they are stored as `f64`.
    pub fn as_f64(&self) -> Option<&[f64]> {
        if let Values::F64(values) = &self.values { Some(values) } else { None }
    }

    /// The values, if they are stored as `i64`.
    pub fn as_i64(&self) -> Option<&[i64]> {
        if let Values::I64(values) = &self.values { Some(values) } else { None }
    }

    /// The values, if they are stored as `u8`.
    pub fn as_u8(&self) -> Option<&[u8]> {
        if let Values::U8(values) = &self.values { Some(values) } else { None }
    }
}

/// The product of a shape; nothing if it overflows.
fn n_elements(shape: &[usize]) -> Option<usize> {
    shape.iter().try_fold(1usize, |product, size| product.checked_mul(*size))
}

/// Encodes tensors in the safetensors format.
pub fn to_safetensors(tensors: &Tensors) -> Result<Vec<u8>, String> {
    if let Some((name, _)) = tensors.iter().find(|(_, tensor)| !tensor.values.is_finite()) {
        return Err(format!("{name} contains a value that is not finite"));
    }
    let bytes: Vec<(&str, &Tensor, Vec<u8>)> =
        tensors.iter().map(|(name, tensor)| (name.as_str(), tensor, tensor.values.to_bytes())).collect();
    let views: Result<Vec<_>, SafeTensorError> = bytes
        .iter()
        .map(|(name, tensor, bytes)| {
            Ok((*name, TensorView::new(tensor.values.dtype(), tensor.shape.clone(), bytes)?))
        })
        .collect();
    let views = views.map_err(|error| error.to_string())?;
    safetensors::serialize(views, None).map_err(|error| error.to_string())
}

/// Decodes a safetensors file. Floating-point values must be finite.
pub fn from_safetensors(bytes: &[u8]) -> Result<Tensors, String> {
    let stored = SafeTensors::deserialize(bytes).map_err(|error| error.to_string())?;
    let mut tensors = Tensors::new();
    for (name, view) in stored.tensors() {
        let values = Values::from_bytes(view.dtype(), view.data())
            .ok_or_else(|| format!("{name} has the unsupported type {:?}", view.dtype()))?;
        if !values.is_finite() {
            return Err(format!("{name} contains a value that is not finite"));
        }
        if n_elements(view.shape()) != Some(values.len()) {
            return Err(format!("{name} does not have as many values as its shape"));
        }
        tensors.insert(name, Tensor { shape: view.shape().to_vec(), values });
    }
    Ok(tensors)
}

/// The tensors of a component, each name prefixed with `part.`.
pub fn within(part: &str, tensors: Tensors) -> impl Iterator<Item = (String, Tensor)> {
    tensors.into_iter().map(move |(name, tensor)| (format!("{part}.{name}"), tensor))
}

/// The tensors whose names start with `part.`, without that prefix.
pub fn part_of(tensors: &Tensors, part: &str) -> Tensors {
    // Names are in order, so a model of many parts is not searched once for each of them.
    let prefix = format!("{part}.");
    let own = |(name, tensor): (&String, &Tensor)| {
        Some((name.strip_prefix(prefix.as_str())?.to_owned(), tensor.clone()))
    };
    tensors.range(prefix.clone()..).map_while(own).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tensor() -> impl Strategy<Value = Tensor> {
        let finite = prop::num::f32::NORMAL | prop::num::f32::ZERO | prop::num::f32::SUBNORMAL;
        let finite64 = prop::num::f64::NORMAL | prop::num::f64::ZERO | prop::num::f64::SUBNORMAL;
        prop_oneof![
            prop::collection::vec(finite, 0..20).prop_map(Tensor::row),
            prop::collection::vec(finite64, 0..20).prop_map(Tensor::row),
            prop::collection::vec(any::<i64>(), 0..20).prop_map(Tensor::row),
            prop::collection::vec(any::<u8>(), 0..20).prop_map(Tensor::row),
            prop::collection::vec(any::<i64>(), 6).prop_map(|values| Tensor::new(vec![3, 1, 2], values)),
        ]
    }

    proptest! {
        #[test]
        fn tensors_of_every_type_are_read_as_they_were_written(
            tensors in prop::collection::btree_map("[a-z.]{1,8}", tensor(), 0..6)
        ) {
            let bytes = to_safetensors(&tensors).unwrap();
            prop_assert_eq!(from_safetensors(&bytes).unwrap(), tensors);
        }

        #[test]
        fn bytes_that_are_not_safetensors_are_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = from_safetensors(&bytes);
        }
    }

    #[test]
    fn values_that_are_not_finite_are_rejected() {
        let written = |tensor: Tensor| to_safetensors(&[("a".to_owned(), tensor)].into());
        assert!(written(Tensor::row(vec![f32::NAN])).unwrap_err().contains("not finite"));
        assert!(written(Tensor::row(vec![f64::INFINITY])).unwrap_err().contains("not finite"));
        let data = f64::NAN.to_le_bytes();
        let view = TensorView::new(Dtype::F64, vec![1], &data).unwrap();
        let bytes = safetensors::serialize([("a", view)], None).unwrap();
        assert!(from_safetensors(&bytes).unwrap_err().contains("not finite"));
    }

    #[test]
    fn types_that_are_not_supported_are_rejected() {
        let view = TensorView::new(Dtype::I16, vec![1], &[0, 0]).unwrap();
        let bytes = safetensors::serialize([("a", view)], None).unwrap();
        assert!(from_safetensors(&bytes).unwrap_err().contains("unsupported type"));
    }

    #[test]
    fn parts_are_found_by_their_prefix() {
        let inner: Tensors = [("w".to_owned(), Tensor::row(vec![1u8]))].into();
        let all: Tensors = within("one", inner.clone()).chain(within("one2", inner.clone())).collect();
        assert_eq!(part_of(&all, "one"), inner);
    }
}
