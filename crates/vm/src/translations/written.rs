//! Which pages were stored to since the last look: for migration, snapshots and incremental checkpoints.
//!
//! # Guarantee
//! A page that is stored to between two calls of [`Translations::collect_written`], and still mapped, is reported by
//! the second of them, whatever other CPUs and map calls do; a page that is stored to during a call is reported by that
//! call or the next. Pages that a map call made writable meanwhile may be reported without a store.
//!
//! # How
//! A page that is reported loses the right to be written, and is marked as looked at (Linux's soft-dirty and
//! write-protecting userfaultfd do the same). The next store faults, finds the page its own, gives the right back and
//! takes the mark away. Map calls that take the right leave the mark as it is, so that nothing is forgotten. A page
//! that was given up (`lazy_free`) is clean, whatever was stored before; so one that is private counts as stored to
//! until somebody looks.
//!
//! A page that was written back to where it comes from has another mark, the same bit as [`EntryFlags::EXCLUSIVE`],
//! which shared memory has no other use for: the right to write comes back with a fault alone.
//!
//! # Race: a store beside a look
//! ```text
//! looker                                      storer
//! locks the leaf table                        its TLB has the page writable and dirty
//! takes the right to write from the entry     stores by its TLB: the page is reported anyway, and still there
//! reports the page, shoots the range down     has forgotten it, or waits; the next store faults and gives the right back
//! returns: the caller copies the page         the next look reports it again
//! ```
//! The caller copies after the return, so that a store by a stale translation comes before the copy.

use crate::addr::{PageRange, VirtAddr};
use crate::entry::{Entry, EntryFlags};
use crate::system::System;
use crate::translations::Translations;
use crate::translations::slot::Slot;
use faultless_phys::{FrameSource, Kind};
use faultless_platform::Ordering;

impl<P: System> Translations<P> {
    /// Visits the pages of a range that were stored to since the last call, by the addresses of their first bytes,
    /// ascending.
    ///
    /// `visit` is called under the lock of a page table. The caller has the space's lock, shared at least.
    pub(crate) fn collect_written(&self, range: PageRange, visit: &mut dyn FnMut(VirtAddr)) {
        self.weaken(range, |slot, address| {
            let is_written = take_right(slot, |entry| self.is_written(entry));
            if is_written {
                visit(VirtAddr::new(address));
            }
            is_written
        });
    }

    /// Says whether a page was stored to since it came, or may have been.
    fn is_written(&self, entry: Entry) -> bool {
        entry.has(EntryFlags::DIRTY) || self.memory().page(entry.pfn()).kind() == Kind::Anonymous
    }

    /// Makes the next store to each page of a range of shared memory fault, whatever rights it gets until then.
    /// `collect_written` still reports earlier stores.
    ///
    /// The caller has the space's lock, shared at least.
    pub(crate) fn await_stores(&self, range: PageRange) {
        self.weaken(range, |slot, _| forbid_stores(slot));
    }
}

/// Marks an entry as written back, if it was stored to; says whether a translation may be stronger than it now is.
fn forbid_stores<P: System>(slot: Slot<'_, P>) -> bool {
    loop {
        // ORDER: Acquire pairs with walks that set accessed and dirty bits.
        let old = slot.load(Ordering::Acquire);
        let is_known = !old.is_writable() && (!old.has(EntryFlags::DIRTY) || old.is_written_back());
        if !old.holds_frame() || is_known {
            return false;
        }
        // ORDER: AcqRel pairs with walks that set accessed and dirty bits: none is lost.
        if slot.exchange(old, old.written_back(), Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            return old.is_writable();
        }
    }
}

/// Marks an entry whose page was stored to as looked at; says whether it was.
fn take_right<P: System>(slot: Slot<'_, P>, is_written: impl Fn(Entry) -> bool) -> bool {
    loop {
        // ORDER: Acquire pairs with walks that set accessed and dirty bits.
        let old = slot.load(Ordering::Acquire);
        if !old.holds_frame() || old.has(EntryFlags::COLLECTED) || !is_written(old) {
            return false;
        }
        let new = old.without(EntryFlags::WRITE).with(EntryFlags::COLLECTED);
        // ORDER: AcqRel pairs with walks that set accessed and dirty bits: none is lost.
        if slot.exchange(old, new, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            return true;
        }
    }
}
