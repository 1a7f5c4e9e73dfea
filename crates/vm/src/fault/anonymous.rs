//! Empty entries of private anonymous memory: the zero page for a load, a frame of its own for a store.

#[cfg(feature = "mutants")]
use super::known;
use super::{EntryLock, PageFault, Stop, untouched};
use crate::entry::{Entry, EntryFlags};
use crate::system::System;
use crate::translations::frames;
use faultless_phys::Pfn;
use faultless_platform::mutant;

/// Fills an empty entry of memory of zeros.
#[inline(always)]
pub(super) fn fill<P: System>(page: &PageFault<'_, P>, lock: &impl EntryLock<P>) -> Result<(), Stop> {
    if !page.fault.access.is_write() {
        let flags = page.view.read_only_entry() | EntryFlags::SPECIAL | page.promise();
        let zero = Entry::new(page.instance().zero_page, flags);
        mutant!(ZeroPageCounted => return known::map_counted(page, lock, zero));
        page.install(lock, zero)?;
        return Ok(());
    }
    let (pfn, root) = take_frame(page, lock)?;
    untouched::write_zeros(page, pfn);
    map_frame(page, lock, (pfn, root))
}

/// Maps a frame of the page's own, with what an untouched page holds.
#[inline(never)]
pub(super) fn make_private<P: System>(page: &PageFault<'_, P>, lock: &impl EntryLock<P>) -> Result<(), Stop> {
    let (pfn, root) = take_frame(page, lock)?;
    untouched::write_untouched(page, pfn);
    map_frame(page, lock, (pfn, root))
}

/// Takes a frame for a page of its own, and returns its reverse-map root with it.
#[inline(always)]
fn take_frame<P: System>(page: &PageFault<'_, P>, lock: &impl EntryLock<P>) -> Result<(Pfn, u64), Stop> {
    let root = lock.root(page);
    Ok((lock.alloc(page.memory())?, root))
}

/// Maps such a frame, once its content is there.
#[inline(always)]
fn map_frame<P: System>(
    page: &PageFault<'_, P>,
    lock: &impl EntryLock<P>,
    (pfn, root): (Pfn, u64),
) -> Result<(), Stop> {
    let memory = page.memory();
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
