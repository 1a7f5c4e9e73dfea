//! The reverse-map roots of areas (Linux's anon_vma): whose pages may be found together, and so which areas may be
//! joined.
//!
//! # Guarantee
//! An area gets its root with its first private page, and takes that of a neighbour which could have been one area with
//! it but for the rights. Areas that had pages of their own before they met keep different roots, and stay apart.

use super::permit::ReadPermit;
use crate::area::{Area, AreaFlags, AreaView};
use crate::design::Design;
use crate::system::System;

impl<P: System, D: Design<P>> ReadPermit<'_, P, D> {
    /// Returns an area's root, made if it has none. The caller holds the semaphore, at least for reading.
    pub(crate) fn root_of(self, area: &Area<P, D>) -> u64 {
        area.root_or_set(|| self.neighbours_root(&area.view()).unwrap_or_else(|| self.vm().fresh_root()))
    }

    /// Returns the root that an area shares with a neighbour: the upper one's, or else the lower one's.
    #[cold]
    fn neighbours_root(self, view: &AreaView<P>) -> Option<u64> {
        let above = self.containing(view.end).and_then(|entry| {
            let above = entry.area().view();
            lent_root(&above).filter(|_| may_share(view, &above))
        });
        above.or_else(|| {
            let entry = self.last_starting_before(view.start)?;
            let below = entry.area().view();
            lent_root(&below).filter(|_| may_share(&below, view))
        })
    }
}

#[cfg(feature = "mutants")]
impl<P: System, D: Design<P>> super::Space<P, D> {
    /// A known bug: gives the area of a fault a root, if it needs one and has none, although nothing is locked.
    pub(crate) fn with_root_set_without_lock(
        &self,
        view: AreaView<P>,
        fault: crate::fault::kinds::Fault,
    ) -> AreaView<P> {
        if view.root != 0 || !view.makes_page(fault.access) {
            return view;
        }
        // SAFETY: not kept: the known bug.
        let permit = unsafe { ReadPermit::assume(self) };
        let root = permit.containing(fault.address).map_or(0, |found| permit.root_of(found.area()));
        AreaView { root, ..view }
    }
}

/// Returns the root that an area lends; one that a fork gave it is its alone.
fn lent_root<P: System>(view: &AreaView<P>) -> Option<u64> {
    (view.root != 0 && !view.flags.contains(AreaFlags::INHERITED)).then_some(view.root)
}

/// Says whether two areas are neighbours that differ in rights at most.
fn may_share<P: System>(below: &AreaView<P>, above: &AreaView<P>) -> bool {
    let ignored = AreaFlags::RIGHTS | AreaFlags::IGNORED_BY_JOINS;
    below.end == above.start
        && below.is_of_one_content(above)
        && below.flags - ignored == above.flags - ignored
        && below.page_offset_of(above.start) == above.page_offset
}
