//! The beginning of a story that joins running processes: its threads, and what stood in their memory.
//!
//! # Guarantee
//! [`Company::snapshot`] makes the same snapshot, with the same file indices, each time that it is asked.

use faultless_trace::{Area, SpaceState, ThreadIndex, Window};

use crate::files::FileTable;
use crate::joining::Joined;
use crate::numbers;
use crate::smaps::Listed;
use crate::snapshot::{Seen, SeenArea};

/// Who was joined, and what was seen of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Company {
    pub(crate) joined: Joined,
    pub(crate) seen: Vec<Seen>,
}

impl Company {
    /// Returns what stood in the memory of each process; the files behind it are entered into the table.
    pub(crate) fn snapshot(&self, files: &mut FileTable) -> Vec<SpaceState> {
        self.seen.iter().map(|seen| self.space(seen, files)).collect()
    }

    /// Returns the monotonic time when the last part of memory had been read.
    pub(crate) fn looked_until_ns(&self) -> u64 {
        let areas = self.seen.iter().flat_map(|seen| &seen.areas);
        let windows = self.seen.iter().map(|seen| seen.window).chain(areas.map(|area| area.window));
        windows.map(|window| window.ended_ns).max().unwrap_or(0)
    }

    /// Returns whether a thread's process runs a program of 32 bits.
    pub(crate) fn is_foreign(&self, pid: u32) -> bool {
        self.seen.iter().any(|seen| seen.pid == pid && is_foreign(seen))
    }

    fn space(&self, seen: &Seen, files: &mut FileTable) -> SpaceState {
        let members = self.joined.members.iter().enumerate();
        let threads = members.filter(|(_, member)| member.pid == seen.pid).map(|(place, _)| place as ThreadIndex);
        SpaceState {
            threads: threads.collect(),
            heap: seen.heap.clone(),
            window: self.since_beginning(seen.window),
            areas: seen.areas.iter().map(|area| self.area(area, files)).collect(),
        }
    }

    fn area(&self, area: &SeenArea, files: &mut FileTable) -> Area {
        let listed = &area.listed;
        let file = files.index_of_listed(listed, area.size_bytes);
        Area {
            start: listed.range.start,
            end: listed.range.end,
            prot: listed.prot,
            flags: listed.flags,
            file,
            file_offset: if file.is_some() { listed.file_offset } else { 0 },
            window: self.since_beginning(area.window),
            runs: clipped(area),
        }
    }

    fn since_beginning(&self, window: Window) -> Window {
        let since = |time_ns: u64| time_ns.saturating_sub(self.joined.began_ns);
        Window { began_ns: since(window.began_ns), ended_ns: since(window.ended_ns) }
    }
}

/// Returns whether the process runs a program of 32 bits.
fn is_foreign(seen: &Seen) -> bool {
    let is_foreign_vdso = |area: &Listed| numbers::is_foreign_vdso(&area.path, area.range.start);
    seen.areas.iter().any(|area| is_foreign_vdso(&area.listed))
}

/// Returns the area's runs, which end where it does.
fn clipped(area: &SeenArea) -> Vec<faultless_trace::PageRun> {
    let range = &area.listed.range;
    area.runs.iter().filter(|run| run.start >= range.start && run.range().end <= range.end).copied().collect()
}
