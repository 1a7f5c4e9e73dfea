//! The area list as users read it (/proc/self/maps).
//!
//! # Guarantee
//! [`AreaLine`] and [`AreaList`] print what Linux prints: addresses, rights, offset in the object, device, inode and
//! the name of the heap or of a reference page's file. The device is always 00:00, the inode is the object's identity,
//! and objects have no name.

use super::line::AreaLine;
use super::{EVERYTHING, Space};
use crate::addr::{PageRange, VirtAddr};
use crate::area::AreaFlags;
use crate::design::{DefaultDesign, Design};
use crate::system::System;
use crate::types::Map;
use core::fmt;
use faultless_platform::{Atomic, Ordering};

/// A space's whole list, a line for each area: what `/proc/PID/maps` shows. Made by [`Space::list`]
/// for whoever prints it: nothing is looked up before.
pub struct AreaList<'a, P: System, D: Design<P> = DefaultDesign<P>>(&'a Space<P, D>);

impl<P: System, D: Design<P>> fmt::Display for AreaList<'_, P, D> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut result = Ok(());
        self.0.for_each_area(|line| result = result.and_then(|()| writeln!(out, "{line}")));
        result
    }
}

impl<P: System, D: Design<P>> Space<P, D> {
    /// Returns the area list, to be printed.
    pub fn list(&self) -> AreaList<'_, P, D> {
        AreaList(self)
    }

    /// Visits the areas, ascending, under the read lock.
    pub fn for_each_area(&self, visit: impl FnMut(AreaLine)) {
        D::Map::for_each_area(self, visit);
    }

    /// Visits the areas of the index.
    pub(super) fn visit_areas(&self, mut visit: impl FnMut(AreaLine)) {
        let read = self.read_settled(EVERYTHING);
        // Relaxed: written under the lock that we hold.
        let heap = self.heap_start.load(Ordering::Relaxed)..self.heap_end.load(Ordering::Relaxed);
        let mut areas = read.permit().overlapping(EVERYTHING).peekable();
        while let Some(entry) = areas.next() {
            let area = entry.area();
            let mut view = area.view();
            // S3 of `seams`.
            while let Some(upper) = areas.next_if(|upper| upper.area().flags().contains(AreaFlags::SEAM_BELOW)) {
                view.end = upper.end;
                view.flags |= upper.area().flags() & AreaFlags::MAYBE_GUARD;
            }
            visit(AreaLine {
                range: PageRange::of_area(view.start, view.end),
                flags: view.flags - AreaFlags::SEAMS,
                page_offset: view.page_offset,
                has_object: view.object.is_some(),
                identity: area.object().map(|object| object.identity()),
                is_reference: view.is_reference(),
                is_heap: heap.start != 0
                    && view.start <= VirtAddr::new(heap.end)
                    && view.end >= VirtAddr::new(heap.start),
            });
        }
    }
}
