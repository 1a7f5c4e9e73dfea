//! A machine: the state that outlives a run.

use super::books::{Books, Profile};
use super::figures::Figures;
use super::heap::Heap;
use super::lines::{Lines, NEVER};
use super::places::Places;
use super::random::Random;
use super::record::{Body, NO_CPU};
use super::state::{Cpu, Engine, Sleepers, step};
use super::thread::{Running, resume};
use super::{slots, story};
use crate::machine::{Costs, Spec, Topology};
use faultless_platform::{MAX_CPUS, Nodes};
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Mutex, PoisonError};

/// A simulated machine with some of its CPUs in use, and a seed.
///
/// Its clock goes on from one run to the next, and so do its caches.
pub struct Machine {
    /// Taken out while it runs.
    engine: Mutex<Option<Box<Engine>>>,
    nodes: Nodes,
}

/// More CPUs were asked for than the machine has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TooManyCpus {
    /// The machine.
    pub machine: String,
    /// How many were asked for.
    pub asked: usize,
    /// How many it has.
    pub has: usize,
}

impl fmt::Display for TooManyCpus {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "machine {} has 1 to {} CPUs, not {}", self.machine, self.has, self.asked)
    }
}

impl std::error::Error for TooManyCpus {}

/// Why a simulation came to no end: a panic or a deadlock in the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Who, where, when and why.
    pub message: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

// SAFETY: between runs an engine has no coroutine that has begun, and its handler's registrar vouched that it may run
// anywhere.
unsafe impl Send for Engine {}

impl Machine {
    /// Returns a machine of which `nr_cpus` CPUs are used; `seed` decides all that is left to chance.
    pub fn new(spec: &Spec, nr_cpus: usize, seed: u64) -> Result<Self, TooManyCpus> {
        let has = spec.nr_cpus().min(MAX_CPUS);
        if nr_cpus == 0 || nr_cpus > has {
            return Err(TooManyCpus { machine: spec.name().to_owned(), asked: nr_cpus, has });
        }
        let engine = Box::new(Engine::new(spec, nr_cpus, seed));
        let nodes = engine.topology.nodes(spec);
        Ok(Self { engine: Mutex::new(Some(engine)), nodes })
    }

    /// Returns the NUMA nodes: the sockets of the CPUs in use; one on a machine that interleaves its memory.
    pub fn nodes(&self) -> &Nodes {
        &self.nodes
    }

    /// Puts memory into a node's: from the first touch on it costs what that socket's memory does, and its pages go
    /// over that socket's bus.
    /// Called before the memory is used, and not while the machine runs.
    ///
    /// # Panics
    /// If there is no such node, or the machine runs.
    pub fn place(&self, node: usize, address: *const u8, len_bytes: usize) {
        assert!(node < self.nodes.len(), "node {node}: there are {}", self.nodes.len());
        let mut engine = self.lock();
        let engine = engine.as_mut().expect("memory is placed before the machine runs");
        let home = engine.topology.cpu_of_socket(node);
        engine.places.place(address.addr()..address.addr().saturating_add(len_bytes), home);
    }

    /// Returns what the machine did so far; nothing while it runs.
    pub fn figures(&self) -> Figures {
        self.lock().as_ref().map_or(Figures::default(), |engine| engine.figures)
    }

    /// Returns where the time of threads went that told when they worked; nothing while it runs.
    pub fn profile(&self) -> Profile {
        self.lock().as_ref().map_or_else(Profile::default, |engine| engine.books.profile())
    }

    /// Runs `body` on a thread of this machine that owns a CPU.
    pub fn attach<R: Send>(&self, body: impl FnOnce() -> R + Send) -> R {
        let (body, result) = (Mutex::new(Some(body)), Mutex::new(None));
        self.run(1, &|_| {
            slots::enter();
            let taken = body.lock().unwrap_or_else(PoisonError::into_inner).take();
            let value = taken.map(|body| body());
            *result.lock().unwrap_or_else(PoisonError::into_inner) = value;
            slots::leave();
        });
        let value = result.into_inner().unwrap_or_else(PoisonError::into_inner);
        value.expect("the thread ran, or its panic was passed on")
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Box<Engine>>> {
        self.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs threads 0 to `first` - 1 and what they start, until all have ended.
    pub(crate) fn run(&self, first: usize, body: &(dyn Fn(usize) + Sync)) {
        story::install_hook();
        let mut engine = self.lock().take().expect("a machine runs one program at a time");
        engine.begin_run(body);
        {
            let _running = Running::new(&mut engine);
            start_first(first);
            run_all();
        }
        let failure = engine.end_run();
        *self.lock() = Some(engine);
        if let Some(message) = failure {
            panic!("{message}");
        }
    }
}

fn start_first(first: usize) {
    step(|engine| {
        for number in 0..first {
            let clock = engine.clock;
            if let Err(error) = engine.spawn(number, clock) {
                engine.failure.get_or_insert(error.to_string());
                engine.is_dying = true;
                break;
            }
        }
    });
}

fn run_all() {
    while step(|engine| engine.nr_alive > 0) {
        match step(Engine::next_turn) {
            Some(thread) => resume(thread),
            None => step(Engine::break_deadlock),
        }
    }
}

impl Engine {
    fn new(spec: &Spec, nr_cpus: usize, seed: u64) -> Self {
        let topology = Topology::new(spec, nr_cpus);
        Self {
            clock: 0,
            horizon: NEVER,
            current: 0,
            last_word: 0,
            pace: 1024,
            cpu: NO_CPU,
            is_recording: false,
            is_dying: false,
            costs: Costs::new(spec),
            lines: Lines::new(nr_cpus),
            complex_fillings: vec![0; topology.nr_complexes],
            buses: vec![0; topology.nr_sockets],
            places: Places::default(),
            topology,
            cpus: (0..nr_cpus).map(|_| Cpu::new()).collect(),
            busy: vec![false; nr_cpus],
            threads: Vec::new(),
            unused_stacks: Vec::new(),
            heap: Heap::new(),
            queue: VecDeque::new(),
            nr_free: nr_cpus,
            sleepers: Sleepers::default(),
            random: Random::new(seed),
            handler: None,
            body: None,
            nr_alive: 0,
            failure: None,
            last_panic: None,
            figures: Figures::default(),
            books: Books::default(),
            machine: spec.name().to_owned(),
            seed,
        }
    }

    fn begin_run(&mut self, body: &(dyn Fn(usize) + Sync)) {
        // SAFETY: only the lifetime changes; `run` returns after the last thread has ended, and `end_run` forgets the
        // body.
        let body: Body = unsafe { std::mem::transmute(body) };
        self.body = Some(body);
        self.cpu = NO_CPU;
    }

    /// Forgets the threads; returns what went wrong.
    fn end_run(&mut self) -> Option<String> {
        self.clock = self.cpus.iter().map(|cpu| cpu.free_at).fold(self.clock, u64::max);
        self.figures.elapsed_ns = self.clock / 1000;
        self.figures.lines = self.lines.len() as u64;
        self.body = None;
        self.threads.clear();
        self.heap.clear();
        self.queue.clear();
        self.sleepers.clear();
        self.horizon = NEVER;
        self.is_dying = false;
        self.cpus.iter_mut().for_each(|cpu| cpu.last_thread = None);
        self.failure.take()
    }

    /// Nobody can run: says so, and lets everybody unwind.
    fn break_deadlock(&mut self) {
        if self.is_dying {
            let message = self.failure.take().unwrap_or_default();
            story::give_up(&message);
        }
        // A thread that unwinds, and waits meanwhile for others who never come, failed first, and tells so itself.
        if !self.threads.iter().any(|thread| thread.is_unwinding && !thread.is_done) {
            let report = self.deadlock();
            self.failure.get_or_insert(report);
        }
        self.condemn(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_has_as_many_cpus_as_its_file_says() {
        let spec = Spec::preset("xeon-40").expect("a preset");
        assert!(Machine::new(&spec, 40, 1).is_ok());
        let error = Machine::new(&spec, 41, 1).err().expect("one too many");
        assert_eq!(error.to_string(), "machine xeon-40 has 1 to 40 CPUs, not 41");
        assert!(Machine::new(&spec, 0, 1).is_err());
    }
}
