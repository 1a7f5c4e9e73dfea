//! Page faults: what all designs share.
//!
//! # Guarantee
//! [`resolve`] maps the page that an area promises at an address, or says why not. It commits by one store to the
//! page's entry, under the lock that the design's [`EntryLock`] takes, and only if the entry is still the one seen
//! before. If it isn't, another thread was faster, and the access is simply tried again.
//!
//! What a fault does to its entry knows an area by value ([`AreaView`]), and neither a space nor a design: `classic`,
//! `promised` and `found` alone do (`.ci/border`).
//!
//! # Rooms
//! `classic` finds the area under the semaphore; `anonymous`, `object` and `reference` fill empty entries;
//! `copy` answers stores to pages that may not be written yet, `finish` ends a copy; `untouched` is what a page holds
//! before its first store; `resolve` tells the cases apart; `kinds` are faults by value; `promised` asks the entry
//! instead of an area; `found` says what a space's design adds.

mod anonymous;
pub(crate) mod classic;
mod copy;
mod finish;
mod found;
pub(crate) mod kinds;
#[cfg(feature = "mutants")]
mod known;
mod object;
mod promised;
mod reference;
mod resolve;
mod untouched;

use crate::access::Access;
use crate::content::Behind;
use crate::entry::{Entry, EntryFlags};
use crate::error::AccessError;
use crate::events::GiveUp;
use crate::system::System;
use crate::translations::frames;
use crate::translations::leaf_guard::LeafGuard;
use crate::translations::table::Leaf;
use crate::translations::{Instance, Translations};
use crate::view::{AreaFlags, AreaView};
use faultless_phys::{Kind, OutOfFrames, Pfn};

pub use kinds::{Fault, Handled};
pub(crate) use promised::handle_promised;
pub(crate) use resolve::resolve;

/// Why [`resolve`] did not map the page.
pub(crate) enum Stop {
    /// The design's lock found a change.
    GiveUp(GiveUp),
    /// The area's object must fetch the page of this index, with no lock held.
    Fetch(u64),
    /// The access fails.
    Failed(AccessError),
}

impl From<GiveUp> for Stop {
    fn from(reason: GiveUp) -> Self {
        Self::GiveUp(reason)
    }
}

impl From<OutOfFrames> for Stop {
    fn from(cause: OutOfFrames) -> Self {
        Self::Failed(AccessError::OutOfFrames(cause))
    }
}

/// What a design and its map say about entries.
#[derive(Clone, Copy)]
pub(crate) struct EntryRules {
    /// Whether faults fill empty entries without their table's lock ([`Design::FILLS_FREELY`](crate::design::Design)).
    pub(crate) fills_freely: bool,
    /// Whether an entry keeps its promise ([`Map::PROMISES`](crate::design::Map)).
    pub(crate) promises: bool,
}

/// A fault whose area and entry are found.
pub(crate) struct PageFault<'a, P: System> {
    pub(crate) translations: &'a Translations<P>,
    pub(crate) rules: EntryRules,
    /// The area, as it is while the fault is at work; of whatever the design keeps.
    pub(crate) view: AreaView<P>,
    /// What stands behind it.
    pub(crate) behind: &'a Behind<P>,
    pub(crate) fault: Fault,
    pub(crate) leaf: Leaf<'a, P>,
    /// The entry as it was when the walk ended.
    pub(crate) seen: Entry,
}

impl<P: System> Clone for PageFault<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: System> Copy for PageFault<'_, P> {}

/// How a design locks a page's entry for the commit.
pub(crate) trait EntryLock<P: System> {
    /// Locks the entry, after all that the design checks: where something else keeps the area as it is, its table
    /// alone.
    #[inline(always)]
    #[track_caller]
    fn lock<'a>(&self, page: &PageFault<'a, P>) -> Result<LeafGuard<'a, P>, GiveUp> {
        Ok(LeafGuard::lock(page.memory(), page.leaf))
    }
    /// Takes a frame for the page that is about to be made; its content is anything.
    #[inline(always)]
    fn alloc(&self, memory: &P::Frames) -> Result<Pfn, OutOfFrames> {
        frames::alloc(memory, Kind::Anonymous)
    }
    /// Returns the area's reverse-map root for a page that is about to be made.
    #[inline]
    fn root(&self, page: &PageFault<'_, P>) -> u64 {
        page.view.root
    }
}

/// Locks the leaf table and nothing else, inside an RCU section: the area is kept as it is by what its design
/// announces, or the entry is the area. Entries of a table that has left the tree are empty, and stay so.
pub(crate) struct LockedInSection;

impl<P: System> EntryLock<P> for LockedInSection {
    /// Without sleeping: frames that wait for a grace period are the classic path's.
    #[inline(always)]
    fn alloc(&self, memory: &P::Frames) -> Result<Pfn, OutOfFrames> {
        frames::try_alloc(memory, Kind::Anonymous)
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

impl<'a, P: System> PageFault<'a, P> {
    /// Returns what all spaces share.
    #[inline]
    pub(crate) fn instance(&self) -> &'a Instance<P> {
        self.translations.instance()
    }

    /// Returns the frames.
    #[inline]
    pub(crate) fn memory(&self) -> &'a P::Frames {
        self.translations.memory()
    }

    pub(crate) fn is_shared(&self) -> bool {
        self.view.flags.contains(AreaFlags::SHARED)
    }

    /// Returns what an entry keeps of its promise when a page comes.
    #[inline]
    pub(crate) fn promise(&self) -> EntryFlags {
        if self.rules.promises { self.seen.promise_alone().flags() } else { EntryFlags::empty() }
    }

    /// Returns the entry of a private page that this fault makes and nobody else has.
    #[inline(always)]
    pub(crate) fn private_entry(&self, pfn: Pfn) -> Entry {
        let mut flags = self.view.read_only_entry() | EntryFlags::EXCLUSIVE | self.promise();
        if self.view.flags.contains(AreaFlags::WRITE) {
            flags |= EntryFlags::WRITE | EntryFlags::DIRTY;
        }
        Entry::new(pfn, flags)
    }

    /// Puts `entry` in place of what was seen; says whether it did, or another thread was faster.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn install<L: EntryLock<P>>(&self, lock: &L, entry: Entry) -> Result<bool, GiveUp> {
        if self.rules.fills_freely && self.seen.is_empty() {
            return Ok(self.leaf.fill(self.memory(), entry));
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
