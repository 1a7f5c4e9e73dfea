//! From figures to places on an axis, and the ticks of the axis.
//!
//! # Guarantee
//! The ends of an axis are finite and not the same, whatever the figures are; ticks lie between the ends, in order.

/// How figures are spread over an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Equal differences are equal lengths.
    Linear,
    /// Equal ratios are equal lengths.
    Log,
}

/// An axis: its ends, and where they lie on the page.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    /// How figures are spread.
    pub kind: Kind,
    /// The figures at both ends.
    pub ends: (f64, f64),
    /// The places of both ends, in pixels.
    pub places: (f64, f64),
}

impl Scale {
    /// Returns an axis that has all of these figures on it. A logarithmic one leaves out those that are not above 0.
    pub fn around(kind: Kind, figures: impl Iterator<Item = f64>, places: (f64, f64)) -> Self {
        let usable = figures.filter(|figure| figure.is_finite() && (kind == Kind::Linear || *figure > 0.0));
        let (low, high) = usable.fold((f64::MAX, f64::MIN), |(low, high), figure| (low.min(figure), high.max(figure)));
        let ends = match (kind, low <= high) {
            (Kind::Linear, false) => (0.0, 1.0),
            (Kind::Log, false) => (1.0, 10.0),
            (Kind::Linear, true) if low == high => (low - 0.5 * low.abs().max(1.0), high + 0.5 * high.abs().max(1.0)),
            (Kind::Linear, true) => (low, high),
            (Kind::Log, true) if high / low < 1.2 => (low / 1.2, high * 1.2),
            (Kind::Log, true) => (low, high),
        };
        Self { kind, ends, places }
    }

    /// Returns the axis with some room beyond both ends, as a share of its length.
    pub fn with_margin(mut self, share: f64) -> Self {
        let (low, high) = self.ends;
        self.ends = match self.kind {
            Kind::Linear => (low - (high - low) * share, high + (high - low) * share),
            Kind::Log => (low / (high / low).powf(share), high * (high / low).powf(share)),
        };
        self
    }

    /// Returns the axis begun at 0, if all of it lies above and it is linear.
    pub fn begun_at_zero(mut self) -> Self {
        if self.kind == Kind::Linear {
            self.ends.0 = self.ends.0.min(0.0);
        }
        self
    }

    /// Returns where a figure lies; nothing if that is nowhere on the page.
    pub fn place(&self, figure: f64) -> Option<f64> {
        let ((low, high), (first, last)) = (self.ends, self.places);
        let share = match self.kind {
            Kind::Linear => (figure - low) / (high - low),
            Kind::Log => (figure / low).ln() / (high / low).ln(),
        };
        (share.is_finite() && (-0.001..=1.001).contains(&share)).then_some(first + share * (last - first))
    }

    /// Returns about so many figures for ticks.
    pub fn ticks(&self, about: usize) -> Vec<f64> {
        let (low, high) = self.ends;
        match self.kind {
            Kind::Linear => round_steps(low, high, about),
            Kind::Log => {
                let decades = powers(low, high, &[1.0]);
                match decades.len() {
                    0 | 1 if high / low < 4.0 => round_steps(low, high, about),
                    0 | 1 => powers(low, high, &[1.0, 2.0, 5.0]),
                    2 if about > 4 => powers(low, high, &[1.0, 3.0]),
                    many if many > about => decades.into_iter().step_by(many.div_ceil(about.max(1))).collect(),
                    _ => decades,
                }
            }
        }
    }
}

/// Returns the multiples of a round step between both ends.
fn round_steps(low: f64, high: f64, about: usize) -> Vec<f64> {
    let rough = (high - low) / about.max(1) as f64;
    let decade = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|times| times * decade).into_iter().find(|step| *step >= rough * 0.999);
    let step = step.unwrap_or(rough);
    let first = (low / step).ceil() as i64;
    (first..first + 3 * about as i64).map(|number| number as f64 * step).take_while(|tick| *tick <= high).collect()
}

/// Returns the powers of ten, times each of these, between both ends.
fn powers(low: f64, high: f64, times: &[f64]) -> Vec<f64> {
    let decades = low.log10().floor() as i32..=high.log10().ceil() as i32;
    let all = decades.flat_map(|decade| times.iter().map(move |times| times * 10f64.powi(decade)));
    all.filter(|tick| (low * 0.9999..=high * 1.0001).contains(tick)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scale(kind: Kind, figures: &[f64]) -> Scale {
        Scale::around(kind, figures.iter().copied(), (0.0, 100.0))
    }

    #[test]
    fn every_list_of_figures_has_an_axis() {
        for figures in [&[][..], &[0.0], &[5.0], &[-1.0, 3.0], &[f64::NAN, f64::INFINITY], &[0.0, 0.0], &[1e-9, 1e18]] {
            for kind in [Kind::Linear, Kind::Log] {
                let scale = scale(kind, figures).with_margin(0.05);
                assert!(scale.ends.0 < scale.ends.1 && scale.ends.1.is_finite(), "{figures:?}: {scale:?}");
                let ticks = scale.ticks(5);
                assert!(ticks.iter().all(|tick| scale.place(*tick).is_some()), "{figures:?}: {ticks:?}");
                assert!(!ticks.is_empty() && ticks.len() < 17 && ticks.is_sorted(), "{figures:?}: {ticks:?}");
            }
        }
    }

    #[test]
    fn places_are_even_in_differences_or_in_ratios() {
        assert_eq!(scale(Kind::Linear, &[0.0, 10.0]).place(5.0), Some(50.0));
        let log = scale(Kind::Log, &[1.0, 100.0]);
        assert!((log.place(10.0).expect("on it") - 50.0).abs() < 1e-9);
        assert_eq!((log.place(0.0), log.place(1000.0), log.place(f64::NAN)), (None, None, None));
    }

    #[test]
    fn ticks_are_round() {
        assert_eq!(scale(Kind::Linear, &[0.0, 10.0]).ticks(5), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(scale(Kind::Log, &[1.0, 1000.0]).ticks(6), [1.0, 10.0, 100.0, 1000.0]);
        assert_eq!(scale(Kind::Log, &[1.0, 10.0]).ticks(4), [1.0, 10.0]);
    }
}
