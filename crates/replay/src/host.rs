//! A pass on the host's own kernel: the recorded calls and accesses, made for real in processes made for it.
//!
//! # Guarantee
//! Each recorded process is a process, each thread a thread; they wait for each other as the plan says, through gates
//! that all of them share. Addresses are the recorded ones, moved to a free part of the process (`relocation`). Results
//! of calls, and what stores left, are compared with the recording; whether an access faulted is not: the kernel does
//! not say.
//!
//! # What differs from the recorded program
//! Files are empty ones of the page cache, of any length, and many of them share one; brk is mmap and munmap where the
//! heap was; a fetch is a load, or a look at the list of areas where it must be refused; exec empties the space, in a
//! new process if other threads go on in the old one; locks on all memory are left out.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering};

use faultless_linux::space::lineage::{self, Crew, Gates};
use faultless_linux::space::{self as host, Affinity, Family, Together, Usage, probe};
use faultless_platform::Processor;
use faultless_platform::native::Native;
use faultless_trace::{Access, ThreadIndex};
use serde_json::{Value, json};

use super::content::token;
use super::host_calls::Caller;
use super::relocation::Relocation;
use super::worker::shown;
use faultless_pass::{Mismatch, PassResult, ReplayError, Tally};
use faultless_plan::classes::Class;
use faultless_plan::decode::is_error;
use faultless_plan::ids::ObjectIndex;
use faultless_plan::{Action, Before, Outcome, Plan, Step, Touch};
use faultless_results::stats::Histogram;

/// Length of each object: none was recorded, and no recorded access was behind an end.
const OBJECT_BYTES: u64 = 1 << 46;

/// The stack of a recorded thread.
const STACK_BYTES: usize = 256 << 10;

/// Files behind the objects. A program may make more objects than a process may open files; they share files then, far
/// from each other.
const MOST_FILES: usize = 512;

/// Returns an object's file, and where in it the object begins.
pub(super) fn room_of(object: ObjectIndex) -> (usize, u64) {
    (object as usize % MOST_FILES, (object as usize / MOST_FILES) as u64 * OBJECT_BYTES)
}

/// Replays a plan once on the host's kernel, on so many CPUs.
pub fn pass(plan: &Plan, nr_cpus: usize) -> Result<PassResult, ReplayError> {
    let failed = |what: &str| ReplayError::Host(what.to_owned());
    let relocation = Relocation::new(plan).map_err(|error| {
        failed(&format!("the trace's memory spans {} GiB, more than fits beside a process's own", error.bytes >> 30))
    })?;
    let gates = Gates::new(plan.nr_gates as usize).map_err(|error| failed(&error.to_string()))?;
    let said = host::memory_file().map_err(|errno| failed(&std::io::Error::from_raw_os_error(errno).to_string()))?;
    let stage = Stage { plan, relocation: &relocation, gates: &gates, said: &said, nr_cpus };
    let mut answer = Family::run(1, &|_, _: &Together| stage.play()).map_err(|error| failed(&error.to_string()))?;
    match String::from_utf8_lossy(&answer.pop().unwrap_or_default()).as_ref() {
        "done" => {}
        _ if host::has_interrupt() => return Err(failed("interrupted")),
        why => return Err(failed(why)),
    }
    conclude(&said)
}

/// What all processes of a pass see.
struct Stage<'a> {
    plan: &'a Plan,
    relocation: &'a Relocation,
    gates: &'a Gates,
    /// Where each thread writes what it counted.
    said: &'a File,
    nr_cpus: usize,
}

impl Stage<'_> {
    /// The first process: makes the roots, and waits until all has ended.
    fn play(&self) -> Vec<u8> {
        self.prepare().map_or_else(String::into_bytes, |()| b"done".to_vec())
    }

    fn prepare(&self) -> Result<(), String> {
        let words = |error: std::io::Error| error.to_string();
        lineage::adopt(self.plan.stack_bytes);
        probe::survive_faults();
        if let Ok(affinity) = Affinity::of_this_thread() {
            // What the kernel refuses is no worse than not asking.
            let _ = affinity.keep_to(self.nr_cpus);
        }
        let taken = host::mapped().map_err(words)?;
        let overlaps = |window: &std::ops::Range<u64>| {
            taken.iter().any(|range| range.start < window.end && window.start < range.end)
        };
        if let Some(window) = self.relocation.windows().find(overlaps) {
            return Err(format!("this process has memory of its own at {:#x}", window.start));
        }
        let files = self.files().map_err(words)?;
        for &root in &self.plan.roots {
            lineage::split(|| self.begin(&files, HostWorker::new(self, &files, root))).map_err(words)?;
        }
        lineage::reap(self.gates).map_or(Ok(()), Err)
    }

    fn files(&self) -> std::io::Result<Vec<File>> {
        let nr_objects = self.plan.objects.len();
        let objects_in = |file: usize| (nr_objects - file).div_ceil(MOST_FILES) as u64;
        let make = |file: usize| {
            let made = host::memory_file().map_err(std::io::Error::from_raw_os_error)?;
            made.set_len(OBJECT_BYTES * objects_in(file))?;
            Ok(made)
        };
        (0..nr_objects.min(MOST_FILES)).map(make).collect()
    }

    /// A process's first thread; its other threads end before it returns.
    fn begin<'a>(&'a self, _files: &'a [File], worker: HostWorker<'a>) {
        lineage::crew(|crew| worker.live(crew));
    }

    /// Says what a thread counted. Each line is one write behind the last one.
    fn tell(&self, tally: &Tally) {
        let mut line = told(tally).to_string();
        line.push('\n');
        let path = format!("/proc/self/fd/{}", self.said.as_raw_fd());
        let written = OpenOptions::new().append(true).open(path).and_then(|mut file| file.write_all(line.as_bytes()));
        if written.is_err() {
            self.gates.stop();
        }
    }
}

/// The heap's end in this process; 0 before it is known. Children begin with their parent's.
static HEAP_END: AtomicU64 = AtomicU64::new(0);

/// A thread of the plan.
struct HostWorker<'a> {
    stage: &'a Stage<'a>,
    files: &'a [File],
    thread: ThreadIndex,
    /// The next step, and the next of the program's waits.
    next: (usize, usize),
    tally: Tally,
    faults_before: u64,
}

impl<'a> HostWorker<'a> {
    fn new(stage: &'a Stage<'a>, files: &'a [File], thread: ThreadIndex) -> Self {
        Self { stage, files, thread, next: (0, 0), tally: Tally::default(), faults_before: 0 }
    }

    /// SpaceUsers the thread's life, from the next step on.
    fn live<'scope>(mut self, crew: &'scope Crew<'scope, 'a>) {
        self.faults_before = Usage::of_this_thread().faults;
        let program = &self.stage.plan.programs[self.thread as usize];
        while let Some(step) = program.steps.get(self.next.0) {
            for &gate in &program.waits[self.next.1..][..step.nr_waits as usize] {
                self.stage.gates.wait(gate as usize);
            }
            self.next = (self.next.0 + 1, self.next.1 + step.nr_waits as usize);
            if self.stage.gates.has_stopped() {
                break;
            }
            if let Action::Renew { old: Some(old), .. } = step.action
                && !old.is_last
            {
                return self.go_on_alone(step);
            }
            self.take(step, crew);
            self.open(step);
        }
        self.end();
    }

    fn open(&self, step: &Step) {
        if let Some(gate) = step.gate {
            self.stage.gates.open(gate as usize);
        }
    }

    fn end(mut self) {
        self.tally.faulted += Usage::of_this_thread().faults - self.faults_before;
        self.stage.tell(&self.tally);
    }

    /// Leaves a space in which others go on: a process of its own takes the thread's place.
    fn go_on_alone(mut self, step: &'a Step) {
        self.tally.faulted += Usage::of_this_thread().faults - self.faults_before;
        let stage = self.stage;
        let next = HostWorker { tally: std::mem::take(&mut self.tally), ..self };
        let made = lineage::split(|| {
            next.clear();
            next.open(step);
            stage.begin(next.files, next);
        });
        if made.is_err() {
            stage.gates.stop();
        }
    }

    /// Empties the space.
    fn clear(&self) {
        self.stage.relocation.windows().for_each(|window| {
            // Nothing else can be there, and emptying needs no memory.
            let _ = host::munmap(window);
        });
        // Relaxed: the space's only thread.
        HEAP_END.store(0, Ordering::Relaxed);
    }

    fn take<'scope>(&mut self, step: &'a Step, crew: &'scope Crew<'scope, 'a>) {
        if step.work_ns > 0 {
            let until_ns = Native::now() + step.work_ns;
            while Native::now() < until_ns {
                std::hint::spin_loop();
            }
        }
        let began_ns = Native::now();
        if !matches!(step.action, Action::Restore(_)) {
            self.tally.began_ns.get_or_insert(began_ns);
        }
        self.tally.steps += 1;
        let (stage, files) = (self.stage, self.files);
        match step.action {
            Action::Access(touch) => self.access(step, &touch, began_ns),
            Action::Call(place) => self.call(step, place, began_ns),
            Action::Restore(place) => self.restore(step, place),
            Action::Fork { child, .. } => {
                if lineage::split(|| stage.begin(files, HostWorker::new(stage, files, child))).is_err() {
                    stage.gates.stop();
                }
            }
            Action::Spawn { child } => {
                let body = move || HostWorker::new(stage, files, child).live(crew);
                if crew.begin(STACK_BYTES, body).is_err() {
                    stage.gates.stop();
                }
            }
            Action::Renew { .. } => self.clear(),
            // The host's own files are not touched.
            Action::Leave(_) | Action::File { .. } | Action::Pass => {}
        }
        self.tally.ended_ns = Native::now();
    }

    /// Makes what stood before the first event.
    fn restore(&mut self, step: &Step, place: u32) {
        let caller = Caller { relocation: self.stage.relocation, files: self.files, heap_end: &HEAP_END };
        for memory_call in &self.stage.plan.restorations[place as usize].memory_calls {
            let found = caller.perform(memory_call);
            if is_error(found) {
                self.tally
                    .mismatch(step.event, format!("restoring what stood before: {memory_call:x?} returned {found}"));
            }
        }
    }

    fn access(&mut self, step: &Step, touch: &Touch, began_ns: u64) {
        let place = self.stage.relocation.place(touch.address & !7);
        let loaded = match touch.access {
            Access::Write => probe::store(place, token(step.event)).then_some(None),
            Access::Fetch if touch.outcome == Outcome::Refused && !is_executable(place) => None,
            Access::Read | Access::Fetch => probe::load(place).map(Some),
        };
        self.tally.fault_ns.note(Native::now() - began_ns);
        match (touch.outcome, loaded) {
            (Outcome::Done, None) => self.differ(step, touch, "it was refused"),
            (Outcome::Refused, Some(_)) => self.differ(step, touch, "it was allowed"),
            _ => {}
        }
        if let Some(loaded) = loaded {
            self.read_back(step, touch, loaded);
        }
    }

    fn differ(&mut self, step: &Step, touch: &Touch, what: &str) {
        match touch.class {
            Some(class) => self.tally.classify(class),
            None => self.tally.mismatch(step.event, format!("access to {:#x}: {what}", touch.address)),
        }
    }

    /// Reads back what an earlier store left. Files are empty here, so their content tells nothing.
    fn read_back(&mut self, step: &Step, touch: &Touch, loaded: Option<u64>) {
        let (address, expected) = match touch.before {
            Before::Token { event, word } => (touch.address / 4096 * 4096 + u64::from(word) * 8, token(event)),
            Before::Zeros if touch.access != Access::Write => (touch.address & !7, 0),
            _ => return,
        };
        if address == touch.address & !7 && touch.access == Access::Write {
            return;
        }
        let found = loaded.filter(|_| address == touch.address & !7);
        let Some(found) = found.or_else(|| probe::load(self.stage.relocation.place(address))) else { return };
        if found == expected {
            self.tally.read_back += 1;
        } else {
            let what = format!("the word at {address:#x} holds {found:#x} instead of {expected:#x}");
            self.tally.mismatch(step.event, what);
        }
    }

    fn call(&mut self, step: &Step, place: u32, began_ns: u64) {
        let call = &self.stage.plan.calls[place as usize];
        let Some((expected, is_certain)) = call.verdict.compared() else { return };
        let caller = Caller { relocation: self.stage.relocation, files: self.files, heap_end: &HEAP_END };
        let found = caller.perform(&call.memory_call);
        self.tally.call_ns.note(Native::now() - began_ns);
        if found == expected {
            return;
        }
        if self.stage.plan.is_blind || !is_certain {
            self.tally.classify(Class::Ambiguous);
        } else {
            let name = call.call.map_or("mapping", faultless_trace::Call::name);
            self.tally.mismatch(step.event, format!("{name} returned {} instead of {}", shown(found), shown(expected)));
        }
    }
}

/// Says whether a fetch would go through; where the host does not tell, a load decides.
fn is_executable(place: u64) -> bool {
    host::is_executable(place).unwrap_or(true)
}

fn told(tally: &Tally) -> Value {
    let words = tally.first_mismatches.iter().map(|mismatch| json!([mismatch.event, mismatch.what]));
    json!({
        "faulted": tally.faulted,
        "steps": tally.steps,
        "classified": tally.classified,
        "mismatches": tally.mismatches,
        "words": words.collect::<Vec<_>>(),
        "read_back": tally.read_back,
        "fault_ns": tally.fault_ns.pairs().collect::<Vec<_>>(),
        "call_ns": tally.call_ns.pairs().collect::<Vec<_>>(),
        "began_ns": tally.began_ns,
        "ended_ns": tally.ended_ns,
    })
}

fn heard(value: &Value) -> Tally {
    let number = |key: &str| value[key].as_u64().unwrap_or(0);
    let list = |key: &str| value[key].as_array().cloned().unwrap_or_default();
    let histogram = |key: &str| {
        Histogram::from_pairs(list(key).iter().filter_map(|pair| Some((pair[0].as_u64()?, pair[1].as_u64()?))))
    };
    let mut classified = [0; Class::ALL.len()];
    classified.iter_mut().zip(list("classified")).for_each(|(count, value)| *count = value.as_u64().unwrap_or(0));
    let words = list("words").into_iter().map(|pair| Mismatch {
        event: pair[0].as_u64().unwrap_or(0) as u32,
        what: pair[1].as_str().unwrap_or_default().to_owned(),
    });
    Tally {
        faulted: number("faulted"),
        steps: number("steps"),
        classified,
        mismatches: number("mismatches"),
        first_mismatches: words.collect(),
        read_back: number("read_back"),
        fault_ns: histogram("fault_ns"),
        call_ns: histogram("call_ns"),
        peak_pages: 0,
        began_ns: value["began_ns"].as_u64(),
        ended_ns: number("ended_ns"),
    }
}

/// Adds up what all threads said.
fn conclude(mut said: &File) -> Result<PassResult, ReplayError> {
    let broken = |what: String| ReplayError::Host(format!("the replaying processes gave no result: {what}"));
    let mut text = String::new();
    said.rewind().and_then(|()| said.read_to_string(&mut text)).map_err(|error| broken(error.to_string()))?;
    let mut tally = Tally::default();
    for line in text.lines() {
        tally.add(heard(&serde_json::from_str(line).map_err(|error| broken(error.to_string()))?));
    }
    Ok(PassResult {
        elapsed_ns: tally.ended_ns.saturating_sub(tally.began_ns.unwrap_or(tally.ended_ns)),
        lock_wait_ns: 0,
        counters: vec![("faults", tally.faulted)],
        peak_rss_bytes: 0,
        tally,
    })
}
