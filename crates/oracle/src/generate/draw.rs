//! Numbers drawn from a seed.
//!
//! # Guarantee
//! The same seed draws the same numbers, on every machine and in every release (splitmix64, Steele and others 2014).

/// A source of numbers.
#[derive(Clone, Debug)]
pub(crate) struct Draw {
    state: u64,
}

impl Draw {
    /// Returns the source of a seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Returns the source of the `number`th of many things that are drawn from a seed.
    pub(crate) fn nth(seed: u64, number: u64) -> Self {
        let mut first = Self::new(seed);
        let mixed = first.next() ^ number.wrapping_mul(0xd129_0d3f_a6c4_1ec5);
        Self::new(Self::new(mixed).next())
    }

    /// Returns any number.
    pub(crate) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `end`, which is not 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }

    /// Returns a number of a range that is not empty.
    pub(crate) fn within(&mut self, range: std::ops::Range<u64>) -> u64 {
        range.start + self.below(range.end - range.start)
    }

    /// Says yes so many times of a thousand.
    pub(crate) fn chance(&mut self, thousandths: u64) -> bool {
        self.below(1000) < thousandths
    }

    /// Returns one of several.
    pub(crate) fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }

    /// Returns one of several, by weight.
    pub(crate) fn weighted<T: Copy>(&mut self, of: &[(T, u64)]) -> T {
        let total = of.iter().map(|(_, weight)| weight).sum();
        let mut place = self.below(total);
        for &(thing, weight) in of {
            if place < weight {
                return thing;
            }
            place -= weight;
        }
        of[0].0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_a_seed_stay() {
        let mut draw = Draw::new(7);
        assert_eq!([draw.next(), draw.next()], [0x63cb_e1e4_5932_0dd7, 0x044c_3cd7_f43c_661c]);
        let mut heads = 0;
        (0..1000).for_each(|number| heads += u64::from(Draw::nth(1, number).chance(500)));
        assert!((420..580).contains(&heads), "{heads}");
    }
}
