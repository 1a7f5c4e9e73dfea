//! The end of a copy on write.

use super::PageFault;
use crate::events::Event;
use crate::system::System;
use crate::translations::frames;
use faultless_phys::Pfn;

/// Accounts for a copy that is in place, and drops the entry's reference to the old page.
pub(super) fn finish<P: System>(page: &PageFault<'_, P>, old: Pfn, was_special: bool) {
    if was_special {
        page.translations.add_resident(1);
    } else {
        page.instance().events.note(Event::Cow, page.fault.address.get());
        frames::put(page.memory(), old);
    }
}
