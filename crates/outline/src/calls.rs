//! What a program asks of its map: its memory calls by kind, by the memory that they are about and by size, and how
//! many there are over time.
//!
//! # Guarantee
//! * I1 every memory call of a space is counted once, in the column in which it was entered
//! * I2 a line has one call and one kind of memory, with the size that is asked for most often, the least and the most

use std::collections::{BTreeMap, HashMap};
use std::ops::RangeInclusive;

use faultless_plan::space_users::SpaceUsers;
use faultless_trace::Trace;
use serde_json::{Value, json};

use crate::areas::{Kind, Work, follow};
use crate::columns::{COLUMNS, column};

/// Calls of one name on one kind of memory.
#[derive(Default)]
struct Line {
    count: u64,
    kernel_ns: u64,
    bytes: u64,
    sizes: HashMap<u64, u64>,
}

/// The calls of a space.
#[derive(Default)]
struct Calls {
    lines: BTreeMap<(&'static str, Kind), Line>,
    columns: BTreeMap<&'static str, Vec<u64>>,
}

/// Returns the calls of each of these spaces, which lived so long.
pub fn of(trace: &Trace, spaces: &[(usize, RangeInclusive<u64>)]) -> Vec<Value> {
    let space_users = SpaceUsers::of(trace);
    let mut all: Vec<Calls> = spaces.iter().map(|_| Calls::default()).collect();
    follow(trace, &mut |at, what, work| {
        let Work::Call { name, bytes, kernel_ns } = work else { return };
        let (space, now_ns) =
            (space_users.space_of[at.event as usize] as usize, trace.events[at.event as usize].time_ns);
        let Some(place) = spaces.iter().position(|(known, _)| *known == space) else { return };
        all[place].take((name, what.kind), bytes, kernel_ns);
        let life = &spaces[place].1;
        let now_ns = now_ns.clamp(*life.start(), *life.end());
        let columns = all[place].columns.entry(name).or_insert_with(|| vec![0; COLUMNS]);
        columns[column(now_ns - life.start(), life.end() - life.start(), COLUMNS)] += 1;
    });
    all.iter().map(Calls::told).collect()
}

impl Calls {
    fn take(&mut self, key: (&'static str, Kind), bytes: u64, kernel_ns: u64) {
        let line = self.lines.entry(key).or_default();
        line.count += 1;
        line.kernel_ns += kernel_ns;
        line.bytes = line.bytes.saturating_add(bytes);
        *line.sizes.entry(bytes).or_default() += 1;
    }

    fn told(&self) -> Value {
        let mut lines: Vec<(&(&'static str, Kind), &Line)> = self.lines.iter().collect();
        lines.sort_by_key(|(key, line)| (std::cmp::Reverse(line.count), **key));
        let lines = lines.iter().map(|((name, kind), line)| {
            let usual = line.sizes.iter().max_by_key(|(bytes, count)| (**count, **bytes)).map(|(b, c)| (*b, *c));
            let (usual_bytes, usual_count) = usual.unwrap_or((0, 0));
            json!({
                "call": name, "kind": kind.name(), "count": line.count, "usual_bytes": usual_bytes,
                "usual_count": usual_count, "least_bytes": line.sizes.keys().min(), "most_bytes": line.sizes.keys().max(),
                "bytes": line.bytes, "kernel_ns": line.kernel_ns,
            })
        });
        json!({ "lines": lines.collect::<Vec<_>>(), "columns": self.columns })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultless_trace::{Call, CallEnter, CallExit, Event, EventKind, Thread};

    #[test]
    fn calls_are_counted_by_kind_of_memory_and_size_and_over_time() {
        let mut kinds = vec![EventKind::Exec];
        for (round, size) in [0x2000, 0x2000, 0x8000].into_iter().enumerate() {
            let start = 0x10000 * (round as u64 + 1);
            kinds.push(EventKind::CallEnter(CallEnter { call: Call::Mmap, args: [0, size, 3, 0x22, 0, 0] }));
            kinds.push(EventKind::CallExit(CallExit { call: Call::Mmap, result: start as i64 }));
            kinds.push(EventKind::CallEnter(CallEnter { call: Call::Munmap, args: [start, size, 0, 0, 0, 0] }));
            kinds.push(EventKind::CallExit(CallExit { call: Call::Munmap, result: 0 }));
        }
        let event =
            |(place, &kind): (usize, &EventKind)| Event { thread: 0, time_ns: place as u64 * 10, on_cpu_ns: 7, kind };
        let threads = vec![Thread { pid: 1, tid: 1, name: "any".into() }];
        let trace = Trace { threads, events: kinds.iter().enumerate().map(event).collect(), ..Trace::default() };
        let told = of(&trace, &[(0, 0..=120)]).remove(0);
        let line = json!({ "call": "mmap", "kind": "anonymous", "count": 3, "usual_bytes": 0x2000, "usual_count": 2,
                           "least_bytes": 0x2000, "most_bytes": 0x8000, "bytes": 0xc000, "kernel_ns": 21 });
        assert_eq!(told["lines"][0], line);
        assert_eq!(told["lines"][1]["call"], "munmap");
        assert_eq!(told["lines"][1]["kind"], "anonymous", "an unmapping is of what was there");
        let columns = told["columns"]["munmap"].as_array().expect("columns");
        let at: Vec<usize> = (0..COLUMNS).filter(|&at| columns[at] == 1).collect();
        assert_eq!((columns.len(), at), (COLUMNS, vec![60, 140, 220]));
    }
}
