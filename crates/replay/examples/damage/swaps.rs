//! Whether a program could see that two calls of a thread changed places.
//!
//! # Guarantee
//! As in [`sight`](super::sight): an answer "nothing shows it" means that the trace with the two in the other order is
//! what a program could have done under Linux, too.
//!
//! # Rules
//! The two must lead to the same in either order, and each must come to the same before and after what lies between.
//! In either order the same comes of two calls that are about different pages; of two breaks, which move one end, if
//! nothing depends on the end that they leave ([`breaks`](super::breaks)); of two munmaps; of advice that changes
//! neither the map nor an entry, or says what a child gets, and any other advice or `mprotect`, if both were done and
//! not both say what a child gets; of an `mremap` that cuts an end off and one that moves the rest and leaves its place
//! mapped; and of a call that fails for its arguments alone.
//! What lies between is passed
//! * by a call that fails for its arguments alone, always;
//! * by advice that changes neither the map nor an entry, if all of its range stays mapped: `MADV_DODUMP` is such, and
//!   `MADV_PAGEOUT` and `MADV_MERGEABLE`, which may take and merge nothing, and `msync` that does not wait;
//! * by `MADV_DONTNEED`, if the range stays mapped, and all faults on its pages follow from the calls, forks and faults
//!   before them in either order ([`entries`](super::entries));
//! * by any other call, if no other event is about its pages, and nobody forks. A call that waits for free room all
//!   the while may come after both.

use std::collections::BTreeSet;
use std::ops::Range;

use faultless_abi::{Errno, RemapFlags, advice_of};
use faultless_trace::{Call, CallEnter, EventKind, Trace};
use faultless_vm::{Advice, PAGE};

use super::sight::{Act, Deed, acts, is_dropping, is_error, named, needs_room, overlaps, pid_at, reach_at, uses};
use super::{breaks, entries};

/// The one flag with which `msync` does nothing but look whether all is mapped (mm/msync.c).
const MS_ASYNC: u64 = 1;

/// What a call needs of the moment at which it is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sort {
    /// Nothing: it fails for its arguments alone.
    Refused,
    /// That its range is mapped: it changes nothing that is looked at here.
    Advice,
    /// That its range is mapped: it empties pages.
    Drop,
    /// That its pages are as they were.
    Other,
}

/// One of the two.
struct Swapped {
    act: Act,
    reach: Vec<Range<u64>>,
    sort: Sort,
}

impl Swapped {
    fn new(trace: &Trace, acts: &[Act], place: usize) -> Option<Self> {
        let act = *acts.iter().find(|act| act.began == place && act.thread == trace.events[place].thread)?;
        let reach = match act.deed {
            Deed::Break { before, after } => std::iter::once(before.min(after)..before.max(after)).collect(),
            _ => reach_at(trace, place),
        };
        Some(Self { act, reach, sort: sort_of(&act.deed) })
    }

    fn done(&self) -> Option<CallEnter> {
        match self.act.deed {
            Deed::Call(enter, result) if !is_error(result) => Some(enter),
            _ => None,
        }
    }

    fn was_done(&self, calls: &[Call]) -> bool {
        self.done().is_some_and(|enter| calls.contains(&enter.call))
    }

    /// Returns whether the call comes to the same before and after what somebody else did, entries aside, if it needs
    /// this of its moment.
    fn passes(&self, sort: Sort, act: &Act, last: usize) -> bool {
        let is_met = |range: &Range<u64>| self.reach.iter().any(|reached| overlaps(reached, range));
        match (sort, act.deed) {
            (Sort::Refused, _) => true,
            (Sort::Advice | Sort::Drop, Deed::Fault(_) | Deed::Fork(_)) => true,
            (Sort::Advice | Sort::Drop, Deed::Call(enter, _)) if keeps_mapped(enter.call) => true,
            (_, Deed::Fork(_) | Deed::Exec) => false,
            // It may have come after both.
            (_, Deed::Call(enter, _)) if act.ended > last && needs_room(&enter) => {
                !named(&enter).is_some_and(|range| is_met(&range))
            }
            (_, deed) => !uses(&deed).iter().any(|(_, reached)| is_met(reached)),
        }
    }
}

/// Returns why nothing shows that two calls, entered at `place` and `next`, came in the other order, as they do in the
/// trace `other`. The second ends at `last`.
pub fn of_swapped(trace: &Trace, other: &Trace, place: usize, next: usize, last: usize) -> Option<&'static str> {
    let acts = acts(trace);
    let pair = [Swapped::new(trace, &acts, place)?, Swapped::new(trace, &acts, next)?];
    let [one, two] = &pair;
    let are_breaks = [one, two].iter().all(|call| matches!(call.act.deed, Deed::Break { .. }));
    let meet = one.reach.iter().any(|range| two.reach.iter().any(|other| overlaps(range, other)));
    let is_apart = !are_breaks && !meet;
    let (thread, pid) = (trace.events[place].thread, pid_at(trace, place));
    let is_own = |act: &Act| act.thread == thread && matches!(act.deed, Deed::Call(..) | Deed::Break { .. });
    let between = || acts.iter().filter(|act| act.pid == pid && act.ended > place && act.began < last && !is_own(act));
    let is_met = |act: &Act| !pair.iter().all(|call| call.passes(Sort::Other, act, last));
    let passes = |act: &Act| pair.iter().all(|call| call.passes(call.sort, act, last));
    let has = |sort: Sort| pair.iter().any(|call| call.sort == sort);
    let are_like_breaks = || breaks::are_alike(trace, &acts, [&one.act, &two.act], last);
    if !(is_apart || are_exchangeable(one, two) || are_like_breaks()) || !between().all(passes) {
        return None;
    }
    match between().any(is_met) {
        false if are_breaks => {
            Some("the two move the heap's end, which moves again before anything depends on where it is")
        }
        false if is_apart => Some("the two are about different pages, which nothing between them is about"),
        _ if has(Sort::Refused) => Some("one of the two fails for its arguments alone"),
        _ if has(Sort::Drop) && !follow((trace, &acts), other, &pair) => None,
        _ if has(Sort::Drop) => Some("all faults on the pages that are emptied follow in either order"),
        _ if has(Sort::Advice) => Some("one of the two is advice that changes neither the map nor an entry"),
        _ => Some("the two leave the same map in either order, and nothing between them is about it"),
    }
}

fn sort_of(deed: &Deed) -> Sort {
    match deed {
        Deed::Call(enter, result) if fails_for_its_arguments(enter, *result) => Sort::Refused,
        Deed::Call(enter, 0) if enter.call == Call::Madvise && is_dropping(enter) => Sort::Drop,
        Deed::Call(enter, 0) if enter.call == Call::Madvise => match advice_of(enter.args[2] as u32) {
            Some(advice) if entries::is_unchanging(advice) => Sort::Advice,
            _ => Sort::Other,
        },
        Deed::Call(enter, 0) if enter.call == Call::Msync && enter.args[2] == MS_ASYNC => Sort::Advice,
        _ => Sort::Other,
    }
}

/// Returns whether a call was refused whatever was mapped.
fn fails_for_its_arguments(enter: &CallEnter, result: i64) -> bool {
    let [start, _, new_len, flags, target, _] = enter.args;
    let is_unaligned = !start.is_multiple_of(PAGE);
    let flags = RemapFlags::from_bits_retain(flags);
    let needs_move = flags.intersects(RemapFlags::FIXED | RemapFlags::DONTUNMAP);
    let is_invalid = match enter.call {
        Call::Munmap | Call::Mprotect | Call::Madvise | Call::Msync | Call::Mincore => is_unaligned,
        Call::Mremap => {
            let is_misplaced = flags.contains(RemapFlags::FIXED) && !target.is_multiple_of(PAGE);
            is_unaligned || new_len == 0 || is_misplaced || needs_move && !flags.contains(RemapFlags::MAYMOVE)
        }
        _ => false,
    };
    is_invalid && Errno::of_result(result) == Some(Errno::EINVAL)
}

/// Returns whether advice says what a child gets, and nothing else.
fn is_for_forks(enter: &CallEnter) -> bool {
    use Advice::{DoFork, DontFork, KeepOnFork, WipeOnFork};
    let advice = advice_of(enter.args[2] as u32).filter(|_| enter.call == Call::Madvise);
    matches!(advice, Some(DontFork | DoFork | WipeOnFork | KeepOnFork))
}

/// Returns whether a call leaves all mapped that was.
fn keeps_mapped(call: Call) -> bool {
    use Call::{Madvise, Mincore, Mlock, Mlock2, Mprotect, Msync, Munlock, PkeyMprotect};
    matches!(call, Madvise | Mprotect | PkeyMprotect | Mlock | Mlock2 | Munlock | Msync | Mincore)
}

/// Returns whether two calls that are about the same pages lead to the same in either order.
fn are_exchangeable(one: &Swapped, two: &Swapped) -> bool {
    let calls_both = |calls: &[Call]| one.was_done(calls) && two.was_done(calls);
    let is_for_forks = |call: &Swapped| call.done().is_some_and(|enter| is_for_forks(&enter));
    let is_advice = |call: &Swapped| call.sort == Sort::Advice || is_for_forks(call);
    let only_drops = |call: &Swapped| call.sort == Sort::Drop || call.was_done(&[Call::Mprotect, Call::PkeyMprotect]);
    let has_protect = |call: &Swapped| call.sort == Sort::Other;
    if one.sort == Sort::Refused || two.sort == Sort::Refused || calls_both(&[Call::Munmap]) {
        return true;
    }
    let is_kept = |call: &Swapped| {
        call.was_done(&[Call::Madvise, Call::Mprotect, Call::PkeyMprotect]) || call.sort == Sort::Advice
    };
    let are_for_forks = is_for_forks(one) && is_for_forks(two);
    let advises = (is_advice(one) || is_advice(two)) && is_kept(one) && is_kept(two) && !are_for_forks;
    let drops = only_drops(one) && only_drops(two) && !(has_protect(one) && has_protect(two));
    advises || drops || cuts_off(one, two) || cuts_off(two, one)
}

/// Returns whether one call cuts the end off a mapping and the other moves what stays, leaving its place mapped.
fn cuts_off(cut: &Swapped, moves: &Swapped) -> bool {
    let (Some(cut), Some(moves)) = (cut.done(), moves.done()) else { return false };
    let ([start, old_len, new_len, ..], [moved, moved_len, placed_len, flags, ..]) = (cut.args, moves.args);
    let is_cut = cut.call == Call::Mremap
        && new_len < old_len
        && !RemapFlags::from_bits_retain(cut.args[3]).contains(RemapFlags::FIXED);
    let is_left = moves.call == Call::Mremap && RemapFlags::from_bits_retain(flags).contains(RemapFlags::DONTUNMAP);
    is_cut && is_left && moved == start && moved_len <= new_len && placed_len == moved_len
}

/// Returns whether all faults on the pages that one of the two empties follow from what came before, in both orders.
fn follow((trace, acts): (&Trace, &[Act]), other: &Trace, pair: &[Swapped; 2]) -> bool {
    let dropped = pair.iter().filter(|call| call.sort == Sort::Drop).flat_map(|call| &call.reach);
    let dropped: Vec<_> = dropped.collect();
    let first = pair[0].act.began;
    let faults = trace.events[first..].iter().filter_map(|event| match event.kind {
        EventKind::Fault(fault) => Some(fault.address & !(PAGE - 1)),
        _ => None,
    });
    let pages: BTreeSet<u64> = faults.filter(|page| dropped.iter().any(|range| range.contains(page))).collect();
    let other_acts = super::sight::acts(other);
    pages.iter().all(|&page| entries::follow(trace, acts, page) && entries::follow(other, &other_acts, page))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heap::{HEAP, begun, page};
    use crate::story::{READ, Story, WRITE, WRITE_PRESENT};

    const DONT_NEED: u64 = 4;
    const DONT_FORK: u64 = 10;
    const DO_FORK: u64 = 11;
    const DO_DUMP: u64 = 17;
    const POPULATE_WRITE: u64 = 23;
    const INVALID: i64 = -22;

    fn advise(story: &mut Story, start: u64, pages: u64, advice: u64) -> u32 {
        story.call(0, Call::Madvise, [start, pages * PAGE, advice, 0, 0, 0], 0)
    }

    /// Moves the end of the heap to a page.
    fn to(story: &mut Story, thread: u32, end: u64) -> u32 {
        story.call(thread, Call::Brk, [page(end), 0, 0, 0, 0, 0], page(end) as i64)
    }

    /// Returns whether it shows if the calls entered at two places change them.
    fn is_seen(story: &Story, place: u32, next: u32) -> bool {
        let trace = story.done();
        let mut other = trace.clone();
        assert!(crate::swap_calls(&mut other, place as usize), "the two can be swapped");
        let (last, _) = crate::exit_of(&trace, next as usize).expect("the second ends");
        of_swapped(&trace, &other, place as usize, next as usize, last).is_none()
    }

    #[test]
    fn munmaps_change_places_unless_somebody_looks() {
        let mut story = begun(2);
        let (one, other) = (story.unmap(0, page(2), 2), story.unmap(0, HEAP, 8));
        assert!(!is_seen(&story, one, other));
        let mut story = begun(2);
        let one = story.unmap(0, page(2), 2);
        story.fault(0, page(5), WRITE);
        let other = story.unmap(0, HEAP, 8);
        assert!(is_seen(&story, one, other));

        for (flags, expected) in [(0x22, false), (0x32, true)] {
            let mut story = begun(2);
            story.trace.threads[1].pid = 1;
            story.spawn(0, 1);
            story.enter(1, Call::Mmap, [HEAP, 2 * PAGE, 3, flags, u64::MAX, 0]);
            let (one, other) = (story.unmap(0, HEAP, 2), story.unmap(0, page(4), 4));
            story.exit(1, Call::Mmap, HEAP as i64);
            assert_eq!(is_seen(&story, one, other), expected, "with flags {flags:#x}");
        }
    }

    #[test]
    fn other_calls_change_places_only_if_they_are_apart() {
        let mut story = begun(2);
        let (one, other) = (story.protect(0, HEAP, 4, 1), story.protect(0, page(3), 4, 3));
        assert!(is_seen(&story, one, other));
        let mut story = begun(2);
        let (one, other) = (story.protect(0, HEAP, 2, 1), story.protect(0, page(4), 2, 1));
        assert!(!is_seen(&story, one, other));
        let mut story = begun(2);
        let one = story.protect(0, HEAP, 2, 1);
        story.clone_task(0, 1, 0);
        let other = story.protect(0, page(4), 2, 1);
        assert!(is_seen(&story, one, other), "a child has what is between the two");
    }

    #[test]
    fn emptied_pages_show_by_faults_that_do_not_follow() {
        // A page was touched before or not, is emptied, and is touched; then other pages are emptied.
        for (is_touched_before, comes_again, expected) in
            [(false, false, false), (true, false, true), (false, true, true)]
        {
            let mut story = begun(2);
            if is_touched_before {
                story.fault(0, page(1), WRITE);
            }
            let one = advise(&mut story, HEAP, 2, DONT_NEED);
            story.fault(0, page(1), WRITE);
            let other = advise(&mut story, page(4), 2, DONT_NEED);
            if comes_again {
                story.fault(0, page(1), WRITE_PRESENT);
            }
            assert_eq!(is_seen(&story, one, other), expected, "{is_touched_before}, {comes_again}");
        }
    }

    #[test]
    fn a_break_is_about_what_it_gives_or_takes() {
        for (advised, expected) in [(26, false), (27, true)] {
            let mut story = begun(2);
            to(&mut story, 0, 20);
            to(&mut story, 0, 28);
            let one = to(&mut story, 0, 27);
            let other = advise(&mut story, page(advised), 1, POPULATE_WRITE);
            assert_eq!(is_seen(&story, one, other), expected);
        }
    }

    /// Two breaks to pages 24 and 28 of a heap that ends at 20, and what comes behind.
    fn breaks_then(then: impl FnOnce(&mut Story)) -> bool {
        let mut story = begun(3);
        story.trace.threads[1].pid = 1;
        story.spawn(0, 1);
        to(&mut story, 0, 20);
        let (one, other) = (to(&mut story, 0, 24), to(&mut story, 0, 28));
        then(&mut story);
        is_seen(&story, one, other)
    }

    #[test]
    fn breaks_change_places_unless_something_depends_on_the_end_that_they_leave() {
        assert!(!breaks_then(|_| ()), "nothing comes");
        assert!(!breaks_then(|story| _ = to(story, 0, 32)), "the heap grows on");
        assert!(!breaks_then(|story| _ = to(story, 1, 22)), "the heap shrinks");
        assert!(!breaks_then(|story| _ = story.fault(0, page(22), WRITE)), "both have the page");
        assert!(!breaks_then(|story| _ = story.push(0, EventKind::Exec)));
        assert!(breaks_then(|story| _ = story.fault(0, page(26), WRITE)), "one of the two has the page");
        assert!(breaks_then(|story| _ = story.protect(1, page(26), 1, 1)));
        assert!(breaks_then(|story| _ = story.call(0, Call::Brk, [0; 6], page(28) as i64)), "it asks for the end");
        assert!(breaks_then(|story| _ = story.call(0, Call::Brk, [page(99), 0, 0, 0, 0, 0], page(28) as i64)));
        assert!(breaks_then(|story| _ = story.clone_task(0, 2, 0)), "the child has one end or the other");
        let in_company = |looked: u64| {
            breaks_then(|story| {
                story.enter(0, Call::Brk, [page(32), 0, 0, 0, 0, 0]);
                story.fault(1, page(looked), WRITE);
                story.exit(0, Call::Brk, page(32) as i64);
            })
        };
        assert!(in_company(30) && in_company(25) && !in_company(40), "a fault beside the break that follows");

        let mut story = begun(1);
        to(&mut story, 0, 20);
        let one = to(&mut story, 0, 24);
        story.fault(0, page(21), WRITE);
        let other = to(&mut story, 0, 28);
        assert!(is_seen(&story, one, other), "something between is about the heap");
    }

    #[test]
    fn a_child_has_what_was_not_emptied_yet() {
        for (loads_in_child, expected) in [(false, false), (true, true)] {
            let mut story = begun(2);
            story.fault(0, page(1), WRITE);
            let one = advise(&mut story, HEAP, 2, DONT_NEED);
            story.clone_task(0, 1, 0);
            let other = advise(&mut story, page(4), 2, DONT_NEED);
            if loads_in_child {
                story.fault(1, page(1), READ);
            }
            assert_eq!(is_seen(&story, one, other), expected);
        }
    }

    #[test]
    fn advice_that_changes_nothing_passes_whatever_keeps_its_range() {
        for (unmaps, expected) in [(false, false), (true, true)] {
            let mut story = begun(2);
            story.trace.threads[1].pid = 1;
            story.spawn(0, 1);
            let one = advise(&mut story, HEAP, 2, DO_DUMP);
            story.fault(0, page(1), WRITE);
            match unmaps {
                true => story.unmap(1, page(1), 1),
                false => story.protect(1, page(1), 1, 1),
            };
            let other = advise(&mut story, page(4), 2, POPULATE_WRITE);
            assert_eq!(is_seen(&story, one, other), expected);
        }
        let mut story = begun(2);
        let (one, other) = (advise(&mut story, HEAP, 2, DO_DUMP), advise(&mut story, HEAP, 2, POPULATE_WRITE));
        assert!(!is_seen(&story, one, other));
        let (one, other) = (advise(&mut story, HEAP, 2, DONT_FORK), advise(&mut story, HEAP, 2, POPULATE_WRITE));
        assert!(!is_seen(&story, one, other));
        let one = advise(&mut story, HEAP, 2, DONT_FORK);
        story.clone_task(0, 1, 0);
        let other = advise(&mut story, HEAP, 2, POPULATE_WRITE);
        assert!(is_seen(&story, one, other), "the child gets the pages, or does not");
        let (one, other) = (advise(&mut story, HEAP, 2, DONT_FORK), advise(&mut story, HEAP, 2, DO_FORK));
        assert!(is_seen(&story, one, other), "the next child gets the pages, or does not");
        let (one, other) = (advise(&mut story, HEAP, 2, DONT_NEED), advise(&mut story, HEAP, 2, POPULATE_WRITE));
        assert!(is_seen(&story, one, other), "the pages are there, or are not");
        let (one, other) = (advise(&mut story, HEAP, 2, DO_DUMP), story.unmap(0, HEAP, 2));
        assert!(is_seen(&story, one, other), "nothing is there to advise on");
    }

    #[test]
    fn an_msync_that_writes_nothing_passes_advice() {
        for (flags, expected) in [(MS_ASYNC, false), (4, true)] {
            let mut story = begun(2);
            let one = advise(&mut story, HEAP, 2, POPULATE_WRITE);
            let other = story.call(0, Call::Msync, [HEAP, 2 * PAGE, flags, 0, 0, 0], 0);
            assert_eq!(is_seen(&story, one, other), expected);
        }
    }

    #[test]
    fn emptying_and_protecting_come_to_the_same() {
        let mut story = begun(2);
        let (one, other) = (story.protect(0, HEAP, 2, 0), advise(&mut story, HEAP, 2, DONT_NEED));
        assert!(!is_seen(&story, one, other));
        let mut story = begun(2);
        let one = story.protect(0, HEAP, 2, 1);
        story.fault(0, page(1), READ);
        let other = advise(&mut story, HEAP, 2, DONT_NEED);
        assert!(is_seen(&story, one, other), "the fault found the new rights");
    }

    #[test]
    fn a_call_that_fails_for_its_arguments_may_come_at_any_time() {
        for (start, expected) in [(HEAP + 40, false), (HEAP, true)] {
            let mut story = begun(2);
            let one = story.call(0, Call::Madvise, [start, PAGE, DO_DUMP, 0, 0, 0], INVALID);
            let other = story.unmap(0, HEAP, 8);
            assert_eq!(is_seen(&story, one, other), expected, "from {start:#x}");
        }
        let mut story = begun(2);
        story.fault(0, page(1), WRITE);
        let one = story.call(0, Call::Mremap, [HEAP, PAGE, 0, 1, 0, 0], INVALID);
        story.fault(0, page(2), WRITE);
        let other = story.unmap(0, page(2), 1);
        assert!(is_seen(&story, one, other), "the munmap is moved before the fault");
    }

    #[test]
    fn an_end_may_be_cut_off_before_the_rest_moves_or_after() {
        let away = HEAP + (1 << 30);
        for (moved_pages, expected) in [(4, false), (6, true)] {
            let mut story = begun(2);
            let one = story.call(0, Call::Mremap, [HEAP, 8 * PAGE, 4 * PAGE, 1, 0, 0], HEAP as i64);
            let len = moved_pages * PAGE;
            let other = story.call(0, Call::Mremap, [HEAP, len, len, 5, 0, 0], away as i64);
            assert_eq!(is_seen(&story, one, other), expected, "{moved_pages}");
        }
    }
}
