//! What the designs share that try a fault without the semaphore first.
//!
//! # Guarantee
//! An attempt that is not completed is counted as failed, with exactly one reason, and then handled under the
//! semaphore: whatever it met, the program sees the classic fault's answer.

use super::Design;
use crate::area::AreaView;
use crate::error::AccessError;
use crate::events::{Event, GiveUp};
use crate::fault::classic::{self, Missed};
use crate::fault::{Fault, Handled, Stop, permits};
use crate::space::Space;
use crate::system::System;
use faultless_platform::mutant;

impl From<Stop> for GiveUp {
    /// What needs sleep, and errors, are the classic fault's: it says which.
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::GiveUp(reason) => reason,
            Stop::Fetch(_) | Stop::Failed(_) => Self::VmaNotsup,
        }
    }
}

/// Counts an attempt that was given up, and handles the fault under the semaphore.
#[inline]
pub(super) fn handle_missed<'a, P: System, D: Design<P>>(
    space: &'a Space<P, D>,
    fault: Fault,
    missed: Missed<'a, P, D>,
) -> Result<Handled, AccessError> {
    space.vm().events().note(Event::SpfFailed, fault.address.get());
    space.vm().events().note(missed.reason.event(), fault.address.get());
    classic::handle_found(space, fault, missed.found)?;
    Ok(Handled::Classic)
}

/// Checks what a fault must know of an area that stays as it is until the fault ends.
#[inline]
pub(super) fn check<P: System>(view: &AreaView<P>, fault: Fault) -> Result<(), GiveUp> {
    if !holds(view, fault) {
        return Err(GiveUp::VmaChanged);
    }
    if !permits(view.flags, fault.access) {
        return Err(GiveUp::VmaAccess);
    }
    if lacks_root(view, fault) {
        return Err(GiveUp::VmaNoanon);
    }
    Ok(())
}

/// Says whether an area holds the address.
#[inline]
pub(super) fn holds<P: System>(view: &AreaView<P>, fault: Fault) -> bool {
    mutant!(BoundsIgnored, (view.start..view.end).contains(&fault.address) => true)
}

/// Says whether a fault needs a reverse-map root that the area lacks.
#[inline]
pub(super) fn lacks_root<P: System>(view: &AreaView<P>, fault: Fault) -> bool {
    let is_missing = view.root == 0 && view.makes_page(fault.access);
    mutant!(FaultWithoutRoot, mutant!(RootSetWithoutLock, is_missing => false) => false)
}
