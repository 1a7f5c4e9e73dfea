//! Frames that are freed after a grace period.
//!
//! # Guarantee
//! Whoever found a frame inside an RCU section may read it, and its metadata's lock, links, owner and index, until the
//! section ends. Deferring allocates nothing: the RCU head stands in the metadata, beside all words that readers use.
//!
//! # Invariant
//! I1 `deferred` and `number` are touched by the one who defers the frame, then by RCU, then by `release`.

use crate::frames::Frames;
use crate::memory::{Core, Memory};
use crate::page::Page;
use crate::pfn::Pfn;
use core::mem::offset_of;
use core::ptr::NonNull;
use faultless_platform::{Atomic, Ordering, Platform};
use faultless_sync::RcuHead;

impl<P: Platform> Memory<P> {
    /// Frees a frame once every RCU section that runs now has ended. Never sleeps, never allocates.
    ///
    /// The freeing is done by [`Rcu::poll`](faultless_sync::Rcu::poll), which the embedder calls now and then where it
    /// holds no lock, or by an allocation that finds nothing else.
    ///
    /// # Safety
    /// As for [`Memory::free`], but readers inside RCU sections that have begun already may go on using the frame.
    pub unsafe fn free_deferred(&self, pfn: Pfn) {
        let core = self.core();
        core.begin_deferral(pfn);
        let page = core.frames.page_pointer(pfn);
        // SAFETY: the place lies within the metadata.
        let head = unsafe { page.byte_add(offset_of!(Page<P>, deferred)).cast::<RcuHead<P>>() };
        // SAFETY: metadata stays in place, its head is nobody else's before `release` frees the frame (I1), and
        // `release` takes the zone's lock alone.
        unsafe { core.rcu.defer(head, release::<P>) };
    }
}

impl<P: Platform> Core<P> {
    /// Marks a frame as deferred: nobody can take a reference to it from now on.
    fn begin_deferral(&self, pfn: Pfn) {
        let page = self.frames.page(pfn);
        let state = page.state();
        assert!(state.is_in_use(0), "I1: {pfn} is deferred, but is no single frame in use");
        page.stop_life();
        page.set_state(state.with_deferral());
        // Relaxed: handed to `release` by RCU.
        page.number.store(pfn.get(), Ordering::Relaxed);
    }
}

/// Frees a frame whose grace period is over.
///
/// # Safety
/// `head` stands in the metadata of a deferred frame.
unsafe fn release<P: Platform>(head: NonNull<RcuHead<P>>) {
    // SAFETY: the head was made from a pointer to the metadata that may reach the whole region.
    let page = unsafe { head.byte_sub(offset_of!(Page<P>, deferred)).cast::<Page<P>>() };
    // SAFETY: metadata is always valid.
    let number = unsafe { page.as_ref() }.number.load(Ordering::Relaxed);
    // SAFETY: `begin_deferral` wrote the frame's own number.
    let memory = unsafe { Frames::memory_of(page, number) }.cast::<Core<P>>();
    // SAFETY: callbacks run from the core's own RCU, so that it is alive (I2 of `memory`).
    let core = unsafe { &*memory };
    let page = core.frames.page(Pfn::new(number));
    page.set_state(page.state().without_deferral());
    core.free(Pfn::new(number));
}
