//! The resident size of a space, and its peak.
//!
//! # Guarantee
//! * The size is exact while nobody changes it.
//! * The peak is exact while one CPU has changed the size; beyond, up to twice [`slack`] pages of each CPU may be
//!   missing from it: twice as many as there are CPUs, and 64 at least. (Linux's is off by as much, or half of it on
//!   few CPUs: the batch of its `percpu_counter`, `lib/percpu_counter.c`, is 32 pages or two for each CPU.)
//!
//! # How
//! Each CPU counts on lines of its own, in frames of the space's own, and is a member of `counted` from its first
//! change on: a sum reads members alone. The words that all write lie there, too. A CPU that removes pages sums first,
//! because the size may be at its peak then. Where that would fetch other CPUs' lines, the CPU sums only if its own
//! count has moved by [`slack`] pages since its last sum, and any CPU's count has risen past a multiple of as many, or
//! fewer, since the last sum of all: a note says so. So a page that comes or goes costs one line of another CPU's at
//! most, on average, and one that goes where none come costs none.
//!
//! # What is missing
//! Between two sums in which nothing is noted to have risen, no count has risen by [`slack`] pages and one addition, so
//! that the size was never more than that above the first sum, for each CPU. From the moment on at which something is
//! noted until the end of the next sum, each CPU removes less than twice as much before it sums itself, so that the sum
//! is no further below a peak since.
//!
//! | race | why it is sound |
//! |---|---|
//! | a count rises beside a sum | both fence between their store and their look: the sum has the count, or the note that is made is not taken back at the sum's end, because it is not the one of the sum |
//! | a CPU removes pages beside a sum | the note says that somebody sums: so it sums as well |
//! | two CPUs sum | the note is that of the one which began last, and is taken back by it alone |

use crate::system::System;
use crate::translations::frames;
use faultless_phys::{FrameSource, OutOfFrames, Pfn};
use faultless_platform::{Atomic, InPlace, Ordering, PAGE_BYTES, Tracepoint};
use faultless_sync::AtomicCpuSet;

/// Returns by how many pages a CPU's count moves before it sums.
const fn slack(nr_cpus: usize) -> u64 {
    if nr_cpus < 32 { 32 } else { nr_cpus as u64 }
}

/// Returns the order of the frames that so many CPUs' cells take.
const fn order(nr_cpus: usize) -> u8 {
    (nr_cpus * CELL_BYTES).div_ceil(PAGE_BYTES).next_power_of_two().ilog2() as u8
}

/// Values of `note`: nothing has risen since the last sum; something has; a CPU is summing, by its number from here on.
const CLEAR: u64 = 0;
const RISEN: u64 = 1;
const SUMMING: u64 = 2;

/// Two lines: a processor that fetches one may fetch its neighbour with it.
const CELL_BYTES: usize = 128;
const SEEN_OFFSET: usize = size_of::<u64>();
/// Where the words that all CPUs write begin: on the second line of the first cell. Among the space's other words,
/// which each fault reads, every write of them would cost all CPUs a fetch.
const COMMON_OFFSET: usize = CELL_BYTES / 2;

/// Resident pages, counted by each CPU.
pub(crate) struct Resident<P: System> {
    cells: Pfn,
    /// No more than a [`CpuSet`](faultless_platform::CpuSet) has.
    nr_cpus: u16,
    counted: AtomicCpuSet<P>,
}

/// What all CPUs write, seldom.
struct Common<'a, P: System> {
    peak: &'a P::AtomicU64,
    /// Whether a count has risen far since the last sum.
    note: &'a P::AtomicU64,
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
        let cells = frames::alloc_row_zeroed(memory, order(nr_cpus))?;
        if P::WATCHED {
            let (address, len_bytes) = (memory.frame(cells).addr(), nr_cpus * CELL_BYTES);
            P::trace(Tracepoint::Named { name: "a space's counts of resident pages", address, len_bytes });
        }
        Ok(Self { cells, nr_cpus: nr_cpus as u16, counted: AtomicCpuSet::new() })
    }

    pub(crate) fn free(&self, memory: &P::Frames) {
        // SAFETY: the space that counted here has ended.
        unsafe { memory.free_order(self.cells, order(self.nr_cpus())) };
    }

    #[inline(always)]
    fn nr_cpus(&self) -> usize {
        usize::from(self.nr_cpus)
    }

    /// Returns a word of the cells' frames.
    #[inline(always)]
    fn word<'a>(&self, memory: &'a P::Frames, offset: usize) -> &'a P::AtomicU64 {
        debug_assert!(offset < self.nr_cpus() * CELL_BYTES);
        // SAFETY: the frames hold two lines for each CPU, zero at first, of which words are accessed atomically only.
        unsafe { P::AtomicU64::view(memory.frame(self.cells).add(offset).cast()) }
    }

    #[inline]
    fn cell<'a>(&self, memory: &'a P::Frames, cpu: usize) -> Cell<'a, P> {
        let [count, seen] = [0, SEEN_OFFSET].map(|offset| self.word(memory, cpu * CELL_BYTES + offset));
        Cell { count, seen }
    }

    #[inline]
    fn common<'a>(&self, memory: &'a P::Frames) -> Common<'a, P> {
        let [peak, note] = [0, size_of::<u64>()].map(|offset| self.word(memory, COMMON_OFFSET + offset));
        Common { peak, note }
    }

    #[inline(always)]
    pub(crate) fn add(&self, memory: &P::Frames, nr_pages: u64) {
        let (before, after) = self.change(memory, nr_pages);
        if (before ^ after) >> self.rise_shift() != 0 {
            self.note_rise(memory);
        }
    }

    /// Returns of which power of two a count that comes to a multiple is noted: the largest that [`slack`] has.
    #[inline(always)]
    fn rise_shift(&self) -> u32 {
        (self.nr_cpus() as u64 | slack(1)).ilog2()
    }

    /// Changes this CPU's count; returns what it was, and is.
    #[inline(always)]
    fn change(&self, memory: &P::Frames, added: u64) -> (u64, u64) {
        let cpu = P::cpu();
        let count = self.cell(memory, cpu).count;
        // Relaxed, and no read-modify-write: the cell has one owner.
        let before = count.load(Ordering::Relaxed);
        if before == 0 {
            self.counted.insert(cpu);
        }
        let after = before.wrapping_add(added);
        count.store(after, Ordering::Relaxed);
        (before, after)
    }

    /// Notes that this CPU's count has risen.
    #[cold]
    fn note_rise(&self, memory: &P::Frames) {
        let note = self.common(memory).note;
        // ORDER: a sequentially consistent fence pairs with the one in `sum_if_risen`: the sum has the count, or this
        // makes a note that the sum does not take back.
        P::fence(Ordering::SeqCst);
        // Relaxed, both: ordered by the fence; the line is written only if it must be.
        if note.load(Ordering::Relaxed) != RISEN {
            note.store(RISEN, Ordering::Relaxed);
        }
    }

    /// Subtracts pages that are no longer in the tables.
    pub(crate) fn remove(&self, memory: &P::Frames, nr_pages: u64) {
        self.change(memory, nr_pages.wrapping_neg());
    }

    /// As [`Resident::remove`], and notes how many there were, as far as the module says.
    pub(crate) fn shrink(&self, memory: &P::Frames, nr_pages: u64) {
        // Where at most one CPU has ever changed its count, a sum fetches no line of another.
        if self.counted.view().has_one_at_most(self.nr_cpus()) {
            // Relaxed: the CPU's own. Below zero if it took away what another has mapped and not counted yet.
            let own = self.cell(memory, P::cpu()).count.load(Ordering::Relaxed);
            if own.cast_signed() > 0 { self.raise_peak(memory, own) } else { self.note_peak(memory) }
        } else {
            self.sum_if_risen(memory, nr_pages);
        }
        self.remove(memory, nr_pages);
    }

    /// Notes how many pages there are before this CPU removes some, if it has moved far and any has risen; says whether
    /// it did.
    fn sum_if_risen(&self, memory: &P::Frames, nr_pages: u64) -> bool {
        let note = self.common(memory).note;
        // ORDER: Acquire pairs with the Release below: what the caller removes is missing from no sum that went before.
        let looks = note.load(Ordering::Acquire) != CLEAR && self.has_moved(memory, nr_pages);
        if looks {
            let own = SUMMING + P::cpu() as u64;
            // Relaxed: ordered by the fence.
            note.store(own, Ordering::Relaxed);
            // ORDER: pairs with the fence in `note_rise`.
            P::fence(Ordering::SeqCst);
            self.note_peak(memory);
            // ORDER: Release pairs with the Acquire above. It fails if a count has risen meanwhile, or another CPU has
            // begun to sum, which then takes the note back.
            _ = note.compare_exchange(own, CLEAR, Ordering::Release, Ordering::Relaxed);
        }
        looks
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
        self.raise_peak(memory, self.pages(memory));
    }

    #[inline]
    fn raise_peak(&self, memory: &P::Frames, pages: u64) {
        let word = self.common(memory).peak;
        // Relaxed: a statistic; the loop keeps the largest.
        let mut peak = word.load(Ordering::Relaxed);
        while pages > peak {
            match word.compare_exchange(peak, pages, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return,
                Err(other) => peak = other,
            }
        }
    }

    pub(crate) fn peak(&self, memory: &P::Frames) -> u64 {
        // Relaxed: a statistic.
        self.common(memory).peak.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultless_phys::{Memory, Options};
    use faultless_platform::native::{HostRegion, Machine, Native};
    use std::sync::Barrier;

    const NR_CPUS: usize = 24;
    const SLACK: u64 = slack(NR_CPUS);

    /// Does something with new counts on a machine of so many CPUs.
    fn with_counts<R>(nr_cpus: usize, act: impl FnOnce(&Machine, &Memory<Native>, &Resident<Native>) -> R) -> R {
        let (machine, region) = (Machine::new(nr_cpus), HostRegion::reserve(4 << 20).unwrap());
        // SAFETY: the region is ours and outlives the memory.
        let memory =
            unsafe { Memory::<Native>::new(region.base(), region.len_bytes(), nr_cpus, Options::default()).unwrap() };
        let resident = machine.attach(|| Resident::<Native>::new(&memory).unwrap());
        let result = act(&machine, &memory, &resident);
        machine.attach(|| resident.free(&memory));
        drop(memory);
        result
    }

    /// Has as many CPUs as given turns to do something with counts that are new.
    fn in_turns(turns: &[(u64, u64)]) -> (u64, u64) {
        with_counts(turns.len(), |machine, memory, resident| {
            let barrier = Barrier::new(turns.len());
            let next = std::sync::Mutex::new(turns.iter());
            std::thread::scope(|scope| {
                for _ in turns {
                    scope.spawn(|| {
                        machine.attach(|| {
                            // All have a CPU of their own.
                            barrier.wait();
                            let mut next = next.lock().unwrap();
                            let &(added, removed) = next.next().unwrap();
                            resident.add(memory, added);
                            resident.shrink(memory, removed);
                        });
                    });
                }
            });
            machine.attach(|| (resident.pages(memory), resident.peak(memory)))
        })
    }

    #[test]
    fn the_peak_is_exact_on_one_cpu() {
        let counted = with_counts(2, |machine, memory, resident| {
            machine.attach(|| {
                for (added, removed) in [(10, 9), (1, 1), (2, 3)] {
                    resident.add(memory, added);
                    resident.shrink(memory, removed);
                }
                (resident.pages(memory), resident.peak(memory))
            })
        });
        assert_eq!(counted, (0, 10));
    }

    // Another CPU has mapped a page and not counted it yet.
    #[test]
    fn pages_that_go_before_they_were_counted_raise_no_peak() {
        let counted = with_counts(2, |machine, memory, resident| {
            machine.attach(|| {
                resident.shrink(memory, 1);
                resident.shrink(memory, 1);
                resident.add(memory, 2);
                (resident.pages(memory), resident.peak(memory))
            })
        });
        assert_eq!(counted, (0, 0));
    }

    #[test]
    fn beside_others_a_peak_is_noted_by_who_takes_many_away_or_has_added_many() {
        let few = [(3, 2); NR_CPUS - 1];
        let with = |added, removed| in_turns(&[&few[..], &[(added, removed)]].concat());
        let nr_before = few.len() as u64;
        assert_eq!(with(SLACK, 1), (nr_before + SLACK - 1, nr_before + SLACK));
        assert_eq!(with(100, 100), (nr_before, nr_before + 100));
        assert_eq!(with(0, 0), (nr_before, 3), "the first one alone has looked");
        assert_eq!(with(0, SLACK), (0, 3), "nothing has risen far");
        let taken = in_turns(&[&[(SLACK, 0)], &few[1..], &[(0, SLACK)]].concat());
        assert_eq!(taken, (nr_before - 1, nr_before - 1 + SLACK));
    }

    #[test]
    fn the_more_cpus_there_are_the_less_often_one_sums() {
        assert_eq!([1, 31, 32, 33, 384].map(slack), [32, 32, 32, 33, 384]);
    }

    #[test]
    fn who_removes_sums_once_behind_a_rise() {
        with_counts(NR_CPUS, |machine, memory, resident| {
            machine.attach(|| {
                let remove = || {
                    let looks = resident.sum_if_risen(memory, SLACK);
                    resident.remove(memory, SLACK);
                    looks
                };
                resident.add(memory, SLACK - 1);
                assert!(!remove(), "nothing has risen far");
                resident.add(memory, 10 * SLACK);
                assert_eq!([remove(), remove(), remove()], [true, false, false]);
                resident.add(memory, SLACK);
                assert_eq!([remove(), remove()], [true, false]);
                // Another CPU is in the middle of its sum: until that has ended, everybody sums.
                let note = resident.common(memory).note;
                note.store(SUMMING + 1, Ordering::Relaxed);
                assert!(remove());
                assert_eq!(note.load(Ordering::Relaxed), CLEAR);
            });
        });
    }

    #[test]
    fn what_many_cpus_miss_of_a_peak_is_bounded() {
        let turns = [(SLACK - 1, SLACK - 2); NR_CPUS];
        let (pages, peak) = in_turns(&turns);
        let largest = turns.len() as u64 + SLACK - 2;
        assert_eq!(pages, turns.len() as u64);
        assert!(peak <= largest && largest <= peak + 2 * SLACK * turns.len() as u64, "{peak} of {largest}");
        assert!(peak >= SLACK - 1, "the first one looks each time: {peak}");
    }
}
