//! Whether all faults on two pages follow from the calls, forks and faults before them.
//!
//! # Guarantee
//! [`follow_if_moved`] says yes only if Linux could have shown each fault on the two pages, in each process, with one
//! fault moved from the first to the second; and if the same holds for the trace as it is, so that these rules
//! understand the pages. The planner's model has no part in it.
//!
//! # Rules
//! Of each page it is known in which of three states its entry may be: absent, readable, writable.
//! * An access finds the page absent, or is a store that finds it readable; a store leaves it writable, a load of
//!   private memory readable.
//! * A fork leaves private memory readable in both processes. A child gets no page of a shared mapping, nor of a file's
//!   private mapping into which nobody stored (mm/memory.c, `vma_needs_copy`).
//! * A fault on a file's page, or on shared memory, may map others of its table and mapping (mm/memory.c, fault-around
//!   and large folios).
//! * What unmaps, maps over or drops a page leaves nothing there. After a call that fills or protects pages more than
//!   one state is possible. A page that was moved, guarded or kept from a child is not understood.

use std::collections::BTreeMap;
use std::ops::Range;

use faultless_abi::{MapFlags, Prot, advice_of};
use faultless_trace::{Call, CallEnter, CloneTask, EventKind, Fault, Mapped, Trace};
use faultless_vm::{Advice, PAGE};

use super::sight::{Act, Deed, is_error, made, named, overlaps};

const TABLE: u64 = 512 * PAGE;
/// `MAP_LOCKED` and `MAP_POPULATE`.
const FILLING: MapFlags = MapFlags::LOCKED.union(MapFlags::POPULATE);

/// States, one bit each.
const ABSENT: u8 = 1;
const READABLE: u8 = 2;
const WRITABLE: u8 = 4;
const ANY: u8 = ABSENT | READABLE | WRITABLE;

/// What a page belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Kind {
    #[default]
    Unmapped,
    Anonymous,
    /// A file's private mapping, and whether somebody stored into it.
    File {
        range: Range<u64>,
        was_stored: bool,
    },
    Shared {
        range: Range<u64>,
    },
}

impl Kind {
    /// Notes that something else is mapped in a range: the mapping keeps what is on a page's side of it.
    fn lose(&mut self, lost: &Range<u64>, page: u64) {
        let (Self::File { range, .. } | Self::Shared { range }) = self else { return };
        match lost.start > page {
            true => range.end = range.end.min(lost.start),
            false if lost.end <= page => range.start = range.start.max(lost.end),
            false => {}
        }
    }
}

/// A page in a process.
#[derive(Clone, Debug, Default)]
struct Spot {
    kind: Kind,
    /// The states that its entry may be in.
    states: u8,
}

/// Two pages in a row, in each process that was seen to begin its program or to be made.
struct Pages {
    start: u64,
    by_pid: BTreeMap<u32, [Spot; 2]>,
    /// Who borrowed whose memory by vfork.
    borrowed: BTreeMap<u32, u32>,
}

/// Why the walk ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// A fault does not follow.
    Contradiction,
    /// These rules do not cover what happened.
    NotUnderstood,
}

/// Returns whether all faults on a page and the next one follow from what came before, whether or not the fault at a
/// place moves from the first to the second.
pub(super) fn follow_if_moved(trace: &Trace, acts: &[Act], place: usize, page: u64) -> bool {
    walk(trace, acts, page, None).is_ok() && walk(trace, acts, page, Some(place)).is_ok()
}

/// Returns whether all faults on a page and the next one follow from what came before.
pub(super) fn follow(trace: &Trace, acts: &[Act], page: u64) -> bool {
    walk(trace, acts, page, None).is_ok()
}

fn walk(trace: &Trace, acts: &[Act], page: u64, moved: Option<usize>) -> Result<(), End> {
    let mut pages = Pages { start: page, by_pid: BTreeMap::new(), borrowed: BTreeMap::new() };
    acts.iter().try_for_each(|act| pages.take(trace, act, moved))
}

impl Pages {
    fn take(&mut self, trace: &Trace, act: &Act, moved: Option<usize>) -> Result<(), End> {
        match act.deed {
            Deed::Exec => {
                self.borrowed.remove(&act.pid);
                self.by_pid.insert(act.pid, <[Spot; 2]>::default());
            }
            Deed::Fork(child) => self.fork(act.pid, child, clone_flags(trace, act.ended)),
            Deed::Told(mapped) => {
                self.map(act.pid, &(mapped.start..mapped.start + mapped.len_bytes), told(&mapped), ANY)
            }
            Deed::Break { before, after } => {
                self.map(act.pid, &(before..after), |_| Kind::Anonymous, ABSENT);
                self.map(act.pid, &(after..before), |_| Kind::Unmapped, ABSENT);
            }
            Deed::Call(enter, result) if !is_error(result) => return self.call(act.pid, &enter, result as u64),
            Deed::Call(..) => {}
            Deed::Fault(fault) => {
                let address = if moved == Some(act.ended) { fault.address + PAGE } else { fault.address };
                return self.fault(act.pid, &fault, address);
            }
        }
        Ok(())
    }

    /// Returns a process's pages.
    fn of(&mut self, pid: u32) -> &mut [Spot; 2] {
        let pid = self.borrowed.get(&pid).copied().unwrap_or(pid);
        self.by_pid.entry(pid).or_default()
    }

    fn page(&self, number: usize) -> Range<u64> {
        let start = self.start + number as u64 * PAGE;
        start..start + PAGE
    }

    /// Changes the pages of a range.
    fn each(&mut self, pid: u32, range: &Range<u64>, change: impl Fn(&mut Spot)) {
        let pages = [self.page(0), self.page(1)];
        let spots = self.of(pid).iter_mut().zip(pages);
        spots.filter(|(_, page)| overlaps(page, range)).for_each(|(spot, _)| change(spot));
    }

    fn map(&mut self, pid: u32, range: &Range<u64>, kind: impl Fn(Range<u64>) -> Kind, states: u8) {
        let pages = [self.page(0), self.page(1)];
        self.of(pid).iter_mut().zip(pages).for_each(|(spot, page)| spot.kind.lose(range, page.start));
        self.each(pid, range, |spot| *spot = Spot { kind: kind(range.clone()), states });
    }

    fn fork(&mut self, parent: u32, child: u32, flags: u64) {
        if flags & CloneTask::VM != 0 {
            let owner = self.borrowed.get(&parent).copied().unwrap_or(parent);
            self.borrowed.insert(child, owner);
            return;
        }
        let mut copies = <[Spot; 2]>::default();
        for (copy, spot) in copies.iter_mut().zip(self.of(parent)) {
            let is_copied = matches!(spot.kind, Kind::Anonymous | Kind::File { was_stored: true, .. });
            if is_copied && spot.states & WRITABLE != 0 {
                spot.states = spot.states & !WRITABLE | READABLE;
            }
            *copy = spot.clone();
            if !is_copied {
                copy.states = ABSENT;
            }
        }
        self.by_pid.insert(child, copies);
    }

    fn call(&mut self, pid: u32, enter: &CallEnter, result: u64) -> Result<(), End> {
        let whole = self.start..self.start + 2 * PAGE;
        let is_met = |range: &Option<Range<u64>>| range.as_ref().is_some_and(|range| overlaps(range, &whole));
        let (old, new) = (named(enter), made(enter, result));
        let [_, _, third, fourth, ..] = enter.args;
        let (flags, advice) = (MapFlags::from_bits_retain(fourth), advice_of(third as u32));
        match (enter.call, old.clone(), new.clone()) {
            (Call::Mmap, _, Some(new)) => {
                let kind =
                    |range: Range<u64>| match (flags.contains(MapFlags::SHARED), flags.contains(MapFlags::ANONYMOUS)) {
                        (true, _) => Kind::Shared { range },
                        (false, true) => Kind::Anonymous,
                        (false, false) => Kind::File { range, was_stored: false },
                    };
                self.map(pid, &new, kind, if flags.intersects(FILLING) { ANY } else { ABSENT });
            }
            (Call::Munmap, Some(old), _) => self.map(pid, &old, |_| Kind::Unmapped, ABSENT),
            (Call::Mprotect | Call::PkeyMprotect, Some(old), _) => self.each(pid, &old, |spot| {
                if spot.states & (READABLE | WRITABLE) != 0 {
                    let may_store = if Prot::from_bits_retain(third).contains(Prot::WRITE) { WRITABLE } else { 0 };
                    spot.states = spot.states & ABSENT | READABLE | may_store;
                }
            }),
            (Call::Madvise, Some(old), _) if matches!(advice, Some(Advice::DontNeed | Advice::DontNeedLocked)) => {
                self.each(pid, &old, |spot| spot.states = ABSENT);
            }
            (Call::Madvise, Some(old), _) if advice == Some(Advice::Free) => {
                self.each(pid, &old, |spot| spot.states |= ABSENT)
            }
            (Call::Madvise, Some(_), _) if advice.is_some_and(is_unchanging) => {}
            (Call::Munlock | Call::Msync | Call::Mincore, ..) => {}
            (Call::Mlock | Call::Mlock2, Some(old), _) => self.each(pid, &old, |spot| spot.states = ANY),
            (Call::Mlockall, ..) => self.each(pid, &(0..u64::MAX), |spot| spot.states = ANY),
            _ if is_met(&old) || is_met(&new) && enter.call != Call::Brk => return Err(End::NotUnderstood),
            _ => {}
        }
        Ok(())
    }

    fn fault(&mut self, pid: u32, fault: &Fault, address: u64) -> Result<(), End> {
        let is_store = fault.error_code & Fault::WRITE != 0;
        let at = [0, 1].into_iter().find(|&number| self.page(number).contains(&address));
        let pages = [self.page(0), self.page(1)];
        let spots = self.of(pid);
        if is_store {
            spots.iter_mut().for_each(|spot| note_store(spot, address));
        }
        if let Some(number) = at {
            spots[number].fault(fault, is_store)?;
        }
        for (number, spot) in spots.iter_mut().enumerate().filter(|(number, _)| Some(*number) != at) {
            let is_beside = match &spot.kind {
                Kind::File { range, .. } | Kind::Shared { range } => range.contains(&address),
                _ => false,
            };
            if is_beside && address / TABLE == pages[number].start / TABLE && spot.states & ABSENT != 0 {
                spot.states |= READABLE;
            }
        }
        Ok(())
    }
}

impl Spot {
    fn fault(&mut self, fault: &Fault, is_store: bool) -> Result<(), End> {
        let found = match (&self.kind, fault.is_present(), is_store) {
            (Kind::Unmapped, ..) | (_, true, false) => return Err(End::NotUnderstood),
            (_, false, _) => ABSENT,
            (_, true, true) => READABLE,
        };
        if self.states & found == 0 {
            return Err(End::Contradiction);
        }
        self.states = match (&self.kind, is_store) {
            (_, true) => WRITABLE,
            (Kind::Shared { .. }, false) => READABLE | WRITABLE,
            (_, false) => READABLE,
        };
        Ok(())
    }
}

/// Notes a store into a file's private mapping: its children get copies.
fn note_store(spot: &mut Spot, address: u64) {
    if let Kind::File { range, was_stored } = &mut spot.kind
        && range.contains(&address)
    {
        *was_stored = true;
    }
}

/// Returns whether a page is found after the advice as before.
pub(super) fn is_unchanging(advice: Advice) -> bool {
    use Advice::{
        Cold, DoDump, DontDump, HugePage, Mergeable, NoHugePage, Normal, PageOut, Random, Sequential, WillNeed,
    };
    let is_hint = matches!(advice, Normal | Random | Sequential | WillNeed | HugePage | NoHugePage | Cold | PageOut);
    is_hint || matches!(advice, DontDump | DoDump | Mergeable)
}

fn told(mapped: &Mapped) -> impl Fn(Range<u64>) -> Kind {
    // What the kernel maps of its own, and lets nobody store to, is not copied at a fork either (the vDSO).
    let is_special = !Prot::from_bits_retain(mapped.prot.into()).contains(Prot::WRITE);
    let is_file = mapped.file.is_some() || is_special;
    let is_shared = MapFlags::from_bits_retain(mapped.flags.into()).contains(MapFlags::SHARED);
    move |range| match (is_file, is_shared) {
        (_, true) => Kind::Shared { range },
        (true, false) => Kind::File { range, was_stored: false },
        (false, false) => Kind::Anonymous,
    }
}

fn clone_flags(trace: &Trace, place: usize) -> u64 {
    match trace.events[place].kind {
        EventKind::Clone(clone) => clone.flags,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::super::sight::acts;
    use super::*;
    use crate::heap::{HEAP, begun, page};
    use crate::story::{READ, Story, WRITE, WRITE_PRESENT};

    fn may_move(story: &Story, place: u32) -> bool {
        let trace = story.done();
        let EventKind::Fault(fault) = trace.events[place as usize].kind else { panic!("it is a fault") };
        follow_if_moved(&trace, &acts(&trace), place as usize, fault.address / PAGE * PAGE)
    }

    #[test]
    fn a_copy_on_write_may_be_of_the_next_page_if_that_was_copied_too() {
        for (is_next_there, stores_later, expected) in [(true, false, true), (false, false, false), (true, true, false)]
        {
            let mut story = begun(3);
            story.fault(0, page(2), WRITE);
            if is_next_there {
                story.fault(0, page(3), WRITE);
            }
            story.clone_task(0, 1, 0);
            let copied = story.fault(1, page(2), WRITE_PRESENT);
            story.fault(0, page(2), WRITE_PRESENT);
            if stores_later {
                story.fault(1, page(3), WRITE_PRESENT);
            }
            assert_eq!(may_move(&story, copied), expected, "{is_next_there}, {stores_later}");
        }
    }

    #[test]
    fn a_second_copy_of_a_page_needs_another_fork() {
        for (is_forked_again, expected) in [(true, true), (false, false)] {
            let mut story = begun(3);
            story.fault(0, page(2), WRITE);
            story.fault(0, page(3), WRITE);
            story.clone_task(0, 1, 0);
            let copied = story.fault(0, page(2), WRITE_PRESENT);
            if is_forked_again {
                story.clone_task(0, 2, 0);
            }
            story.fault(0, page(3), WRITE_PRESENT);
            assert_eq!(may_move(&story, copied), expected);
        }
    }

    #[test]
    fn a_child_gets_no_page_of_a_file_into_which_nobody_stored() {
        for (is_stored, expected) in [(false, true), (true, false)] {
            let mut story = begun(3);
            let file = story.file("/lib");
            story.map_file(0, page(1024), 8, 3, file);
            story.fault(0, page(1025), READ);
            if is_stored {
                story.fault(0, page(1027), WRITE);
                story.fault(0, page(1026), WRITE);
            }
            story.clone_task(0, 1, 0);
            let loaded = story.fault(1, page(1025), if is_stored { WRITE_PRESENT } else { READ });
            story.fault(1, page(1026), WRITE_PRESENT);
            assert_eq!(may_move(&story, loaded), expected);
        }
    }

    #[test]
    fn a_store_into_what_is_mapped_over_a_file_is_none_into_the_file() {
        for (over, expected) in [(page(1028), true), (page(1030), false)] {
            let mut story = begun(3);
            let file = story.file("/lib");
            story.map_file(0, page(1024), 8, 1, file);
            story.call(0, Call::Mmap, [over, 2 * PAGE, 3, 0x32, u64::MAX, 0], over as i64);
            let loaded = story.fault(0, page(1025), READ);
            story.fault(0, page(1028), WRITE);
            story.clone_task(0, 1, 0);
            story.fault(1, page(1025), READ);
            assert_eq!(may_move(&story, loaded), expected, "over {over:#x}");
        }
    }

    #[test]
    fn a_child_gets_no_page_of_what_the_kernel_mapped_of_its_own() {
        for (prot, expected) in [(5, true), (3, false)] {
            let mut story = begun(3);
            let start = page(1024);
            let vdso = Mapped { start, len_bytes: 2 * PAGE, file_offset: 0, prot, flags: 2, file: None };
            story.push(0, EventKind::Mapped(vdso));
            let loaded = story.fault(0, page(1024), READ);
            story.clone_task(0, 1, 0);
            story.fault(1, page(1024), READ);
            assert_eq!(may_move(&story, loaded), expected);
        }
    }

    #[test]
    fn shared_memory_is_stored_to_once() {
        let mut story = begun(3);
        story.call(0, Call::Mmap, [0, 8 * PAGE, 3, 0x21, u64::MAX, 0], page(1024) as i64);
        let first = story.fault(0, page(1024), WRITE);
        assert!(may_move(&story, first));
        story.fault(0, page(1025), WRITE);
        assert!(!may_move(&story, first));
    }

    #[test]
    fn a_page_that_moved_is_not_understood() {
        let mut story = begun(3);
        let place = story.fault(0, page(2), WRITE);
        assert!(may_move(&story, place));
        story.call(0, Call::Mremap, [HEAP, 8 * PAGE, 16 * PAGE, 1, 0, 0], page(1024) as i64);
        assert!(!may_move(&story, place));
    }
}
