//! Threads over time: a lane each, a letter for each column of time, and who waited for whom.
//!
//! # Guarantee
//! * I1 a letter says what took most of its column's time; the letters are those of [`State`]
//! * I2 the pairs of waiter and waker hold all waits of the trace, also of threads whose lanes are left out
//! * I3 without pace data lanes know calls only
//! * I4 who ended a wait is who first woke the waiter; where no wake was recorded, the last thread that the waiter made
//!   and that ended meanwhile; otherwise nobody

use std::collections::HashMap;

use faultless_trace::{EventKind, Pace, SwitchReason, ThreadIndex, Trace};
use serde_json::{Value, json};

use crate::column;

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
    /// It waits inside a memory call.
    WaitsInCall = 4,
    /// It could run, and has no CPU.
    Ready = 5,
}

impl State {
    /// The letters, by state.
    pub const LETTERS: [char; 6] = ['.', 'c', 'm', 'w', 'W', 'r'];
}

/// What is known of a thread while the trace is read.
#[derive(Clone, Debug)]
struct Lane {
    began_ns: Option<u64>,
    since_ns: u64,
    state: State,
    in_call: bool,
    nr_events: u64,
    nr_faults: u64,
    has_ended: bool,
    /// The wait under way: since when, and who ended it.
    wait: Option<(u64, Option<ThreadIndex>)>,
    /// The thread that made it.
    maker: Option<usize>,
    /// The last thread it made that ended while it waited.
    ended: Option<ThreadIndex>,
    /// Nanoseconds of each state, by column.
    times: HashMap<usize, [u64; 6]>,
}

/// A wait that is over.
struct Wait {
    began_ns: u64,
    ended_ns: u64,
    waiter: ThreadIndex,
    waker: Option<ThreadIndex>,
    in_call: bool,
}

struct Reader {
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
        in_call: false,
        nr_events: 0,
        nr_faults: 0,
        has_ended: false,
        wait: None,
        maker: None,
        ended: None,
        times: HashMap::new(),
    };
    let mut reader = Reader { duration_ns, lanes: vec![lane; trace.threads.len()], waits: Vec::new() };
    for event in &trace.events {
        reader.take(event.thread as usize, event.time_ns, &event.kind);
    }
    reader.lanes.iter_mut().filter(|lane| !lane.has_ended).for_each(|lane| lane.spend(duration_ns, duration_ns));
    reader.tell(trace)
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
        if self.in_call { State::Calls } else { State::Runs }
    }
}

impl Reader {
    fn take(&mut self, thread: usize, now_ns: u64, kind: &EventKind) {
        if let EventKind::Wake { woken } = kind {
            // Who first wakes a thread that waits ends its wait.
            if let Some((_, waker @ None)) = &mut self.lanes[*woken as usize].wait {
                *waker = Some(thread as ThreadIndex);
            }
        }
        match (kind, self.lanes[thread].maker) {
            (EventKind::Clone(clone), _) => self.lanes[clone.child as usize].maker = Some(thread),
            // Linux does not show whom an ending thread wakes; its end stands for that (`EventKind::Wake`).
            (EventKind::Exit, Some(maker)) => self.lanes[maker].ended = Some(thread as ThreadIndex),
            _ => {}
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
            EventKind::CallEnter(_) => {
                lane.in_call = true;
                lane.change(State::Calls, now_ns, duration_ns);
            }
            EventKind::CallExit(_) => {
                lane.in_call = false;
                lane.change(State::Runs, now_ns, duration_ns);
            }
            EventKind::SwitchOut(SwitchReason::Blocked) => {
                let state = if lane.in_call { State::WaitsInCall } else { State::Waits };
                lane.change(state, now_ns, duration_ns);
                (lane.wait, lane.ended) = (Some((now_ns, None)), None);
            }
            EventKind::SwitchOut(SwitchReason::Preempted) => lane.change(State::Ready, now_ns, duration_ns),
            EventKind::SwitchIn => {
                lane.change(lane.running(), now_ns, duration_ns);
                if let Some((began_ns, waker)) = lane.wait.take() {
                    let (waiter, in_call, waker) = (thread as ThreadIndex, lane.in_call, waker.or(lane.ended));
                    self.waits.push(Wait { began_ns, ended_ns: now_ns, waiter, waker, in_call });
                }
            }
            EventKind::Exit => {
                lane.change(State::Absent, now_ns, duration_ns);
                lane.has_ended = true;
            }
            EventKind::Fault(_) => lane.nr_faults += 1,
            _ => {}
        }
    }

    fn tell(mut self, trace: &Trace) -> Value {
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
            Some(json!([wait.began_ns, wait.ended_ns, lane_of(wait.waiter)?, lane_of(wait.waker?)?, wait.in_call]))
        });
        json!({
            "count": nr_threads, "columns": COLUMNS, "has_pace": trace.header.pace != Pace::Absent, "lanes": lanes,
            "nr_waits": nr_waits, "waits": longest.take(WAITS).collect::<Vec<_>>(), "pairs": pairs,
        })
    }
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

/// Returns who waited for whom: how often, how long, and how much of that inside memory calls (I2).
fn pairs(waits: &[Wait], name: impl Fn(ThreadIndex) -> String) -> Vec<Value> {
    let mut sums: HashMap<(ThreadIndex, Option<ThreadIndex>), (u64, u64, u64)> = HashMap::new();
    for wait in waits {
        let (count, ns, in_call_ns) = sums.entry((wait.waiter, wait.waker)).or_default();
        let waited_ns = wait.ended_ns - wait.began_ns;
        *count += 1;
        *ns += waited_ns;
        *in_call_ns += if wait.in_call { waited_ns } else { 0 };
    }
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_by_key(|(pair, (_, ns, _))| (std::cmp::Reverse(*ns), *pair));
    let told = sums.into_iter().take(PAIRS).map(|((waiter, waker), (count, ns, in_call_ns))| {
        json!({ "waiter": name(waiter), "waker": waker.map(&name), "count": count, "ns": ns, "in_call_ns": in_call_ns })
    });
    told.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultless_trace::{Call, CallEnter, CallExit, CloneTask, Event, Header, Thread};

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
        assert_eq!(runs.into_iter().collect::<String>(), "ccmmWWWWWWmc");
        assert!(states(0).ends_with("ccc.........."), "{}", states(0));
        assert!(states(1).ends_with("w"), "{}", states(1));
        assert_eq!(told["waits"][0], json!([2000, 5000, 0, 1, true]));
        let pair = json!({ "waiter": "t 1", "waker": "t 2", "count": 1, "ns": 3000, "in_call_ns": 3000 });
        assert_eq!(told["pairs"][0], pair);
        assert_eq!(told["pairs"][1]["waker"], Value::Null, "nobody is said to have ended a wait that nobody did");
    }

    #[test]
    fn the_end_of_a_thread_ends_its_maker_s_wait_where_no_wake_was_recorded() {
        let clone = EventKind::Clone(CloneTask { child: 1, flags: 0 });
        let events = |wake: &[(ThreadIndex, u64, EventKind)]| {
            let begun = [(0, 0, EventKind::Exec), (0, 10, clone), (0, 20, BLOCKED)];
            let ended = [(1, 100, EventKind::Exit), (0, 110, EventKind::SwitchIn)];
            outline(&trace(&[&begun[..], wake, &ended].concat()))["pairs"][0]["waker"].clone()
        };
        assert_eq!(events(&[]), "t 2");
        let wake = (0, 50, EventKind::Wake { woken: 0 });
        assert_eq!(events(&[wake]), "t 1", "a wake that was recorded counts");
    }

    #[test]
    fn a_trace_without_events_has_no_lanes() {
        let told = outline(&Trace::default());
        assert_eq!((told["count"].as_u64(), told["lanes"].as_array().map(Vec::len)), (Some(0), Some(0)));
    }
}
