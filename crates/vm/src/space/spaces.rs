//! The lists of an instance's spaces, and how visitors go along them.
//!
//! # Guarantee
//! A space is listed from when it is complete until its last reference goes. A visitor holds a reference to the space
//! that it looks at and no lock, so it may sleep, make spaces and drop them. It meets every space that was listed when
//! it began and that is not dropped meanwhile, and all that are listed before it begins its last round; those of one
//! list in the order of listing.
//!
//! # Lists
//! CPUs whose numbers are next to each other share a list; a space is on that of the CPU that made it. So processes
//! that fork on their own do not meet. A visitor goes round the lists until it has met nobody new in a whole round; of
//! one list, once.
//!
//! # Invariants
//! * I1 links are used under the list's lock. A space stays listed, and its links valid, while anybody has a reference.
//! * I2 a space is appended when nothing of it changes any more but under its own locks. A child is appended before its
//!   parent's semaphore is given up.
//! * I3 a space leaves the list before anything of it is freed.
//!
//! # Race: fork beside somebody who must miss no copy (`object::removal`; `tests/native/spaces.rs`, `check schedules`)
//! ```text
//! fork                                        truncation of an object that the parent maps
//! parent's semaphore alone                    pages leave the object
//! copies areas and entries to the child       parent's semaphore: waits
//! appends the child
//! gives the parent's semaphore up             empties the parent's entries
//!                                             a round that meets nobody new: looks at all lists after that;
//!                                             ... so it meets the child before; empties its entries
//! ```
//! If the truncation has the parent's semaphore first, the parent has nothing of the removed pages afterwards, and no
//! fault brings them back: fork copies nothing of them. Forbidden: the truncation has passed the place where the child
//! is going to be, and the child has a copy. The child is listed when the visitor gets the parent's semaphore (I2), and
//! the visitor looks at every list after its last visit; of one list, the place is behind the parent. Forbidden, too: a
//! visitor walks the child's index while fork, which does not hold the child's semaphore, edits it; fork need not hold
//! it because nobody finds the child (I2).
//!
//! # Race: the last reference goes beside a visitor
//! ```text
//! last user                                   visitor
//! references 1 -> 0                           list's lock: the space has no reference: passes it over
//! list's lock: takes the space off            or: references 1 -> 2: the visitor may be the last user itself
//! takes translations away, frees
//! tables, areas, the space
//! ```
//! Forbidden: a visitor looks at a space whose tables or areas are freed (I3). A truncation need not wait for a space
//! that it passes over: nobody runs there any more, its entries hold references of their own to what they map, and the
//! last user drops those.

use super::{Space, SpaceRef};
use crate::design::Design;
use crate::instance::Vm;
use crate::system::System;
use alloc::boxed::Box;
use core::ptr::NonNull;
use faultless_platform::mutants::{self, Mutant};
use faultless_platform::{Atomic, CachePadded, GROUP_BITS, MAX_CPUS, Ordering};
use faultless_sync::{SpinMutex, lock_class};

lock_class! {
    /// The locks of an instance's lists of spaces.
    ListLock = "space_list"
}

/// The most lists that there may be.
const LISTS_MAX: usize = MAX_CPUS.div_ceil(1 << GROUP_BITS);

/// A place that links to a space.
type Link<P, D> = Option<NonNull<Space<P, D>>>;

/// Where a space is listed; all but `list` is used under that list's lock.
pub(super) struct Listing<P: System, D: Design<P>> {
    before: Link<P, D>,
    behind: Link<P, D>,
    /// Counts what was ever appended to the list; 0 of a space that is not listed.
    number: u64,
    list: usize,
}

impl<P: System, D: Design<P>> Listing<P, D> {
    /// Returns that of a space that is not listed.
    pub(super) const fn none() -> Self {
        Self { before: None, behind: None, number: 0, list: 0 }
    }
}

/// The spaces that were made on a group of CPUs.
type GroupList<P, D> = CachePadded<SpinMutex<P, List<P, D>, ListLock>>;

/// The lists.
pub(crate) struct Spaces<P: System, D: Design<P>> {
    lists: Box<[GroupList<P, D>]>,
}

struct List<P: System, D: Design<P>> {
    first: Link<P, D>,
    last: Link<P, D>,
    nr_appended: u64,
}

/// How far a visitor has come.
struct Tour {
    list: usize,
    /// Of each list, the number of the last space that it has met or passed over.
    met: [u64; LISTS_MAX],
    has_met_new: bool,
}

impl<P: System, D: Design<P>> Spaces<P, D> {
    /// Returns empty lists for a machine of `nr_cpus` CPUs.
    pub(crate) fn new(nr_cpus: usize) -> Self {
        let list = |_| CachePadded::new(SpinMutex::classed(List { first: None, last: None, nr_appended: 0 }));
        Self { lists: (0..nr_cpus.div_ceil(1 << GROUP_BITS)).map(list).collect() }
    }

    /// Appends a space (I2).
    pub(super) fn append(&self, space: &SpaceRef<'_, P, D>) {
        let place = P::cpu() >> GROUP_BITS;
        let mut list = self.lists[place].lock();
        let before = list.last.replace(NonNull::from(&**space));
        list.nr_appended += 1;
        // SAFETY: I1; of the space, nobody else knows.
        unsafe {
            space.listing.get().write(Listing { before, behind: None, number: list.nr_appended, list: place });
            *list.behind(before) = list.last;
        }
    }

    /// Takes a space off its list, if it was ever listed (I3).
    pub(super) fn remove(&self, space: NonNull<Space<P, D>>) {
        // SAFETY: the space's last user is the caller, and its list does not change.
        let (place, number) = unsafe { ((*space.as_ref().listing.get()).list, (*space.as_ref().listing.get()).number) };
        if number == 0 {
            return;
        }
        let mut list = self.lists[place].lock();
        // SAFETY: I1.
        unsafe {
            let Listing { before, behind, .. } = *space.as_ref().listing.get();
            *list.behind(before) = behind;
            match behind {
                Some(behind) => (*behind.as_ref().listing.get()).before = before,
                None => list.last = before,
            }
        }
    }

    /// Returns the next space of a tour that somebody has a reference to, kept alive by one more; `before` is the last
    /// one.
    fn next_of(&self, tour: &mut Tour, before: Option<&Space<P, D>>) -> Link<P, D> {
        let mut before = before.map(NonNull::from);
        loop {
            let list = self.lists[tour.list].lock();
            let met = &mut tour.met[tour.list];
            // SAFETY: I1; the caller has a reference to `before`, which is of this list.
            let mut next = unsafe { before.take().map_or_else(|| list.first_behind(*met), |before| behind(before)) };
            while let Some(space) = next {
                // SAFETY: listed spaces are alive (I3), and I1.
                unsafe {
                    *met = (*space.as_ref().listing.get()).number;
                    if space.as_ref().try_reference() {
                        tour.has_met_new = true;
                        return next;
                    }
                    next = behind(space);
                }
            }
            drop(list);
            if !tour.go_on(self.lists.len()) {
                return None;
            }
        }
    }
}

/// Returns the space behind another one.
///
/// # Safety
/// The space is listed, and the caller holds its list's lock.
unsafe fn behind<P: System, D: Design<P>>(space: NonNull<Space<P, D>>) -> Link<P, D> {
    // SAFETY: the caller's promise.
    unsafe { (*space.as_ref().listing.get()).behind }
}

impl<P: System, D: Design<P>> List<P, D> {
    /// Returns the place that links to what stands behind a space, or to the first.
    ///
    /// # Safety
    /// The space is of this list, whose lock the caller holds.
    unsafe fn behind(&mut self, space: Link<P, D>) -> &mut Link<P, D> {
        match space {
            // SAFETY: the caller's promise.
            Some(space) => unsafe { &mut (*space.as_ref().listing.get()).behind },
            None => &mut self.first,
        }
    }

    /// Returns the first space with a larger number.
    ///
    /// # Safety
    /// The caller holds the list's lock.
    unsafe fn first_behind(&self, number: u64) -> Link<P, D> {
        let (mut found, mut place) = (None, self.last);
        // From the end: few are new.
        while let Some(space) = place {
            // SAFETY: the caller's promise.
            let listing = unsafe { &*space.as_ref().listing.get() };
            if listing.number <= number {
                break;
            }
            (found, place) = (place, listing.before);
        }
        found
    }
}

impl Tour {
    const fn new() -> Self {
        Self { list: 0, met: [0; LISTS_MAX], has_met_new: false }
    }

    /// Goes to the next list; says whether there is anything left to look at.
    fn go_on(&mut self, nr_lists: usize) -> bool {
        self.list = (self.list + 1) % nr_lists;
        if self.list != 0 {
            return true;
        }
        core::mem::take(&mut self.has_met_new) && nr_lists > 1
    }
}

impl<P: System, D: Design<P>> Space<P, D> {
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

impl<P: System, D: Design<P>> Vm<P, D> {
    /// Visits the spaces that exist; those that are made meanwhile last. Each is kept alive while it is visited, and no
    /// lock is held: the visit may make spaces, drop them, and go along them itself.
    ///
    /// Called as the other calls are; see the crate.
    pub fn for_each_space(&self, mut visit: impl FnMut(&Space<P, D>)) {
        let mut tour = Tour::new();
        let mut before: Option<SpaceRef<'_, P, D>> = None;
        while let Some(space) = self.list().next_of(&mut tour, before.as_deref()) {
            // SAFETY: `next_of` took a reference, which is ours now.
            let space = unsafe { SpaceRef::from_raw(space) };
            visit(&space);
            before = Some(space);
        }
    }
}
