//! One run: coroutines, resumed one at a time.
//!
//! # Protocol
//! ```text
//! engine                                  coroutine
//! enter(next); resume         ---->       access: tick; look the address up; do it; tick
//!                                         tick at an event: the policy names another
//! note the switch             <----       suspend
//! ```
//! A panic inside a coroutine begins to unwind it; at its first access it is left where it stands, since locks may be
//! held by threads that will never run again.

use super::crash;
use super::failure::{Failure, Kind, Silence};
use super::machine::Machine;
use super::policy::{Chooser, Policy, ThreadMask, next_behind};
use super::schedule::Switch;
use super::threads::{State, Table};
use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, Location, catch_unwind};

/// Nanoseconds that a step takes.
const STEP_NS: u64 = 10;

/// What a run did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// How it ended.
    pub outcome: Result<(), Failure>,
    /// Who began.
    pub first: usize,
    /// The switches that a replay needs.
    pub switches: Vec<Switch>,
    /// Each thread's steps.
    pub steps: Vec<u64>,
    /// Every access, if they were noted.
    pub accesses: Vec<Access>,
}

/// An access that was noted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Who made it.
    pub thread: usize,
    /// The thread's own step before it; the access lies between this one and the next.
    pub step: u64,
    /// Where.
    pub address: usize,
    /// How often the memory there had been given out: what was there before is something else.
    pub life: u32,
    /// Whether it wrote.
    pub is_write: bool,
}

type Body<'a> = &'a (dyn Fn(usize) + Sync);
type Fiber = Coroutine<(), (), (), DefaultStack>;

thread_local! {
    static ENGINE: Cell<*const Engine<'static>> = const { Cell::new(std::ptr::null()) };
}

/// A run under way.
pub(super) struct Engine<'a> {
    pub(super) machine: &'a Machine,
    body: Cell<Option<Body<'a>>>,
    current: Cell<usize>,
    /// The running thread's own steps, the one at which the policy is asked, and its writes.
    steps: Cell<u64>,
    next_event: Cell<u64>,
    own_writes: Cell<u64>,
    /// All steps but the running thread's own.
    other_steps: Cell<u64>,
    skipped_ns: Cell<u64>,
    writes: Cell<u64>,
    is_still: Cell<bool>,
    is_unwinding: Cell<bool>,
    is_noting: bool,
    accesses: RefCell<Vec<Access>>,
    pub(super) table: RefCell<Table>,
    chooser: RefCell<Chooser>,
    is_eager: bool,
    switches: RefCell<Vec<Switch>>,
    /// Who goes on, if the coroutine has decided.
    next: Cell<Option<usize>>,
    failure: RefCell<Option<Failure>>,
    /// What threads that were added are to do.
    arguments: RefCell<Vec<usize>>,
}

/// Runs `act` with the engine that runs on this OS thread, if one does.
#[inline]
pub(super) fn with<R>(act: impl FnOnce(&Engine<'_>) -> R) -> Option<R> {
    let engine = ENGINE.with(Cell::get);
    // SAFETY: `run` sets the pointer to a value that outlives the call, and clears it at its end.
    (!engine.is_null()).then(|| act(unsafe { &*engine }))
}

/// As [`with`], for what has no meaning outside a run.
pub(super) fn inside<R>(act: impl FnOnce(&Engine<'_>) -> R) -> R {
    with(act).expect("this is called by a thread of Machine::explore or Threads::run")
}

impl<'a> Engine<'a> {
    pub(super) fn new(machine: &'a Machine, policy: Policy) -> Self {
        let chooser = Chooser::new(policy);
        Self {
            machine,
            body: Cell::new(None),
            current: Cell::new(0),
            steps: Cell::new(0),
            next_event: Cell::new(u64::MAX),
            own_writes: Cell::new(0),
            other_steps: Cell::new(0),
            skipped_ns: Cell::new(0),
            writes: Cell::new(0),
            is_still: Cell::new(false),
            is_unwinding: Cell::new(false),
            is_noting: false,
            accesses: RefCell::default(),
            table: RefCell::new(Table::new(machine.nr_cpus())),
            is_eager: chooser.is_eager(),
            chooser: RefCell::new(chooser),
            switches: RefCell::default(),
            next: Cell::new(None),
            failure: RefCell::default(),
            arguments: RefCell::default(),
        }
    }

    pub(super) fn noting(self) -> Self {
        Self { is_noting: true, ..self }
    }

    /// Runs the threads to their end, or to the first failure.
    pub(super) fn run(self, first: usize, body: Body<'a>) -> Run {
        assert!(ENGINE.with(Cell::get).is_null(), "a run is started inside a run");
        self.body.set(Some(body));
        (0..first).for_each(|thread| self.add(thread));
        let silence = Silence::new(|| {
            with(|engine| engine.note_unwinding());
        });
        crash::watch(crash::Runs {
            is_inside: || with(|_| ()).is_some(),
            end: |message| inside(|engine| engine.fail(Kind::Crash, message)),
        });
        ENGINE.with(|engine| engine.set((&raw const self).cast()));
        let mut threads = Vec::new();
        let beginner = self.drive(&mut threads);
        ENGINE.with(|engine| engine.set(std::ptr::null()));
        drop(silence);
        for mut thread in threads {
            if !thread.done() {
                // SAFETY: the run has failed; what stands on the stack is left as it is, and nobody uses it again.
                unsafe { thread.force_reset() };
            }
            self.machine.give_stack(thread.into_stack());
        }
        self.conclude(beginner)
    }

    fn conclude(self, first: usize) -> Run {
        Run {
            outcome: self.failure.into_inner().map_or(Ok(()), Err),
            first,
            switches: self.switches.into_inner(),
            steps: self.table.into_inner().threads.iter().map(|thread| thread.steps).collect(),
            accesses: self.accesses.into_inner(),
        }
    }

    /// Adds a thread that will run the body with `argument`.
    pub(super) fn add(&self, argument: usize) {
        self.arguments.borrow_mut().push(argument);
        self.table.borrow_mut().add();
    }

    /// Resumes one coroutine after the other; returns who began.
    fn drive(&self, threads: &mut Vec<Fiber>) -> usize {
        let runnable = self.runnable();
        if runnable == 0 {
            return 0;
        }
        let beginner = self.chooser.borrow_mut().first(runnable);
        let mut next = beginner;
        loop {
            self.create(threads);
            self.enter(next);
            let result = threads[next].resume(());
            self.leave(matches!(result, CoroutineResult::Return(())));
            if self.failure.borrow().is_some() || self.table.borrow().is_over() {
                return beginner;
            }
            match self.next.take().or_else(|| self.after_stop()) {
                Some(thread) => next = thread,
                None => {
                    self.note_failure(Kind::Deadlock, String::new(), self.deadlock());
                    return beginner;
                }
            }
        }
    }

    /// Makes the coroutines of the threads that were added.
    fn create(&self, threads: &mut Vec<Fiber>) {
        let arguments = self.arguments.borrow();
        while threads.len() < arguments.len() {
            let (number, argument) = (threads.len(), arguments[threads.len()]);
            let engine: *const Engine<'static> = (&raw const *self).cast();
            threads.push(Coroutine::with_stack(self.machine.take_stack(), move |yielder: &Yielder<(), ()>, ()| {
                // SAFETY: the engine outlives its coroutines, which `run` drops before it returns.
                unsafe { &*engine }.live(number, argument, yielder);
            }));
        }
    }

    /// A thread's whole life.
    fn live(&self, number: usize, argument: usize, yielder: &Yielder<(), ()>) {
        self.table.borrow_mut().threads[number].yielder = yielder;
        let Some(body) = self.body.get() else { return };
        if catch_unwind(AssertUnwindSafe(|| body(argument))).is_err() {
            self.note_panic();
        }
    }

    fn enter(&self, next: usize) {
        let mut table = self.table.borrow_mut();
        let thread = &mut table.threads[next];
        thread.state = State::Ready;
        self.current.set(next);
        self.steps.set(thread.steps);
        self.own_writes.set(thread.writes);
        self.other_steps.set(self.other_steps.get() - thread.steps);
        drop(table);
        self.plan_event();
    }

    /// Notes what the thread that ran has done.
    fn leave(&self, has_ended: bool) {
        let mut table = self.table.borrow_mut();
        let current = self.current.get();
        table.threads[current].steps = self.steps.get();
        table.threads[current].writes = self.own_writes.get();
        self.other_steps.set(self.total());
        if has_ended {
            table.release_cpu(current);
            table.threads[current].state = State::Ended;
        }
    }

    fn plan_event(&self) {
        let step = self.steps.get();
        let left = self.machine.step_limit().saturating_sub(self.total());
        let event = self.chooser.borrow_mut().next_event(self.current.get(), step);
        self.next_event.set(event.min(step + left + 1));
    }

    /// Returns who goes on after the running thread has stopped; nobody, in a deadlock.
    fn after_stop(&self) -> Option<usize> {
        let mut runnable = self.runnable();
        if runnable == 0 {
            let deadline_ns = self.table.borrow().first_deadline()?;
            self.skipped_ns.set(self.skipped_ns.get() + deadline_ns.saturating_sub(self.now_ns()));
            runnable = self.runnable();
        }
        let (from, step) = (self.current.get(), self.table.borrow().threads[self.current.get()].steps);
        let to = self.chooser.borrow_mut().stopped(from, step, runnable);
        if to != next_behind(from, runnable) {
            self.switches.borrow_mut().push(Switch { from, step, to });
        }
        Some(to)
    }

    fn runnable(&self) -> ThreadMask {
        self.table.borrow().runnable(self.writes.get(), self.now_ns())
    }

    /// Returns all steps so far, while a coroutine runs or just after.
    pub(super) fn total(&self) -> u64 {
        self.other_steps.get() + self.steps.get()
    }

    pub(super) fn now_ns(&self) -> u64 {
        self.total() * STEP_NS + self.skipped_ns.get()
    }

    fn deadlock(&self) -> String {
        format!("deadlock: {}", self.table.borrow().waits())
    }
}

/// What coroutines call.
impl Engine<'_> {
    /// Makes an access: `act`, between two possible switches.
    #[inline]
    pub(super) fn access<R>(&self, address: usize, len_bytes: usize, act: impl FnOnce() -> (R, bool)) -> R {
        self.tick();
        self.check(address, len_bytes);
        let (result, is_write) = act();
        if self.is_noting && !self.is_still.get() {
            let (thread, step) = (self.current.get(), self.steps.get());
            let life = self.machine.arena().map_or(0, |arena| arena.life(address));
            self.accesses.borrow_mut().push(Access { thread, step, address, life, is_write });
        }
        if is_write {
            self.note_write();
        }
        self.tick();
        result
    }

    /// Fails if a range must not be touched.
    #[inline]
    pub(super) fn check(&self, address: usize, len_bytes: usize) {
        let wrong = self.machine.arena().and_then(|arena| arena.check(address, len_bytes));
        if let Some(what) = wrong {
            self.fail(Kind::Freed, what);
        }
    }

    /// Notes that something changed that others may wait for.
    pub(super) fn note_write(&self) {
        self.writes.set(self.writes.get() + 1);
        self.own_writes.set(self.own_writes.get() + 1);
        if self.is_eager && self.table.borrow().has_waiters_awake() {
            self.next_event.set(0);
        }
    }

    /// A place where another thread may go on.
    #[inline]
    pub(super) fn tick(&self) {
        if self.is_still.get() {
            return self.stand();
        }
        let step = self.steps.get() + 1;
        self.steps.set(step);
        if step >= self.next_event.get() {
            self.event(step);
        }
    }

    #[cold]
    fn event(&self, step: u64) {
        self.stand();
        if self.total() > self.machine.step_limit() {
            let waits = self.table.borrow().waits();
            self.fail(Kind::Endless, format!("no end after {} steps; {waits}", self.machine.step_limit()));
        }
        let current = self.current.get();
        let to = self.chooser.borrow_mut().event(current, step, self.runnable());
        if to == current {
            return self.plan_event();
        }
        self.switches.borrow_mut().push(Switch { from: current, step, to });
        self.next.set(Some(to));
        self.suspend();
    }

    /// Leaves a thread that unwinds where it stands.
    fn stand(&self) {
        if self.is_unwinding.get() {
            self.note_panic();
            self.hang();
        }
    }

    /// Stops until the thread can go on and is chosen.
    pub(super) fn stop(&self, change: impl FnOnce(&mut Table, usize)) {
        if self.is_still.get() {
            self.fail(Kind::Deadlock, format!("a wait while the world stands still; {}", self.table.borrow().waits()));
        }
        self.steps.set(self.steps.get() + 1);
        change(&mut self.table.borrow_mut(), self.current.get());
        self.suspend();
    }

    /// Waits until `condition` holds, or the time has come; says which.
    pub(super) fn wait_awake(
        &self,
        deadline_ns: Option<u64>,
        place: &'static Location<'static>,
        serve: impl Fn(&Self),
        mut condition: impl FnMut() -> bool,
    ) -> bool {
        loop {
            let (writes, own) = (self.writes.get(), self.own_writes.get());
            if condition() {
                return true;
            }
            if deadline_ns.is_some_and(|deadline| self.now_ns() >= deadline) {
                return false;
            }
            let writes_seen = writes + (self.own_writes.get() - own);
            serve(self);
            self.chooser.borrow_mut().waits_awake(self.current.get());
            let state = State::Awake { writes_seen, deadline_ns, place };
            self.stop(|table, me| table.threads[me].state = state);
        }
    }

    /// Lets others run that could not until now, if the policy prefers them.
    pub(super) fn note_wake(&self) {
        if self.is_eager {
            self.next_event.set(0);
        }
    }

    /// Runs `act` with nobody else going on.
    pub(super) fn still<R>(&self, act: impl FnOnce() -> R) -> R {
        self.is_still.set(true);
        let result = act();
        self.is_still.set(false);
        self.plan_event();
        result
    }

    pub(super) fn current(&self) -> usize {
        self.current.get()
    }

    /// Ends the run.
    pub(super) fn fail(&self, kind: Kind, message: String) -> ! {
        let place = self.table.borrow().name(self.current.get());
        self.note_failure(kind, place, message);
        self.hang()
    }

    /// Lets the first access of a panic that unwinds end the run.
    pub(super) fn note_unwinding(&self) {
        self.is_unwinding.set(true);
        self.next_event.set(0);
    }

    fn note_panic(&self) {
        let place = self.table.borrow().name(self.current.get());
        self.note_failure(Kind::Panic, place, Silence::message());
    }

    fn note_failure(&self, kind: Kind, place: String, message: String) {
        self.failure.borrow_mut().get_or_insert(Failure { kind, place, message });
    }

    fn hang(&self) -> ! {
        loop {
            self.suspend();
        }
    }

    fn suspend(&self) {
        let yielder = self.table.borrow().threads[self.current.get()].yielder;
        // SAFETY: the running coroutine set its own yielder, which lives as long as the coroutine.
        unsafe { &*yielder }.suspend(());
    }
}
