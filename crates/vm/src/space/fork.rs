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
use crate::addr::PageRange;
use crate::area::{Area, AreaFlags, AreaView};
use crate::content::Behind;
use crate::design::Design;
use crate::error::CallError;
use crate::system::System;
use crate::translations::copy::{Kept, NotCopied};
use crate::translations::lanes::Alone;
use crate::types::Map;
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
        self.note_change(&EVERYTHING, Alone::Everywhere);
        D::await_faults(&self, EVERYTHING);
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
        if copies_pages { Ok(self.translations.copy_entries(&child.translations, range, kept)?) } else { Ok(()) }
    }
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
