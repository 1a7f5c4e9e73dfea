//! A fault on an entry, by what the entry holds and what stands behind the area.

use super::{EntryLock, PageFault, Stop, anonymous, copy, object, reference};
use crate::content::Behind;
use crate::error::AccessError;
use crate::system::System;

/// Maps what the area promises at the fault's address.
///
/// The commonest fault, of an untouched page of zeros, becomes part of its caller: what is known of the page then stays
/// in registers, because only a copy of it goes to the others.
#[inline(always)]
pub(crate) fn resolve<P: System>(page: &PageFault<'_, P>, lock: &impl EntryLock<P>) -> Result<(), Stop> {
    if is_vacant(page) && matches!(page.behind, Behind::Zeros) {
        return anonymous::fill(page, lock);
    }
    resolve_other(*page, lock)
}

/// Says whether an entry holds nothing but, maybe, its promise.
#[inline]
fn is_vacant<P: System>(page: &PageFault<'_, P>) -> bool {
    if page.rules.promises { page.seen.is_vacant() } else { page.seen.is_empty() }
}

/// Maps what is not a page of zeros in a vacant entry.
#[inline(never)]
fn resolve_other<P: System>(page: PageFault<'_, P>, lock: &impl EntryLock<P>) -> Result<(), Stop> {
    let page = &page;
    if !is_vacant(page) {
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
fn at_guard<P: System>(page: &PageFault<'_, P>) -> Result<(), Stop> {
    match copy::is_under_way(page) {
        true => Ok(()),
        false => Err(Stop::Failed(AccessError::NotMapped { address: page.fault.address })),
    }
}
