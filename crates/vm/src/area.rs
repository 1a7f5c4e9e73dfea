//! Areas: ranges of one kind of memory (Linux's VMAs).
//!
//! # Guarantee
//! An area's attributes change only under the address space's write lock, inside
//! [`Area::begin_change`] .. `end_change`, so that a design whose faults don't
//! take that lock can see a change coming; but for one that its faults can't tell ([`Area::set_bounds`]).
//!
//! # Invariants
//! * I1 `start < end`, both page-aligned; the index holds the same bounds.
//! * I2 what stands behind it is set before the area is published and never changes; the area owns a reference to it.
//! * I3 the reverse-map root goes from 0 to a value once, under the lock that the design names, and stays.
//! * I4 where faults give roots without the space's lock ([`Design::ROOTS_FREELY`]), a writer pins the absence of a
//!   root before it relies on it ([`Area::view_pinned`]); from then on only holders of the lock give the area one,
//!   until the last change of a call that changes flags, which relies on it no longer ([`Area::unpin_root`]).
//! * I5 while the area holds an address, the address shows the same page of what stands behind the area: cuts and joins
//!   move the bounds, but not `first_page`, where page 0 would lie. So a reader that gets one bound from before and one
//!   from after a change of other addresses still finds the right page.
//!
//! # The root's word (race table: `design::faultless`)
//! 0: none. [`ROOT_PINNED`]: none, and a writer relies on that, or did. Anything else: the root.

use crate::addr::{EVERYTHING, VirtAddr};
use crate::content::Behind;
use crate::design::Design;
use crate::object::ObjectRef;
use crate::system::System;
use crate::translations::lanes::Alone;
pub use crate::types::Area;
use crate::types::Space;
pub use crate::view::{AreaFlags, AreaView};
use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::ops::Range;
use faultless_platform::mutant;
use faultless_platform::{Atomic, AtomicInteger, Ordering};

/// Returns the page number at which page 0 of what an area shows would lie.
fn first_page<P: System>(view: &AreaView<P>) -> u64 {
    view.start.page_number().wrapping_sub(view.page_offset)
}

/// The word of an area without a root, to which only a holder of the space's lock gives one (I4).
const ROOT_PINNED: u64 = u64::MAX;

// SAFETY: all that several threads use is atomic; `next_removed` and `nr_changes` belong to the writer, `head` to the
// one who frees.
unsafe impl<P: System, D: Design<P>> Sync for Area<P, D> {}

impl<P: System, D: Design<P>> Area<P, D> {
    /// Returns an area as `view` describes it, which owns what stands behind it; under a change, as if announced by
    /// `begin_change`.
    pub(crate) fn new(view: &AreaView<P>, behind: Behind<P>) -> Self {
        Self {
            start: P::AtomicU64::new(view.start.get()),
            end: P::AtomicU64::new(view.end.get()),
            first_page: P::AtomicU64::new(first_page(view)),
            flags: P::AtomicU32::new(view.flags.bits()),
            root: P::AtomicU64::new(view.root),
            behind,
            opening: view.opening,
            state: D::new_area_state(),
            head: UnsafeCell::new(MaybeUninit::uninit()),
            next_removed: UnsafeCell::new(None),
            nr_changes: UnsafeCell::new(1),
        }
    }

    /// Returns what the area is now. Under the space's lock, or checked by the design afterwards, it is consistent.
    /// Faults under every design call it.
    #[inline]
    pub fn view(&self) -> AreaView<P> {
        self.view_with(self.root())
    }

    /// As [`Area::view`], with a root that was read.
    #[inline(always)]
    fn view_with(&self, root: u64) -> AreaView<P> {
        // Relaxed: the space's lock or the design's sequence count orders these loads.
        let order = Ordering::Relaxed;
        let start = VirtAddr::new(self.start.load(order));
        AreaView {
            start,
            end: VirtAddr::new(self.end.load(order)),
            flags: AreaFlags::from_bits_truncate(self.flags.load(order)),
            page_offset: start.page_number().wrapping_sub(self.first_page.load(order)),
            object: self.behind.object().map(ObjectRef::as_ptr),
            content: self.behind.content(),
            opening: self.opening,
            root,
        }
    }

    /// As [`Area::view`], for a writer that relies on the root, or on its absence (I4). Under the write lock.
    pub(crate) fn view_pinned(&self) -> AreaView<P> {
        self.view_with(if D::ROOTS_FREELY { self.pinned_root() } else { self.root() })
    }

    /// Lets faults without the space's lock give the area a root again; under the write lock, by a call that decides
    /// nothing by its absence any more.
    pub(crate) fn unpin_root(&self) {
        // Relaxed: as in `pinned_root`; of a pinned root nobody writes the word but who has the lock.
        if D::ROOTS_FREELY && self.root.load(Ordering::Relaxed) == ROOT_PINNED {
            self.root.store(0, Ordering::Relaxed);
        }
    }

    /// Returns the root, if any; from then on no fault without the space's lock gives the area a root.
    pub(crate) fn pinned_root(&self) -> u64 {
        mutant!(RootUnpinned => return self.root());
        // Relaxed: the word alone decides between a fault and the writer (`give_root`).
        let seen = self.root.load(Ordering::Relaxed);
        if seen != 0 {
            return root_of::<P, D>(seen);
        }
        match self.root.compare_exchange(0, ROOT_PINNED, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) | Err(ROOT_PINNED) => 0,
            Err(given) => given,
        }
    }

    /// Returns the reverse-map root; 0 is none.
    #[inline]
    fn root(&self) -> u64 {
        // Relaxed: as in `view`.
        root_of::<P, D>(self.root.load(Ordering::Relaxed))
    }

    /// Returns what the area is and allows now; as [`Area::view`].
    #[inline]
    pub(crate) fn flags(&self) -> AreaFlags {
        // Relaxed: as in `view`.
        AreaFlags::from_bits_truncate(self.flags.load(Ordering::Relaxed))
    }

    /// Returns the bounds and the flags; as [`Area::view`].
    pub(crate) fn bounds_and_flags(&self) -> (VirtAddr, VirtAddr, AreaFlags) {
        // Relaxed: as in `view`.
        let bound = |bound: &P::AtomicU64| VirtAddr::new(bound.load(Ordering::Relaxed));
        (bound(&self.start), bound(&self.end), self.flags())
    }

    /// Returns the flags, and the root.
    pub(crate) fn flags_and_root(&self) -> (AreaFlags, u64) {
        (self.flags(), self.root())
    }

    /// Says whether it is what is left of an unmapping that is under way (`space::departure`).
    #[inline]
    pub(crate) fn leaves(&self) -> bool {
        self.flags().contains(AreaFlags::LEAVING)
    }

    /// Notes that guards may be in it; under the space's lock, at least for reading.
    pub(crate) fn note_guards(&self) {
        // Relaxed: a mark that no fault looks at; other flags are changed under the write lock.
        self.flags.fetch_or(AreaFlags::MAYBE_GUARD.bits(), Ordering::Relaxed);
    }

    /// Returns the object behind the area.
    pub(crate) fn object(&self) -> Option<&ObjectRef<P>> {
        self.behind.object()
    }

    /// Returns what stands behind the area.
    #[inline]
    pub(crate) fn behind(&self) -> &Behind<P> {
        &self.behind
    }

    /// Says whether a store to private memory would need a reverse-map root that the area lacks; without a
    /// lock or a look at a sequence count, a hint.
    #[inline]
    pub(crate) fn lacks_root(&self) -> bool {
        // Relaxed: see `view`.
        let order = Ordering::Relaxed;
        let is_missing = self.root.load(order) == 0
            && !AreaFlags::from_bits_truncate(self.flags.load(order)).contains(AreaFlags::SHARED);
        mutant!(FaultWithoutRoot, mutant!(RootSetWithoutLock, is_missing => false) => false)
    }

    /// Announces a change to the design, until [`Area::end_change`]; nests. Under the write lock.
    pub(crate) fn begin_change(&self) {
        self.begin_change_within(EVERYTHING);
    }

    /// As [`Area::begin_change`], for a change of one range: outside it only the area's bounds change. Unless the area
    /// merely grows, the caller notes that in the stamps (`Space::note_change`) before it waits for faults.
    pub(crate) fn begin_change_within(&self, range: Range<VirtAddr>) {
        // SAFETY: the count is the writer's alone, and the caller is the writer.
        let nr_changes = unsafe { &mut *self.nr_changes.get() };
        *nr_changes += 1;
        if *nr_changes == 1 {
            D::announce_range(&self.state, range);
            D::begin_change(&self.state);
        } else {
            // Wider than both.
            D::announce_range(&self.state, EVERYTHING);
        }
    }

    /// As [`Area::begin_change`], until the guard is dropped, with the wait for faults; the area outlives it. The
    /// caller has everything.
    pub(crate) fn announce_change(&self, space: &Space<P, D>) -> ChangeGuard<'_, P, D> {
        self.begin_change();
        let addresses = if space.lanes().are_several() { self.bounds() } else { EVERYTHING };
        space.note_change(&addresses, Alone::Everywhere);
        D::await_faults(space, addresses);
        ChangeGuard(self)
    }

    fn bounds(&self) -> Range<VirtAddr> {
        let AreaView { start, end, .. } = self.view();
        start..end
    }

    /// Ends a change; only the outermost one reaches the design. Under the write lock, before the area is released.
    pub(crate) fn end_change(&self) {
        // SAFETY: as in `begin_change`.
        let nr_changes = unsafe { &mut *self.nr_changes.get() };
        *nr_changes -= 1;
        if *nr_changes == 0 {
            D::end_change(&self.state);
        }
    }

    /// As [`Area::end_change`], for an area that nobody has reached yet and that is what its change made it.
    pub(crate) fn end_change_unpublished(&self) {
        // SAFETY: as in `begin_change`.
        let nr_changes = unsafe { &mut *self.nr_changes.get() };
        debug_assert_eq!(*nr_changes, 1, "an unpublished area is under the change that made it");
        *nr_changes = 0;
        D::end_change_unpublished(&self.state);
    }

    /// Changes bounds, offset and flags; inside `begin_change` .. `end_change`.
    pub(crate) fn set(&self, view: &AreaView<P>) {
        // Relaxed: the design's sequence count orders these stores for readers without the lock.
        let order = Ordering::Relaxed;
        self.start.store(view.start.get(), order);
        self.end.store(view.end.get(), order);
        self.first_page.store(first_page(view), order);
        self.flags.store(view.flags.bits(), order);
        // A pin stays: what the writer reads next relies on it, too.
        if self.root() != view.root {
            self.root.store(view.root, order);
        }
    }

    /// Changes the bounds alone (I5); inside `begin_change` .. `end_change`, unless the area merely grows over a hole,
    /// under a design whose faults can't tell ([`Design::ADDS_FREELY`]).
    pub(crate) fn set_bounds(&self, bounds: Range<VirtAddr>) {
        // Relaxed: as in `set`.
        let order = Ordering::Relaxed;
        self.start.store(bounds.start.get(), order);
        self.end.store(bounds.end.get(), order);
    }

    /// Changes the flags alone; inside `begin_change` .. `end_change`.
    pub(crate) fn set_flags(&self, flags: AreaFlags) {
        // Relaxed: as in `set`.
        self.flags.store(flags.bits(), Ordering::Relaxed);
    }

    /// Says whether the area holds `address`, and has not left the index. Under the space's lock of that address, which
    /// keeps it so; the caller found the area before, and it is not freed meanwhile.
    pub(crate) fn is_in_force_at(&self, address: VirtAddr) -> bool {
        // Relaxed: who changes an area that holds the address has excluded the caller.
        let (start, end) = (self.start.load(Ordering::Relaxed), self.end.load(Ordering::Relaxed));
        // SAFETY: the count is a writer's, and no writer of an area with this address is at work. An area that has left
        // keeps its change, and its bounds.
        (start..end).contains(&address.get()) && unsafe { *self.nr_changes.get() } == 0
    }

    /// Gives the area a reverse-map root unless it has one (I3); returns the one in force. Under the space's lock.
    #[inline]
    pub(crate) fn root_or_set(&self, fresh: impl FnOnce() -> u64) -> u64 {
        let root = self.root();
        if root != 0 { root } else { self.set_root(fresh()) }
    }

    #[cold]
    fn set_root(&self, fresh: u64) -> u64 {
        loop {
            // Relaxed: the root is an identity, nothing is reached through it; two faults may race, and one value wins.
            let word = self.root.load(Ordering::Relaxed);
            if word != 0 && word != ROOT_PINNED {
                return word;
            }
            // Relaxed: as above.
            if self.root.compare_exchange(word, fresh, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                return fresh;
            }
        }
    }

    /// As [`Area::root_or_set`], without the space's lock; `None` if only the lock's holders may give the area a root
    /// (I4).
    pub(crate) fn give_root(&self, fresh: u64) -> Option<u64> {
        // Relaxed: as in `root_or_set`.
        match self.root.compare_exchange(0, fresh, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => Some(fresh),
            Err(ROOT_PINNED) => None,
            Err(winner) => Some(winner),
        }
    }
}

/// Returns the root that a word says; 0 is none.
#[inline(always)]
fn root_of<P: System, D: Design<P>>(word: u64) -> u64 {
    if D::ROOTS_FREELY && word == ROOT_PINNED { 0 } else { word }
}

/// A known bug: the words of the bounds are used for what waits to be freed, and looked at before the area is had.
#[cfg(feature = "mutants")]
impl<P: System, D: Design<P>> Area<P, D> {
    pub(crate) fn lend_bounds(&self) {
        P::forbid(core::ptr::from_ref(&self.start).cast(), size_of::<u64>());
    }

    pub(crate) fn look_at_bounds(&self, address: VirtAddr) -> Result<(), crate::events::GiveUp> {
        let view = self.view();
        (view.start..view.end).contains(&address).then_some(()).ok_or(crate::events::GiveUp::VmaChanged)
    }
}

/// A change that was announced; ends when dropped.
#[must_use = "the change ends as soon as the guard is dropped"]
pub(crate) struct ChangeGuard<'a, P: System, D: Design<P>>(&'a Area<P, D>);

impl<P: System, D: Design<P>> Drop for ChangeGuard<'_, P, D> {
    fn drop(&mut self) {
        self.0.end_change();
    }
}
