//! The reverse-map roots of areas (Linux's anon_vma): whose pages may be found together, and so which areas may be
//! joined.
//!
//! # Guarantee
//! An area gets its root with its first private page, and takes that of a neighbour which could have been one area with
//! it but for the rights. Areas that had pages of their own before they met keep different roots, and stay apart; so
//! may neighbours whose first pages are made side by side.

use super::permit::ReadPermit;
use super::{AreaAt, Space};
use crate::area::{Area, AreaFlags, AreaView};
use crate::design::Design;
use crate::system::System;

impl<P: System, D: Design<P>> ReadPermit<'_, P, D> {
    /// Returns an area's root, made if it has none. The caller holds the semaphore, at least for reading.
    pub(crate) fn root_of(self, area: &Area<P, D>) -> u64 {
        area.root_or_set(|| {
            debug_assert!(!area.flags().intersects(AreaFlags::SEAMS), "S5 of `seams`");
            self.root_for(&area.view())
        })
    }

    /// Returns the root that what has a view would get, an area or several that are one to others: a neighbour's or a
    /// fresh one. The caller holds the semaphore, at least for reading.
    #[inline]
    pub(super) fn root_for(self, view: &AreaView<P>) -> u64 {
        // A neighbour beyond a lane's bound may leave the index meanwhile.
        let _beside = self.look_beside();
        // The lock keeps what neighbours have in common with the area.
        let lent = self.neighbours_root(view, |_| true);
        lent.ok().flatten().unwrap_or_else(|| self.vm().fresh_root())
    }

    /// Returns the root that an area shares with a neighbour: the upper one's, or else the lower one's.
    #[cold]
    fn neighbours_root(
        self,
        view: &AreaView<P>,
        stays: impl Fn(&Area<P, D>) -> bool,
    ) -> Result<Option<u64>, NeighbourChanges> {
        let look = |entry: AreaAt<'_, P, D>| stays(entry.area()).then(|| entry.area().view()).ok_or(NeighbourChanges);
        if let Some(above) = self.containing(view.end) {
            let above = look(above)?;
            if let Some(root) = lent_root(&above).filter(|_| may_share(view, &above)) {
                return Ok(Some(root));
            }
        }
        match self
            .last_starting_within(view.start, view.start.get().saturating_sub(1))
            .filter(|below| below.end == view.start)
        {
            Some(below) => look(below).map(|below| lent_root(&below).filter(|_| may_share(&below, view))),
            None => Ok(None),
        }
    }
}

impl<P: System, D: Design<P>> Space<P, D> {
    /// Gives an area its first root without the space's lock; `None` if only the lock's holders may.
    ///
    /// # Safety
    /// Until the caller's RCU section ends, nobody changes the area, whose view `view` is, nor any area in the index
    /// for which `stays` returns true.
    pub(crate) unsafe fn give_root(
        &self,
        area: &Area<P, D>,
        view: &AreaView<P>,
        stays: impl Fn(&Area<P, D>) -> bool,
    ) -> Option<u64> {
        // Neighbours may lie in other lanes than the area.
        self.note_looker_at(view.start.get().saturating_sub(1));
        self.note_looker_at(view.end.get());
        // SAFETY: of other areas nothing is looked at; the section keeps them and the index's nodes.
        let permit = unsafe { ReadPermit::assume(self) };
        let lent = permit.neighbours_root(view, stays).ok()?;
        area.give_root(lent.unwrap_or_else(|| self.vm().fresh_root()))
    }
}

/// A neighbour may be changing.
struct NeighbourChanges;

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
