//! A plain set of CPU slots, as passed to a shootdown.

/// The largest number of CPU slots that a machine may have.
pub const MAX_CPUS: usize = 1024;

/// CPUs whose slots' numbers are next to each other form groups of `1 << GROUP_BITS`: as many as share a last-level
/// cache on the machines with the most. What all CPUs would write is kept for each group.
pub const GROUP_BITS: u32 = 3;

const WORDS: usize = MAX_CPUS / 64;

/// A set of CPU slots by number, 0 to [`MAX_CPUS`] - 1.
///
/// ```
/// use faultless_platform::{CpuSet, MAX_CPUS};
///
/// let mut set = CpuSet::new();
/// set.insert(MAX_CPUS - 1);
/// set.insert_word(1, 0b11);
/// set.remove(65);
/// assert!(set.contains(64) && !set.is_empty());
/// assert!(set.iter().eq([64, MAX_CPUS - 1]));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuSet {
    words: [u64; WORDS],
}

impl CpuSet {
    /// Returns the empty set.
    pub const fn new() -> Self {
        Self { words: [0; WORDS] }
    }

    /// Adds a CPU.
    ///
    /// # Panics
    /// If `cpu` is [`MAX_CPUS`] or more: no machine hands out such a number.
    #[inline]
    pub fn insert(&mut self, cpu: usize) {
        self.words[cpu / 64] |= 1 << (cpu % 64);
    }

    /// Removes a CPU; one that can't be in the set is no error.
    #[inline]
    pub fn remove(&mut self, cpu: usize) {
        if let Some(word) = self.words.get_mut(cpu / 64) {
            *word &= !(1 << (cpu % 64));
        }
    }

    /// Adds the CPUs of one word: bit `b` of `bits` is CPU `64 * word + b`.
    #[inline]
    pub fn insert_word(&mut self, word: usize, bits: u64) {
        self.words[word] |= bits;
    }

    /// Says whether a CPU is in the set; any number may be asked for.
    #[inline]
    pub fn contains(&self, cpu: usize) -> bool {
        self.words.get(cpu / 64).is_some_and(|word| word & (1 << (cpu % 64)) != 0)
    }

    /// Says whether no CPU is in the set.
    #[inline]
    pub fn is_empty(&self) -> bool {
        // All words at once: several in one instruction, where the first that is not 0 would be a branch each.
        self.words.iter().fold(0, |all, word| all | word) == 0
    }

    /// Visits the CPUs, ascending.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.words.iter().enumerate().flat_map(|(index, &word)| {
            let mut rest = word;
            core::iter::from_fn(move || {
                (rest != 0).then(|| {
                    let bit = rest.trailing_zeros() as usize;
                    rest &= rest - 1;
                    index * 64 + bit
                })
            })
        })
    }
}

impl Default for CpuSet {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_what_was_inserted_ascending() {
        let mut set = CpuSet::new();
        set.remove(MAX_CPUS);
        assert!(!set.contains(MAX_CPUS) && !set.contains(usize::MAX), "no CPU has such a number");
        assert!(set.is_empty());
        for cpu in [1023, 0, 64, 63, 64] {
            set.insert(cpu);
        }
        set.remove(63);
        assert!(set.contains(1023) && !set.contains(63));
        assert!(set.iter().eq([0, 64, 1023]));
    }
}
