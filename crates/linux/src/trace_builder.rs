//! From the kernel's records to the trace's events: who is who, which call is open, how long each was on a CPU.
//!
//! # Guarantee
//! The events handed out obey the invariants of [`faultless_trace::event`], or [`TraceBuilder::lost`] is above zero and
//! the trace has to be marked as one with losses.
//!
//! # Invariants
//! - S1 a thread's events come after the event that made it: what arrives earlier, because two CPUs' clocks differ a
//!   little, waits in `early` for the parent's record
//! - S2 a thread number names at most one living thread; after its exit the number is free
//! - S3 a fork becomes a clone only when its flags are known: from the tracepoint that follows it in the same thread,
//!   or, without privilege, by a guess

use std::collections::{HashMap, HashSet};

use faultless_trace::{
    Call, CallEnter, CallExit, CloneTask, Event, EventKind, Fault, File, Mapped, Mode, Pace, Side, Snapshot,
    SpaceState, Stacks, SwitchReason, Thread, ThreadIndex,
};

use crate::company::Company;
use crate::files::FileTable;
use crate::numbers;
use crate::rights::Rights;
use crate::stacks::{Caught, Code, Keeper, StackOptions};
use crate::target::NumberedCall;
use crate::wire::{Body, Context, Forked, Mapping, Record, Sample};

/// What waits for its thread's beginning longer than this belongs to a thread whose making was lost.
const PATIENCE_NS: u64 = 1_000_000;

/// Where events go.
pub(crate) type Sink<'a> = &'a mut dyn FnMut(Event);

/// What a recording is about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    /// The process that runs the recorded program; 0 where running ones were joined.
    pub(crate) root: u32,
    pub(crate) mode: Mode,
    pub(crate) pace: Pace,
    /// Times are rounded down to multiples of this.
    pub(crate) time_unit_ns: u64,
}

/// A recording under way.
#[derive(Debug)]
pub(crate) struct TraceBuilder {
    setting: Setting,
    /// The thread that each event was opened for; empty where records carry no events.
    owners: HashMap<u64, u32>,
    /// The memory calls that threads were seen asleep in since then.
    inside: HashMap<u32, NumberedCall>,
    /// Who is still to be joined, the first one last.
    late: Vec<Company>,
    /// Those of them that are being joined: the index of the first thread of each, and when its part begins.
    arriving: Vec<(usize, u64)>,
    snapshot: Vec<SpaceState>,
    begun_ns: Option<u64>,
    opening: Opening,
    time_ns: u64,
    states: Vec<State>,
    threads: Vec<Thread>,
    live: HashMap<u32, ThreadIndex>,
    by_outer: HashMap<u32, ThreadIndex>,
    forks: HashMap<u32, Forked>,
    /// What the kernel told of the calls that joined threads are inside of.
    mapped_before: HashMap<ThreadIndex, Box<Mapping>>,
    early: HashMap<u32, Vec<Record>>,
    /// Before then nobody in `early` has waited for too long.
    early_until_ns: u64,
    /// Whoever was found to be no part of the recording, until it ends.
    outsiders: HashSet<u32>,
    spaces: Vec<Known>,
    /// Call chains, if they were recorded.
    keeper: Option<Keeper>,
    files: FileTable,
    lost: u64,
    has_foreign_calls: bool,
    has_elevated_programs: bool,
    has_huge_advice: bool,
}

/// What is known of a thread.
#[derive(Clone, Debug, Default)]
struct State {
    pid: u32,
    tid: u32,
    /// The thread whose events count for this one.
    owner: u32,
    open: Openness,
    /// Since when it has been on a CPU without a record.
    on_since_ns: Option<u64>,
    /// What it spent on a CPU since its last event.
    on_cpu_ns: u64,
    /// Its number in the outermost namespace, 0 until it is known.
    outer_tid: u32,
    /// Its address space's place in `spaces`.
    space: usize,
    abi: Abi,
    program: Program,
    following: Following,
    arrival: Arrival,
    origin: Origin,
}

/// How a thread came into the recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Origin {
    /// It was made by one that was in it, or began a program since.
    #[default]
    Made,
    /// It was made so too, but in memory that had stood before.
    MadeInside,
    /// It was found running.
    Found,
}

/// When a process was joined: both are 0 for one that began in the recording.
#[derive(Clone, Copy, Debug, Default)]
struct Arrival {
    /// From when on the ends of its threads' calls are surely seen.
    open_ns: u64,
    /// When all events of its threads were open.
    complete_ns: u64,
    /// When its part of the recording begins.
    began_ns: u64,
}

/// What is known of an address space.
#[derive(Clone, Debug, Default)]
struct Known {
    rights: Rights,
    code: Code,
    /// A process made until then may be a copy of memory that changed before it was read; what it does before an exec
    /// is not told. A program that began in the recording may be copied at any time.
    copies_unknown_until_ns: u64,
}

/// Whether what happened while processes were being joined is still to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Opening {
    Joining,
    Over,
}

/// How far a thread's program has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Program {
    /// It has mappings.
    #[default]
    Mapped,
    /// Its exec is the thread's last event.
    JustBegun,
}

/// Whether what a thread does is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Following {
    #[default]
    Followed,
    /// It is a copy of memory that nobody knows: only that it was made, that it ended, and what it does after an exec.
    Unknown,
}

/// Whether a thread is inside a memory call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Openness {
    #[default]
    Outside,
    Inside(Call),
    /// It was joined inside this call, which the recording will begin with.
    Entered(CallEnter),
    /// It was joined, and has neither entered nor left a call since.
    Unknown,
}

/// Which system-call table a thread uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Abi {
    #[default]
    Native,
    /// The 32-bit one, whose numbers mean something else.
    Foreign,
}

/// What stands beside the events once a recording is told.
#[derive(Debug)]
pub(crate) struct Summary {
    pub(crate) threads: Vec<Thread>,
    pub(crate) files: Vec<File>,
    pub(crate) snapshot: Snapshot,
    pub(crate) stacks: Option<Stacks>,
    /// Records that were lost, or that make no sense unless another one was.
    pub(crate) lost: u64,
    /// Whether a program of 32 bits ran, whose calls are not understood.
    pub(crate) has_foreign_calls: bool,
    /// Whether watching ended at an exec: the program got other rights than the recorder's.
    pub(crate) has_elevated_programs: bool,
    /// Whether a call asked for huge pages.
    pub(crate) has_huge_advice: bool,
    /// Threads that were still alive.
    pub(crate) still_running: usize,
}

impl TraceBuilder {
    /// Begins a recording.
    pub(crate) fn new(setting: Setting, stacks: Option<StackOptions>) -> Self {
        Self {
            setting,
            owners: HashMap::new(),
            inside: HashMap::new(),
            late: Vec::new(),
            arriving: Vec::new(),
            snapshot: Vec::new(),
            begun_ns: None,
            opening: Opening::Over,
            time_ns: 0,
            states: Vec::new(),
            threads: Vec::new(),
            live: HashMap::new(),
            by_outer: HashMap::new(),
            forks: HashMap::new(),
            mapped_before: HashMap::new(),
            early: HashMap::new(),
            early_until_ns: 0,
            outsiders: HashSet::new(),
            spaces: Vec::new(),
            keeper: stacks.map(Keeper::new),
            files: FileTable::default(),
            lost: 0,
            has_foreign_calls: false,
            has_elevated_programs: false,
            has_huge_advice: false,
        }
    }

    /// Takes the next record in time.
    pub(crate) fn take(&mut self, record: Record, sink: Sink<'_>) {
        match record.body {
            Body::Unused => return,
            Body::Lost { records } => return self.lost += records,
            Body::Unreadable => return self.lost += 1,
            _ => {}
        }
        if self.opening == Opening::Joining {
            if self.begun_ns.is_some_and(|begun_ns| record.time_ns < begun_ns) {
                if let Some(&thread) = self.live.get(&record.actor()) {
                    self.before_joining(thread, record, sink);
                }
                return;
            }
            self.opening = Opening::Over;
            self.begin_joined(0, self.begun_ns.unwrap_or(0), sink);
        }
        if self.begun_ns.is_none() && !self.begin(&record) {
            return;
        }
        self.time_ns = self.time_ns.max(record.time_ns);
        self.meet_late(record.time_ns, sink);
        if !self.early.is_empty() && self.time_ns >= self.early_until_ns {
            self.adopt_forgotten(PATIENCE_NS, sink);
        }
        self.dispatch(record, sink);
    }

    /// Ends the recording.
    pub(crate) fn finish(mut self, stacks_lost: u64, sink: Sink<'_>) -> Summary {
        for fork in std::mem::take(&mut self.forks).into_values() {
            self.guess_clone(fork, sink);
        }
        self.adopt_forgotten(0, sink);
        Summary {
            threads: self.threads,
            files: self.files.into_files(),
            snapshot: Snapshot { spaces: self.snapshot },
            stacks: self.keeper.map(|keeper| keeper.finish(stacks_lost)),
            lost: self.lost,
            has_foreign_calls: self.has_foreign_calls,
            has_elevated_programs: self.has_elevated_programs,
            has_huge_advice: self.has_huge_advice,
            still_running: self.live.len(),
        }
    }

    /// Opens the recording at the program's exec; says whether it has begun.
    fn begin(&mut self, record: &Record) -> bool {
        let Body::Named { tid, is_exec: true, .. } = record.body else { return false };
        if tid != self.setting.root {
            return false;
        }
        self.begun_ns = Some(record.time_ns);
        self.spaces.push(Known::default());
        self.add_thread(State { pid: tid, tid, on_since_ns: Some(0), ..State::default() });
        true
    }

    fn add_thread(&mut self, state: State) -> ThreadIndex {
        self.outsiders.remove(&state.tid);
        let thread = self.threads.len() as ThreadIndex;
        self.threads.push(Thread { pid: state.pid, tid: state.tid, name: String::new() });
        self.live.insert(state.tid, thread);
        self.states.push(state);
        thread
    }

    fn dispatch(&mut self, record: Record, sink: Sink<'_>) {
        let tid = record.actor();
        if self.outsiders.contains(&tid) {
            if let Body::Exited { .. } = record.body {
                self.outsiders.remove(&tid);
            }
            return;
        }
        if !self.live.contains_key(&tid) && !record.is_aside() {
            self.succeed_leader(tid, sink);
        }
        match self.live.get(&tid) {
            Some(&thread) if record.time_ns < self.states[thread as usize].arrival.began_ns => {
                self.before_joining(thread, record, sink);
            }
            Some(&thread) if self.is_double(thread, &record) => {}
            Some(&thread) => self.act(thread, record, sink),
            None => self.early.entry(tid).or_default().push(record),
        }
    }

    /// Returns whether another event told of the same: one that the thread inherited while its own were being opened.
    fn is_double(&self, thread: ThreadIndex, record: &Record) -> bool {
        let owner = self.owners.get(&record.event);
        owner.is_some_and(|&owner| owner != self.states[thread as usize].owner)
    }

    /// Gives a process's number to its last thread: one that is not the first and runs exec takes the number over, some
    /// time before the kernel tells of the exec.
    fn succeed_leader(&mut self, pid: u32, sink: Sink<'_>) {
        let mut heirs = self.live.iter().filter(|&(_, &thread)| self.states[thread as usize].pid == pid);
        let (Some((&tid, &thread)), None) = (heirs.next(), heirs.next()) else { return };
        self.live.remove(&tid);
        self.live.insert(pid, thread);
        self.states[thread as usize].tid = pid;
        self.forget_outer(thread);
        for record in self.early.remove(&pid).unwrap_or_default() {
            self.act(thread, record, sink);
        }
    }

    /// Lets threads begin whose making was lost, and drops what merely switched after its end (S1). Beside joined
    /// processes it drops all: who is unknown there was made while events were being opened, is not watched whole, and
    /// is no part of the recording.
    fn adopt_forgotten(&mut self, patience_ns: u64, sink: Sink<'_>) {
        let now = self.time_ns;
        let has_joined = self.has_joined();
        let is_late = |record: &Record| record.time_ns + patience_ns <= now;
        let is_due = |records: &Vec<Record>| match has_joined {
            true => records.first().is_none_or(is_late),
            false => records.iter().all(is_late),
        };
        let due: Vec<_> = self.early.extract_if(|_, records| is_due(records)).collect();
        self.early_until_ns = now + patience_ns / 2;
        for (tid, records) in due {
            if has_joined {
                let has_ended = records.iter().any(|record| matches!(record.body, Body::Exited { .. }));
                self.outsiders.extend((!has_ended).then_some(tid));
                continue;
            }
            if records.iter().all(Record::is_aside) {
                continue;
            }
            self.lost += 1;
            self.spaces.push(Known::default());
            self.add_thread(State { pid: tid, tid, space: self.spaces.len() - 1, ..State::default() });
            records.into_iter().for_each(|record| self.dispatch(record, sink));
        }
    }

    fn act(&mut self, thread: ThreadIndex, record: Record, sink: Sink<'_>) {
        let is_followed = self.states[thread as usize].following == Following::Followed;
        // An exec begins memory that everything is known of.
        let begins_anew = matches!(record.body, Body::Named { is_exec: true, .. });
        if !is_followed && !begins_anew && !matches!(record.body, Body::Exited { .. }) {
            return;
        }
        match record.body {
            Body::Sample(context, sample) => self.sample(thread, context, sample, sink),
            Body::Stack(caught) => self.stack(thread, &caught),
            Body::Mapped(mapping) => self.mapped(thread, *mapping, sink),
            Body::Named { is_exec, name, .. } => {
                self.threads[thread as usize].name = name;
                if is_exec {
                    self.exec(thread, sink);
                }
            }
            Body::Forked(fork) => self.forked(fork, sink),
            Body::Exited { tid } => self.exited(thread, tid, sink),
            Body::SwitchedIn => self.emit(thread, EventKind::SwitchIn, sink),
            Body::SwitchedOut { is_preempted } => {
                let reason = if is_preempted { SwitchReason::Preempted } else { SwitchReason::Blocked };
                self.emit(thread, EventKind::SwitchOut(reason), sink);
            }
            Body::Lost { .. } | Body::Unreadable | Body::Unused => {}
        }
    }

    fn sample(&mut self, thread: ThreadIndex, context: Context, sample: Sample, sink: Sink<'_>) {
        self.learn_outer(thread, context.outer_tid);
        match sample {
            Sample::UserFault { address, ip, error_code } => {
                let fault = Fault { address, ip, error_code, side: Side::User };
                self.emit(thread, EventKind::Fault(fault), sink);
            }
            Sample::KernelFault { address, ip, error_code } => {
                let fault = Fault { address, ip, error_code, side: Side::Kernel };
                self.emit(thread, EventKind::Fault(fault), sink);
            }
            Sample::SoftwareFault { address, ip } => {
                let error_code = self.spaces[self.states[thread as usize].space].rights.guess(address, ip);
                let fault = Fault { address, ip, error_code, side: Side::User };
                self.emit(thread, EventKind::Fault(fault), sink);
            }
            Sample::NewTask { outer_tid, flags } => self.new_task(thread, outer_tid, flags, sink),
            Sample::Enter { number, args } => self.enter(thread, number, args, sink),
            Sample::Exit { number, result } => self.exit(thread, number, result, sink),
            Sample::Waking { outer_tid } => self.waking(thread, context, outer_tid, sink),
        }
    }

    fn stack(&mut self, thread: ThreadIndex, caught: &Caught) {
        let State { space, abi, .. } = self.states[thread as usize];
        if let Some(keeper) = self.keeper.as_mut().filter(|_| abi == Abi::Native) {
            keeper.take(thread, &self.spaces[space].code, caught);
        }
    }

    fn enter(&mut self, thread: ThreadIndex, number: i64, args: [u64; 6], sink: Sink<'_>) {
        let Some(enter) = self.memory_call(thread, number, args) else { return };
        let state = &mut self.states[thread as usize];
        if matches!(state.open, Openness::Inside(_)) {
            self.lost += 1;
        }
        state.open = Openness::Inside(enter.call);
        self.has_huge_advice |= asks_for_huge_pages(&enter);
        self.emit(thread, EventKind::CallEnter(enter), sink);
    }

    /// Returns the memory call that a thread enters, if it is one that is kept.
    fn memory_call(&self, thread: ThreadIndex, number: i64, mut args: [u64; 6]) -> Option<CallEnter> {
        let call = numbers::call_of(number)?;
        let is_foreign = self.states[thread as usize].abi == Abi::Foreign;
        if is_foreign || !numbers::matters(call, args) {
            return None;
        }
        args[call.arity()..].fill(0);
        Some(CallEnter { call, args })
    }

    /// An exit without an enter is one that a security filter refused before it began, or one that is not kept.
    fn exit(&mut self, thread: ThreadIndex, number: i64, result: i64, sink: Sink<'_>) {
        let Some(call) = numbers::call_of(number) else { return self.task_was_refused(thread, number, result, sink) };
        let state = &mut self.states[thread as usize];
        let is_joined_inside = state.open == Openness::Unknown && is_map_call(call) && state.abi == Abi::Native;
        if is_joined_inside || state.open == Openness::Inside(call) {
            state.open = Openness::Outside;
            self.emit(thread, EventKind::CallExit(CallExit { call, result }), sink);
        }
    }

    /// Tells of a call that was to make a task and failed: it may have copied the tables of the space by then.
    fn task_was_refused(&mut self, thread: ThreadIndex, number: i64, result: i64, sink: Sink<'_>) {
        let State { open, abi, .. } = self.states[thread as usize];
        let is_error = (-4095..0).contains(&result);
        if numbers::makes_task(number) && is_error && open == Openness::Outside && abi == Abi::Native {
            self.emit(thread, EventKind::CallEnter(CallEnter { call: Call::Clone, args: [0; 6] }), sink);
            self.emit(thread, EventKind::CallExit(CallExit { call: Call::Clone, result }), sink);
        }
    }

    fn mapped(&mut self, thread: ThreadIndex, mapping: Mapping, sink: Sink<'_>) {
        let state = &mut self.states[thread as usize];
        state.program = Program::Mapped;
        if numbers::is_foreign_vdso(&mapping.path, mapping.start) {
            state.abi = Abi::Foreign;
            self.has_foreign_calls = true;
        }
        let Mapping { start, len_bytes, prot, flags, identity, ref path, .. } = mapping;
        let file = self.files.index(identity, path);
        // Without a file the kernel's offset is the address again.
        let file_offset = if file.is_some() { mapping.file_offset } else { 0 };
        let mapped = Mapped { start, len_bytes, file_offset, prot, flags, file };
        if self.setting.mode == Mode::Unprivileged {
            self.spaces[state.space].rights.map(&mapped);
        }
        if let Some(keeper) = &mut self.keeper {
            keeper.map(&mut self.spaces[state.space].code, &mapped, self.files.files());
        }
        self.emit(thread, EventKind::Mapped(mapped), sink);
    }

    fn exec(&mut self, thread: ThreadIndex, sink: Sink<'_>) {
        self.spaces.push(Known::default());
        let state = &mut self.states[thread as usize];
        state.space = self.spaces.len() - 1;
        state.following = Following::Followed;
        state.abi = Abi::Native;
        state.origin = Origin::Made;
        state.open = Openness::Outside;
        state.program = Program::JustBegun;
        self.emit(thread, EventKind::Exec, sink);
    }

    /// Notes a fork until its flags are known (S3).
    fn forked(&mut self, fork: Forked, sink: Sink<'_>) {
        if self.setting.mode == Mode::Unprivileged {
            return self.clone_guessed(fork, sink);
        }
        if let Some(unmatched) = self.forks.insert(fork.parent_tid, fork) {
            self.guess_clone(unmatched, sink);
        }
    }

    fn new_task(&mut self, parent: ThreadIndex, outer_tid: u32, flags: u64, sink: Sink<'_>) {
        let parent_tid = self.states[parent as usize].tid;
        match self.forks.remove(&parent_tid) {
            Some(fork) => {
                if let Some(child) = self.clone_task(fork, flags, sink) {
                    self.by_outer.insert(outer_tid, child);
                    self.release_early(fork.tid, sink);
                }
            }
            // The fork itself came before the recording.
            None if self.is_joining(parent) => {}
            None => self.lost += 1,
        }
    }

    /// Makes do without a clone's flags: the record that held them was lost.
    fn guess_clone(&mut self, fork: Forked, sink: Sink<'_>) {
        self.lost += 1;
        self.clone_guessed(fork, sink);
    }

    /// Begins a thread.
    fn clone_task(&mut self, fork: Forked, flags: u64, sink: Sink<'_>) -> Option<ThreadIndex> {
        let parent = *self.live.get(&fork.parent_tid)?;
        let State { abi, space, owner, following, arrival, origin, .. } = self.states[parent as usize];
        let shares_memory = flags & CloneTask::VM != 0;
        let origin = if shares_memory && origin != Origin::Made { Origin::MadeInside } else { Origin::Made };
        let space = if shares_memory { space } else { self.copy_space(space) };
        let is_unknown = !shares_memory && self.time_ns <= self.spaces[space].copies_unknown_until_ns;
        let following = if is_unknown { Following::Unknown } else { following };
        let (pid, tid) = (fork.pid, fork.tid);
        let state = State { pid, tid, owner, abi, space, following, arrival, origin, ..State::default() };
        let child = self.add_thread(state);
        self.threads[child as usize].name = self.threads[parent as usize].name.clone();
        self.emit(parent, EventKind::Clone(CloneTask { child, flags }), sink);
        Some(child)
    }

    /// Begins a thread whose place among the outermost numbers is not known.
    fn clone_guessed(&mut self, fork: Forked, sink: Sink<'_>) {
        if self.clone_task(fork, guessed_flags(&fork), sink).is_some() {
            self.release_early(fork.tid, sink);
        }
    }

    /// Takes what a thread did before its making was told (S1).
    fn release_early(&mut self, tid: u32, sink: Sink<'_>) {
        for record in self.early.remove(&tid).unwrap_or_default() {
            self.dispatch(record, sink);
        }
    }

    fn copy_space(&mut self, space: usize) -> usize {
        self.spaces.push(self.spaces[space].clone());
        self.spaces.len() - 1
    }

    /// Ends a thread. One that ends before its program's first mapping runs on unwatched: Linux takes the events away
    /// where exec changes the rights, and writes the same record then as for a thread's end.
    fn exited(&mut self, thread: ThreadIndex, tid: u32, sink: Sink<'_>) {
        self.has_elevated_programs |= self.states[thread as usize].program == Program::JustBegun;
        self.live.remove(&tid);
        self.forget_outer(thread);
        self.emit(thread, EventKind::Exit, sink);
    }

    /// Keeps a wake of one recorded thread by another, unless an interrupt did it.
    fn waking(&mut self, thread: ThreadIndex, context: Context, outer_tid: u32, sink: Sink<'_>) {
        if context.is_interrupt {
            return;
        }
        if let Some(woken) = self.woken_by(thread, outer_tid)
            && woken != thread
        {
            self.emit(thread, EventKind::Wake { woken }, sink);
        }
    }

    /// Returns the thread with a number in the outermost namespace that another one wakes. Where that one has the same
    /// number in both, so has the other, who may have told nothing yet but that it slept.
    fn woken_by(&self, waker: ThreadIndex, outer_tid: u32) -> Option<ThreadIndex> {
        let State { tid, outer_tid: wakers, .. } = self.states[waker as usize];
        let of_same_number = || self.live.get(&outer_tid).filter(|_| tid == wakers);
        self.by_outer.get(&outer_tid).or_else(of_same_number).copied()
    }

    fn learn_outer(&mut self, thread: ThreadIndex, outer_tid: u32) {
        let state = &mut self.states[thread as usize];
        if state.outer_tid != outer_tid {
            state.outer_tid = outer_tid;
            self.by_outer.insert(outer_tid, thread);
        }
    }

    fn forget_outer(&mut self, thread: ThreadIndex) {
        let outer_tid = std::mem::take(&mut self.states[thread as usize].outer_tid);
        if self.by_outer.get(&outer_tid) == Some(&thread) {
            self.by_outer.remove(&outer_tid);
        }
    }

    fn emit(&mut self, thread: ThreadIndex, kind: EventKind, sink: Sink<'_>) {
        let elapsed_ns = self.time_ns.saturating_sub(self.begun_ns.unwrap_or(0));
        let time_ns = elapsed_ns - elapsed_ns % self.setting.time_unit_ns;
        let on_cpu_ns = match self.setting.pace {
            Pace::Stored => self.states[thread as usize].on_cpu_until(time_ns, &kind),
            Pace::Absent => 0,
        };
        let event = Event { thread, time_ns, on_cpu_ns, kind };
        self.keeper.iter_mut().for_each(|keeper| keeper.pass(&event));
        sink(event);
    }
}

impl State {
    /// Returns the CPU time since the thread's last event, and starts counting anew.
    fn on_cpu_until(&mut self, now_ns: u64, kind: &EventKind) -> u64 {
        if let Some(since) = self.on_since_ns {
            self.on_cpu_ns += now_ns.saturating_sub(since);
        }
        self.on_since_ns = if matches!(kind, EventKind::SwitchOut(_)) { None } else { Some(now_ns) };
        std::mem::take(&mut self.on_cpu_ns)
    }
}

impl Record {
    /// Returns whether it only tells of a switch, which may come after a thread's end, or what a thread was inside of.
    fn is_aside(&self) -> bool {
        matches!(self.body, Body::SwitchedIn | Body::SwitchedOut { .. } | Body::Stack(_))
    }

    /// Returns the number of the thread that the record is about.
    fn actor(&self) -> u32 {
        match self.body {
            Body::Named { tid, .. } | Body::Exited { tid } => tid,
            Body::Forked(fork) => fork.parent_tid,
            _ => self.tid,
        }
    }
}

/// Returns whether a call surely is one that is kept; of prctl only some are, and an exit does not tell.
fn is_map_call(call: Call) -> bool {
    call != Call::Prctl
}

fn asks_for_huge_pages(enter: &CallEnter) -> bool {
    enter.call == Call::Madvise && enter.args[2] == libc::MADV_HUGEPAGE as u64
}

/// Guesses clone's flags: within a process it made a thread, otherwise a process with a copy of the memory.
fn guessed_flags(fork: &Forked) -> u64 {
    if fork.pid == fork.parent_pid { CloneTask::VM | CloneTask::THREAD } else { 0 }
}

mod joined;
#[cfg(test)]
mod tests;
