//! The lock of edits and the section in which its holder looks, as one.
//!
//! # Guarantee
//! Lookups by whoever holds an [`Editing`] cost no fence: they nest in its RCU section. Nobody waits with it, because
//! the lock is a spin lock.

use super::Space;
use super::map_lock::EditGuard;
use crate::design::Design;
use crate::system::System;
use faultless_phys::FrameSource;
use faultless_sync::RcuGuard;

/// The lock of edits, had; others replace nodes of other indexes meanwhile (R7 of `ranges`).
pub(super) struct Editing<'a, P: System> {
    // Dropped first: nobody is kept waiting for the section's end.
    _lock: EditGuard<'a, P>,
    _looking: Option<RcuGuard<'a, P>>,
}

impl<P: System, D: Design<P>> Space<P, D> {
    /// Takes the lock over.
    #[inline]
    pub(super) fn editing<'a>(&'a self, lock: EditGuard<'a, P>) -> Editing<'a, P> {
        // Whatever section the caller is in: this one may last longer.
        Editing { _lock: lock, _looking: self.has_company().then(|| self.memory().rcu().read()) }
    }
}
