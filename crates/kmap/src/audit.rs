//! Who holds which slot.
//!
//! # Invariants
//! * I1 as long as a slot is held it leads to one frame: whoever maps it meanwhile maps that
//! * I2 nobody holds what is free: a slot is released by one who holds it
//! * I3 at rest a slot's count is that of its holders, a free slot leads nowhere, and no CPU remembers one
//!
//! A [`Holders`] is told of each map and its end, and can look at I1 and I2 at any time;
//! [`KernelMaps::audit`](crate::KernelMaps::audit) looks at I3.

use core::ptr::NonNull;

/// Somebody who is told who holds which slot, and who may make windows of a real address space of it.
pub trait Holders: Send + Sync {
    /// A task holds a slot from now on, which leads to a frame.
    fn hold(&self, slot: u32, pfn: u32);
    /// A task that held a slot is about to give it back, or to leave it to others for a while.
    fn release(&self, slot: u32);
    /// Returns a slot's address, if it has one.
    fn address(&self, _slot: u32) -> Option<NonNull<u8>> {
        None
    }
}

/// A slot that breaks an invariant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// Which.
    pub slot: u32,
    /// What is wrong with it.
    pub what: &'static str,
}

impl core::fmt::Display for Wrong {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(out, "slot {} {}", self.slot, self.what)
    }
}
