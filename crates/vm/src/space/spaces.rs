//! The lists of an instance's spaces, and how visitors go along them.
//!
//! # Guarantee
//! A space is listed from when it is complete until its last reference goes. A visitor holds a reference to the space
//! that it looks at and no lock, so it may sleep, make spaces and drop them. It meets every space that was listed when
//! it began and that is not dropped meanwhile, and all that are listed before it begins its last round; those of one
//! list in the order of listing. Each is met once; one that is listed meanwhile maybe twice, if another visitor meets
//! it in between.
//!
//! # Lists
//! A space is on the list of the CPU that made it, so that processes that fork on their own do not meet. A visitor goes
//! round the lists until it has met nobody new in a whole round; of one list, once. Who is new is told by the `round`
//! that a space was listed in: a number that visitors alone count up, when they begin a round.
//!
//! # Invariants
//! * I1 links are used under the list's lock. A space stays listed, and its links valid, while anybody has a reference.
//! * I2 a space is appended when nothing of it changes any more but under its own locks. A child is appended before its
//!   parent's semaphore is given up.
//! * I3 a space leaves the list before anything of it is freed.
//! * I4 a space that is appended to a list after a visitor's round has looked at the list has that round's number, or a
//!   later one: both hold the list's lock, and the round was counted up before. So numbers ascend along a list.
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
//! that it passes over: nobody runs there any more, and the last user drops entries of an object's pages without a look
//! at the frame.

use super::{Space, SpaceRef};
use crate::design::Design;
use crate::instance::Vm;
use crate::pool::refer_unless_gone;
use crate::system::System;
use crate::types::{Link, List, Listing, Spaces};
use core::ptr::NonNull;
use faultless_platform::mutant;
use faultless_platform::{Atomic, AtomicInteger, CachePadded, Ordering};
use faultless_sync::SpinMutex;

impl<P: System, D: Design<P>> Listing<P, D> {
    /// Returns that of a space that is not listed.
    pub(super) const fn none() -> Self {
        Self { before: None, behind: None, round: 0, met_by: 0, list: 0 }
    }
}

/// How far a visitor has come.
struct Tour {
    /// Its first round.
    number: u64,
    list: usize,
    round: u64,
    /// Spaces of earlier rounds have been met.
    new_from: u64,
    has_met_new: bool,
}

impl<P: System, D: Design<P>> Spaces<P, D> {
    /// Returns empty lists for a machine of `nr_cpus` CPUs.
    pub(crate) fn new(nr_cpus: usize) -> Self {
        let list = |_| CachePadded::new(SpinMutex::classed(List { first: None, last: None }));
        Self { lists: (0..nr_cpus).map(list).collect(), round: CachePadded::new(P::AtomicU64::new(1)) }
    }

    /// Begins a round; returns its number.
    fn begin_round(&self) -> u64 {
        // Relaxed: lists' locks order it (I4).
        self.round.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Appends a space (I2).
    pub(super) fn append(&self, space: &SpaceRef<'_, P, D>) {
        let place = P::cpu();
        let mut list = self.lists[place].lock();
        let before = list.last.replace(NonNull::from(&**space));
        // Relaxed: the list's lock orders it (I4).
        let round = self.round.load(Ordering::Relaxed);
        // SAFETY: I1; of the space, nobody else knows.
        unsafe {
            space.listing.get().write(Listing { before, behind: None, round, met_by: 0, list: place });
            *list.behind(before) = list.last;
        }
    }

    /// Takes a space off its list, if it was ever listed (I3).
    pub(super) fn remove(&self, space: NonNull<Space<P, D>>) {
        // SAFETY: the space's last user is the caller, and its list does not change.
        let (place, round) = unsafe { ((*space.as_ref().listing.get()).list, (*space.as_ref().listing.get()).round) };
        if round == 0 {
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
            let first = |list: &List<P, D>| {
                // SAFETY: the list is locked.
                unsafe { list.first_from(tour.new_from) }
            };
            // SAFETY: I1; the caller has a reference to `before`, which is of this list.
            let mut next = before.take().map_or_else(|| first(&list), |before| unsafe { behind(before) });
            while let Some(space) = next {
                // SAFETY: listed spaces are alive (I3), and I1.
                unsafe {
                    let met_by = &mut (*space.as_ref().listing.get()).met_by;
                    if *met_by != tour.number && space.as_ref().try_reference() {
                        *met_by = tour.number;
                        tour.has_met_new = true;
                        return next;
                    }
                    next = behind(space);
                }
            }
            drop(list);
            if !tour.go_on(self) {
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

    /// Returns the first space that was listed in a round or later.
    ///
    /// # Safety
    /// The caller holds the list's lock.
    unsafe fn first_from(&self, round: u64) -> Link<P, D> {
        if round == 0 {
            return self.first;
        }
        let (mut found, mut place) = (None, self.last);
        // From the end: few are new.
        while let Some(space) = place {
            // SAFETY: the caller's promise.
            let listing = unsafe { &*space.as_ref().listing.get() };
            if listing.round < round {
                break;
            }
            (found, place) = (place, listing.before);
        }
        found
    }
}

impl Tour {
    fn new<P: System, D: Design<P>>(spaces: &Spaces<P, D>) -> Self {
        let round = spaces.begin_round();
        Self { number: round, list: 0, round, new_from: 0, has_met_new: false }
    }

    /// Goes to the next list; says whether there is anything left to look at.
    fn go_on<P: System, D: Design<P>>(&mut self, spaces: &Spaces<P, D>) -> bool {
        let nr_lists = spaces.lists.len();
        self.list = (self.list + 1) % nr_lists;
        if self.list != 0 {
            return true;
        }
        let goes_on = core::mem::take(&mut self.has_met_new) && nr_lists > 1;
        if goes_on {
            // Who was listed behind the last look at its list has this round's number or a later one (I4).
            self.new_from = self.round;
            self.round = spaces.begin_round();
        }
        goes_on
    }
}

impl<P: System, D: Design<P>> Space<P, D> {
    /// Takes a reference unless the last one is gone.
    fn try_reference(&self) -> bool {
        let takes_any = mutant!(SpaceResurrected, mutant!(SpaceUnlinkedLate, false => true) => true);
        // Relaxed: a known bug, put back.
        refer_unless_gone::<P>(&self.references)
            || (takes_any && self.references.fetch_add(1, Ordering::Relaxed) < u32::MAX)
    }
}

impl<P: System, D: Design<P>> Vm<P, D> {
    /// Visits the spaces that exist; those that are made meanwhile last. Each is kept alive while it is visited, and no
    /// lock is held: the visit may make spaces, drop them, and go along them itself.
    ///
    /// Called as the other calls are; see the crate.
    pub fn for_each_space(&self, mut visit: impl FnMut(&Space<P, D>)) {
        let mut tour = Tour::new(self.list());
        let mut before: Option<SpaceRef<'_, P, D>> = None;
        while let Some(space) = self.list().next_of(&mut tour, before.as_deref()) {
            // SAFETY: `next_of` took a reference, which is ours now.
            let space = unsafe { SpaceRef::from_raw(space) };
            visit(&space);
            before = Some(space);
        }
    }
}
