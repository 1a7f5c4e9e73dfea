//! Address spaces over time: a grid of addresses and columns of time, with what was mapped there, and where faults
//! fell.
//!
//! # Guarantee
//! * I0 a space's columns are of its own life, from the first that is seen of it to the last
//! * I1 an area that is there at the end of a column, or came and went within it, has a cell of the column; where
//!   several share a cell, the one with most bytes at the column's end has it
//! * I2 every address that was ever mapped has a row; addresses that never were have none. A row stands for more bytes
//!   where a region is larger: a region's height grows with the logarithm of its size
//! * I3 peaks and faults by kind are exact; faults on nothing that the trace tells of are counted apart

use std::collections::{BTreeMap, HashMap};

use faultless_trace::{ThreadIndex, Trace};
use serde_json::{Value, json};

use crate::areas::{Kind, Seen, changes};
use crate::column;

/// Columns of time.
pub const COLUMNS: usize = 240;

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
    let list: Vec<Value> = busiest.iter().map(|(_, journal)| space(trace, journal)).collect();
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

/// What is mapped while a journal is read.
struct Map {
    areas: BTreeMap<u64, (u64, Kind)>,
    bytes: HashMap<KindIndex, u64>,
    peaks: HashMap<KindIndex, u64>,
}

/// A kind's place in [`KINDS`].
type KindIndex = usize;

fn place_of(kind: Kind) -> KindIndex {
    KINDS.iter().position(|(known, _)| *known == kind).unwrap_or(KINDS.len() - 1)
}

impl Map {
    fn take(&mut self, kind: Kind, bytes: u64) {
        let now = self.bytes.entry(place_of(kind)).or_default();
        *now += bytes;
        let peak = self.peaks.entry(place_of(kind)).or_default();
        *peak = (*peak).max(*now);
    }

    fn give(&mut self, kind: Kind, bytes: u64) {
        let now = self.bytes.entry(place_of(kind)).or_default();
        *now = now.saturating_sub(bytes);
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
            self.give(kind, its_end.min(end) - its_start.max(start));
        }
    }

    fn apply(&mut self, seen: &Seen) {
        match seen {
            Seen::Changed { start, end, what } => {
                self.remove(*start, *end);
                if let Some(what) = what {
                    self.areas.insert(*start, (*end, what.kind));
                    self.take(what.kind, end - start);
                }
            }
            Seen::Emptied => {
                self.areas.clear();
                self.bytes.clear();
            }
            Seen::Fault { .. } | Seen::Forked { .. } => {}
        }
    }
}

/// Returns a space's grid.
fn space(trace: &Trace, journal: &Journal) -> Value {
    let began_ns = journal.entries.first().map_or(0, |(ns, _)| *ns);
    let duration_ns = journal.entries.last().map_or(0, |(ns, _)| ns - began_ns);
    let column_of = |now_ns: u64| column(now_ns - began_ns, duration_ns, COLUMNS);
    let regions = regions(journal);
    let nr_rows = regions.last().map_or(1, |region| region.first_row + region.nr_rows);
    let region_of = |address: u64| regions.iter().find(|region| (region.start..region.end).contains(&address));
    let mut map = Map { areas: BTreeMap::new(), bytes: HashMap::new(), peaks: HashMap::new() };
    let mut cells = vec![vec!['.'; COLUMNS]; nr_rows];
    let mut faults: HashMap<(usize, usize), u64> = HashMap::new();
    let mut nr_faults: HashMap<KindIndex, u64> = HashMap::new();
    let (mut nr_forks, mut nr_changes, mut forks) = (0u64, 0u64, Vec::new());
    let mut entries = journal.entries.iter().peekable();
    for at in 0..COLUMNS {
        let mut passing: HashMap<usize, Kind> = HashMap::new();
        while let Some((now_ns, seen)) = entries.next_if(|(ns, _)| column_of(*ns) <= at) {
            map.apply(seen);
            match seen {
                Seen::Changed { start, end, what } => {
                    nr_changes += 1;
                    let rows = what.map(|what| (rows(&regions, *start, *end), what.kind));
                    rows.into_iter().flat_map(|(rows, kind)| rows.map(move |row| (row.0, kind))).for_each(
                        |(row, kind)| {
                            passing.insert(row, kind);
                        },
                    );
                }
                Seen::Fault { address, what } => {
                    *nr_faults.entry(place_of(what.kind)).or_default() += 1;
                    if let Some(region) = region_of(*address) {
                        *faults.entry((at, region.row(*address))).or_default() += 1;
                    }
                }
                Seen::Forked { .. } => {
                    nr_forks += 1;
                    forks.push(*now_ns - began_ns);
                }
                Seen::Emptied => {}
            }
        }
        paint(&mut cells, at, &regions, &map, &passing);
    }
    forks.truncate(FORKS);
    let kinds = KINDS.iter().enumerate().filter_map(|(place, (kind, letter))| {
        let count = |of: &HashMap<KindIndex, u64>| of.get(&place).copied().unwrap_or(0);
        let (peak, faults) = (count(&map.peaks), count(&nr_faults));
        (peak + faults > 0)
            .then(|| json!({ "kind": kind.name(), "letter": letter.to_string(), "peak_bytes": peak, "faults": faults }))
    });
    let thread = trace.threads.get(journal.first_thread as usize);
    let name = thread.map_or("?".to_owned(), |thread| format!("{} {}", thread.name, thread.pid));
    let nr_faults: u64 = nr_faults.values().sum();
    json!({
        "name": name, "began_ns": began_ns, "duration_ns": duration_ns, "rows": nr_rows, "kinds": kinds.collect::<Vec<_>>(), "changes": nr_changes, "faults_total": nr_faults,
        "cells": cells.iter().map(|row| row.iter().collect::<String>()).collect::<Vec<_>>(),
        "faults": joined(faults), "forks": forks, "nr_forks": nr_forks,
        "regions": regions.iter().map(|region| json!({
            "start": format!("{:#x}", region.start), "bytes": region.end - region.start, "row": region.first_row, "rows": region.nr_rows,
        })).collect::<Vec<_>>(),
    })
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
    use faultless_trace::{Call, CallEnter, CallExit, Event, EventKind, Fault, Side, Thread};

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
        assert!(space.to_string().len() < 200_000, "{}", space.to_string().len());
    }
}
