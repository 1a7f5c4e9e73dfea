//! Threads over time: a lane each, a letter for each column of time, and who waited for whom.
//!
//! # Guarantee
//! * I1 a letter says what took most of its column's time; the letters are those of [`State`]
//! * I2 the pairs of waiter and waker hold all waits of the trace, also of threads whose lanes are left out
//! * I3 without pace data lanes know calls only
//! * I4 who ended a wait is who first woke the waiter; where no wake was recorded, the last thread that the waiter made
//!   and that ended meanwhile; otherwise nobody. A wait is over when somebody ended it: from then on the thread could
//!   run
//! * I5 a wait is said to be for the address-space lock only if a thread of the same process ended it, one of the two
//!   was inside a memory call, and the other inside one too or right behind a page fault: readers of the lock do not
//!   wait for each other. A wait inside a memory call of which that is not known is said to be one, and no more

use std::collections::HashMap;

use faultless_trace::{Call, Event, EventKind, Pace, SwitchReason, ThreadIndex, Trace};
use serde_json::{Map, Value, json};

use crate::columns::column;

/// Columns of time.
pub const COLUMNS: usize = 600;

/// The most lanes.
pub const LANES: usize = 40;

/// The most waits that are drawn one by one: the longest.
const WAITS: usize = 150;

/// The most pairs of waiter and waker.
const PAIRS: usize = 100;

/// What a thread does in a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It is not there.
    Absent = 0,
    /// It runs, or nobody knows better.
    Runs = 1,
    /// It is inside a memory call, on a CPU.
    Calls = 2,
    /// It waits, outside memory calls.
    Waits = 3,
    /// It waits inside a memory call, or inside a page fault for the address-space lock.
    WaitsInCall = 4,
    /// It could run, and has no CPU.
    Ready = 5,
}

impl State {
    /// The letters, by state.
    pub const LETTERS: [char; 6] = ['.', 'c', 'm', 'w', 'W', 'r'];
}

/// Less time on a CPU than this behind a page fault, and a thread that then waits may still be inside it.
const FAULT_NS: u64 = 10_000;

/// What a thread is inside of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Inside {
    /// A memory call.
    Call(Call),
    /// Perhaps a page fault, which began so much CPU time ago; its end is not recorded.
    Fault(u64),
    /// Neither, as far as is known.
    Nothing,
}

impl Inside {
    fn is_call(self) -> bool {
        matches!(self, Self::Call(_))
    }

    /// Returns its name; nothing where there is nothing.
    fn name(self) -> Option<&'static str> {
        match self {
            Self::Call(call) => Some(call.name()),
            Self::Fault(ns) => (ns <= FAULT_NS).then_some("page fault"),
            Self::Nothing => None,
        }
    }

    /// Counts time on a CPU.
    fn spend(&mut self, on_cpu_ns: u64) {
        if let Self::Fault(ns) = self {
            *ns += on_cpu_ns;
        }
    }
}

/// Who ended a wait.
#[derive(Clone, Copy, Debug)]
struct Waker {
    thread: ThreadIndex,
    /// When it woke the waiter.
    time_ns: u64,
    /// What it was inside of.
    inside: Inside,
}

/// What is known of a thread while the trace is read.
#[derive(Clone, Debug)]
struct Lane {
    began_ns: Option<u64>,
    since_ns: u64,
    state: State,
    inside: Inside,
    nr_events: u64,
    nr_faults: u64,
    has_ended: bool,
    /// The wait under way: since when, and who ended it.
    wait: Option<(u64, Option<Waker>)>,
    /// The thread that made it.
    maker: Option<usize>,
    /// The last thread it made that ended while it waited, and when.
    ended: Option<(ThreadIndex, u64)>,
    /// Nanoseconds of each state, by column.
    times: HashMap<usize, [u64; 6]>,
}

/// A wait that is over.
struct Wait {
    began_ns: u64,
    ended_ns: u64,
    waiter: ThreadIndex,
    waker: Option<ThreadIndex>,
    /// What the waiter was inside of.
    inside: Option<&'static str>,
    /// What the waker was inside of, which held the address-space lock; nothing if the wait was for something else.
    held_in: Option<&'static str>,
    /// Whether the waker ended, and no wake was recorded.
    is_end: bool,
}

impl Wait {
    /// Returns what it was for.
    fn what(&self) -> WaitedFor {
        match () {
            () if self.held_in.is_some() => WaitedFor::Lock,
            () if self.inside.is_some() => WaitedFor::Call,
            () if self.is_end => WaitedFor::End,
            () => WaitedFor::Other,
        }
    }
}

/// What a wait is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum WaitedFor {
    /// The address-space lock (I5).
    Lock,
    /// Something inside a memory call.
    Call,
    /// The waker's end.
    End,
    /// Something else.
    Other,
}

impl WaitedFor {
    fn name(self) -> &'static str {
        match self {
            Self::Lock => "lock",
            Self::Call => "call",
            Self::End => "end",
            Self::Other => "other",
        }
    }
}

struct Reader<'a> {
    trace: &'a Trace,
    duration_ns: u64,
    lanes: Vec<Lane>,
    waits: Vec<Wait>,
}

/// Returns the lanes and the waits.
pub fn outline(trace: &Trace) -> Value {
    let duration_ns = trace.events.last().map_or(0, |event| event.time_ns);
    let lane = Lane {
        began_ns: None,
        since_ns: 0,
        state: State::Absent,
        inside: Inside::Nothing,
        nr_events: 0,
        nr_faults: 0,
        has_ended: false,
        wait: None,
        maker: None,
        ended: None,
        times: HashMap::new(),
    };
    let mut reader = Reader { trace, duration_ns, lanes: vec![lane; trace.threads.len()], waits: Vec::new() };
    for event in &trace.events {
        reader.take(event);
    }
    reader.lanes.iter_mut().filter(|lane| !lane.has_ended).for_each(|lane| lane.spend(duration_ns, duration_ns));
    reader.tell()
}

impl Lane {
    /// Counts the time since the last change as the state's, column by column.
    fn spend(&mut self, until_ns: u64, duration_ns: u64) {
        let from_ns = std::mem::replace(&mut self.since_ns, until_ns);
        if self.state == State::Absent || from_ns >= until_ns {
            return;
        }
        let bounds = |place: usize| (u128::from(duration_ns) * place as u128).div_ceil(COLUMNS as u128) as u64;
        for place in column(from_ns, duration_ns, COLUMNS)..=column(until_ns, duration_ns, COLUMNS) {
            let (first, last) = (bounds(place).max(from_ns), bounds(place + 1).min(until_ns));
            if first < last {
                self.times.entry(place).or_default()[self.state as usize] += last - first;
            }
        }
    }

    fn change(&mut self, state: State, now_ns: u64, duration_ns: u64) {
        self.spend(now_ns, duration_ns);
        self.state = state;
    }

    fn running(&self) -> State {
        if self.inside.is_call() { State::Calls } else { State::Runs }
    }
}

impl Reader<'_> {
    fn take(&mut self, event: &Event) {
        let (thread, now_ns, kind) = (event.thread as usize, event.time_ns, &event.kind);
        self.lanes[thread].inside.spend(event.on_cpu_ns);
        let inside = self.lanes[thread].inside;
        if let EventKind::Wake { woken } = kind {
            // Who first wakes a thread that waits ends its wait.
            if let Some((_, waker @ None)) = &mut self.lanes[*woken as usize].wait {
                *waker = Some(Waker { thread: thread as ThreadIndex, time_ns: now_ns, inside });
            }
        }
        match (kind, self.lanes[thread].maker) {
            (EventKind::Clone(clone), _) => self.lanes[clone.child as usize].maker = Some(thread),
            // Linux does not show whom an ending thread wakes; its end stands for that (`EventKind::Wake`).
            (EventKind::Exit, Some(maker)) => self.lanes[maker].ended = Some((thread as ThreadIndex, now_ns)),
            _ => {}
        }
        if matches!(kind, EventKind::SwitchIn) {
            self.end_wait(thread, now_ns);
        }
        let duration_ns = self.duration_ns;
        let lane = &mut self.lanes[thread];
        lane.nr_events += 1;
        if lane.began_ns.is_none() {
            lane.began_ns = Some(now_ns);
            lane.since_ns = now_ns;
            lane.state = State::Runs;
        }
        match kind {
            EventKind::CallEnter(enter) => {
                lane.inside = Inside::Call(enter.call);
                lane.change(State::Calls, now_ns, duration_ns);
            }
            EventKind::CallExit(_) => {
                lane.inside = Inside::Nothing;
                lane.change(State::Runs, now_ns, duration_ns);
            }
            EventKind::SwitchOut(SwitchReason::Blocked) => {
                let state = if lane.inside.is_call() { State::WaitsInCall } else { State::Waits };
                lane.change(state, now_ns, duration_ns);
                (lane.wait, lane.ended) = (Some((now_ns, None)), None);
            }
            EventKind::SwitchOut(SwitchReason::Preempted) => lane.change(State::Ready, now_ns, duration_ns),
            EventKind::SwitchIn => lane.change(lane.running(), now_ns, duration_ns),
            EventKind::Exit => {
                lane.change(State::Absent, now_ns, duration_ns);
                lane.has_ended = true;
            }
            EventKind::Fault(_) => {
                lane.nr_faults += 1;
                if !lane.inside.is_call() {
                    lane.inside = Inside::Fault(0);
                }
            }
            EventKind::Clone(_) | EventKind::Exec => lane.inside = Inside::Nothing,
            _ => {}
        }
    }

    /// Keeps a thread's wait, which ends, if there is one.
    fn end_wait(&mut self, thread: usize, now_ns: u64) {
        let Some((began_ns, waker)) = self.lanes[thread].wait.take() else { return };
        let duration_ns = self.duration_ns;
        let lane = &self.lanes[thread];
        let waiter = thread as ThreadIndex;
        let held_in = waker.and_then(|waker| self.lock_holder(waiter, lane.inside, waker));
        let inside = lane.inside.name().filter(|_| lane.inside.is_call() || held_in.is_some());
        let is_end = waker.is_none() && lane.ended.is_some();
        let ended_by = waker.map(|waker| (waker.thread, waker.time_ns)).or(lane.ended);
        let ended_ns = ended_by.map_or(now_ns, |(_, ended_ns)| ended_ns.clamp(began_ns, now_ns));
        let lane = &mut self.lanes[thread];
        if held_in.is_some() {
            lane.state = State::WaitsInCall;
        }
        lane.change(State::Ready, ended_ns, duration_ns);
        let waker = ended_by.map(|(waker, _)| waker);
        self.waits.push(Wait { began_ns, ended_ns, waiter, waker, inside, held_in, is_end });
    }

    /// Returns what the waker was inside of, if it held the address-space lock that the waiter waited for (I5).
    fn lock_holder(&self, waiter: ThreadIndex, inside: Inside, waker: Waker) -> Option<&'static str> {
        let process = |thread: ThreadIndex| self.trace.threads[thread as usize].pid;
        let is_one = process(waiter) == process(waker.thread);
        let has_call = inside.is_call() || waker.inside.is_call();
        waker.inside.name().filter(|_| is_one && has_call && inside.name().is_some())
    }

    fn tell(mut self) -> Value {
        let trace = self.trace;
        let name = |thread: ThreadIndex| {
            let thread = &trace.threads[thread as usize];
            format!("{} {}", thread.name, thread.tid)
        };
        let mut busiest: Vec<usize> = (0..self.lanes.len()).filter(|&place| self.lanes[place].nr_events > 0).collect();
        let nr_threads = busiest.len();
        busiest.sort_by_key(|&place| std::cmp::Reverse(self.lanes[place].nr_events));
        busiest.truncate(LANES);
        busiest.sort_by_key(|&place| (self.lanes[place].began_ns, place));
        let lanes = busiest.iter().map(|&place| {
            let lane = &self.lanes[place];
            json!({ "name": name(place as ThreadIndex), "states": states(lane), "events": lane.nr_events, "faults": lane.nr_faults })
        });
        let lanes: Vec<Value> = lanes.collect();
        let lane_of = |thread: ThreadIndex| busiest.iter().position(|&place| place == thread as usize);
        let pairs = pairs(&self.waits, name);
        let nr_waits = self.waits.len();
        self.waits.sort_by_key(|wait| std::cmp::Reverse(wait.ended_ns - wait.began_ns));
        let longest = self.waits.iter().filter_map(|wait| {
            let waker = wait.waker.and_then(lane_of);
            let is_known = waker.is_some() || wait.inside.is_some();
            let told = json!([
                wait.began_ns,
                wait.ended_ns,
                lane_of(wait.waiter)?,
                waker,
                wait.inside,
                wait.held_in,
                wait.what().name()
            ]);
            is_known.then_some(told)
        });
        json!({
            "count": nr_threads, "columns": COLUMNS, "spent_ns": spent(&self.lanes),
            "has_pace": trace.header.pace != Pace::Absent, "lanes": lanes,
            "nr_waits": nr_waits, "waits": longest.take(WAITS).collect::<Vec<_>>(), "pairs": pairs,
        })
    }
}

/// Returns the time of all threads by state's letter, but that before they began and after they ended.
fn spent(lanes: &[Lane]) -> Value {
    let of = |state: usize| lanes.iter().flat_map(|lane| lane.times.values()).map(|times| times[state]).sum::<u64>();
    let states = State::LETTERS.iter().enumerate().skip(1);
    states.map(|(state, letter)| (letter.to_string(), Value::from(of(state)))).collect::<Map<_, _>>().into()
}

/// Returns a lane's letters (I1).
fn states(lane: &Lane) -> String {
    let letter = |place: usize| {
        let Some(times) = lane.times.get(&place) else { return State::LETTERS[0] };
        let (most, _) = times.iter().enumerate().max_by_key(|(_, ns)| **ns).unwrap_or((0, &0));
        State::LETTERS[most]
    };
    (0..COLUMNS).map(letter).collect()
}

/// Returns who waited for whom and for what, how often and how long (I2).
fn pairs(waits: &[Wait], name: impl Fn(ThreadIndex) -> String) -> Vec<Value> {
    let mut sums: HashMap<(ThreadIndex, Option<ThreadIndex>, WaitedFor), (u64, u64)> = HashMap::new();
    for wait in waits {
        let (count, ns) = sums.entry((wait.waiter, wait.waker, wait.what())).or_default();
        *count += 1;
        *ns += wait.ended_ns - wait.began_ns;
    }
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_by_key(|(pair, (_, ns))| (std::cmp::Reverse(*ns), *pair));
    let told = sums.into_iter().take(PAIRS).map(|((waiter, waker, what), (count, ns))| {
        json!({ "waiter": name(waiter), "waker": waker.map(&name), "what": what.name(), "count": count, "ns": ns })
    });
    told.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultless_trace::{CallEnter, CallExit, CloneTask, Fault, Header, Side, Thread};

    fn trace(events: &[(ThreadIndex, u64, EventKind)]) -> Trace {
        let event =
            |&(thread, time_ns, kind): &(ThreadIndex, u64, EventKind)| Event { thread, time_ns, on_cpu_ns: 0, kind };
        let thread = |tid| Thread { pid: 1, tid, name: "t".into() };
        Trace {
            header: Header::default(),
            threads: (1..=2).map(thread).collect(),
            events: events.iter().map(event).collect(),
            ..Trace::default()
        }
    }

    const ENTER: EventKind = EventKind::CallEnter(CallEnter { call: Call::Munmap, args: [0; 6] });
    const EXIT: EventKind = EventKind::CallExit(CallExit { call: Call::Munmap, result: 0 });
    const BLOCKED: EventKind = EventKind::SwitchOut(SwitchReason::Blocked);

    #[test]
    fn a_lane_says_what_took_most_of_each_column_and_who_ended_a_wait() {
        let told = outline(&trace(&[
            (0, 0, EventKind::Exec),
            (1, 0, EventKind::SwitchIn),
            (0, 1000, ENTER),
            (0, 2000, BLOCKED),
            (1, 4500, EventKind::Wake { woken: 0 }),
            (0, 5000, EventKind::SwitchIn),
            (0, 5500, EXIT),
            (1, 5700, BLOCKED),
            (0, 5900, EventKind::Exit),
            (1, 6000, EventKind::SwitchIn),
        ]));
        let states = |place: usize| told["lanes"][place]["states"].as_str().expect("letters").to_owned();
        let runs: Vec<char> = states(0).chars().step_by(50).collect();
        assert_eq!(runs.into_iter().collect::<String>(), "ccmmWWWWWrmc");
        assert!(states(0).ends_with("ccc.........."), "{}", states(0));
        assert!(states(1).ends_with("w"), "{}", states(1));
        assert_eq!(told["waits"][0], json!([2000, 4500, 0, 1, "munmap", null, "call"]), "woken, it could run");
        let pair = json!({ "waiter": "t 1", "waker": "t 2", "what": "call", "count": 1, "ns": 2500 });
        assert_eq!(told["pairs"][0], pair);
        assert_eq!(told["pairs"][1]["waker"], Value::Null, "nobody is said to have ended a wait that nobody did");
        let spent = json!({ "c": 7100, "m": 1500, "W": 2500, "w": 300, "r": 500 });
        assert_eq!(told["spent_ns"], spent);
    }

    /// Returns what a wait was for: of a thread that does this before it blocks, and is woken by one that did that.
    fn wait_of(before: &[EventKind], waker: &[EventKind], pids: [u32; 2], on_cpu_ns: u64) -> Value {
        let mut events = vec![(0, EventKind::Exec), (1, EventKind::SwitchIn)];
        events.extend(waker.iter().map(|&kind| (1, kind)));
        events.extend(before.iter().map(|&kind| (0, kind)));
        events.extend([(0, BLOCKED), (1, EventKind::Wake { woken: 0 }), (0, EventKind::SwitchIn)]);
        let event = |(place, &(thread, kind)): (usize, &(ThreadIndex, EventKind))| {
            let on_cpu_ns = if kind == BLOCKED { on_cpu_ns } else { 0 };
            Event { thread, time_ns: place as u64 * 100, on_cpu_ns, kind }
        };
        let threads = pids.map(|pid| Thread { pid, tid: pid, name: "t".into() });
        let events = events.iter().enumerate().map(event).collect();
        outline(&Trace { threads: threads.into(), events, ..Trace::default() })["pairs"][0]["what"].clone()
    }

    #[test]
    fn a_wait_is_for_the_address_space_lock_only_if_its_holder_was_seen_with_it() {
        let fault = EventKind::Fault(Fault { address: 0, ip: 0, error_code: 6, side: Side::User });
        let cases = [
            (&[ENTER][..], &[ENTER][..], [1, 1], 0, "lock"),
            (&[fault], &[ENTER], [1, 1], 2000, "lock"),
            (&[ENTER], &[fault], [1, 1], 0, "lock"),
            // Two faults read; much later than a fault it is over; another process has another lock.
            (&[fault], &[fault], [1, 1], 0, "other"),
            (&[fault], &[ENTER], [1, 1], 50_000, "other"),
            (&[ENTER], &[ENTER], [1, 2], 0, "call"),
            (&[ENTER], &[], [1, 1], 0, "call"),
            (&[ENTER, EXIT], &[ENTER, EXIT], [1, 1], 0, "other"),
        ];
        for (before, waker, pids, on_cpu_ns, what) in cases {
            assert_eq!(wait_of(before, waker, pids, on_cpu_ns), what, "{before:?} {waker:?} {pids:?} {on_cpu_ns}");
        }
    }

    #[test]
    fn the_end_of_a_thread_ends_its_maker_s_wait_where_no_wake_was_recorded() {
        let clone = EventKind::Clone(CloneTask { child: 1, flags: 0 });
        let events = |wake: &[(ThreadIndex, u64, EventKind)]| {
            let begun = [(0, 0, EventKind::Exec), (0, 10, clone), (0, 20, BLOCKED)];
            let ended = [(1, 100, EventKind::Exit), (0, 110, EventKind::SwitchIn)];
            let told = outline(&trace(&[&begun[..], wake, &ended].concat()));
            (told["pairs"][0]["waker"].clone(), told["pairs"][0]["ns"].clone())
        };
        assert_eq!(events(&[]), (json!("t 2"), json!(80)), "until it ended, not until a CPU was free again");
        let wake = (0, 50, EventKind::Wake { woken: 0 });
        assert_eq!(events(&[wake]), (json!("t 1"), json!(30)), "a wake that was recorded counts");
    }

    #[test]
    fn a_trace_without_events_has_no_lanes() {
        let told = outline(&Trace::default());
        assert_eq!((told["count"].as_u64(), told["lanes"].as_array().map(Vec::len)), (Some(0), Some(0)));
    }
}
