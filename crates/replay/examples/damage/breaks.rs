//! Whether a program could see that two calls of brk of one thread changed places.
//!
//! # Guarantee
//! As in [`sight`](super::sight): an answer "nothing shows it" means that the trace with the two in the other order is
//! what a program could have done under Linux, too.
//!
//! # Rule
//! The two leave the heap with another end, and alike in all else: in either order the pages above the lowest of the
//! ends are empty. So nothing shows it if both ends were granted, and if, until the next end is granted or the program
//! is gone, nobody asks where the heap ends, forks, or does anything about what lies between the two ends.

use std::ops::Range;

use faultless_trace::{EventKind, Trace};

use super::sight::{Act, Deed, overlaps, uses};

/// Returns whether nothing behind two breaks, the second of which ends at `last`, depends on their order.
pub fn are_alike(trace: &Trace, acts: &[Act], [one, two]: [&Act; 2], last: usize) -> bool {
    let (Deed::Break { after: first, .. }, Deed::Break { before, after: second }) = (one.deed, two.deed) else {
        return false;
    };
    let apart = first.min(second)..first.max(second);
    let are_in_a_row = before == first;
    are_in_a_row && is_granted(trace, one) && is_granted(trace, two) && stays_hidden(trace, acts, two.pid, last, &apart)
}

/// Returns whether nothing behind a place depends on whether a range is the heap's, until an end is granted to the
/// process that does not depend on it.
fn stays_hidden(trace: &Trace, acts: &[Act], pid: u32, place: usize, range: &Range<u64>) -> bool {
    for act in acts.iter().filter(|act| act.pid == pid && act.ended > place) {
        match act.deed {
            Deed::Exec => return true,
            Deed::Break { after, .. } => {
                // It begins at either end, and so gives or takes other pages in either order.
                let reached = range.start.min(after)..range.end.max(after);
                return is_granted(trace, act) && !has_company(acts, act, &reached);
            }
            Deed::Fork(_) => return false,
            Deed::Told(told) if overlaps(&(told.start..told.start + told.len_bytes), range) => return false,
            _ if is_about(&act.deed, range) => return false,
            _ => {}
        }
    }
    true
}

/// Returns whether another thread of the process is about a range while a call lasts.
fn has_company(acts: &[Act], call: &Act, range: &Range<u64>) -> bool {
    let others = acts.iter().filter(|act| act.pid == call.pid && act.thread != call.thread);
    others.filter(|act| act.ended > call.began && act.began < call.ended).any(|act| is_about(&act.deed, range))
}

fn is_about(deed: &Deed, range: &Range<u64>) -> bool {
    uses(deed).iter().any(|(_, used)| overlaps(used, range))
}

/// Returns whether a break got the end that it asked for: one that only asks where the end is names none.
fn is_granted(trace: &Trace, act: &Act) -> bool {
    match (trace.events[act.began].kind, trace.events[act.ended].kind) {
        (EventKind::CallEnter(enter), EventKind::CallExit(exit)) => enter.args[0] == exit.result as u64,
        _ => false,
    }
}
