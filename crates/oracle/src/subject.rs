//! A design under test: an instance on a thread of its own, which runs whatever sequences it is sent.
//!
//! # Guarantee
//! Every batch comes back with a verdict for each sequence. A panic inside the VM is a finding about the sequence, and
//! the instance is made anew; a subject that does not answer in time is given up. With high memory, whatever may lie
//! there does, and each look of the instance at it is a map (`faultless_machine::high`).

use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use faultless_kmap::{Costs, Shape};
use faultless_linux::space::ProgressWatch;
use faultless_machine::high::{self, Lies, Maps, When, Zones};
use faultless_phys::{Memory, Options};
use faultless_platform::native::{HostRegion, Machine, Native};
use faultless_platform::watched::{self};
use faultless_platform::{PAGE_BYTES, Threads};
use faultless_vm::Vm;
use faultless_vm::design::{Design, GenerationOf};
use faultless_vm::registry::{DesignVisitor, with_design};

use super::batch::{Batch, Mapped, TestPlatform};
use super::compare;
use super::finding::{Finding, Verdicts};
use faultless_machine::designs::DEFAULT_SEMAPHORE;

/// Frames of an instance: the window several times over, for forks.
const MEMORY_BYTES: usize = 48 << 20;

/// CPUs of an instance: one for each thread of a sequence, and one for the sequence's own.
const NR_CPUS: usize = 4;

/// A design, and how it reaches its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Side {
    /// The design.
    pub design: &'static str,
    /// The scheme of kernel maps if memory has no addresses; nothing if it has.
    pub high: Option<&'static str>,
}

impl From<&'static str> for Side {
    fn from(design: &'static str) -> Self {
        Self { design, high: None }
    }
}

/// What a subject says about a batch.
pub type Report = Vec<Result<Verdicts, Finding>>;

/// A design on a thread of its own.
pub struct Subject {
    side: Side,
    batches: Option<SyncSender<Arc<Batch>>>,
    reports: Receiver<Report>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Subject {
    /// Starts a subject.
    pub fn start(side: Side) -> Self {
        let (batches, inbox) = sync_channel::<Arc<Batch>>(4);
        let (outbox, reports) = sync_channel(4);
        let visitor = Visitor { inbox, outbox, high: side.high };
        let thread = thread::spawn(move || {
            // The registry has the design: the name comes from its list.
            let _ = match side.high {
                None => with_design::<Native, _>(side.design, DEFAULT_SEMAPHORE, visitor),
                Some(_) => with_design::<Mapped, _>(side.design, DEFAULT_SEMAPHORE, visitor),
            };
        });
        Self { side, batches: Some(batches), reports, thread: Some(thread) }
    }

    /// Returns what it was started as.
    pub fn side(&self) -> Side {
        self.side
    }

    /// Returns the design's name.
    pub fn design(&self) -> &'static str {
        self.side.design
    }

    /// Sends a batch; waits while several are under way.
    pub fn send(&self, batch: &Arc<Batch>) {
        if let Some(batches) = &self.batches {
            // A subject that has ended is noticed when its report is awaited.
            let _ = batches.send(batch.clone());
        }
    }

    /// Waits for the next report; `None` if the thread has ended, or if this process has had CPUs for `patience`, or
    /// slept for so long, and there is none.
    pub fn receive(&self, patience: Duration) -> Option<Report> {
        let answer = |time| match self.reports.recv_timeout(time) {
            Err(RecvTimeoutError::Timeout) => None,
            heard => Some(heard.ok()),
        };
        ProgressWatch::until(std::process::id(), patience, answer).ok().flatten()
    }

    /// Leaves a subject that hangs to itself.
    pub fn abandon(mut self) {
        self.thread = None;
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        self.batches = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was a finding already.
            let _ = thread.join();
        }
    }
}

/// Serves batches under the design that it is shown.
struct Visitor {
    inbox: Receiver<Arc<Batch>>,
    outbox: SyncSender<Report>,
    high: Option<&'static str>,
}

impl DesignVisitor<Native> for Visitor {
    type Output = ();

    fn visit<D: Design<Native>>(self, semaphore: GenerationOf<Native, D>) {
        self.live_on::<Native, D>(semaphore, &|| Some((Machine::new(NR_CPUS), None)));
    }
}

impl DesignVisitor<Mapped> for Visitor {
    type Output = ();

    fn visit<D: Design<Mapped>>(self, semaphore: GenerationOf<Mapped, D>) {
        // Nobody measures: the hardware's part takes no time.
        let costs = Costs { walk_ns: 0, flush_ns: 0, flush_slot_ns: 0 };
        let shape = Shape { nr_cpus: NR_CPUS, nr_frames: MEMORY_BYTES / PAGE_BYTES, costs, ..Shape::default() };
        let zones = Zones { lies: Lies::ALL, boundary_bytes: None, when: When::Always };
        let scheme = self.high;
        self.live_on::<Mapped, D>(semaphore, &|| {
            let maps = high::maps::<Mapped>(scheme?, zones, shape)?;
            let machine = watched::Machine::unwatched(Machine::new(NR_CPUS)).with_high_memory(maps.clone());
            Some((machine, Some(maps)))
        });
    }
}

/// A machine, and what gives its memory addresses if it has none.
type Made<P> = (<P as Threads>::Machine, Option<Arc<dyn Maps>>);

impl Visitor {
    fn live_on<P: TestPlatform, D: Design<P>>(self, semaphore: GenerationOf<P, D>, made: &dyn Fn() -> Option<Made<P>>) {
        let mut next = self.inbox.recv().ok().map(|batch| (batch, 0, Report::new()));
        while let Some(begun) = next {
            next = made().and_then(|made| live::<P, D>(&self, semaphore, &made, begun));
        }
    }
}

/// A batch, how far it has come, and the report so far.
type Begun = (Arc<Batch>, usize, Report);

/// Serves batches with one instance, until a panic breaks it; returns where to go on with the next one.
fn live<P: TestPlatform, D: Design<P>>(
    visitor: &Visitor,
    semaphore: GenerationOf<P, D>,
    (machine, maps): &Made<P>,
    begun: Begun,
) -> Option<Begun> {
    let region = ManuallyDrop::new(HostRegion::reserve(MEMORY_BYTES).ok()?);
    let (rest, is_whole) = P::attach(machine, || {
        maps.iter().for_each(|maps| maps.begin());
        let vm = ManuallyDrop::new(Vm::<P, D>::with_semaphore(memory(&region)?, semaphore).ok()?);
        let rest = serve::<P, D>(visitor, &vm, machine, begun);
        let is_whole = rest.is_none();
        if is_whole {
            drop(ManuallyDrop::into_inner(vm));
            maps.iter().for_each(|maps| maps.end());
        }
        Some((rest, is_whole))
    })?;
    if is_whole {
        // What a panic broke stays where it is: its memory is in an unknown state.
        drop(ManuallyDrop::into_inner(region));
    }
    rest
}

fn serve<P: TestPlatform, D: Design<P>>(
    visitor: &Visitor,
    vm: &Vm<P, D>,
    machine: &P::Machine,
    begun: Begun,
) -> Option<Begun> {
    let mut next = Some(begun);
    while let Some((batch, mut place, mut report)) = next {
        while place < batch.sequences.len() {
            let judged = catch_unwind(AssertUnwindSafe(|| {
                let verdicts = compare::judge(vm, machine, &batch, place)?;
                if place + 1 == batch.sequences.len() {
                    compare::check_batch(vm, &batch)?;
                }
                Ok(verdicts)
            }));
            place += 1;
            match judged {
                Ok(result) => report.push(result),
                Err(panic) => {
                    report.push(Err(Finding::panicked(&*panic)));
                    return Some((batch, place, report));
                }
            }
        }
        visitor.outbox.send(report).ok()?;
        next = visitor.inbox.recv().ok().map(|batch| (batch, 0, Report::new()));
    }
    None
}

#[allow(unsafe_code, reason = "the one place where a subject's frames begin")]
fn memory<P: Threads>(region: &HostRegion) -> Option<Memory<P>> {
    let options = Options { poison: true, ..Options::default() };
    // SAFETY: the region is fresh, so zero, used by this memory alone, and outlives the instance.
    unsafe { Memory::new(region.base(), region.len_bytes(), NR_CPUS, options) }.ok()
}
