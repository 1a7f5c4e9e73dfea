//! Whether an operation will fail, by what the generator believes.
//!
//! # Guarantee
//! None; see `model`. A wrong guess costs an operation more or less of the kind that was wanted.

use std::ops::Range;

use crate::kernel::{Call, File, LOW_END, Op, PAGE, USER_END};

use super::model::{Model, NR_PAGES, Piece, is_droppable, page, pages, traits};

/// What memory that may be dropped can't be.
const UNDROPPABLE: u64 = (libc::MAP_LOCKED | libc::MAP_GROWSDOWN | libc::MAP_HUGETLB) as u64;

/// What an access does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    Load,
    Store,
    Fetch,
}

fn has(flags: u64, flag: i32) -> bool {
    flags & flag as u64 != 0
}

impl Model {
    /// Says whether an operation will fail or get a signal.
    pub(super) fn fails(&self, op: &Op) -> bool {
        let [first, second, third, fourth, fifth, _] = op.args;
        match op.call {
            Call::Load => !self.can(first, 1, Access::Load),
            Call::Store => !self.can(first, 1, Access::Store),
            Call::Fetch => !self.can(first, 1, Access::Fetch),
            Call::Fill => !self.can(first, (second * PAGE).max(1), Access::Store),
            Call::Output => !self.can(first, second.min(PAGE), Access::Load),
            Call::Input => !self.can(first, second.min(PAGE), Access::Store),
            Call::Mmap => self.map_fails(op),
            Call::Munmap => second == 0 || self.is_off(first, second) || self.any(first, second, traits::SEALED),
            Call::Mprotect => self.protect_fails(first, second, third),
            Call::Mremap => self.remap_fails(op),
            Call::Madvise => !self.all(first, second, |piece| self.takes_advice(piece, second, third)),
            Call::Mincore => third == 1 || !self.all(first, second, |_| true),
            Call::Msync => {
                !matches!(third, 0..=2 | 4 | 6)
                    || !self.all(first, second, |piece| third & 2 == 0 || !piece.is(traits::LOCKED))
            }
            Call::Mlock | Call::Mlock2 => {
                third > 1 || !self.can_lock(first, second, op.call == Call::Mlock2 && third == 1)
            }
            Call::Munlock => !self.all(first, second, |_| true),
            Call::Mlockall => {
                !matches!(first, 1..=3 | 5..=7) || !self.is_root && (first & 1 != 0 || self.bounds.locked == Some(0))
            }
            Call::RemapFilePages => third != 0 || !matches!(fourth, 0..8) || !self.is_reshaped(first, second, fifth),
            Call::Mseal => third != 0 || !self.all(first, second, |_| true),
            Call::Truncate => !matches!(File::from_argument(first), File::ReadWrite | File::WriteOnly | File::Empty),
            _ => false,
        }
    }

    /// Says whether every byte of a range can be accessed.
    fn can(&self, start: u64, len: u64, access: Access) -> bool {
        if len == 0 {
            return true;
        }
        let Some(last) = start.checked_add(len - 1).and_then(page) else { return false };
        page(start).is_some_and(|first| (first..=last).all(|page| self.can_page(page, access)))
    }

    fn can_page(&self, page: u64, access: Access) -> bool {
        let Some(piece) = self.at(page).or_else(|| self.stack_above(page)) else { return false };
        let is_in_file = page < piece.pages.start || self.is_in_file(piece, page);
        is_in_file && !piece.is(traits::GUARDED) && permits(piece, access)
    }

    /// Says whether a range is mapped whole, and each piece of it is so.
    fn all(&self, start: u64, len: u64, is_so: impl Fn(&Piece) -> bool) -> bool {
        let Some(range) = pages(start, len).filter(|_| !self.is_off(start, len)) else { return len == 0 };
        self.is_whole(range, is_so)
    }

    fn is_whole(&self, range: Range<u64>, is_so: impl Fn(&Piece) -> bool) -> bool {
        let mut position = range.start;
        for piece in self.overlapping(range.clone()) {
            if piece.pages.start > position || !is_so(piece) {
                return false;
            }
            position = piece.pages.end;
        }
        position >= range.end
    }

    fn any(&self, start: u64, len: u64, wanted: u32) -> bool {
        pages(start, len).is_some_and(|range| self.overlapping(range).any(|piece| piece.is(wanted)))
    }

    /// Says whether a range begins inside a page, or leaves the window.
    fn is_off(&self, start: u64, len: u64) -> bool {
        let end = page(start).and_then(|first| first.checked_add(len.div_ceil(PAGE)));
        !start.is_multiple_of(PAGE) || end.is_none_or(|end| end > NR_PAGES)
    }

    fn map_fails(&self, op: &Op) -> bool {
        let [start, len, prot, flags, file, offset] = op.args;
        let is_fixed = has(flags, libc::MAP_FIXED) || has(flags, libc::MAP_FIXED_NOREPLACE);
        let is_low = start < LOW_END && (!self.is_root || !start.is_multiple_of(PAGE) || len > LOW_END - start);
        let kind = flags & 15;
        len == 0
            || len > USER_END
            || !offset.is_multiple_of(PAGE)
            || is_fixed && is_low
            || is_fixed && start >= LOW_END && self.is_off(start, len)
            || has(flags, libc::MAP_FIXED_NOREPLACE) && self.any(start, len, 0)
            || has(flags, libc::MAP_FIXED) && self.any(start, len, traits::SEALED)
            || !is_fixed && self.room(len.div_ceil(PAGE)).is_none()
            || is_droppable(flags) && flags & UNDROPPABLE != 0
            || is_file_refused(has(flags, libc::MAP_ANONYMOUS), File::from_argument(file), kind, prot)
            || self.exceeds(len, prot, flags)
    }

    /// Says whether a mapping would break a limit.
    fn exceeds(&self, len: u64, prot: u64, flags: u64) -> bool {
        let added = len.div_ceil(PAGE);
        let [mapped, data, locked] = self.sums();
        let is_data = prot & 2 != 0 && flags & 1 == 0 && !has(flags, libc::MAP_GROWSDOWN);
        let over = |bound: Option<u64>, now: u64| bound.is_some_and(|bound| now + added > bound / PAGE);
        over(self.bounds.address_space, mapped)
            || is_data && over(self.bounds.data, data)
            || !self.is_root && has(flags, libc::MAP_LOCKED) && over(self.bounds.locked, locked)
    }

    fn protect_fails(&self, start: u64, len: u64, prot: u64) -> bool {
        let is_refused = |piece: &Piece| {
            piece.is(traits::SEALED)
                || prot & 2 != 0 && piece.is(traits::SHARED) && matches!(piece.file, File::ReadOnly | File::Reference)
        };
        let is_odd = prot & !(0xf | libc::PROT_GROWSDOWN as u64) != 0;
        let grows = |piece: &Piece| !has(prot, libc::PROT_GROWSDOWN) || piece.is(traits::GROWS);
        is_odd || !self.all(start, len, |piece| !is_refused(piece) && grows(piece))
    }

    fn takes_advice(&self, piece: &Piece, len: u64, advice: u64) -> bool {
        let is_own = piece.file == File::None && !piece.is(traits::SHARED);
        let is_locked = piece.is(traits::LOCKED);
        let is_kept = piece.is(traits::SEALED) && is_own && piece.prot & 2 == 0;
        let last = piece.pages.end - 1;
        let is_there = self.is_in_file(piece, last) && !piece.is(traits::GUARDED) && len < 1 << 40;
        match advice {
            17 | 19 => !piece.is(traits::DROPPABLE),
            0..=3 | 11..=13 | 16 | 103 => true,
            10 | 24 => !is_kept,
            4 | 102 => !is_locked && !is_kept,
            8 => is_own && !is_locked && !is_kept,
            9 => piece.is(traits::SHARED) && !matches!(piece.file, File::ReadOnly | File::Reference) && !is_locked,
            18 => is_own && !is_kept,
            20 | 21 => !is_locked,
            22 => piece.prot & 1 != 0 && is_there,
            23 => piece.prot & 2 != 0 && is_there,
            _ => false,
        }
    }

    fn can_lock(&self, start: u64, len: u64, is_on_fault: bool) -> bool {
        let start = start / PAGE * PAGE;
        let is_over =
            !self.is_root && self.bounds.locked.is_some_and(|bound| self.sums()[2] + len.div_ceil(PAGE) > bound / PAGE);
        let is_there = |piece: &Piece| {
            let is_present = !piece.is(traits::GUARDED) && self.is_in_file(piece, piece.pages.end - 1);
            is_on_fault || piece.prot != 0 && is_present
        };
        !is_over && self.all(start, len, is_there)
    }

    fn is_reshaped(&self, start: u64, len: u64, flags: u64) -> bool {
        let is_shared = |piece: &Piece| piece.is(traits::SHARED) && !piece.is(traits::SEALED);
        let inside = pages(start, len).is_some_and(|range| self.overlapping(range).count() == 1);
        flags & !(libc::MAP_NONBLOCK as u64) == 0 && len != 0 && inside && self.all(start, len, is_shared)
    }

    fn remap_fails(&self, op: &Op) -> bool {
        let [start, old_len, new_len, flags, target, _] = op.args;
        let (moves, is_fixed) = (has(flags, libc::MREMAP_MAYMOVE), has(flags, libc::MREMAP_FIXED));
        let keeps = has(flags, libc::MREMAP_DONTUNMAP);
        let Some(old) = pages(start, old_len.max(1)).filter(|_| !self.is_off(start, old_len)) else { return true };
        let nr_new = new_len.div_ceil(PAGE);
        let nr_pieces = self.overlapping(old.clone()).count();
        let is_odd = flags & !7 != 0 || (is_fixed || keeps) && !moves || nr_new == 0 || nr_new > NR_PAGES;
        let is_held = |piece: &Piece| piece.is(traits::SEALED) || old_len == 0 && !piece.is(traits::SHARED);
        let nr_old = old.end - old.start;
        is_odd
            || keeps && nr_new != nr_old
            || !self.is_whole(old.clone(), |piece| !is_held(piece))
            || nr_pieces != 1 && !(is_fixed && nr_new == nr_old) && (nr_new > nr_old || is_fixed || keeps)
            || is_fixed && self.is_target_bad(target, nr_new, &old)
            || !moves && nr_new > nr_old && !self.is_room_behind(&old, nr_new)
    }

    fn is_target_bad(&self, target: u64, nr_new: u64, old: &Range<u64>) -> bool {
        let Some(new) = page(target).map(|first| first..first + nr_new) else { return true };
        self.is_off(target, nr_new * PAGE)
            || new.start < old.end && old.start < new.end
            || self.any(target, nr_new * PAGE, traits::SEALED)
    }

    fn is_room_behind(&self, old: &Range<u64>, nr_new: u64) -> bool {
        let added = old.end..old.start + nr_new;
        added.end <= NR_PAGES && self.overlapping(added).next().is_none()
    }
}

fn permits(piece: &Piece, access: Access) -> bool {
    match access {
        // What may be written or executed may be read on this architecture.
        Access::Load => piece.prot != 0,
        Access::Store => piece.prot & 2 != 0,
        Access::Fetch => piece.prot & 4 != 0,
    }
}

fn is_file_refused(is_anonymous: bool, file: File, kind: u64, prot: u64) -> bool {
    match () {
        () if is_anonymous => !matches!(kind, 1 | 2 | 8),
        () if !matches!(kind, 1..=3) => true,
        () => match file {
            File::ReadWrite | File::Empty => false,
            File::ReadOnly | File::Reference => kind != 2 && prot & 2 != 0,
            File::None | File::WriteOnly | File::Pipe | File::Closed => true,
        },
    }
}
