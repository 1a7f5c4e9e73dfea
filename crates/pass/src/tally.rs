//! What came out of a pass.
//!
//! # Guarantee
//! Tallies of threads add up to the pass's; of the mismatches the first ones by event number are kept in words, and all
//! are counted.

use faultless_plan::classes::Class;
use faultless_results::stats::Histogram;

/// How many mismatches are kept in words.
const WORDS_KEPT: usize = 20;

/// Something that is not as recorded, and that nothing explains.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mismatch {
    /// The event's number in the trace.
    pub event: u32,
    /// What is not as recorded.
    pub what: String,
}

/// What threads counted and measured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Accesses that faulted.
    pub faulted: u64,
    /// Steps that were executed.
    pub steps: u64,
    /// Accesses that differ as their class allows, by class.
    pub classified: [u64; Class::ALL.len()],
    /// Mismatches.
    pub mismatches: u64,
    /// The first of them.
    pub first_mismatches: Vec<Mismatch>,
    /// Words read back that held what they must.
    pub read_back: u64,
    /// Latencies of accesses that faulted.
    pub fault_ns: Histogram,
    /// Latencies of map calls.
    pub call_ns: Histogram,
    /// The largest resident size of a space, in pages.
    pub peak_pages: u64,
    /// When the first step began; nothing before it.
    pub began_ns: Option<u64>,
    /// When the last step ended.
    pub ended_ns: u64,
}

impl Tally {
    /// Counts a mismatch.
    pub fn mismatch(&mut self, event: u32, what: String) {
        self.mismatches += 1;
        self.keep(Mismatch { event, what });
    }

    fn keep(&mut self, mismatch: Mismatch) {
        let place = self.first_mismatches.partition_point(|kept| *kept <= mismatch);
        self.first_mismatches.insert(place, mismatch);
        self.first_mismatches.truncate(WORDS_KEPT);
    }

    /// Counts a difference that its class allows.
    pub fn classify(&mut self, class: Class) {
        self.classified[class as usize] += 1;
    }

    /// Adds another tally.
    pub fn add(&mut self, other: Tally) {
        self.faulted += other.faulted;
        self.steps += other.steps;
        self.classified.iter_mut().zip(other.classified).for_each(|(count, more)| *count += more);
        self.mismatches += other.mismatches;
        other.first_mismatches.into_iter().for_each(|mismatch| self.keep(mismatch));
        self.read_back += other.read_back;
        self.fault_ns.add(&other.fault_ns);
        self.call_ns.add(&other.call_ns);
        self.peak_pages = self.peak_pages.max(other.peak_pages);
        self.began_ns = [self.began_ns, other.began_ns].into_iter().flatten().min();
        self.ended_ns = self.ended_ns.max(other.ended_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_mismatches_are_kept_and_all_are_counted() {
        let mut tally = Tally::default();
        (0..30).rev().for_each(|event| tally.mismatch(event * 2, "x".into()));
        let mut other = Tally { began_ns: Some(5), ended_ns: 9, ..Tally::default() };
        other.mismatch(1, "y".into());
        tally.add(other);
        assert_eq!(tally.mismatches, 31);
        let events: Vec<u32> = tally.first_mismatches.iter().map(|mismatch| mismatch.event).collect();
        assert_eq!(events[..4], [0, 1, 2, 4]);
        assert_eq!((events.len(), tally.began_ns, tally.ended_ns), (WORDS_KEPT, Some(5), 9));
    }
}
