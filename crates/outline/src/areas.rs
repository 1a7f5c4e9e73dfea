//! What each call and each fault of a trace is about: heap, stack, anonymous memory, a file; and what is mapped when.
//!
//! # Guarantee
//! [`follow`] tells of every memory call once, when it ends (or of one that never does, at the trace's end), and of
//! every fault once. [`changes`] tells of every change of what is mapped, in order. What is mapped follows from the
//! calls, the mappings that the kernel told of, and the snapshot.

use std::collections::BTreeMap;
use std::ops::Range;

use faultless_abi::{Errno, MapFlags, Prot, RemapFlags};
use faultless_plan::space_users::{SpaceUsers, UserChange};
use faultless_trace::{Area, Call, CallEnter, EventKind, FileIndex, Mapped, SpaceState, ThreadIndex, Trace};

const PAGE: u64 = 4096;

/// How far below a stack a fault may lie that makes it grow, where no limit is known.
const STACK_BYTES: u64 = 8 << 20;

/// Kinds of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// What `brk` gives.
    Heap,
    /// The first thread's stack.
    Stack,
    /// Private memory without a file.
    Anonymous,
    /// A private mapping of a file.
    File,
    /// Memory or a file that others see stores to.
    Shared,
    /// The kernel's own pages: the vdso and its data.
    Special,
    /// Nothing that the trace tells of, or a call that is about no memory.
    Unknown,
}

impl Kind {
    /// Returns the name in reports and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Heap => "heap",
            Self::Stack => "stack",
            Self::Anonymous => "anonymous",
            Self::File => "file",
            Self::Shared => "shared",
            Self::Special => "special",
            Self::Unknown => "unknown",
        }
    }
}

/// What memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct What {
    /// Which kind.
    pub kind: Kind,
    /// The file behind it.
    pub file: Option<FileIndex>,
}

impl What {
    const UNKNOWN: Self = Self::plain(Kind::Unknown);

    const fn plain(kind: Kind) -> Self {
        Self { kind, file: None }
    }
}

/// What was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// A page fault.
    Fault,
    /// A memory call.
    Call {
        /// Which.
        name: &'static str,
        /// The bytes that it named.
        bytes: u64,
        /// Its time on a CPU.
        kernel_ns: u64,
    },
}

/// Whom [`follow`] tells: the event that entered the call, or that is the fault, whose it is, and what it is about.
pub type Tell<'a> = &'a mut dyn FnMut(Place, What, Work);

/// An event and its thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The event's place in the trace.
    pub event: u64,
    /// Its thread.
    pub thread: ThreadIndex,
}

/// What is seen of an address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// So much of it is this now; nothing if it is unmapped.
    Changed {
        /// Its first byte.
        start: u64,
        /// The byte behind its last one.
        end: u64,
        /// What it is.
        what: Option<What>,
    },
    /// A page fault.
    Fault {
        /// Where.
        address: u64,
        /// On what.
        what: What,
    },
    /// A copy of the space was made, which has its areas.
    Forked {
        /// The copy.
        copy: usize,
    },
    /// Nothing is mapped any more: a new program begins.
    Emptied,
}

/// Whom [`changes`] tells: when (ns since the recording began), in which space, by which thread.
pub type See<'a> = &'a mut dyn FnMut(u64, usize, ThreadIndex, Seen);

/// Tells of every change of what is mapped and of every fault: when, in which space (by its number in
/// [`SpaceUsers`]), by whom. What a snapshot found comes first, at time 0; what a copy inherits follows its fork.
pub fn changes(trace: &Trace, tell: See<'_>) {
    let space_users = SpaceUsers::of(trace);
    let mut follower = Follower::of(trace, &space_users);
    for (place, space) in follower.spaces.iter().enumerate() {
        tell_all(0, place, space, &mut *tell);
    }
    let limit = trace.header.limits.stack_bytes.unwrap_or(STACK_BYTES);
    for (place, event) in trace.events.iter().enumerate() {
        let space = space_users.space_of[place] as usize;
        let mut see = |seen| tell(event.time_ns, space, event.thread, seen);
        match &event.kind {
            EventKind::Fault(fault) => {
                see(Seen::Fault { address: fault.address, what: follower.spaces[space].at(fault.address, limit) });
            }
            EventKind::Exec => see(Seen::Emptied),
            _ => {}
        }
        let at = Place { event: place as u64, thread: event.thread };
        follower.take(at, space, &event.kind, &mut |_, _, _| ());
        for (range, what) in std::mem::take(&mut follower.spaces[space].changes) {
            see(Seen::Changed { start: range.start, end: range.end, what });
        }
        if let Some(&UserChange::Fork { space: copy, .. }) = space_users.changes.get(&(place as u32)) {
            follower.spaces[copy as usize] = follower.spaces[space].clone();
            see(Seen::Forked { copy: copy as usize });
            tell_all(event.time_ns, copy as usize, &follower.spaces[copy as usize], &mut *tell);
        }
    }
}

/// Tells of all that is mapped in a space that begins so.
fn tell_all(now_ns: u64, place: usize, space: &Space, tell: See<'_>) {
    for (&start, &(end, what)) in &space.areas {
        tell(now_ns, place, 0, Seen::Changed { start, end, what: Some(what) });
    }
}

/// Tells what each call and each fault of a trace is about.
pub fn follow(trace: &Trace, tell: Tell<'_>) {
    let space_users = SpaceUsers::of(trace);
    let mut follower = Follower::of(trace, &space_users);
    for (place, event) in trace.events.iter().enumerate() {
        let space = space_users.space_of[place] as usize;
        if let Some(open) = &mut follower.open[event.thread as usize] {
            open.kernel_ns += event.on_cpu_ns;
        }
        let at = Place { event: place as u64, thread: event.thread };
        follower.take(at, space, &event.kind, tell);
        follower.spaces[space].changes.clear();
        if let Some(&UserChange::Fork { space: copy, .. }) = space_users.changes.get(&(place as u32)) {
            follower.spaces[copy as usize] = follower.spaces[space].clone();
        }
    }
    for thread in 0..follower.open.len() {
        follower.give_up(thread as ThreadIndex, tell);
    }
}

/// A call under way.
#[derive(Clone, Copy, Debug)]
struct Open {
    enter: CallEnter,
    at: Place,
    mapped: Option<Mapped>,
    kernel_ns: u64,
    /// What its range was before.
    what: What,
}

struct Follower<'a> {
    trace: &'a Trace,
    spaces: Vec<Space>,
    open: Vec<Option<Open>>,
}

impl<'a> Follower<'a> {
    fn of(trace: &'a Trace, space_users: &SpaceUsers) -> Self {
        let mut spaces: Vec<Space> = space_users.spaces.iter().map(|_| Space::default()).collect();
        trace.snapshot.spaces.iter().enumerate().for_each(|(place, state)| spaces[place] = Space::seen(state));
        Self { trace, spaces, open: vec![None; trace.threads.len()] }
    }

    fn take(&mut self, at: Place, space: usize, kind: &EventKind, tell: Tell<'_>) {
        let thread = at.thread;
        let limit = self.trace.header.limits.stack_bytes.unwrap_or(STACK_BYTES);
        match kind {
            EventKind::Fault(fault) => tell(at, self.spaces[space].at(fault.address, limit), Work::Fault),
            EventKind::CallEnter(enter) => {
                let what = self.spaces[space].at(enter.args[0], 0);
                self.open[thread as usize] = Some(Open { enter: *enter, at, mapped: None, kernel_ns: 0, what });
            }
            EventKind::Mapped(mapped) => match &mut self.open[thread as usize] {
                Some(open) => open.mapped = Some(*mapped),
                None => self.spaces[space].told(mapped),
            },
            EventKind::CallExit(exit) => match self.open[thread as usize].take() {
                Some(open) => {
                    let bytes = open.bytes(self.spaces[space].program_break, exit.result);
                    let what = self.spaces[space].apply(&open, exit.result);
                    tell(open.at, what, open.work(bytes));
                }
                // It was entered before the recording.
                None => {
                    let work = Work::Call { name: exit.call.name(), bytes: 0, kernel_ns: 0 };
                    tell(at, What::UNKNOWN, work);
                }
            },
            EventKind::Exec => {
                self.give_up(thread, tell);
                self.spaces[space] = Space { awaits_stack: true, ..Space::default() };
            }
            EventKind::Exit => self.give_up(thread, tell),
            _ => {}
        }
    }

    /// Tells of a call that never returned.
    fn give_up(&mut self, thread: ThreadIndex, tell: Tell<'_>) {
        if let Some(open) = self.open[thread as usize].take() {
            tell(open.at, open.what, open.work(open.bytes(None, 0)));
        }
    }
}

impl Open {
    /// Returns the bytes that it named; of `brk` by how much it moved the break that stood there.
    fn bytes(&self, program_break: Option<u64>, result: i64) -> u64 {
        let [_, second, third, ..] = self.enter.args;
        match self.enter.call {
            Call::Brk => program_break.map_or(0, |before| before.abs_diff(result as u64)),
            Call::Mmap | Call::Munmap | Call::Mprotect | Call::PkeyMprotect | Call::Madvise => second,
            Call::Mremap => second.max(third),
            Call::Mlock | Call::Mlock2 | Call::Munlock | Call::Msync | Call::Mincore => second,
            _ => 0,
        }
    }

    fn work(&self, bytes: u64) -> Work {
        Work::Call { name: self.enter.call.name(), bytes, kernel_ns: self.kernel_ns }
    }
}

/// What is mapped in one address space.
#[derive(Clone, Debug, Default)]
struct Space {
    /// By start: the end, and what it is.
    areas: BTreeMap<u64, (u64, What)>,
    /// The break.
    program_break: Option<u64>,
    /// Whether the next mapping is the new program's stack.
    awaits_stack: bool,
    /// What changed since somebody looked.
    changes: Vec<(Range<u64>, Option<What>)>,
}

impl Space {
    fn seen(state: &SpaceState) -> Self {
        let mut space = Self::default();
        for area in &state.areas {
            let has = |bit: u32| area.flags & bit != 0;
            let is_heap = state.heap.start <= area.start && area.end <= state.heap.end;
            let kind = match () {
                () if has(Area::SPECIAL) => Kind::Special,
                () if has(Area::GROWS_DOWN) => Kind::Stack,
                () if is_heap => Kind::Heap,
                () if has(Area::SHARED) => Kind::Shared,
                () if area.file.is_some() => Kind::File,
                () => Kind::Anonymous,
            };
            space.areas.insert(area.start, (area.end, What { kind, file: area.file }));
        }
        space.program_break = Some(state.heap.end).filter(|&end| end != 0);
        space
    }

    /// Returns what an address is, a stack growing by so much at most.
    fn at(&self, address: u64, stack_bytes: u64) -> What {
        let below = self.areas.range(..=address).next_back();
        if let Some((_, &(end, what))) = below
            && address < end
        {
            return what;
        }
        match self.areas.range(address..).next() {
            Some((start, (_, what))) if what.kind == Kind::Stack && start - address <= stack_bytes => *what,
            _ => What::UNKNOWN,
        }
    }

    fn remove(&mut self, range: Range<u64>) {
        let over: Vec<_> =
            self.areas.range(..range.end).rev().take_while(|(_, (end, _))| *end > range.start).map(copied).collect();
        for (start, end, what) in over {
            self.areas.remove(&start);
            if start < range.start {
                self.areas.insert(start, (range.start, what));
            }
            if end > range.end {
                self.areas.insert(range.end, (end, what));
            }
        }
        if range.start < range.end {
            self.changes.push((range, None));
        }
    }

    fn insert(&mut self, range: Range<u64>, what: What) {
        if range.start < range.end {
            self.remove(range.clone());
            self.areas.insert(range.start, (range.end, what));
            // It takes the place of what was removed.
            self.changes.pop();
            self.changes.push((range, Some(what)));
        }
    }

    /// Takes a mapping that the kernel made by itself.
    fn told(&mut self, mapped: &Mapped) {
        let is_stack = std::mem::take(&mut self.awaits_stack) && mapped.file.is_none();
        let range = mapped.start..mapped.start + mapped.len_bytes;
        let is_growth = self.at(range.end.saturating_sub(1), 0).kind == Kind::Stack;
        let kind = match mapped.file {
            None if is_stack || is_growth => Kind::Stack,
            None if !Prot::from_bits_retain(mapped.prot.into()).contains(Prot::WRITE) => Kind::Special,
            _ => kind_of(mapped.file, u64::from(mapped.flags)),
        };
        self.insert(range, What { kind, file: mapped.file });
    }

    /// Does what a call did; returns what it was about.
    fn apply(&mut self, open: &Open, result: i64) -> What {
        let [start, len, third, flags, ..] = open.enter.args;
        let is_error = Errno::of_result(result).is_some();
        match open.enter.call {
            Call::Mmap => {
                let file = open
                    .mapped
                    .and_then(|mapped| mapped.file)
                    .filter(|_| !MapFlags::from_bits_retain(flags).contains(MapFlags::ANONYMOUS));
                let what = What { kind: kind_of(file, flags), file };
                if !is_error {
                    self.insert(pages(result as u64, len), what);
                }
                what
            }
            Call::Brk => self.move_break(result as u64),
            Call::Munmap if result == 0 => {
                self.remove(pages(start, len));
                open.what
            }
            Call::Mremap if !is_error => {
                if !RemapFlags::from_bits_retain(flags).contains(RemapFlags::DONTUNMAP) {
                    self.remove(pages(start, len));
                }
                self.insert(pages(result as u64, third), open.what);
                open.what
            }
            call if names_range(call) => open.what,
            _ => What::UNKNOWN,
        }
    }

    fn move_break(&mut self, now: u64) -> What {
        let (before, heap) = (self.program_break.replace(now), What::plain(Kind::Heap));
        let Some(before) = before else { return heap };
        let (before, now) = (before.next_multiple_of(PAGE), now.next_multiple_of(PAGE));
        if now < before {
            self.remove(now..before);
        } else {
            self.insert(before..now, heap);
        }
        heap
    }
}

fn copied((&start, &(end, what)): (&u64, &(u64, What))) -> (u64, u64, What) {
    (start, end, what)
}

/// Returns whether a call's first argument is an address.
fn names_range(call: Call) -> bool {
    let asks = matches!(call, Call::Msync | Call::Mincore | Call::Mseal | Call::RemapFilePages | Call::Shmdt);
    let locks = matches!(call, Call::Mlock | Call::Mlock2 | Call::Munlock);
    let changes = matches!(call, Call::Munmap | Call::Mremap | Call::Mprotect | Call::PkeyMprotect | Call::Madvise);
    asks || locks || changes
}

fn kind_of(file: Option<FileIndex>, flags: u64) -> Kind {
    match file {
        _ if MapFlags::from_bits_retain(flags).contains(MapFlags::SHARED) => Kind::Shared,
        Some(_) => Kind::File,
        None => Kind::Anonymous,
    }
}

fn pages(start: u64, len: u64) -> Range<u64> {
    let end = start.saturating_add(len).min(u64::MAX - PAGE);
    start - start % PAGE..end.next_multiple_of(PAGE)
}

#[cfg(test)]
mod tests {
    use faultless_trace::{CallExit, Event, Fault, Side, Thread};

    use super::*;

    fn enter(call: Call, args: [u64; 6]) -> EventKind {
        EventKind::CallEnter(CallEnter { call, args })
    }

    fn exit(call: Call, result: i64) -> EventKind {
        EventKind::CallExit(CallExit { call, result })
    }

    fn fault(address: u64) -> EventKind {
        EventKind::Fault(Fault { address, ip: 0, error_code: 6, side: Side::User })
    }

    fn told(start: u64, len_bytes: u64, prot: u32, file: Option<u32>) -> EventKind {
        EventKind::Mapped(Mapped { start, len_bytes, file_offset: 0, prot, flags: 2, file })
    }

    /// Returns what the work of one thread was about, in order, and the bytes that were named.
    fn kinds(events: &[EventKind]) -> Vec<(Kind, Option<u32>)> {
        let event = |&kind: &EventKind| Event { thread: 0, time_ns: 0, on_cpu_ns: 5, kind };
        let events = std::iter::once(&EventKind::Exec).chain(events).map(event).collect();
        let threads = vec![Thread { pid: 1, tid: 1, name: "any".into() }];
        let trace = Trace { threads, events, ..Trace::default() };
        let mut found = Vec::new();
        follow(&trace, &mut |_, what, _| found.push((what.kind, what.file)));
        found
    }

    #[test]
    fn memory_is_what_the_calls_made_it() {
        let events = [
            told(0x7000_0000, 0x3000, 3, None),
            fault(0x7000_1000),
            told(0x5000, 0x2000, 5, Some(4)),
            fault(0x5000),
            enter(Call::Brk, [0; 6]),
            exit(Call::Brk, 0x9000),
            enter(Call::Brk, [0xb000, 0, 0, 0, 0, 0]),
            exit(Call::Brk, 0xb000),
            fault(0xa000),
            enter(Call::Mmap, [0, 0x4000, 3, 0x22, 0, 0]),
            exit(Call::Mmap, 0x10000),
            fault(0x11000),
            enter(Call::Munmap, [0x11000, 0x1000, 0, 0, 0, 0]),
            exit(Call::Munmap, 0),
            fault(0x11000),
            fault(0x12000),
        ];
        let plain = |kind| (kind, None);
        let expected = [
            plain(Kind::Stack),
            (Kind::File, Some(4)),
            plain(Kind::Heap),
            plain(Kind::Heap),
            plain(Kind::Heap),
            plain(Kind::Anonymous),
            plain(Kind::Anonymous),
            plain(Kind::Anonymous),
            plain(Kind::Unknown),
            plain(Kind::Anonymous),
        ];
        assert_eq!(kinds(&events), expected);
    }

    #[test]
    fn what_moves_stays_what_it_is_and_a_call_that_never_returns_is_told() {
        let events = [
            enter(Call::Mmap, [0, 0x1000, 1, 2, 3, 0]),
            told(0x20000, 0x1000, 1, Some(7)),
            exit(Call::Mmap, 0x20000),
            enter(Call::Mremap, [0x20000, 0x1000, 0x2000, 1, 0, 0]),
            exit(Call::Mremap, 0x40000),
            fault(0x41000),
            fault(0x20000),
            enter(Call::Munmap, [0x40000, 0x1000, 0, 0, 0, 0]),
        ];
        let file = (Kind::File, Some(7));
        assert_eq!(kinds(&events), [file, file, file, (Kind::Unknown, None), file]);
    }

    #[test]
    fn time_on_a_cpu_inside_a_call_is_counted_and_no_other() {
        let events = [fault(0x1000), enter(Call::Munmap, [0x1000, 0x3000, 0, 0, 0, 0]), exit(Call::Munmap, 0)];
        let event = |&kind: &EventKind| Event { thread: 0, time_ns: 0, on_cpu_ns: 5, kind };
        let events = std::iter::once(&EventKind::Exec).chain(&events).map(event).collect();
        let threads = vec![Thread { pid: 1, tid: 1, name: "any".into() }];
        let mut found = Vec::new();
        follow(&Trace { threads, events, ..Trace::default() }, &mut |_, _, work| found.push(work));
        assert_eq!(found, [Work::Fault, Work::Call { name: "munmap", bytes: 0x3000, kernel_ns: 5 }]);
    }

    #[test]
    fn a_break_counts_by_how_far_it_moves() {
        let moves = [(0, 0x9000), (0xb000, 0xb000), (0xa000, 0xa000), (0xff000, 0xa000)];
        let calls = moves
            .iter()
            .flat_map(|&(asked, result)| [enter(Call::Brk, [asked, 0, 0, 0, 0, 0]), exit(Call::Brk, result)]);
        let event = |kind: EventKind| Event { thread: 0, time_ns: 0, on_cpu_ns: 0, kind };
        let events = std::iter::once(EventKind::Exec).chain(calls).map(event).collect();
        let threads = vec![Thread { pid: 1, tid: 1, name: "any".into() }];
        let mut found = Vec::new();
        follow(&Trace { threads, events, ..Trace::default() }, &mut |_, _, work| {
            found.extend(if let Work::Call { bytes, .. } = work { Some(bytes) } else { None });
        });
        assert_eq!(found, [0, 0x2000, 0x1000, 0], "the first only asks, the last is refused");
    }
}
