//! Page faults: what all designs share.
//!
//! # Guarantee
//! [`resolve`] maps the page that an area promises at an address, or says why not. It commits by one store to the
//! page's entry, under the lock that the design's [`EntryLock`] takes, and only if the entry is still the one seen
//! before. If it isn't, another thread was faster, and the access is simply tried again.
//!
//! # Rooms
//! `classic` finds the area under the semaphore; `anonymous`, `object` and `reference` fill empty entries;
//! `copy` answers stores to pages that may not be written yet, `finish` ends a copy; `untouched` is what a page holds
//! before its first store; `resolve` tells the cases apart; `kinds` are faults by value; `promised` asks the entry
//! instead of an area.

mod anonymous;
pub(crate) mod classic;
mod copy;
mod finish;
pub(crate) mod kinds;
#[cfg(feature = "mutants")]
mod known;
mod object;
mod promised;
mod reference;
mod resolve;
mod untouched;

use crate::access::Access;
use crate::area::{AreaFlags, AreaView};
use crate::content::Behind;
use crate::design::{Design, Map};
use crate::entry::{Entry, EntryFlags};
use crate::error::AccessError;
use crate::events::GiveUp;
use crate::object::ObjectRef;
use crate::space::Space;
use crate::system::System;
use crate::translations::frames;
use crate::translations::table::Leaf;
use faultless_phys::{FrameSource, Kind, OutOfFrames, Pfn};
use faultless_platform::{Holds, Ordering};

pub use kinds::{Fault, Handled};
pub(crate) use promised::handle_promised;
pub(crate) use resolve::resolve;

/// Why [`resolve`] did not map the page.
pub(crate) enum Stop<P: System> {
    /// The design's lock found a change.
    GiveUp(GiveUp),
    /// The object must fetch this page, with no lock held.
    Fetch((ObjectRef<P>, u64)),
    /// The access fails.
    Failed(AccessError),
}

impl<P: System> From<GiveUp> for Stop<P> {
    fn from(reason: GiveUp) -> Self {
        Self::GiveUp(reason)
    }
}

impl<P: System> From<OutOfFrames> for Stop<P> {
    fn from(cause: OutOfFrames) -> Self {
        Self::Failed(AccessError::OutOfFrames(cause))
    }
}

/// A fault whose area and entry are found.
pub(crate) struct PageFault<'a, P: System, D: Design<P>> {
    pub(crate) space: &'a Space<P, D>,
    /// The area, as it is while the fault is at work; of whatever the design keeps.
    pub(crate) view: AreaView<P>,
    /// What stands behind it.
    pub(crate) behind: &'a Behind<P>,
    pub(crate) fault: Fault,
    pub(crate) leaf: Leaf<'a, P>,
    /// The entry as it was when the walk ended.
    pub(crate) seen: Entry,
}

/// How a design locks a page's entry for the commit.
pub(crate) trait EntryLock<P: System, D: Design<P>> {
    /// Locks the entry, after all that the design checks.
    #[track_caller]
    fn lock<'a>(&self, page: &PageFault<'a, P, D>) -> Result<LeafGuard<'a, P>, GiveUp>;
    /// Takes a frame for the page that is about to be made; its content is anything.
    #[inline]
    fn alloc(&self, memory: &P::Frames) -> Result<Pfn, OutOfFrames> {
        frames::alloc(memory, Kind::Anonymous)
    }
    /// Returns the area's reverse-map root for a page that is about to be made.
    fn root(&self, page: &PageFault<'_, P, D>) -> u64;
}

/// Holds a leaf table's lock, and its address if it has none of its own ([`crate::translations::table::TableMap`]).
///
/// Having it tells you that the entry changes by nobody else, but for accessed and dirty bits.
pub(crate) struct LeafGuard<'a, P: System> {
    memory: &'a P::Frames,
    leaf: Leaf<'a, P>,
}

impl<'a, P: System> LeafGuard<'a, P> {
    #[track_caller]
    pub(crate) fn lock(memory: &'a P::Frames, leaf: Leaf<'a, P>) -> Self {
        P::map_frame(memory.frame(leaf.table), Holds::Table);
        memory.page(leaf.table).lock().lock();
        Self { memory, leaf }
    }

    #[track_caller]
    pub(crate) fn try_lock(memory: &'a P::Frames, leaf: Leaf<'a, P>) -> Option<Self> {
        P::map_frame(memory.frame(leaf.table), Holds::Table);
        if memory.page(leaf.table).lock().try_lock() {
            return Some(Self { memory, leaf });
        }
        P::unmap_frame(memory.frame(leaf.table), Holds::Table);
        None
    }

    pub(crate) fn is_locked(memory: &P::Frames, leaf: Leaf<'_, P>) -> bool {
        memory.page(leaf.table).lock().is_locked()
    }

    pub(crate) fn entry(&self) -> Entry {
        self.leaf.entry()
    }

    /// Fills an entry that is not present and, under a design that fills empty entries freely, not empty either.
    pub(crate) fn fill(&self, entry: Entry) {
        debug_assert!(!self.entry().is_present(), "a present entry is exchanged, not overwritten (I2 of `table`)");
        // ORDER: Release pairs with the Acquire in `table::load`: the frame's content is seen through the entry.
        self.leaf.slot.store(entry, Ordering::Release);
    }

    /// Puts `entry` in place of `seen`; says whether it did, or a walk had set bits in `seen`.
    pub(crate) fn exchange(&self, seen: Entry, entry: Entry) -> bool {
        // ORDER: AcqRel pairs with the compare-and-swap of a walk that sets accessed and dirty bits, and with the
        // Acquire in `table::load`. Relaxed on failure: the fault starts over.
        self.leaf.slot.exchange(seen, entry, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Leaves `left`, which is not present, and returns what was there, with the bits that a CPU's walk set until now.
    pub(crate) fn take(&self, left: Entry) -> Entry {
        debug_assert!(!left.is_present(), "the entry is to be out of the walks' reach");
        // ORDER: AcqRel pairs with the compare-and-swap of a walk that sets accessed and dirty bits.
        self.leaf.slot.swap(left, Ordering::AcqRel)
    }
}

impl<P: System> Drop for LeafGuard<'_, P> {
    fn drop(&mut self) {
        // SAFETY: this guard locked it.
        unsafe { self.memory.page(self.leaf.table).lock().unlock() };
        P::unmap_frame(self.memory.frame(self.leaf.table), Holds::Table);
    }
}

/// Says whether an area's rights allow an access. x86: any right implies that loads succeed, but for a key that forbids
/// it.
pub(crate) fn permits(flags: AreaFlags, access: Access) -> bool {
    match access {
        Access::Read => flags.intersects(AreaFlags::RIGHTS) && !flags.contains(AreaFlags::EXECUTE_ONLY),
        Access::Write => flags.contains(AreaFlags::WRITE),
        Access::Fetch => flags.contains(AreaFlags::EXEC),
    }
}

impl<P: System, D: Design<P>> PageFault<'_, P, D> {
    pub(crate) fn is_shared(&self) -> bool {
        self.view.flags.contains(AreaFlags::SHARED)
    }

    /// Returns what an entry keeps of its promise when a page comes.
    #[inline]
    pub(crate) fn promise(&self) -> EntryFlags {
        if D::Map::PROMISES { self.seen.promise_alone().flags() } else { EntryFlags::empty() }
    }

    /// Returns the entry of a private page that this fault makes and nobody else has.
    #[inline]
    pub(crate) fn private_entry(&self, pfn: Pfn) -> Entry {
        let mut flags = self.view.read_only_entry() | EntryFlags::EXCLUSIVE | self.promise();
        if self.view.flags.contains(AreaFlags::WRITE) {
            flags |= EntryFlags::WRITE | EntryFlags::DIRTY;
        }
        Entry::new(pfn, flags)
    }

    /// Puts `entry` in place of what was seen; says whether it did, or another thread was faster.
    #[track_caller]
    pub(crate) fn install<L: EntryLock<P, D>>(&self, lock: &L, entry: Entry) -> Result<bool, GiveUp> {
        if D::FILLS_FREELY && self.seen.is_empty() {
            return Ok(self.leaf.fill(self.space.memory(), entry));
        }
        let guard = lock.lock(self)?;
        if self.seen.is_present() {
            return Ok(guard.exchange(self.seen, entry));
        }
        let is_unchanged = guard.entry() == self.seen;
        if is_unchanged {
            guard.fill(entry);
        }
        Ok(is_unchanged)
    }
}
