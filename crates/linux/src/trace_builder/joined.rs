//! Threads that ran before their part of the recording: where they are then, and what of their past counts.
//!
//! # Guarantee
//! A thread's part begins with the memory call that it is inside of, if that is known; of what it did before, its end,
//! its children and that call alone are told.
//!
//! The same holds for a thread that was made meanwhile in memory that is still to be read, although all of it is seen:
//! who found what it unmapped may have mapped something there since, and nobody tells of that.

use faultless_trace::{Area, CallEnter, EventKind, Mapped, SpaceState, ThreadIndex};

use super::{Abi, Arrival, Known, Opening, Openness, Origin, Setting, Sink, State, TraceBuilder, asks_for_huge_pages};
use crate::company::Company;
use crate::joining::Joined;
use crate::numbers;
use crate::rights::Rights;
use crate::stacks::StackOptions;
use crate::wire::{Body, Record, Sample};

/// A fork that was under way when a process was joined tells of its child within this.
const JOINING_NS: u64 = 1_000_000_000;

/// A fork tells of itself so long after its copy was made, at most.
pub(super) const LATE_COPY_NS: u64 = 10_000_000;

impl TraceBuilder {
    /// Begins a recording in the midst of running processes.
    pub(crate) fn joining(setting: Setting, company: &Company, stacks: Option<StackOptions>) -> Self {
        let mut builder = Self::new(setting, stacks);
        builder.begun_ns = Some(company.joined.began_ns);
        builder.time_ns = company.joined.began_ns;
        builder.owners = company.joined.owners.clone();
        builder.opening = Opening::Joining;
        builder.late = company.late.iter().rev().cloned().collect();
        builder.enter_company(company);
        builder
    }

    /// Lets the threads of a company live in the memory that was seen.
    fn enter_company(&mut self, company: &Company) {
        let (nr_spaces, first) = (self.spaces.len(), self.threads.len() as ThreadIndex);
        let since_ns = self.begun_ns.unwrap_or(0);
        self.inside.extend(&company.joined.inside);
        let until_ns = company.looked_until_ns() + LATE_COPY_NS;
        for space in company.snapshot(&mut self.files, since_ns, first) {
            let known = Known { copies_unknown_until_ns: until_ns, ..self.seen(&space) };
            self.spaces.push(known);
            self.snapshot.push(space);
        }
        let Joined { open_ns, complete_ns, began_ns, ref members, .. } = company.joined;
        let arrival = Arrival { open_ns, complete_ns, began_ns };
        for member in members {
            let seen = company.seen.iter().position(|seen| seen.pid == member.pid).unwrap_or_default();
            let abi = if company.is_foreign(member.pid) { Abi::Foreign } else { Abi::Native };
            self.has_foreign_calls |= abi == Abi::Foreign;
            let (pid, tid, open, space) = (member.pid, member.tid, Openness::Unknown, nr_spaces + seen);
            let origin = Origin::Found;
            let state = State { pid, tid, owner: tid, open, space, abi, arrival, origin, ..State::default() };
            let thread = self.add_thread(state);
            self.threads[thread as usize].name = member.name.clone();
        }
    }

    /// Lets those in who were joined until now, and begins their parts of the recording.
    pub(super) fn meet_late(&mut self, now_ns: u64, sink: Sink<'_>) {
        while let Some(company) = self.late.pop_if(|company| company.joined.complete_ns <= now_ns) {
            let members = &company.joined.members;
            // Who was made by somebody in the recording is in it already.
            if members.iter().any(|member| self.live.contains_key(&member.tid)) {
                continue;
            }
            members.iter().for_each(|member| drop(self.early.remove(&member.tid)));
            let first = self.states.len();
            self.enter_company(&company);
            self.arriving.push((first, company.joined.began_ns));
        }
        let begun: Vec<_> = self.arriving.extract_if(.., |(_, began_ns)| *began_ns <= now_ns).collect();
        begun.into_iter().for_each(|(first, began_ns)| self.begin_joined(first, began_ns, sink));
    }

    /// Returns what is known of an address space that was looked at.
    fn seen(&mut self, space: &SpaceState) -> Known {
        let mut known = Known { rights: Rights::of(space), ..Known::default() };
        let Some(keeper) = &mut self.keeper else { return known };
        for area in &space.areas {
            let Area { start, end, file_offset, prot, file, .. } = *area;
            let mapped = Mapped { start, len_bytes: end - start, file_offset, prot, flags: 0, file };
            keeper.map(&mut known.code, &mapped, self.files.files());
        }
        known
    }

    /// Takes what happened while processes were being joined. Of the threads in their memory only their children, their
    /// ends and the call that they are inside of matter. The end of one that was found is not told: it is as if it had
    /// ended before. A child that was not found is watched by what it inherited.
    pub(super) fn before_joining(&mut self, thread: ThreadIndex, record: Record, sink: Sink<'_>) {
        let State { origin, arrival, .. } = self.states[thread as usize];
        let is_kept = match record.body {
            Body::Exited { tid } if origin == Origin::Found => {
                self.live.remove(&tid);
                false
            }
            Body::Exited { .. } => true,
            Body::Named { .. } => origin != Origin::Found,
            Body::Forked(fork) => record.time_ns >= arrival.complete_ns && !self.live.contains_key(&fork.tid),
            Body::Sample(_, Sample::NewTask { .. }) => self.forks.contains_key(&record.tid),
            _ => origin == Origin::Made,
        };
        // Only from when all events of a found thread were open is an exit surely seen.
        let is_seen_whole = origin == Origin::MadeInside || record.time_ns >= arrival.open_ns;
        if self.is_double(thread, &record) {
            // Of what another event told of, only a thread's end counts.
        } else if is_kept {
            self.act(thread, record, sink);
        } else if is_seen_whole {
            self.note_call(thread, record.body);
        }
    }

    /// Keeps the call that a thread is inside of.
    fn note_call(&mut self, thread: ThreadIndex, body: Body) {
        let open = match body {
            Body::Sample(_, Sample::Enter { number, args }) => {
                self.memory_call(thread, number, args).map(Openness::Entered)
            }
            Body::Sample(_, Sample::Exit { number, .. }) => numbers::call_of(number).map(|_| Openness::Outside),
            Body::Mapped(mapping) => {
                self.mapped_before.insert(thread, mapping);
                None
            }
            _ => None,
        };
        if let Some(open) = open {
            self.mapped_before.remove(&thread);
            self.states[thread as usize].open = open;
        }
    }

    /// Begins the part of threads that begins now, from this one on, with the calls that they are inside of.
    pub(super) fn begin_joined(&mut self, first: usize, began_ns: u64, sink: Sink<'_>) {
        for thread in first..self.states.len() {
            let State { open, tid, arrival, .. } = self.states[thread];
            if arrival.began_ns != began_ns {
                continue;
            }
            // Neither an enter nor an exit was seen since it slept in the call, so it is there all the time.
            let asleep =
                || self.inside.get(&tid).and_then(|&(number, args)| self.memory_call(thread as u32, number, args));
            let enter = match open {
                Openness::Entered(enter) => Some(enter),
                Openness::Unknown => asleep(),
                _ => None,
            };
            let Some(enter) = enter else { continue };
            if self.live.get(&tid) == Some(&(thread as ThreadIndex)) {
                self.begin_inside(thread as ThreadIndex, enter, sink);
            }
        }
    }

    fn begin_inside(&mut self, thread: ThreadIndex, enter: CallEnter, sink: Sink<'_>) {
        self.states[thread as usize].open = Openness::Inside(enter.call);
        self.has_huge_advice |= asks_for_huge_pages(&enter);
        self.emit(thread, EventKind::CallEnter(enter), sink);
        if let Some(mapping) = self.mapped_before.remove(&thread) {
            self.mapped(thread, *mapping, sink);
        }
        // Nobody knows whether it runs.
        self.states[thread as usize].on_since_ns = None;
    }

    /// Returns whether the recording began in the midst of running processes.
    pub(super) fn has_joined(&self) -> bool {
        !self.snapshot.is_empty()
    }

    /// Returns whether a thread's process has been joined a moment ago.
    pub(super) fn is_joining(&self, thread: ThreadIndex) -> bool {
        let since_ns = self.time_ns.saturating_sub(self.states[thread as usize].arrival.began_ns);
        self.has_joined() && since_ns < JOINING_NS
    }
}
