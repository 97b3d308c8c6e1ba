//! Numbers of the types that weights are stored in, as `f32`.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NumberType {
    Float,
    Double,
    Half,
    BFloat16,
    /// Counters and the like, which are not weights.
    Other,
}

impl NumberType {
    /// The type of a class such as `torch.FloatStorage`.
    pub fn of_storage(name: &str) -> Self {
        match name {
            "FloatStorage" => Self::Float,
            "DoubleStorage" => Self::Double,
            "HalfStorage" => Self::Half,
            "BFloat16Storage" => Self::BFloat16,
            _ => Self::Other,
        }
    }

    /// The size of a number. Other types are 8 bytes wide, because torch stores counters as integers.
    pub fn n_bytes(self) -> usize {
        match self {
            Self::Float => 4,
            Self::Half | Self::BFloat16 => 2,
            Self::Double | Self::Other => 8,
        }
    }

    /// The number that some bytes begin with; nothing if there are too few, or it is not a weight.
    pub fn decode(self, bytes: &[u8]) -> Option<f32> {
        Some(match self {
            Self::Float => f32::from_le_bytes(*bytes.first_chunk()?),
            Self::Double => f64::from_le_bytes(*bytes.first_chunk()?) as f32,
            Self::Half => half(u16::from_le_bytes(*bytes.first_chunk()?)),
            Self::BFloat16 => f32::from_bits(u32::from(u16::from_le_bytes(*bytes.first_chunk()?)) << 16),
            Self::Other => return None,
        })
    }
}

/// An IEEE 754 half-precision number.
fn half(bits: u16) -> f32 {
    let (sign, exponent, fraction) = (bits >> 15, (bits >> 10) & 31, bits & 1023);
    let size = match exponent {
        0 => f32::from(fraction) * 2f32.powi(-24),
        31 if fraction == 0 => f32::INFINITY,
        31 => f32::NAN,
        _ => (1.0 + f32::from(fraction) / 1024.0) * 2f32.powi(i32::from(exponent) - 15),
    };
    if sign == 1 { -size } else { size }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_every_type_are_decoded() {
        assert_eq!(NumberType::Float.decode(&1.5f32.to_le_bytes()), Some(1.5));
        assert_eq!(NumberType::Double.decode(&(-2.25f64).to_le_bytes()), Some(-2.25));
        for (bits, value) in [(0x3c00, 1.0), (0xc000, -2.0), (0x0001, 2f32.powi(-24)), (0x7bff, 65_504.0)] {
            assert_eq!(NumberType::Half.decode(&u16::to_le_bytes(bits)), Some(value));
        }
        assert_eq!(NumberType::Half.decode(&0x7c00u16.to_le_bytes()), Some(f32::INFINITY));
        assert_eq!(NumberType::BFloat16.decode(&0x3fc0u16.to_le_bytes()), Some(1.5));
        assert_eq!(NumberType::Float.decode(&[0; 3]), None);
        assert_eq!(NumberType::Other.decode(&[0; 8]), None);
    }
}
