//! Empty entries of private anonymous memory: the zero page for a load, a zeroed frame for a store.

use super::{EntryLock, PageFault, Stop};
use crate::design::Design;
use crate::entry::{Entry, EntryFlags};
use crate::error::AccessError;
use crate::frames;
use faultless_platform::mutants::{self, Mutant};
use faultless_platform::{Bulk, Platform};

#[inline]
pub(super) fn fill<P: Platform, D: Design<P>>(
    page: &PageFault<'_, P, D>,
    lock: &impl EntryLock<P, D>,
) -> Result<(), Stop<P>> {
    if !page.fault.access.is_write() {
        let zero = Entry::new(page.space.vm().zero_page(), page.view.read_only_entry() | EntryFlags::SPECIAL);
        if mutants::is_on(Mutant::ZeroPageCounted) {
            return map_counted(page, lock, zero);
        }
        page.install(lock, zero)?;
        return Ok(());
    }
    let memory = page.space.memory();
    let root = lock.root(page);
    let pfn = lock.alloc(memory)?;
    // SAFETY: the frame is ours alone.
    unsafe { P::bulk(memory.frame(pfn), Bulk::Zero) };
    frames::set_owner(memory, pfn, root, page.view.page_offset_of(page.fault.address));
    match page.install(lock, page.private_entry(pfn)) {
        Ok(true) => page.space.add_resident(1),
        Ok(false) => frames::put(memory, pfn),
        Err(reason) => {
            frames::put(memory, pfn);
            return Err(reason.into());
        }
    }
    Ok(())
}

/// A known bug: the page of zeros is mapped like any other, with a reference.
#[cold]
fn map_counted<P: Platform, D: Design<P>>(
    page: &PageFault<'_, P, D>,
    lock: &impl EntryLock<P, D>,
    zero: Entry,
) -> Result<(), Stop<P>> {
    frames::get(page.space.memory(), zero.pfn()).map_err(|_| Stop::Failed(AccessError::TooManyReferences))?;
    if page.install(lock, zero.without(EntryFlags::SPECIAL))? {
        page.space.add_resident(1);
    } else {
        frames::put(page.space.memory(), zero.pfn());
    }
    Ok(())
}
