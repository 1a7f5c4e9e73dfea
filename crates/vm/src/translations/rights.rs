//! The rights of entries that are there.
//!
//! # Guarantee
//! When [`Translations::set_rights`] returns, the entries of the range have the rights, and no CPU has a translation
//! that is stronger. No accessed or dirty bit is lost.

use super::Translations;
use super::slot::Slot;
use crate::addr::PageRange;
use crate::entry::{Entry, EntryFlags};
use crate::system::System;
use faultless_platform::Ordering;

/// Which pages become writable at once when their range does; the others do at their next store, as on Linux.
#[derive(Clone, Copy)]
pub(crate) enum Upgrade {
    /// None: the range may not be written.
    Nothing,
    /// Private ones that no fork shares.
    Own,
    /// Shared ones whose file knows already that they are dirty.
    Dirty,
    /// All.
    All,
}

impl<P: System> Translations<P> {
    /// Gives the entries of a range the rights of `rights`, which are those of a page that may not be stored to, and
    /// lets stores reach the pages that `upgrade` names. The caller has the range locked for changing it.
    pub(crate) fn set_rights(&self, range: PageRange, rights: EntryFlags, upgrade: Upgrade) {
        self.weaken_alone(range, |slot, _| set_entry_rights(slot, rights, upgrade));
    }
}

/// Gives an entry the rights; says whether a translation may be stronger than the entry now is.
fn set_entry_rights<P: System>(slot: Slot<'_, P>, rights: EntryFlags, upgrade: Upgrade) -> bool {
    loop {
        // ORDER: Acquire pairs with walks that set accessed and dirty bits.
        let old = slot.load(Ordering::Acquire);
        if old.is_empty() || old.is_guard() {
            return false;
        }
        let new = entry_with_rights(old, rights, upgrade);
        // ORDER: AcqRel pairs with walks that set accessed and dirty bits: none is lost.
        if slot.exchange(old, new, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            return is_weaker(old, new);
        }
    }
}

fn entry_with_rights(old: Entry, rights: EntryFlags, upgrade: Upgrade) -> Entry {
    const RIGHTS: EntryFlags =
        EntryFlags::PRESENT.union(EntryFlags::WRITE).union(EntryFlags::NO_EXECUTE).union(EntryFlags::EXECUTE_ONLY);
    let may_write = match upgrade {
        Upgrade::Nothing => false,
        Upgrade::Own => old.has(EntryFlags::EXCLUSIVE),
        Upgrade::Dirty => old.has(EntryFlags::DIRTY) && !old.is_written_back(),
        Upgrade::All => true,
    };
    let mut flags = rights & RIGHTS;
    flags.set(EntryFlags::WRITE, may_write);
    // A page that may be stored to without a fault counts as stored to.
    let kept = if flags.contains(EntryFlags::WRITE) { old.without(EntryFlags::COLLECTED) } else { old };
    kept.without(RIGHTS).with(flags)
}

/// Says whether a translation of the old entry may be stronger than the new one.
pub(crate) fn is_weaker(old: Entry, new: Entry) -> bool {
    old.is_present()
        && (!new.is_present()
            || old.is_writable() && !new.is_writable()
            || !old.has(EntryFlags::EXECUTE_ONLY) && new.has(EntryFlags::EXECUTE_ONLY)
            || !old.has(EntryFlags::NO_EXECUTE) && new.has(EntryFlags::NO_EXECUTE))
}
