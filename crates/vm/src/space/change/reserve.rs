//! Memory set aside for a change.
//!
//! # Guarantee
//! A change that is prepared out of a reserve can't run out of memory, as far as the reserve goes.

use crate::addr::VirtAddr;
use crate::area::Area;
use crate::design::Design;
use crate::index::{Index, Spare};
use crate::space::Space;
use crate::space::annex_edits::Comes;
use crate::space::editing::Editing;
use crate::space::map_lock::MapLock;
use crate::space::permit::WritePermit;
use crate::system::System;
use core::ptr::NonNull;
use faultless_phys::OutOfFrames;

/// Memory set aside, so that a later change that removes one range can't fail.
pub(in crate::space) struct Reserve<'a, P: System, D: Design<P>> {
    space: &'a Space<P, D>,
    pub(super) nodes: Option<Spare<'a, P>>,
    pub(super) area: Option<NonNull<Area<P, D>>>,
    /// The lock of edits, had already; whoever must sleep to allocate lets go of it first.
    pub(super) edit: Option<Editing<'a, P, D>>,
}

/// An edit makes one leaf anew, unless that overflows.
const NODES_OF_MOST_EDITS: usize = 1;

impl<P: System, D: Design<P>> Space<P, D> {
    /// Sets aside what taking an area that leaves off the index needs at most, unless that grows by three levels
    /// meanwhile.
    pub(in crate::space) fn reserve_departure(&self) -> Result<Reserve<'_, P, D>, OutOfFrames> {
        let nr_levels = {
            let _reading = self.look();
            self.most_index_levels()
        };
        let nodes = Index::<P, Area<P, D>>::reserve_levels(&self.vm().nodes, nr_levels + 3)?;
        Ok(Reserve { space: self, nodes: Some(nodes), area: None, edit: None })
    }

    /// Sets aside what a change of a part mostly needs, so that it is planned and made while the lock is had under
    /// which the part is chosen; nothing where there are no parts. What takes more gets it under that lock, if that
    /// takes no sleep; else it ends that, and begins anew.
    #[inline(always)]
    pub(in crate::space) fn reserve_part(
        &self,
        near: VirtAddr,
        comes: Comes,
    ) -> Result<Option<Reserve<'_, P, D>>, OutOfFrames> {
        if !D::Lock::DIVIDES || !self.lock.is_divided() {
            return Ok(None);
        }
        let index = self.lane_rooms().and_then(|lanes| lanes.index_at(near.get()));
        // Where the caller's CPU alone looks, the leaf that the last edit replaced mostly is enough.
        let nr_nodes = if index.is_some_and(Index::is_the_callers) { 0 } else { NODES_OF_MOST_EDITS };
        let nodes = Index::<P, Area<P, D>>::reserve_nodes(&self.vm().nodes, nr_nodes)?;
        // An unmapping makes one only where it cuts one in two.
        let needs_area = comes == Comes::AnArea && !index.is_some_and(Index::grows);
        let area = needs_area.then(|| self.vm().areas.alloc()).transpose()?;
        Ok(Some(Reserve { space: self, nodes: Some(nodes), area, edit: None }))
    }
}

impl<'g, P: System, D: Design<P>> WritePermit<'g, P, D> {
    /// Sets aside what [`WritePermit::prepare_removal`] needs at most.
    pub(in crate::space) fn reserve_removal(self) -> Result<Reserve<'g, P, D>, OutOfFrames> {
        let space = self.space();
        let nodes = match space.lane_rooms() {
            None => space.index.reserve(&space.vm().nodes)?,
            // Two lanes and the common index, which may grow by a level meanwhile.
            Some(_) => {
                let nr_levels = 3 * (space.most_index_levels() + 3);
                Index::<P, Area<P, D>>::reserve_levels(&space.vm().nodes, nr_levels)?
            }
        };
        let area = self.vm().areas.alloc()?;
        Ok(Reserve { space, nodes: Some(nodes), area: Some(area), edit: None })
    }
}

impl<'a, P: System, D: Design<P>> Reserve<'a, P, D> {
    /// Hands the lock of edits to what was set aside. Where nothing was, because parts are given out only since then,
    /// it is let go of: what comes allocates, and takes the lock itself.
    #[inline(always)]
    pub(in crate::space) fn hand_over(reserve: &mut Option<Self>, edit: Option<Editing<'a, P, D>>) {
        if let Some(reserve) = reserve {
            reserve.edit = edit;
        }
    }

    /// Returns the lock of edits, if it is had.
    #[inline]
    pub(in crate::space) fn edit(&self) -> Option<&Editing<'a, P, D>> {
        if D::Lock::DIVIDES { self.edit.as_ref() } else { None }
    }

    /// Lets others edit; says whether they could not before.
    pub(in crate::space) fn end_edit(&mut self) -> bool {
        self.edit.take().is_some()
    }
}

impl<P: System, D: Design<P>> Drop for Reserve<'_, P, D> {
    fn drop(&mut self) {
        self.end_edit();
        if let Some(area) = self.area.take() {
            // SAFETY: never written, never published.
            unsafe { self.space.vm().areas.free(area) };
        }
    }
}
