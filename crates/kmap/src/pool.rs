//! One set of slots for all CPUs, as Linux 2.4 had it, and what the thread of 2002 proposed instead; and a set for each
//! process.
//!
//! | scheme | whose idea | an idle slot is used again |
//! |---|---|---|
//! | [`Pool`] | Linux 2.4 (`mm/highmem.c`) | when the search comes round: one flush of all CPUs, under the lock |
//! | [`PoolHalves`] | the thread: hand out one half while the other is flushed | after its half was flushed, without the lock |
//! | [`PoolLazy`] | Hugh Dickins: nobody should wait for the flush under the lock | after the flush, without the lock |
//! | [`PoolInvlpg`] | single invalidations instead of a flush | after that slot was flushed on all CPUs, without the lock |
//! | [`PerProcess`] | Rik van Riel: maps in the process's own range | after a flush of the process's CPUs |
//!
//! # Rules
//! All of them may sleep, in `map` and while a map is held. A task that holds maps and wants another takes it from the
//! next *class* of slots: if all slots of one class are held by tasks that wait for one of the next class, those of the
//! next are held by tasks that can go on, and so forth. With one class such tasks wait for each other for ever.

use alloc::boxed::Box;
use faultless_platform::{CpuSet, Platform};
use faultless_sync::{AtomicCpuSet, LockClass, lock_class};

use crate::audit::Wrong;
use crate::broken::{self, Broken};
use crate::slots::{Reuse, Slots};
use crate::{Counters, Scheme, Shape, Task, Windows, every_cpu};

lock_class! {
    /// The lock around the pool of kernel maps, by its name in Linux 2.4.
    pub KmapLock = "kmap_lock"
}

lock_class! {
    /// The locks around processes' own maps.
    pub ProcessKmapLock = "process_kmap_lock"
}

/// How many maps a task may hold at a time in a pool: one of each class.
pub const CLASSES: usize = 4;

struct Classes<P: Platform, C: LockClass>([Slots<P, C>; CLASSES]);

impl<P: Platform, C: LockClass> Classes<P, C> {
    fn new(first: usize, shape: &Shape, reuse: Reuse) -> Self {
        let class = |class| Slots::new(first + class * shape.nr_slots, shape, reuse);
        Self(core::array::from_fn(class))
    }

    fn of(&self, task: &Task) -> &Slots<P, C> {
        let depth = if broken::is(Broken::OneClass) { 0 } else { task.depth() };
        self.0.get(depth).unwrap_or_else(|| panic!("a task holds at most {CLASSES} maps of a pool at a time"))
    }

    /// Says what is wrong with a slot, if anything is.
    ///
    /// # Safety
    /// Nobody maps meanwhile.
    unsafe fn audit(&self, windows: &Windows<P>, nr_holders: &dyn Fn(u32) -> u32) -> Result<(), Wrong> {
        // SAFETY: the caller's promise.
        self.0.iter().try_for_each(|slots| unsafe { slots.audit(windows, nr_holders) })
    }
}

macro_rules! pools {
    ($($(#[$doc:meta])* $scheme:ident = $name:literal, $reuse:ident;)*) => {$(
        $(#[$doc])*
        pub struct $scheme<P: Platform> {
            classes: Classes<P, KmapLock>,
            cpus: CpuSet,
        }

        // SAFETY: see `slots`: a slot's entry stays as long as its count is above 1, and a slot is given out when no
        // CPU remembers what it led to.
        unsafe impl<P: Platform> Scheme<P> for $scheme<P> {
            const NAME: &'static str = $name;
            const MAY_SLEEP: bool = true;
            const MAP_SLEEPS: bool = true;
            const IS_OWN: bool = false;

            fn new(shape: &Shape) -> Self {
                Self { classes: Classes::new(0, shape, Reuse::$reuse), cpus: every_cpu(shape.nr_cpus) }
            }
            fn nr_slots(shape: &Shape) -> usize {
                CLASSES * shape.nr_slots
            }
            fn map(&self, windows: &Windows<P>, counters: &Counters<P>, task: &Task, pfn: u32) -> u32 {
                self.classes.of(task).map(windows, counters, pfn, || self.cpus)
            }
            fn unmap(&self, _windows: &Windows<P>, task: &Task, slot: u32) {
                self.classes.of(task).unmap(slot);
            }
            unsafe fn audit(&self, windows: &Windows<P>, nr_holders: &dyn Fn(u32) -> u32) -> Result<(), Wrong> {
                // SAFETY: the caller's promise.
                unsafe { self.classes.audit(windows, nr_holders) }
            }
        }
    )*};
}

pools! {
    /// The pool of Linux 2.4.
    Pool = "pool", AtWrap;
    /// A pool of which one half is flushed while the other is handed out.
    PoolHalves = "pool-halves", ByHalves;
    /// A pool whose flush nobody waits for under the lock.
    PoolLazy = "pool-lazy", Unlocked;
    /// A pool whose slots are flushed one by one.
    PoolInvlpg = "pool-invlpg", OneByOne;
}

/// Slots of each process's own, which its threads share.
pub struct PerProcess<P: Platform> {
    processes: Box<[Process<P>]>,
}

struct Process<P: Platform> {
    classes: Classes<P, ProcessKmapLock>,
    /// CPUs that may remember slots of this process.
    users: AtomicCpuSet<P>,
}

// SAFETY: as for the pools; a CPU is among the users before it looks at the first slot.
unsafe impl<P: Platform> Scheme<P> for PerProcess<P> {
    const NAME: &'static str = "per-process";
    const MAY_SLEEP: bool = true;
    const MAP_SLEEPS: bool = true;
    const IS_OWN: bool = false;

    fn new(shape: &Shape) -> Self {
        let first = |process: usize| process * CLASSES * shape.nr_slots;
        let classes = |process| Classes::new(first(process), shape, Reuse::AtWrap);
        let process = |process| Process { classes: classes(process), users: AtomicCpuSet::new() };
        Self { processes: (0..shape.nr_processes).map(process).collect() }
    }
    fn nr_slots(shape: &Shape) -> usize {
        shape.nr_processes * CLASSES * shape.nr_slots
    }
    fn map(&self, windows: &Windows<P>, counters: &Counters<P>, task: &Task, pfn: u32) -> u32 {
        let process = &self.processes[task.process];
        let slot = process.classes.of(task).map(windows, counters, pfn, || process.users.snapshot());
        // Behind the last wait, on the CPU that looks.
        self.resume(windows, task);
        slot
    }
    fn unmap(&self, _windows: &Windows<P>, task: &Task, slot: u32) {
        self.processes[task.process].classes.of(task).unmap(slot);
    }
    fn resume(&self, _windows: &Windows<P>, task: &Task) {
        let users = &self.processes[task.process].users;
        if !users.contains(P::cpu()) {
            users.insert(P::cpu());
        }
    }
    unsafe fn audit(&self, windows: &Windows<P>, nr_holders: &dyn Fn(u32) -> u32) -> Result<(), Wrong> {
        // SAFETY: the caller's promise.
        self.processes.iter().try_for_each(|process| unsafe { process.classes.audit(windows, nr_holders) })
    }
}
