//! What stood in memory when a recording joined a running process: when it began, or later.
//!
//! # Guarantee
//! A snapshot that was read without an error obeys N1..N4.
//!
//! # Invariants
//! - N1 every thread belongs to at most one space, and every thread and file index lies inside the trace's tables
//! - N2 a space's areas are page-aligned, not empty, sorted by address and disjoint
//! - N3 an area's runs are not empty, sorted and disjoint, and lie inside the area
//! - N4 a window begins no later than it ends
//! - N5 the list of a space's areas was read after its threads were joined
//!
//! # How a live snapshot is used
//! The process runs on while it is looked at, so the areas and the pages of each area are of different moments. Every
//! event since the recording's begin is in the trace, and each of them decides the state of what it touches; so whoever
//! applies all events up to [`Snapshot::ended_ns`] to the snapshot, in order, gets the state at that moment, whatever
//! the moments at which the parts were read (a fuzzy checkpoint, brought up to date by its log).
//! ```text
//! recording begins   areas read    pages of A read   pages of B read   ended_ns
//!        |--- events ----[==]---------[===]--------------[===]----------|--- events
//!        '------------------- applied to the snapshot ------------------'   replayed
//! ```
//! A process that was joined later has such a time of its own, from [`SpaceState::joined_ns`] to
//! [`SpaceState::ended_ns`].

use std::ops::Range;

use crate::event::{FileIndex, ThreadIndex};

/// The size of a page in a snapshot.
const PAGE: u64 = 4096;

/// All that stood when processes were joined; empty in a trace that was recorded from a program's start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The address spaces of the processes that were joined.
    pub spaces: Vec<SpaceState>,
}

/// One address space.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpaceState {
    /// The threads that used it.
    pub threads: Vec<ThreadIndex>,
    /// Where the heap begins, and the page boundary at or behind its end; empty if that is not known.
    pub heap: Range<u64>,
    /// Since when its threads' events are told: 0 if it was joined when the recording began.
    pub joined_ns: u64,
    /// When the list of areas was read.
    pub window: Window,
    /// What was mapped.
    pub areas: Vec<Area>,
}

/// When something was read, in the time of the events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Just before.
    pub began_ns: u64,
    /// Just after.
    pub ended_ns: u64,
}

/// One mapped area.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Area {
    /// The first byte.
    pub start: u64,
    /// The byte behind the last one.
    pub end: u64,
    /// `PROT_READ`, `PROT_WRITE`, `PROT_EXEC`.
    pub prot: u32,
    /// What else the kernel says of it: bits of [`Area`]'s constants.
    pub flags: u32,
    /// The file behind it, if there is one.
    pub file: Option<FileIndex>,
    /// The offset of the first byte in the file.
    pub file_offset: u64,
    /// When its pages were read.
    pub window: Window,
    /// What its pages were; those in no run were absent.
    pub runs: Vec<PageRun>,
}

impl Area {
    /// Stores reach the file, or whoever else maps the memory.
    pub const SHARED: u32 = 1;
    /// It grows down.
    pub const GROWS_DOWN: u32 = 1 << 1;
    /// It is locked in memory.
    pub const LOCKED: u32 = 1 << 2;
    /// Its pages are locked when they come.
    pub const LOCKED_ON_FAULT: u32 = 1 << 3;
    /// A child does not get it.
    pub const DONT_FORK: u32 = 1 << 4;
    /// A child gets it empty.
    pub const WIPE_ON_FORK: u32 = 1 << 5;
    /// It may be backed by huge pages.
    pub const HUGE: u32 = 1 << 6;
    /// Memory is set aside for it.
    pub const ACCOUNTED: u32 = 1 << 7;
    /// No memory is set aside for it.
    pub const NO_RESERVE: u32 = 1 << 8;
    /// Its pages are the kernel's own or a device's: the vdso and its data.
    pub const SPECIAL: u32 = 1 << 9;
    /// The kernel may merge its pages with equal ones.
    pub const MERGEABLE: u32 = 1 << 10;
}

/// Pages in a row that were alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageRun {
    /// The first one's address.
    pub start: u64,
    /// How many.
    pub nr_pages: u64,
    /// What they were.
    pub state: PageState,
    /// Whether a huge page maps them.
    pub is_huge: bool,
}

impl PageRun {
    /// Returns the addresses of the run.
    pub fn range(&self) -> Range<u64> {
        self.start..self.start.saturating_add(self.nr_pages.saturating_mul(PAGE))
    }
}

/// What a page was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageState {
    /// The zero page was mapped.
    Zero,
    /// A page of the process's own was mapped, maybe shared with a forked one.
    Own,
    /// A page of the file, or of shared memory, was mapped.
    File,
    /// The page was swapped out or on its way somewhere.
    Swapped,
    /// A guard stood there.
    Guard,
}

impl PageState {
    /// Every state, in the order of the format's codes.
    pub const ALL: &'static [PageState] =
        &[PageState::Zero, PageState::Own, PageState::File, PageState::Swapped, PageState::Guard];
}

impl Snapshot {
    /// Returns whether the recording joined no running process.
    pub fn is_empty(&self) -> bool {
        self.spaces.is_empty()
    }

    /// Returns when the last part was read of the spaces that were joined when the recording began.
    pub fn ended_ns(&self) -> u64 {
        self.spaces.iter().filter(|space| !space.is_late()).map(SpaceState::ended_ns).max().unwrap_or(0)
    }

    /// Returns whether a space was joined after the recording's begin.
    pub fn has_late(&self) -> bool {
        self.spaces.iter().any(SpaceState::is_late)
    }

    /// Checks N1 to N5, for tables of these sizes.
    pub(crate) fn check(&self, nr_threads: usize, nr_files: usize) -> Result<(), &'static str> {
        let mut is_met = vec![false; nr_threads];
        for &thread in self.spaces.iter().flat_map(|space| &space.threads) {
            let met = is_met.get_mut(thread as usize).ok_or("it names a thread that is not in the table (N1)")?;
            ensure(!std::mem::replace(met, true), "a thread is in two spaces (N1)")?;
        }
        self.spaces.iter().try_for_each(|space| space.check(nr_files))
    }
}

impl SpaceState {
    /// Returns whether it was joined after the recording's begin.
    pub fn is_late(&self) -> bool {
        self.joined_ns != 0
    }

    /// Returns when its last part was read.
    pub fn ended_ns(&self) -> u64 {
        let areas = self.areas.iter().map(|area| area.window.ended_ns);
        areas.chain([self.window.ended_ns]).max().unwrap_or(0)
    }

    fn check(&self, nr_files: usize) -> Result<(), &'static str> {
        ensure(self.heap.start <= self.heap.end, "its heap ends before it begins (N2)")?;
        self.window.check()?;
        ensure(self.joined_ns <= self.window.began_ns, "it was looked at before it was joined (N5)")?;
        let mut reached = 0;
        for area in &self.areas {
            let is_placed = area.start >= reached && area.start < area.end;
            ensure(is_placed, "an area is empty or overlaps the one before (N2)")?;
            area.check(nr_files)?;
            reached = area.end;
        }
        Ok(())
    }
}

impl Area {
    fn check(&self, nr_files: usize) -> Result<(), &'static str> {
        let is_aligned = self.start.is_multiple_of(PAGE) && self.end.is_multiple_of(PAGE);
        ensure(is_aligned, "an area is not aligned (N2)")?;
        let is_known = self.file.is_none_or(|file| (file as usize) < nr_files);
        ensure(is_known, "it names a file that is not in the table (N1)")?;
        self.window.check()?;
        let mut reached = self.start;
        for run in &self.runs {
            let range = run.range();
            let is_inside = range.start >= reached && range.start < range.end && range.end <= self.end;
            ensure(is_inside && range.start.is_multiple_of(PAGE), "a run lies outside its area (N3)")?;
            reached = range.end;
        }
        Ok(())
    }
}

impl Window {
    fn check(self) -> Result<(), &'static str> {
        ensure(self.began_ns <= self.ended_ns, "a window ends before it begins (N4)")
    }
}

fn ensure(holds: bool, otherwise: &'static str) -> Result<(), &'static str> {
    if holds { Ok(()) } else { Err(otherwise) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn area(start: u64, end: u64, runs: &[(u64, u64)]) -> Area {
        let run = |&(page, nr_pages): &(u64, u64)| PageRun {
            start: page * PAGE,
            nr_pages,
            state: PageState::Own,
            is_huge: false,
        };
        Area { start: start * PAGE, end: end * PAGE, runs: runs.iter().map(run).collect(), ..Area::default() }
    }

    fn of(areas: Vec<Area>) -> Snapshot {
        Snapshot { spaces: vec![SpaceState { threads: vec![0], areas, ..SpaceState::default() }] }
    }

    #[test]
    fn areas_and_runs_out_of_place_are_refused() {
        let good = of(vec![area(1, 5, &[(1, 2), (4, 1)]), area(5, 6, &[])]);
        assert_eq!(good.check(1, 0), Ok(()));
        assert!(good.check(0, 0).is_err(), "no thread 0");
        let wrong = [
            vec![area(1, 5, &[]), area(4, 6, &[])],
            vec![area(5, 5, &[])],
            vec![area(1, 5, &[(4, 2)])],
            vec![area(1, 5, &[(2, 2), (3, 1)])],
            vec![area(1, 5, &[(2, 0)])],
            vec![area(1, 5, &[(2, u64::MAX)])],
            vec![Area { file: Some(0), ..area(1, 5, &[]) }],
            vec![Area { window: Window { began_ns: 2, ended_ns: 1 }, ..area(1, 5, &[]) }],
            vec![Area { end: 5 * PAGE + 1, ..area(1, 5, &[]) }],
        ];
        for areas in wrong {
            assert!(of(areas.clone()).check(1, 0).is_err(), "{areas:?}");
        }
        let mut twice = good.clone();
        twice.spaces.extend(good.spaces);
        assert!(twice.check(1, 0).is_err(), "a thread in two spaces");
    }
}
