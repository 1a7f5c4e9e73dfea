//! The end of a copy on write.

use super::PageFault;
use crate::events::Event;
use crate::system::System;

/// Accounts for a copy that is in place, and drops the entry's reference to the old page, if it held one.
pub(super) fn finish<P: System>(page: &PageFault<'_, P>) {
    if page.seen.is_special() {
        page.translations.add_resident(1);
        return;
    }
    page.instance().events.note(Event::Cow, page.fault.address.get());
    page.instance().drop_entry(page.seen);
}
