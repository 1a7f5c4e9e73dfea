//! Whether a program could see that its trace was damaged in one place.
//!
//! # Guarantee
//! An answer "nothing shows it" means that the damaged trace, too, is what a program could have done under Linux, so
//! that no replay can tell the two apart. It rests on the events of the undamaged trace alone. The planner's model has
//! no part in it, so that what the planner overlooks is not excused.
//!
//! # Rules
//! The memory in question is followed from the place on, into the children that get a copy and to wherever `mremap`
//! moves it, until it is unmapped, mapped over or emptied.
//! * A munmap, or a call with another result: no event is about the range before it is gone.
//! * A fault moved to the next page: no fault was on the next page since that became empty, and none comes on either
//!   page before it is gone; or all faults on the two pages in all processes follow from the calls, forks and faults
//!   before them with the fault in its new place as well ([`entries`](super::entries)). The program could have touched
//!   the next page instead. After a load of a file's page faults may come that find the pages there: Linux maps
//!   neighbours with it, at least those in the page's block of 64 KiB, so a load of either page may have mapped both.
//! * A store on an absent page turned into a load: the page's next fault is a store that finds it present, as after a
//!   load, or there is none. A load turned into a store: the page has no other fault.
//! * Two calls swapped: see [`swaps`](super::swaps).

use std::collections::BTreeMap;
use std::ops::Range;

use faultless_abi::{Errno, MapFlags, RemapFlags, advice_of};
use faultless_trace::{Call, CallEnter, EventKind, Fault, Mapped, Trace};
use faultless_vm::{Advice, PAGE};

/// What a later event does to a range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// It depends on what is there.
    Shows,
    /// It is the same whatever is there, and ends what was there.
    Ends,
}

/// What a process did.
#[derive(Clone, Copy, Debug)]
pub(super) enum Deed {
    Fault(Fault),
    /// A call and its result.
    Call(CallEnter, i64),
    /// It moved the end of its heap, whose pages between the two come or go.
    Break {
        before: u64,
        after: u64,
    },
    /// It made a child of this number that has a copy of its memory.
    Fork(u32),
    /// It began a new program.
    Exec,
    /// The kernel mapped this by itself, outside of any call.
    Told(Mapped),
}

/// One thing that a thread did.
#[derive(Clone, Copy, Debug)]
pub(super) struct Act {
    pub(super) thread: u32,
    /// The thread's process.
    pub(super) pid: u32,
    /// The places of its first and of its last event.
    pub(super) began: usize,
    pub(super) ended: usize,
    pub(super) deed: Deed,
}

/// Returns what all threads did, in the order in which it ended. A call that never returned is left out, and so is a
/// process's first break, which only tells where its heap ends.
pub(super) fn acts(trace: &Trace) -> Vec<Act> {
    let pid = |thread: u32| trace.threads[thread as usize].pid;
    let mut open = BTreeMap::<u32, (usize, CallEnter)>::new();
    let mut breaks = BTreeMap::<u32, u64>::new();
    let act = |(ended, event): (usize, &faultless_trace::Event)| {
        let thread = event.thread;
        let whole = |began, deed| Some(Act { thread, pid: pid(thread), began, ended, deed });
        match event.kind {
            EventKind::Fault(fault) => whole(ended, Deed::Fault(fault)),
            EventKind::CallEnter(enter) => {
                open.insert(thread, (ended, enter));
                None
            }
            EventKind::CallExit(exit) => {
                let (began, enter) = open.remove(&thread)?;
                if enter.call == Call::Brk {
                    let after = page_ceil(exit.result as u64);
                    let before = breaks.insert(pid(thread), after)?;
                    return whole(began, Deed::Break { before, after });
                }
                whole(began, Deed::Call(enter, exit.result))
            }
            EventKind::Clone(clone) if pid(clone.child) != pid(thread) => {
                let copied = breaks.get(&pid(thread)).copied();
                copied.map(|copied| breaks.insert(pid(clone.child), copied));
                whole(ended, Deed::Fork(pid(clone.child)))
            }
            EventKind::Exec => {
                breaks.remove(&pid(thread));
                whole(ended, Deed::Exec)
            }
            EventKind::Mapped(mapped) if !open.contains_key(&thread) => whole(ended, Deed::Told(mapped)),
            _ => None,
        }
    };
    trace.events.iter().enumerate().filter_map(act).collect()
}

/// Returns what was done behind a place, the call that is entered there left out.
fn later<'a>(acts: &'a [Act], trace: &Trace, place: usize) -> impl Iterator<Item = &'a Act> {
    let thread = trace.events[place].thread;
    let is_damaged = move |act: &Act| act.thread == thread && (act.began == place || act.ended == place);
    acts.iter().filter(move |act| act.ended > place && !is_damaged(act))
}

/// Where the memory in question is, in each process that has it.
struct Followed {
    by_pid: BTreeMap<u32, Vec<Range<u64>>>,
}

impl Followed {
    fn new(pid: u32, range: Range<u64>) -> Self {
        Self { by_pid: BTreeMap::from([(pid, vec![range])]) }
    }

    fn is_gone(&self) -> bool {
        self.by_pid.values().all(Vec::is_empty)
    }

    /// Returns whether a process has some of it in a range.
    fn meets(&self, pid: u32, range: &Range<u64>) -> bool {
        self.by_pid.get(&pid).is_some_and(|held| held.iter().any(|held| overlaps(held, range)))
    }

    /// Notes that a range is no longer what it was.
    fn end(&mut self, pid: u32, range: &Range<u64>) {
        let held = self.by_pid.entry(pid).or_default();
        *held = held.iter().flat_map(|held| without(held, range)).collect();
    }

    /// Notes that what is in a range stands at another address too.
    fn add_moved(&mut self, pid: u32, range: &Range<u64>, target: u64) {
        let held = self.by_pid.entry(pid).or_default();
        let parts: Vec<_> = held.iter().map(|held| common(held, range)).filter(|part| !part.is_empty()).collect();
        held.extend(parts.into_iter().map(|part| part.start - range.start + target..part.end - range.start + target));
    }

    /// Follows forks and new programs.
    fn follow(&mut self, act: &Act) {
        match act.deed {
            Deed::Fork(child) => {
                let copy = self.by_pid.get(&act.pid).cloned();
                copy.map(|copy| self.by_pid.insert(child, copy));
            }
            Deed::Exec => drop(self.by_pid.remove(&act.pid)),
            _ => {}
        }
    }

    /// Follows a call that gives, takes, empties or moves pages.
    fn follow_pages(&mut self, act: &Act) {
        let (enter, result) = match act.deed {
            Deed::Call(enter, result) if !is_error(result) => (enter, result),
            Deed::Break { before, after } => return self.end(act.pid, &(after..before)),
            _ => return self.follow(act),
        };
        let old = named(&enter);
        let new = made(&enter, result as u64);
        match (enter.call, old, new) {
            (Call::Munmap, Some(old), _) => self.end(act.pid, &old),
            (Call::Madvise, Some(old), _) if is_dropping(&enter) => self.end(act.pid, &old),
            (Call::Mmap, _, Some(new)) => self.end(act.pid, &new),
            (Call::Mremap, Some(old), Some(new)) if new.start != old.start => {
                self.end(act.pid, &new);
                let kept = old.start..old.end.min(old.start + (new.end - new.start));
                self.add_moved(act.pid, &kept, new.start);
                if !RemapFlags::from_bits_retain(enter.args[3]).contains(RemapFlags::DONTUNMAP) && enter.args[1] != 0 {
                    self.end(act.pid, &old);
                }
            }
            (Call::Mremap, Some(old), Some(new)) if new.end < old.end => self.end(act.pid, &(new.end..old.end)),
            _ => {}
        }
    }
}

/// Returns why nothing shows that a munmap, or a call with another result, did not change a range.
pub fn of_range(trace: &Trace, place: usize, range: Range<u64>) -> Option<&'static str> {
    let acts = acts(trace);
    let mut followed = Followed::new(pid_at(trace, place), range);
    for act in later(&acts, trace, place) {
        for (what, reached) in uses(&act.deed) {
            match what {
                Use::Shows if followed.meets(act.pid, &reached) => return None,
                Use::Shows => {}
                Use::Ends => followed.end(act.pid, &reached),
            }
        }
        followed.follow(act);
        if followed.is_gone() {
            return Some("the range is unmapped or mapped over before anything is about it");
        }
    }
    Some("nothing later is about the range")
}

/// Returns why nothing shows that a fault was on the next page.
pub fn of_moved(trace: &Trace, place: usize, fault: &Fault) -> Option<&'static str> {
    let acts = acts(trace);
    let page = fault.address & !(PAGE - 1);
    let pages = page..page + 2 * PAGE;
    let faults = later_faults(&acts, trace, place, pages.clone());
    let is_load = fault.error_code & Fault::WRITE == 0;
    let follows = || super::entries::follow_if_moved(trace, &acts, place, page);
    match faults.as_slice() {
        _ if follows() => {
            Some("with the fault on the next page, too, all faults on the two follow from what came before")
        }
        _ if !is_empty_before(&acts, trace, place, page + PAGE) => None,
        [] => Some("the next page could be accessed as well, and no other fault is on either"),
        faults if is_load && faults.iter().all(Fault::is_present) && share_a_window(trace, place, &pages) => {
            Some("a load of a file's next page would have mapped both pages, too, and all later faults find them there")
        }
        _ => None,
    }
}

/// Returns whether a load of one of the pages may map them all: they are pages of one mapping of a file, and of one
/// block of 64 KiB.
fn share_a_window(trace: &Trace, place: usize, pages: &Range<u64>) -> bool {
    const WINDOW: u64 = 16 * PAGE;
    let pid = pid_at(trace, place);
    let is_own = |&at: &usize| pid_at(trace, at) == pid;
    let covering = (0..place).rev().filter(is_own).find_map(|at| match trace.events[at].kind {
        EventKind::Mapped(mapped) => {
            let whole = mapped.start..mapped.start + mapped.len_bytes;
            (whole.start <= pages.start && pages.end <= whole.end).then_some(mapped.file.is_some())
        }
        _ => None,
    });
    covering == Some(true) && pages.start / WINDOW == (pages.end - 1) / WINDOW
}

/// Returns why nothing shows that a load was a store, or a store a load.
pub fn of_flipped(trace: &Trace, place: usize, fault: &Fault) -> Option<&'static str> {
    if fault.is_present() {
        return None;
    }
    let page = fault.address & !(PAGE - 1);
    let acts = acts(trace);
    let later = later_faults(&acts, trace, place, page..page + PAGE);
    let is_store = |fault: &Fault| fault.error_code & Fault::WRITE != 0;
    match is_store(fault) {
        true => later
            .iter()
            .all(|later| is_store(later) && later.is_present())
            .then_some("a page's first access may as well be a load: a later store is as it would be"),
        false => later.is_empty().then_some("a page's only fault may as well be a store"),
    }
}

/// Returns whether a call gets memory only where nothing is.
pub(super) fn needs_room(enter: &CallEnter) -> bool {
    match enter.call {
        Call::Mmap => !MapFlags::from_bits_retain(enter.args[3]).contains(MapFlags::FIXED),
        Call::Mremap => !RemapFlags::from_bits_retain(enter.args[3]).contains(RemapFlags::FIXED),
        _ => false,
    }
}

/// Returns whether advice empties the pages that it is about.
pub(super) fn is_dropping(enter: &CallEnter) -> bool {
    matches!(advice_of(enter.args[2] as u32), Some(Advice::DontNeed | Advice::Remove | Advice::DontNeedLocked))
}

/// Returns the faults on pages from a place on, the first in each process of those that have the pages and on.
fn later_faults(acts: &[Act], trace: &Trace, place: usize, pages: Range<u64>) -> Vec<Fault> {
    let mut followed = Followed::new(pid_at(trace, place), pages);
    let mut faults = Vec::new();
    for act in later(acts, trace, place) {
        match act.deed {
            Deed::Fault(fault) if followed.meets(act.pid, &(fault.address..fault.address + 1)) => faults.push(fault),
            _ => followed.follow_pages(act),
        }
        if followed.is_gone() {
            break;
        }
    }
    faults
}

/// Returns whether no fault was on a page since it was mapped or emptied.
fn is_empty_before(acts: &[Act], trace: &Trace, place: usize, mut page: u64) -> bool {
    let mut pid = pid_at(trace, place);
    for act in acts.iter().rev().filter(|act| act.ended < place) {
        match act.deed {
            Deed::Fork(child) if child == pid => pid = act.pid,
            _ if act.pid != pid => {}
            Deed::Exec => return true,
            Deed::Fork(_) | Deed::Told(_) => {}
            Deed::Fault(fault) if (page..page + PAGE).contains(&fault.address) => return false,
            Deed::Fault(_) => {}
            Deed::Break { before, after } if (before.min(after)..before.max(after)).contains(&page) => return true,
            Deed::Break { .. } => {}
            Deed::Call(enter, result) => match origin(&enter, result, page) {
                Some(origin) => page = origin,
                None => return true,
            },
        }
    }
    // What stood before the recording began may have had it.
    trace.snapshot.is_empty()
}

/// Returns where what is at a page was before a call; nothing if the page is new or empty since.
fn origin(enter: &CallEnter, result: i64, page: u64) -> Option<u64> {
    if is_error(result) {
        return Some(page);
    }
    let (old, new) = (named(enter).unwrap_or(0..0), made(enter, result as u64).unwrap_or(0..0));
    match enter.call {
        Call::Munmap => (!old.contains(&page)).then_some(page),
        Call::Madvise if is_dropping(enter) => (!old.contains(&page)).then_some(page),
        Call::Mmap => (!new.contains(&page)).then_some(page),
        Call::Mremap if new.contains(&page) => {
            Some(page - new.start + old.start).filter(|origin| old.contains(origin) || enter.args[1] == 0)
        }
        _ => Some(page),
    }
}

/// Returns the ranges that a call names, and what it made.
pub fn reach_at(trace: &Trace, place: usize) -> Vec<Range<u64>> {
    let EventKind::CallEnter(enter) = trace.events[place].kind else { return Vec::new() };
    let exit = super::exit_of(trace, place).map(|(_, exit)| exit.result);
    let made = exit.filter(|&result| !is_error(result)).map(|result| made(&enter, result as u64));
    named(&enter).into_iter().chain(made.flatten()).collect()
}

pub(super) fn pid_at(trace: &Trace, place: usize) -> u32 {
    trace.threads[trace.events[place].thread as usize].pid
}

/// Returns what is done to which addresses.
pub(super) fn uses(deed: &Deed) -> Vec<(Use, Range<u64>)> {
    match *deed {
        Deed::Fault(fault) => vec![(Use::Shows, fault.address..fault.address + 1)],
        Deed::Call(enter, result) => {
            let what = if enter.call == Call::Munmap { Use::Ends } else { Use::Shows };
            let mut all: Vec<_> = named(&enter).into_iter().map(|range| (what, range)).collect();
            let maps_over = matches!(enter.call, Call::Mmap | Call::Mremap) && !needs_room(&enter);
            if !is_error(result) {
                let what = if maps_over { Use::Ends } else { Use::Shows };
                all.extend(made(&enter, result as u64).map(|range| (what, range)));
            }
            all
        }
        Deed::Break { before, after } if after < before => vec![(Use::Ends, after..before)],
        Deed::Break { before, after } => vec![(Use::Shows, before..after)],
        Deed::Fork(_) | Deed::Exec | Deed::Told(_) => Vec::new(),
    }
}

/// Returns the range that a call is asked to change or to tell of.
pub(super) fn named(enter: &CallEnter) -> Option<Range<u64>> {
    let [start, len, ..] = enter.args;
    let is_ranged = matches!(
        enter.call,
        Call::Munmap
            | Call::Mprotect
            | Call::PkeyMprotect
            | Call::Madvise
            | Call::Mremap
            | Call::Mlock
            | Call::Mlock2
            | Call::Munlock
            | Call::Msync
            | Call::Mincore
    );
    is_ranged.then(|| span(start, len))
}

/// Returns the range that a successful call gave.
pub(super) fn made(enter: &CallEnter, result: u64) -> Option<Range<u64>> {
    match enter.call {
        Call::Mmap => Some(span(result, enter.args[1])),
        Call::Mremap => Some(span(result, enter.args[2])),
        Call::Shmat => Some(span(result, PAGE)),
        // Where it began is not known: the last page tells whether the heap is meant.
        Call::Brk => Some(span(result.saturating_sub(PAGE), PAGE)),
        _ => None,
    }
}

pub(super) fn is_error(result: i64) -> bool {
    Errno::of_result(result).is_some()
}

fn span(start: u64, len: u64) -> Range<u64> {
    start & !(PAGE - 1)..page_ceil(start.saturating_add(len))
}

fn page_ceil(address: u64) -> u64 {
    address.saturating_add(PAGE - 1) & !(PAGE - 1)
}

pub(super) fn overlaps(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

fn common(one: &Range<u64>, other: &Range<u64>) -> Range<u64> {
    one.start.max(other.start)..one.end.min(other.end)
}

fn without(range: &Range<u64>, taken: &Range<u64>) -> Vec<Range<u64>> {
    let parts = [range.start..taken.start.min(range.end), taken.end.max(range.start)..range.end];
    parts.into_iter().filter(|part| part.start < part.end).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heap::{HEAP, begun, page};
    use crate::story::{READ, Story, WRITE, WRITE_PRESENT};

    const FIXED_AWAY: u64 = 3;

    fn fault_at(trace: &Trace, place: u32) -> Fault {
        match trace.events[place as usize].kind {
            EventKind::Fault(fault) => fault,
            kind => panic!("{kind:?}"),
        }
    }

    fn is_move_seen(story: &Story, place: u32) -> bool {
        let trace = story.done();
        of_moved(&trace, place as usize, &fault_at(&trace, place)).is_none()
    }

    fn is_flip_seen(story: &Story, place: u32) -> bool {
        let trace = story.done();
        of_flipped(&trace, place as usize, &fault_at(&trace, place)).is_none()
    }

    #[test]
    fn a_moved_fault_shows_by_a_fault_on_either_page() {
        for other in [2, 3] {
            let mut story = begun(2);
            let place = story.fault(0, page(2), WRITE);
            assert!(!is_move_seen(&story, place));
            story.fault(0, page(other), WRITE_PRESENT);
            assert!(is_move_seen(&story, place));
        }
    }

    #[test]
    fn a_load_of_a_file_maps_the_next_page_too() {
        let mut story = begun(2);
        let file = story.file("/lib");
        // The sixteenth page is the next table's first.
        let start = HEAP + (2 << 20) - 16 * PAGE;
        story.map_file(0, start, 32, 3, file);
        let (near, edge) = (story.fault(0, start + 3 * PAGE, READ), story.fault(0, start + 15 * PAGE, READ));
        for page in [4, 3, 16] {
            story.fault(0, start + page * PAGE, WRITE_PRESENT);
        }
        assert!(!is_move_seen(&story, near));
        assert!(is_move_seen(&story, edge), "the next page is of another table");
        story.fault(0, start + 3 * PAGE, READ);
        assert!(is_move_seen(&story, near), "it is not there");
    }

    #[test]
    fn an_earlier_fault_on_the_next_page_counts_until_the_page_is_new() {
        let mut story = begun(2);
        story.fault(0, page(3), WRITE);
        let place = story.fault(0, page(2), WRITE);
        assert!(is_move_seen(&story, place));
        story.unmap(0, HEAP, 8);
        story.map(0, HEAP, 8);
        let place = story.fault(0, page(2), WRITE);
        story.unmap(0, HEAP, 8);
        story.fault(0, page(2), WRITE);
        assert!(!is_move_seen(&story, place));
    }

    #[test]
    fn pages_are_followed_where_they_move() {
        let away = HEAP + (1 << 30);
        let mut story = begun(2);
        let place = story.fault(0, page(2), WRITE);
        let args = [HEAP, 8 * PAGE, 8 * PAGE, FIXED_AWAY, away, 0];
        story.call(0, Call::Mremap, args, away as i64);
        story.map(0, HEAP, 8);
        story.fault(0, page(2), WRITE);
        assert!(!is_move_seen(&story, place), "the pages stand elsewhere");
        story.fault(0, away + 3 * PAGE, WRITE);
        assert!(is_move_seen(&story, place));

        let mut story = begun(2);
        story.fault(0, page(3), WRITE);
        story.call(0, Call::Mremap, args, away as i64);
        let place = story.fault(0, away + 2 * PAGE, WRITE);
        assert!(is_move_seen(&story, place), "the next page came along");
    }

    #[test]
    fn pages_of_the_heap_are_new_when_it_grows_again() {
        let mut story = begun(2);
        let to =
            |story: &mut Story, pages: u64| story.call(0, Call::Brk, [page(pages), 0, 0, 0, 0, 0], page(pages) as i64);
        to(&mut story, 20);
        to(&mut story, 28);
        story.fault(0, page(23), WRITE);
        to(&mut story, 21);
        to(&mut story, 28);
        let place = story.fault(0, page(22), WRITE);
        assert!(!is_move_seen(&story, place) && !is_flip_seen(&story, place));
        to(&mut story, 22);
        to(&mut story, 28);
        story.fault(0, page(23), WRITE);
        assert!(!is_move_seen(&story, place));
        let place = story.fault(0, page(22), WRITE);
        assert!(is_move_seen(&story, place), "the next page was touched since");
    }

    #[test]
    fn a_childs_copy_outlives_the_parents() {
        let mut story = begun(2);
        let place = story.fault(0, page(2), WRITE);
        story.clone_task(0, 1, 0);
        story.unmap(0, HEAP, 8);
        assert!(!is_move_seen(&story, place));
        story.fault(1, page(3), WRITE);
        assert!(is_move_seen(&story, place));
        assert!(!is_flip_seen(&story, place));
        story.fault(1, page(2), READ);
        assert!(is_flip_seen(&story, place));
    }

    #[test]
    fn a_load_may_stand_for_a_store_until_a_fault_tells() {
        let mut story = begun(2);
        let (store, load) = (story.fault(0, page(1), WRITE), story.fault(0, page(2), READ));
        assert!(!is_flip_seen(&story, store) && !is_flip_seen(&story, load));
        let second = story.fault(0, page(2), WRITE_PRESENT);
        assert!(is_flip_seen(&story, load), "a page that was stored to takes no second fault");
        assert!(is_flip_seen(&story, second), "a page that is there takes no load's fault");
    }

    #[test]
    fn a_dropped_munmap_shows_by_what_comes_to_its_range() {
        let mut story = begun(2);
        let place = story.unmap(0, page(2), 2) as usize;
        let range = page(2)..page(4);
        assert!(of_range(&story.done(), place, range.clone()).is_some());
        story.map(0, page(3), 1);
        assert!(of_range(&story.done(), place, range).is_none());
    }
}
