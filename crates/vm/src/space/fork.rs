//! fork: a second space with the same contents, copied when written.
//!
//! # Guarantee
//! The child sees each page as it was at some instant during the call, and keeps seeing that. While entries are copied
//! and write-protected, no fault, speculative or not, works on the parent's areas (bug fb49c455323f, Linux 6.4).
//!
//! # Cut
//! ```text
//! announce changes to all areas; copy entries, read-only in both, or share their tables; shoot the parent down;
//! end the changes
//! ```
//! A store through an old translation lands before the shootdown, and so before the call returns.
//!
//! The child is not listed before it is complete: nobody finds it, and so its own locks are not taken. Its race with
//! a search for copies of a page is in `spaces`.
//!
//! Under designs that share tables ([`Design::SHARES_TABLES`]) the child gets the parent's own leaf tables, where all
//! that they hold is the child's as well and areas span enough of them (`translations::sharing`).
//!
//! As on Linux, entries of areas without private pages are not copied: the child's faults find them in the object.

use super::change::{Join, NewArea};
use super::permit::WritePermit;
use super::{AreaAt, EVERYTHING, Space, SpaceRef};
use crate::addr::{PageRange, VirtAddr};
use crate::area::{Area, AreaFlags, AreaView};
use crate::content::Behind;
use crate::design::Design;
use crate::error::CallError;
use crate::format::TableFormat;
use crate::system::System;
use crate::translations::copy::{Kept, NotCopied};
use crate::translations::lanes::Alone;
use crate::translations::sharer::{Sharing, Spares};
use crate::translations::table::Tables;
use crate::types::Map;
use core::ops::Range;
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
        let mut spares = Spares::new(self.memory());
        self.put_aside(&mut spares)?;
        let since_ns = P::now();
        if D::SHARES_TABLES {
            self.translations.begin_fork();
        }
        announce(Area::begin_change);
        self.note_change(&EVERYTHING, Alone::Everywhere);
        D::await_faults(&self, EVERYTHING);
        let result = self.copy_into(child, &mut spares);
        if spares.are_used() {
            self.translations.forbid_stores_to_shared(&child.translations);
        }
        self.flush(PageRange::USER);
        announce(Area::end_change);
        if D::SHARES_TABLES {
            self.translations.end_fork(spares.are_used().then_some(&child.translations), since_ns);
        }
        result
    }

    /// Puts frames aside for the tables that the child will share. May be too few, because faults go on: what is
    /// missing is copied.
    fn put_aside(self, spares: &mut Spares<'_, P>) -> Result<(), CallError> {
        // Relaxed: set under the lock that we hold.
        if !D::SHARES_TABLES || !P::Format::SHARES_TABLES || self.has_pinned.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut end = VirtAddr::new(0);
        for entry in self.overlapping(EVERYTHING) {
            // What is left of the area beyond the tables that were looked at.
            let Some(range) = PageRange::between(entry.start.max(end), entry.end) else { continue };
            let nr_tables = self.translations.nr_tables(range, &mut |span| self.is_shared_by_fork(&entry, span));
            for _ in 0..nr_tables {
                spares.add()?;
            }
            end = Tables::<P>::leaf_span(entry.end.get() - 1).end.into();
        }
        Ok(())
    }

    /// Says whether a child gets the leaf table that spans these addresses, of which the area has some: if it gets all
    /// that is there, and areas span enough of it.
    fn is_shared_by_fork(self, area: &AreaAt<'_, P, D>, span: &Range<u64>) -> bool {
        if area.start.get() <= span.start && span.end <= area.end.get() {
            return copied(&area.area().view()) == Some(Kept::All)
                && span.end - span.start >= self.limits.shared_table_bytes;
        }
        let mut nr_bytes = 0;
        for entry in self.overlapping(span.start.into()..span.end.into()) {
            if copied(&entry.area().view()) != Some(Kept::All) {
                return false;
            }
            nr_bytes += entry.end.get().min(span.end) - entry.start.get().max(span.start);
        }
        nr_bytes >= self.limits.shared_table_bytes
    }

    fn copy_into(self, child: &Space<P, D>, spares: &mut Spares<'_, P>) -> Result<(), CallError> {
        // Relaxed: the parent's under its write lock; nobody else knows the child.
        child.heap_start.store(self.heap_start.load(Ordering::Relaxed), Ordering::Relaxed);
        child.heap_end.store(self.heap_end.load(Ordering::Relaxed), Ordering::Relaxed);
        child.static_data_bytes.store(self.static_data_bytes.load(Ordering::Relaxed), Ordering::Relaxed);
        for entry in self.overlapping(EVERYTHING) {
            self.copy_area(child, &entry, spares)?;
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

    fn copy_area(
        self,
        child: &Space<P, D>,
        entry: &AreaAt<'_, P, D>,
        spares: &mut Spares<'_, P>,
    ) -> Result<(), CallError> {
        let area = entry.area();
        let old = area.view();
        if old.flags.contains(AreaFlags::DONTFORK) {
            return Ok(());
        }
        if old.flags.contains(AreaFlags::ACCOUNT) {
            self.check_commit(old.end - old.start)?;
        }
        let kept = copied(&old);
        let root = if kept.is_some() && old.root != 0 { self.vm().fresh_root() } else { 0 };
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
        match kept {
            Some(kept) => {
                let sharing = Sharing { spares, is_shared: &|span| self.is_shared_by_fork(entry, span) };
                Ok(self.translations.copy_entries(&child.translations, range, kept, sharing)?)
            }
            None => Ok(()),
        }
    }
}

/// Says which entries of an area the child gets, if any.
fn copied<P: System>(area: &AreaView<P>) -> Option<Kept> {
    // Entries that the child could not make itself are private pages, whose area has a root, and guards, whose area
    // says so. As Linux, all entries are copied then.
    let has_own = area.root != 0 || area.flags.contains(AreaFlags::MAYBE_GUARD);
    if !has_own || area.flags.intersects(AreaFlags::WIPEONFORK | AreaFlags::DONTFORK) {
        return None;
    }
    Some(if area.flags.contains(AreaFlags::SHARED) { Kept::Guards } else { Kept::All })
}

impl From<NotCopied> for CallError {
    fn from(why: NotCopied) -> Self {
        match why {
            NotCopied::OutOfFrames(cause) => cause.into(),
            NotCopied::Saturated => Self::TooManyReferences,
        }
    }
}

/// Returns what stands behind a child's area.
fn inherited<P: System>(behind: &Behind<P>) -> Behind<P> {
    match behind {
        Behind::Reference(_) if mutant!(ReferenceLostAtFork, false => true) => Behind::Zeros,
        _ => behind.clone(),
    }
}
