//! A semaphore by itself, whose owner is put off its CPU.
//!
//! # What is checked
//! * nobody is inside beside a writer
//! * an owner that is off its CPU finds within [`PATIENCE_NS`] that whoever waits for it has gone to sleep: a spinner
//!   that believes in an owner that does not run stays awake for four times as long
//! * when everybody stands still, the semaphore is free, nobody is in line, and nobody who has gone is named
//!
//! A sleeper that nobody wakes is a deadlock, which the machine notices.

use std::cell::Cell;

use faultless_explore::{Explore, stamp};
use faultless_platform::{Atomic, AtomicInteger, Ordering, Processor};
use faultless_sync::RwSemaphore;

/// How long waiters may stay awake while the owner is off its CPU. A spinner at the head of its queue gives up after a
/// millisecond in any case.
const PATIENCE_NS: u64 = 250_000;

/// What an owner does in its section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stay {
    /// It stays on its CPU.
    On,
    /// It is put off its CPU until those who wait sleep.
    Off,
}

/// The semaphore, and who is where.
pub struct Owned<S> {
    semaphore: S,
    /// How many have asked for it and do not have it yet.
    nr_wanting: <Explore as Processor>::AtomicU32,
    /// One OS thread runs all: these are no steps.
    nr_inside: Cell<u32>,
    is_alone: Cell<bool>,
}

#[expect(unsafe_code, reason = "coroutines of one OS thread share what threads could not")]
// SAFETY: the machine runs its coroutines on one OS thread.
unsafe impl<S: Sync> Sync for Owned<S> {}

impl<S: RwSemaphore<Explore>> Owned<S> {
    /// Returns a free semaphore.
    pub fn new(generation: S::Generation) -> Self {
        let nr_wanting = Atomic::new(0);
        Self { semaphore: S::of(generation), nr_wanting, nr_inside: Cell::new(0), is_alone: Cell::new(false) }
    }

    /// Takes it alone, for a section.
    pub fn write(&self, stay: Stay) {
        let guard = self.wanted(|| self.semaphore.write());
        self.alone(stay);
        drop(guard);
    }

    /// Takes it alone, and shares it for another section.
    pub fn write_and_downgrade(&self, stay: Stay) {
        let guard = self.wanted(|| self.semaphore.write());
        self.alone(stay);
        let guard = guard.downgrade();
        self.shared();
        drop(guard);
    }

    /// Shares it, for a section.
    pub fn read(&self) {
        let guard = self.wanted(|| self.semaphore.read());
        self.shared();
        drop(guard);
    }

    fn wanted<G>(&self, take: impl FnOnce() -> G) -> G {
        // Relaxed: every value here is the one last written.
        self.nr_wanting.fetch_add(1, Ordering::Relaxed);
        let guard = take();
        self.nr_wanting.fetch_sub(1, Ordering::Relaxed);
        guard
    }

    fn alone(&self, stay: Stay) {
        assert!(self.nr_inside.get() == 0, "somebody is inside beside a writer");
        self.nr_inside.set(1);
        self.is_alone.set(true);
        match stay {
            Stay::On => _ = stamp(),
            Stay::Off => self.be_put_off(),
        }
        self.is_alone.set(false);
        self.nr_inside.set(0);
    }

    fn shared(&self) {
        assert!(!self.is_alone.get(), "a reader is inside beside a writer");
        self.nr_inside.set(self.nr_inside.get() + 1);
        stamp();
        self.nr_inside.set(self.nr_inside.get() - 1);
    }

    /// Leaves the CPU, and comes back when those who wait sleep.
    fn be_put_off(&self) {
        Explore::leave();
        // Relaxed: as above.
        let is_quiet = || self.nr_wanting.load(Ordering::Relaxed) == 0 || self.semaphore.is_contended();
        let is_in_time = Explore::spin_until_deadline(Explore::now() + PATIENCE_NS, is_quiet);
        assert!(is_in_time, "somebody waits awake for an owner that is off its CPU");
        Explore::enter();
    }

    /// Checks what holds when everybody stands still.
    pub fn check(&self) {
        let semaphore = &self.semaphore;
        assert!(!semaphore.is_locked() && !semaphore.is_contended(), "the semaphore is not free");
        assert!(semaphore.owner().is_none(), "somebody who has gone is named as the semaphore's owner");
    }
}
