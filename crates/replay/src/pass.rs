//! One pass: an instance, the threads of a plan on it, and what came out.
//!
//! # Guarantee
//! When a pass is over nothing of it is left; its instance was whole at the end, or the pass is an error.
//!
//! # Protocol
//! `Threads::run` is called three times: to set up, to replay, to check and tear down. So nothing but the recorded
//! threads owns a slot while they run.

use faultless_platform::{Atomic, Ordering, Threads, Usual};
use faultless_sync::{Completion, Generation, RwSemaphore, Rwsem, Side, SpinMutex};
use faultless_trace::ThreadIndex;
use faultless_vm::check::invariants;
use faultless_vm::design::{Design, GenerationOf};
use faultless_vm::registry::DesignVisitor;
use faultless_vm::{CallError, Guest, Limits, ObjectHandle, SpaceRef, Vm};

use super::instance;
use super::objects::Objects;
use super::worker::Worker;
use faultless_machine::host_frames::{self, HostFrames};
use faultless_machine::watch;
use faultless_pass::{Checking, PassResult, ReplayError, Settings, Tally};
use faultless_plan::ids::SpaceIndex;
use faultless_plan::regions::PAGE;
use faultless_plan::{Plan, Step};

/// Runs a pass under the design that it is shown.
pub(super) struct Visitor<'a, P: Threads<Embedding = Usual>> {
    pub(super) machine: &'a P::Machine,
    pub(super) nr_cpus: usize,
    pub(super) plan: &'a Plan,
    pub(super) settings: &'a Settings,
}

impl<P: Threads<Embedding = Usual>> DesignVisitor<P> for Visitor<'_, P> {
    type Output = Result<PassResult, ReplayError>;

    fn visit<D: Design<P>>(self, semaphore: GenerationOf<P, D>) -> Self::Output {
        let host_frames = HostFrames::reserve(self.settings.memory_bytes)?;
        let memory = host_frames.memory::<P>(self.machine, self.nr_cpus)?;
        let nr_free = memory.nr_free();
        let vm = self.alone(|| {
            host_frames::warm(&memory, instance::warmed_frames(self.plan));
            Vm::<P, D>::with_semaphore(memory.clone(), semaphore)
        });
        let vm = vm.map_err(|cause| self.out_of_memory(cause.to_string()))?;
        let result = self.replay(&vm);
        self.alone(|| drop(vm));
        self.alone(|| memory.rcu().flush());
        match nr_free - memory.nr_free() {
            0 => result,
            frames => result.and(Err(ReplayError::Leak { frames: frames as u64 })),
        }
    }
}

impl<'a, P: Threads<Embedding = Usual>> Visitor<'a, P> {
    /// Runs `act` on a slot of the machine, by itself.
    fn alone<R: Send>(&self, act: impl FnOnce() -> R + Send) -> R {
        host_frames::alone::<P, R>(self.machine, act)
    }

    fn out_of_memory(&self, cause: String) -> ReplayError {
        out_of_memory(self.plan, self.settings, None, cause)
    }

    fn replay<D: Design<P>>(&self, vm: &Vm<P, D>) -> Result<PassResult, ReplayError> {
        let objects = self.alone(|| Objects::new(vm, &self.plan.objects, self.settings.filling));
        let objects = objects.map_err(|cause| self.out_of_memory(cause.to_string()))?;
        let pass = Pass::new(vm, self.plan, self.settings, objects);
        P::run(self.machine, 1, &|number| pass.run(number));
        self.alone(|| {
            watch::end::<P>();
            pass.conclude()
        })
    }
}

/// What the threads of a pass share.
pub(super) struct Pass<'vm, P: Threads<Embedding = Usual>, D: Design<P>> {
    pub(super) plan: &'vm Plan,
    pub(super) gates: Vec<Completion<P>>,
    pub(super) objects: Objects<'vm, P, D>,
    vm: &'vm Vm<P, D>,
    settings: &'vm Settings,
    limits: Limits,
    /// The reference that keeps each space until its last thread leaves.
    spaces: Vec<SpinMutex<P, Option<SpaceRef<'vm, P, D>>>>,
    /// What threads that don't run yet will run in.
    guests: Vec<SpinMutex<P, Option<Guest<'vm, P, D>>>>,
    tally: SpinMutex<P, Tally>,
    error: SpinMutex<P, Option<ReplayError>>,
    has_stopped: P::AtomicBool,
    turn: Rwsem<P>,
}

impl<'vm, P: Threads<Embedding = Usual>, D: Design<P>> Pass<'vm, P, D> {
    fn new(vm: &'vm Vm<P, D>, plan: &'vm Plan, settings: &'vm Settings, objects: Objects<'vm, P, D>) -> Self {
        Self {
            gates: (0..plan.nr_gates).map(|_| Completion::new()).collect(),
            spaces: (0..plan.nr_spaces).map(|_| SpinMutex::default()).collect(),
            guests: plan.programs.iter().map(|_| SpinMutex::default()).collect(),
            limits: instance::limits(&settings.limits, plan),
            tally: SpinMutex::default(),
            error: SpinMutex::default(),
            has_stopped: P::AtomicBool::new(false),
            turn: Rwsem::of(Generation::RWSEM_2012),
            plan,
            objects,
            vm,
            settings,
        }
    }

    /// Runs the machine's thread of that number: 0 starts the roots, the others are the plan's, counted from 1.
    fn run(&self, number: usize) {
        P::enter();
        match number.checked_sub(1) {
            None => self.start_roots(),
            Some(thread) => {
                let tally = Worker::new(self, thread as ThreadIndex).run();
                self.tally.lock().add(tally);
            }
        }
        P::leave();
    }

    fn start_roots(&self) {
        watch::begin::<P>();
        for &root in &self.plan.roots {
            if let Err(error) = self.start(root) {
                self.stop(error);
            }
        }
    }

    /// Starts a thread of the plan.
    pub(super) fn start(&self, thread: ThreadIndex) -> Result<(), ReplayError> {
        P::start(thread as usize + 1).map_err(ReplayError::Start)
    }

    /// Runs a step; if every step is checked, by itself.
    pub(super) fn in_turn(
        &self,
        step: &Step,
        take: impl FnOnce() -> Result<(), ReplayError>,
    ) -> Result<(), ReplayError> {
        match self.settings.checking {
            Checking::AtEnd => take(),
            Checking::EachStep => {
                let _turn = self.turn.write();
                take()?;
                // SAFETY: whoever uses the instance holds the turn for reading.
                #[allow(unsafe_code, reason = "the checker looks at everything")]
                let checked = unsafe { invariants(self.vm) };
                checked.map_err(|broken| ReplayError::Broken { event: Some(step.event), broken })
            }
        }
    }

    /// Returns whether every step is checked.
    pub(super) fn checks_each_step(&self) -> bool {
        self.settings.checking == Checking::EachStep
    }

    /// Ends the pass early: every thread stops at its next step, and nobody waits any more.
    pub(super) fn stop(&self, error: ReplayError) {
        self.error.lock().get_or_insert(error);
        // ORDER: Release pairs with the Acquire in `has_stopped`, and precedes the gates that let waiting threads look.
        self.has_stopped.store(true, Ordering::Release);
        self.gates.iter().for_each(Completion::set);
    }

    /// Returns whether the pass ends early.
    pub(super) fn has_stopped(&self) -> bool {
        // ORDER: Acquire pairs with the Release in `stop`.
        self.has_stopped.load(Ordering::Acquire)
    }

    /// Returns the error for a lack of frames.
    pub(super) fn out_of_memory(&self, event: Option<u32>, cause: String) -> ReplayError {
        out_of_memory(self.plan, self.settings, event, cause)
    }

    /// Makes an empty space.
    pub(super) fn create_space(&self) -> Result<SpaceRef<'vm, P, D>, CallError> {
        self.vm.create_space(self.limits)
    }

    /// Reads words of an object, as a call does.
    pub(super) fn read(&self, object: &ObjectHandle<'vm, P>, offset: u64, words: &mut [u64]) -> Result<(), CallError> {
        self.vm.read_object(object, offset, words)
    }

    /// Keeps a space until its last thread leaves.
    pub(super) fn settle(&self, space: SpaceIndex, reference: SpaceRef<'vm, P, D>) {
        *self.spaces[space as usize].lock() = Some(reference);
    }

    /// Returns the reference that kept a space.
    pub(super) fn vacate(&self, space: SpaceIndex) -> Option<SpaceRef<'vm, P, D>> {
        self.spaces[space as usize].lock().take()
    }

    /// Gives a thread that is about to begin its place in a space, so that it counts among the users from now on.
    pub(super) fn hand_over(&self, thread: ThreadIndex, guest: Guest<'vm, P, D>) {
        *self.guests[thread as usize].lock() = Some(guest);
    }

    /// Returns what `hand_over` gave.
    pub(super) fn take_guest(&self, thread: ThreadIndex) -> Option<Guest<'vm, P, D>> {
        self.guests[thread as usize].lock().take()
    }

    /// Checks the instance and sums up.
    fn conclude(self) -> Result<PassResult, ReplayError> {
        let Self { guests, spaces, objects, vm, tally, error, .. } = self;
        guests.into_iter().for_each(|guest| drop(guest.into_inner()));
        spaces.into_iter().for_each(|space| drop(space.into_inner()));
        // SAFETY: every thread of the pass has ended.
        #[allow(unsafe_code, reason = "the checker looks at everything")]
        let checked = unsafe { invariants(vm) }.map_err(|broken| ReplayError::Broken { event: None, broken });
        drop(objects);
        checked?;
        if let Some(error) = error.into_inner() {
            return Err(error);
        }
        let tally = tally.into_inner();
        let stats = vm.lock_stats();
        Ok(PassResult {
            elapsed_ns: tally.ended_ns.saturating_sub(tally.began_ns.unwrap_or(tally.ended_ns)),
            lock_wait_ns: stats.figures(Side::Read).wait_ns + stats.figures(Side::Write).wait_ns,
            counters: faultless_vm::Event::ALL.iter().map(|&event| (event.name(), vm.events().total(event))).collect(),
            peak_rss_bytes: tally.peak_pages * PAGE,
            tally,
        })
    }
}

fn out_of_memory(plan: &Plan, settings: &Settings, event: Option<u32>, cause: String) -> ReplayError {
    let (memory_bytes, enough_bytes) = (settings.memory_bytes, plan.demand.bytes());
    ReplayError::OutOfMemory { event, cause, memory_bytes, enough_bytes }
}
