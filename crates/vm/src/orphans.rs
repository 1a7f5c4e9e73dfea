//! Spaces and objects whose last reference was dropped by a thread without a CPU.
//!
//! # Guarantee
//! References may be dropped on any thread. Ending a space or an object takes a CPU: it frees frames to that CPU's
//! lists and takes translations away. A thread that has none leaves the thing here, and whoever next makes a space or
//! an object, drops the last reference to a space, flushes the instance or finds no free frame ends it; at the latest
//! the instance's own end does.
//!
//! # Race
//! ```text
//! threads that leave things                  who ends them
//! link = first; first: link -> thing         all = swap(first, null)      Acquire
//!   by compare-and-swap, Release             walks the links; ends each
//! ```
//! All are taken at once and none is put back, so a thing that comes to stand where an ended one stood is no danger to
//! the compare-and-swap: what it compares is what it has just written to the link. Forbidden: two end one thing, or a
//! thing is lost.

use crate::system::System;
use core::marker::PhantomData;
use core::ptr::NonNull;
use faultless_platform::{Atomic, Ordering};

/// A thing that can be left behind.
pub trait Orphan<P: System>: Sized {
    /// Returns the place that links it to the next one.
    fn link(&self) -> &P::AtomicPtr<Self>;
}

/// Things without a reference, which wait to be ended.
pub(crate) struct Orphans<P: System, T: Orphan<P>> {
    first: P::AtomicPtr<T>,
    things: PhantomData<NonNull<T>>,
}

impl<P: System, T: Orphan<P>> Orphans<P, T> {
    /// Returns none.
    pub(crate) fn new() -> Self {
        Self { first: P::AtomicPtr::new(core::ptr::null_mut()), things: PhantomData }
    }

    /// Leaves a thing.
    ///
    /// # Safety
    /// The caller dropped its last reference, and does not touch it any more.
    pub(crate) unsafe fn leave(&self, thing: NonNull<T>) {
        // Relaxed: compared again before it counts.
        let mut first = self.first.load(Ordering::Relaxed);
        loop {
            // SAFETY: the thing is the caller's alone until it is published. Relaxed: published below.
            unsafe { thing.as_ref() }.link().store(first, Ordering::Relaxed);
            // ORDER: Release pairs with the Acquire in `take`: the link, and all that the thing's users did, are seen.
            match self.first.compare_exchange(first, thing.as_ptr(), Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => first = now,
            }
        }
    }

    /// Says whether there are any: a hint.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        // Relaxed: a hint; `take` orders.
        self.first.load(Ordering::Relaxed).is_null()
    }

    /// Ends all that were left so far.
    pub(crate) fn take(&self, mut end: impl FnMut(NonNull<T>)) {
        if self.is_empty() {
            return;
        }
        // ORDER: Acquire pairs with the Release in `leave`.
        let mut next = self.first.swap(core::ptr::null_mut(), Ordering::Acquire);
        while let Some(thing) = NonNull::new(next) {
            // SAFETY: taken off, it is ours alone; the link is read before it ends. Relaxed: see the swap.
            next = unsafe { thing.as_ref() }.link().load(Ordering::Relaxed);
            end(thing);
        }
    }
}
