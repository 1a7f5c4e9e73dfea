//! What `sharing` needs besides tables: frames put aside, and how long faults wait for forks and for children.
//!
//! # Guarantee
//! A frame that was put aside and not used is given back. No wait here lasts longer than a millisecond, for a fork that
//! is under way, or as long as the last fork took, for its child. A fault that waits for a child stops when the next
//! fork announces its changes, and waits for the fault; one under the space's lock keeps that fork from beginning.

use super::frames;
use crate::system::System;
use core::ops::Range;
use faultless_phys::{FrameSource, OutOfFrames, Pfn};
use faultless_platform::{Atomic, Ordering};

/// Frames for tables, put aside.
pub(crate) struct Spares<'a, P: System> {
    memory: &'a P::Frames,
    first: Option<Pfn>,
    /// Whether one was taken.
    is_used: bool,
}

impl<'a, P: System> Spares<'a, P> {
    /// Returns none.
    pub(crate) fn new(memory: &'a P::Frames) -> Self {
        Self { memory, first: None, is_used: false }
    }

    /// Puts one more frame aside; may sleep.
    pub(crate) fn add(&mut self) -> Result<(), OutOfFrames> {
        let spare = frames::alloc_raw_table(self.memory)?;
        frames::set_link(self.memory, spare, self.first);
        self.first = Some(spare);
        Ok(())
    }

    /// Says whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Says whether one was taken: a table is shared.
    pub(crate) fn are_used(&self) -> bool {
        self.is_used
    }

    pub(super) fn take(&mut self) -> Option<Pfn> {
        let spare = self.first?;
        self.first = frames::link(self.memory, spare);
        self.is_used = true;
        Some(spare)
    }
}

impl<P: System> Drop for Spares<'_, P> {
    fn drop(&mut self) {
        while let Some(spare) = self.take() {
            frames::put(self.memory, spare);
        }
    }
}

/// What a fork shares, and by what.
pub(crate) struct Sharing<'s, 'a, P: System> {
    pub(crate) spares: &'s mut Spares<'a, P>,
    /// Says of the addresses that a leaf table spans whether the child gets it.
    pub(crate) is_shared: &'s dyn Fn(&Range<u64>) -> bool,
}

/// Chains a spare to a table, whose lock the caller holds.
pub(super) fn chain<P: System>(memory: &P::Frames, table: Pfn, spare: Pfn) {
    let is_first = memory.page(table).nr_references() == 1;
    frames::set_link(memory, spare, if is_first { None } else { frames::link(memory, table) });
    frames::set_link(memory, table, Some(spare));
}

/// Takes a spare off the chain of a table that others have too, and whose lock the caller holds.
pub(super) fn unchain<P: System>(memory: &P::Frames, table: Pfn) -> Option<Pfn> {
    let spare = frames::link(memory, table)?;
    frames::set_link(memory, table, frames::link(memory, spare));
    Some(spare)
}

/// Visits the spares of a shared table; nobody changes anything meanwhile.
pub(crate) fn for_each_spare<P: System>(memory: &P::Frames, table: Pfn, visit: &mut dyn FnMut(Pfn)) {
    let mut spare = frames::link(memory, table);
    for _ in 1..memory.page(table).nr_references() {
        let Some(one) = spare else { return };
        visit(one);
        spare = frames::link(memory, one);
    }
}

/// What a space knows of its forks.
pub(super) struct Sharer<P: System> {
    /// Until when faults wait for the youngest child to go, on the platform's clock; [`NEVER`] as long as there was
    /// none and the space is none, [`NO_WAIT`], or [`FORKING`].
    waits_until_ns: P::AtomicU64,
}

/// The space has no shared tables.
const NEVER: u64 = 0;
/// An instant that is past.
const NO_WAIT: u64 = 1;
/// A fork is under way, and will tell the instant.
const FORKING: u64 = u64::MAX;
/// How long faults wait for the end of a fork. Beyond, they sleep.
const LONGEST_FORK_NS: u64 = 1_000_000;

impl<P: System> Sharer<P> {
    /// Returns what a space knows that was not forked.
    pub(super) fn new() -> Self {
        Self { waits_until_ns: P::AtomicU64::new(NEVER) }
    }

    fn until_ns(&self) -> u64 {
        // Relaxed, here and below: faults guess by it, and who ends the space has it alone.
        self.waits_until_ns.load(Ordering::Relaxed)
    }

    fn wait_until(&self, ns: u64) {
        self.waits_until_ns.store(ns, Ordering::Relaxed);
    }

    /// Says whether the space may have shared tables.
    pub(super) fn may_share(&self) -> bool {
        self.until_ns() != NEVER
    }

    /// Notes that the space has tables of its parent's.
    pub(super) fn note_inherited(&self) {
        self.wait_until(NO_WAIT);
    }

    /// Notes that a fork begins.
    pub(super) fn begin_fork(&self) {
        self.wait_until(FORKING);
    }

    /// Notes that the changes of a fork that began at `since_ns` have ended.
    pub(super) fn end_fork(&self, shares: bool, since_ns: u64) {
        let now_ns = P::now();
        let until_ns = now_ns.saturating_add(now_ns.saturating_sub(since_ns)).clamp(NO_WAIT, FORKING - 1);
        self.wait_until(if shares { until_ns } else { NO_WAIT });
    }

    /// Waits awake for a fork that is under way; says whether there was one, and its changes have ended.
    pub(super) fn await_fork(&self) -> bool {
        let is_under_way = || self.until_ns() == FORKING;
        is_under_way() && P::spin_until_deadline(P::now() + LONGEST_FORK_NS, || !is_under_way())
    }

    /// Waits awake as long as `is_there` says that the youngest child has what the caller needs, and it may go soon.
    pub(super) fn await_child(&self, is_there: impl Fn() -> bool) {
        let deadline_ns = self.until_ns();
        // The next fork waits for us.
        if deadline_ns != FORKING && is_there() && P::now() < deadline_ns {
            P::spin_until_deadline(deadline_ns, || !is_there() || self.until_ns() != deadline_ns);
        }
    }
}
