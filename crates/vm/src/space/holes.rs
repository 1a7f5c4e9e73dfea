//! The page tables of holes.
//!
//! # Guarantee
//! A table goes with the last area that has a part of what it translates: the index says where holes are, and the
//! translations free what lies wholly in one (I4 of `table`).

use super::Space;
use crate::addr::{PAGE, PageRange, USER_END};
use crate::design::Design;
use crate::system::System;
use crate::translations::Emptied;
use crate::translations::gather::Gather;
use core::ops::Range;

impl<P: System, D: Design<P>> Space<P, D> {
    /// Empties the entries of a range that is not mapped any more, drops what they held, and takes away the tables that
    /// it leaves empty.
    pub(super) fn zap_and_prune(&self, range: PageRange) {
        let mut gather = Gather::new(&self.translations, range);
        self.translations.zap_into(range, Emptied::All, &mut gather, &mut || ());
        self.prune_into(range, &mut gather);
    }

    /// Takes away the tables of those parts of a range that no area has.
    #[cold]
    pub(super) fn prune_holes(&self, range: PageRange) {
        self.prune_into(range, &mut Gather::new(&self.translations, range));
    }

    /// As [`Space::prune_holes`], into a gather of the caller's.
    pub(super) fn prune_into(&self, range: PageRange, gather: &mut Gather<'_, P>) {
        let Range { start: mut position, end } = range.numbers();
        let mut below = self.index.last_starting_before(position).map_or(0, |entry| entry.end);
        while position < end {
            let next = self.index.first_ending_after(position);
            let hole = below..next.map_or(USER_END + PAGE, |entry| entry.start);
            let part = position..hole.end.min(end);
            self.translations.prune(part, hole, gather);
            below = next.map_or(end, |entry| entry.end);
            position = below;
        }
    }
}
