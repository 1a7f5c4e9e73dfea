//! `spf-v9`: as `spf-v11`, but an attempt that finds the page-table lock busy is given up (seed 1: version 9 of the
//! series, which its 192-CPU table was measured on).
//!
//! # Guarantee
//! That of `speculation`, whose protocol it is; an area is held as `spf_v11` says. An attempt never waits.
//!
//! | who | does | writes to shared lines |
//! |---|---|---|
//! | speculative fault | as `spf-v11`; finds the page-table lock busy: gives up as `spf_pte_lock` | 7: as `spf-v11`; given up there, all but the page-table lock's 2 and the entry |
//! | classic fault | as `mmap-sem` | as `mmap-sem` |
//! | writer | as `spf-v11` | 10: as `spf-v11` |
//!
//! Version 10 made the attempt wait instead and dropped the event: two faults in one 2 MiB range, or one beside a
//! munmap there, cost the series its speculation exactly where threads share memory.

use super::IndexLock;
use super::speculation::{Speculation, SpeculativeArea, SpeculativeMissed, SpeculativeSpace, Version, WhenBusy};
use super::spf_v11::{CountedArea, put, update_locked, with_counted_area};
use crate::area::Area;
use crate::events::GiveUp;
use crate::fault::Fault;
use crate::system::System;
use faultless_sync::{RwSemaphore, RwSpinLock, SeqCount};

/// See the module.
pub type SpfV9<S> = Speculation<S, V9>;

/// Version 9 of the series.
pub enum V9 {}

// SAFETY: as for `V11`.
unsafe impl<P: System> Version<P> for V9 {
    const NAME: &'static str = "spf-v9";
    const WHEN_BUSY: WhenBusy = WhenBusy::GiveUp;
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
