//! The check that makes a list of events a trace: I1..I9 of [`crate::event`], one event at a time.
//!
//! # Guarantee
//! A list that [`Checker::admit`] accepted event by event obeys the invariants. The writer and the reader both use it,
//! so neither a broken recorder nor a crafted file gets a contradiction past it.

use crate::call::Call;
use crate::error::Inconsistent;
use crate::event::{CallEnter, CallExit, Event, EventKind, Fault, Mapped, ThreadIndex};
use crate::header::{Header, Pace};
use crate::snapshot::Snapshot;

/// Follows a trace from its first event on.
#[derive(Debug)]
pub struct Checker {
    threads: Vec<ThreadState>,
    nr_files: usize,
    pace: Pace,
    story: Story,
    time_unit_ns: u64,
    time_ns: u64,
    admitted: u64,
}

/// Whether the trace is the whole story, so that the invariants about sequence can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Story {
    Whole,
    WithLosses,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ThreadState {
    #[default]
    Unborn,
    /// It ran when the recording joined it, maybe inside a call.
    Joined,
    Running,
    InCall(Call),
    Ended,
}

/// A page table of five levels reaches 57 bits; the others repeat the highest of them.
const UNUSED_BITS: u32 = 64 - 57;

type Check = Result<(), &'static str>;

impl Checker {
    /// Returns a checker for a trace with these tables.
    pub fn new(header: &Header, nr_threads: usize, nr_files: usize) -> Self {
        let story = if header.lost == 0 { Story::Whole } else { Story::WithLosses };
        let threads = vec![ThreadState::Unborn; nr_threads];
        let time_unit_ns = header.time_unit_ns();
        Self { threads, nr_files, pace: header.pace, story, time_unit_ns, time_ns: 0, admitted: 0 }
    }

    /// Lets the threads of a snapshot run from the beginning, or says which of the snapshot's invariants does not hold.
    pub fn join(mut self, snapshot: &Snapshot) -> Result<Self, Inconsistent> {
        snapshot.check(self.threads.len(), self.nr_files).map_err(|what| Inconsistent { event: 0, what })?;
        for &thread in snapshot.spaces.iter().flat_map(|space| &space.threads) {
            self.threads[thread as usize] = ThreadState::Joined;
        }
        Ok(self)
    }

    /// Accepts the next event, or says which invariant it breaks.
    pub fn admit(&mut self, event: &Event) -> Result<(), Inconsistent> {
        let verdict = self.check(event);
        verdict.map_err(|what| Inconsistent { event: self.admitted, what })?;
        self.time_ns = event.time_ns;
        self.admitted += 1;
        Ok(())
    }

    /// Returns how many events were accepted.
    pub fn admitted(&self) -> u64 {
        self.admitted
    }

    fn check(&mut self, event: &Event) -> Check {
        ensure(event.time_ns >= self.time_ns, "its time lies before the previous event's (I1)")?;
        let is_whole = [event.time_ns, event.on_cpu_ns].iter().all(|time| time.is_multiple_of(self.time_unit_ns));
        ensure(is_whole, "its time is no multiple of the trace's unit (I9)")?;
        ensure((event.thread as usize) < self.threads.len(), "its thread is not in the table (I2)")?;
        self.check_pace(event)?;
        self.check_content(&event.kind)?;
        match self.story {
            Story::Whole => self.check_sequence(event),
            Story::WithLosses => Ok(()),
        }
    }

    fn check_pace(&self, event: &Event) -> Check {
        let is_pace_event =
            matches!(event.kind, EventKind::SwitchIn | EventKind::SwitchOut(_) | EventKind::Wake { .. });
        let is_paced = is_pace_event || event.on_cpu_ns != 0;
        ensure(self.pace == Pace::Stored || !is_paced, "it holds pace data in a trace without pace (I7)")
    }

    fn check_content(&self, kind: &EventKind) -> Check {
        match kind {
            EventKind::CallEnter(enter) => check_args(enter),
            EventKind::Mapped(mapped) => self.check_mapped(mapped),
            EventKind::Clone(clone) => self.check_thread(clone.child),
            EventKind::Wake { woken } => self.check_thread(*woken),
            EventKind::Fault(fault) => check_fault(fault),
            _ => Ok(()),
        }
    }

    fn check_thread(&self, thread: ThreadIndex) -> Check {
        ensure((thread as usize) < self.threads.len(), "it names a thread that is not in the table (I2)")
    }

    fn check_mapped(&self, mapped: &Mapped) -> Check {
        let is_known = mapped.file.is_none_or(|file| (file as usize) < self.nr_files);
        ensure(is_known, "it names a file that is not in the table (I2)")?;
        ensure(mapped.start.checked_add(mapped.len_bytes).is_some(), "its range wraps around the address space")
    }

    fn check_sequence(&mut self, event: &Event) -> Check {
        let state = self.threads[event.thread as usize];
        match (state, &event.kind) {
            (ThreadState::Unborn, EventKind::Exec) if self.is_opening(event) => {}
            (ThreadState::Unborn, _) => return Err("its thread has not begun (I3)"),
            (ThreadState::Ended, _) => return Err("its thread has ended (I5)"),
            _ => {}
        }
        if let EventKind::Clone(clone) = event.kind {
            self.begin(clone.child)?;
        }
        self.threads[event.thread as usize] = next_state(state, &event.kind)?;
        Ok(())
    }

    /// Returns whether the event is the one that opens a trace which joined nobody (I3).
    fn is_opening(&self, event: &Event) -> bool {
        self.admitted == 0 && event.thread == 0 && !self.threads.contains(&ThreadState::Joined)
    }

    fn begin(&mut self, child: ThreadIndex) -> Check {
        let state = &mut self.threads[child as usize];
        ensure(*state == ThreadState::Unborn, "it makes a thread that had begun before (I3)")?;
        *state = ThreadState::Running;
        Ok(())
    }
}

/// Returns the state of a thread after its event `kind`.
fn next_state(state: ThreadState, kind: &EventKind) -> Result<ThreadState, &'static str> {
    match (state, kind) {
        (ThreadState::InCall(_), EventKind::CallEnter(_)) => Err("it enters a call inside a call (I4)"),
        (_, EventKind::CallEnter(CallEnter { call, .. })) => Ok(ThreadState::InCall(*call)),
        (ThreadState::InCall(entered), EventKind::CallExit(CallExit { call, .. })) if entered == *call => {
            Ok(ThreadState::Running)
        }
        (ThreadState::Joined, EventKind::CallExit(_)) => Ok(ThreadState::Running),
        (_, EventKind::CallExit(_)) => Err("it leaves a call that it did not enter (I4)"),
        (_, EventKind::Exit) => Ok(ThreadState::Ended),
        (ThreadState::Unborn, EventKind::Exec) => Ok(ThreadState::Running),
        (state, _) => Ok(state),
    }
}

fn check_args(enter: &CallEnter) -> Check {
    let is_clean = enter.args[enter.call.arity()..].iter().all(|&arg| arg == 0);
    ensure(is_clean, "it has more arguments than its call (I6)")
}

fn check_fault(fault: &Fault) -> Check {
    let is_canonical = (fault.address as i64) << UNUSED_BITS >> UNUSED_BITS == fault.address as i64;
    ensure(is_canonical, "no page table reaches its address (I8)")
}

fn ensure(holds: bool, otherwise: &'static str) -> Check {
    if holds { Ok(()) } else { Err(otherwise) }
}
