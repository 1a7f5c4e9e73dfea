//! What no sequence may hold, because the kernel itself answers it now so and now so, or the two sides can't mean the
//! same.
//!
//! # Guarantee
//! * An instruction that is fetched lies in one page: it has up to 15 bytes, so addresses are multiples of 16.
//! * Mappings of the file `ref` stay inside it. With a mincore or an MADV_FREE, which are judged by anonymous memory,
//!   none of them is shared, neither threads nor those who seal have any, because a sealed file may drop what sealed
//!   anonymous memory keeps, and nothing is wiped on fork, droppable memory included.
//! * Beside threads or the file `ref` no MADV_PAGEOUT meets an MADV_FREE or a mapping that may be dropped: which of the
//!   pages given up it takes, with their contents, depends on lists that the kernel fills in batches, one for each CPU.
//!   MADV_COLD takes its place. One thread stays on its CPU meanwhile (`kernel::serve`): then all of them go. Those of
//!   the file stay, because the kernel's judge of a reference area gives none up.

use super::model::is_droppable;
use crate::kernel::{Call, File, Op, PAGE, REFERENCE_PAGES};

/// An instruction's longest form, rounded up.
const INSTRUCTION_BYTES: u64 = 16;

/// Changes the operations to which the module objects.
pub(super) fn settle(ops: &mut [Op]) {
    for op in ops.iter_mut().filter(|op| op.call == Call::Fetch) {
        op.args[0] -= op.args[0] % INSTRUCTION_BYTES;
    }
    settle_references(ops);
    let is_unsettled = |op: &Op| op.thread != 0 || is_reference(op);
    if ops.iter().any(is_unsettled) && ops.iter().any(|op| op.advises(libc::MADV_FREE) || maps_droppable(op)) {
        for op in ops.iter_mut().filter(|op| op.advises(libc::MADV_PAGEOUT)) {
            op.args[2] = libc::MADV_COLD as u64;
        }
    }
}

fn maps_droppable(op: &Op) -> bool {
    op.call == Call::Mmap && is_droppable(op.args[3])
}

fn is_reference(op: &Op) -> bool {
    op.call == Call::Mmap && File::from_argument(op.args[4]) == File::Reference
}

fn settle_references(ops: &mut [Op]) {
    let has_threads = ops.iter().any(|op| op.thread != 0);
    let is_judged_by_twin = |op: &Op| op.call == Call::Mincore || op.advises(libc::MADV_FREE);
    let has_twin = ops.iter().any(is_judged_by_twin);
    let has_seal = ops.iter().any(|op| op.call == Call::Mseal);
    for op in ops.iter_mut().filter(|op| is_reference(op)) {
        let is_shared = op.args[3] & 0xf != libc::MAP_PRIVATE as u64;
        if has_twin && (has_threads || has_seal || is_shared) {
            op.args[4] = File::ReadOnly as u64;
        }
        op.args[5] %= REFERENCE_PAGES * PAGE;
    }
    if !ops.iter().any(is_reference) {
        return;
    }
    for op in ops.iter_mut() {
        if has_twin && op.advises(libc::MADV_WIPEONFORK) {
            op.args[2] = libc::MADV_KEEPONFORK as u64;
        }
        if has_twin && maps_droppable(op) {
            op.args[3] ^= (libc::MAP_DROPPABLE ^ libc::MAP_PRIVATE) as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::{Profile, sequence};
    use crate::kernel::{Sequence, User};

    fn settled(line: &str) -> String {
        let mut sequence: Sequence = line.parse().expect("a sequence");
        settle(&mut sequence.ops);
        sequence.to_string()
    }

    #[test]
    fn a_fetch_stays_in_its_page() {
        assert_eq!(settled("root; fetch w+0xfff; fetch 0x20"), "root; fetch w+0xff0; fetch 0x20");
    }

    #[test]
    fn reference_areas_stay_where_both_judges_can_follow() {
        let map = "mmap w+0x0 0x4000 r shared|fixed ref";
        assert_eq!(settled(&format!("root; {map} 0x9000; look")), format!("root; {map} 0x1000; look"));
        let probe = "mincore w+0x0 0x4000 0x0";
        let plain = "mmap w+0x0 0x4000 r shared|fixed ro 0x0";
        assert_eq!(settled(&format!("root; {map} 0x0; {probe}")), format!("root; {plain}; {probe}"));
        let private = "mmap w+0x0 0x4000 r private|fixed ref 0x0";
        let wiped = "madvise w+0x0 0x4000 wipeonfork";
        let kept = "madvise w+0x0 0x4000 keeponfork";
        assert_eq!(settled(&format!("root; {private}; {wiped}; {probe}")), format!("root; {private}; {kept}; {probe}"));
        let droppable = "mmap w+0x8000 0x4000 r droppable|anon|fixed - 0x0";
        let kept = "mmap w+0x8000 0x4000 r private|anon|fixed - 0x0";
        assert_eq!(
            settled(&format!("root; {private}; {droppable}; {probe}")),
            format!("root; {private}; {kept}; {probe}")
        );
        assert_eq!(settled(&format!("root; {droppable}; {probe}")), format!("root; {droppable}; {probe}"));
        assert_eq!(settled(&format!("root; {private}; {wiped}")), format!("root; {private}; {wiped}"));
        assert!(settled(&format!("root; {private}; t1 look; t2 look")).contains("ref"));
        assert!(settled(&format!("root; {private}; mseal w+0x0 0x1000 0x0; look")).contains("ref"));
        assert!(!settled(&format!("root; {private}; mseal w+0x0 0x1000 0x0; {probe}")).contains("ref"), "see above");
        let free = "t2 madvise w+0x0 0x4000 free";
        assert!(!settled(&format!("root; {private}; t1 look; {free}")).contains("ref"), "no order has a twin");
    }

    #[test]
    fn reference_areas_are_drawn_beside_threads_and_seals() {
        let count = |profile, is_wanted: fn(&Op) -> bool| {
            let drawn = (0..2000).map(|number| sequence(1, profile, User::Root, number, 40));
            drawn.filter(|one| one.ops.iter().any(is_reference) && one.ops.iter().any(is_wanted)).count()
        };
        let (threads, seals) =
            (count(Profile::Threads, |op| op.thread != 0), count(Profile::Usual, |op| op.call == Call::Mseal));
        assert!(threads > 100 && seals > 10, "{threads} with threads, {seals} with seals");
    }

    #[test]
    fn droppable_memory_is_drawn_with_what_it_decides() {
        let count = |is_wanted: fn(&Op) -> bool| {
            let drawn = (0..2000).map(|number| sequence(1, Profile::Usual, User::Root, number, 40));
            drawn.filter(|one| one.ops.iter().any(maps_droppable) && one.ops.iter().any(is_wanted)).count()
        };
        let (forks, keeps) = (count(|op| op.call == Call::Fork), count(|op| op.advises(libc::MADV_KEEPONFORK)));
        let locks = count(|op| matches!(op.call, Call::Mlock | Call::Mlock2 | Call::Mlockall));
        assert!(forks.min(keeps).min(locks) > 30, "{forks} with forks, {keeps} with advice, {locks} with locks");
        let paged_out = |is_given_up: fn(&Op) -> bool| {
            let drawn = (0..2000).map(|number| sequence(1, Profile::Usual, User::Root, number, 40));
            let behind = |ops: &[Op]| {
                let first = ops.iter().position(is_given_up).unwrap_or(ops.len());
                ops[first..].iter().any(|op| op.advises(libc::MADV_PAGEOUT))
            };
            drawn.filter(|one| behind(&one.ops)).count()
        };
        let (dropped, freed) = (paged_out(maps_droppable), paged_out(|op| op.advises(libc::MADV_FREE)));
        assert!(dropped.min(freed) > 5, "{dropped} page droppable memory out, {freed} what was given up");
    }

    #[test]
    fn only_a_pageout_of_what_is_given_up_here_and_there_becomes_cold() {
        let (free, pageout, cold) =
            ("madvise w+0x0 0x1000 free", "madvise w+0x0 0x1000 pageout", "madvise w+0x0 0x1000 cold");
        let droppable = "mmap w+0x0 0x1000 rw droppable|anon|fixed - 0x0";
        for alone in [free, droppable] {
            let line = format!("root; {pageout}; {alone}; {pageout}");
            assert_eq!(settled(&line), line, "by one thread");
        }
        assert_eq!(
            settled(&format!("root; {pageout}; t1 {free}; t2 look")),
            format!("root; {cold}; t1 {free}; t2 look")
        );
        assert_eq!(
            settled(&format!("root; t1 {pageout}; {droppable}; {pageout}")),
            format!("root; t1 {cold}; {droppable}; {cold}")
        );
        let reference = "mmap w+0x0 0x1000 rw private|fixed ref 0x0";
        assert!(!settled(&format!("root; {pageout}; {free}; {reference}")).contains("pageout"));
        let nothing_given_up = format!("root; t1 {pageout}; look");
        assert_eq!(settled(&nothing_given_up), nothing_given_up);
    }
}
