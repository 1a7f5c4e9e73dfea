//! Edits of several indexes, where lanes have indexes of their own.
//!
//! # Guarantee
//! As of one edit: all memory is set aside before anything changes, and putting it in force can't fail. The caller has
//! everything. Lookups without a lock may miss an area meanwhile (N4 of `lane_rooms`).
//!
//! # Order
//! Lanes that get an area, the common index, the other lanes. So an area that leaves the common index for a lane is
//! added there first, and one that comes to cross a bound is taken out of its lane last.

use super::{Change, Piece};
use crate::area::Area;
use crate::design::Design;
use crate::index::{Index, Spare};
use crate::space::lane_rooms::LaneRooms;
use crate::space::map_lock::MapLock;
use crate::system::System;
use faultless_phys::OutOfFrames;

type AreaIndex<P, D> = Index<P, Area<P, D>>;

impl<'a, P: System, D: Design<P>> Change<'a, P, D> {
    /// Sets aside what the edits of all indexes need that the change is about.
    #[cold]
    pub(super) fn prepare_wide(
        &mut self,
        lanes: &'a LaneRooms<P>,
        spare: Option<Spare<'a, P>>,
    ) -> Result<(), OutOfFrames> {
        let space = self.space.space();
        debug_assert!(!space.lock.is_divided(), "N4: several indexes are edited with everything held");
        let nodes = &space.vm().nodes;
        let mut spare = match spare {
            Some(spare) => spare,
            None => AreaIndex::<P, D>::reserve_nodes(nodes, 0)?,
        };
        // Of the lanes between the first and the last nothing stays but what is added.
        let (first, last) = (self.span.0, self.span.1 - 1);
        let mut edited = [Some(&space.index), Some(lanes.home(&space.index, &(first..first))), None, None, None, None];
        edited[2] = Some(lanes.home(&space.index, &(last..last)));
        for (place, piece) in edited[3..].iter_mut().zip(self.pieces.iter().flatten()) {
            *place = Some(lanes.home(&space.index, &bounds(piece)));
            lanes.note_added(&bounds(piece));
        }
        let mut nr_nodes = 0;
        for (place, index) in edited.iter().enumerate() {
            let is_same = |other: &Option<&AreaIndex<P, D>>| match (other, index) {
                (Some(other), Some(index)) => core::ptr::eq(*other, *index),
                _ => true,
            };
            if !edited[..place].iter().any(is_same) {
                nr_nodes += index.map_or(0, AreaIndex::<P, D>::nr_nodes_for_edit);
            }
        }
        spare.fill_up_to(nr_nodes)?;
        self.wide = Some(spare);
        Ok(())
    }

    /// Edits all indexes that the change is about; returns nodes that were not needed.
    #[cold]
    pub(super) fn publish_wide(&mut self, nodes: Spare<'a, P>) -> Option<Spare<'a, P>> {
        let space = self.space.space();
        let mut spare = Some(nodes);
        D::update_index(space, || {
            let lanes = space.lane_rooms().expect("they were there when the change was prepared");
            let span = self.span.0..self.span.1;
            lanes.for_each_index(&span, |index| self.edit_one(lanes, index, Gets::AnArea, &mut spare));
            self.edit_one(lanes, &space.index, Gets::Whatever, &mut spare);
            lanes.for_each_index(&span, |index| self.edit_one(lanes, index, Gets::Nothing, &mut spare));
        });
        spare
    }

    /// Edits an index, if what it gets is as the caller says.
    fn edit_one(&self, lanes: &LaneRooms<P>, index: &'a AreaIndex<P, D>, gets: Gets, spare: &mut Option<Spare<'a, P>>) {
        let space = self.space.space();
        let is_its = |piece: &&Piece<P, D>| core::ptr::eq(lanes.home(&space.index, &bounds(piece)), index);
        let pieces = || self.pieces.iter().flatten().filter(is_its);
        let gets_one = pieces().next().is_some();
        if gets == Gets::AnArea && !gets_one || gets == Gets::Nothing && gets_one {
            return;
        }
        let span = self.span.0..self.span.1;
        if !gets_one && index.overlapping(span.clone()).next().is_none() {
            return;
        }
        let nodes = spare.take().expect("an edit gives back what it did not need");
        let mut edit = index.prepare_from(span, pieces().map(Piece::entry), nodes).expect("as many as were set aside");
        *spare = edit.commit(|| space.is_looked_at());
    }
}

/// What an index gets from an edit.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Gets {
    AnArea,
    Nothing,
    Whatever,
}

fn bounds<P: System, D: Design<P>>(piece: &Piece<P, D>) -> core::ops::Range<u64> {
    piece.view.start.get()..piece.view.end.get()
}
