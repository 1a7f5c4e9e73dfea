//! Stores to pages that are mapped but not writable.
//!
//! # Guarantee
//! A private page becomes writable in place only if nobody shares it; else the store gets a copy. Before the copy can
//! be reached, no CPU has a translation to the old page (entry cleared, shot down, then set: as Linux does it), so
//! that all threads see the change at once.
//!
//! Under a design that fills empty entries without the table's lock, a guard stands there meanwhile: an empty entry
//! would be filled with a page that lacks what the old one holds. Who meets a guard waits for the lock, and looks
//! again. Where the entry is the map, its promise stands there: an empty one would be a hole.

use super::finish::finish;
#[cfg(feature = "mutants")]
use super::known;
use super::{EntryLock, PageFault, Stop, untouched};
use crate::addr::{PAGE, PageRange};
use crate::entry::{Entry, EntryFlags};
use crate::error::AccessError;
use crate::events::Event;
use crate::system::System;
use crate::tags::TagSource;
use crate::translations::frames;
use crate::translations::leaf_guard::LeafGuard;
use faultless_phys::{FrameSource, Pfn};
use faultless_platform::Bulk;
use faultless_platform::mutant;

/// Answers a fault on a mapped page.
pub(super) fn allow<P: System>(page: &PageFault<'_, P>, lock: &impl EntryLock<P>) -> Result<(), Stop> {
    if !page.fault.access.is_write() || page.seen.is_writable() {
        // Another thread was faster, or this CPU's TLB was stale.
        return Ok(());
    }
    if page.is_shared() {
        untouched::check_unshared(page)?;
        // Written back no more.
        page.install(lock, page.seen.without(EntryFlags::EXCLUSIVE).written())?;
        return Ok(());
    }
    match reuse_or_hold(page, lock)? {
        Some(old) => copy(page, lock, old),
        None => Ok(()),
    }
}

/// Makes the page writable if it is ours alone; otherwise returns the frame to copy, with a reference to it.
fn reuse_or_hold<P: System>(page: &PageFault<'_, P>, lock: &impl EntryLock<P>) -> Result<Option<Pfn>, Stop> {
    let memory = page.memory();
    let guard = lock.lock(page)?;
    if guard.entry() != page.seen {
        return Ok(None);
    }
    let old = page.seen.pfn();
    if page.seen.is_special() {
        mutant!(ZeroPageWritable => return known::make_writable(page, &guard, false));
        mutant!(ReferencePageWritable => return known::make_writable(page, &guard, true));
        return Ok(Some(old));
    }
    let is_alone = !page.seen.is_of_object() && mutant!(ReuseByMapcount, memory.page(old).nr_references() == 1 => true);
    if page.seen.has(EntryFlags::EXCLUSIVE) || is_alone {
        let own = page.seen.with(EntryFlags::EXCLUSIVE).written();
        if guard.exchange(page.seen, own) {
            page.instance().events.note(Event::Reuse, page.fault.address.get());
        }
        return Ok(None);
    }
    frames::get(memory, old).map_err(|_| Stop::Failed(AccessError::TooManyReferences))?;
    Ok(Some(old))
}

fn copy<P: System>(page: &PageFault<'_, P>, lock: &impl EntryLock<P>, old: Pfn) -> Result<(), Stop> {
    let memory = page.memory();
    let is_special = page.seen.is_special();
    let result = make_copy(page, lock, old, is_special);
    if !is_special {
        // The reference that `reuse_or_hold` took.
        frames::put(memory, old);
    }
    result
}

fn make_copy<P: System>(
    page: &PageFault<'_, P>,
    lock: &impl EntryLock<P>,
    old: Pfn,
    is_special: bool,
) -> Result<(), Stop> {
    let memory = page.memory();
    let root = lock.root(page);
    let new = lock.alloc(memory)?;
    match is_special {
        true => untouched::write_untouched(page, new),
        // SAFETY: the new frame is ours alone, and the old one is held.
        false => unsafe {
            page.instance().write_page(new, Bulk::CopyFrom(memory.frame(old)), TagSource::Page(old));
        },
    }
    frames::set_owner(memory, new, root, page.view.page_offset_of(page.fault.address));
    match lock.lock(page) {
        Ok(guard) if guard.entry() == page.seen => {
            mutant!(ClearedThenFlushedUnlocked => return known::replace_unlocked(page, lock, guard, new));
            replace(page, &guard, page.private_entry(new));
            drop(guard);
            finish(page);
            Ok(())
        }
        changed => {
            let result = changed.map(drop).map_err(Stop::from);
            frames::put(memory, new);
            result
        }
    }
}

/// Swaps the page under the table's lock; see the guarantee.
fn replace<P: System>(page: &PageFault<'_, P>, guard: &LeafGuard<'_, P>, entry: Entry) {
    let leaves_guard = mutant!(CopyLeavesEmpty, page.rules.fills_freely => false);
    let left = if page.rules.promises { page.seen.promise_alone() } else { Entry::EMPTY };
    let old = guard.take(if leaves_guard { Entry::GUARD } else { left });
    debug_assert_eq!(old.pfn(), page.seen.pfn(), "the lock keeps the entry, but for accessed and dirty bits");
    if let Some(range) = PageRange::new(page.fault.address.page(), PAGE) {
        page.translations.flush(range);
    }
    guard.fill(entry);
}

/// Says whether the guard that was seen is one that a copy leaves for a moment, or was one: then the access is tried
/// again. Waits for that copy.
#[cold]
pub(super) fn is_under_way<P: System>(page: &PageFault<'_, P>) -> bool {
    page.rules.fills_freely && LeafGuard::lock(page.memory(), page.leaf).entry() != page.seen
}
