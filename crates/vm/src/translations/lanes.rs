//! Who used which part of a space: a change asks only those CPUs that it may be about.
//!
//! # Guarantee
//! A space whose mappings are spread has *lanes*: the ranges in which its CPUs map (`Shape`), and the rest. Each lane
//! has a set of CPUs; the rest has one, or many, among which its *granules*, aligned pieces of 2 MiB, are dealt out:
//! each granule is a lane then, and some share a set. Whoever takes something of a range away, fences, and then reads
//! the sets of the lanes that the range lies in, and the set of those that may be everywhere, has all CPUs that may
//! still use it. A range of many lanes is everybody's. A space without lanes has one set, of all its users.
//!
//! # Invariants
//! * L1 a CPU is in the set of an address's lane, or in `everywhere`, before it walks to that address, and before it
//!   looks up areas for a fault there without the space's lock; a fence lies between. It stays there until it is out of
//!   guest and of that fault's RCU section.
//! * L2 a CPU that is in any set is among the users.
//! * L3 a CPU whose walks are not seen (its hardware's, an emulator's) is in `everywhere` before it uses any.
//! * L4 who walks a table is in the lane of the address that it walks to. So a table that is freed is shot down in all
//!   lanes that it spans, whatever the range was that emptied it.
//!
//! # Race: a CPU comes into a lane
//! ```text
//! CPU T                                       CPU S
//! users, then the lane: T in them? insert     clears the entry, or announces a change
//! fence SeqCst (guest_enter, RCU section)     fence SeqCst
//! walks; or is the change announced?          reads the lane's set, and everywhere's; asks, or waits for their sections
//! ```
//! Of the two fences one comes first. T's: S reads T's bit. S's: T sees what S did. Forbidden: T uses what S took away,
//! and S misses T. Model: `sync/tests/models/cpu_set.rs`; mutants `lane-entered-late`, `lane-read-early`.
//!
//! | race | why it is sound |
//! |---|---|
//! | T is in the lane already, and a change takes it out | only who finds T idle, and its own request still in T's inbox, does so (`shootdown`): T drains before it walks, and then comes into the lane again |
//! | T is busy, was asked often, and is taken out of its lane | only who finds T in no section, and its own request still in T's inbox, does so; a fault looks at the set within its section, and whether it is taken out just now (`shootdown`) |
//! | T is taken out of the users, and of all lanes, while it comes into one | as above: T drains, and then inserts itself into both |
//! | T is taken out of one lane, and stays in others and among the users | T forgets the whole space; the sets of the others name it without need |
//! | a fault of T, which has drained but not come back into the lane | it finds its bit gone and goes on under the semaphore, or in place, and is waited for |
//! | a fault looks at a neighbour's root, whose lane is another | it does so only if its area and the pages around it lie in one lane; else, where there is a neighbour, the root is given under the semaphore. A change is awaited in the lanes of all areas that take part, and of the pages around them |
//!
//! # Memory
//! A set for each CPU and two more, each on lines of its own: 32 KiB where there are 384 CPUs. Where the rest has many
//! sets, another 64 KiB. One CPU has none, nor has a space whose mappings lie where Linux puts them. Behind the sets
//! lie words that are the space's own (`space::credits`): frames hold both, because a space fills a frame itself.

use crate::system::System;
use crate::translations::frames;
use core::iter::once;
use core::ops::Range;
use faultless_phys::{FrameSource, OutOfFrames, Pfn};
use faultless_platform::{CpuSet, PAGE_BYTES};
use faultless_sync::{AtomicCpuSet, CpuSetView};

/// Ranges begin at a multiple of this: what the upper two levels of page tables divide.
const UNIT: u64 = 1 << 30;
const LINE_BYTES: usize = 64;
const LINE_WORDS: usize = LINE_BYTES / size_of::<u64>();
/// A range of more lanes is everybody's.
const MOST_LANES: u64 = 4;
/// What a set of the rest is for, where that has several: what a leaf table translates.
const GRANULE_SHIFT: u32 = 21;
/// A range of the rest with more granules is everybody's.
const MOST_GRANULES: u64 = 8;

/// Where the CPUs' ranges lie: of a power of two, each at a multiple of its length, the first CPU's highest.
///
/// Above them all one such range at least is nobody's: there lies what was mapped before there were several, and what
/// fits nowhere else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    shift: u32,
    /// The number of the first CPU's range: its first address by its length.
    top: u64,
    nr_cpus: u64,
}

/// Which sets a range is the business of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    Users,
    /// Ranges by number, the first and the last.
    Ranges(u64, u64),
    /// Granules of the rest by number, the first and the last.
    Granules(u64, u64),
}

impl Shape {
    /// Divides a room into the largest ranges of which each CPU gets one; nothing if it is too small.
    pub(crate) fn new(nr_cpus: usize, room: &Range<u64>) -> Option<Self> {
        let nr_cpus = nr_cpus as u64;
        (UNIT.trailing_zeros()..u64::BITS - 1).rev().find_map(|shift| {
            let top = (room.end >> shift).checked_sub(2)?;
            let lowest = room.start.div_ceil(1 << shift);
            (top + 1 >= lowest + nr_cpus).then_some(Self { shift, top, nr_cpus })
        })
    }

    /// Returns a CPU's range.
    pub(crate) fn range_of(&self, cpu: usize) -> Range<u64> {
        let number = self.top - cpu as u64;
        number << self.shift..(number + 1) << self.shift
    }

    #[inline]
    pub(crate) fn number_of(&self, address: u64) -> u64 {
        address >> self.shift
    }

    /// Returns the CPU whose range has a number, or `nr_cpus` if that is nobody's.
    #[inline]
    pub(crate) fn lane(&self, number: u64) -> usize {
        self.top.wrapping_sub(number).min(self.nr_cpus) as usize
    }
}

/// How a space's mappings are spread.
#[derive(Clone, Debug)]
pub(crate) struct Spread {
    /// The room in which CPUs get ranges.
    pub(crate) room: Range<u64>,
    /// Over how many sets the granules of the rest are dealt out: 1, or another power of two.
    pub(crate) nr_rest_sets: usize,
    /// How many words of its own the space has beside the sets ([`Lanes::own_words`]).
    pub(crate) nr_own_words: usize,
}

/// The sets of a space; see the module.
pub(crate) struct Lanes<P: System> {
    /// All CPUs that may have translations of the space (mm_cpumask).
    users: AtomicCpuSet<P>,
    shape: Option<Shape>,
    row: Option<Row<P>>,
}

/// The lanes' sets, in frames of the space's own.
struct Row<P: System> {
    shape: Shape,
    first: *const P::AtomicU64,
    /// From one set to the next.
    nr_words_apart: usize,
    nr_words: usize,
    frames: Pfn,
    order: u8,
    /// The rest has two to the power of this many sets.
    rest_order: u8,
    /// Lines behind the sets.
    nr_own_lines: u16,
}

/// Where a CPU walks.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Walks {
    /// To this address.
    To(u64),
    /// Wherever it likes, unseen.
    Everywhere,
}

impl<P: System> Lanes<P> {
    /// Makes the sets of an empty space, whose mappings may be spread.
    pub(crate) fn new(memory: &P::Frames, spread: Option<&Spread>) -> Result<Self, OutOfFrames> {
        let shape = spread.and_then(|spread| Shape::new(P::nr_cpus(), &spread.room));
        let with_row = spread.zip(shape).filter(|_| P::nr_cpus() > 1);
        let row = with_row.map(|(spread, shape)| Row::new(memory, shape, spread)).transpose()?;
        Ok(Self { users: AtomicCpuSet::new(), shape, row })
    }

    /// Gives the frames back; nobody uses the space any more.
    pub(crate) fn free(&self, memory: &P::Frames) {
        if let Some(row) = &self.row {
            // SAFETY: the space whose CPUs stood there has ended, or never began.
            unsafe { memory.free_order(row.frames, row.order) };
        }
    }

    /// Returns all CPUs that may have translations of the space.
    #[inline]
    pub(crate) fn users(&self) -> &AtomicCpuSet<P> {
        &self.users
    }

    /// Returns the words that the space asked for, on lines of their own and zero at first, if there are lanes.
    #[inline]
    pub(crate) fn own_words(&self) -> Option<&[P::AtomicU64]> {
        self.row.as_ref().map(Row::own_words)
    }

    /// Returns where those words begin.
    pub(crate) fn own_place(&self) -> Option<*mut u64> {
        let row = self.row.as_ref()?;
        // SAFETY: they lie behind the sets, in the row's frames.
        Some(unsafe { row.first.add(row.nr_words_of_sets()) }.cast_mut().cast())
    }

    /// Returns where the CPUs' ranges lie, if mappings are spread.
    pub(crate) fn shape(&self) -> Option<&Shape> {
        self.shape.as_ref()
    }

    /// Makes a CPU one that walks there, before a fence of its own (L1).
    #[inline(always)]
    pub(crate) fn enter(&self, cpu: usize, walks: Walks) {
        match &self.row {
            None => _ = self.users.insert(cpu),
            Some(row) => {
                if !row.set_of(walks).contains(cpu) {
                    self.join(row, cpu, walks);
                }
            }
        }
    }

    #[cold]
    fn join(&self, row: &Row<P>, cpu: usize, walks: Walks) {
        // First: L2.
        self.users.insert(cpu);
        row.set_of(walks).insert(cpu);
    }

    /// As [`Lanes::enter`], of a CPU that may have been taken out meanwhile; says whether anything was missing.
    pub(crate) fn come_back(&self, cpu: usize, walks: Walks) -> bool {
        let was_no_user = self.users.insert(cpu);
        let was_elsewhere = self.row.as_ref().is_some_and(|row| row.set_of(walks).insert(cpu));
        was_no_user || was_elsewhere
    }

    /// Says whether a CPU is asked, and waited for, about an address.
    #[inline]
    pub(crate) fn reach(&self, cpu: usize, address: u64) -> bool {
        match &self.row {
            None => self.users.contains(cpu),
            Some(row) => row.set_of(Walks::To(address)).contains(cpu) || row.everywhere().contains(cpu),
        }
    }

    /// Says whether there is more than one lane.
    #[inline]
    pub(crate) fn are_several(&self) -> bool {
        self.row.is_some()
    }

    /// Says whether all of a range is asked about in one lane.
    pub(crate) fn are_one(&self, range: &Range<u64>) -> bool {
        self.row
            .as_ref()
            .is_none_or(|row| matches!(row.reach(range), Reach::Ranges(first, last) | Reach::Granules(first, last) if first == last))
    }

    /// Returns the CPUs that a range is the business of; some may come twice. They are read when they are asked for:
    /// after a fence, which lies behind what was taken away.
    #[inline]
    pub(crate) fn members<'a>(&'a self, range: &Range<u64>) -> impl Iterator<Item = usize> + use<'a, P> {
        self.sets(range).flat_map(|set| set.members_below(P::nr_cpus()))
    }

    /// As [`Lanes::members`], read at once.
    pub(crate) fn snapshot(&self, range: &Range<u64>) -> CpuSet {
        let mut cpus = CpuSet::new();
        self.sets(range).for_each(|set| set.add_to(&mut cpus, P::nr_cpus()));
        cpus
    }

    /// As [`Lanes::snapshot`], without a CPU; nothing if there is no other.
    #[inline]
    pub(crate) fn others(&self, range: &Range<u64>, cpu: usize) -> Option<CpuSet> {
        if self.row.is_none() {
            return self.users.view().others_below(P::nr_cpus(), cpu);
        }
        let mut cpus = self.snapshot(range);
        cpus.remove(cpu);
        (!cpus.is_empty()).then_some(cpus)
    }

    /// Returns the sets that a range is the business of.
    #[inline]
    fn sets<'a>(&'a self, range: &Range<u64>) -> impl Iterator<Item = CpuSetView<'a, P>> + use<'a, P> {
        let reached = self.row.as_ref().map(|row| (row, row.reach(range)));
        let (numbers, shift, last) = match reached {
            Some((row, Reach::Ranges(first, last))) => (first..last + 1, row.shape.shift, row.everywhere()),
            Some((row, Reach::Granules(first, last))) => (first..last + 1, GRANULE_SHIFT, row.everywhere()),
            Some((_, Reach::Users)) | None => (0..0, 0, self.users.view()),
        };
        let set_of = move |number: u64| Some(self.row.as_ref()?.set_of(Walks::To(number << shift)));
        numbers.filter_map(set_of).chain(once(last))
    }

    /// Says whether a range has sets of its own: who leaves them stays among the users.
    pub(crate) fn are_of_a_part(&self, range: &Range<u64>) -> bool {
        self.row.as_ref().is_some_and(|row| !matches!(row.reach(range), Reach::Users))
    }

    /// Takes a CPU out of the sets of a range: it will forget the whole space before it next walks, and then come back.
    pub(crate) fn let_go(&self, cpu: usize, range: &Range<u64>) {
        match self.row.as_ref().map(|row| row.reach(range)) {
            Some(Reach::Ranges(..) | Reach::Granules(..)) => self.sets(range).for_each(|set| _ = set.remove(cpu)),
            Some(Reach::Users) | None => self.leave(cpu),
        }
    }

    /// A known bug: as [`Lanes::let_go`], but of those who are everybody's.
    #[cfg(feature = "mutants")]
    pub(crate) fn let_go_of_users_alone(&self, cpu: usize, range: &Range<u64>) {
        match self.row.as_ref().map(|row| row.reach(range)) {
            Some(Reach::Ranges(..) | Reach::Granules(..)) => self.let_go(cpu, range),
            Some(Reach::Users) | None => _ = self.users.remove(cpu),
        }
    }

    /// Takes a CPU, which has forgotten the space or will, out of all sets.
    pub(crate) fn leave(&self, cpu: usize) {
        // First: L2.
        self.row.iter().for_each(|row| row.sets().for_each(|set| _ = set.remove(cpu)));
        self.users.remove(cpu);
    }
}

impl<P: System> Row<P> {
    fn new(memory: &P::Frames, shape: Shape, spread: &Spread) -> Result<Self, OutOfFrames> {
        debug_assert!(spread.nr_rest_sets.is_power_of_two(), "granules are dealt out by a mask");
        let nr_own_lines = spread.nr_own_words.div_ceil(LINE_WORDS);
        let nr_words = P::nr_cpus().div_ceil(u64::BITS as usize);
        let nr_words_apart = nr_words.next_multiple_of(LINE_WORDS);
        let nr_sets = Self::nr_sets(&shape, spread.nr_rest_sets);
        let len_bytes = nr_sets * nr_words_apart * size_of::<u64>() + nr_own_lines * LINE_BYTES;
        let order = len_bytes.div_ceil(PAGE_BYTES).next_power_of_two().ilog2() as u8;
        let frames = frames::alloc_row_zeroed(memory, order)?;
        let first = memory.frame(frames).cast_const().cast();
        let (rest_order, nr_own_lines) = (spread.nr_rest_sets.ilog2() as u8, nr_own_lines as u16);
        Ok(Self { shape, first, nr_words_apart, nr_words, frames, order, rest_order, nr_own_lines })
    }

    fn own_words(&self) -> &[P::AtomicU64] {
        let nr_words = self.nr_own_lines as usize * LINE_WORDS;
        // SAFETY: so many words lie behind the sets, as those do.
        unsafe { core::slice::from_raw_parts(self.first.add(self.nr_words_of_sets()), nr_words) }
    }

    const fn nr_rest_sets(&self) -> usize {
        1 << self.rest_order
    }

    const fn nr_words_of_sets(&self) -> usize {
        Self::nr_sets(&self.shape, self.nr_rest_sets()) * self.nr_words_apart
    }

    /// The lanes, everywhere, and the rest.
    const fn nr_sets(shape: &Shape, nr_rest_sets: usize) -> usize {
        shape.nr_cpus as usize + 1 + nr_rest_sets
    }

    fn reach(&self, range: &Range<u64>) -> Reach {
        let last_address = range.end.saturating_sub(1);
        let (first, last) = (self.shape.number_of(range.start), self.shape.number_of(last_address));
        if last.wrapping_sub(first) >= MOST_LANES {
            return Reach::Users;
        }
        let is_rest = |number| self.shape.lane(number) as u64 == self.shape.nr_cpus;
        if self.rest_order == 0 || !(first..=last).any(is_rest) {
            return Reach::Ranges(first, last);
        }
        let (first_granule, last_granule) = (range.start >> GRANULE_SHIFT, last_address >> GRANULE_SHIFT);
        let are_few = last_granule.wrapping_sub(first_granule) < MOST_GRANULES;
        if are_few && (first..=last).all(is_rest) { Reach::Granules(first_granule, last_granule) } else { Reach::Users }
    }

    #[inline(always)]
    fn set(&self, place: usize) -> CpuSetView<'_, P> {
        debug_assert!(place < Self::nr_sets(&self.shape, self.nr_rest_sets()), "there is no such lane");
        // SAFETY: the row has a place of so many words for each set, zeroed, accessed as these atomics alone, which are
        // laid out as their values are (`InPlace`).
        CpuSetView::new(unsafe {
            core::slice::from_raw_parts(self.first.add(place * self.nr_words_apart), self.nr_words)
        })
    }

    fn sets(&self) -> impl Iterator<Item = CpuSetView<'_, P>> {
        (0..Self::nr_sets(&self.shape, self.nr_rest_sets())).map(|place| self.set(place))
    }

    #[inline(always)]
    fn set_of(&self, walks: Walks) -> CpuSetView<'_, P> {
        let Walks::To(address) = walks else { return self.everywhere() };
        let lane = self.shape.lane(self.shape.number_of(address));
        if lane as u64 == self.shape.nr_cpus { self.set_of_rest(address) } else { self.set(lane) }
    }

    #[inline]
    fn set_of_rest(&self, address: u64) -> CpuSetView<'_, P> {
        let granule = (address >> GRANULE_SHIFT) & (self.nr_rest_sets() as u64 - 1);
        self.set(self.shape.nr_cpus as usize + 1 + granule as usize)
    }

    #[inline]
    fn everywhere(&self) -> CpuSetView<'_, P> {
        self.set(self.shape.nr_cpus as usize)
    }
}

#[cfg(test)]
mod tests;
