//! Address spaces.
//!
//! # Guarantee
//! An operation either does all that Linux documents for it or returns an error. A call over several areas that runs
//! out of frames has, as on Linux, completed the areas before; none is half done. When it returns, no CPU has a
//! translation stronger than the page tables.
//!
//! # Lock order (outermost first; nobody holds one of a later line while taking one of an earlier)
//! 0. an object's `changes`, which truncations and holes of the object hold
//! 1. the space's lock (`permit`): its semaphore, or a share of it and a part of the space (`ranges`); nobody holds two
//! 2. areas' locks (`vma-lock`): only a writer waits for one; its readers take 4 and 5 only
//! 3. the design's index lock; the lock of the parts that are held of one lane, under which its index is edited
//!    (`ranges`, `lane_rooms`)
//! 4. a leaf table's lock (source before destination in mremap, parent before child in fork), or those of a range of
//!    promises, ascending (`translations::counted`)
//! 5. inboxes, the list of spaces, the frame source's locks
//!
//! Fetches of memory objects and waits for grace periods happen without 3 to 5; fetches without 1 and 2. A trylock
//! may break this order, because it never waits: an attempt that is given up tries the semaphore under the index lock.
//!
//! # Race: a second user comes (`tests/native/users.rs`)
//! ```text
//! writer (has the semaphore alone)         who joins                                     faults
//! is_shared? no: publishes without regard  nr_users 0 -> 1: alone, done                  nr_users > 1? no: classic
//!   to faults that look up beside it       else share the semaphore: waits for writers   nr_users > 1 (Acquire): look up
//! gives the semaphore up                   is_shared = true; nr_users += 1 (Release)       beside writers, who see is_shared
//! ```
//! Forbidden: a fault looks up beside a writer that saw nobody shared. `is_shared` stays: who saw two users may be at
//! work still when one has left.
//!
//! Nodes, areas and tables are freed at once where nobody but the calling CPU looks without the semaphore
//! (`sync::Lookers`). Those who do: faults of the designs that speculate, of spaces with two users; faults of
//! `vma-lock` by `look`, also of one; `entry_at`, `search_unlocked` and `handle_fault`'s walk by `look`.
//!
//! # Rooms
//! `change` edits the area list, and `ordinary` where that needs no plan; `holes` is the one place that says which
//! tables go with it, `quota` the one that knows limits. `permit` locks the space, and says what having it locked
//! permits. `fast_path` is the way of calls in a lane where nobody else is. The calls: `map`, `file_pages`, `protect`,
//! `remap`, `advise` (with `guard` and `populate`), `lock`, `ask`, `seal`, `heap`, `stack`, `truncate` and `fork`.
//! `removal` is the second half of those that unmap, `departure` that without the lock; `list` shows the areas; `life`
//! makes and ends spaces, `spaces` lists them. `areas` is the map of the published designs, `promises` that of designs
//! that keep none. `map_lock` says who waits for whom, `ranges` (with `left_over` and `credits`) how several are
//! inside at once, `request` what mmap is asked for, `search` where that goes, `line` how an area is shown;
//! `lane_rooms` is what each lane has of its own, `annexes` are lanes for named addresses, `lookups` finds areas
//! there, `own_lane` (with `editing`) for whoever has a lane's lock; `references` and `pins` are the calls about
//! those.

mod advise;
mod annex_edits;
mod annexes;
mod areas;
mod ask;
mod carving;
mod change;
#[cfg(test)]
mod company;
mod credits;
#[cfg(test)]
mod crowding;
mod departure;
pub(crate) mod departures;
mod editing;
mod fast_path;
mod file_pages;
mod fitting;
mod fork;
mod guard;
mod heap;
mod holes;
mod lane_rooms;
mod left_over;
mod life;
pub(crate) mod line;
mod list;
mod lock;
mod lookups;
mod map;
pub(crate) mod map_lock;
pub(crate) mod mappers;
mod ordinary;
mod own_lane;
mod permit;
mod pins;
mod place;
mod populate;
mod promises;
mod protect;
pub(crate) mod quantity;
mod quota;
pub(crate) mod ranges;
mod references;
mod remap;
mod removal;
pub(crate) mod request;
mod root;
mod seal;
mod seams;
mod search;
mod spaces;
mod spreading;
mod stack;
mod truncate;

pub(crate) use crate::addr::EVERYTHING;
pub use crate::types::Space;
pub use advise::Advice;
pub use areas::Areas;
pub use ask::SyncFlags;
pub use change::Sizes;
pub use lane_rooms::LaneRooms;
pub use left_over::LeftOver;
pub use life::SpaceRef;
pub use line::AreaLine;
pub use list::AreaList;
pub use lock::{LockAll, PageLock};
pub use map_lock::{EditGuard, MapLock, WholeSpace};
pub(crate) use permit::{AreaAt, ReadPermit, SpaceReadGuard};
pub use promises::{Cursor, EntryChange, Promises, Tally};
pub use ranges::Ranges;
pub use remap::{RemapPlacement, RemapRequest};
pub use request::{Backing, MapRequest, Placement, Populate};

use crate::addr::{PageRange, USER_END, VirtAddr};
use crate::design::Design;
use crate::entry::Entry;
use crate::error::CallError;
use crate::index::Index;
use crate::limits::{Limits, PlacementPolicy};
use crate::system::System;
use crate::translations::lanes::Lanes;
use crate::translations::table::Tables;
use crate::translations::tlb::SpaceId;
use crate::types::{Area, Vm};
use core::ops::Range;
use core::ptr::NonNull;
use faultless_phys::FrameSource;
use faultless_platform::{Atomic, AtomicInteger, Ordering};
use faultless_sync::{AtomicCpuSet, RcuGuard};
use permit::{SpaceWriteGuard, WritePermit};
use quantity::Quantity;

// SAFETY: shared by design; `listing` is used under the lock of the list.
unsafe impl<P: System, D: Design<P>> Sync for Space<P, D> {}
// SAFETY: nothing in it belongs to a thread.
unsafe impl<P: System, D: Design<P>> Send for Space<P, D> {}

impl<P: System, D: Design<P>> Space<P, D> {
    /// Returns the instance.
    /// A design's fault calls it for what holds for all spaces.
    pub fn vm(&self) -> &Vm<P, D> {
        // SAFETY: the instance outlives its spaces (I1 of `Vm`).
        unsafe { self.vm.as_ref() }
    }

    /// Returns the frames.
    /// A design's fault calls it for the frames that it fills.
    pub fn memory(&self) -> &P::Frames {
        self.vm().memory()
    }

    /// Returns the space's name in TLBs.
    pub fn id(&self) -> SpaceId {
        self.translations.id
    }

    /// Returns the limits.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Returns what the design keeps for the space.
    pub(crate) fn design_state(&self) -> &D::SpaceState {
        &self.state
    }

    /// Returns the area index.
    pub(crate) fn index(&self) -> &Index<P, Area<P, D>> {
        &self.index
    }

    /// Returns the page tables.
    pub(crate) fn tables(&self) -> &Tables<P> {
        &self.translations.tables
    }

    /// Returns the CPUs that may have translations of this space.
    pub(crate) fn users(&self) -> &AtomicCpuSet<P> {
        self.translations.lanes.users()
    }

    /// Returns which CPUs may have translations of which part of this space.
    pub(crate) fn lanes(&self) -> &Lanes<P> {
        &self.translations.lanes
    }

    /// Says whether a CPU may have translations of this space, so that a shootdown asks it.
    /// Called by tests of shootdowns, which ask whom one would reach.
    pub fn is_used_by(&self, cpu: usize) -> bool {
        self.users().contains(cpu)
    }

    /// Returns a page's entry as the tables have it at some instant during the call; without the semaphore.
    pub fn entry_at(&self, address: VirtAddr) -> Entry {
        let address = address.get();
        if address >= USER_END {
            return Entry::EMPTY;
        }
        let _reading = self.look();
        self.translations.read(address)
    }

    /// Returns the number of threads that run in the space.
    pub fn nr_users(&self) -> u32 {
        // ORDER: Acquire pairs with the Release in `add_user`: who sees a second user sees what was done without regard
        // to one.
        self.nr_users.load(Ordering::Acquire)
    }

    /// Says whether the space has, or had, two users at once; under the write lock, it stays as it is.
    #[inline]
    pub(crate) fn is_shared(&self) -> bool {
        // Relaxed: set under the semaphore, which the caller has for writing.
        self.is_shared.load(Ordering::Relaxed)
    }

    /// Counts a user in. A second user waits for the current writer, which may have assumed that there was one.
    pub(crate) fn add_user(&self) {
        // Relaxed: one user is no reason to speculate.
        if self.nr_users.compare_exchange(0, 1, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            return;
        }
        // ORDER: Acquire pairs with the Release in `count_user_in`: the second user has waited, for all that follow.
        let is_shared = self.is_shared.load(Ordering::Acquire);
        if !D::Lock::DIVIDES && (is_shared || self.limits.placement != PlacementPolicy::Auto) {
            let _read = self.read(EVERYTHING);
            return self.count_user_in();
        }
        if is_shared {
            // ORDER: as in `count_user_in`.
            self.nr_users.fetch_add(1, Ordering::Release);
            return;
        }
        let mut write = self.write(EVERYTHING);
        if !self.is_shared() {
            self.spread_shared();
            write.divide();
        }
        self.count_user_in();
    }

    fn count_user_in(&self) {
        // ORDER: Release pairs with the Acquire in `add_user`. Writers read it under the semaphore.
        self.is_shared.store(true, Ordering::Release);
        self.translations.lookers.let_many_in();
        // ORDER: Release pairs with the Acquire in `nr_users`.
        self.nr_users.fetch_add(1, Ordering::Release);
    }

    pub(crate) fn remove_user(&self) {
        // Relaxed: fewer users are no reason to speculate.
        self.nr_users.fetch_sub(1, Ordering::Relaxed);
    }

    /// Begins an RCU section in which a CPU looks something up without the semaphore, in a space of one user or more;
    /// where there are two users, any section does.
    #[inline]
    pub(crate) fn look(&self) -> RcuGuard<'_, P> {
        self.translations.look()
    }

    /// Says whether somebody may look, without the semaphore, at an area, a node or a table that the caller took away;
    /// then it is freed after a grace period, else at once.
    #[inline]
    pub(crate) fn is_looked_at(&self) -> bool {
        self.translations.is_looked_at()
    }

    /// Says whether a change of an address waits for the RCU section that the calling thread's CPU is in.
    #[inline]
    pub(crate) fn is_awaited(&self, cpu: usize, address: u64) -> bool {
        self.translations.is_awaited(cpu, address)
    }

    /// Returns the number of areas (map_count).
    pub fn nr_areas(&self) -> u64 {
        self.total(Quantity::Areas)
    }

    /// Returns the total size of all areas in bytes.
    pub fn mapped_bytes(&self) -> u64 {
        self.total(Quantity::Bytes)
    }

    /// Returns the size of all private writable areas but stacks, in bytes.
    pub fn data_bytes(&self) -> u64 {
        self.total(Quantity::DataBytes)
    }

    /// Returns the size of all locked areas in bytes.
    pub fn locked_bytes(&self) -> u64 {
        self.total(Quantity::LockedBytes)
    }

    /// Runs `act` with a range locked for changing it, then what a grace period was waited for.
    #[track_caller]
    fn with_write<R>(&self, range: Range<VirtAddr>, act: impl FnOnce(WritePermit<'_, P, D>) -> R) -> R {
        self.with_guard(self.write_settled(range), act)
    }

    /// As [`Space::with_write`], also while parts of the range leave.
    #[track_caller]
    fn with_any_write<R>(&self, range: Range<VirtAddr>, act: impl FnOnce(WritePermit<'_, P, D>) -> R) -> R {
        self.with_guard(self.write(range), act)
    }

    /// Runs `act` with what is locked, unlocks it, and then runs what a grace period was waited for.
    #[inline]
    fn with_guard<R>(&self, write: SpaceWriteGuard<'_, P, D>, act: impl FnOnce(WritePermit<'_, P, D>) -> R) -> R {
        let result = act(write.permit());
        drop(write);
        self.poll_deferred();
        result
    }

    /// Runs what a grace period was waited for, as far as that needs no waiting; called without any lock.
    #[inline]
    fn poll_deferred(&self) {
        D::poll(self.vm());
        self.memory().rcu().poll();
    }

    /// As [`Space::with_write`]; if there is no frame and some wait for the design's readers, frees those and tries
    /// again.
    #[track_caller]
    fn try_with_write<R>(
        &self,
        range: Range<VirtAddr>,
        act: impl Fn(WritePermit<'_, P, D>) -> Result<R, CallError>,
    ) -> Result<R, CallError> {
        self.try_again(|| self.with_write(range.clone(), &act))
    }

    /// As [`Space::try_with_write`], with what `lock` locks.
    #[inline]
    fn try_with<'a, R>(
        &'a self,
        lock: impl Fn() -> SpaceWriteGuard<'a, P, D>,
        act: impl Fn(WritePermit<'_, P, D>) -> Result<R, CallError>,
    ) -> Result<R, CallError> {
        self.try_again(|| self.with_guard(lock(), &act))
    }

    /// Runs `act`; if there is no frame and some wait for the design's readers, frees those and runs it again.
    #[track_caller]
    pub(super) fn try_again<R>(&self, act: impl Fn() -> Result<R, CallError>) -> Result<R, CallError> {
        self.vm().try_again(act)
    }

    /// Takes the translations of `range` away from all CPUs.
    pub(crate) fn flush(&self, range: PageRange) {
        self.translations.flush(range);
    }

    /// Frees an area that nobody holds any more, after a grace period if somebody may look at it.
    pub(crate) fn free_area(&self, area: NonNull<Area<P, D>>) {
        // SAFETY: passed on: the last holder calls.
        unsafe {
            match self.is_looked_at() {
                true => self.vm().free_area(area),
                false => self.vm().free_area_at_once(area),
            }
        }
    }

    /// Returns the resident size in pages (rss); exact while nobody faults.
    pub fn resident_pages(&self) -> u64 {
        self.translations.resident.pages(self.memory())
    }

    /// Returns the largest resident size so far, in pages; where more than one CPU used the space, up to 64 pages of
    /// each may be missing from it, or twice as many as there are CPUs if that is more.
    pub fn peak_resident_pages(&self) -> u64 {
        self.translations.resident.note_peak(self.memory());
        self.translations.resident.peak(self.memory())
    }
}
