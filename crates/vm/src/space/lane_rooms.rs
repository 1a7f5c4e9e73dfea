//! What each lane of a space has of its own: a table of parts, and an index of its areas.
//!
//! # Guarantee
//! Two calls that change parts of different lanes take no lock in common, and write no line in common: neither to lock
//! their parts nor to find, add and take away areas.
//!
//! # Words first
//! * A *lane* is a CPU's range of addresses (`translations::lanes`), or an annex (`annexes`), which lies in no CPU's
//!   range. A lane has a [`LaneRoom`]. What no CPU's range has is the *rest*; the pieces of it that no annex has share
//!   the lock's own table of parts and the space's own index, the *common* one.
//! * `are_used`: whether any lane's index may hold an area. `are_crossed`: whether the common index may hold an area
//!   that crosses a lane's bound, and so has addresses of a lane.
//!
//! # Invariants
//! * N1 an area that lies in one lane, bounds included, is in that lane's index; all others are in the common one.
//! * N2 a part of a lane neither reaches its bounds nor crosses them: whoever names more has everything. The same
//!   holds of the pieces of the rest. So parts of different tables neither overlap nor touch (I4 of
//!   `sync::RangeLock`). Of an area of the lane that reaches a bound, the part leaves out the outermost byte; who has
//!   it changes the area's other bound. What that area and the one beyond are to each other is changed by who has
//!   everything, or, at an annex's bound that a call reaches, two parts: its own, and the area beyond with that byte
//!   (S4 of `seams`). One that crosses a bound is changed with everything held.
//! * N3 a lane's index is edited under its table's lock, the common one under the lock's own, or by who has everything.
//! * N4 an edit of several indexes is made by who has everything. Where an area goes from one index to another, it is
//!   added before it is taken away.
//! * N5 `are_used` only comes true, by who adds an area; `are_crossed` comes and goes with everything held, goes when
//!   no area crosses a bound any more, and may say yes where none does.
//! * N6 whoever looks into a lane's index, but under the lock of its edits or while he keeps out all who have parts,
//!   notes that first ([`Looks`]). So the holder of that lock sees whether what he takes away may be in use on another
//!   CPU; if not, it is used again at once, and there is no fault to wait for. Who looked long ago is forgotten
//!   (`sync::Forgetting`).
//!
//! # Races
//! | race | why it is sound |
//! |---|---|
//! | a part's holder looks for neighbours beside edits in other lanes | what touches its range is of its own lane (N2), or crosses a bound and stays: whoever has a share keeps those who have everything out |
//! | `are_crossed` goes beside a lookup without a lock that has seen it | it looks into the common index once more than it must |
//! | who has the lock of edits looks into his lane's index without a section (`editing`) | nobody else edits that index (N3), and it has all that lies there unless `are_crossed` (N1). Of a piece of the rest: an annex comes, grows or goes only under that lock, or with everything held, so its bounds stay |
//! | it looks in the common index for an area that crosses | inside an RCU section: a holder of the rest may edit that index, but no area that crosses |
//! | a lookup without a lock, beside an edit of several indexes | it may miss an area on its way from one to the other, and goes on under the lock, as after every miss; one that it finds is announced |
//! | it does not see `are_crossed`, or `are_used` | as above |
//! | a CPU looks into a lane beside an edit that frees at once | it is noted, or sees the edit (`sync::Lookers`); who is noted is forgotten behind a grace period alone (`sync::Forgetting`) |
//! | an area comes into an annex along with it, beside a fault that found it in the common index | that annex is one in which any CPU has looked, from its beginning; it is forgotten when the area has left the common index, and those have ended who found it there |
//! | lanes come, beside a fault that found an area of theirs in the common index | who lets them come awaits such faults (`spreading`) |
//! | a lookup without a lock, in a section that began while somebody had everything, and ends behind an edit by the holder of a part | it notes itself whoever has what ([`Looks::Beside`]) |
//! | two lanes' parts free tables | each only such as lie in its own lane (`holes`); a table that spans a bound waits for who has everything |
//! | lanes come, and areas into their indexes | `spreading` |
//! | a search of all room beside edits of other lanes | what it finds beyond its own lane is no part (N2): it is searched again with everything held |
//!
//! # Memory
//! 512 bytes for each CPU, and four times as much for annexes, behind the sets of the lanes.

use super::annexes::{self, Annexes};
use super::own_lane::{OwnLane, is_part_of};
use super::request::HUGE_BYTES;
use crate::index::{Index, IndexEntry};
use crate::system::System;
use crate::translations::lanes::{Row, Shape};
use core::ops::Range;
use core::ptr::NonNull;
use faultless_platform::mutant;
use faultless_platform::{Atomic, AtomicInteger, CachePadded, Ordering, Tracepoint};
use faultless_sync::{HeldRanges, PartTable, PartTableRef};

/// Parts of a lane that are held at once; one more waits.
const PLACES: usize = 6;

/// What a lane has of its own.
struct LaneRoom<P: System> {
    parts: CachePadded<PartTable<P, PLACES>>,
    /// Its areas, whatever their type is.
    index: Index<P, ()>,
}

/// What all lanes have in common; read by many, and written a few times.
struct LaneFlags<P: System> {
    word: P::AtomicU64,
}

const USED: u64 = 1;
const CROSSED: u64 = 2;

/// `are_used` and `are_crossed`, of one look.
#[derive(Clone, Copy)]
struct Flags(u64);

impl Flags {
    #[inline]
    fn are_used(self) -> bool {
        self.0 & USED != 0
    }

    #[inline]
    fn are_crossed(self) -> bool {
        mutant!(CrossingUnseen, self.0 & CROSSED != 0 => false)
    }
}

/// Where a space's lanes have what is theirs; see the module. [`MapLock::lanes`](crate::design::MapLock::lanes) returns it.
pub struct LaneRooms<P: System> {
    shape: Shape,
    flags: NonNull<CachePadded<LaneFlags<P>>>,
    /// The CPUs', and then the annexes'.
    rooms: NonNull<LaneRoom<P>>,
}

impl<P: System> Clone for LaneRooms<P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: System> Copy for LaneRooms<P> {}

// SAFETY: what is shared are atomics, tables of parts and indexes, which are shared by design.
unsafe impl<P: System> Send for LaneRooms<P> {}
// SAFETY: as above.
unsafe impl<P: System> Sync for LaneRooms<P> {}

/// Whether others may edit lanes' indexes beside a lookup.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Looks {
    /// Nobody does before the caller, who holds something, lets go of it.
    Alone,
    /// Holders of parts may: lookers are noted (N6).
    Beside,
}

/// An address's lane: its bounds, and its room if it is not the rest.
struct Lane<'a, P: System> {
    bounds: Range<u64>,
    room: Option<&'a LaneRoom<P>>,
    is_cpus: bool,
}

const fn nr_rooms(nr_cpus: usize) -> usize {
    nr_cpus + annexes::most(nr_cpus)
}

/// Returns how many words the lanes of `nr_cpus` need.
pub(super) fn nr_words<P: System>(nr_cpus: usize) -> usize {
    // Both begin at a multiple of what a padded cell has.
    let head = size_of::<CachePadded<LaneRooms<P>>>() + size_of::<CachePadded<LaneFlags<P>>>();
    let len_bytes = align_of::<LaneRoom<P>>() + head + nr_rooms(nr_cpus) * size_of::<LaneRoom<P>>();
    len_bytes.div_ceil(size_of::<u64>()) + annexes::nr_words(nr_cpus)
}

impl<P: System> LaneRooms<P> {
    /// Makes the rooms of lanes, and what says where they are, behind the first `nr_words_before` of a space's own
    /// words beside its sets. They stay as long as the space.
    pub(super) fn make(row: &Row<P>, nr_words_before: usize) -> NonNull<Self> {
        // SAFETY: the space asked for so many words and those of `nr_words`, zeroed, in frames that nobody else uses.
        unsafe {
            let start = row.own_place().add(nr_words_before).cast::<u8>();
            let place = start.add(start.align_offset(align_of::<LaneRoom<P>>())).cast::<CachePadded<Self>>();
            let flags = place.add(1).cast::<CachePadded<LaneFlags<P>>>();
            flags.write(CachePadded::new(LaneFlags { word: P::AtomicU64::new(0) }));
            let rooms = flags.add(1).cast::<LaneRoom<P>>();
            let nr_rooms = nr_rooms(P::nr_cpus());
            for place in 0..nr_rooms {
                rooms.add(place).write(LaneRoom { parts: CachePadded::new(PartTable::new()), index: Index::new() });
            }
            if P::WATCHED {
                let rooms = core::slice::from_raw_parts(rooms, nr_rooms);
                P::trace(Tracepoint::named_row("a lane's parts and the root of its index", rooms));
            }
            let (flags, rooms) = (NonNull::new_unchecked(flags), NonNull::new_unchecked(rooms));
            place.write(CachePadded::new(Self { shape: *row.shape(), flags, rooms }));
            NonNull::new_unchecked(place).cast()
        }
    }

    fn flags_word(&self) -> &P::AtomicU64 {
        // SAFETY: made by `make`, in frames that go with the space.
        unsafe { &self.flags.as_ref().word }
    }

    #[inline]
    fn flags(&self) -> Flags {
        // Relaxed: N5.
        Flags(self.flags_word().load(Ordering::Relaxed))
    }

    fn note(&self, flag: u64) {
        if self.flags().0 & flag == 0 {
            // Relaxed: N5.
            self.flags_word().fetch_or(flag, Ordering::Relaxed);
        }
    }

    #[inline]
    pub(super) fn annexes(&self) -> Annexes<'_, P> {
        let nr_words = annexes::nr_words(P::nr_cpus());
        // SAFETY: so many words lie behind the rooms, zeroed by who made the frames, accessed as these atomics alone,
        // which are laid out as their values are (`InPlace`).
        Annexes::new(unsafe {
            core::slice::from_raw_parts(self.rooms.add(nr_rooms(P::nr_cpus())).as_ptr().cast_const().cast(), nr_words)
        })
    }

    /// Says whether an address is of a CPU's range.
    #[inline]
    pub(super) fn is_cpus(&self, address: u64) -> bool {
        self.shape.cpu_at(address).is_some()
    }

    /// Returns a CPU's room.
    #[inline]
    fn room_of(&self, cpu: usize) -> &LaneRoom<P> {
        debug_assert!(cpu < P::nr_cpus(), "`Shape` numbers no other");
        // SAFETY: there is one for each CPU, in frames that go with the space.
        unsafe { self.rooms.add(cpu).as_ref() }
    }

    /// Returns the room of a CPU's lane by the number of its range, if it is one.
    #[inline]
    fn room(&self, number: u64) -> Option<&LaneRoom<P>> {
        let cpu = self.shape.lane(number);
        (cpu < P::nr_cpus()).then(|| self.room_of(cpu))
    }

    fn room_of_annex(&self, annex: usize) -> &LaneRoom<P> {
        assert!(annex < annexes::most(P::nr_cpus()), "there are no more");
        // SAFETY: there is one for each behind those of the CPUs' lanes, in frames that go with the space.
        unsafe { self.rooms.add(P::nr_cpus() + annex).as_ref() }
    }

    /// Returns the table of an annex.
    pub(super) fn parts_of_annex(&self, annex: usize) -> PartTableRef<'_, P> {
        self.room_of_annex(annex).parts.parts()
    }

    /// Returns the index of an annex.
    pub(super) fn index_of_annex<T>(&self, annex: usize) -> &Index<P, T> {
        index_of(self.room_of_annex(annex))
    }

    /// Returns the room of the lane that an address lies in, if that is not the rest.
    #[inline]
    fn room_at(&self, address: u64) -> Option<&LaneRoom<P>> {
        match self.shape.cpu_at(address) {
            Some(cpu) => Some(self.room_of(cpu)),
            None => Some(self.room_of_annex(self.annexes().at(address)?)),
        }
    }

    #[inline]
    fn lane(&self, address: u64) -> Lane<'_, P> {
        match self.shape.cpu_at(address) {
            Some(cpu) => Lane { bounds: self.shape.range_of(cpu), room: Some(self.room_of(cpu)), is_cpus: true },
            None => self.lane_of_nobody(address),
        }
    }

    /// As [`LaneRooms::lane`], of an address that no CPU's range has.
    fn lane_of_nobody(&self, address: u64) -> Lane<'_, P> {
        if let Some((annex, bounds)) = self.annexes().around(address) {
            return Lane { bounds, room: Some(self.room_of_annex(annex)), is_cpus: false };
        }
        let all = self.all();
        let rest = if address < all.start { 0..all.start } else { all.end..u64::MAX };
        Lane { bounds: self.annexes().piece(address, rest), room: None, is_cpus: false }
    }

    /// Returns the piece of the rest that an address lies in, if it lies in one.
    pub(super) fn piece(&self, address: u64) -> Option<Range<u64>> {
        let Lane { bounds, room: None, .. } = self.lane(address) else { return None };
        Some(bounds)
    }

    /// Says whether an address is neither of a CPU's range nor of an annex.
    #[inline]
    pub(super) fn is_in_a_piece(&self, address: u64) -> bool {
        self.room_at(address).is_none()
    }

    /// Returns what all lanes are together.
    pub(super) fn all(&self) -> Range<u64> {
        self.shape.range_of(P::nr_cpus() - 1).start..self.shape.range_of(0).end
    }

    /// Returns the bounds of the lane, or of the piece of the rest, that an address lies in.
    #[inline]
    pub(super) fn bounds(&self, address: u64) -> Range<u64> {
        self.lane(address).bounds
    }

    /// Says whether a lane begins or ends there.
    #[inline]
    pub(super) fn is_bound(&self, address: u64) -> bool {
        match self.shape.cpu_at(address) {
            Some(cpu) => self.shape.range_of(cpu).start == address,
            None => self.lane_of_nobody(address).bounds.start == address && address != 0,
        }
    }

    /// Bytes of the *top* of a CPU's range, in which the kernel chooses no place (`place`).
    pub(super) const TOP_BYTES: u64 = HUGE_BYTES;

    /// Returns the top of the CPU's range that an address lies in.
    #[inline]
    pub(super) fn top_above(&self, address: u64) -> Option<Range<u64>> {
        let end = self.shape.range_of(self.shape.cpu_at(address)?).end;
        Some(end - Self::TOP_BYTES..end)
    }

    /// Returns what lies between the tops of CPUs' ranges around an address, which lies behind the last one below.
    #[inline]
    pub(super) fn between_tops(&self, address: u64) -> Range<u64> {
        if let Some(cpu) = self.shape.cpu_at(address) {
            let Range { start, end } = self.shape.range_of(cpu);
            return if cpu + 1 == P::nr_cpus() { 0 } else { start }..end - Self::TOP_BYTES;
        }
        let all = self.all();
        if address >= all.end {
            return all.end..u64::MAX;
        }
        let Range { start, end } = self.bounds(address.max(all.start));
        let below = if start == all.start { 0 } else { start };
        below..end - Self::TOP_BYTES
    }

    /// Returns the table of the lane that an address lies in; `own` is that of the rest.
    #[inline]
    pub(super) fn parts<'a>(&'a self, address: u64, own: PartTableRef<'a, P>) -> PartTableRef<'a, P> {
        self.room_at(address).map_or(own, |room| room.parts.parts())
    }

    /// Returns the table of the lane that an address lies in, if that is not the rest.
    #[inline]
    pub(super) fn parts_of_lane(&self, address: u64) -> Option<PartTableRef<'_, P>> {
        Some(self.room_at(address)?.parts.parts())
    }

    /// Returns the table of the CPU's range that an address lies in.
    #[inline]
    pub(super) fn parts_of_cpus(&self, address: u64) -> Option<PartTableRef<'_, P>> {
        Some(self.room_of(self.shape.cpu_at(address)?).parts.parts())
    }

    /// As [`LaneRooms::parts`], of a range; nothing if it crosses a bound.
    #[inline]
    pub(super) fn parts_of_all<'a>(
        &'a self,
        range: &Range<u64>,
        own: PartTableRef<'a, P>,
    ) -> Option<PartTableRef<'a, P>> {
        let lane = self.lane(range.start);
        (range.end <= lane.bounds.end).then(|| lane.room.map_or(own, |room| room.parts.parts()))
    }

    /// Says whether a part is one of the lane that an address lies in (N2).
    #[inline]
    pub(super) fn is_part_at(&self, address: u64, part: &Range<u64>) -> bool {
        is_part_of(&self.bounds(address), part)
    }

    /// Returns the numbers of the lanes that have a part of a range.
    fn numbers(&self, range: &Range<u64>) -> Range<u64> {
        let all = self.all();
        let (start, end) = (range.start.max(all.start), range.end.min(all.end));
        if start >= end { 0..0 } else { self.shape.number_of(start)..self.shape.number_of(end - 1) + 1 }
    }
}

/// Returns a room's index as one of areas of a type.
#[inline]
fn index_of<P: System, T>(room: &LaneRoom<P>) -> &Index<P, T> {
    room.index.of_areas()
}

/// Returns a room's index to whoever looks something up there.
#[inline]
fn seen<P: System, T>(room: &LaneRoom<P>, looks: Looks) -> &Index<P, T> {
    let index = index_of(room);
    if looks == Looks::Beside {
        index.note_looker();
    }
    index
}

/// The lookups of all indexes as one; they are made as those of one index.
impl<P: System> LaneRooms<P> {
    #[inline]
    pub(super) fn containing<T>(&self, common: &Index<P, T>, address: u64, looks: Looks) -> Option<IndexEntry<T>> {
        let Some(room) = self.room_at(address) else { return common.containing(address) };
        let own = seen(room, looks).containing(address);
        if own.is_none() && self.flags().are_crossed() { common.containing(address) } else { own }
    }

    /// Returns the first area that ends behind `address`, if it starts below `limit`.
    pub(super) fn first_ending_after<T>(
        &self,
        common: &Index<P, T>,
        (address, limit): (u64, u64),
        looks: Looks,
    ) -> Option<IndexEntry<T>> {
        self.first_ending_after_from(&self.lane(address), common, (address, limit), looks)
    }

    /// As [`LaneRooms::first_ending_after`], if the area starts in the lane of `address`.
    #[inline]
    pub(super) fn first_of_lane_ending_after<T>(
        &self,
        common: &Index<P, T>,
        address: u64,
        looks: Looks,
    ) -> Option<IndexEntry<T>> {
        let lane = self.lane(address);
        self.first_ending_after_from(&lane, common, (address, lane.bounds.end), looks)
    }

    fn first_ending_after_from<T>(
        &self,
        lane: &Lane<'_, P>,
        common: &Index<P, T>,
        (address, limit): (u64, u64),
        looks: Looks,
    ) -> Option<IndexEntry<T>> {
        let starts_below = |limit| move |entry: &IndexEntry<T>| entry.start < limit;
        let flags = self.flags();
        if !flags.are_used() {
            return common.first_ending_after(address).filter(starts_below(limit));
        }
        let own = lane.room.and_then(|room| seen::<P, T>(room, looks).first_ending_after(address));
        if let Some(own) = own.filter(|own| own.start <= address || !flags.are_crossed()) {
            return Some(own).filter(starts_below(limit));
        }
        let may_be_common = lane.room.is_none() || flags.are_crossed() || limit > lane.bounds.end;
        let other = if may_be_common { common.first_ending_after(address).filter(starts_below(limit)) } else { None };
        if let Some(own) = own.filter(starts_below(limit)) {
            return other.filter(|other| other.end < own.end).or(Some(own));
        }
        let limit = other.map_or(limit, |other| other.start);
        let above = self.numbers(&(lane.bounds.end..limit));
        let mut found = above.filter_map(|number| {
            let room = self.room(number)?;
            seen::<P, T>(room, looks).first_ending_after(self.shape.range_of(self.shape.lane(number)).start)
        });
        if limit <= lane.bounds.end {
            return other;
        }
        let in_annex = |(annex, bounds): (usize, Range<u64>)| {
            let is_above = lane.bounds.end <= bounds.start && bounds.start < limit;
            is_above.then(|| seen(self.room_of_annex(annex), looks).first_ending_after(bounds.start))?
        };
        let in_annexes = self.annexes().each().filter_map(in_annex);
        let found = found.next().into_iter().chain(in_annexes).min_by_key(|found| found.start);
        found.filter(starts_below(limit)).or(other)
    }

    /// Returns the last area that starts below `address`, if it ends behind `limit`.
    pub(super) fn last_starting_before<T>(
        &self,
        common: &Index<P, T>,
        (address, limit): (u64, u64),
        looks: Looks,
    ) -> Option<IndexEntry<T>> {
        self.last_starting_before_from(&self.lane(address.checked_sub(1)?), common, (address, limit), looks)
    }

    /// As [`LaneRooms::last_starting_before`], if the area ends in the lane of the address below.
    #[inline]
    pub(super) fn last_of_lane_starting_before<T>(
        &self,
        common: &Index<P, T>,
        address: u64,
        looks: Looks,
    ) -> Option<IndexEntry<T>> {
        let lane = self.lane(address.checked_sub(1)?);
        self.last_starting_before_from(&lane, common, (address, lane.bounds.start), looks)
    }

    fn last_starting_before_from<T>(
        &self,
        lane: &Lane<'_, P>,
        common: &Index<P, T>,
        (address, limit): (u64, u64),
        looks: Looks,
    ) -> Option<IndexEntry<T>> {
        let ends_behind = |limit| move |entry: &IndexEntry<T>| entry.end > limit;
        let flags = self.flags();
        if !flags.are_used() {
            return common.last_starting_before(address).filter(ends_behind(limit));
        }
        let own = lane.room.and_then(|room| seen::<P, T>(room, looks).last_starting_before(address));
        if let Some(own) = own.filter(|own| own.end >= address || !flags.are_crossed()) {
            return Some(own).filter(ends_behind(limit));
        }
        let may_be_common = lane.room.is_none() || flags.are_crossed() || limit < lane.bounds.start;
        let other = if may_be_common { common.last_starting_before(address).filter(ends_behind(limit)) } else { None };
        if let Some(own) = own.filter(ends_behind(limit)) {
            return other.filter(|other| other.start > own.start).or(Some(own));
        }
        let limit = other.map_or(limit, |other| other.end);
        let below = self.numbers(&(limit..lane.bounds.start)).rev();
        let mut found = below.filter_map(|number| {
            let room = self.room(number)?;
            seen::<P, T>(room, looks).last_starting_before(self.shape.range_of(self.shape.lane(number)).end)
        });
        if limit >= lane.bounds.start {
            return other;
        }
        let in_annex = |(annex, bounds): (usize, Range<u64>)| {
            let is_below = bounds.end <= lane.bounds.start && bounds.end > limit;
            is_below.then(|| seen(self.room_of_annex(annex), looks).last_starting_before(bounds.end))?
        };
        let in_annexes = self.annexes().each().filter_map(in_annex);
        let found = found.next().into_iter().chain(in_annexes).max_by_key(|found| found.end);
        found.filter(ends_behind(limit)).or(other)
    }

    /// Says whether an area may cross a lane's bound; to who has something locked.
    #[inline]
    pub(super) fn are_crossed(&self) -> bool {
        self.flags().are_crossed()
    }

    /// Returns a CPU's lane, and its table of parts; the lane is for whoever gets that table's lock, while no area
    /// crosses a bound.
    #[inline]
    pub(super) fn lane_of<T>(&self, cpu: usize) -> (PartTableRef<'_, P>, OwnLane<'_, P, T>) {
        let room = self.room_of(cpu);
        let bounds = self.shape.range_of(cpu);
        (room.parts.parts(), OwnLane { index: index_of(room), bounds, notes_lookers: true, is_cpus: true })
    }

    /// Returns an address's lane for whoever has the lock of edits `held`; nothing if that is another's, or an area
    /// there may be in the common index. `is_rests` says whether it is the rest's.
    #[inline]
    pub(super) fn own_lane<'a, T>(
        &'a self,
        common: &'a Index<P, T>,
        address: u64,
        held: &HeldRanges<'_, P>,
        is_rests: impl FnOnce() -> bool,
    ) -> Option<OwnLane<'a, P, T>> {
        let lane = self.lane(address);
        let (index, notes_lookers) = match lane.room {
            Some(room) if held.is_of(room.parts.parts()) && !self.flags().are_crossed() => (index_of(room), true),
            None if is_rests() => (common, false),
            _ => return None,
        };
        Some(OwnLane { index, bounds: lane.bounds, notes_lookers, is_cpus: lane.is_cpus })
    }

    /// As [`Index::highest_gap`].
    pub(super) fn highest_gap<T>(
        &self,
        common: &Index<P, T>,
        len_bytes: u64,
        room: Range<u64>,
        looks: Looks,
    ) -> Option<u64> {
        if !self.flags().are_used() {
            return common.highest_gap(len_bytes, room);
        }
        let mut upper = room.end;
        for number in self.numbers(&room).rev() {
            let Some(lane) = self.room(number) else { continue };
            let index = seen::<P, T>(lane, looks);
            let Some(areas) = index.bounds() else { continue };
            // No area that crosses lies between two of the lane's.
            let above = areas.end.max(room.start)..upper;
            let within = areas.start.max(room.start)..areas.end.min(upper);
            let found = self.gap_in_common(common, len_bytes, above, looks);
            let found = found.or_else(|| (within.start < within.end).then(|| index.highest_gap(len_bytes, within))?);
            if found.is_some() {
                return found;
            }
            upper = upper.min(areas.start);
        }
        self.gap_in_common(common, len_bytes, room.start..upper, looks)
    }

    /// Returns the highest gap in a room in which no lane has an area.
    fn gap_in_common<T>(&self, common: &Index<P, T>, len_bytes: u64, room: Range<u64>, looks: Looks) -> Option<u64> {
        if room.start >= room.end {
            return None;
        }
        let all = self.all();
        if all.start <= room.start && room.end <= all.end && !self.flags().are_crossed() {
            return (len_bytes != 0 && room.end - room.start >= len_bytes).then(|| room.end - len_bytes);
        }
        let mut room = room;
        loop {
            let found = common.highest_gap(len_bytes, room.clone())?;
            // The common index knows nothing of what lies in annexes.
            let taken =
                self.annexes().each().filter(|(_, bounds)| bounds.start < found + len_bytes && found < bounds.end);
            let first =
                taken.filter_map(|(annex, _)| seen::<P, T>(self.room_of_annex(annex), looks).first_ending_after(found));
            let lowest = first.filter(|area| area.start < found + len_bytes).map(|area| area.start).min();
            let Some(lowest) = lowest else { return Some(found) };
            if lowest <= room.start {
                return None;
            }
            room.end = lowest;
        }
    }
}

/// Which indexes an edit is about.
pub(super) enum Edited<'a, P: System, T> {
    One(&'a Index<P, T>),
    /// More than one: by who has everything (N4).
    Several(&'a LaneRooms<P>),
}

impl<P: System> LaneRooms<P> {
    /// Returns the index that an area with these bounds is in (N1).
    pub(super) fn home<'a, T>(&'a self, common: &'a Index<P, T>, bounds: &Range<u64>) -> &'a Index<P, T> {
        let lane = self.lane(bounds.start);
        lane.room.filter(|_| bounds.end <= lane.bounds.end).map_or(common, index_of)
    }

    /// Returns the indexes that an edit is about which changes what starts in a span, and adds something there or not.
    #[inline]
    pub(super) fn edited<'a, T>(&'a self, common: &'a Index<P, T>, span: &Range<u64>, adds: bool) -> Edited<'a, P, T> {
        let lane = self.lane(span.start);
        if span.end > lane.bounds.end {
            return Edited::Several(self);
        }
        let Some(room) = lane.room else { return Edited::One(common) };
        if adds {
            self.note_used();
        }
        Edited::One(index_of(room))
    }

    /// Looks whether an area still lies across a bound of a lane, if there are not too many to look at; the caller has
    /// everything.
    pub(super) fn look_for_crossing<T>(&self, common: &Index<P, T>) {
        const MOST_LOOKED_AT: usize = 256;
        let mut seen = common.overlapping(0..u64::MAX).enumerate();
        let crosses = |(place, area): (usize, IndexEntry<T>)| {
            place == MOST_LOOKED_AT || area.end > self.lane(area.start).bounds.end
        };
        if self.flags().are_crossed() && !seen.any(crosses) {
            // Relaxed: N5.
            self.flags_word().fetch_and(!CROSSED, Ordering::Relaxed);
        }
    }

    pub(super) fn note_used(&self) {
        self.note(USED);
    }

    /// Notes that an area comes which is in several lanes, if it is.
    pub(super) fn note_added(&self, bounds: &Range<u64>) {
        let lane = self.lane(bounds.start);
        if bounds.end > lane.bounds.end {
            self.note(CROSSED);
        }
        self.note_used();
    }

    /// Returns the index of the lane that an address lies in, if that is not the rest.
    #[inline]
    pub(super) fn index_at(&self, address: u64) -> Option<&Index<P, ()>> {
        self.room_at(address).map(|room| &room.index)
    }

    /// Calls `act` for the index of each lane that has a part of a span.
    pub(super) fn for_each_index<'a, T: 'a>(&'a self, span: &Range<u64>, mut act: impl FnMut(&'a Index<P, T>)) {
        self.numbers(span).filter_map(|number| self.room(number)).for_each(|room| act(index_of(room)));
        let meets = |bounds: &Range<u64>| bounds.start < span.end && span.start < bounds.end;
        self.annexes()
            .each()
            .filter(|(_, bounds)| meets(bounds))
            .for_each(|(annex, _)| act(self.index_of_annex(annex)));
    }
}
