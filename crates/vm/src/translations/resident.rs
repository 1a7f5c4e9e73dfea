//! The resident size of a space, and its peak.
//!
//! # Guarantee
//! * The size is exact while nobody changes it.
//! * The peak is exact while at most [`NR_SUMMED`] CPUs have changed the size; beyond, up to twice [`slack`] pages of
//!   each CPU may be missing from it: twice as many as there are CPUs, and 64 at least. (Linux's is off by as much, or
//!   half of it on few CPUs: the batch of its `percpu_counter`, `lib/percpu_counter.c`, is 32 pages or two for each
//!   CPU.)
//!
//! # How
//! Each CPU counts on lines of its own, in frames of the space's own, and is a member of `counted` from its first
//! change on: a sum reads members alone. A CPU that removes pages sums first, because the size may be at its peak
//! then. Where a sum is expensive, the CPU sums only if its own count has moved by [`slack`] pages since its last sum.
//! So it removes less than twice as much without summing, and a page that comes or goes costs one line of another CPU's
//! at most, on average.

use crate::system::System;
use crate::translations::frames;
use faultless_phys::{FrameSource, OutOfFrames, Pfn};
use faultless_platform::{Atomic, InPlace, Ordering, PAGE_BYTES};
use faultless_sync::AtomicCpuSet;

/// How many CPUs' counts are summed each time.
const NR_SUMMED: usize = 8;

/// Returns by how many pages a CPU's count moves before it sums.
const fn slack(nr_cpus: usize) -> u64 {
    if nr_cpus < 32 { 32 } else { nr_cpus as u64 }
}

/// Two lines: a processor that fetches one may fetch its neighbour with it.
const CELL_BYTES: usize = 128;
const SEEN_OFFSET: usize = size_of::<u64>();

/// Resident pages, counted by each CPU.
pub(crate) struct Resident<P: System> {
    cells: Pfn,
    order: u8,
    /// No more than a [`CpuSet`](faultless_platform::CpuSet) has.
    nr_cpus: u16,
    peak: P::AtomicU64,
    counted: AtomicCpuSet<P>,
}

/// What one CPU keeps.
struct Cell<'a, P: System> {
    /// Added less taken away here.
    count: &'a P::AtomicU64,
    /// What `count` was at this CPU's last look at the sum.
    seen: &'a P::AtomicU64,
}

impl<P: System> Resident<P> {
    pub(crate) fn new(memory: &P::Frames) -> Result<Self, OutOfFrames> {
        let nr_cpus = P::nr_cpus();
        let order = (nr_cpus * CELL_BYTES).div_ceil(PAGE_BYTES).next_power_of_two().ilog2() as u8;
        let cells = frames::alloc_row_zeroed(memory, order)?;
        Ok(Self { cells, order, nr_cpus: nr_cpus as u16, peak: P::AtomicU64::new(0), counted: AtomicCpuSet::new() })
    }

    pub(crate) fn free(&self, memory: &P::Frames) {
        // SAFETY: the space that counted here has ended.
        unsafe { memory.free_order(self.cells, self.order) };
    }

    #[inline(always)]
    fn nr_cpus(&self) -> usize {
        usize::from(self.nr_cpus)
    }

    #[inline]
    fn cell<'a>(&self, memory: &'a P::Frames, cpu: usize) -> Cell<'a, P> {
        debug_assert!(cpu < self.nr_cpus());
        // SAFETY: the frames hold two lines for each CPU, of which words are accessed atomically only.
        let word = |offset| unsafe {
            let cell = memory.frame(self.cells).add(cpu * CELL_BYTES);
            P::AtomicU64::view(cell.add(offset).cast())
        };
        Cell { count: word(0), seen: word(SEEN_OFFSET) }
    }

    #[inline(always)]
    pub(crate) fn add(&self, memory: &P::Frames, nr_pages: u64) {
        let cpu = P::cpu();
        let count = self.cell(memory, cpu).count;
        // Relaxed, and no read-modify-write: the cell has one owner.
        let before = count.load(Ordering::Relaxed);
        if before == 0 {
            self.counted.insert(cpu);
        }
        count.store(before.wrapping_add(nr_pages), Ordering::Relaxed);
    }

    /// Subtracts pages that are no longer in the tables.
    pub(crate) fn remove(&self, memory: &P::Frames, nr_pages: u64) {
        self.add(memory, nr_pages.wrapping_neg());
    }

    /// As [`Resident::remove`], and notes how many there were, as far as the module says.
    pub(crate) fn shrink(&self, memory: &P::Frames, nr_pages: u64) {
        if self.is_few() || self.has_moved(memory, nr_pages) {
            self.note_peak(memory);
        }
        self.remove(memory, nr_pages);
    }

    /// Says whether a sum is cheap.
    fn is_few(&self) -> bool {
        self.nr_cpus() <= NR_SUMMED || self.members().nth(NR_SUMMED).is_none()
    }

    /// Says whether this CPU's count will have moved far since its last look, or has; if so, this is a look.
    fn has_moved(&self, memory: &P::Frames, nr_pages: u64) -> bool {
        let Cell { count, seen } = self.cell(memory, P::cpu());
        // Relaxed: the CPU's own.
        let (count, last) = (count.load(Ordering::Relaxed), seen.load(Ordering::Relaxed));
        let is_far = |count: u64| count.wrapping_sub(last).cast_signed().unsigned_abs() >= slack(self.nr_cpus());
        let has_moved = is_far(count) || is_far(count.wrapping_sub(nr_pages));
        if has_moved {
            seen.store(count.wrapping_sub(nr_pages), Ordering::Relaxed);
        }
        has_moved
    }

    pub(crate) fn pages(&self, memory: &P::Frames) -> u64 {
        // Relaxed: a sum of single cells; a passing negative sum reads as 0.
        let sum = self.members().map(|cpu| self.cell(memory, cpu).count.load(Ordering::Relaxed));
        u64::try_from(sum.fold(0, u64::wrapping_add).cast_signed()).unwrap_or(0)
    }

    fn members(&self) -> impl Iterator<Item = usize> {
        self.counted.members_below(self.nr_cpus())
    }

    pub(crate) fn note_peak(&self, memory: &P::Frames) {
        let pages = self.pages(memory);
        // Relaxed: a statistic; the loop keeps the largest.
        let mut peak = self.peak.load(Ordering::Relaxed);
        while pages > peak {
            match self.peak.compare_exchange(peak, pages, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return,
                Err(other) => peak = other,
            }
        }
    }

    pub(crate) fn peak(&self) -> u64 {
        // Relaxed: a statistic.
        self.peak.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultless_phys::{Memory, Options};
    use faultless_platform::native::{HostRegion, Machine, Native};
    use std::sync::Barrier;

    const SLACK: u64 = slack(3 * NR_SUMMED);

    /// Has as many CPUs as given turns to do something with counts that are new.
    fn in_turns(turns: &[(u64, u64)]) -> (u64, u64) {
        let (machine, region) = (Machine::new(turns.len()), HostRegion::reserve(4 << 20).unwrap());
        let barrier = Barrier::new(turns.len());
        // SAFETY: the region is ours and outlives the memory.
        let memory = unsafe {
            Memory::<Native>::new(region.base(), region.len_bytes(), turns.len(), Options::default()).unwrap()
        };
        let resident = machine.attach(|| Resident::<Native>::new(&memory).unwrap());
        let next = std::sync::Mutex::new(turns.iter());
        std::thread::scope(|scope| {
            for _ in turns {
                scope.spawn(|| {
                    machine.attach(|| {
                        // All have a CPU of their own.
                        barrier.wait();
                        let mut next = next.lock().unwrap();
                        let &(added, removed) = next.next().unwrap();
                        resident.add(&memory, added);
                        resident.shrink(&memory, removed);
                    });
                });
            }
        });
        let counted = machine.attach(|| {
            let counted = (resident.pages(&memory), resident.peak());
            resident.free(&memory);
            counted
        });
        drop(memory);
        counted
    }

    #[test]
    fn the_peak_is_exact_on_few_cpus() {
        assert_eq!(in_turns(&[(10, 10), (30, 1), (5, 34)]), (0, 34));
        assert_eq!(in_turns(&[(1, 1); NR_SUMMED]), (0, 1));
    }

    #[test]
    fn on_many_cpus_a_peak_is_noted_by_who_takes_many_away_or_has_added_many() {
        let few = [(3, 2); NR_SUMMED];
        let with = |added, removed| in_turns(&[&few[..], &[(added, removed)]].concat());
        let nr_before = NR_SUMMED as u64;
        assert_eq!(with(0, SLACK), (0, nr_before + 2));
        assert_eq!(with(SLACK, 1), (nr_before + SLACK - 1, nr_before + SLACK));
        assert_eq!(with(100, 100), (nr_before, nr_before + 100));
    }

    #[test]
    fn the_more_cpus_there_are_the_less_often_one_sums() {
        assert_eq!([1, 31, 32, 33, 384].map(slack), [32, 32, 32, 33, 384]);
    }

    #[test]
    fn what_many_cpus_miss_of_a_peak_is_bounded() {
        let turns = [(SLACK - 1, SLACK - 2); 3 * NR_SUMMED];
        let (pages, peak) = in_turns(&turns);
        let largest = turns.len() as u64 + SLACK - 2;
        assert_eq!(pages, turns.len() as u64);
        assert!(peak <= largest && largest <= peak + 2 * SLACK * turns.len() as u64, "{peak} of {largest}");
        assert!(peak >= SLACK - 1 + NR_SUMMED as u64 - 1, "the first ones look each time: {peak}");
    }
}
