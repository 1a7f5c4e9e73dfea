//! `spf-srcu`: a fault first tries without the semaphore, and holds its area by SRCU (seed 2: the 2017 series).
//!
//! # Guarantee
//! That of `speculation`, whose protocol it is; this file says how an area is held: the whole attempt is an SRCU
//! section, which may sleep, and a removed area is freed after an SRCU grace period, with its hold on its object: the
//! file behind it is released late, by the next call that polls.
//!
//! | who | does | writes to shared lines |
//! |---|---|---|
//! | speculative fault | looks up inside an SRCU section; finds the page-table lock busy: gives up as `spf_pte_lock` | 3: the page-table lock 2, the entry 1; SRCU's counts are the CPU's own |
//! | classic fault | as `mmap-sem` | as `mmap-sem` |
//! | writer | as `mmap-sem`, plus sequence counts; defers removed areas, and drives grace periods now and then | 8: as `mmap-sem`; the sequence of each area that faults elsewhere 2 |
//!
//! # What it costs instead
//! A grace period adds up two counts of every CPU twice, and waits for faults that sleep. On Linux its callbacks were
//! what the 2018 series gave as the reason to leave SRCU: 20 % in will-it-scale (seed 1). Here whoever changes the map
//! polls.
//!
//! # Memory that waits
//! Whoever finds no frame flushes what waits for SRCU and tries once more (`Vm::reclaim_after`), outside any section.
//!
//! # Reconstructed
//! The series' tree of areas is guarded by a sequence lock against lookups that race with a rotation; the index here is
//! never seen half changed, so a lookup needs an RCU section for its nodes and nothing more.

use super::speculation::{Speculation, SpeculativeArea, SpeculativeMissed, SpeculativeSpace, Version, WhenBusy};
use crate::area::Area;
use crate::events::GiveUp;
use crate::fault::Fault;
use crate::fault::classic::{Found, Missed};
use crate::instance::Vm;
use crate::system::System;
use core::cell::UnsafeCell;
use core::mem::offset_of;
use core::ptr::NonNull;
use faultless_phys::FrameSource;
use faultless_platform::mutant;
use faultless_sync::{RcuHead, RwSemaphore, SeqCount, Srcu};

/// See the module.
pub type SpfSrcu<S> = Speculation<S, V2017>;

/// The series of 2017.
pub enum V2017 {}

/// What an area needs to be freed late.
pub struct DeferredArea<P: System> {
    sequence: SeqCount<P>,
    /// The instance, once the area is on its way out.
    vm: UnsafeCell<*const ()>,
}

// SAFETY: `vm` is written once, by the writer that lets go of the area, and read by the callback afterwards.
unsafe impl<P: System> Sync for DeferredArea<P> {}
// SAFETY: the instance is shared by its threads and outlives its areas.
unsafe impl<P: System> Send for DeferredArea<P> {}

// SAFETY: SRCU's readers keep the area, which is freed once, after their sections.
unsafe impl<P: System> Version<P> for V2017 {
    const NAME: &'static str = "spf-srcu";
    const WHEN_BUSY: WhenBusy = WhenBusy::GiveUp;
    type InstanceState = Srcu<P>;
    type SpaceState = ();
    type AreaState = DeferredArea<P>;

    fn new_instance_state(nr_cpus: usize) -> Srcu<P> {
        Srcu::new(nr_cpus)
    }

    fn new_space_state() {}

    fn new_area_state() -> DeferredArea<P> {
        DeferredArea { sequence: SeqCount::new_in_write(), vm: UnsafeCell::new(core::ptr::null()) }
    }

    #[inline]
    fn sequence(area: &DeferredArea<P>) -> &SeqCount<P> {
        &area.sequence
    }

    #[inline]
    fn update_index<S: RwSemaphore<P>>(_: &SpeculativeSpace<P, S, Self>, update: impl FnOnce()) {
        update();
    }

    unsafe fn release_area<S: RwSemaphore<P>>(space: &SpeculativeSpace<P, S, Self>, area: SpeculativeArea<P, S, Self>) {
        if !space.is_looked_at() {
            // SAFETY: no SRCU section has found it, since there were no two users.
            return unsafe { space.vm().free_area_at_once(area) };
        }
        // SAFETY: the area is alive until its callback runs; whoever may still find it reads neither of the two.
        unsafe {
            let state = &area.as_ref().state;
            state.vm.get().write(core::ptr::from_ref(space.vm()).cast());
            // From the area's own pointer, which may be used for all of it.
            let head: NonNull<RcuHead<P>> = area.byte_add(head_offset::<P, S>()).cast();
            head.write(RcuHead::new());
            space.vm().design_state().defer(head, free::<P, S>);
        }
    }

    fn flush(srcu: &Srcu<P>) {
        srcu.flush();
    }

    #[inline]
    fn poll(srcu: &Srcu<P>) {
        srcu.poll();
    }

    fn has_deferred(srcu: &Srcu<P>) -> bool {
        srcu.nr_deferred() != 0
    }

    #[inline]
    fn with_area<S: RwSemaphore<P>, R>(
        space: &SpeculativeSpace<P, S, Self>,
        fault: Fault,
        act: impl FnOnce(&Area<P, Speculation<S, Self>>) -> Result<R, GiveUp>,
    ) -> Result<R, SpeculativeMissed<'_, P, S, Self>> {
        let _srcu = space.vm().design_state().read();
        // For the index's nodes; the attempt's own section, for the tables, nests in it and so needs no fence.
        let _nodes = mutant!(NodesUnheld, Some(space.memory().rcu().read()) => None);
        let entry = space.index().first_ending_after(fault.address.get()).ok_or(GiveUp::VmaChanged)?;
        // SAFETY: found inside the SRCU section, so not freed before it ends.
        let area = unsafe { entry.area.as_ref() };
        if fault.access.is_write() && area.object().is_none() && area.lacks_root() {
            // SAFETY: the section keeps it.
            let found = unsafe { Found::keep(space, fault, entry.area) };
            return Err(Missed { reason: GiveUp::VmaNoanon, found });
        }
        Ok(act(area)?)
    }
}

const fn head_offset<P: System, S: RwSemaphore<P>>() -> usize {
    offset_of!(Area<P, SpfSrcu<S>>, head)
}

/// Frees the area that a head stands in.
///
/// # Safety
/// The head is that of a removed area, whose SRCU grace period has passed.
unsafe fn free<P: System, S: RwSemaphore<P>>(head: NonNull<RcuHead<P>>) {
    // SAFETY: the caller's promise; the instance outlives its areas.
    unsafe {
        let area: SpeculativeArea<P, S, V2017> = head.byte_sub(head_offset::<P, S>()).cast();
        let vm = area.as_ref().state.vm.get().read().cast::<Vm<P, SpfSrcu<S>>>();
        // Found inside SRCU sections alone, all of which are over.
        (*vm).free_area_at_once(area);
    }
}
