//! A design under test: an instance on a thread of its own, which runs whatever sequences it is sent.
//!
//! # Guarantee
//! Every batch comes back with a verdict for each sequence, or for the first ones if the run ends meanwhile. A panic
//! inside the VM is a finding about the sequence, and the instance is made anew; a subject that does not answer in time
//! is given up. With high memory, whatever may lie there does, each look of the instance at it is a map
//! (`faultless_machine::high`), and a look without one ends this process: the frame is not there
//! (`faultless_machine::windows::RealMemory`, `unmapped`).

use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use faultless_kmap::{Costs, Shape};
use faultless_linux::space::ProgressWatch;
use faultless_machine::high::{self, Brief, Lies, Maps, When, Zones};
use faultless_machine::windows::RealMemory;
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
use super::unmapped;
use faultless_machine::designs::DEFAULT_SEMAPHORE;

/// Frames of an instance: the window several times over, for forks.
const MEMORY_BYTES: usize = 48 << 20;

/// Of these, what has addresses where most memory has none: room for all that must have one.
const NORMAL_BYTES: usize = 8 << 20;

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

/// What a subject says about a batch: a verdict for each sequence, or for the first ones of a run that ended meanwhile.
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
        Self::start_as(side, move |visitor| {
            // The registry has the design: the name comes from its list.
            let _ = match side.high {
                None => with_design::<Native, _>(side.design, DEFAULT_SEMAPHORE, visitor),
                Some(_) => with_design::<Mapped, _>(side.design, DEFAULT_SEMAPHORE, visitor),
            };
        })
    }

    /// Starts a subject under the one design of this crate's own tests, which so take a tenth of the time to compile.
    #[cfg(test)]
    pub(crate) fn start_plainest() -> Self {
        use faultless_sync::{Generation, Rwsem};
        use faultless_vm::design::MmapSem;

        Self::start_as("mmap-sem".into(), |visitor| visitor.visit::<MmapSem<Rwsem<Native>>>(Generation::RWSEM_V8))
    }

    fn start_as(side: Side, serve: impl FnOnce(Visitor) + Send + 'static) -> Self {
        let (batches, inbox) = sync_channel::<Arc<Batch>>(4);
        let (outbox, reports) = sync_channel(4);
        let visitor = Visitor { inbox, outbox, high: side.high };
        let thread = thread::spawn(move || serve(visitor));
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
    /// slept for so long, and there is none. Where memory has no addresses it is ten times that: each look at it is a
    /// call of the host's kernel.
    pub fn receive(&self, patience: Duration) -> Option<Report> {
        let patience = if self.side.high.is_some() { 10 * patience } else { patience };
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
        self.live_on::<Native, D>(semaphore, &|| {
            Some(Made {
                machine: Machine::new(NR_CPUS),
                frames: Frames::Usual(HostRegion::reserve(MEMORY_BYTES).ok()?),
            })
        });
    }
}

impl DesignVisitor<Mapped> for Visitor {
    type Output = ();

    fn visit<D: Design<Mapped>>(self, semaphore: GenerationOf<Mapped, D>) {
        // Nobody measures: the hardware's part takes no time.
        let costs = Costs { walk_ns: 0, flush_ns: 0, flush_slot_ns: 0 };
        let nr_frames = MEMORY_BYTES / PAGE_BYTES;
        let shape = Shape { nr_cpus: NR_CPUS, nr_frames, costs, ..Shape::default() };
        let zones =
            Zones { lies: Lies::ALL, boundary_bytes: Some(NORMAL_BYTES), when: When::Always, brief: Brief::ByScheme };
        let scheme = self.high;
        unmapped::tell();
        self.live_on::<Mapped, D>(semaphore, &|| {
            let maps = high::maps::<Mapped>(scheme?, zones, shape)?;
            let nr_normal = NORMAL_BYTES / PAGE_BYTES;
            let memory = Arc::new(RealMemory::new(nr_frames as u32, nr_normal as u32, maps).ok()?);
            let machine = watched::Machine::unwatched(Machine::new(NR_CPUS)).with_high_memory(memory.clone());
            Some(Made { machine, frames: Frames::High(memory) })
        });
    }
}

/// A machine, and its frames.
struct Made<P: Threads> {
    machine: P::Machine,
    frames: Frames,
}

/// Where frames lie.
enum Frames {
    /// At addresses of their own.
    Usual(HostRegion),
    /// In high memory, but for a few.
    High(Arc<RealMemory>),
}

impl Frames {
    fn base(&self) -> NonNull<u8> {
        match self {
            Self::Usual(region) => region.base(),
            Self::High(memory) => memory.base(),
        }
    }

    fn len_bytes(&self) -> usize {
        match self {
            Self::Usual(region) => region.len_bytes(),
            Self::High(memory) => memory.len_bytes(),
        }
    }

    /// Returns what gives frames addresses, if they have none.
    fn maps(&self) -> Option<&RealMemory> {
        if let Self::High(memory) = self { Some(memory) } else { None }
    }
}

impl Visitor {
    fn live_on<P: TestPlatform, D: Design<P>>(self, semaphore: GenerationOf<P, D>, made: &dyn Fn() -> Option<Made<P>>) {
        let mut next = self.inbox.recv().ok().map(|batch| (batch, 0, Report::new()));
        while let Some(begun) = next {
            next = made().and_then(|made| live::<P, D>(&self, semaphore, made, begun));
        }
    }
}

/// A batch, how far it has come, and the report so far.
type Begun = (Arc<Batch>, usize, Report);

/// Serves batches with one instance, until a panic breaks it; returns where to go on with the next one.
fn live<P: TestPlatform, D: Design<P>>(
    visitor: &Visitor,
    semaphore: GenerationOf<P, D>,
    made: Made<P>,
    begun: Begun,
) -> Option<Begun> {
    let made = ManuallyDrop::new(made);
    let Made { machine, frames } = &*made;
    let (rest, is_whole) = P::attach(machine, || {
        frames.maps().iter().for_each(|maps| maps.begin());
        let vm = ManuallyDrop::new(Vm::<P, D>::with_semaphore(memory(machine, frames)?, semaphore).ok()?);
        let rest = serve::<P, D>(visitor, &vm, machine, begun);
        let is_whole = rest.is_none();
        if is_whole {
            drop(ManuallyDrop::into_inner(vm));
            frames.maps().iter().for_each(|maps| maps.end());
        }
        Some((rest, is_whole))
    })?;
    if is_whole {
        // What a panic broke stays where it is: its memory is in an unknown state.
        drop(ManuallyDrop::into_inner(made));
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
                let is_over = (batch.is_over)();
                if is_over || place + 1 == batch.sequences.len() {
                    compare::check_batch(vm, &batch)?;
                }
                // A sequence during which the run ended may be judged in part only.
                Ok((!is_over).then_some(verdicts))
            }));
            place += 1;
            match judged {
                Ok(Ok(None)) => break,
                Ok(Ok(Some(verdicts))) => report.push(Ok(verdicts)),
                Ok(Err(finding)) => report.push(Err(finding)),
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
fn memory<P: Threads>(machine: &P::Machine, frames: &Frames) -> Option<Memory<P>> {
    let options = Options { poison: true, ..Options::default() };
    // SAFETY: the frames are fresh, so zero, used by this memory alone, and outlive the instance.
    let memory = unsafe { Memory::new(frames.base(), frames.len_bytes(), NR_CPUS, options) }.ok()?;
    if let Some(zone) = P::high_zone(machine, frames.base().as_ptr(), frames.len_bytes()) {
        memory.divide(zone);
    }
    Some(memory)
}
