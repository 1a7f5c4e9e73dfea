//! The threads of a run: what each does, and which CPU it owns.
//!
//! # Invariants
//! * I1 a CPU has at most one owner; one that nobody owns has nobody in line for it.
//! * I2 a thread in `Asleep` or `InLine` owns no CPU.

use super::policy::ThreadMask;
use corosensei::Yielder;
use std::collections::VecDeque;
use std::panic::Location;

/// What a thread does.
#[derive(Clone, Copy, Debug)]
pub(super) enum State {
    /// It runs, or could.
    Ready,
    /// It waits for a condition, which it looks at again after somebody else's write, or at a time.
    Awake { writes_seen: u64, deadline_ns: Option<u64>, place: &'static Location<'static> },
    /// It sleeps on a word.
    Asleep { address: usize, turn: u64, place: &'static Location<'static> },
    /// It waits for a CPU.
    InLine,
    /// It has ended.
    Ended,
}

/// One thread.
pub(super) struct Thread {
    pub(super) state: State,
    pub(super) cpu: Option<usize>,
    pub(super) last_cpu: usize,
    pub(super) irq_depth: u32,
    /// Its own steps and writes, while it does not run.
    pub(super) steps: u64,
    pub(super) writes: u64,
    pub(super) yielder: *const Yielder<(), ()>,
    /// What it does, in words.
    pub(super) note: String,
}

impl Thread {
    fn new(last_cpu: usize) -> Self {
        Self {
            state: State::Ready,
            cpu: None,
            last_cpu,
            irq_depth: 0,
            steps: 0,
            writes: 0,
            yielder: std::ptr::null(),
            note: String::new(),
        }
    }
}

/// All threads and CPUs of a run.
pub(super) struct Table {
    pub(super) threads: Vec<Thread>,
    owners: Vec<Option<usize>>,
    /// Whether a CPU uses translations.
    is_guest: Vec<bool>,
    line: VecDeque<usize>,
    nr_slept: u64,
}

impl Table {
    pub(super) fn new(nr_cpus: usize) -> Self {
        let (owners, is_guest) = (vec![None; nr_cpus], vec![false; nr_cpus]);
        Self { threads: Vec::new(), owners, is_guest, line: VecDeque::new(), nr_slept: 0 }
    }

    /// Adds a thread, which prefers a CPU of its own.
    pub(super) fn add(&mut self) {
        let number = self.threads.len();
        assert!(number < 64, "an exploring run has at most 64 threads");
        self.threads.push(Thread::new(number % self.owners.len()));
    }

    /// Returns who could go on.
    pub(super) fn runnable(&self, writes: u64, now_ns: u64) -> ThreadMask {
        let can = |thread: &Thread| match thread.state {
            State::Ready => true,
            State::Awake { writes_seen, deadline_ns, .. } => {
                writes > writes_seen || deadline_ns.is_some_and(|deadline| now_ns >= deadline)
            }
            State::Asleep { .. } | State::InLine | State::Ended => false,
        };
        self.threads.iter().rev().fold(0, |mask, thread| mask << 1 | ThreadMask::from(can(thread)))
    }

    /// Returns the first time at which somebody who waits awake gives up.
    pub(super) fn first_deadline(&self) -> Option<u64> {
        let deadline = |thread: &Thread| match thread.state {
            State::Awake { deadline_ns, .. } => deadline_ns,
            _ => None,
        };
        self.threads.iter().filter_map(deadline).min()
    }

    pub(super) fn has_waiters_awake(&self) -> bool {
        self.threads.iter().any(|thread| matches!(thread.state, State::Awake { .. }))
    }

    /// Gives a thread a CPU, or puts it in line.
    pub(super) fn request_cpu(&mut self, thread: usize) {
        let preferred = self.threads[thread].last_cpu;
        let is_free = |cpu: &usize| self.owners[*cpu].is_none();
        match Some(preferred).filter(is_free).or_else(|| (0..self.owners.len()).find(is_free)) {
            Some(cpu) => self.give_cpu(cpu, thread),
            None => {
                self.line.push_back(thread);
                self.threads[thread].state = State::InLine;
            }
        }
    }

    fn give_cpu(&mut self, cpu: usize, thread: usize) {
        self.owners[cpu] = Some(thread);
        let thread = &mut self.threads[thread];
        (thread.cpu, thread.last_cpu, thread.state) = (Some(cpu), cpu, State::Ready);
    }

    /// Takes a thread's CPU away, if it has one, for the first in line.
    pub(super) fn release_cpu(&mut self, thread: usize) {
        let Some(cpu) = self.threads[thread].cpu.take() else { return };
        self.owners[cpu] = None;
        self.is_guest[cpu] = false;
        if let Some(next) = self.line.pop_front() {
            self.give_cpu(cpu, next);
        }
    }

    pub(super) fn is_cpu_wanted(&self) -> bool {
        !self.line.is_empty()
    }

    pub(super) fn is_idle(&self, cpu: usize) -> bool {
        self.owners[cpu].is_none()
    }

    pub(super) fn is_guest(&self, cpu: usize) -> bool {
        self.is_guest[cpu]
    }

    pub(super) fn set_guest(&mut self, cpu: usize, is_guest: bool) {
        self.is_guest[cpu] = is_guest;
    }

    /// Puts a thread to sleep on a word.
    pub(super) fn sleep(&mut self, thread: usize, address: usize, place: &'static Location<'static>) {
        self.release_cpu(thread);
        self.nr_slept += 1;
        self.threads[thread].state = State::Asleep { address, turn: self.nr_slept, place };
    }

    /// Wakes the one who has slept longest on a word; says whether there was one.
    pub(super) fn wake_one(&mut self, word: usize) -> bool {
        let turn_of = |thread: &Thread| match thread.state {
            State::Asleep { address, turn, .. } if address == word => Some(turn),
            _ => None,
        };
        let turns = self.threads.iter().enumerate().filter_map(|(number, thread)| Some((turn_of(thread)?, number)));
        let first = turns.min();
        if let Some((_, number)) = first {
            self.request_cpu(number);
        }
        first.is_some()
    }

    pub(super) fn is_over(&self) -> bool {
        self.threads.iter().all(|thread| matches!(thread.state, State::Ended))
    }

    /// Names a thread, its CPU and what it does.
    pub(super) fn name(&self, number: usize) -> String {
        let thread = &self.threads[number];
        let cpu = thread.cpu.map(|cpu| format!(" on CPU {cpu}")).unwrap_or_default();
        let note = if thread.note.is_empty() { String::new() } else { format!(" in {}", thread.note) };
        format!("thread {number}{cpu}{note}")
    }

    /// Says who waits for what.
    pub(super) fn waits(&self) -> String {
        let all = (0..self.threads.len()).filter_map(|number| {
            let what = match self.threads[number].state {
                State::Ready | State::Ended => return None,
                State::Awake { place, .. } => format!("waits awake at {}:{}", place.file(), place.line()),
                State::Asleep { place, .. } => format!("sleeps at {}:{}", place.file(), place.line()),
                State::InLine => "waits for a CPU".to_owned(),
            };
            Some(format!("{} {what}", self.name(number)))
        });
        all.collect::<Vec<_>>().join("; ")
    }
}
