//! The list of an instance's spaces, and how visitors go along it.
//!
//! # Guarantee
//! A space is listed from when it is complete until its last reference goes. A visitor holds a reference to the space that it
//! looks at and no lock, so it may sleep, make spaces and drop them. It meets, in the order of listing, every space that was
//! listed when it began and that is not dropped meanwhile, and all that are listed before it has come to the end.
//!
//! # Invariants
//! * I1 links are used under the list's lock. A space stays listed, and its links valid, while anybody has a reference.
//! * I2 a space is appended when nothing of it changes any more but under its own locks. A child is appended behind its parent, and
//!   before its parent's semaphore is given up.
//! * I3 a space leaves the list before anything of it is freed.
//!
//! # Race: fork beside somebody who must miss no copy (`object::removal`; `tests/native/spaces.rs`, `check schedules`)
//! ```text
//! fork                                        truncation of an object that the parent maps
//! parent's semaphore alone                    pages leave the object
//! copies areas and entries to the child       parent's semaphore: waits
//! appends the child
//! gives the parent's semaphore up             empties the parent's entries
//!                                             next in the list: ... the child; empties its entries
//! ```
//! If the truncation has the parent's semaphore first, the parent has nothing of the removed pages afterwards, and no fault brings
//! them back: fork copies nothing of them. Forbidden: the truncation has passed the place where the child is going to be, and the
//! child has a copy. The place is behind the parent (I2). Forbidden, too: a visitor walks the child's index while fork, which does
//! not hold the child's semaphore, edits it; fork need not hold it because nobody finds the child (I2).
//!
//! # Race: the last reference goes beside a visitor
//! ```text
//! last user                                   visitor
//! references 1 -> 0                           list's lock: the space has no reference: passes it over
//! list's lock: takes the space off            or: references 1 -> 2: the visitor may be the last user itself
//! takes translations away, frees
//! tables, areas, the space
//! ```
//! Forbidden: a visitor looks at a space whose tables or areas are freed (I3). A truncation need not wait for a space that it passes
//! over: nobody runs there any more, its entries hold references of their own to what they map, and the last user drops those.

use super::{Space, SpaceRef};
use crate::design::Design;
use crate::instance::Vm;
use core::ptr::NonNull;
use faultless_platform::mutants::{self, Mutant};
use faultless_platform::{Atomic, Ordering, Platform};
use faultless_sync::{SpinMutex, lock_class};

lock_class! {
    /// The lock of an instance's list of spaces.
    ListLock = "space_list"
}

/// A place that links to a space.
pub(super) type Link<P, D> = Option<NonNull<Space<P, D>>>;

/// The list.
pub(crate) struct Spaces<P: Platform, D: Design<P>> {
    ends: SpinMutex<P, Ends<P, D>, ListLock>,
}

struct Ends<P: Platform, D: Design<P>> {
    first: Link<P, D>,
    last: Link<P, D>,
}

impl<P: Platform, D: Design<P>> Spaces<P, D> {
    /// Returns an empty list.
    pub(crate) fn new() -> Self {
        Self { ends: SpinMutex::classed(Ends { first: None, last: None }) }
    }

    /// Appends a space (I2).
    pub(super) fn append(&self, space: &SpaceRef<'_, P, D>) {
        let space = NonNull::from(&**space);
        let mut ends = self.ends.lock();
        match ends.last.replace(space) {
            // SAFETY: I1.
            Some(last) => unsafe { last.as_ref().next_in_list.get().write(Some(space)) },
            None => ends.first = Some(space),
        }
    }

    /// Takes a space off the list, if it was ever listed (I3).
    pub(super) fn remove(&self, space: NonNull<Space<P, D>>) {
        let mut ends = self.ends.lock();
        let (mut before, mut place) = (None, &raw mut ends.first);
        // SAFETY: I1.
        unsafe {
            while let Some(listed) = *place {
                if listed == space {
                    *place = *space.as_ref().next_in_list.get();
                    if ends.last == Some(space) {
                        ends.last = before;
                    }
                    return;
                }
                (before, place) = (Some(listed), listed.as_ref().next_in_list.get());
            }
        }
    }

    /// Returns the first space behind `before`, or of all, that somebody has a reference to; kept alive by one more.
    fn next_behind(&self, before: Option<&Space<P, D>>) -> Link<P, D> {
        let ends = self.ends.lock();
        // SAFETY: I1; the caller has a reference to `before`.
        let mut next = before.map_or(ends.first, |before| unsafe { *before.next_in_list.get() });
        while let Some(space) = next {
            // SAFETY: listed spaces are alive (I3).
            let listed = unsafe { space.as_ref() };
            if listed.try_reference() {
                return next;
            }
            // SAFETY: I1.
            next = unsafe { *listed.next_in_list.get() };
        }
        None
    }
}

impl<P: Platform, D: Design<P>> Space<P, D> {
    /// Takes a reference unless the last one is gone.
    fn try_reference(&self) -> bool {
        let takes_any = mutants::is_on(Mutant::SpaceResurrected) || mutants::is_on(Mutant::SpaceUnlinkedLate);
        // Relaxed: the list's lock keeps the space in place, and orders what its users did before.
        let mut count = self.references.load(Ordering::Relaxed);
        while count != 0 || takes_any {
            match self.references.compare_exchange(count, count + 1, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => count = now,
            }
        }
        false
    }
}

impl<P: Platform, D: Design<P>> Vm<P, D> {
    /// Visits the spaces that exist, in the order in which they were made complete, those that are made meanwhile last. Each is
    /// kept alive while it is visited, and no lock is held: the visit may make spaces, drop them, and go along them itself.
    ///
    /// Called as the other calls are; see the crate.
    pub fn for_each_space(&self, mut visit: impl FnMut(&Space<P, D>)) {
        let mut before: Option<SpaceRef<'_, P, D>> = None;
        while let Some(space) = self.list().next_behind(before.as_deref()) {
            // SAFETY: `next_behind` took a reference, which is ours now.
            let space = unsafe { SpaceRef::from_raw(space) };
            visit(&space);
            before = Some(space);
        }
    }
}
