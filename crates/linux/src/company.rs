//! The beginning of a recording that joins running processes: its threads, and what stood in their memory; and the same
//! of each process that was joined later.
//!
//! # Guarantee
//! [`Company::snapshot`] makes the same snapshot, with the same file indices, each time that it is asked, also of what
//! [`Company::recalled`] made of [`Company::head`] and [`Company::notes`].

use std::collections::HashSet;

use faultless_trace::{Area, Header, Snapshot, SpaceState, Thread, ThreadIndex, Trace, Window};

use crate::files::FileTable;
use crate::joining::{Joined, Member};
use crate::numbers;
use crate::smaps::Listed;
use crate::snapshot::{Seen, SeenArea};

/// Who was joined, and what was seen of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Company {
    pub(crate) joined: Joined,
    pub(crate) seen: Vec<Seen>,
    /// Who was joined after the recording's begin, in order.
    pub(crate) late: Vec<Self>,
}

impl Company {
    /// Returns a trace without events that holds the threads and what stood in their memory.
    pub(crate) fn head(&self, header: &Header) -> Trace {
        let mut files = FileTable::default();
        let snapshot = Snapshot { spaces: self.snapshot(&mut files, self.joined.began_ns, 0) };
        let thread = |member: &Member| Thread { pid: member.pid, tid: member.tid, name: member.name.clone() };
        Trace {
            header: header.clone(),
            threads: self.joined.members.iter().map(thread).collect(),
            files: files.files().to_vec(),
            snapshot,
            ..Trace::default()
        }
    }

    /// Returns what else is known, a line each.
    pub(crate) fn notes(&self) -> String {
        let Joined { began_ns, complete_ns, open_ns, owners, inside, .. } = &self.joined;
        let mut notes = format!("began {began_ns}\ncomplete {complete_ns}\nopen {open_ns}\n");
        let foreign = self.seen.iter().filter(|seen| is_foreign(seen));
        notes.extend(foreign.map(|seen| format!("foreign {}\n", seen.pid)));
        notes.extend(owners.iter().map(|(event, tid)| format!("owner {event} {tid}\n")));
        for (tid, (number, [a, b, c, d, e, f])) in inside {
            notes.push_str(&format!("inside {tid} {number} {a} {b} {c} {d} {e} {f}\n"));
        }
        notes
    }

    /// Returns the company of such a head and such notes.
    pub(crate) fn recalled(head: &Trace, notes: &str) -> Option<Self> {
        let (joined, foreign) = joined_of(head, notes)?;
        let began_ns = joined.began_ns;
        let seen = |space: &SpaceState| {
            let pid = head.threads.get(*space.threads.first()? as usize)?.pid;
            let mut areas: Vec<_> = space.areas.iter().map(|area| seen_area(head, area, began_ns)).collect();
            areas.extend(foreign.contains(&pid).then(foreign_vdso));
            Some(Seen { pid, heap: space.heap.clone(), window: since_boot(space.window, began_ns), areas })
        };
        let seen = head.snapshot.spaces.iter().map(seen).collect::<Option<_>>()?;
        Some(Self { joined, seen, late: Vec::new() })
    }

    /// Returns what stood in the memory of each process; the files behind it are entered into the table. Times are
    /// counted from the recording's begin, and the company's first thread has this index.
    pub(crate) fn snapshot(&self, files: &mut FileTable, since_ns: u64, first: ThreadIndex) -> Vec<SpaceState> {
        self.seen.iter().map(|seen| self.space(seen, files, since_ns, first)).collect()
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

    fn space(&self, seen: &Seen, files: &mut FileTable, since_ns: u64, first: ThreadIndex) -> SpaceState {
        let members = self.joined.members.iter().zip(first..);
        let threads = members.filter(|(member, _)| member.pid == seen.pid).map(|(_, thread)| thread);
        let areas = seen.areas.iter().filter(|area| !area.listed.range.is_empty());
        SpaceState {
            threads: threads.collect(),
            heap: seen.heap.clone(),
            joined_ns: self.joined.began_ns.saturating_sub(since_ns),
            window: since(seen.window, since_ns),
            areas: areas.map(|area| area_of(area, files, since_ns)).collect(),
        }
    }
}

fn area_of(area: &SeenArea, files: &mut FileTable, since_ns: u64) -> Area {
    let listed = &area.listed;
    let file = files.index_of_listed(listed, area.size_bytes);
    Area {
        start: listed.range.start,
        end: listed.range.end,
        prot: listed.prot,
        flags: listed.flags,
        file,
        file_offset: if file.is_some() { listed.file_offset } else { 0 },
        window: since(area.window, since_ns),
        runs: clipped(area),
    }
}

fn since(window: Window, since_ns: u64) -> Window {
    let since = |time_ns: u64| time_ns.saturating_sub(since_ns);
    Window { began_ns: since(window.began_ns), ended_ns: since(window.ended_ns) }
}

/// Reads who was joined, and the processes that run programs of 32 bits.
fn joined_of(head: &Trace, notes: &str) -> Option<(Joined, HashSet<u32>)> {
    let member = |thread: &Thread| Member { pid: thread.pid, tid: thread.tid, name: thread.name.clone() };
    let mut joined = Joined { members: head.threads.iter().map(member).collect(), ..Joined::default() };
    let mut foreign = HashSet::new();
    for line in notes.lines() {
        let (name, numbers) = line.split_once(' ')?;
        let numbers: Vec<u64> = numbers.split(' ').map(|number| number.parse().ok()).collect::<Option<_>>()?;
        match (name, &numbers[..]) {
            ("began", &[time_ns]) => joined.began_ns = time_ns,
            ("complete", &[time_ns]) => joined.complete_ns = time_ns,
            ("open", &[time_ns]) => joined.open_ns = time_ns,
            ("foreign", &[pid]) => {
                foreign.insert(pid as u32);
            }
            ("owner", &[event, tid]) => {
                joined.owners.insert(event, tid as u32);
            }
            ("inside", &[tid, number, ref args @ ..]) => {
                joined.inside.insert(tid as u32, (number as i64, args.try_into().ok()?));
            }
            _ => return None,
        }
    }
    (joined.began_ns != 0).then_some((joined, foreign))
}

fn seen_area(head: &Trace, area: &Area, began_ns: u64) -> SeenArea {
    let file = area.file.and_then(|file| head.files.get(file as usize)).cloned().unwrap_or_default();
    let listed = Listed {
        range: area.start..area.end,
        prot: area.prot,
        flags: area.flags,
        file_offset: area.file_offset,
        major: file.major,
        minor: file.minor,
        inode: file.inode,
        path: file.path,
    };
    let window = since_boot(area.window, began_ns);
    SeenArea { listed, size_bytes: file.size_bytes, window, runs: area.runs.clone() }
}

/// Returns what a process of 32 bits is known by, as an area of no size.
fn foreign_vdso() -> SeenArea {
    let listed = Listed { path: "[vdso]".into(), ..Listed::default() };
    SeenArea { listed, size_bytes: None, window: Window::default(), runs: Vec::new() }
}

fn since_boot(window: Window, began_ns: u64) -> Window {
    Window { began_ns: window.began_ns + began_ns, ended_ns: window.ended_ns + began_ns }
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

#[cfg(test)]
mod tests {
    use faultless_trace::{PageRun, PageState};

    use super::*;

    fn company() -> Company {
        let member = |pid, tid| Member { pid, tid, name: format!("thread {tid}") };
        let joined = Joined {
            open_ns: 3_000,
            complete_ns: 4_000,
            began_ns: 5_000,
            members: vec![member(7, 7), member(7, 8), member(9, 9)],
            owners: [(100, 7), (101, 8)].into_iter().collect(),
            inside: [(8, (28, [1 << 40, 4096, 23, 0, 0, 5]))].into_iter().collect(),
        };
        let area = |start: u64, inode, path: &str| SeenArea {
            listed: Listed {
                range: start << 12..(start + 4) << 12,
                prot: 3,
                flags: Area::ACCOUNTED,
                file_offset: if inode > 0 { 8192 } else { 0 },
                major: 8,
                minor: 1,
                inode,
                path: path.into(),
            },
            size_bytes: (inode > 0).then_some(99),
            window: Window { began_ns: 6_000, ended_ns: 6_500 },
            runs: vec![PageRun { start: start << 12, nr_pages: 2, state: PageState::Own, is_huge: false }],
        };
        let window = Window { began_ns: 5_500, ended_ns: 5_600 };
        let seen = |pid, areas| Seen { pid, heap: 0x1000..0x3000, window, areas };
        let areas = vec![area(16, 3, "/lib/x"), area(32, 0, ""), area(48, 0, "[vdso]")];
        let seen = vec![seen(7, areas), seen(9, vec![area(16, 3, "/lib/x"), area(64, 4, "/lib/y")])];
        Company { joined, seen, late: Vec::new() }
    }

    #[test]
    fn what_is_recalled_is_the_same() {
        let company = company();
        let recalled = Company::recalled(&company.head(&Header::default()), &company.notes()).expect("it is whole");
        let tables = |company: &Company| {
            let mut files = FileTable::default();
            (company.snapshot(&mut files, 1_000, 7), files.files().to_vec())
        };
        assert_eq!(tables(&recalled), tables(&company));
        let parts = |company: &Company| {
            let Joined { open_ns, complete_ns, began_ns, members, owners, inside } = company.joined.clone();
            (open_ns, complete_ns, began_ns, members, owners, inside)
        };
        assert_eq!(parts(&recalled), parts(&company));
        assert_eq!(recalled.looked_until_ns(), company.looked_until_ns());
        assert_eq!([7, 9].map(|pid| recalled.is_foreign(pid)), [true, false]);
    }

    #[test]
    fn notes_that_make_no_sense_are_refused() {
        let head = company().head(&Header::default());
        for notes in ["", "began", "began x", "owner 1", "began 5\ninside 1 2 3", "began 5\nother 1"] {
            assert!(Company::recalled(&head, notes).is_none(), "{notes}");
        }
    }
}
