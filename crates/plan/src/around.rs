//! Which pages of objects a fault on a neighbour may have mapped.
//!
//! # Guarantee
//! A page is covered from the fault that may have mapped it until its range is dropped or unmapped; a page that moves
//! takes its cover along. What happens to the area later, a cut or a change of rights, takes no cover away.
//!
//! # What one fault may map
//! Linux (`do_fault_around` in mm/memory.c) maps up to 16 pages that are in the page cache. The window begins at the
//! later of the faulting page's 64 KiB boundary and the area's start, and ends with the area or the page table. Since
//! 6.18 it maps all of a large folio that the window touches, and a store to a shared mapping maps all of its folio;
//! the trace does not tell the size of folios, so any page of the same table may be mapped then.

use std::collections::BTreeMap;
use std::ops::Range;

use super::edges::Wait;
use super::ids::{EventIndex, NONE};
use super::regions::{PAGE, Region};

/// Pages that one page table maps.
const TABLE_PAGES: u64 = 512;

/// Pages in a window.
const WINDOW_PAGES: u64 = 16;

/// How far a fault reaches on the recorded machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Span {
    /// A window of 16 pages around a read.
    #[default]
    Window,
    /// All that the fault's page table maps of the area, around a read or a store to a shared mapping.
    Table,
}

impl Span {
    /// Returns the span of a kernel's release, such as `6.18.3-generic`; that of an unknown one is a window.
    pub fn of_release(release: &str) -> Self {
        let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse::<u32>().unwrap_or(0));
        let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        if version >= (6, 18) { Self::Table } else { Self::Window }
    }

    /// Returns the pages that a fault on `page` may map, the area being as it is at the fault.
    pub fn reach(self, page: u64, region: &Region) -> Range<u64> {
        let area = region.start / PAGE..region.end / PAGE;
        let table = page - page % TABLE_PAGES..page - page % TABLE_PAGES + TABLE_PAGES;
        let first = match self {
            Self::Window => page - page % WINDOW_PAGES,
            Self::Table => table.start,
        };
        let first = first.max(area.start);
        let end = match self {
            Self::Window => first + WINDOW_PAGES,
            Self::Table => table.end,
        };
        first..end.min(table.end).min(area.end)
    }
}

/// The covered pages of one table, one bit each.
#[derive(Clone, Copy, Debug, Default)]
struct Table {
    bits: [u64; (TABLE_PAGES / 64) as usize],
    /// The last step that covered some page.
    since: u32,
}

impl Table {
    fn holds(&self, page: u64) -> bool {
        let place = page % TABLE_PAGES;
        self.bits[(place / 64) as usize] & (1 << (place % 64)) != 0
    }

    /// Combines each word with the mask of those pages of `range` that lie in the table numbered `number`.
    fn combine(&mut self, number: u64, range: &Range<u64>, combine: impl Fn(u64, u64) -> u64) {
        for (place, word) in self.bits.iter_mut().enumerate() {
            let first = number * TABLE_PAGES + place as u64 * 64;
            let (start, end) = (range.start.clamp(first, first + 64), range.end.clamp(first, first + 64));
            *word = combine(*word, ones(end - first) & !ones(start - first));
        }
    }
}

/// Returns the bytes that the tables of a range of pages map.
pub fn mapped_by_tables_of(pages: &Range<u64>) -> Range<u64> {
    let bytes = |table: u64| table.saturating_mul(TABLE_PAGES * PAGE);
    let tables = tables_of(pages);
    bytes(tables.start)..bytes(tables.end)
}

/// Returns a word whose lowest `count` bits are set.
fn ones(count: u64) -> u64 {
    if count >= 64 { u64::MAX } else { (1 << count) - 1 }
}

/// Returns the numbers of the tables that map a range of pages.
fn tables_of(range: &Range<u64>) -> Range<u64> {
    let first = range.start / TABLE_PAGES;
    first..range.end.div_ceil(TABLE_PAGES).max(first)
}

/// A fault of the program, or of the kernel inside a call that fills pages, that may have mapped pages beside its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cover {
    /// The pages.
    pub pages: Range<u64>,
    /// The fault's step; none if the kernel made it.
    pub step: Option<Wait>,
    /// The last call over its page, which the step waits for.
    pub call: Option<Wait>,
    /// When it was, in the plan's count of steps.
    pub now: u32,
    /// The fault's event; none if the kernel made it.
    pub event: EventIndex,
}

impl Cover {
    /// Returns what is left of it on both sides of a range.
    fn without(&self, range: &Range<u64>) -> impl Iterator<Item = Self> + use<> {
        let Range { start, end } = self.pages;
        let sides = [start..end.min(range.start), start.max(range.end)..end];
        let this = self.clone();
        sides.into_iter().filter(|side| side.start < side.end).map(move |pages| Self { pages, ..this.clone() })
    }
}

/// The covered pages of a space.
#[derive(Clone, Debug, Default)]
pub struct Around {
    span: Span,
    tables: BTreeMap<u64, Table>,
    /// For each table the faults that covered some of its pages and may be the last that did, the last at the end.
    covers: BTreeMap<u64, Vec<Cover>>,
}

impl Around {
    /// Returns a space's in which nothing was touched, on a machine on which faults reach so far.
    pub fn new(span: Span) -> Self {
        Self { span, ..Self::default() }
    }

    /// Returns whether a store to a shared mapping brings neighbours, as any load of a file does.
    pub fn stores_bring_neighbours(&self) -> bool {
        self.span == Span::Table
    }

    /// Returns the pages that a fault on `page` may map, the area being as it is at the fault.
    pub fn reach(&self, page: u64, area: &Region) -> Range<u64> {
        self.span.reach(page, area)
    }

    /// Covers what a call may have mapped beside pages of an area that it filled, as loads or stores would.
    pub fn cover_filled(&mut self, pages: Range<u64>, is_store: bool, area: &Region, now: u32) {
        if pages.is_empty() || is_store && !self.stores_bring_neighbours() {
            return;
        }
        let reached = self.reach(pages.start, area).start..self.reach(pages.end - 1, area).end;
        for number in tables_of(&reached) {
            let table = number * TABLE_PAGES..(number + 1) * TABLE_PAGES;
            let pages = reached.start.max(table.start)..reached.end.min(table.end);
            self.cover(Cover { pages, step: None, call: None, now, event: NONE }, area);
        }
    }

    /// Covers pages of one table at a step. Cover that `region` had before a fork left its tables out is forgotten.
    pub fn cover(&mut self, cover: Cover, region: &Region) {
        let Cover { ref pages, now, .. } = cover;
        let number = pages.start / TABLE_PAGES;
        let table = self.tables.entry(number).or_default();
        if table.since < region.fresh_since {
            table.combine(number, &(region.start / PAGE..region.end / PAGE), |word, mask| word & !mask);
        }
        table.combine(number, pages, |word, mask| word | mask);
        table.since = now;
        let covers = self.covers.entry(number).or_default();
        covers.retain(|known| known.pages.start < cover.pages.start || cover.pages.end < known.pages.end);
        covers.push(cover);
    }

    /// Returns the last fault that may have mapped a covered page. Since the cover of a page that was dropped is gone,
    /// it came after that.
    pub fn last_over(&self, page: u64) -> Option<&Cover> {
        self.covers.get(&(page / TABLE_PAGES))?.iter().rfind(|cover| cover.pages.contains(&page))
    }

    /// Returns what faults behind an event may have mapped of the tables of some addresses.
    pub fn covered_since(&self, addresses: &Range<u64>, event: EventIndex) -> Vec<Range<u64>> {
        let tables = tables_of(&(addresses.start / PAGE..addresses.end.div_ceil(PAGE)));
        let covers = self.covers.range(tables).flat_map(|(_, covers)| covers);
        let since = covers.filter(|cover| cover.event != NONE && cover.event > event);
        since.map(|cover| cover.pages.start * PAGE..cover.pages.end * PAGE).collect()
    }

    /// Returns whether a fault beside a page of `region` may have mapped it.
    pub fn covers(&self, page: u64, region: &Region) -> bool {
        let table = self.tables.get(&(page / TABLE_PAGES));
        table.is_some_and(|table| table.since >= region.fresh_since && table.holds(page))
    }

    /// Takes the cover of a range of pages away.
    pub fn clear(&mut self, range: &Range<u64>) {
        for (&number, table) in self.tables.range_mut(tables_of(range)) {
            table.combine(number, range, |word, mask| word & !mask);
        }
        for covers in self.covers.range_mut(tables_of(range)).map(|(_, covers)| covers) {
            if covers.iter().any(|cover| cover.pages.start < range.end && range.start < cover.pages.end) {
                *covers = covers.iter().flat_map(|cover| cover.without(range)).collect();
            }
        }
        let empty =
            self.tables.range(tables_of(range)).filter(|(_, table)| table.bits == [0; 8]).map(|(&number, _)| number);
        for number in empty.collect::<Vec<u64>>() {
            self.tables.remove(&number);
            self.covers.remove(&number);
        }
    }

    /// Moves the cover of a range of pages so that the first is `target`.
    pub fn shift(&mut self, range: Range<u64>, target: u64) {
        // What moves has no last fault any more that is known to be its own.
        // A range may be as long as a damaged trace says, so the covers are visited, not its tables.
        let (from, to) = (tables_of(&range), tables_of(&(target..target.saturating_add(range.end - range.start))));
        let gone: Vec<u64> =
            [from, to].into_iter().flat_map(|tables| self.covers.range(tables)).map(|(&n, _)| n).collect();
        gone.iter().for_each(|number| drop(self.covers.remove(number)));
        let mut moved = Vec::new();
        for (&number, table) in self.tables.range(tables_of(&range)) {
            let first = number * TABLE_PAGES;
            let pages = range.start.max(first)..range.end.min(first + TABLE_PAGES);
            moved
                .extend(pages.filter(|&page| table.holds(page)).map(|page| (page - range.start + target, table.since)));
        }
        self.clear(&range);
        for (page, since) in moved {
            let table = self.tables.entry(page / TABLE_PAGES).or_default();
            table.combine(page / TABLE_PAGES, &(page..page + 1), |word, mask| word | mask);
            table.since = table.since.max(since);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::regions::{Backing, Root, Sharing, Traits};
    use super::*;
    use faultless_abi::Prot;

    fn area(pages: Range<u64>) -> Region {
        Region {
            start: pages.start * PAGE,
            end: pages.end * PAGE,
            prot: Prot::READ,
            backing: Backing::Object { object: 0, offset: 0, sharing: Sharing::Private },
            traits: Traits::empty(),
            fresh_since: 0,
            root: Root::Absent,
        }
    }

    #[test]
    fn a_window_begins_with_the_area_and_ends_with_the_table_or_the_area() {
        let reach = |page, pages| Span::Window.reach(page, &area(pages));
        assert_eq!(reach(100, 0..1024), 96..112);
        // The area begins inside the aligned window: 16 pages from there.
        assert_eq!(reach(100, 99..1024), 99..115);
        assert_eq!(reach(508, 500..1024), 500..512);
        assert_eq!(reach(100, 99..103), 99..103);
    }

    #[test]
    fn a_large_folio_reaches_as_far_as_table_and_area() {
        assert_eq!(Span::Table.reach(700, &area(0..2000)), 512..1024);
        assert_eq!(Span::Table.reach(700, &area(690..710)), 690..710);
        let spans = ["6.18.44-fc", "7.0", "6.17.9", "6.2", "", "x"].map(Span::of_release);
        assert_eq!(spans, [Span::Table, Span::Table, Span::Window, Span::Window, Span::Window, Span::Window]);
    }

    #[test]
    fn cover_is_cleared_moved_and_lost_where_a_fork_left_tables_out() {
        let (region, mut around) = (area(0..2048), Around::default());
        let step = |now| Wait { thread: 0, step: now };
        let cover = |pages: Range<u64>, now| Cover { pages, step: Some(step(now)), call: None, now, event: now };
        around.cover(cover(500..512, 1), &region);
        around.cover(cover(512..520, 2), &region);
        assert_eq!(around.last_over(505), Some(&cover(500..512, 1)));
        around.clear(&(505..515));
        assert_eq!(
            [504, 505, 514, 515].map(|page| around.last_over(page).map(|cover| cover.now)),
            [Some(1), None, None, Some(2)]
        );
        let covered =
            |around: &Around, region| (0..4096).filter(|&page| around.covers(page, &region)).collect::<Vec<_>>();
        assert_eq!(covered(&around, region), [500, 501, 502, 503, 504, 515, 516, 517, 518, 519]);
        around.shift(503..516, 1023);
        assert_eq!(around.last_over(501), None, "a move leaves it open");
        assert_eq!(covered(&around, region), [500, 501, 502, 516, 517, 518, 519, 1023, 1024, 1035]);
        let forked = Region { fresh_since: 3, ..region };
        assert_eq!(covered(&around, forked), [] as [u64; 0]);
        around.cover(cover(600..601, 4), &forked);
        around.cover(cover(600..602, 5), &forked);
        around.cover(cover(600..601, 6), &forked);
        assert_eq!([600, 601, 602].map(|page| around.last_over(page).map(|cover| cover.now)), [Some(6), Some(5), None]);
        assert_eq!(covered(&around, forked), [600, 601]);
        around.clear(&(0..4096));
        assert!(around.tables.is_empty());
    }

    #[test]
    fn a_call_that_fills_pages_covers_what_loads_of_them_would() {
        let covered = |span, is_store, filled: Range<u64>| {
            let mut around = Around::new(span);
            around.cover_filled(filled, is_store, &area(10..2000), 1);
            let pages: Vec<u64> = (0..4096).filter(|&page| around.covers(page, &area(10..2000))).collect();
            pages.first().zip(pages.last()).map(|(&first, &last)| (first, last, pages.len()))
        };
        assert_eq!(covered(Span::Window, false, 100..103), Some((96, 111, 16)));
        assert_eq!(covered(Span::Window, false, 500..520), Some((496, 527, 32)));
        assert_eq!(covered(Span::Window, true, 100..103), None, "a store maps one page there");
        assert_eq!(covered(Span::Table, true, 100..103), Some((10, 511, 502)));
        assert_eq!(covered(Span::Table, false, 511..513), Some((10, 1023, 1014)));
        assert_eq!(covered(Span::Table, false, 7..7), None);
    }

    #[test]
    fn a_range_as_long_as_a_damaged_trace_says_moves_at_once() {
        let mut around = Around::default();
        around.shift(0..u64::MAX / PAGE, 7);
        around.clear(&(0..u64::MAX / PAGE));
    }
}
