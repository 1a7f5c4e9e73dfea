//! Empty entries of memory with an object behind it.
//!
//! | area | access | maps |
//! |---|---|---|
//! | shared | store | the object's page, writable |
//! | shared | load, fetch | the object's page, writable unless the object wants to notice the first store |
//! | private | store | a copy of the object's page |
//! | private | load, fetch | the object's page, read-only |

use super::{EntryLock, PageFault, Stop};
use crate::entry::{Entry, EntryFlags};
use crate::error::AccessError;
use crate::events::Event;
use crate::object::{ObjectRef, WriteNotice};
use crate::system::System;
use crate::tags::TagSource;
use crate::translations::frames;
use crate::view::AreaFlags;
use faultless_phys::{FrameSource, Pfn};
use faultless_platform::Bulk;

pub(super) fn fill<P: System>(
    page: &PageFault<'_, P>,
    lock: &impl EntryLock<P>,
    object: &ObjectRef<P>,
) -> Result<(), Stop> {
    let memory = page.memory();
    let page_index = page.view.page_offset_of(page.fault.address);
    let is_copied = page.fault.access.is_write() && !page.is_shared();
    // As Linux, before it is known whether there is a page to copy.
    let root = if is_copied { lock.root(page) } else { 0 };
    let cached = object.cached(memory, page_index);
    let cached = cached.map_err(|_| Stop::Failed(AccessError::NoPage { address: page.fault.address }))?;
    let source = cached.ok_or(Stop::Fetch(page_index))?;
    if is_copied {
        return fill_copy(page, lock, source, (root, page_index));
    }
    if page.install(lock, Entry::new(source, entry_flags(page, object)))? {
        page.translations.add_resident(1);
    }
    Ok(())
}

fn entry_flags<P: System>(page: &PageFault<'_, P>, object: &ObjectRef<P>) -> EntryFlags {
    let mut flags = page.view.read_only_entry() | EntryFlags::OBJECT;
    if page.fault.access.is_write() {
        flags |= EntryFlags::WRITE | EntryFlags::DIRTY;
    } else if page.is_shared()
        && page.view.flags.contains(AreaFlags::WRITE)
        && object.write_notice() == WriteNotice::None
    {
        flags |= EntryFlags::WRITE;
    }
    flags
}

fn fill_copy<P: System>(
    page: &PageFault<'_, P>,
    lock: &impl EntryLock<P>,
    source: Pfn,
    (root, page_index): (u64, u64),
) -> Result<(), Stop> {
    let memory = page.memory();
    let copy = lock.alloc(memory)?;
    // SAFETY: the copy is ours alone; the object keeps the source while the fault keeps the area (I2 of `removal`).
    unsafe { page.instance().write_page(copy, Bulk::CopyFrom(memory.frame(source)), TagSource::Page(source)) };
    frames::set_owner(memory, copy, root, page_index);
    match page.install(lock, page.private_entry(copy)) {
        Ok(true) => {
            page.instance().events.note(Event::Cow, page.fault.address.get());
            page.translations.add_resident(1);
        }
        Ok(false) => frames::put(memory, copy),
        Err(reason) => {
            frames::put(memory, copy);
            return Err(reason.into());
        }
    }
    Ok(())
}
