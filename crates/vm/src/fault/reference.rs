//! Pages of memory that starts out as something else than zeros: reference areas, and areas with a pattern.
//!
//! | area | load, fetch | store |
//! |---|---|---|
//! | reference | the reference page, read-only, special: not counted | a frame of its own with the page's content |
//! | reference, shared and writable (forced: mmap makes none) | a bus error | a bus error |
//! | pattern | a frame of its own with the pattern | the same |
//!
//! A store to a reference page that a load had mapped comes by `copy`, and gets its content here.
//!
//! The reference page is the area's own, which holds it: an entry that a walk saw may be another area's by the time.

use super::{EntryLock, PageFault, Stop, anonymous};
use crate::area::AreaFlags;
use crate::content::{Behind, Pattern};
use crate::design::Design;
use crate::entry::{Entry, EntryFlags};
use crate::error::AccessError;
use crate::reference::ReferenceRef;
use crate::tags::TagSource;
use faultless_phys::Pfn;
use faultless_platform::mutants::{self, Mutant};
use faultless_platform::{Bulk, Platform};

/// Fills an empty entry of a reference area.
pub(super) fn fill<P: Platform, D: Design<P>>(
    page: &PageFault<'_, P, D>,
    lock: &impl EntryLock<P, D>,
    reference: &ReferenceRef<P>,
) -> Result<(), Stop<P>> {
    if is_forced(page) {
        return Err(no_page(page));
    }
    if page.fault.access.is_write() {
        return anonymous::make_private(page, lock);
    }
    let entry = Entry::new(reference.page(), page.view.read_only_entry() | EntryFlags::SPECIAL);
    if mutants::is_on(Mutant::ReferencePageCounted) {
        return anonymous::map_counted(page, lock, entry);
    }
    if mutants::is_on(Mutant::ReferenceZeroAfterDontNeed) && page.view.root != 0 {
        let zero = Entry::new(page.space.vm().zero_page(), entry.flags());
        page.install(lock, zero)?;
        return Ok(());
    }
    page.install(lock, entry)?;
    Ok(())
}

/// Says whether the page is one of a shared writable reference area.
fn is_forced<P: Platform, D: Design<P>>(page: &PageFault<'_, P, D>) -> bool {
    page.view.flags & (AreaFlags::SHARED | AreaFlags::DENY_WRITE) == AreaFlags::SHARED
}

fn no_page<P: Platform, D: Design<P>>(page: &PageFault<'_, P, D>) -> Stop<P> {
    Stop::Failed(AccessError::NoPage { address: page.fault.address })
}

/// Refuses a store to a page that nobody owns, where it would reach others.
pub(super) fn check_unshared<P: Platform, D: Design<P>>(page: &PageFault<'_, P, D>) -> Result<(), Stop<P>> {
    if page.seen.is_special() { Err(no_page(page)) } else { Ok(()) }
}

/// Writes to a frame, which is the caller's alone, what an untouched page of the area holds.
#[inline]
pub(super) fn write_untouched<P: Platform, D: Design<P>>(page: &PageFault<'_, P, D>, pfn: Pfn) {
    let (content, tags) = match page.area.behind() {
        Behind::Zeros | Behind::Object(_) => (Bulk::Zero, TagSource::Uniform(0)),
        Behind::Reference(reference) => (reference.filling(page.space.memory()), reference.tag_source()),
        Behind::Pattern(pattern) => (repeating(*pattern), TagSource::Uniform(0)),
    };
    // SAFETY: the frame is the caller's; the area holds the reference page.
    unsafe { page.space.vm().write_page(pfn, content, tags) };
}

fn repeating(pattern: Pattern) -> Bulk {
    Bulk::Fill(pattern.word())
}
