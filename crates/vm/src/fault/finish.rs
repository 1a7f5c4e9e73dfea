//! The end of a copy on write.

use super::PageFault;
use crate::design::Design;
use crate::events::Event;
use crate::system::System;
use crate::translations::frames;
use faultless_phys::Pfn;

/// Accounts for a copy that is in place, and drops the entry's reference to the old page.
pub(super) fn finish<P: System, D: Design<P>>(page: &PageFault<'_, P, D>, old: Pfn, was_special: bool) {
    if was_special {
        page.space.add_resident(1);
    } else {
        page.space.vm().events().note(Event::Cow, page.fault.address.get());
        frames::put(page.space.memory(), old);
    }
}
