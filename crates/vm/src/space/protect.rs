//! mprotect, and other changes of an area's flags.

use super::change::{Join, NewArea};
use super::permit::WritePermit;
use super::ranges::Additions;
use super::{AreaAt, EVERYTHING, Space};
use crate::addr::{AddressRange, PageRange, VirtAddr, page_ceil};
use crate::area::{AreaFlags, AreaView};
use crate::asked::Protection;
use crate::content::Behind;
use crate::design::Design;
use crate::error::CallError;
use crate::object::{ObjectRef, WriteNotice};
use crate::system::System;
use crate::translations::rights::Upgrade;
use crate::types::Map;
use core::cell::Cell;
use faultless_platform::mutant;

/// Locked private ranges that became writable: Linux makes their pages at once, so that no store to them faults.
#[derive(Default)]
struct Opened {
    parts: [Cell<Option<PageRange>>; 8],
}

/// Says whether private memory becomes writable that is locked, but not to be made when it is touched.
fn are_opened(old: AreaFlags, new: AreaFlags) -> bool {
    const DECISIVE: AreaFlags = AreaFlags::WRITE.union(AreaFlags::SHARED).union(AreaFlags::LOCKS);
    old & DECISIVE == AreaFlags::LOCKED && new.contains(AreaFlags::WRITE)
}

impl Opened {
    fn note(&self, old: AreaFlags, new: AreaFlags, part: PageRange) {
        if !are_opened(old, new) {
            return;
        }
        match self.parts.iter().find(|known| known.get().is_none()) {
            Some(free) => free.set(Some(part)),
            // More than there is room for: the last one grows over what lies between, where only locked pages are made.
            None => {
                let last = &self.parts[self.parts.len() - 1];
                last.set(last.get().and_then(|last| PageRange::between(last.start(), part.end())));
            }
        }
    }

    fn for_each(&self, act: impl FnMut(PageRange)) {
        self.parts.iter().filter_map(Cell::get).for_each(act);
    }
}

/// Gives the flags that a part of an area shall have.
pub(super) type FlagsOf<'a, P> = dyn Fn(&AreaView<P>, PageRange) -> Result<AreaFlags, CallError> + 'a;

/// Where a change of rights begins.
#[derive(Clone, Copy)]
enum From {
    /// At the address given.
    Start,
    /// Where the stack around it begins.
    StackStart,
}

/// An area with one of these has promised its memory already, or never will.
const PROMISED: AreaFlags =
    AreaFlags::ACCOUNT.union(AreaFlags::WRITE).union(AreaFlags::SHARED).union(AreaFlags::NORESERVE);

impl<P: System, D: Design<P>> Space<P, D> {
    /// Gives the pages of a range these rights. Across a hole, the part before it is changed.
    pub fn mprotect(&self, range: AddressRange, rights: Protection) -> Result<(), CallError> {
        self.protect_from(range, rights, From::Start)
    }

    /// As [`Space::mprotect`], from the beginning of the stack that holds the range's start (`PROT_GROWSDOWN`).
    /// mprotect with `PROT_GROWSDOWN` calls it.
    pub fn mprotect_stack(&self, range: AddressRange, rights: Protection) -> Result<(), CallError> {
        self.protect_from(range, rights, From::StackStart)
    }

    fn protect_from(&self, range: AddressRange, rights: Protection, from: From) -> Result<(), CallError> {
        let AddressRange { start, len_bytes } = range;
        if !start.is_page_aligned() {
            return Err(CallError::Invalid("the address is not a multiple of the page size"));
        }
        if len_bytes == 0 {
            return Ok(());
        }
        let unmapped = CallError::Unmapped { address: start };
        // What lies behind user memory is a hole.
        let end = page_ceil(len_bytes).and_then(|len| start.checked_add(len)).ok_or(unmapped)?;
        let inside = PageRange::between(start, end.min(PageRange::USER.end())).ok_or(unmapped)?;
        match from {
            From::Start => D::Map::mprotect(self, inside, rights),
            From::StackStart => self.protect_found(inside, rights.into(), from),
        }?;
        if end > PageRange::USER.end() { Err(CallError::Unmapped { address: PageRange::USER.end() }) } else { Ok(()) }
    }

    /// Gives the areas of a range the rights.
    #[inline]
    pub(super) fn protect_areas(&self, range: PageRange, rights: AreaFlags) -> Result<(), CallError> {
        self.protect_found(range, rights, From::Start)
    }

    fn protect_found(&self, inside: PageRange, rights: AreaFlags, from: From) -> Result<(), CallError> {
        let opened = Opened::default();
        let lock = || match from {
            From::Start => self.write_part(inside, Additions::of_bytes(inside.len_bytes())).0,
            From::StackStart => self.write_settled(EVERYTHING),
        };
        let result = self.try_with(lock, |permit| {
            let range = match from {
                From::Start => inside,
                From::StackStart => permit.widened_to_stack(inside)?,
            };
            let result = permit.reflag(range, &|view, part| {
                let flags = self.protected(view, part, rights)?;
                opened.note(view.flags, flags, part);
                Ok(flags)
            });
            permit.cut_seams(&range.addresses());
            result
        });
        opened.for_each(|part| self.populate_what_is_locked(part));
        result
    }
}

impl<P: System, D: Design<P>> WritePermit<'_, P, D> {
    /// Widens a range down to the beginning of its stack.
    fn widened_to_stack(self, range: PageRange) -> Result<PageRange, CallError> {
        let unmapped = CallError::Unmapped { address: range.start() };
        let entry = self.first_ending_after(range.start()).filter(|entry| entry.start < range.end());
        let entry = entry.ok_or(unmapped)?;
        if !entry.area().flags().contains(AreaFlags::GROWSDOWN) {
            return Err(CallError::Invalid("the area does not grow downwards"));
        }
        PageRange::between(entry.start, range.end()).ok_or(unmapped)
    }
}

impl<P: System, D: Design<P>> Space<P, D> {
    /// Returns the flags of a part of an area with other rights, if it may have them.
    fn protected(&self, view: &AreaView<P>, part: PageRange, rights: AreaFlags) -> Result<AreaFlags, CallError> {
        let is_denied = |right, denial| rights.contains(right) && view.flags.contains(denial);
        if is_denied(AreaFlags::WRITE, AreaFlags::DENY_WRITE) || is_denied(AreaFlags::EXEC, AreaFlags::DENY_EXEC) {
            return Err(CallError::Denied);
        }
        if view.flags.contains(AreaFlags::SEALED) {
            return Err(CallError::Sealed { address: part.start() });
        }
        let flags = self.with_key(with_rights(view, rights & AreaFlags::RIGHTS), rights);
        if rights.contains(AreaFlags::WRITE) && flags != view.flags {
            let len = part.len_bytes();
            if self.check_expansion(view.flags, len, 0).is_ok() {
                self.check_expansion(flags, len, 0)?;
            }
            if !view.flags.intersects(PROMISED) {
                self.check_commit(len)?;
            }
        }
        Ok(flags)
    }

    /// Gives flags the execute-only key if requested and supported.
    pub(super) fn with_key(&self, mut flags: AreaFlags, asked: AreaFlags) -> AreaFlags {
        let is_alone = flags & AreaFlags::RIGHTS == AreaFlags::EXEC;
        let is_keyed = asked.contains(AreaFlags::EXECUTE_ONLY) && is_alone && self.limits.has_protection_keys;
        flags.set(AreaFlags::EXECUTE_ONLY, is_keyed);
        flags
    }
}

impl<'g, P: System, D: Design<P>> WritePermit<'g, P, D> {
    /// Changes the flags of the areas of a range; what is mapped behind a hole too, but then the answer is `Unmapped`.
    pub(super) fn reflag_all(self, range: PageRange, flags_of: &FlagsOf<'_, P>) -> Result<(), CallError> {
        let (mut position, mut hole) = (range.start(), None);
        while let Some(entry) = self.first_ending_after(position).filter(|entry| entry.start < range.end()) {
            if entry.start > position {
                hole.get_or_insert(position);
            }
            let end = entry.end.min(range.end());
            if let Some(part) = PageRange::between(entry.start.max(position), end) {
                self.reflag_part(&entry, (part, range), flags_of)?;
            }
            position = end;
            if position == range.end() {
                break;
            }
        }
        if position < range.end() {
            hole.get_or_insert(position);
        }
        hole.map_or(Ok(()), |address| Err(CallError::Unmapped { address }))
    }

    /// Changes the flags of every area of a range, up to the first hole.
    pub(super) fn reflag(self, range: PageRange, flags_of: &FlagsOf<'_, P>) -> Result<(), CallError> {
        let mut position = range.start();
        while position < range.end() {
            let unmapped = CallError::Unmapped { address: position };
            let entry = self.containing(position).ok_or(unmapped)?;
            let end = entry.end.min(range.end());
            let part = PageRange::between(position, end).ok_or(unmapped)?;
            self.reflag_part(&entry, (part, range), flags_of)?;
            position = end;
        }
        Ok(())
    }

    /// Changes the flags of a part of one area, which lies in the range that the call is about.
    fn reflag_part(
        self,
        entry: &AreaAt<'_, P, D>,
        (part, range): (PageRange, PageRange),
        flags_of: &FlagsOf<'_, P>,
    ) -> Result<(), CallError> {
        let area = entry.area();
        let old = area.view_pinned();
        let flags = flags_of(&old, part)?;
        if flags == old.flags {
            return Ok(());
        }
        let page_offset = old.page_offset_of(part.start());
        // Who holds what reaches a seam has joined the areas there, or opened it.
        let flags = flags - AreaFlags::SEAMS;
        let view = AreaView { start: part.start(), end: part.end(), flags, page_offset, ..old };
        let translations = || {
            if (old.flags ^ flags).intersects(AreaFlags::PROTECTION) {
                self.protect_entries(part, &view, area.object());
            }
        };
        // Whoever finds the new rights then comes behind all of the call, which relies on no root any more.
        let is_last = part.end() == range.end() && !self.meets_bound(&range.addresses());
        if (old.start, old.end) == (view.start, view.end) && !self.may_join_a_neighbour(&view) {
            self.reflag_in_place((area, part), flags, is_last, translations);
        } else {
            self.reflag_cut((area.behind().clone(), &view), is_last, translations)?;
        }
        // On Linux its pages are made now, before the next area has its turn, which may join one with this root or
        // none.
        if are_opened(old.flags, flags)
            && let Some(opened) = self.containing(part.start())
        {
            self.root_of(opened.area());
        }
        Ok(())
    }

    /// Changes the flags of a part that is cut out of its area, or joined with a neighbour: it becomes `view`. Behind
    /// the last change of a call, faults may give its areas roots again.
    #[inline(never)]
    fn reflag_cut(
        self,
        (behind, view): (Behind<P>, &AreaView<P>),
        is_last: bool,
        translations: impl FnOnce(),
    ) -> Result<(), CallError> {
        let Some(part) = PageRange::between(view.start, view.end) else { return Ok(()) };
        let mut change = self.unprepared(part, None);
        if !is_last {
            change.note_followed();
        }
        change.fill(Some(NewArea { view: *view, behind, join: Join::Allowed }))?;
        let nr_added = change.nr_added();
        if !self.may_add(nr_added) {
            drop(change);
            return Err(self.refuse_cuts(nr_added, part.start()));
        }
        mutant!(ProtectUnannounced => change.leave_unannounced());
        if is_last {
            change.note_last_of_call();
        }
        change.commit(translations);
        Ok(())
    }

    /// Says whether so many areas more may be made.
    fn may_add(self, nr_added: i64) -> bool {
        let (added, limit) = (nr_added.unsigned_abs(), self.limits.max_map_count);
        nr_added <= 0 || self.may_add_areas(added, limit)
    }

    /// Refuses a part that needs more areas than there may be. As Linux, which cuts one end after the other: one that
    /// would need two cuts gets the lower one, if there may be one area more.
    #[cold]
    fn refuse_cuts(self, nr_added: i64, lower: VirtAddr) -> CallError {
        let is_cut = if nr_added > 1 && self.may_add(1) { self.split_at(lower) } else { Ok(()) };
        is_cut.err().unwrap_or(CallError::TooManyAreas { limit: self.limits.max_map_count })
    }
}

impl<P: System, D: Design<P>> Space<P, D> {
    /// Gives the entries of a range the rights of its area, and takes weaker translations away.
    fn protect_entries(&self, range: PageRange, view: &AreaView<P>, object: Option<&ObjectRef<P>>) {
        let upgrade = match object.filter(|_| view.flags.contains(AreaFlags::SHARED)) {
            _ if !view.flags.contains(AreaFlags::WRITE) => Upgrade::Nothing,
            None => Upgrade::Own,
            Some(object) if object.write_notice() == WriteNotice::Fault => Upgrade::Dirty,
            Some(_) => Upgrade::All,
        };
        self.translations.set_rights(range, view.read_only_entry(), upgrade);
    }
}

/// Returns an area's flags with other rights.
fn with_rights<P: System>(view: &AreaView<P>, rights: AreaFlags) -> AreaFlags {
    let mut flags = (view.flags - AreaFlags::RIGHTS) | rights;
    if rights == view.flags & AreaFlags::RIGHTS {
        return flags;
    }
    if rights.contains(AreaFlags::WRITE) {
        flags.set(AreaFlags::ACCOUNT, !view.flags.intersects(PROMISED) || flags.contains(AreaFlags::ACCOUNT));
    } else if !view.has_file() && view.root == 0 {
        flags -= AreaFlags::ACCOUNT;
    }
    flags
}
