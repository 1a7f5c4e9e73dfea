//! mprotect, and other changes of an area's flags.

use super::Space;
use super::change::{Join, NewArea};
use crate::addr::{PAGE, PageRange, is_page_aligned};
use crate::area::{Area, AreaFlags, AreaView};
use crate::design::Design;
use crate::entry::{Entry, EntryFlags};
use crate::error::CallError;
use crate::gather::Gather;
use crate::index;
use crate::object::{ObjectRef, WriteNotice};
use crate::table::Tables;
use faultless_platform::{Atomic, Ordering, Platform};

impl<P: Platform, D: Design<P>> Space<P, D> {
    /// Gives the pages of a range the rights among `rights`. Across a hole, the part before it is changed.
    pub fn mprotect(&self, start: u64, len_bytes: u64, rights: AreaFlags) -> Result<(), CallError> {
        if !is_page_aligned(start) {
            return Err(CallError::Invalid("the address is not a multiple of the page size"));
        }
        if len_bytes == 0 {
            return Ok(());
        }
        let range = PageRange::new(start, len_bytes).ok_or(CallError::Unmapped { address: start })?;
        let rights = rights & AreaFlags::RIGHTS;
        let flags_of = |view: &AreaView<P>| {
            if rights.contains(AreaFlags::WRITE) && view.flags.contains(AreaFlags::DENY_WRITE) {
                return Err(CallError::Denied);
            }
            Ok(with_rights(view, rights))
        };
        self.with_write(|| self.reflag(range, &flags_of))
    }

    /// Changes the flags of the areas of a range; what is mapped behind a hole too, but then the answer is `Unmapped`.
    pub(super) fn reflag_all(
        &self,
        range: PageRange,
        flags_of: &dyn Fn(&AreaView<P>) -> Result<AreaFlags, CallError>,
    ) -> Result<(), CallError> {
        let (mut position, mut hole) = (range.start(), None);
        while let Some(entry) = self.index.first_ending_after(position).filter(|entry| entry.start < range.end()) {
            if entry.start > position {
                hole.get_or_insert(position);
            }
            let end = entry.end.min(range.end());
            if let Some(part) = PageRange::between(entry.start.max(position), end) {
                self.reflag_part(&entry, part, flags_of)?;
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

    /// Changes the flags of every area of a range, up to the first hole. The caller holds the write lock.
    pub(super) fn reflag(
        &self,
        range: PageRange,
        flags_of: &dyn Fn(&AreaView<P>) -> Result<AreaFlags, CallError>,
    ) -> Result<(), CallError> {
        let mut position = range.start();
        while position < range.end() {
            let unmapped = CallError::Unmapped { address: position };
            let entry = self.index.containing(position).ok_or(unmapped)?;
            let end = entry.end.min(range.end());
            let part = PageRange::between(position, end).ok_or(unmapped)?;
            self.reflag_part(&entry, part, flags_of)?;
            position = end;
        }
        Ok(())
    }

    /// Changes the flags of a part of one area.
    fn reflag_part(
        &self,
        entry: &index::Entry<Area<P, D>>,
        part: PageRange,
        flags_of: &dyn Fn(&AreaView<P>) -> Result<AreaFlags, CallError>,
    ) -> Result<(), CallError> {
        // SAFETY: the write lock keeps the area.
        let area = unsafe { entry.area.as_ref() };
        let old = area.view();
        let flags = flags_of(&old)?;
        if flags == old.flags {
            return Ok(());
        }
        let page_offset = old.page_offset_of(part.start());
        let view = AreaView { start: part.start(), end: part.end(), flags, page_offset, ..old };
        let change =
            self.prepare_change(part, Some(NewArea { view, object: area.object().cloned(), join: Join::Allowed }))?;
        change.commit(|| {
            if (old.flags ^ flags).intersects(AreaFlags::RIGHTS) {
                self.protect_entries(part, &view, area.object());
            }
        });
        Ok(())
    }

    /// Gives the entries of a range the rights of its area, and takes weaker translations away.
    fn protect_entries(&self, range: PageRange, view: &AreaView<P>, object: Option<&ObjectRef<P>>) {
        let memory = self.memory();
        let upgrade = match object.filter(|_| view.flags.contains(AreaFlags::SHARED)) {
            None => Upgrade::Own,
            Some(object) if object.write_notice() == WriteNotice::Fault => Upgrade::Dirty,
            Some(_) => Upgrade::All,
        };
        let mut gather = Gather::new(self, range);
        self.tables.for_each_leaf(memory, range.addresses(), &mut |table, part| {
            let _lock = memory.page(table).lock().guard();
            for address in part.step_by(PAGE as usize) {
                if set_rights::<P>(Tables::leaf_slot(memory, table, address), view, upgrade) {
                    gather.note_weakened();
                }
            }
            true
        });
    }
}

/// Which pages of a range that becomes writable do so at once; the others at the next store, as on Linux.
#[derive(Clone, Copy)]
enum Upgrade {
    /// Private ones that no fork shares.
    Own,
    /// Shared ones whose file knows already that they are dirty.
    Dirty,
    /// All.
    All,
}

/// Returns an area's flags with other rights.
fn with_rights<P: Platform>(view: &AreaView<P>, rights: AreaFlags) -> AreaFlags {
    let mut flags = (view.flags - AreaFlags::RIGHTS) | rights;
    if rights.contains(AreaFlags::WRITE) {
        let is_counted = !flags.intersects(AreaFlags::SHARED | AreaFlags::NORESERVE);
        flags.set(AreaFlags::ACCOUNT, is_counted || flags.contains(AreaFlags::ACCOUNT));
    } else if view.object.is_none() && view.root == 0 {
        flags -= AreaFlags::ACCOUNT;
    }
    flags
}

/// Gives an entry its area's rights; says whether a translation may be stronger than the entry now is.
fn set_rights<P: Platform>(slot: &P::AtomicU64, view: &AreaView<P>, upgrade: Upgrade) -> bool {
    loop {
        // ORDER: Acquire pairs with walks that set accessed and dirty bits.
        let old = Entry::from_bits(slot.load(Ordering::Acquire));
        if old.is_empty() {
            return false;
        }
        let new = entry_with_rights(old, view, upgrade);
        // ORDER: AcqRel pairs with walks that set accessed and dirty bits: none is lost.
        if slot.compare_exchange(old.bits(), new.bits(), Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            return is_weaker(old, new);
        }
    }
}

fn entry_with_rights<P: Platform>(old: Entry, view: &AreaView<P>, upgrade: Upgrade) -> Entry {
    const RIGHTS: EntryFlags = EntryFlags::PRESENT.union(EntryFlags::WRITE).union(EntryFlags::NO_EXECUTE);
    let may_write = match upgrade {
        Upgrade::Own => old.has(EntryFlags::EXCLUSIVE),
        Upgrade::Dirty => old.has(EntryFlags::DIRTY),
        Upgrade::All => true,
    };
    let mut flags = view.read_only_entry() & RIGHTS;
    flags.set(EntryFlags::WRITE, view.flags.contains(AreaFlags::WRITE) && may_write);
    old.without(RIGHTS).with(flags)
}

fn is_weaker(old: Entry, new: Entry) -> bool {
    old.is_present()
        && (!new.is_present()
            || old.is_writable() && !new.is_writable()
            || !old.has(EntryFlags::NO_EXECUTE) && new.has(EntryFlags::NO_EXECUTE))
}
