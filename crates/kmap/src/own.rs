//! Slots that one CPU has for itself: no lock, no flush of another CPU.
//!
//! | scheme | from | slots | rules |
//! |---|---|---|---|
//! | [`Atomic`] | Linux 2.4 to 5.10 (`kmap_atomic`) | one for each CPU and depth | no sleeping, no switch to another task while a map is held |
//! | [`PercpuPinned`] | Andrea Arcangeli, in the thread | a pool for each CPU | the task stays on its CPU as long as it holds one |
//! | [`Local`] | Linux 5.11 (`kmap_local_page`) | one for each CPU and depth | the task stays on its CPU; another may run there meanwhile, between [`crate::KernelMaps::suspend`] and [`crate::KernelMaps::resume`] |
//!
//! A task that is found on another CPU than the one where it mapped panics: its addresses are that CPU's.
//!
//! # Why nothing races
//! A slot's entry is written and its translation remembered by one CPU. A CPU forgets a slot before, or when, it is
//! given to another frame; nobody else ever looked at it. [`Local`] under a switch:
//! ```text
//! A maps X in slot 0 of CPU c; suspend: c forgets slot 0; B runs on c, maps Y there; suspend; A resumes: slot 0 is X
//! ```

use alloc::boxed::Box;
use core::marker::PhantomData;
use faultless_platform::{Atomic as _, Platform};
use faultless_sync::PerCpu;

use crate::broken::{self, Broken};
use crate::slots::{get, set};
use crate::{Counters, NEST_MOST, Scheme, Shape, Task, Windows};

fn own_slot(cpu: usize, depth: usize) -> u32 {
    (cpu * NEST_MOST + depth) as u32
}

/// Returns the CPU, which the task has not left since its first map.
fn settled<P: Platform>(task: &Task) -> usize {
    let cpu = P::cpu();
    if task.depth() == 0 {
        task.cpu.set(cpu);
    }
    assert!(task.cpu.get() == cpu, "a task left CPU {} for {cpu} with maps of the former", task.cpu.get());
    cpu
}

/// `kmap_atomic`: a fixed slot for each CPU and depth.
pub struct Atomic<P: Platform>(PhantomData<fn() -> P>);

// SAFETY: the slot is this CPU's and depth's, and it forgets what was there before; no other CPU looks at it.
unsafe impl<P: Platform> Scheme<P> for Atomic<P> {
    const NAME: &'static str = "atomic";
    const MAY_SLEEP: bool = false;

    fn new(_: &Shape) -> Self {
        Self(PhantomData)
    }
    fn nr_slots(shape: &Shape) -> usize {
        shape.nr_cpus * NEST_MOST
    }
    fn map(&self, windows: &Windows<P>, _: &Counters<P>, task: &Task, pfn: u32) -> u32 {
        let slot = own_slot(settled::<P>(task), task.depth());
        windows.set(slot, pfn);
        windows.forget(slot);
        slot
    }
    /// Nobody may give the CPU up with such a map: the next task there would take the slot.
    fn suspend(&self, _: &Windows<P>, task: &Task) {
        assert!(task.depth() == 0, "a task gives its CPU up with {} atomic maps", task.depth());
    }
    /// Leaves the entry, as Linux does but for debugging: the next map at this depth forgets it.
    fn unmap(&self, _: &Windows<P>, task: &Task, _: u32) {
        assert!(task.cpu.get() == P::cpu(), "an atomic map was kept over a switch of CPUs");
    }
}

/// `kmap_local_page`: a stack of slots that belongs to the task.
pub struct Local<P: Platform>(PhantomData<fn() -> P>);

// SAFETY: as `Atomic`; what other tasks put there meanwhile is undone by `resume`, without which the entry is not the
// task's, and `touch` of a guard finds another frame or none: who switches tasks calls `suspend` and `resume`.
unsafe impl<P: Platform> Scheme<P> for Local<P> {
    const NAME: &'static str = "local";
    const MAY_SLEEP: bool = false;

    fn new(_: &Shape) -> Self {
        Self(PhantomData)
    }
    fn nr_slots(shape: &Shape) -> usize {
        shape.nr_cpus * NEST_MOST
    }
    fn map(&self, windows: &Windows<P>, _: &Counters<P>, task: &Task, pfn: u32) -> u32 {
        let slot = own_slot(settled::<P>(task), task.depth());
        windows.set(slot, pfn);
        slot
    }
    fn unmap(&self, windows: &Windows<P>, task: &Task, slot: u32) {
        settled::<P>(task);
        windows.clear(slot);
        windows.forget(slot);
    }
    fn suspend(&self, windows: &Windows<P>, task: &Task) {
        for (_, slot) in task.held[..task.depth()].iter().map(core::cell::Cell::get) {
            windows.clear(slot);
            windows.forget(slot);
        }
    }
    /// Writes the task's entries again, on the CPU that they are of: whoever switches tasks does not move one that
    /// holds maps.
    fn resume(&self, windows: &Windows<P>, task: &Task) {
        if broken::is(Broken::KeptOverSwitch) {
            return;
        }
        settled::<P>(task);
        for (pfn, slot) in task.held[..task.depth()].iter().map(core::cell::Cell::get) {
            windows.set(slot, pfn);
        }
    }
}

/// A pool for each CPU: maps are kept for the next who wants the frame there.
pub struct PercpuPinned<P: Platform> {
    cpus: PerCpu<P, OwnPool<P>>,
    nr_slots: usize,
}

/// A CPU's own: atomics, so that a simulated machine charges for each access.
struct OwnPool<P: Platform> {
    last: P::AtomicU32,
    /// The slot plus one of each frame.
    slot_of: Box<[P::AtomicU32]>,
    frame_of: Box<[P::AtomicU32]>,
    /// 0 free, 1 idle, one more for each holder.
    counts: Box<[P::AtomicU32]>,
}

impl<P: Platform> OwnPool<P> {
    /// Finds a free slot; says whether it came round, and cleared what was idle.
    fn search(&self, windows: &Windows<P>, first: usize) -> (usize, bool) {
        let (nr_slots, mut is_round) = (self.counts.len(), false);
        for _ in 0..2 * nr_slots {
            let last = (get(&self.last) as usize + 1) % nr_slots;
            set(&self.last, last as u32);
            if last == 0 {
                is_round = true;
                for (place, count) in self.counts.iter().enumerate().filter(|(_, count)| get(*count) == 1) {
                    set(&self.slot_of[get(&self.frame_of[place]) as usize], 0);
                    set(count, 0);
                    windows.clear((first + place) as u32);
                }
            }
            if get(&self.counts[last]) == 0 {
                return (last, is_round);
            }
        }
        panic!("the one task that holds maps of a CPU holds all {nr_slots}");
    }
}

// SAFETY: the slots are this CPU's; idle ones are given out after it forgot everything.
unsafe impl<P: Platform> Scheme<P> for PercpuPinned<P> {
    const NAME: &'static str = "percpu-pinned";
    const MAY_SLEEP: bool = false;

    fn new(shape: &Shape) -> Self {
        let nr_slots = shape.nr_slots.max(2 * NEST_MOST);
        let cells = |nr: usize| (0..nr).map(|_| P::AtomicU32::new(0)).collect();
        let pool = |_| OwnPool {
            last: P::AtomicU32::new(0),
            slot_of: cells(shape.nr_frames),
            frame_of: cells(nr_slots),
            counts: cells(nr_slots),
        };
        Self { cpus: PerCpu::new(shape.nr_cpus, pool), nr_slots }
    }
    fn nr_slots(shape: &Shape) -> usize {
        shape.nr_cpus * shape.nr_slots.max(2 * NEST_MOST)
    }
    fn map(&self, windows: &Windows<P>, counters: &Counters<P>, task: &Task, pfn: u32) -> u32 {
        let cpu = settled::<P>(task);
        let first = cpu * self.nr_slots;
        let pool = self.cpus.get(cpu);
        let known = get(&pool.slot_of[pfn as usize]) as usize;
        if known != 0 {
            set(&pool.counts[known - 1], get(&pool.counts[known - 1]) + 1);
            counters.hits.add(1);
            return (first + known - 1) as u32;
        }
        let (place, is_round) = pool.search(windows, first);
        set(&pool.slot_of[pfn as usize], place as u32 + 1);
        set(&pool.frame_of[place], pfn);
        set(&pool.counts[place], 2);
        windows.set((first + place) as u32, pfn);
        if is_round {
            windows.forget_all();
        }
        (first + place) as u32
    }
    fn unmap(&self, _: &Windows<P>, task: &Task, slot: u32) {
        let cpu = P::cpu();
        assert!(task.cpu.get() == cpu, "a task left CPU {} for {cpu} with maps of the former", task.cpu.get());
        let count = &self.cpus.get(cpu).counts[slot as usize - cpu * self.nr_slots];
        set(count, get(count) - 1);
    }
}
