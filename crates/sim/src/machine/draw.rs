//! Machines drawn from the ranges of what was guessed.
//!
//! # Guarantee
//! A drawn machine differs from its file in numbers that have a range alone, each within its range, and can be
//! simulated: a nearer level never costs more than a farther one.

use super::spec::{Number, Spec, is_whole};

/// A transfer's levels, from near to far.
const LEVELS: [&str; 5] = ["sibling_ns", "complex_ns", "socket_ns", "remote_ns", "far_ns"];

impl Spec {
    /// Returns the keys of the numbers that a draw changes: those whose range is more than a point.
    pub fn drawn_keys(&self) -> Vec<String> {
        let mut keys = Vec::new();
        self.for_each_number(|key, number| {
            if number.range.is_some_and(|[low, high]| low < high) {
                keys.push(key.to_owned());
            }
        });
        keys
    }

    /// Returns the machine with each such number where `quantile` says: 0 is the least of its range, 1 the most.
    /// Between them equal factors are equally far apart, or equal differences where the least is 0.
    ///
    /// ```
    /// let spec = faultless_sim::Spec::preset("epyc-384").expect("a preset");
    /// let slow = spec.drawn(&mut |_| 1.0);
    /// assert!(slow.number("cpu.clock_ns") > spec.number("cpu.clock_ns"));
    /// assert_eq!(slow.number("cpu.rmw_ns"), spec.number("cpu.rmw_ns"), "measured");
    /// ```
    pub fn drawn(&self, quantile: &mut dyn FnMut(&str) -> f64) -> Self {
        let mut drawn = self.clone();
        for key in self.drawn_keys() {
            let at = quantile(&key).clamp(0.0, 1.0);
            if let Some(number) = drawn.slot(&key) {
                place(number, at, is_whole(&key));
            }
        }
        for table in ["read", "write"] {
            drawn.put_in_order(table);
        }
        drawn
    }

    /// Moves what was drawn of a transfer's levels so far that none costs more than a farther one.
    fn put_in_order(&mut self, table: &str) {
        let mut levels = LEVELS.map(|level| {
            let number = self.slot(&format!("{table}.{level}"));
            number.map_or((0.0, false), |number| (number.value, number.range.is_some()))
        });
        for level in 1..levels.len() {
            if levels[level].1 {
                levels[level].0 = levels[level].0.max(levels[level - 1].0);
            }
        }
        for level in (1..levels.len()).rev() {
            levels[level - 1].0 = levels[level - 1].0.min(levels[level].0);
        }
        for (level, (value, _)) in LEVELS.iter().zip(levels) {
            if let Some(number) = self.slot(&format!("{table}.{level}")) {
                number.value = value;
            }
        }
    }
}

fn place(number: &mut Number, at: f64, is_whole: bool) {
    let Some([low, high]) = number.range else { return };
    let value = if low > 0.0 { low * (high / low).powf(at) } else { low + (high - low) * at };
    // A power may miss the end by a rounding.
    let value = value.clamp(low, high);
    number.value = if is_whole { value.round() } else { value };
}

#[cfg(test)]
mod tests {
    use super::super::presets::MACHINES;
    use super::*;

    #[test]
    fn every_draw_of_every_machine_can_be_simulated() {
        for (name, text) in MACHINES {
            let spec = Spec::parse(text).expect("a preset");
            let mut turn = 0_u32;
            for case in 0..6_u32 {
                let drawn = spec.drawn(&mut |_| {
                    turn += 1;
                    match case {
                        0 => 0.0,
                        1 => 1.0,
                        _ => f64::from(turn.wrapping_mul(0x9e37_79b9)) / f64::from(u32::MAX),
                    }
                });
                assert_eq!(Spec::parse(&drawn.to_toml()).as_ref(), Ok(&drawn), "{name}, case {case}");
            }
        }
    }

    #[test]
    fn what_has_no_range_stays_and_the_middle_is_the_geometric_one() {
        let spec = Spec::preset("skylake-192").expect("a preset");
        let middle = spec.drawn(&mut |_| 0.5);
        let keys = spec.drawn_keys();
        let mut changed = 0;
        spec.for_each_number(|key, number| match number.range {
            Some([low, high]) if low > 0.0 && low < high => {
                let drawn = middle.number(key).expect("the same keys");
                assert!((drawn - (low * high).sqrt()).abs() < 1e-9 * drawn, "{key}: {drawn}");
                changed += 1;
            }
            Some(_) => {}
            None => assert!(middle.number(key) == Some(number.value) && !keys.contains(&key.to_owned())),
        });
        assert!(changed > 20 && keys.len() >= changed, "{changed}");
    }

    #[test]
    fn a_near_level_that_was_drawn_stays_below_a_far_one() {
        let mut spec = Spec::preset("numaq-16").expect("a preset");
        let most = spec.number("read.socket_ns").expect("a key");
        let near = spec.slot("read.complex_ns").expect("a key");
        near.range = Some([near.value, most * 3.0]);
        let drawn = spec.drawn(&mut |_| 1.0);
        assert_eq!(drawn.number("read.complex_ns"), Some(most));
        assert!(Spec::parse(&drawn.to_toml()).is_ok());
    }
}
