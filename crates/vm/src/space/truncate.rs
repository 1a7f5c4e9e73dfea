//! Unmapping the pages that a mapped object lost to truncation or a hole.

use super::{EVERYTHING, Space};
use crate::addr::{PAGE, PageRange};
use crate::area::AreaView;
use crate::design::Design;
use crate::object::Object;
use crate::system::System;
use crate::translations::Emptied;
use core::ops::Range;
use faultless_platform::mutant;

impl<P: System, D: Design<P>> Space<P, D> {
    /// Empties the entries that map `pages` of an object, faults kept out.
    pub(crate) fn unmap_object(&self, object: &Object<P>, pages: Range<u64>, emptied: Emptied) {
        if !self.maps(object) {
            return;
        }
        // Settled: what leaves has entries that hold no reference to the object's pages.
        let write = mutant!(RemovalBesideDeparture, self.write_settled(EVERYTHING) => self.write(EVERYTHING));
        self.with_guard(write, |permit| {
            for entry in permit.overlapping(EVERYTHING) {
                let area = entry.area();
                let view = area.view();
                if let Some(range) = mapped_part(&view, object, &pages) {
                    let _announced = area.announce_change(self);
                    self.translations.zap(range, emptied);
                }
            }
        });
    }

    fn maps(&self, object: &Object<P>) -> bool {
        let read = mutant!(RemovalBesideDeparture, self.read_settled(EVERYTHING) => self.read(EVERYTHING));
        read.permit().overlapping(EVERYTHING).any(|entry| {
            let mapped = entry.area().object();
            mapped.is_some_and(|mapped| core::ptr::eq(mapped.as_ptr().as_ptr(), object))
        })
    }
}

/// Returns the part of an area that maps some of `pages`.
pub(super) fn mapped_part<P: System>(view: &AreaView<P>, object: &Object<P>, pages: &Range<u64>) -> Option<PageRange> {
    view.object.filter(|mapped| core::ptr::eq(mapped.as_ptr(), object))?;
    let nr_pages = (view.end - view.start) / PAGE;
    let first = pages.start.saturating_sub(view.page_offset).min(nr_pages);
    let last = pages.end.saturating_sub(view.page_offset).min(nr_pages);
    PageRange::between(view.start + first * PAGE, view.start + last * PAGE)
}
