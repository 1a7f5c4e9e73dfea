//! The interface for designs without areas: their page-table entries are the map.
//!
//! # Guarantee
//! Each change of an entry is one compare-and-swap under its leaf table's lock. A change of a cursor's range is one
//! step for faults: none is answered by an entry from before it after another was answered by one from after it. When
//! a [`Cursor`] is dropped, no CPU has a translation that is stronger than the entries, and the frames and tables that
//! went are given back.
//!
//! The design's own lock keeps other map calls out of a cursor's range. Faults, and calls on other ranges, run beside
//! the cursor, and wait where they need a table of a range that changes. A page that is there is used without a fault:
//! the hardware sees one entry after the other change.
//!
//! A table goes with the last of its entries: `translations::counted`.

use super::change::Sizes;
use super::quantity::Quantity;
use super::{AreaLine, Space};
use crate::addr::{PAGE, PageRange, VirtAddr};
use crate::area::AreaView;
use crate::asked::Protection;
use crate::design::Design;
use crate::entry::Entry;
use crate::error::{AccessError, CallError};
use crate::fault::{Fault, Handled, handle_promised};
use crate::system::System;
use crate::translations::counted::CountedEntries;
use crate::types::Map;
use core::marker::PhantomData;
use core::ops::Range;
use faultless_phys::OutOfFrames;
use faultless_platform::{AtomicInteger, Ordering};

/// See the module. Made by a [`Map`] of promises for a call.
///
/// What `embed/design` does for munmap and mprotect, with the range locked by the design's own lock:
///
/// ```
/// use faultless_vm::design::{EntryChange, Cursor, Design, MapLock, Promises, Tally};
/// use faultless_vm::{CallError, PageRange, Protection, Space, System};
///
/// /// Gives all that is promised in a range other rights, and keeps the counts of the space right.
/// fn protect<P: System, D: Design<P>>(space: &Space<P, D>, range: PageRange, rights: Protection) -> Result<(), CallError> {
///     let view = Promises::of(space);
///     let _held = view.lock().write(range.addresses());
///     let (mut before, mut after) = (Tally::default(), Tally::default());
///     view.tally(range.addresses(), &mut before);
///     view.for_each_run(range.addresses(), |run, _| after.add(run, rights));
///     view.recount(before.sizes(), after.sizes(), view.space().limits().max_map_count)?;
///     let mut cursor: Cursor<'_, P, D> = view.cursor(range);
///     cursor.hold_tables()?;
///     cursor.change(|_, _| EntryChange::Protect(rights));
///     Ok(())
/// }
/// ```
///
/// # Who calls what
/// | callers | functions |
/// |---|---|
/// | a map's `mmap`, `munmap`, `mprotect` | `fixed`, `lock`, `visit`, `tally`, `recount`, `cursor` |
/// | a map's `for_each_area` and `area_at` | `for_each_run`, `line`, `area_at` |
/// | a design's `fault` | `fault` |
pub struct Promises<'a, P: System, D: Design<P>>(&'a Space<P, D>);

/// What becomes of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryChange {
    /// It stays.
    Keep,
    /// Nothing is left.
    Unmap,
    /// Untouched memory with these rights, in place of what is there.
    Promise(Protection),
    /// What is promised gets these rights; a page stays. Nothing is made of nothing.
    Protect(Protection),
}

impl EntryChange {
    fn apply(self, old: Entry) -> Entry {
        match self {
            Self::Keep => old,
            Self::Unmap => Entry::EMPTY,
            Self::Promise(rights) => Entry::promise(rights),
            Self::Protect(rights) if old.promised().is_some() => old.promising(rights),
            Self::Protect(_) => old,
        }
    }
}

impl<'a, P: System, D: Design<P>> Promises<'a, P, D> {
    /// Returns the view of a space; only of designs whose map says that it makes no areas.
    pub fn of(space: &'a Space<P, D>) -> Self {
        const { assert!(D::Map::PROMISES, "entries of a map of areas are changed by its calls") };
        Self(space)
    }

    /// Returns the space.
    pub fn space(&self) -> &'a Space<P, D> {
        self.0
    }

    /// Returns the space's lock.
    pub fn lock(&self) -> &'a D::Lock {
        &self.0.lock
    }

    /// Handles a fault: makes the page that its entry promises, or says why there is none.
    pub fn fault(&self, fault: Fault) -> Result<Handled, AccessError> {
        handle_promised(self.0, fault)
    }

    /// Returns the range of a mapping at a fixed address, if it may be there.
    pub fn fixed(&self, start: VirtAddr, len_bytes: u64) -> Result<PageRange, CallError> {
        self.0.fixed(start, len_bytes)
    }

    /// Begins to change the entries of a range, which the caller has locked.
    pub fn cursor(&self, range: PageRange) -> Cursor<'a, P, D> {
        Cursor { entries: CountedEntries::new(&self.0.translations, range), space: PhantomData }
    }

    /// Visits the entries of the pages of these addresses that are not empty, ascending, each as it is at some instant.
    /// The visit does not sleep.
    pub fn visit(&self, addresses: Range<VirtAddr>, visit: &mut dyn FnMut(VirtAddr, Entry)) {
        let addresses = addresses.start.page().get()..addresses.end.min(PageRange::USER.end()).get();
        self.0.translations.visit_entries(addresses, visit);
    }

    /// Visits the runs of pages with one promise, ascending: what the list shows as areas.
    pub fn for_each_run(&self, addresses: Range<VirtAddr>, mut visit: impl FnMut(PageRange, Protection)) {
        let mut run: Option<(u64, u64, Protection)> = None;
        let mut end_run = |run: Option<(u64, u64, Protection)>| {
            if let Some((start, end, rights)) = run
                && let Some(range) = PageRange::between(VirtAddr::new(start), VirtAddr::new(end))
            {
                visit(range, rights);
            }
        };
        self.visit(addresses, &mut |page, entry| {
            let Some(rights) = entry.promised() else { return };
            match &mut run {
                Some((_, end, known)) if *end == page.get() && *known == rights => *end += PAGE,
                other => end_run(other.replace((page.get(), (page + PAGE).get(), rights))),
            }
        });
        end_run(run);
    }

    /// Counts what is mapped in whole pages.
    pub fn tally(&self, addresses: Range<VirtAddr>, tally: &mut Tally) {
        self.for_each_run(addresses, |run, rights| tally.add(run, rights));
    }

    /// Puts `after` in place of `before` in what the space counts, if the limits allow it; what is taken is not lent
    /// to calls beside this one.
    pub fn recount(&self, before: Sizes, after: Sizes, max_areas: u64) -> Result<(), CallError> {
        self.0.add_sizes(before, after);
        let judged = self.0.check_sizes(before, after, max_areas);
        if judged.is_err() {
            self.0.add_sizes(after, before);
        }
        judged
    }

    /// Returns a run as a line of the list.
    pub fn line(run: PageRange, rights: Protection) -> AreaLine {
        AreaLine {
            range: run,
            flags: rights.into(),
            page_offset: run.start().page_number(),
            has_object: false,
            identity: None,
            is_reference: false,
            is_heap: false,
        }
    }

    /// Returns the area that the entry of an address promises, of its page alone.
    pub fn area_at(&self, address: VirtAddr) -> Option<AreaView<P>> {
        self.0.promised_area(address.page(), self.0.entry_at(address))
    }
}

/// Counts parts of areas: what [`Promises::tally`] fills and [`Promises::recount`] takes the sizes of. They are given
/// ascending: those that touch and have the same rights are one area.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    sizes: Sizes,
    last: Option<(u64, Protection)>,
}

impl Tally {
    /// Adds a part.
    pub fn add(&mut self, part: PageRange, rights: Protection) {
        self.sizes.add(rights.into(), part.len_bytes());
        self.sizes.areas -= u64::from(self.last == Some((part.start().get(), rights)));
        self.last = Some((part.end().get(), rights));
    }

    /// Returns what was counted.
    pub fn sizes(&self) -> Sizes {
        self.sizes
    }
}

/// Changes the entries of a range; see the module. [`Promises::cursor`] returns it.
#[must_use = "what a cursor took away is shot down when it is dropped"]
pub struct Cursor<'a, P: System, D: Design<P>> {
    entries: CountedEntries<'a, P>,
    space: PhantomData<&'a Space<P, D>>,
}

impl<P: System, D: Design<P>> Cursor<'_, P, D> {
    /// Makes the tables that the range lacks, and keeps those that it has until the cursor is dropped: what is then
    /// changed lacks no memory. May sleep.
    pub fn hold_tables(&mut self) -> Result<(), OutOfFrames> {
        self.entries.hold_tables()
    }

    /// Changes the entries of those pages of the range that have a table, in one step for faults. `decide` may be asked
    /// again about a page whose accessed and dirty bits a CPU set meanwhile.
    ///
    /// All tables of the range are locked meanwhile, by spin locks: `decide` does not sleep, and calls nothing that
    /// faults or changes entries there. A range of which more goes than can be kept track of without memory is shot
    /// down under the locks.
    pub fn change(&mut self, mut decide: impl FnMut(VirtAddr, Entry) -> EntryChange) {
        self.entries.change(&mut |page, entry| decide(page, entry).apply(entry));
    }
}

impl<P: System, D: Design<P>> Space<P, D> {
    /// Adds the difference, beside other calls.
    fn add_sizes(&self, before: Sizes, after: Sizes) {
        for quantity in Quantity::ALL {
            add(self.charged(quantity), after.of(quantity), before.of(quantity));
        }
    }

    /// Judges what was added.
    fn check_sizes(&self, before: Sizes, after: Sizes, max_areas: u64) -> Result<(), CallError> {
        let limits = &self.limits;
        let exceeds = |now: u64, limit: u64| now / PAGE > limit / PAGE;
        if after.areas > before.areas && self.nr_areas() > max_areas {
            return Err(CallError::TooManyAreas { limit: limits.max_map_count });
        }
        if after.bytes > before.bytes && exceeds(self.mapped_bytes(), limits.address_space_bytes) {
            return Err(CallError::OverLimit { limit_bytes: limits.address_space_bytes });
        }
        if after.data_bytes <= before.data_bytes {
            return Ok(());
        }
        if exceeds(self.data_bytes(), limits.mapped_data_bytes()) {
            return Err(CallError::OverLimit { limit_bytes: limits.mapped_data_bytes() });
        }
        self.check_commit(after.data_bytes - before.data_bytes)
    }
}

/// Changes one of the space's counters by `after - before`.
fn add(counter: &impl AtomicInteger<Value = u64>, after: u64, before: u64) {
    if after != before {
        // Relaxed: a sum, of which each call's share is exact while the call has its range.
        counter.fetch_add(after.wrapping_sub(before), Ordering::Relaxed);
    }
}
