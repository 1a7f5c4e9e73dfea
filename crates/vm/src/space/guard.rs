//! Guard pages inside an area (`MADV_GUARD_INSTALL`, Linux 6.13).
//!
//! # Guarantee
//! A guarded page has no frame, and an access to it is answered as one outside any area, until the guard is removed or
//! the mapping goes. The area is not cut.
//!
//! # Invariants
//! * I1 a guard is the entry [`Entry::GUARD`](crate::Entry::GUARD): not present, not empty, without a frame. It moves
//!   with its page, is copied by fork, and stays when pages are dropped (MADV_DONTNEED, truncation).
//! * I2 an area with guards says so (`MAYBE_GUARD`), so that fork copies its entries. As on Linux, only one without a
//!   file gets a reverse-map root with its first guard: one with a file, or the handle of a reference page, may still
//!   be joined with a neighbour that has a root.

use super::permit::ReadPermit;
use crate::addr::PageRange;
use crate::area::Area;
use crate::design::Design;
use crate::error::CallError;
use crate::system::System;

impl<P: System, D: Design<P>> ReadPermit<'_, P, D> {
    /// Guards the pages of a part of an area, and drops what they held. The caller holds the lock for reading.
    pub(super) fn install_guards(self, area: &Area<P, D>, part: PageRange) -> Result<(), CallError> {
        area.note_guards();
        if !area.view().has_file() {
            self.root_of(area);
        }
        self.translations.grow_tables(part)?;
        self.translations.install_guards(part);
        Ok(())
    }
}
