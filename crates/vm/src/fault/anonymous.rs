//! Empty entries of private anonymous memory: the zero page for a load, a zeroed frame for a store.

use super::{EntryLock, PageFault, Stop};
use crate::design::Design;
use crate::entry::{Entry, EntryFlags};
use crate::frames;
use faultless_phys::Kind;
use faultless_platform::Platform;

#[inline]
pub(super) fn fill<P: Platform, D: Design<P>>(
    page: &PageFault<'_, P, D>,
    lock: &impl EntryLock<P, D>,
) -> Result<(), Stop<P>> {
    if !page.fault.access.is_write() {
        let zero = Entry::new(page.space.vm().zero_page(), page.view.read_only_entry() | EntryFlags::SPECIAL);
        page.install(lock, zero)?;
        return Ok(());
    }
    let memory = page.space.memory();
    let root = lock.root(page);
    let pfn = frames::alloc_zeroed(memory, Kind::Anonymous)?;
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
