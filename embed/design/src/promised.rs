//! The map: what mmap, munmap and mprotect do to entries, and which areas the list shows.
//!
//! # Guarantee
//! A call that fails has changed nothing but, as Linux's, what mprotect finds before a hole.
//!
//! # Invariants
//! * I1 a call that changes a range has locked it and the page on each side: nobody changes a neighbour, so that the
//!   number of areas, which depends on them, is exact.
//! * I2 what a call adds is taken from the limits, and its tables are held, before the first entry changes; so nothing
//!   fails half way.

use crate::ByEntry;
use core::ops::Range;
use faultless_sync::RwSemaphore;
use faultless_vm::design::{EntryChange, Map, MapLock, Promises, Sizes, Tally};
use faultless_vm::{
    AreaFlags, AreaLine, AreaView, Backing, CallError, MapRequest, PAGE, PageRange, Placement, Protection, Space,
    System, USER_END, VirtAddr, page_ceil, page_floor,
};

/// Large mappings begin at a multiple of this if there is room, as Linux's.
const HUGE_BYTES: u64 = 2 << 20;

/// A map of promises; see the module.
#[derive(Clone, Copy, Debug)]
pub struct Promised;

type View<'a, P, S> = Promises<'a, P, ByEntry<S>>;

// SAFETY: both read the promises of entries, which the calls change; pages come by promises alone, with their rights.
unsafe impl<P: System, S: RwSemaphore<P>> Map<P, ByEntry<S>> for Promised {
    const PROMISES: bool = true;

    fn mmap(
        space: &Space<P, ByEntry<S>>,
        request: &MapRequest<'_, P>,
        len_bytes: u64,
    ) -> Result<(PageRange, AreaFlags), CallError> {
        let view = Promises::of(space);
        let rights = rights_of(request)?;
        let range = match request.placement {
            Placement::Fixed(start) => map_at(&view, view.fixed(start, len_bytes)?, rights, Existing::Replaced),
            Placement::FixedNoReplace(start) => map_at(&view, view.fixed(start, len_bytes)?, rights, Existing::Refused),
            Placement::Hint(hint) => near_hint(space, hint.get(), len_bytes)
                .and_then(|range| map_at(&view, range, rights, Existing::Refused).ok())
                .map_or_else(|| map_anywhere(space, len_bytes, rights), Ok),
            Placement::Anywhere => map_anywhere(space, len_bytes, rights),
            Placement::Low2G { .. } => Err(CallError::Invalid("memory below 2 GiB is not searched for")),
        }?;
        Ok((range, rights))
    }

    fn munmap(space: &Space<P, ByEntry<S>>, range: PageRange) -> Result<(), CallError> {
        let view = Promises::of(space);
        let _held = view.lock().write(around(range));
        let before = sizes_around(&view, range, |tally| view.tally(range.addresses(), tally));
        let after = sizes_around(&view, range, |_| ());
        view.recount(before, after, space.limits().max_map_count)?;
        view.cursor(range).change(|_, _| EntryChange::Unmap);
        Ok(())
    }

    fn mprotect(space: &Space<P, ByEntry<S>>, range: PageRange, rights: Protection) -> Result<(), CallError> {
        let (view, rights) = (Promises::of(space), AreaFlags::from(rights) & AreaFlags::RIGHTS);
        let _held = view.lock().write(around(range));
        let end = end_of_mapped(&view, range);
        let Some(part) = PageRange::between(range.start(), VirtAddr::new(end)) else {
            return Err(CallError::Unmapped { address: range.start() });
        };
        let before = sizes_around(&view, part, |tally| view.tally(part.addresses(), tally));
        let after = sizes_around(&view, part, |tally| tally.add(part, rights.protection()));
        view.recount(before, after, space.limits().max_map_count)?;
        view.cursor(part).change(|_, _| EntryChange::Protect(rights.protection()));
        if end < range.end().get() { Err(CallError::Unmapped { address: VirtAddr::new(end) }) } else { Ok(()) }
    }

    fn search(space: &Space<P, ByEntry<S>>, len_bytes: u64) -> Option<PageRange> {
        search(space, len_bytes)
    }

    fn for_each_area(space: &Space<P, ByEntry<S>>, mut visit: impl FnMut(AreaLine)) {
        let view = Promises::of(space);
        let _held = view.lock().read(VirtAddr::new(0)..VirtAddr::new(u64::MAX));
        view.for_each_run(VirtAddr::new(0)..VirtAddr::new(USER_END), |run, rights| {
            visit(View::<P, S>::line(run, rights))
        });
    }

    fn area_at(space: &Space<P, ByEntry<S>>, address: VirtAddr) -> Option<AreaView<P>> {
        Promises::of(space).area_at(address)
    }
}

/// What happens to what is mapped where something shall be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Existing {
    Replaced,
    Refused,
}

/// Returns what an entry can promise of a request; anything else is refused.
fn rights_of<P: System>(request: &MapRequest<'_, P>) -> Result<AreaFlags, CallError> {
    match request.backing {
        Backing::Anonymous if AreaFlags::RIGHTS.contains(request.flags()) => Ok(request.flags()),
        _ => Err(CallError::Invalid("only private anonymous memory is promised, with its rights alone")),
    }
}

/// Returns what a call on a range locks (I1).
fn around(range: PageRange) -> Range<VirtAddr> {
    VirtAddr::new(range.start().get().saturating_sub(PAGE))..range.end() + PAGE
}

fn map_at<P: System, S: RwSemaphore<P>>(
    view: &View<'_, P, S>,
    range: PageRange,
    rights: AreaFlags,
    existing: Existing,
) -> Result<PageRange, CallError> {
    let (_held, limit) = (view.lock().write(around(range)), view.space().limits().max_map_count);
    if view.space().nr_areas() > limit {
        return Err(CallError::TooManyAreas { limit });
    }
    let mut first = None;
    view.for_each_run(range.addresses(), |run, _| first = first.or(Some(run.start())));
    if let Some(address) = first.filter(|_| existing == Existing::Refused) {
        return Err(CallError::Exists { address });
    }
    let before = sizes_around(view, range, |tally| view.tally(range.addresses(), tally));
    let after = sizes_around(view, range, |tally| tally.add(range, rights.protection()));
    // Linux lets mmap exceed the limit by one.
    view.recount(before, after, limit.saturating_add(1))?;
    let mut cursor = view.cursor(range);
    if let Err(cause) = cursor.hold_tables() {
        drop(cursor);
        view.recount(after, before, u64::MAX)?;
        return Err(cause.into());
    }
    cursor.change(|_, _| EntryChange::Promise(rights.protection()));
    Ok(range)
}

/// Maps where there is room; what is found free may be taken by the time that it is locked.
fn map_anywhere<P: System, S: RwSemaphore<P>>(
    space: &Space<P, ByEntry<S>>,
    len: u64,
    rights: AreaFlags,
) -> Result<PageRange, CallError> {
    let view = Promises::of(space);
    loop {
        let range = search_aligned(space, len).ok_or(CallError::NoRoom { len_bytes: len })?;
        match map_at(&view, range, rights, Existing::Refused) {
            Err(CallError::Exists { .. }) => {}
            result => return result,
        }
    }
}

/// Returns the place that a hint names: rounded down, and up to the lowest address; in page 0 it is none.
fn near_hint<P: System, S: RwSemaphore<P>>(space: &Space<P, ByEntry<S>>, hint: u64, len: u64) -> Option<PageRange> {
    let lowest = page_ceil(space.limits().lowest_chosen)?;
    if hint < PAGE { None } else { PageRange::new(VirtAddr::new(page_floor(hint).max(lowest)), len) }
}

/// Searches room; for what could be huge pages it begins where one could, if there is room for that.
fn search_aligned<P: System, S: RwSemaphore<P>>(space: &Space<P, ByEntry<S>>, len: u64) -> Option<PageRange> {
    let padded = len.checked_add(HUGE_BYTES).filter(|_| len.is_multiple_of(HUGE_BYTES));
    match padded.and_then(|padded| search(space, padded)) {
        Some(padded) => PageRange::new(VirtAddr::new((padded.start().get() / HUGE_BYTES + 1) * HUGE_BYTES), len),
        None => search(space, len),
    }
}

/// Searches the highest room below the base, or else above it.
fn search<P: System, S: RwSemaphore<P>>(space: &Space<P, ByEntry<S>>, len: u64) -> Option<PageRange> {
    let (low, base) = (space.limits().lowest_chosen.max(PAGE), space.limits().mmap_base);
    highest_gap(space, len, low..base).or_else(|| highest_gap(space, len, base..USER_END))
}

fn highest_gap<P: System, S: RwSemaphore<P>>(
    space: &Space<P, ByEntry<S>>,
    len: u64,
    room: Range<u64>,
) -> Option<PageRange> {
    let (mut free_from, mut best) = (room.start, None);
    let mut try_until = |from: u64, end: u64| {
        if end.checked_sub(from).is_some_and(|gap| gap >= len) {
            best = PageRange::new(VirtAddr::new(end - len), len);
        }
    };
    Promises::of(space).for_each_run(VirtAddr::new(room.start)..VirtAddr::new(room.end), |run, _| {
        try_until(free_from, run.start().get());
        free_from = run.end().get();
    });
    try_until(free_from, room.end);
    best
}

/// Returns where the first hole of a range begins, or its end.
fn end_of_mapped<P: System, S: RwSemaphore<P>>(view: &View<'_, P, S>, range: PageRange) -> u64 {
    let mut end = range.start();
    view.for_each_run(range.addresses(), |run, _| end = if run.start() == end { run.end() } else { end });
    end.get()
}

/// Returns what a range and the page on each side would hold with `middle` in the range.
fn sizes_around<P: System, S: RwSemaphore<P>>(
    view: &View<'_, P, S>,
    range: PageRange,
    middle: impl FnOnce(&mut Tally),
) -> Sizes {
    let (mut tally, wide) = (Tally::default(), around(range));
    view.tally(wide.start..range.start(), &mut tally);
    middle(&mut tally);
    view.tally(range.end()..wide.end, &mut tally);
    tally.sizes()
}
