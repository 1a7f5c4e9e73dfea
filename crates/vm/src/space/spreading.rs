//! How lanes come into a space.
//!
//! # Guarantee
//! A space whose mappings may be spread has lanes from its beginning, or, if that depends on who maps, from its second
//! user on: a program of one thread pays for none. A call never fails for want of lanes: a space that has no memory for
//! them keeps its mappings where Linux puts them.
//!
//! # Order
//! Everything is held, so no part is given out. What lies in lanes is added to their indexes, which nobody sees yet;
//! then CPUs are let into the sets, and all see the indexes; when faults have ended that may not, those areas leave the
//! common index.
//!
//! | race | why it is sound |
//! |---|---|
//! | a fault of the first user looks in the common index for an area that has left it, or for its neighbour | none does: those that began before are awaited |
//! | a fault finds an area in either index | it is the same one, and no change of it is announced |
//! | a CPU walks, and comes into the sets, meanwhile | `translations::lanes` |
//! | a departure, a copy or a truncation shoots down meanwhile | it asks all users, or the sets, which have all of them in `everywhere` |

use super::lane_rooms::LaneRooms;
use super::map_lock::MapLock;
use super::place::spread;
use super::{EVERYTHING, Space, credits};
use crate::design::Design;
use crate::index::{Index, IndexEntry, Spare};
use crate::limits::PlacementPolicy;
use crate::system::System;
use crate::types::Area;
use core::iter::{empty, once};
use faultless_phys::OutOfFrames;

impl<P: System, D: Design<P>> Space<P, D> {
    /// Makes the lanes of a new space whose mappings are spread.
    pub(super) fn spread_new(&self) -> Result<(), OutOfFrames> {
        if self.limits.placement == PlacementPolicy::Spread { self.make_lanes() } else { Ok(()) }
    }

    /// Makes the lanes of a space to which a second user comes, if its mappings may be spread and there is memory; the
    /// caller has everything.
    pub(super) fn spread_shared(&self) {
        if self.limits.placement == PlacementPolicy::Auto {
            _ = self.make_lanes();
        }
    }

    fn make_lanes(&self) -> Result<(), OutOfFrames> {
        let Some(spread) = spread::<P, D>(&self.limits) else { return Ok(()) };
        // As good as any number that nobody has.
        let number = self.vm().fresh_root();
        let Some(row) = self.lanes().prepare(self.memory(), &spread, number)? else { return Ok(()) };
        if !D::Lock::DIVIDES {
            self.lanes().publish(row);
            return Ok(());
        }
        let made = LaneRooms::make(&row, credits::nr_words::<P, D>());
        // SAFETY: it stays as long as the row, which is given back when this call fails or the space ends.
        let rooms = unsafe { made.as_ref() };
        let spare = self.fill(rooms).inspect_err(|_| {
            rooms.for_each_index(&rooms.all(), |index| self.empty_index(index));
            row.free(self.memory());
        })?;
        self.lanes().publish(row);
        self.charge_counted();
        self.lock.set_lanes(made);
        if let Some(spare) = spare {
            D::await_faults(self, EVERYTHING);
            self.take_out_of_common(rooms, spare);
        }
        Ok(())
    }

    /// Adds what lies in lanes to their indexes. Returns the nodes that it takes to take it out of the common one, if
    /// there is any.
    fn fill(&self, rooms: &LaneRooms<P>) -> Result<Option<Spare<'_, P>>, OutOfFrames> {
        let mut last_lane = None;
        let mut nr_lanes = 0;
        for area in self.index.overlapping(rooms.all()) {
            let bounds = area.start..area.end;
            rooms.note_added(&bounds);
            let index = rooms.home(&self.index, &bounds);
            if core::ptr::eq(index, &self.index) {
                continue;
            }
            let mut edit = index.unprepared(&self.vm().nodes, None);
            edit.prepare(bounds, once(area))?;
            edit.commit(|| false);
            let lane = rooms.bounds(area.start).start;
            nr_lanes += usize::from(last_lane.replace(lane) != Some(lane));
        }
        if nr_lanes == 0 {
            return Ok(None);
        }
        Index::<P, Area<P, D>>::reserve_nodes(&self.vm().nodes, nr_lanes * self.index.nr_nodes_for_edit()).map(Some)
    }

    fn take_out_of_common(&self, rooms: &LaneRooms<P>, spare: Spare<'_, P>) {
        let mut spare = Some(spare);
        rooms.for_each_index::<Area<P, D>>(&rooms.all(), |index| {
            // An area that crosses one of the lane's bounds begins before its first, or behind its last.
            let Some(bounds) = index.bounds() else { return };
            let nodes = spare.take().expect("an edit gives back what it did not need");
            let taken = self.index.prepare_from(bounds, empty::<IndexEntry<Area<P, D>>>(), nodes);
            let mut taken = taken.expect("as many as were set aside");
            D::update_index(self, || spare = taken.commit(|| self.is_looked_at()));
        });
    }
}
