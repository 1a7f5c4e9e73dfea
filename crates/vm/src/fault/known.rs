//! Known bugs of faults, as the feature `mutants` puts them back; nothing of this is there without it.

use super::finish::finish;
use super::{EntryLock, PageFault, Stop};
use crate::addr::{PAGE, PageRange, VirtAddr, page_floor};
use crate::entry::{Entry, EntryFlags};
use crate::error::AccessError;
use crate::system::System;
use crate::translations::frames;
use crate::translations::leaf_guard::LeafGuard;
use faultless_phys::Pfn;

/// A page that nobody owns is mapped like any other, with a reference.
pub(super) fn map_counted<P: System>(
    page: &PageFault<'_, P>,
    lock: &impl EntryLock<P>,
    special: Entry,
) -> Result<(), Stop> {
    frames::get(page.memory(), special.pfn()).map_err(|_| Stop::Failed(AccessError::TooManyReferences))?;
    if page.install(lock, special.without(EntryFlags::SPECIAL))? {
        page.translations.add_resident(1);
    } else {
        frames::put(page.memory(), special.pfn());
    }
    Ok(())
}

/// Returns the page of zeros in place of a reference page, once the area has pages of its own.
pub(super) fn zero_once_touched<P: System>(page: &PageFault<'_, P>, entry: Entry) -> Entry {
    if page.view.root != 0 { Entry::new(page.instance().zero_page, entry.flags()) } else { entry }
}

/// Makes a page writable that nobody owns: a reference page, or that of zeros; the other one is to be copied.
pub(super) fn make_writable<P: System>(
    page: &PageFault<'_, P>,
    guard: &LeafGuard<'_, P>,
    a_reference_page: bool,
) -> Result<Option<Pfn>, Stop> {
    if page.view.is_reference() != a_reference_page {
        return Ok(Some(page.seen.pfn()));
    }
    guard.exchange(page.seen, page.seen.written());
    Ok(None)
}

/// The entry is cleared under the lock, and shot down after it.
pub(super) fn replace_unlocked<P: System>(
    page: &PageFault<'_, P>,
    lock: &impl EntryLock<P>,
    guard: LeafGuard<'_, P>,
    new: Pfn,
) -> Result<(), Stop> {
    guard.take(Entry::EMPTY);
    drop(guard);
    if let Some(range) = PageRange::new(VirtAddr::new(page_floor(page.fault.address.get())), PAGE) {
        page.translations.flush(range);
    }
    let again = PageFault { seen: Entry::EMPTY, ..*page };
    if matches!(again.install(lock, page.private_entry(new)), Ok(true)) {
        finish(page);
        return Ok(());
    }
    frames::put(page.memory(), new);
    if !page.seen.is_special() {
        page.translations.shrink_resident(1);
        page.instance().drop_entry(page.seen);
    }
    Ok(())
}
