//! A snapshot as entries of a table: spaces, their areas, the areas' pages.
//!
//! # Guarantee
//! What was put is assembled equal; an entry is never larger than a table's block has room for, and entries that belong
//! to nothing are refused.
//!
//! An area belongs to the space before it, a list of runs to the area before it. `FORMAT.md` lists the fields.

use crate::snapshot::{Area, PageRun, PageState, Snapshot, SpaceState, Window};
use crate::varint::{Cursor, Decoded, Malformed, put, put_difference};

/// The runs of one entry are at most this many.
const RUNS_MOST: usize = 4096;
const PAGE: u64 = 4096;

/// One entry: what it holds has no parts of its own yet.
#[derive(Clone, Debug)]
pub(crate) enum SnapshotEntry {
    Space(SpaceState),
    Area(Area),
    Runs(Vec<PageRun>),
}

/// Returns a snapshot's entries, in order.
pub(crate) fn entries(snapshot: &Snapshot) -> Vec<SnapshotEntry> {
    let mut entries = Vec::new();
    for space in &snapshot.spaces {
        let (threads, heap) = (space.threads.clone(), space.heap.clone());
        let (joined_ns, window) = (space.joined_ns, space.window);
        entries.push(SnapshotEntry::Space(SpaceState { threads, heap, joined_ns, window, areas: Vec::new() }));
        for area in &space.areas {
            entries.push(SnapshotEntry::Area(Area { runs: Vec::new(), ..area.clone() }));
            entries.extend(area.runs.chunks(RUNS_MOST).map(|runs| SnapshotEntry::Runs(runs.to_vec())));
        }
    }
    entries
}

/// Puts entries together.
pub(crate) fn assemble(entries: Vec<SnapshotEntry>) -> Decoded<Snapshot> {
    let mut snapshot = Snapshot::default();
    for entry in entries {
        match entry {
            SnapshotEntry::Space(space) => snapshot.spaces.push(space),
            SnapshotEntry::Area(area) => snapshot.spaces.last_mut().ok_or(Malformed)?.areas.push(area),
            SnapshotEntry::Runs(runs) => {
                let area = snapshot.spaces.last_mut().and_then(|space| space.areas.last_mut());
                area.ok_or(Malformed)?.runs.extend(runs);
            }
        }
    }
    Ok(snapshot)
}

/// Appends one entry.
pub(crate) fn put_entry(out: &mut Vec<u8>, entry: &SnapshotEntry) {
    match entry {
        SnapshotEntry::Space(space) => put_space(out, space),
        SnapshotEntry::Area(area) => put_area(out, area),
        SnapshotEntry::Runs(runs) => put_runs(out, runs),
    }
}

fn put_space(out: &mut Vec<u8>, space: &SpaceState) {
    if space.is_late() {
        out.push(3);
        put(out, space.joined_ns);
    } else {
        out.push(0);
    }
    put(out, space.threads.len() as u64);
    space.threads.iter().for_each(|&thread| put(out, u64::from(thread)));
    put(out, space.heap.start);
    put_difference(out, space.heap.start, space.heap.end);
    put_window(out, space.window);
}

fn put_area(out: &mut Vec<u8>, area: &Area) {
    out.push(1);
    put(out, area.start);
    put_difference(out, area.start, area.end);
    put(out, u64::from(area.prot));
    put(out, u64::from(area.flags));
    put(out, area.file.map_or(0, |file| u64::from(file) + 1));
    put(out, area.file_offset);
    put_window(out, area.window);
}

/// Each run begins some pages behind the last one's end.
fn put_runs(out: &mut Vec<u8>, runs: &[PageRun]) {
    out.push(2);
    put(out, runs.len() as u64);
    let mut reached = 0;
    for run in runs {
        let page = run.start / PAGE;
        put_difference(out, reached, page);
        put(out, run.nr_pages);
        put(out, run.state as u64 * 2 + u64::from(run.is_huge));
        reached = page.wrapping_add(run.nr_pages);
    }
}

fn put_window(out: &mut Vec<u8>, window: Window) {
    put(out, window.began_ns);
    put_difference(out, window.began_ns, window.ended_ns);
}

/// Reads a block of entries.
pub(crate) fn decode_entries(bytes: &[u8]) -> Decoded<Vec<SnapshotEntry>> {
    let mut input = Cursor::new(bytes);
    let mut entries = Vec::new();
    while input.remaining() > 0 {
        entries.push(match input.byte()? {
            0 => SnapshotEntry::Space(space(&mut input, 0)?),
            3 => {
                let joined_ns = input.int()?;
                SnapshotEntry::Space(space(&mut input, joined_ns)?)
            }
            1 => SnapshotEntry::Area(area(&mut input)?),
            2 => SnapshotEntry::Runs(runs(&mut input)?),
            _ => return Err(Malformed),
        });
    }
    Ok(entries)
}

fn space(input: &mut Cursor<'_>, joined_ns: u64) -> Decoded<SpaceState> {
    let threads = counted(input, Cursor::int32)?;
    let start = input.int()?;
    let heap = start..input.difference(start)?;
    Ok(SpaceState { threads, heap, joined_ns, window: window(input)?, areas: Vec::new() })
}

fn area(input: &mut Cursor<'_>) -> Decoded<Area> {
    let start = input.int()?;
    Ok(Area {
        start,
        end: input.difference(start)?,
        prot: input.int32()?,
        flags: input.int32()?,
        file: match input.int()? {
            0 => None,
            file => Some(u32::try_from(file - 1).map_err(|_| Malformed)?),
        },
        file_offset: input.int()?,
        window: window(input)?,
        runs: Vec::new(),
    })
}

fn runs(input: &mut Cursor<'_>) -> Decoded<Vec<PageRun>> {
    let mut reached = 0u64;
    counted(input, |input| {
        let page = input.difference(reached)?;
        let nr_pages = input.int()?;
        let code = input.int()?;
        reached = page.wrapping_add(nr_pages);
        let state = usize::try_from(code / 2).ok().and_then(|place| PageState::ALL.get(place));
        let start = page.checked_mul(PAGE).ok_or(Malformed)?;
        Ok(PageRun { start, nr_pages, state: *state.ok_or(Malformed)?, is_huge: code % 2 == 1 })
    })
}

fn window(input: &mut Cursor<'_>) -> Decoded<Window> {
    let began_ns = input.int()?;
    Ok(Window { began_ns, ended_ns: input.difference(began_ns)? })
}

/// Reads items whose number stands before them; each takes at least one byte, so no number can make this allocate much.
fn counted<'a, T>(input: &mut Cursor<'a>, mut item: impl FnMut(&mut Cursor<'a>) -> Decoded<T>) -> Decoded<Vec<T>> {
    let count = input.int()?;
    if count > input.remaining() as u64 {
        return Err(Malformed);
    }
    (0..count).map(|_| item(input)).collect()
}
