//! `vma-lock`: a fault locks the one area that it is about (Linux since 6.4; the reader count in one word since 6.15).
//!
//! # Guarantee
//! While a fault is inside an area, nobody changes it: a writer takes the area's lock and waits until its readers have
//! left before it reads, moves or takes away any of its translations. So a fault checks once, after it has the lock,
//! and never again.
//!
//! # Protocol
//! ```text
//! fault                                          writer (holds the semaphore)
//! RCU: look the area up, trylock; busy: give up  each area that takes part: lock, wait until its readers have left
//! leave the RCU section                          publish the index, change the areas and their translations
//! not at the address any more? give up           unlock those that stay
//! check kind and rights; walk, adding tables     removed ones stay locked, and are freed after a grace period
//! page-table lock: install; unlock the area
//! ```
//! What stays of an area of which a part is unmapped is unlocked before the part's translations go: its bounds leave
//! them out.
//!
//! | who | does | writes to shared lines |
//! |---|---|---|
//! | fault under the area's lock | the above, of anonymous and file memory alike | 5: the area's lock word 2, the page-table lock 2, the entry 1 |
//! | classic fault | as `mmap-sem` | as `mmap-sem` |
//! | writer | as `mmap-sem`, plus the areas' locks | 8: as `mmap-sem`; the lock word of each area that faults elsewhere 2, of a removed one 1 |
//!
//! # What the lookup may find
//! * An area that has shrunk, moved or grown since: its bounds are looked at again, under its lock (known from
//!   ef626c1698c1).
//! * An area that was removed: it stays locked for good, and it is not freed before the RCU section ends. So the lock
//!   is the proof that it is still attached, to this space (known from 107d21077790: attachment before bounds).
//!
//! Linux uses areas again at once and looks at their space too; here they wait for a grace period.
//!
//! # Give-ups
//! `spf_vma_changed`: no area there, or it is locked, or its bounds have changed. `spf_vma_noanon`: the first store
//! to private memory, whose reverse-map root decides which neighbours may be joined: it is given under the semaphore,
//! so that a writer who compares roots sees them still (known from c46000458d57). `spf_vma_access`: the rights forbid
//! it. `spf_vma_notsup`: an object must fetch the page first, or there is no frame; the classic path says which.
//!
//! A fault that lacks the root shares the semaphore at once, if it can, and so need not look its area up again.
//!
//! A fault under the area's lock counts as `spf`, also in a space that one thread uses.

use super::names::VmaLock;
use super::{Design, attempt};
use crate::area::Area;
use crate::error::AccessError;
use crate::events::GiveUp;
use crate::fault::classic::{Found, Missed};
use crate::fault::{EntryLock, Fault, Handled, resolve};
use crate::space::{Areas, Space, WholeSpace};
use crate::system::System;
use core::ptr::NonNull;
use faultless_platform::CachePadded;
use faultless_platform::mutant;
use faultless_sync::{PerVmaLock, PerVmaReadGuard, RwSemaphore};

// SAFETY: a change locks the area for writing, which waits for its faults; it is freed when locked for good.
unsafe impl<P: System, S: RwSemaphore<P>> Design<P> for VmaLock<S> {
    const NAME: &'static str = "vma-lock";
    const AREA_STATE_NAME: &'static str = "an area's lock (its count of readers)";
    type Lock = WholeSpace<S>;
    type Map = Areas;
    type InstanceState = ();
    type SpaceState = ();
    /// Not beside what faults only read.
    type AreaState = CachePadded<PerVmaLock<P>>;

    fn new_instance_state(_: usize) {}
    fn new_space_state() {}

    fn new_area_state() -> CachePadded<PerVmaLock<P>> {
        CachePadded::new(PerVmaLock::new_locked())
    }

    #[inline]
    fn begin_change(area: &CachePadded<PerVmaLock<P>>) {
        area.write_lock();
    }

    #[inline]
    fn end_change(area: &CachePadded<PerVmaLock<P>>) {
        area.write_unlock();
    }

    #[inline]
    fn end_change_unpublished(area: &CachePadded<PerVmaLock<P>>) {
        area.write_unlock_unpublished();
    }

    #[inline]
    fn update_index(_: &Space<P, Self>, update: impl FnOnce()) {
        update();
    }

    #[inline]
    unsafe fn release_area(space: &Space<P, Self>, area: NonNull<Area<P, Self>>) {
        // Locked by us, or the space has ended: there is no reader.
        space.free_area(area);
    }

    #[inline]
    fn fault(space: &Space<P, Self>, fault: Fault) -> Result<Handled, AccessError> {
        match under_area_lock(space, fault) {
            Ok(()) => Ok(Handled::Speculative),
            Err(missed) => attempt::handle_missed(space, fault, missed),
        }
    }
}

/// An area that the fault has locked.
struct LockedArea<'a, P: System, S: RwSemaphore<P>> {
    area: &'a Area<P, VmaLock<S>>,
    _read: PerVmaReadGuard<'a, P>,
}

impl<'a, P: System, S: RwSemaphore<P>> LockedArea<'a, P, S> {
    #[inline]
    fn lookup(space: &'a Space<P, VmaLock<S>>, fault: Fault) -> Result<Self, Missed<'a, P, VmaLock<S>>> {
        let _rcu = mutant!(NodesUnheld, Some(space.look()) => None);
        let entry = space.index().containing(fault.address.get()).ok_or(GiveUp::VmaChanged)?;
        // SAFETY: found in this RCU section, so not freed before it ends; and not while we have its lock.
        let area = unsafe { entry.area.as_ref() };
        mutant!(AreaSharesFreeLink => area.look_at_bounds(fault.address)?);
        if fault.access.is_write() && area.lacks_root() {
            // The commonest reason, at every area's first store: not worth the lock.
            // SAFETY: the section keeps it.
            let found = unsafe { Found::keep(space, fault, entry.area) };
            return Err(Missed { reason: GiveUp::VmaNoanon, found });
        }
        Ok(area.state.try_read().map(|read| Self { area, _read: read }).ok_or(GiveUp::VmaChanged)?)
    }
}

/// Tries to handle a fault under the area's lock.
fn under_area_lock<P: System, S: RwSemaphore<P>>(
    space: &Space<P, VmaLock<S>>,
    fault: Fault,
) -> Result<(), Missed<'_, P, VmaLock<S>>> {
    let held = LockedArea::lookup(space, fault)?;
    let (area, view) = (held.area, held.area.view());
    attempt::check(&view, fault)?;
    // Not freed while we have the lock: the tables on the way to an area that is mapped stay. A move locks its source
    // before it counts the source's tables, so that we may add some.
    let leaf = space.tables().walk_or_grow(space.memory(), fault.address.get()).map_err(|_| GiveUp::VmaNotsup)?;
    let found = (mutant!(RootSetWithoutLock, view => space.with_root_set_without_lock(view, fault)), area.behind());
    let page = space.page_fault(fault, found, (leaf, leaf.read(space.memory())));
    resolve(&page, &LeafLock).map_err(|stop| GiveUp::from(stop).into())
}

/// Locks the page table and nothing else: the area's lock keeps it as it is.
struct LeafLock;

impl<P: System> EntryLock<P> for LeafLock {}
