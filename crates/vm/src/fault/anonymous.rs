//! Empty entries of private anonymous memory: the zero page for a load, a frame of its own for a store.

#[cfg(feature = "mutants")]
use super::known;
use super::{EntryLock, PageFault, Stop, untouched};
use crate::entry::{Entry, EntryFlags};
use crate::system::System;
use crate::translations::frames;
use faultless_platform::mutant;

#[inline]
pub(super) fn fill<P: System>(page: &PageFault<'_, P>, lock: &impl EntryLock<P>) -> Result<(), Stop<P>> {
    if !page.fault.access.is_write() {
        let flags = page.view.read_only_entry() | EntryFlags::SPECIAL | page.promise();
        let zero = Entry::new(page.instance().zero_page, flags);
        mutant!(ZeroPageCounted => return known::map_counted(page, lock, zero));
        page.install(lock, zero)?;
        return Ok(());
    }
    make_private(page, lock)
}

/// Maps a frame of the page's own, with what an untouched page holds.
#[inline]
pub(super) fn make_private<P: System>(page: &PageFault<'_, P>, lock: &impl EntryLock<P>) -> Result<(), Stop<P>> {
    let memory = page.memory();
    let root = lock.root(page);
    let pfn = lock.alloc(memory)?;
    untouched::write_untouched(page, pfn);
    frames::set_owner(memory, pfn, root, page.view.page_offset_of(page.fault.address));
    match page.install(lock, page.private_entry(pfn)) {
        Ok(true) => page.translations.add_resident(1),
        Ok(false) => frames::put(memory, pfn),
        Err(reason) => {
            frames::put(memory, pfn);
            return Err(reason.into());
        }
    }
    Ok(())
}
