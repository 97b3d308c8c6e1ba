//! Axes of charts: their range and their ticks.

/// Values beyond this cannot be shown: the span of an axis has to be finite.
const MAX_VALUE: f64 = 1e300;
/// The smallest span of an axis, relative to its values: ticks closer than this cannot be told apart.
const MIN_RELATIVE_SPAN: f64 = 1e-12;
/// No axis has more ticks, whatever its values are.
const MAX_TICKS: usize = 100;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    Linear,
    /// Logarithmic; only values above zero can be shown.
    Log,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    pub label: String,
    pub scale: Scale,
    /// Values that the axis covers whatever the data are.
    pub include: Vec<f64>,
    /// The ticks; chosen automatically if empty.
    pub ticks: Vec<f64>,
}

impl Axis {
    pub fn linear(label: impl Into<String>) -> Self {
        Self { label: label.into(), scale: Scale::Linear, include: Vec::new(), ticks: Vec::new() }
    }

    pub fn log(label: impl Into<String>) -> Self {
        Self { scale: Scale::Log, ..Self::linear(label) }
    }

    #[must_use]
    pub fn including(mut self, values: impl IntoIterator<Item = f64>) -> Self {
        self.include.extend(values);
        self
    }

    #[must_use]
    pub fn with_ticks(mut self, ticks: impl IntoIterator<Item = f64>) -> Self {
        self.ticks.extend(ticks);
        self
    }

    pub(crate) fn can_show(&self, value: f64) -> bool {
        value.abs() <= MAX_VALUE && (self.scale == Scale::Linear || value > 0.0)
    }

    /// The axis for these values, with a small margin at both ends.
    pub(crate) fn span(&self, values: impl Iterator<Item = f64>) -> Span<'_> {
        let shown = values.chain(self.include.iter().copied()).filter(|value| self.can_show(*value));
        let (low, high) = shown
            .map(|value| self.place(value))
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), at| (low.min(at), high.max(at)));
        let least_span = MIN_RELATIVE_SPAN * low.abs().max(high.abs());
        let (low, high) = if low > high {
            (0.0, 1.0)
        } else if high - low <= least_span {
            let half = least_span.max(0.5);
            (low - half, high + half)
        } else {
            (low, high)
        };
        let margin = (high - low) * 0.03;
        let is_end = |end: f64| self.include.iter().any(|value| (self.place(*value) - end).abs() < 1e-12);
        let low = if is_end(low) { low } else { low - margin };
        let high = if is_end(high) { high } else { high + margin };
        Span { axis: self, low, high }
    }

    fn place(&self, value: f64) -> f64 {
        match self.scale {
            Scale::Linear => value,
            Scale::Log => value.log10(),
        }
    }
}

/// An axis with its range.
pub(crate) struct Span<'a> {
    axis: &'a Axis,
    low: f64,
    high: f64,
}

impl Span<'_> {
    /// The position of a value, from zero at the low end to one at the high end.
    pub fn position(&self, value: f64) -> f64 {
        (self.axis.place(value) - self.low) / (self.high - self.low)
    }

    /// The values of the ticks, with their labels.
    pub fn ticks(&self) -> Vec<(f64, String)> {
        let inside = |value: &f64| (-1e-9..=1.0 + 1e-9).contains(&self.position(*value));
        if !self.axis.ticks.is_empty() {
            return self.axis.ticks.iter().filter(|value| inside(value)).map(|v| (*v, label(*v))).collect();
        }
        match self.axis.scale {
            Scale::Linear => {
                let step = nice_step((self.high - self.low) / 6.0);
                let first = (self.low / step).ceil() as i64;
                let last = (self.high / step).floor() as i64;
                let values = (first..=last).take(MAX_TICKS).map(|index| index as f64 * step);
                values.map(|value| (value, label_by_step(value, step))).collect()
            }
            Scale::Log => {
                let (first, last) = (self.low.ceil() as i32, self.high.floor() as i32);
                let every = ((last - first) / 6 + 1).max(1);
                let powers = (first..=last).step_by(every as usize).map(|power| 10f64.powi(power));
                let mut ticks: Vec<(f64, String)> =
                    powers.filter(inside).map(|value| (value, label(value))).collect();
                if ticks.len() < 3 {
                    let decade =
                        (first - 1..=last).flat_map(|power| [1.0, 2.0, 5.0].map(|d| d * 10f64.powi(power)));
                    ticks = decade.filter(inside).map(|value| (value, label(value))).collect();
                }
                ticks
            }
        }
    }
}

/// The smallest of 1, 2 or 5 times a power of ten that is at least `rough`.
fn nice_step(rough: f64) -> f64 {
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().find(|step| step * power >= rough * (1.0 - 1e-9));
    step.unwrap_or(10.0) * power
}

fn label_by_step(value: f64, step: f64) -> String {
    let decimals = (-step.log10().floor()).max(0.0) as usize;
    if !(1e-4..1e6).contains(&step) { label(value) } else { format!("{value:.decimals$}") }
}

fn label(value: f64) -> String {
    let size = value.abs();
    if size != 0.0 && !(1e-3..1e5).contains(&size) {
        return format!("{value:e}");
    }
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside() {
        let axis = Axis::linear("x").including([0.0]);
        let span = axis.span([0.0, 0.93].into_iter());
        let names: Vec<String> = span.ticks().into_iter().map(|(_, name)| name).collect();
        assert_eq!(names, ["0.0", "0.2", "0.4", "0.6", "0.8"]);
        let axis = Axis::log("x");
        let span = axis.span([0.002, 0.5, -1.0, f64::NAN].into_iter());
        let names: Vec<String> = span.ticks().into_iter().map(|(_, name)| name).collect();
        assert_eq!(names, ["0.002", "0.005", "0.01", "0.02", "0.05", "0.1", "0.2", "0.5"]);
    }

    #[test]
    fn no_value_and_one_value_have_an_axis() {
        let axis = Axis::linear("x");
        assert_eq!(axis.span(std::iter::empty()).position(0.5), 0.5);
        assert_eq!(axis.span(std::iter::once(7.0)).position(7.0), 0.5);
    }

    #[test]
    fn any_values_have_an_axis_with_few_ticks() {
        let extreme =
            [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MAX, f64::MIN, -1e300, 1e300, 0.0, 1e-320];
        for scale in [Scale::Linear, Scale::Log] {
            let axis = Axis { scale, ..Axis::linear("x") };
            for first in extreme {
                for second in extreme.into_iter().chain([first * (1.0 + 1e-15)]) {
                    let span = axis.span([first, second].into_iter());
                    let ticks = span.ticks();
                    assert!(ticks.len() <= MAX_TICKS, "{first} {second}: {} ticks", ticks.len());
                    assert!(
                        ticks.iter().all(|(value, _)| span.position(*value).is_finite()),
                        "{first} {second}"
                    );
                }
            }
        }
    }
}
