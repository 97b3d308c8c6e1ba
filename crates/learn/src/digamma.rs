//! The digamma function, the derivative of the logarithm of the gamma function.

/// Digamma of a positive number, to about 12 digits: the recurrence ψ(x) = ψ(x + 1) − 1/x up to a large
/// argument, then the asymptotic series (Abramowitz and Stegun, 6.3.5 and 6.3.18).
pub fn digamma(mut x: f64) -> f64 {
    let mut result = 0.0;
    while x < 10.0 {
        result -= 1.0 / x;
        x += 1.0;
    }
    let inverse = 1.0 / (x * x);
    let series = inverse
        * (1.0 / 12.0
            - inverse
                * (1.0 / 120.0
                    - inverse * (1.0 / 252.0 - inverse * (1.0 / 240.0 - inverse * (1.0 / 132.0)))));
    result + x.ln() - 0.5 / x - series
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn values_agree_with_reference_values() {
        // mpmath.digamma with 30 digits.
        for (x, expected) in [
            (1e-3, -1_000.575_571_931_810_3),
            (0.5, -1.963_510_026_021_423_5),
            (1.0, -0.577_215_664_901_532_9),
            (2.5, 0.703_156_640_645_243_2),
            (10.0, 2.251_752_589_066_721),
            (12_345.678, 9.421_020_820_741_761),
        ] {
            let found = digamma(x);
            assert!((found - expected).abs() < 1e-11 * expected.abs().max(1.0), "{x}: {found} {expected}");
        }
    }

    proptest! {
        #[test]
        fn the_recurrence_holds(x in 1e-3f64..1e4) {
            prop_assert!((digamma(x + 1.0) - digamma(x) - 1.0 / x).abs() < 1e-9);
        }
    }
}
