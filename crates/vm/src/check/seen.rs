//! A space as the checker sees it.
//!
//! # Guarantee
//! Everything that the checker asks of a space is here, without a design in its type. So the checker is compiled once
//! for each platform, and only this file for each design.

use crate::addr::VirtAddr;
use crate::design::{Design, Map};
use crate::limits::Limits;
use crate::space::Space;
use crate::space::line::AreaLine;
use crate::system::System;
use crate::translations::Translations;
use crate::view::AreaView;
use core::ops::Range;

/// What a space counts of its areas.
pub(super) struct Sums {
    pub(super) nr_areas: u64,
    pub(super) mapped_bytes: u64,
    pub(super) data_bytes: u64,
    pub(super) locked_bytes: u64,
    /// Credits that CPUs hold where none may hold any.
    pub(super) stray: u64,
}

/// A space of any design, which nobody uses meanwhile.
pub(super) trait SeenSpace<P: System> {
    fn translations(&self) -> &Translations<P>;
    fn limits(&self) -> &Limits;
    fn sums(&self) -> Sums;
    /// Says whether memory is promised by entries, and there are no areas.
    fn has_promises(&self) -> bool;
    /// Visits the areas as the space lists them, ascending.
    fn for_each_area(&self, visit: &mut dyn FnMut(AreaLine));
    /// Visits the areas in the index: the bounds that the index has, and what the area says of itself.
    fn for_each_indexed(&self, visit: &mut dyn FnMut(u64, u64, AreaView<P>));
    /// Returns the area that holds an address.
    fn area_at(&self, address: VirtAddr) -> Option<AreaView<P>>;
    /// Says whether the index has an area with a part in the span.
    fn has_area_in(&self, span: &Range<u64>) -> bool;
    /// Says whether a table of a span may stand that spans no area, because CPUs have ranges.
    fn may_keep_table_of(&self, span: &Range<u64>) -> bool;
}

impl<P: System, D: Design<P>> SeenSpace<P> for Space<P, D> {
    fn translations(&self) -> &Translations<P> {
        &self.translations
    }

    fn limits(&self) -> &Limits {
        self.limits()
    }

    fn sums(&self) -> Sums {
        Sums {
            nr_areas: self.nr_areas(),
            mapped_bytes: self.mapped_bytes(),
            data_bytes: self.data_bytes(),
            locked_bytes: self.locked_bytes(),
            stray: self.stray_credits(),
        }
    }

    fn has_promises(&self) -> bool {
        D::Map::PROMISES
    }

    fn for_each_area(&self, visit: &mut dyn FnMut(AreaLine)) {
        D::Map::for_each_area(self, visit);
    }

    fn for_each_indexed(&self, visit: &mut dyn FnMut(u64, u64, AreaView<P>)) {
        for entry in self.areas_overlapping(0..u64::MAX) {
            // SAFETY: the index holds the area, and nobody changes it meanwhile.
            visit(entry.start, entry.end, unsafe { entry.area.as_ref() }.view());
        }
    }

    fn area_at(&self, address: VirtAddr) -> Option<AreaView<P>> {
        D::Map::area_at(self, address)
    }

    fn may_keep_table_of(&self, span: &Range<u64>) -> bool {
        self.may_keep_table_of(span)
    }

    fn has_area_in(&self, span: &Range<u64>) -> bool {
        self.first_area_ending_after(span.start, span.end).is_some_and(|area| area.start < span.end)
    }
}
