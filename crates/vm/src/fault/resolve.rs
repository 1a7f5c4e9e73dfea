//! A fault on an entry, by what the entry holds and what stands behind the area.

use super::{EntryLock, PageFault, Stop, anonymous, copy, object, reference};
use crate::content::Behind;
use crate::error::AccessError;
use crate::system::System;

/// Maps what the area promises at the fault's address.
#[inline]
pub(crate) fn resolve<P: System>(page: &PageFault<'_, P>, lock: &impl EntryLock<P>) -> Result<(), Stop<P>> {
    let is_vacant = if page.rules.promises { page.seen.is_vacant() } else { page.seen.is_empty() };
    if !is_vacant {
        return if page.seen.is_guard() { at_guard(page) } else { copy::allow(page, lock) };
    }
    match page.behind {
        Behind::Zeros => anonymous::fill(page, lock),
        Behind::Object(object) => object::fill(page, lock, object),
        Behind::Reference(reference) => reference::fill(page, lock, reference),
        Behind::Pattern(_) => anonymous::make_private(page, lock),
    }
}

/// A guard fails the access, but for one that a copy leaves for a moment.
#[cold]
fn at_guard<P: System>(page: &PageFault<'_, P>) -> Result<(), Stop<P>> {
    match copy::is_under_way(page) {
        true => Ok(()),
        false => Err(Stop::Failed(AccessError::NotMapped { address: page.fault.address })),
    }
}
