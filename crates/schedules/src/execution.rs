//! One run of a program: an instance, its threads, and what they answered.
//!
//! # Protocol
//! The machine runs four times: to set up, to fill the TLBs, to explore, to look and tear down. Whenever an operation
//! ends and no other is under way, and at the end, the invariants are checked. A run that fails is forgotten as it
//! stands.

use std::cell::Cell;
use std::mem;
use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use faultless_explore::{Explore, Failure, Kind, Machine, Policy, Run, note, stamp, standing_still};
use faultless_phys::{Memory, Options, SetupError};
use faultless_platform::{PAGE_BYTES, Processor};
use faultless_vm::design::{Design, GenerationOf, SemaphoreOf};
use faultless_vm::registry::DesignVisitor;
use faultless_vm::{
    AreaFlags, Backing, FetchError, Guest, MapOptions, MapRequest, ObjectHandle, ObjectSpec, PAGE, PageSource, Pin,
    Placement, Populate, Protection, ReferenceHandle, STACK_GUARD_PAGES, SpaceRef, VirtAddr, Vm, WriteNotice, check,
};

use super::history::{self, Happened};
use super::model::{Answer, State, WORDS, object_word};
use super::ops::{Op, Part, Program, Start};
use super::owner::Owned;
use super::perform::Worker;
use super::worlds::{BROKEN_PAGE, FIRST_USER, LATE_PAGE, NR_CPUS, World};

/// First page of the window: page 2 stands in the next page table.
pub const BASE: u64 = 0x40_0000_0000 - 2 * PAGE;
/// The stack's first page.
pub const STACK: u64 = 0x50_0000_0000;

/// What came out of a run.
#[derive(Debug)]
pub struct Ran {
    /// How it went, step by step.
    pub run: Run,
    /// What is wrong with it.
    pub failure: Option<Failure>,
}

/// How to run a program.
pub struct Order<'a> {
    /// The machine, with an arena.
    pub machine: &'a Machine,
    /// The world.
    pub world: &'static World,
    /// The program.
    pub program: &'a Program,
    /// The schedule.
    pub policy: Policy,
    /// Whether accesses are noted.
    pub noting: bool,
}

/// The object's content: every word names its page.
struct Pattern;

impl PageSource for Pattern {
    fn fetch(&self, _identity: u64, page_index: u64, page: &mut [u8; PAGE_BYTES]) -> Result<(), FetchError> {
        for word in 0..WORDS {
            let content = object_word(page_index as usize, word).to_le_bytes();
            page[word * 8..(word + 1) * 8].copy_from_slice(&content);
        }
        Ok(())
    }
}

/// As [`Pattern`], but [`BROKEN_PAGE`] is never to be had, and [`LATE_PAGE`] at every second attempt.
struct Moody;

std::thread_local! {
    /// How often a run has asked for [`LATE_PAGE`]. One OS thread runs all of a run's.
    static NR_ASKED: Cell<u64> = const { Cell::new(0) };
}

impl PageSource for Moody {
    fn fetch(&self, identity: u64, page_index: u64, page: &mut [u8; PAGE_BYTES]) -> Result<(), FetchError> {
        // Others may go on meanwhile.
        stamp();
        if page_index == BROKEN_PAGE as u64 {
            return Err(FetchError::Failed);
        }
        if page_index == LATE_PAGE as u64 && NR_ASKED.replace(NR_ASKED.get() + 1).is_multiple_of(2) {
            return Err(FetchError::Retry);
        }
        Pattern.fetch(identity, page_index, page)
    }
}

impl DesignVisitor<Explore> for Order<'_> {
    type Output = Ran;

    fn visit<D: Design<Explore>>(self, semaphore: GenerationOf<Explore, D>) -> Ran {
        let memory = match fresh_memory(self.machine, self.world) {
            Ok(memory) => memory,
            Err(error) => return ran_not(failed("", error.to_string())),
        };
        let nr_free = memory.nr_free();
        match alone(self.machine, || Vm::<Explore, D>::with_semaphore(memory.clone(), semaphore)) {
            Err(failure) => ran_not(failure),
            Ok(Err(error)) => ran_not(failed("", error.to_string())),
            Ok(Ok(vm)) => self.with_instance(&memory, vm, semaphore, nr_free),
        }
    }
}

impl Order<'_> {
    /// Runs the program; what is left after a failure is forgotten.
    fn with_instance<D: Design<Explore>>(
        &self,
        memory: &Memory<Explore>,
        vm: impl Deref<Target = Vm<Explore, D>>,
        semaphore: GenerationOf<Explore, D>,
        nr_free: usize,
    ) -> Ran {
        let ran = self.with_scene(&vm, semaphore);
        if ran.failure.is_some() {
            mem::forget(vm);
            mem::forget(memory.clone());
            return ran;
        }
        let ended = alone(self.machine, || {
            drop(vm);
            memory.rcu().flush();
        });
        let lost = nr_free - memory.nr_free();
        let leak = (lost != 0).then(|| failed("", format!("{lost} frames are lost at the end")));
        Ran { failure: ended.err().or(leak), ..ran }
    }

    fn with_scene<D: Design<Explore>>(&self, vm: &Vm<Explore, D>, semaphore: GenerationOf<Explore, D>) -> Ran {
        let execution = match alone(self.machine, || Execution::new(vm, semaphore, self.world, self.program)) {
            Ok(execution) => execution,
            Err(failure) => return ran_not(failure),
        };
        let threads = self.program.parts.len();
        let warmed = self.machine.explore(threads, Policy::in_turn(0), &|thread| execution.warm(thread));
        if let Err(failure) = warmed.outcome {
            mem::forget(execution);
            return ran_not(failure);
        }
        let play = |thread| execution.play(thread);
        let run = match self.noting {
            true => self.machine.explore_noting(threads, self.policy.clone(), &play),
            false => self.machine.explore(threads, self.policy.clone(), &play),
        };
        if let Err(failure) = run.outcome.clone() {
            let failure = Some(execution.with_history(failure));
            mem::forget(execution);
            return Ran { run, failure };
        }
        Ran { run, failure: self.conclude(execution) }
    }

    /// Looks at what is left, and takes it down.
    fn conclude<D: Design<Explore>>(&self, execution: Execution<'_, D>) -> Option<Failure> {
        let looked = alone(self.machine, || execution.look());
        let history = execution.history();
        let wrong = looked.err().or_else(|| {
            let is_wrong = history::is_unexplained(&history, &execution.start);
            is_wrong.then(|| failed("", "no order of the operations gives these answers".into()))
        });
        if let Some(failure) = wrong {
            let failure = execution.with_history(failure);
            mem::forget(execution);
            return Some(failure);
        }
        let vm = execution.space.instance();
        alone(self.machine, || {
            drop(execution);
            hold_invariants(vm, "when all is unmapped");
        })
        .err()
    }
}

fn failed(place: &str, message: String) -> Failure {
    Failure { kind: Kind::Panic, place: place.into(), message }
}

fn ran_not(failure: Failure) -> Ran {
    let run = Run { outcome: Ok(()), first: 0, switches: Vec::new(), steps: Vec::new(), accesses: Vec::new() };
    Ran { run, failure: Some(failure) }
}

/// Returns the machine's arena as memory that nobody has used.
fn fresh_memory(machine: &Machine, world: &World) -> Result<Memory<Explore>, SetupError> {
    machine.reset();
    let arena = machine.arena().expect("machines for schedules have an arena");
    let options = Options { poison: true, refcount_bits: world.refcount_bits, list_high: 2, list_batch: 1 };
    #[expect(unsafe_code, reason = "the one place where schedules hand out memory")]
    // SAFETY: the last run is over, or was forgotten with all that points here; the arena is ours and zero.
    unsafe {
        arena.clear();
        Memory::new(arena.base(), arena.len_bytes(), NR_CPUS, options)
    }
}

/// Runs `act` on CPU 0, by itself.
fn alone<R>(machine: &Machine, act: impl FnOnce() -> R) -> Result<R, Failure> {
    // One OS thread runs all: what is not `Send` does not leave it.
    struct Here<T>(T);
    #[expect(unsafe_code, reason = "coroutines of one OS thread share what threads could not")]
    // SAFETY: the machine runs its coroutines on the calling OS thread.
    unsafe impl<T> Sync for Here<T> {}
    impl<T> Here<T> {
        fn get(&self) -> &T {
            &self.0
        }
    }
    let (act, result) = (Here(Mutex::new(Some(act))), Here(Mutex::new(None)));
    let run = machine.explore(1, Policy::in_turn(0), &|_| {
        Explore::enter();
        let taken = lock(act.get()).take();
        let value = taken.map(|act| act());
        *lock(result.get()) = value;
        Explore::leave();
    });
    run.outcome?;
    Ok(lock(result.get()).take().expect("the body ran to its end"))
}

/// Checks every invariant; no operation is under way, and nobody begins one meanwhile.
fn hold_invariants<D: Design<Explore>>(vm: &Vm<Explore, D>, when: &str) {
    #[expect(unsafe_code, reason = "the checker looks at everything")]
    // SAFETY: callers stand still, or run alone: no thread is inside an operation.
    let result = unsafe { check::invariants(vm) };
    if let Err(broken) = result {
        panic!("{when}: {broken}");
    }
}

/// Locks what nobody else has locked: it is never held across a step.
pub fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes a reference page: the first is copied, the second filled.
fn reference<'vm, D: Design<Explore>>(vm: &'vm Vm<Explore, D>, start: Start) -> ReferenceHandle<'vm, Explore> {
    let mut content = [start.word(); PAGE_BYTES / 8];
    content[WORDS] += u64::from(start == Start::First);
    vm.create_reference(&content).expect("room for a reference page")
}

/// An instance with a space, and what happened in it.
pub struct Execution<'vm, D: Design<Explore>> {
    /// The space that all threads share.
    pub space: SpaceRef<'vm, Explore, D>,
    /// The object behind some pages.
    pub object: ObjectHandle<'vm, Explore>,
    /// The reference pages.
    references: [Mutex<Option<ReferenceHandle<'vm, Explore>>>; 2],
    /// The world.
    pub world: &'static World,
    /// Whether threads do what children see.
    pub has_changing_children: bool,
    guests: Vec<Guest<'vm, Explore, D>>,
    parts: Vec<Part>,
    history: Mutex<Vec<Happened>>,
    /// The model after the prologue.
    start: State,
    /// Children that were there before the threads.
    elders: Mutex<Vec<SpaceRef<'vm, Explore, D>>>,
    /// Pins, until the end.
    pins: Mutex<Vec<Pin<'vm, Explore>>>,
    /// A reference to a second space for each thread.
    seconds: Vec<Mutex<Option<SpaceRef<'vm, Explore, D>>>>,
    /// A semaphore that guards nothing.
    pub owned: Owned<SemaphoreOf<Explore, D>>,
    /// Operations under way.
    nr_busy: AtomicUsize,
}

impl<'vm, D: Design<Explore>> Execution<'vm, D> {
    fn new(
        vm: &'vm Vm<Explore, D>,
        semaphore: GenerationOf<Explore, D>,
        world: &'static World,
        program: &Program,
    ) -> Self {
        let space = vm.create_space(world.limits()).expect("room for a space");
        NR_ASKED.set(0);
        let source: &'static dyn PageSource = if world.is_moody { &Moody } else { &Pattern };
        let spec = ObjectSpec { identity: 1, size_bytes: 64 * PAGE, source, write_notice: WriteNotice::Fault };
        let object = vm.create_object(&spec).expect("room for an object");
        let references = [Start::First, Start::Second].map(|start| Mutex::new(Some(reference(vm, start))));
        let nr_guests = if world.have_late_users { 1 } else { program.parts.len() };
        let guests = (0..nr_guests).map(|_| Guest::new(&space)).collect();
        let mut execution = Self {
            space,
            object,
            references,
            world,
            has_changing_children: world.has_changing_children(),
            guests,
            parts: program.parts.clone(),
            history: Mutex::default(),
            start: world.state(),
            elders: Mutex::default(),
            pins: Mutex::default(),
            seconds: Vec::new(),
            owned: Owned::new(semaphore),
            nr_busy: AtomicUsize::new(0),
        };
        execution.map_stack();
        execution.seconds = execution.make_second(vm);
        execution.start = execution.begin();
        execution
    }

    fn map_stack(&self) {
        let Some(limit) = self.world.stack_limit else { return };
        let below = STACK - (limit as u64 + STACK_GUARD_PAGES + 1) * PAGE;
        for (start, grows) in [(STACK, AreaFlags::GROWSDOWN), (below, AreaFlags::empty())] {
            let request = MapRequest {
                placement: Placement::Fixed(VirtAddr::new(start)),
                len_bytes: PAGE,
                protection: (AreaFlags::READ | AreaFlags::WRITE | grows).protection(),
                options: (AreaFlags::READ | AreaFlags::WRITE | grows).options(),
                backing: Backing::Anonymous,
                populate: Populate::OnFault,
            };
            self.space.mmap(&request).expect("room for a stack");
        }
    }

    /// Makes a second space, if any thread will leave one.
    fn make_second(&self, vm: &'vm Vm<Explore, D>) -> Vec<Mutex<Option<SpaceRef<'vm, Explore, D>>>> {
        if !self.parts.iter().any(|part| part.ops.contains(&Op::Exit)) {
            return Vec::new();
        }
        let second = vm.create_space(self.world.limits()).expect("room for a space");
        let request = MapRequest {
            placement: Placement::Fixed(VirtAddr::new(BASE)),
            len_bytes: PAGE,
            protection: Protection::READ | Protection::WRITE,
            options: MapOptions::empty(),
            backing: Backing::Anonymous,
            populate: Populate::OnFault,
        };
        second.mmap(&request).expect("room in a new space");
        Guest::new(&second).store(VirtAddr::new(BASE), 1).expect("just mapped");
        if self.has_changing_children {
            self.map_pages_of_object(&second);
        }
        self.parts.iter().map(|_| Mutex::new(Some(second.clone()))).collect()
    }

    /// Maps two pages of the object; of one there is a private copy.
    fn map_pages_of_object(&self, space: &SpaceRef<'vm, Explore, D>) {
        let request = MapRequest {
            placement: Placement::Fixed(VirtAddr::new(BASE + 2 * PAGE)),
            len_bytes: 2 * PAGE,
            protection: Protection::READ | Protection::WRITE,
            options: MapOptions::empty(),
            backing: Backing::Object(&self.object, 0),
            populate: Populate::OnFault,
        };
        space.mmap(&request).expect("room in a new space");
        let guest = Guest::new(space);
        guest.store(VirtAddr::new(BASE + 2 * PAGE), 1).expect("just mapped");
        guest.load(VirtAddr::new(BASE + 3 * PAGE)).expect("just mapped");
    }

    /// Returns a handle of a reference page; nothing for what has no page. The place's lock is not held across a step:
    /// who finds the handle taken makes another one.
    pub fn reference(&self, start: Start) -> Option<ReferenceHandle<'vm, Explore>> {
        let place = match start {
            Start::First => &self.references[0],
            Start::Second => &self.references[1],
            Start::Zeros | Start::Pattern => return None,
        };
        let taken = lock(place).take();
        let handle = taken.unwrap_or_else(|| reference(self.space.instance(), start));
        let clone = handle.clone();
        let _replaced = lock(place).replace(handle);
        Some(clone)
    }

    /// Drops the handle of the first reference page, and makes another one.
    pub fn renew(&self) {
        let fresh = reference(self.space.instance(), Start::First);
        let _old = lock(&self.references[0]).replace(fresh);
    }

    /// Takes a thread's reference to the second space.
    pub fn take_second(&self, thread: usize) -> Option<SpaceRef<'vm, Explore, D>> {
        lock(self.seconds.get(thread)?).take()
    }

    /// Does what comes before the threads.
    fn begin(&self) -> State {
        let mut worker = Worker::new(self, &self.guests[0], usize::MAX);
        let mut state = self.start.clone();
        for (number, op) in self.world.prologue().into_iter().enumerate() {
            let value = 9000 + number as u64;
            let expected = state.happen_alone(op, value);
            let (answer, _) = worker.perform(op, value);
            assert_eq!(answer, expected, "before the threads began: {op}");
        }
        worker.keep_children();
        if let Some(nr_areas) = self.world.nr_areas {
            assert_eq!(self.space.nr_areas(), nr_areas, "areas before the threads began");
        }
        state
    }

    /// Keeps a pin until the end.
    pub fn keep_pin(&self, pin: Pin<'vm, Explore>) {
        lock(&self.pins).push(pin);
    }

    /// Keeps spaces until the end.
    pub fn adopt(&self, spaces: Vec<SpaceRef<'vm, Explore, D>>) {
        lock(&self.elders).extend(spaces);
    }

    /// Fills the TLB of a thread's CPU, if its part says so.
    fn warm(&self, thread: usize) {
        Explore::enter();
        if self.parts[thread].is_warm && !self.world.have_late_users {
            for page in 0..self.world.nr_pages {
                // Pages that are not mapped stay so.
                let _ = self.guests[thread].load(VirtAddr::new(BASE + page as u64 * PAGE));
            }
        }
        Explore::leave();
    }

    /// A thread's operations.
    fn play(&self, thread: usize) {
        Explore::enter();
        // A thread that comes late is a user from here on, and then leaves.
        let is_late = self.world.have_late_users && thread != FIRST_USER;
        self.nr_busy.fetch_add(1, Ordering::Relaxed);
        let own = is_late.then(|| Guest::new(&self.space));
        self.nr_busy.fetch_sub(1, Ordering::Relaxed);
        let place = if self.world.have_late_users { 0 } else { thread };
        let mut worker = Worker::new(self, own.as_ref().unwrap_or_else(|| &self.guests[place]), thread);
        for (number, &op) in self.parts[thread].ops.iter().enumerate() {
            note(format!("{op}, its operation {}", number + 1));
            let value = (thread as u64 + 1) * 100 + number as u64 + 1;
            self.nr_busy.fetch_add(1, Ordering::Relaxed);
            let begin = stamp();
            let (answer, end) = worker.perform(op, value);
            lock(&self.history).push(Happened { thread, op, value, span: (begin, end), answer });
            if self.nr_busy.fetch_sub(1, Ordering::Relaxed) == 1 {
                standing_still(|| self.check(op));
            }
        }
        note("its end".into());
        self.nr_busy.fetch_add(1, Ordering::Relaxed);
        worker.end_children();
        drop(own);
        self.nr_busy.fetch_sub(1, Ordering::Relaxed);
        Explore::leave();
    }

    fn check(&self, op: Op) {
        hold_invariants(self.space.instance(), &format!("after {op}"));
        self.owned.check();
    }

    /// Looks at all pages when everything is over.
    fn look(&self) {
        hold_invariants(self.space.instance(), "at the end");
        let answer = Answer::Seen(super::perform::look(&self.guests[0], self.world));
        let thread = self.parts.len();
        lock(&self.history).push(Happened { thread, op: Op::Look, value: 0, span: (u64::MAX, u64::MAX), answer });
    }

    fn history(&self) -> Vec<Happened> {
        lock(&self.history).clone()
    }

    fn with_history(&self, failure: Failure) -> Failure {
        let message = format!("{}{}", failure.message, history::describe(&self.history()));
        Failure { message, ..failure }
    }
}
