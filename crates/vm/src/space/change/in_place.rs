//! Flags of a whole area changed in place.
//!
//! # Guarantee
//! As a [`Change`](super::Change) that puts a new area in the place of the old one, without the new area and without an
//! edit of the index. It can't fail.
//!
//! # Why readers without the lock may look on
//! The area keeps its bounds, what stands behind it and its root; its flags are one word. A change of flags is
//! announced for all of the area, and faults that began before have ended, or find out by the area's state, as with cut
//! areas: no fault decides by flags that change meanwhile. The one lookup that reads a flag before it looks at the
//! state ([`Area::lacks_root`]) reads `SHARED`, which never changes.

use super::sizes::{Counted, Sizes};
use super::{AnnouncedTo, announced_range};
use crate::addr::PageRange;
use crate::area::{Area, AreaFlags, AreaView};
use crate::design::Design;
use crate::space::AreaAt;
use crate::space::map_lock::MapLock;
use crate::space::permit::WritePermit;
use crate::system::System;
use crate::translations::lanes::Alone;
use faultless_platform::mutant;

impl<P: System, D: Design<P>> WritePermit<'_, P, D> {
    /// Says whether an area that becomes `view` might be joined with a neighbour, as far as flags say: if so, a change
    /// finds out.
    pub(in crate::space) fn may_join_a_neighbour(self, view: &AreaView<P>) -> bool {
        let Some(range) = PageRange::between(view.start, view.end) else { return false };
        let [below, above] = self.neighbours(range, self.around(range, None).as_ref());
        let below = below.filter(|below| below.end == view.start);
        let above = above.filter(|above| above.start == view.end);
        let differs = AreaFlags::all() - AreaFlags::IGNORED_BY_JOINS;
        let has_its_flags = |neighbour: AreaAt<'_, P, D>| !(neighbour.area().flags() ^ view.flags).intersects(differs);
        below.is_some_and(has_its_flags) || above.is_some_and(has_its_flags)
    }

    /// Gives an area that `range` is all of other flags, and `translations` adapts the page tables, while faults keep
    /// out of it. No neighbour may be joined with what it becomes. Behind the last change of a call, faults may give it
    /// a root again.
    pub(in crate::space) fn reflag_in_place(
        self,
        (area, range): (&Area<P, D>, PageRange),
        flags: AreaFlags,
        is_last: bool,
        translations: impl FnOnce(),
    ) {
        let announced = mutant!(ProtectUnannounced, AnnouncedTo::All => AnnouncedTo::Nobody);
        if announced.reaches(false) {
            area.begin_change_within(announced_range(range));
            // With the lock of edits, as others note theirs.
            let edit = if self.has_company() { self.lock.edit(range.start()) } else { None };
            let alone = if edit.is_some() { Alone::InALane } else { Alone::Everywhere };
            self.note_change(&announced_range(range), alone);
        }
        D::await_faults(&self, range.addresses());
        let counted = Counted { before: sizes_of(area.flags(), range), after: sizes_of(flags, range) };
        area.set_flags(flags);
        self.note_joins(&range.addresses());
        if counted.before != counted.after {
            let _edit = if self.has_company() { self.lock.edit(range.start()) } else { None };
            self.count(&counted);
        }
        translations();
        if announced.reaches(false) {
            if is_last {
                area.unpin_root();
            }
            area.end_change();
        }
    }
}

fn sizes_of(flags: AreaFlags, range: PageRange) -> Sizes {
    let mut sizes = Sizes::default();
    sizes.add(flags, range.len_bytes());
    sizes
}
