//! Address spaces over time: a grid of addresses and columns of time, with what was mapped there, and where faults
//! fell.
//!
//! # Guarantee
//! * I0 a space's columns are of its own life, from the first that is seen of it to the last
//! * I1 an area that is there at the end of a column, or came and went within it, has a cell of the column; where
//!   several share a cell, the one with most bytes at the column's end has it
//! * I2 every address that was ever mapped has a row; addresses that never were have none. A row stands for more bytes
//!   where a region is larger: a region's height grows with the logarithm of its size
//! * I3 peaks and faults by kind are exact, also those of each region; faults on nothing that the trace tells of are
//!   counted apart
//! * I4 the addresses at which mappings come and go most often are drawn by themselves, where the whole picture has but
//!   a strip for them: each row as many bytes

use std::collections::{BTreeMap, HashMap, HashSet};

use faultless_trace::{ThreadIndex, Trace};
use serde_json::{Value, json};

use crate::areas::{Kind, Seen, changes};
use crate::calls;
use crate::columns::{COLUMNS, column};

/// Rows of addresses, about.
pub const ROWS: usize = 120;

/// The most spaces: those with most events.
const SPACES: usize = 4;

/// The most regions of a space; the nearest are joined.
const REGIONS: usize = 40;

/// Gaps up to this do not end a region, in bytes.
const GAP: u64 = 1 << 16;

/// The most cells with faults; beyond, columns of faults are joined.
const FAULT_CELLS: usize = 6000;

/// The most forks that are told one by one.
const FORKS: usize = 200;

/// Kinds and their letters; `.` is nothing.
pub const KINDS: [(Kind, char); 7] = [
    (Kind::Heap, 'h'),
    (Kind::Stack, 's'),
    (Kind::Anonymous, 'a'),
    (Kind::File, 'f'),
    (Kind::Shared, 'm'),
    (Kind::Special, 'v'),
    (Kind::Unknown, 'u'),
];

/// What happened in a space, in order.
#[derive(Default)]
struct Journal {
    entries: Vec<(u64, Seen)>,
    first_thread: ThreadIndex,
    nr_own: usize,
}

/// Returns the spaces with most events.
pub fn outline(trace: &Trace) -> Value {
    let mut journals: BTreeMap<usize, Journal> = BTreeMap::new();
    changes(trace, &mut |now_ns, space, thread, seen| {
        let journal = journals.entry(space).or_default();
        if journal.nr_own == 0 {
            journal.first_thread = thread;
        }
        // What a fork hands down is told by the maker, or by nobody; it is no event of the space itself.
        let is_own = !journal.entries.is_empty() || !matches!(seen, Seen::Changed { .. });
        journal.nr_own += usize::from(is_own);
        journal.entries.push((now_ns, seen));
    });
    let count = journals.len();
    let mut busiest: Vec<(usize, Journal)> = journals.into_iter().collect();
    busiest.sort_by_key(|(place, journal)| (std::cmp::Reverse(journal.nr_own), *place));
    busiest.truncate(SPACES);
    let lifetimes = busiest.iter().map(|(place, journal)| {
        let began_ns = journal.entries.first().map_or(0, |(ns, _)| *ns);
        let duration_ns = journal.entries.last().map_or(0, |(ns, _)| ns - began_ns);
        (*place, Lifetime { began_ns, duration_ns })
    });
    let lifetimes: Vec<(usize, Lifetime)> = lifetimes.collect();
    let mut calls = calls::of(
        trace,
        &lifetimes.iter().map(|&(place, life)| (place, life.began_ns..=life.end_ns())).collect::<Vec<_>>(),
    );
    let list: Vec<Value> = busiest
        .iter()
        .zip(&lifetimes)
        .zip(calls.drain(..))
        .map(|(((_, journal), (_, life)), calls)| {
            let mut told = space(trace, journal, *life);
            told["calls"] = calls;
            told
        })
        .collect();
    json!({ "count": count, "columns": COLUMNS, "list": list })
}

/// A region of addresses, and its rows.
#[derive(Clone, Debug, PartialEq)]
struct Region {
    start: u64,
    end: u64,
    first_row: usize,
    nr_rows: usize,
}

impl Region {
    fn row(&self, address: u64) -> usize {
        let share =
            u128::from(address - self.start) * self.nr_rows as u128 / u128::from((self.end - self.start).max(1));
        self.first_row + (share as usize).min(self.nr_rows - 1)
    }
}

/// Returns the regions of all that was ever mapped, from the highest address down (I2).
fn regions(journal: &Journal) -> Vec<Region> {
    let mapped = journal.entries.iter().filter_map(|(_, seen)| match seen {
        Seen::Changed { start, end, what: Some(_) } => Some((*start, *end)),
        _ => None,
    });
    let mut mapped: Vec<(u64, u64)> = mapped.collect();
    mapped.sort_unstable();
    let mut joined: Vec<(u64, u64)> = Vec::new();
    for (start, end) in mapped {
        match joined.last_mut() {
            Some((_, last)) if start <= last.saturating_add(GAP) => *last = (*last).max(end),
            _ => joined.push((start, end)),
        }
    }
    while joined.len() > REGIONS {
        let gap = |place: usize| joined[place + 1].0 - joined[place].1;
        let Some(nearest) = (0..joined.len() - 1).min_by_key(|&place| gap(place)) else { break };
        joined[nearest].1 = joined[nearest + 1].1;
        joined.remove(nearest + 1);
    }
    let weight = |&(start, end): &(u64, u64)| (((end - start) / 4096).max(1) as f64).log2() + 1.0;
    let total: f64 = joined.iter().map(weight).sum();
    let room = ROWS.saturating_sub(joined.len()) as f64;
    let mut next = 0;
    let rows = joined.iter().rev().map(|range| {
        let nr_rows = ((weight(range) / total * room) as usize).max(1);
        let first_row = next;
        // A row stays free between two regions.
        next += nr_rows + 1;
        Region { start: range.0, end: range.1, first_row, nr_rows }
    });
    rows.collect()
}

/// Returns the place of the region of an address.
fn region_of(regions: &[Region], address: u64) -> Option<usize> {
    let place = regions.partition_point(|region| region.start > address);
    regions.get(place).filter(|region| address < region.end).map(|_| place)
}

/// What is mapped while a journal is read.
struct Map<'a> {
    regions: &'a [Region],
    areas: BTreeMap<u64, (u64, Kind)>,
    sizes: HashMap<KindIndex, Size>,
    /// By region, too.
    parts: HashMap<(usize, KindIndex), Size>,
}

/// How much is mapped, and the most that was.
#[derive(Clone, Copy, Debug, Default)]
struct Size {
    now: u64,
    peak: u64,
}

impl Size {
    fn take(&mut self, bytes: u64) {
        self.now += bytes;
        self.peak = self.peak.max(self.now);
    }

    fn give(&mut self, bytes: u64) {
        self.now = self.now.saturating_sub(bytes);
    }
}

/// A kind's place in [`KINDS`].
type KindIndex = usize;

fn place_of(kind: Kind) -> KindIndex {
    KINDS.iter().position(|(known, _)| *known == kind).unwrap_or(KINDS.len() - 1)
}

impl<'a> Map<'a> {
    fn new(regions: &'a [Region]) -> Self {
        Self { regions, areas: BTreeMap::new(), sizes: HashMap::new(), parts: HashMap::new() }
    }

    /// Changes the sizes that count a range of a kind, which lies in one region.
    fn resize(&mut self, start: u64, kind: Kind, change: impl Fn(&mut Size)) {
        let kind = place_of(kind);
        change(self.sizes.entry(kind).or_default());
        if let Some(region) = region_of(self.regions, start) {
            change(self.parts.entry((region, kind)).or_default());
        }
    }

    fn remove(&mut self, start: u64, end: u64) {
        let over = self.areas.range(..end).rev().take_while(|(_, (its_end, _))| *its_end > start);
        let over: Vec<(u64, u64, Kind)> = over.map(|(&start, &(end, kind))| (start, end, kind)).collect();
        for (its_start, its_end, kind) in over {
            self.areas.remove(&its_start);
            if its_start < start {
                self.areas.insert(its_start, (start, kind));
            }
            if its_end > end {
                self.areas.insert(end, (its_end, kind));
            }
            self.resize(its_start, kind, |size| size.give(its_end.min(end) - its_start.max(start)));
        }
    }

    fn apply(&mut self, seen: &Seen) {
        match seen {
            Seen::Changed { start, end, what } => {
                self.remove(*start, *end);
                if let Some(what) = what {
                    self.areas.insert(*start, (*end, what.kind));
                    self.resize(*start, what.kind, |size| size.take(end - start));
                }
            }
            Seen::Emptied => {
                self.areas.clear();
                self.sizes.values_mut().chain(self.parts.values_mut()).for_each(|size| size.now = 0);
            }
            Seen::Fault { .. } | Seen::Forked { .. } => {}
        }
    }

    /// Returns the kinds of a region, most bytes first, with the most that was mapped of each at once.
    fn kinds_of(&self, region: usize) -> Vec<Value> {
        let size = |kind: usize| self.parts.get(&(region, kind)).map_or(0, |size| size.peak);
        let mut kinds: Vec<usize> = (0..KINDS.len()).filter(|&kind| size(kind) > 0).collect();
        kinds.sort_by_key(|&kind| std::cmp::Reverse(size(kind)));
        kinds.into_iter().map(|kind| json!({ "kind": KINDS[kind].0.name(), "peak_bytes": size(kind) })).collect()
    }
}

/// When a space lives: from when, for how long.
#[derive(Clone, Copy, Debug)]
struct Lifetime {
    began_ns: u64,
    duration_ns: u64,
}

impl Lifetime {
    fn end_ns(&self) -> u64 {
        self.began_ns + self.duration_ns
    }

    fn column(&self, now_ns: u64) -> usize {
        column(now_ns - self.began_ns, self.duration_ns, COLUMNS)
    }
}

/// A drawing of some addresses of a space over its life.
struct Drawing<'a> {
    map: Map<'a>,
    cells: Vec<Vec<char>>,
    faults: HashMap<(usize, usize), u64>,
    nr_faults: HashMap<KindIndex, u64>,
    nr_changes: u64,
}

impl<'a> Drawing<'a> {
    fn of(entries: &[(u64, Seen)], life: Lifetime, regions: &'a [Region]) -> Self {
        let nr_rows = regions.last().map_or(1, |region| region.first_row + region.nr_rows);
        let cells = vec![vec!['.'; COLUMNS]; nr_rows];
        let map = Map::new(regions);
        let mut drawing = Self { map, cells, faults: HashMap::new(), nr_faults: HashMap::new(), nr_changes: 0 };
        let mut entries = entries.iter().peekable();
        for at in 0..COLUMNS {
            let mut passing: HashMap<usize, Kind> = HashMap::new();
            while let Some((_, seen)) = entries.next_if(|(ns, _)| life.column(*ns) <= at) {
                drawing.take(at, seen, &mut passing);
            }
            paint(&mut drawing.cells, at, regions, &drawing.map, &passing);
        }
        drawing
    }

    fn take(&mut self, at: usize, seen: &Seen, passing: &mut HashMap<usize, Kind>) {
        self.map.apply(seen);
        let regions = self.map.regions;
        match seen {
            Seen::Changed { start, end, what } => {
                self.nr_changes += 1;
                if let Some(what) = what {
                    passing.extend(rows(regions, *start, *end).map(|(row, _)| (row, what.kind)));
                }
            }
            Seen::Fault { address, what } => {
                *self.nr_faults.entry(place_of(what.kind)).or_default() += 1;
                if let Some(region) = region_of(regions, *address) {
                    *self.faults.entry((at, regions[region].row(*address))).or_default() += 1;
                }
            }
            Seen::Forked { .. } | Seen::Emptied => {}
        }
    }

    fn letters(&self) -> Vec<String> {
        self.cells.iter().map(|row| row.iter().collect()).collect()
    }

    /// Returns the kinds that there were.
    fn kinds(&self) -> Vec<Value> {
        let kinds = KINDS.iter().enumerate().filter_map(|(place, (kind, letter))| {
            let peak = self.map.sizes.get(&place).map_or(0, |size| size.peak);
            let faults = self.nr_faults.get(&place).copied().unwrap_or(0);
            let told =
                json!({ "kind": kind.name(), "letter": letter.to_string(), "peak_bytes": peak, "faults": faults });
            (peak + faults > 0).then_some(told)
        });
        kinds.collect()
    }
}

/// Returns a space's grid.
fn space(trace: &Trace, journal: &Journal, life: Lifetime) -> Value {
    let regions = regions(journal);
    let drawing = Drawing::of(&journal.entries, life, &regions);
    let is_fork = |(_, seen): &&(u64, Seen)| matches!(seen, Seen::Forked { .. });
    let forks: Vec<u64> = journal.entries.iter().filter(is_fork).map(|(ns, _)| ns - life.began_ns).collect();
    let thread = trace.threads.get(journal.first_thread as usize);
    let name = thread.map_or("?".to_owned(), |thread| format!("{} {}", thread.name, thread.pid));
    let nr_faults: u64 = drawing.nr_faults.values().sum();
    let told = regions.iter().enumerate().map(|(place, region)| {
        json!({
            "start": format!("{:#x}", region.start), "bytes": region.end - region.start, "row": region.first_row,
            "rows": region.nr_rows, "kinds": drawing.map.kinds_of(place),
        })
    });
    json!({
        "name": name, "began_ns": life.began_ns, "duration_ns": life.duration_ns, "rows": drawing.cells.len(),
        "kinds": drawing.kinds(), "changes": drawing.nr_changes, "faults_total": nr_faults,
        "cells": drawing.letters(), "regions": told.collect::<Vec<_>>(),
        "faults": joined(drawing.faults), "forks": &forks[..forks.len().min(FORKS)], "nr_forks": forks.len(),
        "again": again(journal), "closer": closer(journal, life, &regions),
    })
}

/// Returns how many ranges were mapped, what was there when the space began included, and how many of them begin where
/// one did before.
fn again(journal: &Journal) -> [u64; 2] {
    let mut starts = HashSet::new();
    let mapped = journal.entries.iter().filter_map(|(_, seen)| match seen {
        Seen::Changed { start, what: Some(_), .. } => Some(*start),
        _ => None,
    });
    mapped.fold([0, 0], |[all, before], start| [all + 1, before + u64::from(!starts.insert(start))])
}

/// Rows of the closer look at the busiest addresses.
const CLOSE_ROWS: usize = 48;

/// A strip of the whole picture with so many rows needs no closer look.
const SEEN_ROWS: usize = 30;

/// How often a mapping begins or ends at an address that is busy.
const BUSY: u64 = 3;

/// Returns the addresses at which mappings come and go most often, each row as many bytes as the others; nothing where
/// the whole picture shows them.
fn closer(journal: &Journal, life: Lifetime, regions: &[Region]) -> Value {
    let Some((start, end, nr_changes)) = busiest(journal) else { return Value::Null };
    let seen = rows(regions, start, end).count();
    if seen >= SEEN_ROWS {
        return Value::Null;
    }
    let nr_rows = CLOSE_ROWS.min(((end - start) / 4096).max(1) as usize);
    let close = [Region { start, end, first_row: 0, nr_rows }];
    let clip = |&(now_ns, seen): &(u64, Seen)| match seen {
        Seen::Changed { start: first, end: last, what } if first < end && start < last => {
            Some((now_ns, Seen::Changed { start: first.max(start), end: last.min(end), what }))
        }
        Seen::Fault { address, .. } if (start..end).contains(&address) => Some((now_ns, seen)),
        Seen::Emptied => Some((now_ns, seen)),
        _ => None,
    };
    let entries: Vec<(u64, Seen)> = journal.entries.iter().filter_map(clip).collect();
    let drawing = Drawing::of(&entries, life, &close);
    let nr_faults: u64 = drawing.nr_faults.values().sum();
    json!({
        "rows": nr_rows, "changes": nr_changes, "faults_total": nr_faults, "cells": drawing.letters(),
        "regions": [{
            "start": format!("{start:#x}"), "bytes": end - start, "row": 0, "rows": nr_rows,
            "kinds": drawing.map.kinds_of(0),
        }],
        "faults": joined(drawing.faults),
    })
}

/// Returns the addresses between which mappings come and go most often, and how often.
fn busiest(journal: &Journal) -> Option<(u64, u64, u64)> {
    let mut ranges: HashMap<u64, (u64, u64)> = HashMap::new();
    for (_, seen) in &journal.entries {
        if let Seen::Changed { start, end, .. } = seen {
            let (furthest, count) = ranges.entry(*start).or_insert((*end, 0));
            (*furthest, *count) = ((*furthest).max(*end), *count + 1);
        }
    }
    let busy = ranges.into_iter().filter(|(_, (_, count))| *count >= BUSY);
    let mut busy: Vec<(u64, u64, u64)> = busy.map(|(start, (end, count))| (start, end, count)).collect();
    busy.sort_unstable();
    let mut joined: Vec<(u64, u64, u64)> = Vec::new();
    for (start, end, count) in busy {
        match joined.last_mut() {
            Some(last) if start <= last.1.saturating_add(GAP) => {
                (last.1, last.2) = (last.1.max(end), last.2 + count);
            }
            _ => joined.push((start, end, count)),
        }
    }
    joined.into_iter().max_by_key(|(start, _, count)| (*count, *start))
}

/// Returns the rows that a range covers, each with how many of its bytes.
fn rows(regions: &[Region], start: u64, end: u64) -> impl Iterator<Item = (usize, u64)> {
    let over = regions.iter().filter(move |region| region.start < end && start < region.end);
    over.flat_map(move |region| {
        let (start, end) = (start.max(region.start), end.min(region.end));
        let rows = region.row(start)..=region.row(end - 1);
        let bytes = (end - start) / (rows.end() - rows.start() + 1) as u64;
        rows.map(move |row| (row, bytes.max(1)))
    })
}

/// Fills a column: what is mapped at its end, and where that is nothing, what came and went (I1).
fn paint(cells: &mut [Vec<char>], at: usize, regions: &[Region], map: &Map, passing: &HashMap<usize, Kind>) {
    let mut most: HashMap<usize, (u64, Kind)> = HashMap::new();
    for (&start, &(end, kind)) in &map.areas {
        for (row, bytes) in rows(regions, start, end) {
            let so_far = most.entry(row).or_insert((0, kind));
            if bytes > so_far.0 {
                *so_far = (bytes, kind);
            }
        }
    }
    let passing = passing.iter().map(|(&row, &kind)| (row, kind));
    for (row, kind) in passing.chain(most.into_iter().map(|(row, (_, kind))| (row, kind))) {
        cells[row][at] = KINDS[place_of(kind)].1;
    }
}

/// Returns the cells with faults, columns joined where there are too many.
fn joined(mut faults: HashMap<(usize, usize), u64>) -> Vec<[u64; 3]> {
    let mut step = 1;
    while faults.len() > FAULT_CELLS && step < COLUMNS {
        step *= 2;
        let mut coarse: HashMap<(usize, usize), u64> = HashMap::new();
        for ((at, row), count) in faults {
            *coarse.entry((at / step * step, row)).or_default() += count;
        }
        faults = coarse;
    }
    let mut list: Vec<[u64; 3]> = faults.into_iter().map(|((at, row), count)| [at as u64, row as u64, count]).collect();
    list.sort_unstable();
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultless_trace::{Call, CallEnter, CallExit, Event, EventKind, Fault, Mapped, Side, Thread};

    fn call(call: Call, args: [u64; 6], result: i64) -> [EventKind; 2] {
        [EventKind::CallEnter(CallEnter { call, args }), EventKind::CallExit(CallExit { call, result })]
    }

    fn fault(address: u64) -> EventKind {
        EventKind::Fault(Fault { address, ip: 0, error_code: 6, side: Side::User })
    }

    fn of(kinds: &[EventKind]) -> Value {
        let all = std::iter::once(&EventKind::Exec).chain(kinds);
        let events =
            all.enumerate().map(|(place, &kind)| Event { thread: 0, time_ns: place as u64 * 1000, on_cpu_ns: 0, kind });
        let threads = vec![Thread { pid: 7, tid: 7, name: "any".into() }];
        let trace = Trace { threads, events: events.collect(), ..Trace::default() };
        outline(&trace)["list"][0].clone()
    }

    #[test]
    fn areas_are_bands_from_their_mapping_to_their_unmapping() {
        let mut kinds = call(Call::Mmap, [0, 0x4000, 3, 0x22, 0, 0], 0x10000).to_vec();
        kinds.extend([fault(0x11000), fault(0x11000), fault(0x99_0000)]);
        kinds.extend(call(Call::Munmap, [0x10000, 0x4000, 0, 0, 0, 0], 0));
        kinds.push(fault(0x11000));
        let space = of(&kinds);
        let row = space["cells"][0].as_str().expect("letters");
        // Eight steps of thirty columns: mapped at the end of the second, unmapped at the end of the seventh.
        assert_eq!((row.find('a'), row.rfind('a')), (Some(60), Some(209)), "{row}");
        assert_eq!(space["kinds"][0], json!({ "kind": "anonymous", "letter": "a", "peak_bytes": 0x4000, "faults": 2 }));
        assert_eq!((space["name"].as_str(), space["faults_total"].as_u64()), (Some("any 7"), Some(4)));
        assert_eq!(space["faults"].as_array().map(Vec::len), Some(3), "three columns of a mapped address have a fault");
    }

    #[test]
    fn an_area_that_comes_and_goes_within_a_column_is_seen() {
        let mut kinds = call(Call::Mmap, [0, 0x1000, 3, 0x22, 0, 0], 0x10000).to_vec();
        kinds.extend(call(Call::Munmap, [0x10000, 0x1000, 0, 0, 0, 0], 0));
        kinds.extend(std::iter::repeat_n(fault(0x1), 2000));
        let space = of(&kinds);
        assert!(space["cells"][0].as_str().expect("letters").starts_with('a'));
    }

    #[test]
    fn a_region_s_sizes_are_those_of_its_kinds_which_the_whole_space_has() {
        // 64 pages of anonymous memory, and a page of a file right behind them: one region, two sizes.
        let mut kinds = call(Call::Mmap, [0, 0x4_0000, 3, 0x22, 0, 0], 0x10_0000).to_vec();
        kinds.push(EventKind::CallEnter(CallEnter { call: Call::Mmap, args: [0, 0x1000, 1, 2, 3, 0] }));
        let mapped = Mapped { start: 0x14_0000, len_bytes: 0x1000, file_offset: 0, prot: 1, flags: 2, file: Some(0) };
        kinds.push(EventKind::Mapped(mapped));
        kinds.push(EventKind::CallExit(CallExit { call: Call::Mmap, result: 0x14_0000 }));
        kinds.extend(call(Call::Munmap, [0x10_0000, 0x4_0000, 0, 0, 0, 0], 0));
        let space = of(&kinds);
        let region = &space["regions"][0];
        assert_eq!(region["bytes"], 0x4_1000);
        let sizes = json!([{ "kind": "anonymous", "peak_bytes": 0x4_0000 }, { "kind": "file", "peak_bytes": 0x1000 }]);
        assert_eq!(region["kinds"], sizes);
        assert_eq!(space["kinds"][0]["peak_bytes"], 0x4_0000, "the table has the same");
        assert_eq!(space["closer"], Value::Null, "nothing comes and goes");
    }

    #[test]
    fn addresses_where_mappings_come_and_go_are_looked_at_closely_unless_they_are_large_already() {
        // 64 MiB that stay, and two pages in the middle of nowhere else that come and go.
        let far = 0x7000_0000;
        let mut kinds = call(Call::Mmap, [0, 64 << 20, 3, 0x22, 0, 0], far).to_vec();
        for _ in 0..50 {
            kinds.extend(call(Call::Munmap, [far as u64 + 0x8000, 0x2000, 0, 0, 0, 0], 0));
            kinds.extend(call(Call::Mmap, [far as u64 + 0x8000, 0x2000, 3, 0x32, 0, 0], far + 0x8000));
            kinds.push(fault(far as u64 + 0x9000));
        }
        let space = of(&kinds);
        let closer = &space["closer"];
        assert_eq!(
            (&closer["regions"][0]["start"], &closer["regions"][0]["bytes"]),
            (&json!("0x70008000"), &json!(0x2000))
        );
        assert_eq!(
            (&closer["rows"], &closer["changes"], &closer["faults_total"]),
            (&json!(2), &json!(100), &json!(50))
        );
        assert_eq!(closer["cells"].as_array().map(Vec::len), Some(2));
        assert_eq!(space["again"], json!([51, 49]), "the first within the large one begins where none did");
        assert_eq!(space["calls"]["lines"][0]["count"], 51);
        let mut large = Vec::new();
        for _ in 0..50 {
            large.extend(call(Call::Mmap, [0, 64 << 20, 3, 0x22, 0, 0], far));
            large.extend(call(Call::Munmap, [far as u64, 64 << 20, 0, 0, 0, 0], 0));
        }
        assert_eq!(of(&large)["closer"], Value::Null, "all of the picture is that");
    }

    #[test]
    fn many_regions_and_many_faults_stay_small() {
        let mut kinds = Vec::new();
        for place in 0..2000u64 {
            let start = 0x10_0000 * (place * 7919 % 2000 + 1);
            kinds.extend(call(Call::Mmap, [0, 0x1000 << (place % 8), 3, 0x22, 0, 0], start as i64));
            kinds.extend((0..20).map(|step| fault(start + step * 0x1000)));
        }
        let space = of(&kinds);
        let rows = space["rows"].as_u64().expect("rows");
        assert!((40..=ROWS as u64).contains(&rows), "{rows}");
        assert!(space["faults"].as_array().expect("faults").len() <= FAULT_CELLS);
        assert!(space.to_string().len() < 300_000, "{}", space.to_string().len());
    }
}
