//! A space's lock that lets calls about different parts of it in side by side.
//!
//! # Guarantee
//! munmap, mprotect, madvise and mmap hold a part: what they name, widened to the areas that overlap or touch it
//! ([`Space::write_part`]). All other calls that change something hold everything. A fault under the lock and a call
//! that looks hold what they name, for reading.
//!
//! # Invariants
//! * R1 parts that two hold for writing are disjoint, and don't touch (`sync::RangeLock`).
//! * R2 an area is changed, and freed, only by the holder of a part that has all of it, and all that touches it, as far
//!   as its lane goes, or by who has the lane's lock of R3 from the look whether anybody holds a part there: so whoever
//!   holds an address of it, for reading too, keeps it and its neighbours in the lane as they are, and what it has in
//!   common with one beyond the bound (N2 of `lane_rooms`). Of an area that he has beyond a bound, a holder changes
//!   what it and its neighbour there are to each other, and nothing else (S4 of `seams`).
//! * R3 the index is edited, the counters are changed and a part is chosen under the table's lock
//!   ([`MapLock::edit`]), from the edit's preparation to the counters; the edit is of the version in force. Nobody
//!   sleeps or waits for faults with it. Where mappings are spread, each lane has a table and an index (`lane_rooms`,
//!   N1 to N5): the table's lock is that of the lane, here and below.
//! * R4 a page table is taken out under the table's lock, if it lies in the lane and nobody else holds a part of what
//!   it spans. What stays because of others is [`LeftOver`], and goes when somebody has everything, at the latest
//!   before the call returns; what spans several lanes stays until somebody has everything anyway.
//! * R5 who has everything holds no part, and waits for all of them.
//! * R6 what a holder may add to what limits count is claimed with the part; a claim that could exceed a limit is
//!   refused, and the call has everything: then counters are exact, as for `WholeSpace`. Where mappings are spread, a
//!   claim is a credit in its CPU's purse (`credits`); else it stands beside the part, and who chooses one adds them
//!   all up.
//! * R7 who holds a part looks the index up inside an RCU section, as faults do: others replace its nodes. Who has the
//!   lock of its edits looks without one (`editing`).
//! * R8 a change is announced, put in force, and then waits for the faults that began before; only after that it
//!   changes translations, and frees what it took away. One of a whole area's flags, which needs the table's lock for
//!   the counters alone, waits before it is put in force.
//!
//! # Races
//! | race | why it is sound |
//! |---|---|
//! | an area comes to touch a part that is waited for | what is held is chosen in the state in which it is entered |
//! | two calls map holes that touch | R1: one waits, and then finds the other's area, which it may join |
//! | two searches find one hole | the place is chosen under the table's lock, in which it is entered at once |
//! | an area is cut beside a fault that found it | the fault goes on with what it found if its address is not in the range (I2 of `design::faultless`), else it is waited for (R8) |
//! | a fault begins between R8's steps | it finds the area of before, announced, or the new one, announced as well |
//! | two unmappings leave a table empty, each a part of it | whoever takes its areas off the index last sees the hole. If the other one is still inside, the table is left over, and the rest goes as soon as the space is had alone |
//! | a table is left over, and a third one would free the table above it | while anything is left over nobody frees a table but who has everything, and that one frees all of it |
//! | a counter is near its limit | R6 |
//! | somebody looks beyond what he holds: the area above a missed address | inside an RCU section, and what he decides there is decided again by who has everything |
//! | an unmapping that has everything shares it half way | it has everything for reading, so no part is given out for writing |
//! | a second user comes | it waits for everything, and only then lanes come (`spreading`) and parts are given out: before that, a share alone keeps an area |

use super::Space;
use super::annex_edits::{Comes, MoveNodes};
use super::editing::Editing;
use super::fitting::{Fitted, Reach, Unfit, Wanted};
use super::lane_rooms::LaneRooms;
use super::left_over::LeftOver;
use super::map_lock::{EditGuard, MapLock};
use super::own_lane::OwnLane;
use super::permit::SpaceWriteGuard;
use super::quantity::{NR_QUANTITIES, Quantity};
use crate::addr::{PageRange, VirtAddr};
use crate::area::Area;
use crate::design::Design;
use crate::system::System;
use core::ops::Range;
use core::ptr::{NonNull, null_mut};
use faultless_platform::{Atomic, Ordering, mutant};
use faultless_sync::{
    Choice, Choose, Claim, HeldRanges, PartTableRef, RangeLock, RangeReadGuard, RangeWriteGuard, RwSemaphore,
};

/// See the module.
///
/// ```
/// use faultless_platform::native::{Machine, Native};
/// use faultless_sync::{RwSemaphore, Rwsem};
/// use faultless_vm::VirtAddr;
/// use faultless_vm::design::{MapLock, Ranges};
///
/// let lock: Ranges<Native, Rwsem<Native>> = MapLock::<Native>::new(Rwsem::<Native>::new());
/// Machine::new(1).attach(|| {
///     let low = VirtAddr::new(0)..VirtAddr::new(4096);
///     drop(lock.write(low.clone()));
///     assert!(!lock.is_divided() && !lock.may_be_divided(), "until a second user comes");
///     assert!(lock.try_read(low).is_some());
/// });
/// ```
pub struct Ranges<P: System, S> {
    lock: RangeLock<P, S>,
    left_over: LeftOver<P>,
    /// Where lanes have what is theirs, in frames that go with the space.
    lanes: P::AtomicPtr<LaneRooms<P>>,
}

impl<P: System, S: RwSemaphore<P>> Ranges<P, S> {
    /// Returns the table of parts that an address belongs to.
    #[inline]
    fn table_at(&self, address: VirtAddr) -> PartTableRef<'_, P> {
        let own = self.lock.parts();
        self.lanes().map_or(own, |lanes| lanes.parts(address.get(), own))
    }

    /// Returns the table of parts that a range belongs to; nothing if it belongs to several.
    #[inline]
    fn parts(&self, range: &Range<VirtAddr>) -> Option<PartTableRef<'_, P>> {
        match self.lanes() {
            None => Some(self.lock.parts()),
            Some(lanes) => lanes.parts_of_all(&(range.start.get()..range.end.get()), self.lock.parts()),
        }
    }
}

// SAFETY: R1 to R5: whoever changes an area, the index or a table excludes all who look at that.
unsafe impl<P: System, S: RwSemaphore<P>> MapLock<P> for Ranges<P, S> {
    type Semaphore = S;
    type Read<'a> = RangeReadGuard<'a, P, S>;
    type Write<'a> = RangeWriteGuard<'a, P, S>;

    fn new(semaphore: S) -> Self {
        Self { lock: RangeLock::new(semaphore), left_over: LeftOver::new(), lanes: P::AtomicPtr::new(null_mut()) }
    }

    fn set_lanes(&self, lanes: NonNull<LaneRooms<P>>) {
        // ORDER: Release pairs with the Acquire in `lanes`: who finds lanes finds their tables and indexes.
        self.lanes.store(lanes.as_ptr(), Ordering::Release);
    }

    #[inline]
    fn lanes(&self) -> Option<&LaneRooms<P>> {
        // ORDER: Acquire pairs with the Release in `set_lanes`.
        // SAFETY: they stay as long as the space.
        unsafe { self.lanes.load(Ordering::Acquire).as_ref() }
    }

    #[inline]
    #[track_caller]
    fn read(&self, range: Range<VirtAddr>) -> RangeReadGuard<'_, P, S> {
        self.lock.read_of(&|| self.parts(&range), range.start.get()..range.end.get())
    }

    #[inline]
    #[track_caller]
    fn try_read(&self, range: Range<VirtAddr>) -> Option<RangeReadGuard<'_, P, S>> {
        self.lock.try_read_of(&|| self.parts(&range), range.start.get()..range.end.get())
    }

    /// Locks everything: a part is only given out to who widens it.
    #[inline]
    #[track_caller]
    fn write(&self, _: Range<VirtAddr>) -> RangeWriteGuard<'_, P, S> {
        self.lock.write()
    }

    #[inline]
    #[track_caller]
    fn downgrade<'a>(&'a self, write: RangeWriteGuard<'a, P, S>) -> RangeReadGuard<'a, P, S> {
        self.lock.downgrade(write)
    }

    #[inline]
    fn is_contended(&self) -> bool {
        self.lock.is_contended()
    }

    const DIVIDES: bool = true;

    fn divide(everything: &mut RangeWriteGuard<'_, P, S>) {
        everything.divide();
    }

    #[inline]
    fn is_divided(&self) -> bool {
        self.lock.is_divided()
    }

    #[inline]
    fn may_be_divided(&self) -> bool {
        self.lock.may_be_divided()
    }

    #[track_caller]
    fn write_part<'a>(
        &'a self,
        near: VirtAddr,
        choose: &mut Choose<'_, 'a, P>,
    ) -> (RangeWriteGuard<'a, P, S>, Option<EditGuard<'a, P>>) {
        // Who finds none, though parts are given out, asks again under the lock.
        let Some(lanes) = self.lanes() else { return self.lock.write_parts_of(&|| self.table_at(near), choose) };
        // A CPU's range stays where it is: its table is looked for once.
        if let Some(parts) = lanes.parts_of_cpus(near.get()) {
            return self.lock.write_parts_of(&|| parts, choose);
        }
        self.lock.write_parts_of(&|| lanes.parts(near.get(), self.lock.parts()), choose)
    }

    #[inline(always)]
    #[track_caller]
    fn write_first<'a>(
        &'a self,
        parts: PartTableRef<'a, P>,
        choose: impl FnOnce(&EditGuard<'a, P>) -> Option<Range<u64>>,
    ) -> Option<(RangeWriteGuard<'a, P, S>, EditGuard<'a, P>)> {
        self.lock.write_first_of(parts, choose)
    }

    #[inline(always)]
    #[track_caller]
    fn edit_first<'a>(&'a self, parts: PartTableRef<'a, P>) -> Option<(RangeReadGuard<'a, P, S>, EditGuard<'a, P>)> {
        self.lock.edit_first_of(parts)
    }

    #[inline]
    fn is_whole(write: &RangeWriteGuard<'_, P, S>) -> bool {
        write.is_whole()
    }

    #[inline]
    #[track_caller]
    fn edit(&self, near: VirtAddr) -> Option<EditGuard<'_, P>> {
        self.is_divided().then(|| self.table_at(near).lock())
    }

    #[inline(always)]
    fn common_parts(&self) -> Option<PartTableRef<'_, P>> {
        Some(self.lock.parts())
    }

    fn parts_at(&self, near: VirtAddr) -> Option<PartTableRef<'_, P>> {
        Some(self.table_at(near))
    }

    #[inline]
    fn is_edited_by(&self, near: VirtAddr, held: &HeldRanges<'_, P>) -> bool {
        held.is_of(self.table_at(near))
    }

    fn edit_rest(&self) -> Option<EditGuard<'_, P>> {
        self.is_divided().then(|| self.lock.table())
    }

    #[inline]
    fn left_over(&self) -> Option<&LeftOver<P>> {
        Some(&self.left_over)
    }
}

/// What a call may add at most to what limits count.
#[derive(Clone, Copy)]
pub(super) struct Additions {
    pub(super) areas: u64,
    pub(super) bytes: u64,
    pub(super) locked_bytes: u64,
}

impl Additions {
    /// Returns them by [`Quantity`](super::quantity::Quantity): of bytes, each may be data.
    #[inline(always)]
    pub(super) const fn by_quantity(&self) -> [u64; NR_QUANTITIES] {
        [self.areas, self.bytes, self.bytes, self.locked_bytes]
    }

    /// More areas than the holders of all parts may add together.
    const MOST_AREAS: u64 = 1 << 10;
    /// A change that cuts an area in two.
    pub(super) const ONE_CUT: Self = Self { areas: 1, bytes: 0, locked_bytes: 0 };
    /// A change of flags, which cuts at both ends.
    pub(super) const TWO_CUTS: Self = Self { areas: 2, ..Self::ONE_CUT };

    /// More areas no call claims: two cuts, and a seam that it opens.
    pub(super) const MOST_AREAS_OF_A_CALL: u64 = Self::TWO_CUTS.areas + 1;

    /// Pages that become data, or come, in the middle of an area.
    pub(super) const fn of_bytes(bytes: u64) -> Self {
        Self { bytes, ..Self::TWO_CUTS }
    }

    /// As [`Additions::of_bytes`], of pages that come locked.
    pub(super) const fn of_locked_bytes(bytes: u64) -> Self {
        Self { locked_bytes: bytes, ..Self::of_bytes(bytes) }
    }
}

/// Says, under the lock of what is held, and of the edits of a lane if that alone has what lies there, what a call is
/// about and may add; nothing if it has to have everything.
type Ask<'c, 'a, P, D> =
    dyn FnMut(&HeldRanges<'_, P>, Option<&OwnLane<'a, P, Area<P, D>>>) -> Option<(PageRange, Additions)> + 'c;

impl<P: System, D: Design<P>> Space<P, D> {
    /// Locks a range for changing it, with all that the change may touch; everything where the lock does not divide
    /// the space, or a limit is near. With a part comes the lock of edits, held since the part was chosen.
    #[inline]
    #[track_caller]
    pub(super) fn write_part(
        &self,
        range: PageRange,
        added: Additions,
    ) -> (SpaceWriteGuard<'_, P, D>, Option<Editing<'_, P, D>>) {
        if !self.lock.may_be_divided() {
            return (self.write_settled(range.addresses()), None);
        }
        self.write_part_beside(range, added)
    }

    /// As [`Space::write_part`], where parts are given out; apart, so that a space of one user pays nothing for it.
    #[inline(never)]
    #[track_caller]
    fn write_part_beside(
        &self,
        range: PageRange,
        added: Additions,
    ) -> (SpaceWriteGuard<'_, P, D>, Option<Editing<'_, P, D>>) {
        let locked = self.write_claimed((range.start(), Comes::Nothing), &mut |_, _| Some((range, added)));
        self.join_seams(&locked.0, &range.addresses());
        locked
    }

    /// As [`Space::write_part`], of a range that `choose` says under the lock of what is held; everything if it says
    /// nothing, or one that is not in the lane of `near`.
    #[track_caller]
    pub(super) fn write_claimed<'a>(
        &'a self,
        (near, comes): (VirtAddr, Comes),
        choose: &mut Ask<'_, 'a, P, D>,
    ) -> (SpaceWriteGuard<'a, P, D>, Option<Editing<'a, P, D>>) {
        let mut is_refused = false;
        let mut nodes = self.reserve_annex(near);
        let (mut lane, mut unfit, mut met, mut is_fitting) = (None, None, None, false);
        let (mut write, mut edit) = self.write_chosen(near, &mut |held, other| {
            (is_refused, met, unfit) = (false, None, None);
            lane = self.own_lane(near.get(), held);
            let Some((range, added)) = choose(held, lane.as_ref()) else { return Choice::Everything };
            let part = mutant!(PartNotWidened, self.widened(range, lane.as_ref()) => range.numbers());
            let wanted = Wanted { near, held, lane: lane.as_ref(), range, part, comes };
            let claim = self.claim(&wanted, other, added, (&mut nodes, &mut unfit, &mut met));
            is_refused = claim.is_none() && unfit.is_none();
            if unfit.as_ref().is_some_and(Unfit::is_mended) && !is_fitting {
                is_fitting = self.lane_rooms().is_some_and(|lanes| lanes.annexes().begin_fitting());
                return if is_fitting { Choice::Everything } else { Choice::Behind };
            }
            claim.unwrap_or(Choice::Everything)
        });
        if let Some(reach) = met.filter(|_| !write.is_whole()) {
            (write, edit) = self.looked_at_again((write, edit), &reach, comes);
        }
        if is_refused {
            // Maybe by a limit that is near because of credits alone (C5 of `credits`).
            self.recall_credits();
        }
        if let Some(unfit) = unfit.filter(|_| write.is_whole()) {
            self.make_fit(write.permit(), &unfit);
        }
        if is_fitting && let Some(lanes) = self.lane_rooms() {
            lanes.annexes().end_fitting();
        }
        (write, edit.map(|lock| Editing::new(lock, lane)))
    }

    /// Returns a part that reaches a bound, with the seam there open; everything if whoever had some of it when it was
    /// chosen has given roots, or made seams, and left.
    #[cold]
    #[track_caller]
    fn looked_at_again<'a>(
        &'a self,
        (write, edit): (SpaceWriteGuard<'a, P, D>, Option<EditGuard<'a, P>>),
        reach: &Reach,
        comes: Comes,
    ) -> (SpaceWriteGuard<'a, P, D>, Option<EditGuard<'a, P>>) {
        if !self.is_decided(reach, comes) {
            drop((edit, write));
            return (self.write(reach.range.addresses()), None);
        }
        if let Some(bound) = reach.bound {
            write.permit().open_seam(VirtAddr::new(bound), &reach.range.addresses());
        }
        (write, edit)
    }

    /// Returns what a change of a range claims, which has `part`, if no limit is near (R2, R6); under the table's lock.
    #[inline(always)]
    fn claim<'a>(
        &'a self,
        wanted: &Wanted<'_, 'a, P, D>,
        other: &mut Option<HeldRanges<'a, P>>,
        added: Additions,
        (nodes, unfit, met): (&mut Option<MoveNodes<'_, P>>, &mut Option<Unfit>, &mut Option<Reach>),
    ) -> Option<Choice<'a, P>> {
        if let Some(row) = self.row() {
            let claim = |Range { start, end }| Claim { start, end, ..Claim::default() };
            // Of a lane most parts are as they are; what reaches the bounds of a CPU's range has everything.
            if let Some(lane) = wanted.lane.filter(|lane| lane.notes_lookers) {
                let is_inside = lane.has_part(&wanted.part);
                if is_inside {
                    return self.claim_credits(&row, &added).then(|| Choice::Part(claim(wanted.part.clone())));
                }
                if lane.is_cpus {
                    return Some(Choice::Everything);
                }
            }
            let fitted = self.fit_part(wanted, other, nodes);
            return match fitted.map_err(|cause| *unfit = Some(cause)).ok()? {
                Fitted::Inside(part) if !self.is_inside(wanted.near, &part) => Some(Choice::Everything),
                Fitted::Inside(part) => {
                    *met = (part != wanted.part).then_some(Reach { bound: None, range: wanted.range });
                    self.claim_credits(&row, &added).then(|| Choice::Part(claim(part)))
                }
                Fitted::Both(part, beyond) => {
                    let bound = wanted.range.start().get().max(beyond.start);
                    *met = Some(Reach { bound: Some(bound), range: wanted.range });
                    // An open seam is one area more.
                    let added = Additions { areas: added.areas + 1, ..added };
                    self.claim_credits(&row, &added).then(|| Choice::Two(claim(part), beyond))
                }
                Fitted::Later(table) => Some(Choice::Again(table)),
            };
        }
        self.claim_beside_counters(wanted, added)
    }

    /// Says whether so many areas, and whatever else, may be added, far from any limit, where CPUs hold no credits;
    /// under the table's lock, with no part held.
    #[inline(always)]
    pub(super) fn is_far_from_limits(&self, nr_added: u64) -> bool {
        let bytes = self.limits.address_space_bytes & self.limits.data_bytes;
        bytes == u64::MAX
            && self.counted(Quantity::Areas) + nr_added + Additions::MOST_AREAS < self.limits.max_map_count
    }

    /// As [`Space::claim`], where CPUs hold no credits.
    fn claim_beside_counters<'a>(&'a self, wanted: &Wanted<'_, 'a, P, D>, added: Additions) -> Option<Choice<'a, P>> {
        let (nr_added, bytes_added) = (added.areas, added.bytes);
        let (nr_areas, most) = (self.counted(Quantity::Areas) + nr_added, self.limits.max_map_count);
        let limit = self.limits.address_space_bytes.min(self.limits.mapped_data_bytes());
        // All there can be may claim no more than that.
        let is_far = self.is_far_from_limits(nr_added);
        let (nr_claimed, bytes_claimed) = if is_far { (0, 0) } else { wanted.held.claimed() };
        // One below the limit, at which some calls answer otherwise.
        let has_room = nr_areas + nr_claimed + 1 < most;
        let is_small = self.counted(Quantity::Bytes).saturating_add(bytes_claimed).saturating_add(bytes_added) <= limit;
        if !has_room || !is_small {
            return None;
        }
        if !self.is_inside(wanted.near, &wanted.part) {
            return Some(Choice::Everything);
        }
        let Range { start, end } = wanted.part;
        Some(Choice::Part(Claim { start, end, nr_added, bytes_added }))
    }

    /// Says whether a part is one of the lane of an address (N2 of `lane_rooms`).
    fn is_inside(&self, near: VirtAddr, part: &Range<u64>) -> bool {
        self.lane_rooms().is_none_or(|lanes| lanes.is_part_at(near.get(), part))
    }

    /// Returns a range and the areas that overlap or touch it, as one; under the table's lock.
    fn widened(&self, range: PageRange, lane: Option<&OwnLane<'_, P, Area<P, D>>>) -> Range<u64> {
        let Range { start, end } = range.numbers();
        if let Some(lane) = lane.filter(|lane| lane.is_around(&(start..end))) {
            return lane.widened(start..end);
        }
        let _beside = self.look_beside();
        let below = self.last_area_starting_before(start, start.saturating_sub(1)).filter(|entry| entry.end >= start);
        let above = self.area_containing(end);
        below.map_or(start, |entry| entry.start)..above.map_or(end, |entry| entry.end)
    }
}
