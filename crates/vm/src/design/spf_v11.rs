//! `spf-v11`: a fault first tries without the semaphore (seed 1: the 2018 series, version 11).
//!
//! # Guarantee
//! That of `speculation`, whose protocol it is; this file says how an area is held: a lock around the index, taken for
//! the lookup, and a count of the area's users, the index among them. The last to drop its reference frees it.
//!
//! A writer takes the index lock only in a space that has, or had, two threads at once: before that nobody speculates.
//! Whoever joins as the second waits for the writer at work (`Space::add_user`). The series took it always.
//!
//! | who | does | writes to shared lines |
//! |---|---|---|
//! | speculative fault | looks up under the index lock, takes a reference; finds the page-table lock busy: waits | 7: the index lock's word 2, the area's reference count 2, the page-table lock 2, the entry 1 |
//! | classic fault | as `mmap-sem` | as `mmap-sem` |
//! | writer | as `mmap-sem`, plus sequence counts and index lock | 10: as `mmap-sem` 8, the index lock's word 2; the sequence of each area that faults elsewhere 2 |

use super::IndexLock;
use super::speculation::{Speculation, SpeculativeArea, SpeculativeMissed, SpeculativeSpace, Version, WhenBusy};
use crate::area::Area;
use crate::events::GiveUp;
use crate::fault::Fault;
use crate::fault::classic::{Found, Missed};
use crate::system::System;
use core::ptr::NonNull;
use faultless_platform::mutant;
use faultless_platform::{Atomic, AtomicInteger, CachePadded, Ordering};
use faultless_sync::{RwSemaphore, RwSpinLock, SeqCount};

/// See the module.
pub type SpfV11<S> = Speculation<S, V11>;

/// Version 11 of the series.
pub enum V11 {}

/// What an area counts.
pub struct CountedArea<P: System> {
    pub(super) sequence: SeqCount<P>,
    /// One for the index, one for each fault that uses the area: not beside what faults only read.
    references: CachePadded<P::AtomicU32>,
}

impl<P: System> CountedArea<P> {
    pub(super) fn new() -> Self {
        Self { sequence: SeqCount::new_in_write(), references: CachePadded::new(P::AtomicU32::new(1)) }
    }
}

// SAFETY: faults count themselves in under the index lock; the last reference to go frees the area.
unsafe impl<P: System> Version<P> for V11 {
    const NAME: &'static str = "spf-v11";
    const WHEN_BUSY: WhenBusy = WhenBusy::Wait;
    type InstanceState = ();
    type SpaceState = RwSpinLock<P, IndexLock>;
    type AreaState = CountedArea<P>;

    fn new_instance_state(_: usize) {}

    fn new_space_state() -> RwSpinLock<P, IndexLock> {
        RwSpinLock::classed()
    }

    fn new_area_state() -> CountedArea<P> {
        CountedArea::new()
    }

    #[inline]
    fn sequence(area: &CountedArea<P>) -> &SeqCount<P> {
        &area.sequence
    }

    #[inline]
    fn update_index<S: RwSemaphore<P>>(space: &SpeculativeSpace<P, S, Self>, update: impl FnOnce()) {
        update_locked(space, update);
    }

    #[inline]
    unsafe fn release_area<S: RwSemaphore<P>>(space: &SpeculativeSpace<P, S, Self>, area: SpeculativeArea<P, S, Self>) {
        put(space, area);
    }

    #[inline]
    fn with_area<S: RwSemaphore<P>, R>(
        space: &SpeculativeSpace<P, S, Self>,
        fault: Fault,
        act: impl FnOnce(&Area<P, Speculation<S, Self>>) -> Result<R, GiveUp>,
    ) -> Result<R, SpeculativeMissed<'_, P, S, Self>> {
        with_counted_area(space, fault, act)
    }
}

/// Runs `update` under the index lock; without it in a space that had no two threads at once, where nobody speculates.
#[inline]
pub(super) fn update_locked<P, S, V>(space: &SpeculativeSpace<P, S, V>, update: impl FnOnce())
where
    P: System,
    S: RwSemaphore<P>,
    V: Version<P, SpaceState = RwSpinLock<P, IndexLock>>,
{
    let is_locked = mutant!(IndexWrittenUnlocked, space.is_shared() => false);
    let _index = is_locked.then(|| space.design_state().write());
    update();
}

/// Puts a reference to an area; the last one frees it.
#[inline]
pub(super) fn put<P, S, V>(space: &SpeculativeSpace<P, S, V>, area: SpeculativeArea<P, S, V>)
where
    P: System,
    S: RwSemaphore<P>,
    V: Version<P, AreaState = CountedArea<P>>,
{
    // SAFETY: the caller holds the reference that it puts.
    let references = &unsafe { area.as_ref() }.state.references;
    // ORDER: Acquire pairs with the other holders' puts: the last one frees after all uses. A count of 1 is the
    // caller's own, and nobody takes another: that needs the index's.
    if references.load(Ordering::Acquire) == 1 {
        space.free_area(area);
    } else {
        put_beside_others(space, area);
    }
}

/// As [`put`], for a reference that is hardly ever the last.
#[inline]
fn put_beside_others<P, S, V>(space: &SpeculativeSpace<P, S, V>, area: SpeculativeArea<P, S, V>)
where
    P: System,
    S: RwSemaphore<P>,
    V: Version<P, AreaState = CountedArea<P>>,
{
    // SAFETY: the caller holds the reference that it puts.
    let references = &unsafe { area.as_ref() }.state.references;
    // ORDER: AcqRel pairs with the other holders' puts: the last one frees after all uses.
    if references.fetch_sub(1, Ordering::AcqRel) == 1 {
        space.free_area(area);
    }
}

/// Looks an area up under the index lock and runs `act` with a reference to it.
#[inline]
pub(super) fn with_counted_area<P, S, V, R>(
    space: &SpeculativeSpace<P, S, V>,
    fault: Fault,
    act: impl FnOnce(&Area<P, Speculation<S, V>>) -> Result<R, GiveUp>,
) -> Result<R, SpeculativeMissed<'_, P, S, V>>
where
    P: System,
    S: RwSemaphore<P>,
    V: Version<P, AreaState = CountedArea<P>, SpaceState = RwSpinLock<P, IndexLock>>,
{
    let held = HeldArea::lookup(space, fault)?;
    // SAFETY: our reference keeps it.
    Ok(act(unsafe { held.area.as_ref() })?)
}

/// A reference to an area, taken without the semaphore.
struct HeldArea<'a, P: System, S: RwSemaphore<P>, V: Version<P, AreaState = CountedArea<P>>> {
    space: &'a SpeculativeSpace<P, S, V>,
    area: NonNull<Area<P, Speculation<S, V>>>,
}

impl<'a, P, S, V> HeldArea<'a, P, S, V>
where
    P: System,
    S: RwSemaphore<P>,
    V: Version<P, AreaState = CountedArea<P>, SpaceState = RwSpinLock<P, IndexLock>>,
{
    #[inline]
    fn lookup(space: &'a SpeculativeSpace<P, S, V>, fault: Fault) -> Result<Self, SpeculativeMissed<'a, P, S, V>> {
        let _index = mutant!(IndexReadUnlocked, Some(space.design_state().read()) => None);
        let entry = space.index().first_ending_after(fault.address.get()).ok_or(GiveUp::VmaChanged)?;
        // SAFETY: the index holds a reference for as long as we hold its lock.
        let area = unsafe { entry.area.as_ref() };
        if fault.access.is_write() && area.object().is_none() && area.lacks_root() {
            // The commonest reason, at every area's first store: not worth a reference.
            // SAFETY: as above.
            let found = unsafe { Found::keep(space, fault, entry.area) };
            return Err(Missed { reason: GiveUp::VmaNoanon, found });
        }
        // Relaxed: the index's own reference, kept by its lock, is why the count is not 0.
        mutant!(AreaReused, area.state.references.fetch_add(1, Ordering::Relaxed) => 0);
        Ok(Self { space, area: entry.area })
    }
}

impl<P: System, S: RwSemaphore<P>, V: Version<P, AreaState = CountedArea<P>>> Drop for HeldArea<'_, P, S, V> {
    #[inline]
    fn drop(&mut self) {
        mutant!(AreaReused, put_beside_others(self.space, self.area) => ());
    }
}
