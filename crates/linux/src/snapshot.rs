//! What stands in a running process's memory, read from outside while it runs.
//!
//! # Guarantee
//! Everything read is stamped with the time before and after; the process is not stopped and not changed.
//!
//! The list of areas is read first, then the pages of each area. What happens in between is in the recording, which has
//! begun before: [`faultless_trace::snapshot`] says how the two become one state.

use std::fs;
use std::io;
use std::ops::Range;

use faultless_trace::{PageRun, Window};

use crate::costs::now_ns;
use crate::pagemap::PageMap;
use crate::smaps::{self, Listed};
use crate::target::{Target, Unjoinable};

/// What stood in a process's memory. Times are the monotonic clock's.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) pid: u32,
    pub(crate) heap: Range<u64>,
    pub(crate) window: Window,
    pub(crate) areas: Vec<SeenArea>,
}

/// An area and its pages.
#[derive(Clone, Debug)]
pub(crate) struct SeenArea {
    pub(crate) listed: Listed,
    /// The file's size, if there is one that tells.
    pub(crate) size_bytes: Option<u64>,
    pub(crate) window: Window,
    pub(crate) runs: Vec<PageRun>,
}

/// Looks at a process.
pub(crate) fn look(target: &Target) -> Result<Seen, Unjoinable> {
    let failed = |what| move |error| Unjoinable::of(target.pid, what, error);
    let (text, window) =
        stamped(|| fs::read_to_string(format!("/proc/{}/smaps", target.pid))).map_err(failed("listing its memory"))?;
    let listed = smaps::parse(&text);
    let heap = heap_of(&listed, target.heap_start());
    let mut pages = PageMap::open(target.pid).map_err(failed("opening its page map"))?;
    let mut areas = Vec::with_capacity(listed.len());
    for listed in listed {
        let (runs, window) = stamped(|| pages.scan(listed.range.clone())).map_err(failed("scanning its page map"))?;
        let size_bytes = size_of(target.pid, &listed);
        areas.push(SeenArea { listed, size_bytes, window, runs });
    }
    Ok(Seen { pid: target.pid as u32, heap, window, areas })
}

/// Does something between two looks at the clock.
fn stamped<T>(act: impl FnOnce() -> io::Result<T>) -> io::Result<(T, Window)> {
    let began_ns = now_ns();
    let done = act()?;
    Ok((done, Window { began_ns, ended_ns: now_ns() }))
}

/// Returns where the heap begins and, as far as areas tell, where it ends.
fn heap_of(areas: &[Listed], start: Option<u64>) -> Range<u64> {
    let Some(start) = start else { return 0..0 };
    let heaps = areas.iter().filter(|area| area.path == "[heap]");
    let end = heaps.map(|area| area.range.end).max().unwrap_or(start);
    start..end.max(start)
}

fn size_of(pid: i32, area: &Listed) -> Option<u64> {
    if area.inode == 0 {
        return None;
    }
    let Range { start, end } = area.range;
    fs::metadata(format!("/proc/{pid}/map_files/{start:x}-{end:x}")).ok().map(|found| found.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleeping_child_is_seen_with_its_heap_its_stack_and_its_files() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("sleep exists");
        let target = Target::find(child.id() as i32).expect("it is ours");
        let mut seen = look(&target).expect("it is ours");
        // On a busy machine it takes a while to come as far as to its first malloc.
        for _ in 0..100 {
            if seen.heap.start < seen.heap.end {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
            seen = look(&target).expect("it is ours");
        }
        child.kill().expect("it runs");
        child.wait().expect("it is ours");
        let named = |name: &'static str| seen.areas.iter().filter(move |area| area.listed.path.ends_with(name));
        assert_eq!(named("[stack]").count(), 1);
        assert!(named("[stack]").all(|area| area.listed.flags & faultless_trace::Area::GROWS_DOWN != 0));
        assert!(named("sleep").all(|area| area.size_bytes.is_some_and(|bytes| bytes > 0)));
        assert!(seen.heap.start < seen.heap.end, "{:x?}", seen.heap);
        assert!(seen.areas.iter().all(|area| area.window.began_ns >= seen.window.ended_ns));
        assert!(named("[heap]").flat_map(|area| &area.runs).count() > 0, "malloc was used");
    }
}
