//! Who used which part of a space: a change asks only those CPUs that it may be about.
//!
//! # Guarantee
//! A space whose mappings are spread has *lanes*: the ranges in which its CPUs map (`Shape`), and the rest. Each lane
//! has a set of CPUs; the rest has one, or many, among which its *granules*, aligned pieces of 2 MiB, are dealt out:
//! each granule is a lane then, and some share a set. Whoever takes something of a range away, fences, and then reads
//! the sets of the lanes that the range lies in, and the set of those that may be everywhere, has all CPUs that may
//! still use it. A range of many lanes is everybody's. A space without lanes has one set, of all its users. Lanes may
//! come while the space is in use ([`Lanes::prepare`], [`Lanes::publish`]).
//!
//! # Invariants
//! * L1 a CPU is in the set of an address's lane, or in `everywhere`, before it walks to that address, and before it
//!   looks up areas for a fault there without the space's lock; a fence lies between. It stays there until it is out of
//!   guest and of that fault's RCU section.
//! * L2 a CPU that is in any set is among the users; but for one that leaves while lanes come, which may be asked
//!   without need until it is let go.
//! * L3 a CPU whose walks are not seen (its hardware's, an emulator's) is in `everywhere` before it uses any.
//! * L4 who walks a table is in the lane of the address that it walks to. So a table that is freed is shot down in all
//!   lanes that it spans, whatever the range was that emptied it.
//! * L5 each lane has a *stamp*, and all together have another one, for changes of more than a few. A change of a range
//!   that faults may have found is announced in its areas, then noted in the stamps of the range's lanes, and only then
//!   fences and waits for faults. The stamp of a CPU's range is raised by who has everything, or the lock of edits
//!   there. So who finds the same stamps again in an RCU section, having come into the lane, and been noted as a
//!   looker, before he read them, knows that no change of the lane was announced since, or that it waits for his
//!   section (`design::recall`).
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
//! | lanes come while T is among the users, and walks | S publishes the sets, fences, and notes all users in `everywhere`; only then ranges have their own sets. T inserts itself among the users, fences, and looks for the sets. Of the two fences one comes first. T's: S finds it among the users. S's: T finds the sets, and joins. Mutants `users-left-behind`, `lanes-overlooked`; model: `sync/tests/models/lane_sets.rs` |
//! | a fault looks at a neighbour's root, whose lane is another | it does so only if its area and the pages around it lie in one lane; else, where there is a neighbour, the root is given under the semaphore. A change is awaited in the lanes of all areas that take part, and of the pages around them |
//!
//! # Memory
//! A set for each CPU and two more, each with its stamp on lines of its own: 32 KiB where there are 384 CPUs. Where the
//! rest has many sets, another 64 KiB. One CPU has none, nor has a space whose mappings lie where Linux puts them, or
//! that has had one user alone (`space::spreading`). Behind the sets lie words that are the space's own
//! (`space::credits`): frames hold both, because a space fills a frame itself.

use crate::system::System;
use crate::translations::frames;
use core::cell::UnsafeCell;
use core::iter::once;
use core::mem::MaybeUninit;
use core::ops::Range;
use faultless_phys::{FrameSource, OutOfFrames, Pfn};
use faultless_platform::{Atomic, CpuSet, Ordering, PAGE_BYTES, Tracepoint, mutant};
use faultless_sync::{AtomicCpuSet, CpuSetView, Stamp};

/// Ranges begin at a multiple of this, and have as much at least: what the upper two levels of page tables divide.
const LEAST_BYTES: u64 = 1 << 30;
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
        (LEAST_BYTES.trailing_zeros()..u64::BITS - 1).rev().find_map(|shift| {
            let top = (room.end >> shift).checked_sub(2)?;
            let lowest = room.start.div_ceil(1 << shift);
            (top + 1 >= lowest + nr_cpus).then_some(Self { shift, top, nr_cpus })
        })
    }

    /// Returns a CPU's range.
    #[inline]
    pub(crate) fn range_of(&self, cpu: usize) -> Range<u64> {
        let number = self.top - cpu as u64;
        number << self.shift..(number + 1) << self.shift
    }

    #[inline]
    pub(crate) fn number_of(&self, address: u64) -> u64 {
        address >> self.shift
    }

    /// Returns the CPU whose range an address lies in, if it is one's.
    #[inline]
    pub(crate) fn cpu_at(&self, address: u64) -> Option<usize> {
        let below_top = self.top.wrapping_sub(self.number_of(address));
        (below_top < self.nr_cpus).then_some(below_top as usize)
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
    /// Where lanes are, or would be.
    shape: Option<Shape>,
    /// Written once, before `state` says that it is there.
    row: UnsafeCell<MaybeUninit<Row<P>>>,
    state: P::AtomicU8,
}

/// There are no sets but that of the users.
const NO_SETS: u8 = 0;
/// CPUs come into the sets.
const JOINED: u8 = 1;
/// They hold all whom a change must ask.
const WHOLE: u8 = 2;

/// The lanes' sets, in frames of the space's own.
pub(crate) struct Row<P: System> {
    shape: Shape,
    first: *const P::AtomicU64,
    frames: Pfn,
    /// From one set to the next.
    nr_words_apart: u16,
    nr_words: u16,
    order: u8,
    /// The rest has two to the power of this many sets.
    rest_order: u8,
    /// Lines behind the sets.
    nr_own_lines: u16,
    /// Where they begin, in words.
    own_at: u32,
}

/// What a CPU reads of a lane to find out later whether a change of the lane was announced meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamps {
    /// Which space's: no two of an instance have one number.
    pub(crate) space: u64,
    /// How many changes of this lane there were.
    pub(crate) own: u64,
    /// How many of many lanes.
    pub(crate) common: u64,
}

/// Where nobody else notes changes beside the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Alone {
    /// In no lane: the caller has everything.
    Everywhere,
    /// In the CPU's range that it is about, if it is about one, whose lock of edits it has.
    InALane,
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
    /// Makes the set of an empty space, whose mappings may be spread.
    pub(crate) fn new(spread: Option<&Spread>) -> Self {
        let shape = spread.and_then(|spread| Shape::new(P::nr_cpus(), &spread.room));
        let row = UnsafeCell::new(MaybeUninit::uninit());
        Self { users: AtomicCpuSet::new(), shape, row, state: P::AtomicU8::new(NO_SETS) }
    }

    /// Makes sets that nobody uses yet, with a number that no others of the instance have; nothing if there are to be
    /// none.
    pub(crate) fn prepare(
        &self,
        memory: &P::Frames,
        spread: &Spread,
        number: u64,
    ) -> Result<Option<Row<P>>, OutOfFrames> {
        let shape = self.shape.filter(|_| P::nr_cpus() > 1);
        shape.map(|shape| Row::new(memory, (shape, number), spread)).transpose()
    }

    /// Lets CPUs come into prepared sets, once. Callers exclude each other; CPUs may use the space.
    pub(crate) fn publish(&self, row: Row<P>) {
        // Relaxed: callers exclude each other.
        assert_eq!(self.state.load(Ordering::Relaxed), NO_SETS, "lanes come once");
        // SAFETY: nobody looks before the state says so.
        let row = unsafe { (*self.row.get()).write(row) };
        if P::WATCHED {
            // SAFETY: the sets' words lie there, in a row.
            let sets = unsafe { core::slice::from_raw_parts(row.first, row.nr_words_of_sets()) };
            P::trace(Tracepoint::named_row("the sets of CPUs that used a part of an address space", sets));
        }
        // ORDER: Release pairs with the Acquire in `row_from`.
        self.state.store(JOINED, Ordering::Release);
        // ORDER: pairs with the fence in `join_late`: this finds a CPU among the users, or that one finds the sets.
        P::fence(Ordering::SeqCst);
        let mut users = CpuSet::new();
        mutant!(UsersLeftBehind, self.users.view().add_to(&mut users, P::nr_cpus()) => ());
        users.iter().for_each(|cpu| _ = row.everywhere().insert(cpu));
        // ORDER: Release pairs with the Acquire in `row_from`: who asks those of a set asks these, too.
        self.state.store(WHOLE, Ordering::Release);
    }

    /// Gives the frames back; nobody uses the space any more.
    pub(crate) fn free(&self, memory: &P::Frames) {
        if let Some(row) = self.joined() {
            row.free(memory);
        }
    }

    /// Returns the sets from a state on.
    #[inline(always)]
    fn row_from(&self, state: u8) -> Option<&Row<P>> {
        // ORDER: Acquire pairs with the Releases in `publish`.
        let is_there = self.shape.is_some() && self.state.load(Ordering::Acquire) >= state;
        // SAFETY: written before, and never again.
        is_there.then(|| unsafe { (*self.row.get()).assume_init_ref() })
    }

    /// Returns the sets that CPUs come into.
    #[inline(always)]
    fn joined(&self) -> Option<&Row<P>> {
        self.row_from(JOINED)
    }

    /// Returns the sets by which CPUs are asked.
    #[inline(always)]
    fn asked(&self) -> Option<&Row<P>> {
        self.row_from(WHOLE)
    }

    /// Returns all CPUs that may have translations of the space.
    #[inline]
    pub(crate) fn users(&self) -> &AtomicCpuSet<P> {
        &self.users
    }

    /// Returns the words that the space asked for, on lines of their own and zero at first, if there are lanes.
    #[inline]
    pub(crate) fn own_words(&self) -> Option<&[P::AtomicU64]> {
        self.joined().map(Row::own_words)
    }

    /// Returns of how many CPUs each has a range, or would have, if mappings may be spread.
    #[inline]
    pub(crate) fn nr_ranges(&self) -> usize {
        self.shape.map_or(0, |shape| shape.nr_cpus as usize)
    }

    /// Returns where the CPUs' ranges lie, or would lie, if mappings may be spread.
    pub(crate) fn shape(&self) -> Option<&Shape> {
        self.shape.as_ref()
    }

    /// Makes a CPU one that walks there, before a fence of its own (L1).
    #[inline(always)]
    pub(crate) fn enter(&self, cpu: usize, walks: Walks) {
        match self.joined() {
            None => {
                if self.users.insert(cpu) {
                    self.join_late(cpu, walks);
                }
            }
            Some(row) => {
                if !row.set_of(walks).contains(cpu) {
                    self.join(row, cpu, walks);
                }
            }
        }
    }

    /// Comes into sets that were not there before this CPU was among the users.
    #[cold]
    fn join_late(&self, cpu: usize, walks: Walks) {
        if self.shape.is_none() {
            return;
        }
        // ORDER: pairs with the fence in `publish`.
        P::fence(Ordering::SeqCst);
        if let Some(row) = mutant!(LanesOverlooked, self.joined() => None) {
            row.set_of(walks).insert(cpu);
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
        if was_no_user && self.shape.is_some() {
            // ORDER: pairs with the fence in `publish`.
            P::fence(Ordering::SeqCst);
        }
        let was_elsewhere = self.joined().is_some_and(|row| row.set_of(walks).insert(cpu));
        was_no_user || was_elsewhere
    }

    /// Says whether a CPU is asked, and waited for, about an address.
    #[inline]
    pub(crate) fn reach(&self, cpu: usize, address: u64) -> bool {
        match self.asked() {
            None => self.users.contains(cpu),
            Some(row) => row.set_of(Walks::To(address)).contains(cpu) || row.everywhere().contains(cpu),
        }
    }

    /// Says whether there is more than one lane.
    #[inline]
    pub(crate) fn are_several(&self) -> bool {
        self.asked().is_some()
    }

    /// Says whether all of a range is asked about in one lane.
    pub(crate) fn are_one(&self, range: &Range<u64>) -> bool {
        self.asked().is_none_or(|row| matches!(row.reach(range), Reach::Ranges(first, last) | Reach::Granules(first, last) if first == last))
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
        let nr_cpus = P::nr_cpus();
        let Some(row) = self.asked() else { return self.users.view().others_below(nr_cpus, cpu) };
        let is_shared = |set: CpuSetView<'_, P>| set.has_others_below(nr_cpus, cpu);
        let has_others = match row.only_place(range) {
            Some(place) => is_shared(row.set(place)) || is_shared(row.everywhere()),
            None => self.sets(range).any(is_shared),
        };
        has_others.then(|| self.all_but(range, cpu)).filter(|cpus| !cpus.is_empty())
    }

    /// As [`Lanes::snapshot`], without a CPU.
    #[cold]
    fn all_but(&self, range: &Range<u64>, cpu: usize) -> CpuSet {
        let mut cpus = self.snapshot(range);
        cpus.remove(cpu);
        cpus
    }

    /// Returns the sets that a range is the business of.
    #[inline]
    fn sets<'a>(&'a self, range: &Range<u64>) -> impl Iterator<Item = CpuSetView<'a, P>> + use<'a, P> {
        let reached = self.asked().map(|row| (row, row.reach(range)));
        let (numbers, shift, last) = match reached {
            Some((row, Reach::Ranges(first, last))) => (first..last + 1, row.shape.shift, row.everywhere()),
            Some((row, Reach::Granules(first, last))) => (first..last + 1, GRANULE_SHIFT, row.everywhere()),
            Some((_, Reach::Users)) | None => (0..0, 0, self.users.view()),
        };
        let set_of = move |number: u64| Some(reached?.0.set_of(Walks::To(number << shift)));
        numbers.filter_map(set_of).chain(once(last))
    }

    /// Returns the stamps of an address, if there is more than one lane. Read in an RCU section; what the reader looks
    /// up afterwards is as new as they are (L5).
    #[inline]
    pub(crate) fn stamps(&self, address: u64) -> Option<Stamps> {
        let row = self.asked()?;
        let [own, common] = [row.place_of(address), row.place_of_everywhere()].map(|place| row.stamp(place).read());
        // Relaxed: there before the row was.
        Some(Stamps { space: row.number().load(Ordering::Relaxed), own, common })
    }

    /// Notes in the stamps of a range's lanes that a change of the range was announced; called before the fence behind
    /// which the change waits (L5).
    pub(crate) fn note_change(&self, range: &Range<u64>, alone: Alone) {
        let Some(row) = self.asked() else { return };
        let note = |place: usize, is_alone: bool| match is_alone {
            true => row.stamp(place).note_change_alone(),
            false => row.stamp(place).note_change(),
        };
        let everywhere = alone == Alone::Everywhere;
        if let Some(place) = row.only_place(range) {
            return note(place, everywhere || place < row.place_of_everywhere());
        }
        match row.reach(range) {
            Reach::Ranges(first, last) => {
                (first..=last).for_each(|number| note(row.place_of(number << row.shape.shift), true));
            }
            Reach::Granules(first, last) => {
                (first..=last).for_each(|number| note(row.place_of(number << GRANULE_SHIFT), everywhere));
            }
            Reach::Users => note(row.place_of_everywhere(), everywhere),
        }
    }

    /// Returns addresses around one that have its stamps, as all of them do that share its lane.
    pub(crate) fn stamped_alike(&self, address: u64) -> Range<u64> {
        let Some(row) = self.asked() else { return address..address };
        match row.shape.cpu_at(address) {
            Some(cpu) => row.shape.range_of(cpu),
            None => {
                let granule = address >> GRANULE_SHIFT;
                granule << GRANULE_SHIFT..(granule + 1) << GRANULE_SHIFT
            }
        }
    }

    /// Says whether a range has sets of its own: who leaves them stays among the users.
    pub(crate) fn are_of_a_part(&self, range: &Range<u64>) -> bool {
        self.asked().is_some_and(|row| !matches!(row.reach(range), Reach::Users))
    }

    /// Takes a CPU out of the sets of a range: it will forget the whole space before it next walks, and then come back.
    pub(crate) fn let_go(&self, cpu: usize, range: &Range<u64>) {
        match self.asked().map(|row| row.reach(range)) {
            Some(Reach::Ranges(..) | Reach::Granules(..)) => self.sets(range).for_each(|set| _ = set.remove(cpu)),
            Some(Reach::Users) | None => self.leave(cpu),
        }
    }

    /// A known bug: as [`Lanes::let_go`], but of those who are everybody's.
    #[cfg(feature = "mutants")]
    pub(crate) fn let_go_of_users_alone(&self, cpu: usize, range: &Range<u64>) {
        match self.asked().map(|row| row.reach(range)) {
            Some(Reach::Ranges(..) | Reach::Granules(..)) => self.let_go(cpu, range),
            Some(Reach::Users) | None => _ = self.users.remove(cpu),
        }
    }

    /// Takes a CPU, which has forgotten the space or will, out of all sets.
    pub(crate) fn leave(&self, cpu: usize) {
        // First: L2.
        self.joined().iter().for_each(|row| row.sets().for_each(|set| _ = set.remove(cpu)));
        self.users.remove(cpu);
    }
}

impl<P: System> Row<P> {
    fn new(memory: &P::Frames, (shape, number): (Shape, u64), spread: &Spread) -> Result<Self, OutOfFrames> {
        debug_assert!(spread.nr_rest_sets.is_power_of_two(), "granules are dealt out by a mask");
        let nr_own_lines = spread.nr_own_words.div_ceil(LINE_WORDS);
        let nr_words = P::nr_cpus().div_ceil(u64::BITS as usize);
        // Behind each set its stamp, and behind one of those the row's number.
        let nr_words_apart = (nr_words + 2).next_multiple_of(LINE_WORDS);
        let nr_sets = Self::nr_sets(&shape, spread.nr_rest_sets);
        let len_bytes = nr_sets * nr_words_apart * size_of::<u64>() + nr_own_lines * LINE_BYTES;
        let order = len_bytes.div_ceil(PAGE_BYTES).next_power_of_two().ilog2() as u8;
        let frames = frames::alloc_row_zeroed(memory, order)?;
        let first = memory.frame(frames).cast_const().cast();
        let (rest_order, nr_own_lines) = (spread.nr_rest_sets.ilog2() as u8, nr_own_lines as u16);
        let own_at = (nr_sets * nr_words_apart) as u32;
        let [nr_words_apart, nr_words] = [nr_words_apart, nr_words].map(|nr_words| nr_words as u16);
        let row = Self { shape, first, nr_words_apart, nr_words, frames, order, rest_order, nr_own_lines, own_at };
        // Relaxed: nobody has the row yet.
        row.number().store(number, Ordering::Relaxed);
        Ok(row)
    }

    /// Gives the frames back; no CPU stands there that uses the space.
    pub(crate) fn free(&self, memory: &P::Frames) {
        // SAFETY: the space whose CPUs stood there has ended, or never began to use them.
        unsafe { memory.free_order(self.frames, self.order) };
    }

    /// Returns where lanes lie.
    pub(crate) fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Returns where the space's own words begin.
    pub(crate) fn own_place(&self) -> *mut u64 {
        // SAFETY: they lie behind the sets, in the row's frames.
        unsafe { self.first.add(self.own_at as usize) }.cast_mut().cast()
    }

    #[inline]
    fn own_words(&self) -> &[P::AtomicU64] {
        // SAFETY: so many words lie behind the sets, as those do.
        unsafe {
            core::slice::from_raw_parts(self.first.add(self.own_at as usize), self.nr_own_lines as usize * LINE_WORDS)
        }
    }

    const fn nr_rest_sets(&self) -> usize {
        1 << self.rest_order
    }

    const fn nr_words_of_sets(&self) -> usize {
        Self::nr_sets(&self.shape, self.nr_rest_sets()) * self.nr_words_apart as usize
    }

    /// The lanes, everywhere, and the rest.
    const fn nr_sets(shape: &Shape, nr_rest_sets: usize) -> usize {
        shape.nr_cpus as usize + 1 + nr_rest_sets
    }

    /// Returns the place of a range's set, if it lies in one CPU's range or one granule: what [`Row::reach`] says of
    /// most ranges, in fewer steps.
    #[inline(always)]
    fn only_place(&self, range: &Range<u64>) -> Option<usize> {
        let lane_cpu = self.shape.cpu_at(range.start);
        let shift = if lane_cpu.is_some() { self.shape.shift } else { GRANULE_SHIFT };
        let is_one = range.start >> shift == range.end.saturating_sub(1) >> shift;
        is_one.then(|| lane_cpu.unwrap_or_else(|| self.place_in_rest(range.start)))
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
            core::slice::from_raw_parts(
                self.first.add(place * usize::from(self.nr_words_apart)),
                usize::from(self.nr_words),
            )
        })
    }

    /// Returns the stamp of a set.
    #[inline]
    fn stamp(&self, place: usize) -> Stamp<'_, P> {
        debug_assert!(place < Self::nr_sets(&self.shape, self.nr_rest_sets()), "there is no such lane");
        // SAFETY: as in `set`; there are two words behind each.
        Stamp::of(unsafe { &*self.first.add(place * usize::from(self.nr_words_apart) + usize::from(self.nr_words)) })
    }

    /// Returns the word of a number that no other row of the instance has; it stays.
    #[inline]
    fn number(&self) -> &P::AtomicU64 {
        let place = self.place_of_everywhere() * usize::from(self.nr_words_apart);
        // SAFETY: as in `stamp`.
        unsafe { &*self.first.add(place + usize::from(self.nr_words) + 1) }
    }

    fn sets(&self) -> impl Iterator<Item = CpuSetView<'_, P>> {
        (0..Self::nr_sets(&self.shape, self.nr_rest_sets())).map(|place| self.set(place))
    }

    #[inline(always)]
    fn set_of(&self, walks: Walks) -> CpuSetView<'_, P> {
        let Walks::To(address) = walks else { return self.everywhere() };
        self.set(self.place_of(address))
    }

    /// Returns the place of the set of an address.
    #[inline(always)]
    fn place_of(&self, address: u64) -> usize {
        match self.shape.cpu_at(address) {
            Some(cpu) => cpu,
            None => self.place_in_rest(address),
        }
    }

    #[inline]
    fn place_in_rest(&self, address: u64) -> usize {
        let granule = (address >> GRANULE_SHIFT) & (self.nr_rest_sets() as u64 - 1);
        self.place_of_everywhere() + 1 + granule as usize
    }

    const fn place_of_everywhere(&self) -> usize {
        self.shape.nr_cpus as usize
    }

    #[inline]
    fn everywhere(&self) -> CpuSetView<'_, P> {
        self.set(self.place_of_everywhere())
    }
}

#[cfg(test)]
mod tests;
