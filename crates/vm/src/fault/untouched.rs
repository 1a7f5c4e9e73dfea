//! What an untouched page holds, and that a page nobody owns is nobody's to write.

use super::{PageFault, Stop};
use crate::content::Behind;
use crate::error::AccessError;
use crate::pattern::Pattern;
use crate::system::System;
use crate::tags::TagSource;
use faultless_phys::Pfn;
use faultless_platform::Bulk;

/// Refuses a store to a page that nobody owns, where it would reach others.
pub(super) fn check_unshared<P: System>(page: &PageFault<'_, P>) -> Result<(), Stop> {
    if page.seen.is_special() { Err(no_page(page)) } else { Ok(()) }
}

pub(super) fn no_page<P: System>(page: &PageFault<'_, P>) -> Stop {
    Stop::Failed(AccessError::NoPage { address: page.fault.address })
}

/// Writes zeros to a frame, which is the caller's alone.
#[inline(always)]
pub(super) fn write_zeros<P: System>(page: &PageFault<'_, P>, pfn: Pfn) {
    // SAFETY: the frame is the caller's.
    unsafe { page.instance().write_page(pfn, Bulk::Zero, TagSource::Uniform(0)) };
}

/// Writes to a frame, which is the caller's alone, what an untouched page of the area holds.
pub(super) fn write_untouched<P: System>(page: &PageFault<'_, P>, pfn: Pfn) {
    #[cfg(feature = "mutants")]
    page.behind.check_tag();
    let (content, tags) = match page.behind {
        Behind::Zeros | Behind::Object(_) => (Bulk::Zero, TagSource::Uniform(0)),
        Behind::Reference(reference) => (reference.filling(page.memory()), reference.tag_source()),
        Behind::Pattern(pattern) => (repeating(*pattern), TagSource::Uniform(0)),
    };
    // SAFETY: the frame is the caller's; the area holds the reference page.
    unsafe { page.instance().write_page(pfn, content, tags) };
}

fn repeating(pattern: Pattern) -> Bulk {
    Bulk::Fill(pattern.word())
}
