//! fork: a second space with the same contents, copied when written.
//!
//! # Guarantee
//! The child sees each page as it was at some instant during the call, and keeps seeing that. While entries are copied
//! and write-protected, no fault, speculative or not, works on the parent's areas (bug fb49c455323f, Linux 6.4).
//!
//! # Cut
//! ```text
//! announce changes to all areas; copy entries, read-only in both; shoot the parent down; end the changes
//! ```
//! A store through an old translation lands before the shootdown, and so before the call returns.
//!
//! The child is not listed before it is complete: nobody finds it, and so its own locks are not taken. Its race with
//! a search for copies of a page is in `spaces`.
//!
//! As on Linux, entries of areas without private pages are not copied: the child's faults find them in the object.

use super::change::{Join, NewArea};
use super::permit::WritePermit;
use super::{AreaAt, EVERYTHING, Space, SpaceRef};
use crate::addr::{PAGE, PageRange};
use crate::area::{Area, AreaFlags, AreaView};
use crate::content::Behind;
use crate::design::Design;
use crate::entry::{Entry, EntryFlags};
use crate::error::CallError;
use crate::frames;
use crate::slot::Slot;
use crate::system::System;
use crate::table::{TableMap, Tables};
use crate::types::Map;
use core::ops::Range;
use faultless_phys::{FrameSource, Pfn};
use faultless_platform::mutant;
use faultless_platform::{Atomic, Ordering};

impl<'vm, P: System, D: Design<P>> SpaceRef<'vm, P, D> {
    /// Makes a copy of the space; nothing is left of it if memory runs out.
    pub fn fork(&self) -> Result<Self, CallError> {
        if D::Map::PROMISES {
            return Err(CallError::Invalid("memory without areas is not copied"));
        }
        self.vm().try_again(|| self.try_fork())
    }

    fn try_fork(&self) -> Result<Self, CallError> {
        let child = self.instance().create_unlisted(self.limits)?;
        mutant!(ChildListedEarly => child.enlist());
        self.with_write(EVERYTHING, |permit| {
            let copied = permit.fork_into(&child);
            // Before the parent's semaphore is given up (I2 of `spaces`).
            if mutant!(ChildListedEarly, copied.is_ok() => false) {
                child.enlist();
            }
            copied
        })?;
        Ok(child)
    }
}

impl<P: System, D: Design<P>> WritePermit<'_, P, D> {
    fn fork_into(self, child: &Space<P, D>) -> Result<(), CallError> {
        let announce = |act| {
            mutant!(ForkUnannounced, self.for_each_locked(act) => ());
        };
        announce(Area::begin_change);
        D::await_faults(&self);
        let result = self.copy_into(child);
        self.flush(PageRange::USER);
        announce(Area::end_change);
        result
    }

    fn copy_into(self, child: &Space<P, D>) -> Result<(), CallError> {
        // Relaxed: the parent's under its write lock; nobody else knows the child.
        child.heap_start.store(self.heap_start.load(Ordering::Relaxed), Ordering::Relaxed);
        child.heap_end.store(self.heap_end.load(Ordering::Relaxed), Ordering::Relaxed);
        child.static_data_bytes.store(self.static_data_bytes.load(Ordering::Relaxed), Ordering::Relaxed);
        for entry in self.overlapping(EVERYTHING) {
            self.copy_area(child, &entry)?;
        }
        Ok(())
    }
}

impl<P: System, D: Design<P>> WritePermit<'_, P, D> {
    fn for_each_locked(self, act: fn(&Area<P, D>)) {
        for entry in self.overlapping(EVERYTHING) {
            act(entry.area());
        }
    }

    fn copy_area(self, child: &Space<P, D>, entry: &AreaAt<'_, P, D>) -> Result<(), CallError> {
        let area = entry.area();
        let old = area.view();
        if old.flags.contains(AreaFlags::DONTFORK) {
            return Ok(());
        }
        if old.flags.contains(AreaFlags::ACCOUNT) {
            self.check_commit(old.end - old.start)?;
        }
        // Entries that the child could not make itself are private pages, whose area has a root, and guards, whose area
        // says so. As Linux, all entries are copied then.
        let has_own = old.root != 0 || old.flags.contains(AreaFlags::MAYBE_GUARD);
        let copies_pages = has_own && !old.flags.contains(AreaFlags::WIPEONFORK);
        let root = if copies_pages && old.root != 0 { self.vm().fresh_root() } else { 0 };
        // Locks on memory are not inherited.
        let mut flags = old.flags - AreaFlags::LOCKS - AreaFlags::INHERITED;
        flags.set(AreaFlags::INHERITED, root != 0);
        let behind = inherited(area.behind());
        let view = AreaView { root, flags, content: behind.content(), ..old };
        let range = PageRange::between(old.start, old.end).ok_or(CallError::BadSource { address: old.start })?;
        let new = NewArea { view, behind, join: Join::Never };
        // SAFETY: nobody else knows the child (I2 of `spaces`).
        let empty = unsafe { WritePermit::assume(child) };
        empty.prepare_change(range, Some(new))?.commit(|| ());
        let kept = if old.flags.contains(AreaFlags::SHARED) { Kept::Guards } else { Kept::All };
        if copies_pages { self.copy_entries(child, range, kept) } else { Ok(()) }
    }
}

impl<P: System, D: Design<P>> Space<P, D> {
    fn copy_entries(&self, child: &Self, range: PageRange, kept: Kept) -> Result<(), CallError> {
        let mut result = Ok(());
        self.tables.for_each_leaf(self.memory(), range.numbers(), &mut |table, part| {
            result = match child.tables.walk_or_grow(self.memory(), part.start) {
                Ok(leaf) => self.copy_leaf(child, table, leaf.table, part, kept),
                Err(cause) => Err(cause.into()),
            };
            result.is_ok()
        });
        result
    }

    fn copy_leaf(&self, child: &Self, from: Pfn, to: Pfn, part: Range<u64>, kept: Kept) -> Result<(), CallError> {
        let memory = self.memory();
        let (mut nr_pages, mut result) = (0, Ok(()));
        let _to = TableMap::<P>::new(memory, to);
        let _from = TableMap::<P>::new(memory, from);
        let _lock = memory.page(from).lock().guard();
        for address in part.step_by(PAGE as usize) {
            let slot = Tables::<P>::leaf_slot(memory, from, address);
            // Relaxed: guards come and go under the lock that we hold.
            let is_guard = slot.load(Ordering::Relaxed).is_guard();
            if kept == Kept::Guards && !is_guard {
                continue;
            }
            let entry = if is_guard { Entry::GUARD } else { share(slot) };
            if entry.is_empty() {
                continue;
            }
            if entry.holds_frame() {
                if frames::get(memory, entry.pfn()).is_err() {
                    result = Err(CallError::TooManyReferences);
                    break;
                }
                nr_pages += 1;
            }
            // ORDER: Release pairs with the Acquire in `table::load`.
            Tables::<P>::leaf_slot(memory, to, address).store(entry, Ordering::Release);
        }
        child.add_resident(nr_pages);
        result
    }
}

/// Returns what stands behind a child's area.
fn inherited<P: System>(behind: &Behind<P>) -> Behind<P> {
    match behind {
        Behind::Reference(_) if mutant!(ReferenceLostAtFork, false => true) => Behind::Zeros,
        _ => behind.clone(),
    }
}

/// Which entries of an area a child gets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kept {
    /// Private pages, shared from now on, and guards.
    All,
    /// Guards; what is shared anyway its faults will find.
    Guards,
}

/// Takes the right to write from an entry; returns what the child gets.
fn share<P: System>(slot: Slot<'_, P>) -> Entry {
    loop {
        // ORDER: Acquire pairs with walks that set accessed and dirty bits.
        let old = slot.load(Ordering::Acquire);
        let new = old.without(EntryFlags::WRITE | EntryFlags::EXCLUSIVE);
        // ORDER: AcqRel pairs with walks that set accessed and dirty bits: none is lost.
        if old == new || slot.exchange(old, new, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            return new;
        }
    }
}
