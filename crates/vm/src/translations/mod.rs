//! A space's translations: its page tables, and which CPUs may have them in a TLB.
//!
//! # Guarantee
//! Nothing here knows areas, an index or a design: nothing has a type parameter for one, and no file imports the map's
//! rooms (`.ci/border`). The map says which range changes, and what lies around it; the rooms here change entries,
//! tables and TLBs.
//!
//! # Who locks what
//! The map's calls have the space's lock, or keep everybody else out of the range, while they call; the rooms take a
//! leaf table's lock themselves.
//!
//! # Rooms
//! `table` is the tree, `slot` an entry's place in it and `leaf_guard` a leaf's lock; `frames` is what entries hold.
//! `tlb` and `shootdown` are the CPUs' side, `lanes` says which CPUs used what. What calls do to entries: `zap` empties
//! them, `guards` puts guards there, `lazy_free` gives pages up, `rights` changes what is allowed, `copy` is fork's
//! part, `sharing` what parent and child have in common after it (`sharer`: what that needs besides tables), `moves`
//! mremap's, `counted` is for maps that consist of entries, `written` finds pages that were stored to. `gather` takes
//! out of TLBs what was emptied, `resident` counts.

pub(crate) mod copy;
pub(crate) mod counted;
pub(crate) mod frames;
pub(crate) mod gather;
mod guards;
pub(crate) mod lanes;
mod lazy_free;
pub(crate) mod leaf_guard;
mod moves;
pub(crate) mod resident;
pub(crate) mod rights;
pub(crate) mod sharer;
pub(crate) mod sharing;
pub(crate) mod shootdown;
pub(crate) mod slot;
pub(crate) mod table;
pub(crate) mod tlb;
mod weaken;
mod written;
mod zap;

use crate::addr::PageRange;
use crate::entry::Entry;
use crate::events::Events;
use crate::system::System;
use crate::tags::{MemoryTags, TagSource};
use crate::translations::frames::FrameMap;
use crate::translations::lanes::{Lanes, Spread};
use crate::translations::resident::Resident;
use crate::translations::sharer::Sharer;
use crate::translations::shootdown::{Cpus, Fenced};
use crate::translations::table::Tables;
use crate::translations::tlb::SpaceId;
use alloc::sync::Arc;
use core::ops::Range;
use core::ptr::NonNull;
use faultless_phys::{FrameSource, OutOfFrames, Pfn};
use faultless_platform::{Atomic, Bulk, mutant};
use faultless_sync::{Lookers, RcuGuard};
pub(crate) use zap::Emptied;

/// What an instance has for the translations of all its spaces.
pub(crate) struct Instance<P: System> {
    pub(crate) memory: P::Frames,
    pub(crate) tags: Option<Arc<dyn MemoryTags>>,
    pub(crate) cpus: Cpus<P>,
    pub(crate) events: Events<P>,
    /// Never written, never counted, never freed.
    pub(crate) zero_page: Pfn,
}

impl<P: System> Instance<P> {
    /// Gives a frame its content and its tags.
    ///
    /// # Safety
    /// The frame is the caller's alone, and what it is copied from is held.
    #[inline(always)]
    pub(crate) unsafe fn write_page(&self, pfn: Pfn, content: Bulk, tags: TagSource) {
        let source = match content {
            Bulk::CopyFrom(source) if P::HAS_HIGH_MEMORY => self.memory.pfn_of(source),
            _ => None,
        };
        let _source = source.map(|source| FrameMap::brief_by_kind(&self.memory, source));
        let _target = FrameMap::brief_by_kind(&self.memory, pfn);
        // SAFETY: passed on.
        unsafe { P::bulk(self.memory.frame(pfn), content) };
        if let Some(hook) = self.tags.as_deref() {
            match tags {
                TagSource::Uniform(tag) => hook.fill(pfn, tag),
                TagSource::Page(source) => hook.copy(source, pfn),
            }
        }
    }

    /// Drops the reference of a page-table entry that nobody can reach any more.
    pub(crate) fn drop_entry(&self, entry: Entry) {
        if entry.holds_reference() {
            frames::put(&self.memory, entry.pfn());
        }
    }
}

/// The translations of one space.
///
/// # Invariants
/// * I1 the instance stays where it is, and outlives the space.
pub(crate) struct Translations<P: System> {
    instance: NonNull<Instance<P>>,
    pub(crate) id: SpaceId,
    pub(crate) tables: Tables<P>,
    /// The CPUs that may have translations of this space, by parts of it.
    pub(crate) lanes: Lanes<P>,
    /// The CPUs that look up areas, the index and tables without the semaphore.
    pub(crate) lookers: Lookers<P>,
    /// See `gather`.
    pub(crate) nr_gathers: P::AtomicU32,
    sharer: Sharer<P>,
    pub(crate) resident: Resident<P>,
}

impl<P: System> Translations<P> {
    /// Makes the tables of an empty space, whose mappings may be spread.
    ///
    /// # Safety
    /// The instance stays where it is, and outlives what is returned.
    pub(crate) unsafe fn new(
        instance: &Instance<P>,
        id: SpaceId,
        spread: Option<&Spread>,
    ) -> Result<Self, OutOfFrames> {
        let memory = &instance.memory;
        let tables = Tables::new(memory)?;
        P::share_root(memory, tables.root());
        let resident = Resident::new(memory).inspect_err(|_| tables.free_root(memory))?;
        Ok(Self {
            instance: NonNull::from(instance),
            id,
            tables,
            lanes: Lanes::new(spread),
            lookers: Lookers::new(),
            nr_gathers: P::AtomicU32::new(0),
            sharer: Sharer::new(),
            resident,
        })
    }

    /// Returns what all spaces share.
    #[inline]
    pub(crate) fn instance(&self) -> &Instance<P> {
        // SAFETY: I1.
        unsafe { self.instance.as_ref() }
    }

    /// Returns the frames.
    #[inline]
    pub(crate) fn memory(&self) -> &P::Frames {
        &self.instance().memory
    }

    /// Begins an RCU section in which a CPU looks something up without the semaphore; see `space`.
    #[inline]
    pub(crate) fn look(&self) -> RcuGuard<'_, P> {
        self.lookers.read(self.memory().rcu())
    }

    /// Says whether somebody may look, without the semaphore, at a table that the caller took away.
    #[inline]
    pub(crate) fn is_looked_at(&self) -> bool {
        mutant!(LookersIgnored, self.lookers.may_be_elsewhere() => false)
    }

    /// Takes the translations of `range` away from all CPUs.
    pub(crate) fn flush(&self, range: PageRange) {
        self.flush_reaching(range, &range.numbers(), Fenced::of::<P>());
    }

    /// As [`Translations::flush`], also waits for CPUs that walk anywhere in `reach`, which holds the range.
    pub(crate) fn flush_reaching(&self, range: PageRange, reach: &Range<u64>, fenced: Fenced) {
        let instance = self.instance();
        let told = (&instance.events, instance.memory.rcu());
        instance.cpus.shoot_down(told, &self.lanes, self.id, range, reach, fenced);
    }

    /// Says whether a change of an address waits for the sections of the calling thread's CPU, which is in one.
    #[inline]
    pub(crate) fn is_awaited(&self, cpu: usize, address: u64) -> bool {
        // Before the set: who sees that the CPU does not leave any more sees that it is out (`shootdown`).
        let leaves = self.lanes.are_several() && self.instance().cpus.leaves(cpu);
        !leaves && self.lanes.reach(cpu, address)
    }

    /// Gives back what the space has besides its tables; nobody uses it.
    pub(crate) fn free(&self) {
        self.resident.free(self.memory());
        self.lanes.free(self.memory());
    }

    /// Adds pages to the resident size.
    #[inline(always)]
    pub(crate) fn add_resident(&self, nr_pages: u64) {
        self.resident.add(self.memory(), nr_pages);
    }

    /// Takes pages off the resident size, and notes its peak.
    pub(crate) fn shrink_resident(&self, nr_pages: u64) {
        self.resident.shrink(self.memory(), nr_pages);
    }
}
