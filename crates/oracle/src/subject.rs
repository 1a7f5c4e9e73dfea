//! A design under test: an instance on a thread of its own, which runs whatever sequences it is sent.
//!
//! # Guarantee
//! Every batch comes back with a verdict for each sequence. A panic inside the VM is a finding about the sequence, and
//! the instance is made anew; a subject that does not answer in time is given up.

use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use crate::kernel::{Answer, NoAnswer, Sequence};
use faultless_phys::{Memory, Options};
use faultless_platform::native::{HostRegion, Machine, Native};
use faultless_vm::Vm;
use faultless_vm::design::{Design, GenerationOf};
use faultless_vm::registry::{DesignVisitor, with_design};

use super::compare::{self, Finding, Verdicts};
use super::world::Conditions;
use faultless_machine::designs::DEFAULT_SEMAPHORE;

/// Frames of an instance: the window several times over, for forks.
const MEMORY_BYTES: usize = 48 << 20;

/// CPUs of an instance: one for each thread of a sequence, and one for the sequence's own.
const NR_CPUS: usize = 4;

/// Sequences with what the kernel made of them.
pub struct Batch {
    /// The sequences.
    pub sequences: Vec<Sequence>,
    /// The kernel's answers.
    pub answers: Vec<Result<Answer, NoAnswer>>,
    /// Its answers where anonymous memory stands in place of reference areas, for sequences that have some.
    pub twins: Vec<Option<Answer>>,
    /// Under which conditions.
    pub conditions: Conditions,
    /// When the invariants are checked.
    pub checking: Checking,
}

/// When the invariants are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checking {
    /// After each operation.
    EachOperation,
    /// When a sequence ends.
    EachSequence,
    /// When a batch ends.
    EachBatch,
}

/// What a subject says about a batch.
pub type Report = Vec<Result<Verdicts, Finding>>;

/// A design on a thread of its own.
pub struct Subject {
    design: &'static str,
    batches: Option<SyncSender<Arc<Batch>>>,
    reports: Receiver<Report>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Subject {
    /// Starts a subject.
    pub fn start(design: &'static str) -> Self {
        let (batches, inbox) = sync_channel::<Arc<Batch>>(4);
        let (outbox, reports) = sync_channel(4);
        let visitor = Visitor { inbox, outbox };
        let thread = thread::spawn(move || {
            // The registry has the design: the name comes from its list.
            let _ = with_design::<Native, _>(design, DEFAULT_SEMAPHORE, visitor);
        });
        Self { design, batches: Some(batches), reports, thread: Some(thread) }
    }

    /// Returns the design's name.
    pub fn design(&self) -> &'static str {
        self.design
    }

    /// Sends a batch; waits while several are under way.
    pub fn send(&self, batch: &Arc<Batch>) {
        if let Some(batches) = &self.batches {
            // A subject that has ended is noticed when its report is awaited.
            let _ = batches.send(batch.clone());
        }
    }

    /// Waits for the next report; `None` if there is none in time.
    pub fn receive(&self, timeout: Duration) -> Option<Report> {
        self.reports.recv_timeout(timeout).ok()
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
}

impl DesignVisitor<Native> for Visitor {
    type Output = ();

    fn visit<D: Design<Native>>(self, semaphore: GenerationOf<Native, D>) {
        let mut next = self.inbox.recv().ok().map(|batch| (batch, 0, Report::new()));
        while let Some(begun) = next {
            next = live::<D>(&self, semaphore, begun);
        }
    }
}

/// A batch, how far it has come, and the report so far.
type Begun = (Arc<Batch>, usize, Report);

/// Serves batches with one instance, until a panic breaks it; returns where to go on with the next one.
fn live<D: Design<Native>>(visitor: &Visitor, semaphore: GenerationOf<Native, D>, begun: Begun) -> Option<Begun> {
    let region = ManuallyDrop::new(HostRegion::reserve(MEMORY_BYTES).ok()?);
    let machine = Machine::new(NR_CPUS);
    let (rest, is_whole) = machine.attach(|| {
        let vm = ManuallyDrop::new(Vm::<Native, D>::with_semaphore(memory(&region)?, semaphore).ok()?);
        let rest = serve::<D>(visitor, &vm, &machine, begun);
        let is_whole = rest.is_none();
        if is_whole {
            drop(ManuallyDrop::into_inner(vm));
        }
        Some((rest, is_whole))
    })?;
    if is_whole {
        // What a panic broke stays where it is: its memory is in an unknown state.
        drop(ManuallyDrop::into_inner(region));
    }
    rest
}

fn serve<D: Design<Native>>(visitor: &Visitor, vm: &Vm<Native, D>, machine: &Machine, begun: Begun) -> Option<Begun> {
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
fn memory(region: &HostRegion) -> Option<Memory<Native>> {
    let options = Options { poison: true, ..Options::default() };
    // SAFETY: the region is fresh, so zero, used by this memory alone, and outlives the instance.
    unsafe { Memory::new(region.base(), region.len_bytes(), NR_CPUS, options) }.ok()
}
