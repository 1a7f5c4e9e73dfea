//! The instant at which a recording ends: one for all CPUs and threads.
//!
//! # Guarantee
//! Every record of what happened until the cut is there. Where there was such an instant shortly before the end, no
//! thread was inside a memory call then and none was copying its tables for a child, so that no event tells of a half
//! of something. Who is awaited has ended by the cut.
//!
//! # Protocol
//! Events are switched off one after the other, which takes milliseconds. So the clock is read first: what came until
//! then was recorded by events that were all still on. Among the last records before it the latest quiet instant is
//! looked for:
//! ```text
//! A   mmap===        munmap=====            mprotect==|========
//! B        fork=======       mmap====     ^           |
//!                                       the cut   events go off
//! ```
//! A program that is never quiet is cut where its events go off; its calls without a result are in flight.

use std::collections::HashSet;
use std::io;

use crate::merge::Merge;
use crate::numbers;
use crate::spool::QUIET_WITHIN_NS;
use crate::wire::{Body, Record, Sample};

/// Returns the time of the last records that count. `tail` gives the records of the recording's last moments; what was
/// awaited happened at `awaited_ns`, or before.
pub(crate) fn find(tail: &mut Merge<'_>, ended_ns: u64, awaited_ns: u64) -> io::Result<u64> {
    let mut quiet = Quiet::default();
    while let Some(record) = tail.next()?.filter(|record| record.time_ns <= ended_ns) {
        quiet.take(&record);
    }
    Ok(quiet.until_ns(ended_ns, awaited_ns))
}

/// Who is inside a call, and when nobody was.
#[derive(Debug, Default)]
struct Quiet {
    busy: HashSet<u32>,
    time_ns: u64,
    latest_ns: Option<u64>,
}

impl Quiet {
    fn take(&mut self, record: &Record) {
        if self.busy.is_empty() && record.time_ns > self.time_ns {
            self.latest_ns = Some(record.time_ns - 1);
        }
        self.time_ns = self.time_ns.max(record.time_ns);
        match record.body {
            Body::Sample(_, Sample::Enter { .. }) => {
                self.busy.insert(record.tid);
            }
            // The tables are copied by then; the child has not run yet.
            Body::Sample(_, Sample::NewTask { .. }) => self.leave(record.tid),
            Body::Sample(_, Sample::Exit { number, .. }) if !numbers::makes_task(number) => self.leave(record.tid),
            Body::Sample(_, Sample::Exit { .. }) => {
                self.busy.remove(&record.tid);
            }
            Body::Exited { tid } => {
                self.busy.remove(&tid);
            }
            _ => {}
        }
    }

    /// A call that was entered before the first of these records: it was under way all the time until now.
    fn leave(&mut self, tid: u32) {
        if !self.busy.remove(&tid) {
            self.latest_ns = None;
        }
    }

    fn until_ns(&self, ended_ns: u64, awaited_ns: u64) -> u64 {
        let latest_ns = if self.busy.is_empty() { Some(ended_ns) } else { self.latest_ns };
        let earliest_ns = awaited_ns.max(ended_ns.saturating_sub(QUIET_WITHIN_NS));
        latest_ns.filter(|&latest_ns| latest_ns >= earliest_ns).unwrap_or(ended_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Context, Forked};

    const MS: u64 = 1_000_000;

    fn sample(tid: u32, time_ns: u64, sample: Sample) -> Record {
        Record { event: 0, tid, time_ns, bytes: 0, body: Body::Sample(Context::default(), sample) }
    }

    fn enter(tid: u32, time_ns: u64, number: i64) -> Record {
        sample(tid, time_ns, Sample::Enter { number, args: [0; 6] })
    }

    fn exit(tid: u32, time_ns: u64, number: i64) -> Record {
        sample(tid, time_ns, Sample::Exit { number, result: 0 })
    }

    fn cut(records: &[Record], ended_ns: u64) -> u64 {
        let mut quiet = Quiet::default();
        records.iter().for_each(|record| quiet.take(record));
        quiet.until_ns(ended_ns, 0)
    }

    #[test]
    fn the_cut_is_the_end_if_nobody_is_inside_a_call() {
        let records = [enter(1, 10, libc::SYS_mmap), exit(1, 20, libc::SYS_mmap)];
        assert_eq!(cut(&records, 30), 30);
        assert_eq!(cut(&[], 30), 30);
    }

    #[test]
    fn the_cut_comes_before_the_calls_that_are_under_way_at_the_end() {
        let records = [
            enter(1, 10, libc::SYS_mmap),
            exit(1, 20, libc::SYS_mmap),
            enter(2, 25, libc::SYS_munmap),
            enter(1, 30, libc::SYS_brk),
            exit(1, 40, libc::SYS_brk),
        ];
        assert_eq!(cut(&records, 50), 24);
    }

    #[test]
    fn a_fork_is_under_way_until_it_tells_of_the_child() {
        let forked = Forked { pid: 9, tid: 9, parent_pid: 1, parent_tid: 1 };
        let fork = Record { body: Body::Forked(forked), ..enter(1, 20, 0) };
        let mut records = vec![enter(1, 10, libc::SYS_clone), fork];
        assert_eq!(cut(&records, 30), 9);
        records.push(sample(1, 21, Sample::NewTask { outer_tid: 9, flags: 0 }));
        assert_eq!(cut(&records, 30), 30);
    }

    #[test]
    fn a_call_that_was_under_way_before_the_first_record_leaves_no_quiet_instant_before_its_exit() {
        let mut records =
            vec![enter(1, 10, libc::SYS_mmap), exit(1, 20, libc::SYS_mmap), exit(2, 30, libc::SYS_munmap)];
        records.push(enter(1, 32, libc::SYS_mmap));
        assert_eq!(cut(&records, 40), 31);
        let busy = [enter(1, 10, libc::SYS_mmap), exit(2, 30, libc::SYS_munmap)];
        assert_eq!(cut(&busy, 40), 40, "there was no quiet instant");
    }

    #[test]
    fn a_thread_that_ends_inside_a_call_is_not_waited_for() {
        let ended = Record { body: Body::Exited { tid: 1 }, ..enter(1, 20, 0) };
        assert_eq!(cut(&[enter(1, 10, libc::SYS_mmap), ended], 30), 30);
    }

    #[test]
    fn what_was_awaited_is_told() {
        let mut quiet = Quiet::default();
        let records = [enter(1, 10, libc::SYS_mmap), exit(1, 20, libc::SYS_mmap), enter(2, 25, libc::SYS_munmap)];
        records.iter().for_each(|record| quiet.take(record));
        assert_eq!([24, 25].map(|awaited_ns| quiet.until_ns(50, awaited_ns)), [24, 50]);
    }

    #[test]
    fn much_is_not_given_up_for_a_quiet_instant() {
        let records = [enter(1, 10 * MS, libc::SYS_msync)];
        assert_eq!(cut(&records, 90 * MS), 10 * MS - 1);
        assert_eq!(cut(&records, 200 * MS), 200 * MS, "it is in flight");
    }
}
