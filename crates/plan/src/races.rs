//! When two threads' faults on one page may overlap in time, and when a thread may have changed CPUs.
//!
//! # Guarantee
//! A fault has an entry record only. It is taken to last until its thread's next event, and at most [`SPAN_NS`] of the
//! thread's time on a CPU; a thread that was switched out meanwhile resumes it when it is switched in. The access came
//! before the record, and no longer before than that.

use faultless_trace::{EventKind, Pace, ThreadIndex, Trace};

use super::ids::{EventIndex, NONE};
use super::pace::is_pace;

/// The longest that a fault is taken to run: some hundred times what one costs.
const SPAN_NS: u64 = 500_000;

/// Without pace data it is not known whether a fault was interrupted by a switch: a few turns of a scheduler.
const SPAN_UNPACED_NS: u64 = 20_000_000;

/// Finds each thread's next event.
#[derive(Debug)]
pub struct Races<'a> {
    trace: &'a Trace,
    next: Vec<EventIndex>,
    /// When each thread was switched out.
    outs: Vec<Vec<EventIndex>>,
}

impl<'a> Races<'a> {
    /// Looks at a whole trace.
    pub fn of(trace: &'a Trace) -> Self {
        let mut coming = vec![NONE; trace.threads.len()];
        let mut next = vec![NONE; trace.events.len()];
        for (place, event) in trace.events.iter().enumerate().rev() {
            next[place] = std::mem::replace(&mut coming[event.thread as usize], place as EventIndex);
        }
        let mut outs = vec![Vec::new(); trace.threads.len()];
        for (place, event) in trace.events.iter().enumerate() {
            if let EventKind::SwitchOut(_) = event.kind {
                outs[event.thread as usize].push(place as EventIndex);
            }
        }
        Self { trace, next, outs }
    }

    /// Returns whether an earlier fault may still have been under way when the access was made of which a later one
    /// tells.
    pub fn is_under_way(&self, earlier: EventIndex, later: EventIndex) -> bool {
        self.begin_ns(later) <= self.end_ns(earlier).saturating_add(self.trace.header.clock_error_ns)
    }

    /// Returns whether two events are too close for their order to be known.
    pub fn is_simultaneous(&self, one: EventIndex, other: EventIndex) -> bool {
        self.time(one).abs_diff(self.time(other)) <= self.trace.header.clock_error_ns
    }

    /// Returns whether `later` is its thread's next event after `earlier`, scheduling aside.
    pub fn is_next(&self, earlier: EventIndex, later: EventIndex) -> bool {
        self.after(earlier) == later
    }

    /// Returns the thread's next event, scheduling aside; [`NONE`] if there is none.
    pub fn after(&self, earlier: EventIndex) -> EventIndex {
        let mut event = self.next[earlier as usize];
        while event != NONE && is_pace(&self.trace.events[event as usize].kind) {
            event = self.next[event as usize];
        }
        event
    }

    /// Returns whether a thread may have run on another CPU before `earlier` than after `later`.
    pub fn may_have_moved(&self, thread: ThreadIndex, earlier: EventIndex, later: EventIndex) -> bool {
        let outs = &self.outs[thread as usize];
        let is_between = || outs.get(outs.partition_point(|&out| out < earlier)).is_some_and(|&out| out < later);
        self.trace.header.pace == Pace::Absent || is_between()
    }

    /// Returns the earliest time at which the access of a fault may have been made: behind its thread's last event, and
    /// not longer ago than a fault takes. A hypervisor may take the CPU away between the access and the record.
    fn begin_ns(&self, fault: EventIndex) -> u64 {
        let (thread, earliest_ns) =
            (self.trace.events[fault as usize].thread, self.time(fault).saturating_sub(SPAN_NS));
        let earlier = self.trace.events[..fault as usize].iter().rev();
        let mut earlier = earlier.take_while(|event| event.time_ns >= earliest_ns);
        earlier.find(|event| event.thread == thread).map_or(earliest_ns, |event| event.time_ns)
    }

    fn time(&self, event: EventIndex) -> u64 {
        self.trace.events[event as usize].time_ns
    }

    /// Returns when a fault is surely over.
    pub fn end_ns(&self, fault: EventIndex) -> u64 {
        let span_ns = match self.trace.header.pace {
            Pace::Stored => SPAN_NS,
            Pace::Absent => SPAN_UNPACED_NS,
        };
        let mut deadline_ns = self.time(fault) + span_ns;
        let mut event = self.next[fault as usize];
        while event != NONE && self.time(event) <= deadline_ns {
            match self.trace.events[event as usize].kind {
                EventKind::SwitchOut(_) => deadline_ns = self.resumed_ns(event).saturating_add(span_ns),
                EventKind::SwitchIn | EventKind::Wake { .. } => {}
                _ => return self.time(event),
            }
            event = self.next[event as usize];
        }
        deadline_ns
    }

    /// Returns when the thread was switched in again.
    fn resumed_ns(&self, out: EventIndex) -> u64 {
        match self.next[out as usize] {
            NONE => u64::MAX,
            event => self.time(event),
        }
    }
}
