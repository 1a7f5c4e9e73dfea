//! Traces made by hand, event by event.

#![allow(dead_code, reason = "each test file uses its own part")]

use faultless_plan::classes::Class;
use faultless_plan::{Action, Losses, Options, Plan, Touch, plan};
use faultless_trace::*;

/// Bytes of a page.
pub const PAGE: u64 = 4096;
/// The error code of a load from the user side, where no page is.
pub const READ: u32 = Fault::USER;
/// The error code of a store there.
pub const WRITE: u32 = Fault::USER | Fault::WRITE;
/// The error code of a store to a page that is there.
pub const WRITE_PRESENT: u32 = WRITE | Fault::PRESENT;
/// Between two events of a [`Story`] unless [`Story::wait`] adds to it: far more than the clock error.
pub const STEP_NS: u64 = 1_000_000;

/// A trace in the making; its first event is thread 0's exec.
pub struct Story {
    pub trace: Trace,
    now_ns: u64,
}

impl Story {
    /// Begins a trace of some threads.
    pub fn new(nr_threads: u32) -> Self {
        let header = Header {
            command: vec!["by hand".into()],
            machine: Machine { cpus: 2, page_size_bytes: PAGE, ..Machine::default() },
            clock_error_ns: 10_000,
            limits: Limits { stack_bytes: Some(8 << 20), mmap_min_addr: Some(65536), ..Limits::default() },
            ..Header::default()
        };
        let threads = (0..nr_threads).map(|tid| Thread { pid: 1, tid, name: String::new() }).collect();
        let mut story = Self { trace: Trace { header, threads, ..Trace::default() }, now_ns: 0 };
        story.push(0, EventKind::Exec);
        story
    }

    /// Begins a trace of threads that run already in one process, with this in its memory. The areas were read in the
    /// first step, their pages until `pages_ended_ns`.
    pub fn joining(nr_threads: u32, heap: std::ops::Range<u64>, mut areas: Vec<Area>, pages_ended_ns: u64) -> Self {
        let mut story = Self::new(nr_threads);
        story.trace.events.clear();
        story.now_ns = 0;
        areas.iter_mut().for_each(|area| area.window = Window { began_ns: STEP_NS, ended_ns: pages_ended_ns });
        let window = Window { began_ns: 0, ended_ns: STEP_NS };
        let threads = (0..nr_threads).collect();
        story.trace.snapshot.spaces.push(SpaceState { threads, heap, joined_ns: 0, window, areas });
        story
    }

    /// Lets time pass.
    pub fn wait(&mut self, ns: u64) -> &mut Self {
        self.now_ns += ns;
        self
    }

    /// Lets the next event come at the same time as the last.
    pub fn at_once(&mut self) -> &mut Self {
        self.now_ns -= STEP_NS;
        self
    }

    /// Adds an event; returns its number.
    pub fn push(&mut self, thread: u32, kind: EventKind) -> u32 {
        self.trace.events.push(Event { thread, time_ns: self.now_ns, on_cpu_ns: 0, kind });
        self.now_ns += STEP_NS;
        self.trace.events.len() as u32 - 1
    }

    /// Adds a fault with this error code, from the user side unless the code says otherwise.
    pub fn fault(&mut self, thread: u32, address: u64, error_code: u32) -> u32 {
        let side = if error_code & Fault::USER != 0 { Side::User } else { Side::Kernel };
        self.push(thread, EventKind::Fault(Fault { address, ip: 0x40_1000, error_code, side }))
    }

    /// Adds a call's enter.
    pub fn enter(&mut self, thread: u32, call: Call, args: [u64; 6]) -> u32 {
        self.push(thread, EventKind::CallEnter(CallEnter { call, args }))
    }

    /// Adds a call's exit.
    pub fn exit(&mut self, thread: u32, call: Call, result: i64) -> u32 {
        self.push(thread, EventKind::CallExit(CallExit { call, result }))
    }

    /// Adds a whole call; returns its enter's number.
    pub fn call(&mut self, thread: u32, call: Call, args: [u64; 6], result: i64) -> u32 {
        let enter = self.enter(thread, call, args);
        self.exit(thread, call, result);
        enter
    }

    /// Adds an anonymous, private, readable and writable mapping that Linux put at `place`.
    pub fn map(&mut self, thread: u32, place: u64, pages: u64) -> u32 {
        self.call(thread, Call::Mmap, [0, pages * PAGE, 3, 0x22, u64::MAX, 0], place as i64)
    }

    /// Adds an unmapping.
    pub fn unmap(&mut self, thread: u32, start: u64, pages: u64) -> u32 {
        self.call(thread, Call::Munmap, [start, pages * PAGE, 0, 0, 0, 0], 0)
    }

    /// Adds a change of rights.
    pub fn protect(&mut self, thread: u32, start: u64, pages: u64, prot: u64) -> u32 {
        self.call(thread, Call::Mprotect, [start, pages * PAGE, prot, 0, 0, 0], 0)
    }

    /// Adds a thread or process made by `thread`.
    pub fn clone_task(&mut self, thread: u32, child: u32, flags: u64) -> u32 {
        self.push(thread, EventKind::Clone(CloneTask { child, flags }))
    }

    /// Adds a thread of the same process.
    pub fn spawn(&mut self, thread: u32, child: u32) -> u32 {
        self.clone_task(thread, child, CloneTask::VM | CloneTask::THREAD)
    }

    /// Adds a file; returns its place.
    pub fn file(&mut self, path: &str) -> u32 {
        let inode = self.trace.files.len() as u64 + 1;
        self.trace.files.push(File { inode, path: path.into(), size_bytes: Some(1 << 40), ..File::default() });
        self.trace.files.len() as u32 - 1
    }

    /// Adds a private mapping of a file that Linux put at `place`.
    pub fn map_file(&mut self, thread: u32, place: u64, pages: u64, prot: u64, file: u32) -> u32 {
        let len_bytes = pages * PAGE;
        let enter = self.enter(thread, Call::Mmap, [0, len_bytes, prot, 0x2, 3, 0]);
        let mapped = Mapped { start: place, len_bytes, file_offset: 0, prot: prot as u32, flags: 2, file: Some(file) };
        self.push(thread, EventKind::Mapped(mapped));
        self.exit(thread, Call::Mmap, place as i64);
        enter
    }

    /// Ends a thread.
    pub fn end(&mut self, thread: u32) -> u32 {
        self.push(thread, EventKind::Exit)
    }

    /// Returns the trace, whose invariants hold.
    pub fn done(&self) -> Trace {
        self.trace.check().expect("the trace is consistent");
        self.trace.clone()
    }
}

/// Plans a trace, whatever it says was lost.
pub fn planned(trace: &Trace) -> Plan {
    plan(trace, Options { losses: Losses::Allowed, ..Options::default() }).expect("the trace can be planned")
}

/// Returns the access that an event became.
pub fn touch(plan: &Plan, event: u32) -> Touch {
    let steps = plan.programs.iter().flat_map(|program| &program.steps);
    match steps.clone().find(|step| step.event == event).map(|step| step.action) {
        Some(Action::Access(touch)) => touch,
        other => panic!("event {event} is no access but {other:?}"),
    }
}

/// Returns the class of an event and whether its page is strict.
pub fn class(story: &Story, event: u32) -> (Option<Class>, bool) {
    let touch = touch(&planned(&story.done()), event);
    (touch.class, touch.is_strict)
}
