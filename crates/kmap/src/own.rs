//! Slots that one CPU has for itself: no lock, no flush of another CPU.
//!
//! | scheme | from | slots | rules |
//! |---|---|---|---|
//! | [`Atomic`] | Linux 2.4 to 5.10 (`kmap_atomic`) | one for each CPU and depth | no sleeping, no switch to another task while a map is held |
//! | [`PercpuPinned`] | Andrea Arcangeli, in the thread | a pool for each CPU | the task stays on its CPU as long as it holds one, and may sleep there |
//! | [`Local`] | Linux 5.11 (`kmap_local_page`) | one for each CPU and depth | the task stays on its CPU, and may sleep; another may run there meanwhile, between [`crate::KernelMaps::suspend`] and [`crate::KernelMaps::resume`] |
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
use faultless_platform::{Atomic as _, AtomicInteger as _, Ordering, Platform};
use faultless_sync::PerCpu;

use crate::audit::Wrong;
use crate::broken::{self, Broken};
use crate::slots::{get, set};
use crate::{Counters, NEST_MOST, Scheme, Shape, Task, Windows, come_back};

fn own_slot(cpu: usize, depth: usize) -> u32 {
    (cpu * NEST_MOST + depth) as u32
}

/// Returns the CPU on which a task will map: that of its first map, if it holds any.
fn settled<P: Platform>(task: &Task) -> usize {
    if task.depth() == 0 {
        task.cpu.set(P::cpu());
    }
    stayed::<P>(task)
}

/// Returns the CPU, which the task has not left since its first map.
fn stayed<P: Platform>(task: &Task) -> usize {
    let cpu = P::cpu();
    let is_there = task.cpu.get() == cpu || broken::is(Broken::KeptOverMigration);
    assert!(is_there, "a task left CPU {} for {cpu} with maps of the former", task.cpu.get());
    cpu
}

/// `kmap_atomic`: a fixed slot for each CPU and depth.
pub struct Atomic<P: Platform>(PhantomData<fn() -> P>);

// SAFETY: the slot is this CPU's and depth's, and it forgets what was there before; no other CPU looks at it.
unsafe impl<P: Platform> Scheme<P> for Atomic<P> {
    const NAME: &'static str = "atomic";
    const MAY_SLEEP: bool = false;
    const MAP_SLEEPS: bool = false;
    const IS_OWN: bool = true;

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
        stayed::<P>(task);
    }
    /// What was left in a slot is nobody's, and the next map there forgets it.
    unsafe fn audit(&self, _: &Windows<P>, _: &dyn Fn(u32) -> u32) -> Result<(), Wrong> {
        Ok(())
    }
}

/// `kmap_local_page`: a stack of slots that belongs to the task.
pub struct Local<P: Platform>(PhantomData<fn() -> P>);

// SAFETY: as `Atomic`; what other tasks put there meanwhile is undone by `resume`, without which the entry is not the
// task's, and `touch` of a guard finds another frame or none: who switches tasks calls `suspend` and `resume`.
unsafe impl<P: Platform> Scheme<P> for Local<P> {
    const NAME: &'static str = "local";
    const MAY_SLEEP: bool = true;
    const MAP_SLEEPS: bool = false;
    const IS_OWN: bool = true;
    const LEAVES_SLOTS: bool = true;

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
        stayed::<P>(task);
        windows.clear(slot);
        windows.forget(slot);
    }
    fn suspend(&self, windows: &Windows<P>, task: &Task) {
        task.each(|_, slot| {
            windows.clear(slot);
            windows.forget(slot);
        });
    }
    /// Writes the task's entries again, on the CPU that they are of: whoever switches tasks does not move one that
    /// holds maps.
    fn resume(&self, windows: &Windows<P>, task: &Task) {
        if broken::is(Broken::KeptOverSwitch) {
            return;
        }
        stayed::<P>(task);
        task.each(|pfn, slot| windows.set(slot, pfn));
    }
    unsafe fn audit(&self, windows: &Windows<P>, nr_holders: &dyn Fn(u32) -> u32) -> Result<(), Wrong> {
        let what = "is mapped, or remembered by a CPU, although nobody holds it";
        // SAFETY: the caller's promise.
        let is_remembered = |slot| unsafe { windows.is_remembered(slot) };
        let is_left = |&slot: &u32| nr_holders(slot) == 0 && (windows.entry(slot).is_some() || is_remembered(slot));
        (0..windows.nr_slots()).find(is_left).map_or(Ok(()), |slot| Err(Wrong { slot, what }))
    }
}

/// A pool for each CPU: maps are kept for the next who wants the frame there.
///
/// # A full pool
/// Tasks that sleep may hold all of a CPU's slots: then one that wants another waits. So that they do not wait for each
/// other, a task that holds `d` maps takes a slot only if more than `NEST_MOST - 1 - d` are left: whoever took the last
/// but `k` holds `NEST_MOST - k` at least, and can take all that it may, as far as it goes on asking.
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
    /// Slots that somebody holds.
    nr_held: P::AtomicU32,
    /// Tasks that wait for a slot; those that waited take themselves off on any CPU.
    nr_waiting: P::AtomicU32,
    /// Changes with every release that somebody waits for.
    released: P::AtomicU32,
}

impl<P: Platform> OwnPool<P> {
    fn new(nr_slots: usize, nr_frames: usize) -> Self {
        let cell = || P::AtomicU32::new(0);
        let cells = |nr: usize| (0..nr).map(|_| cell()).collect();
        let (slot_of, frame_of, counts) = (cells(nr_frames), cells(nr_slots), cells(nr_slots));
        Self { last: cell(), slot_of, frame_of, counts, nr_held: cell(), nr_waiting: cell(), released: cell() }
    }

    /// Finds a free slot; says whether it came round, and cleared what was idle. There is one that nobody holds.
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
        unreachable!("of {nr_slots} slots {} are held", get(&self.nr_held));
    }

    /// Gives a frame a slot; returns its place.
    fn give(&self, windows: &Windows<P>, first: usize, pfn: u32) -> usize {
        let (place, is_round) = self.search(windows, first);
        set(&self.slot_of[pfn as usize], place as u32 + 1);
        set(&self.frame_of[place], pfn);
        set(&self.counts[place], 2);
        set(&self.nr_held, get(&self.nr_held) + 1);
        windows.set((first + place) as u32, pfn);
        if is_round {
            windows.forget_all();
        }
        place
    }

    /// Says whether a task may hold one slot more.
    fn has_room(&self, task: &Task) -> bool {
        let nr_kept = if broken::is(Broken::OneClass) { 0 } else { NEST_MOST - 1 - task.depth() };
        get(&self.nr_held) as usize + nr_kept < self.counts.len()
    }

    /// Holds the slot of a frame that has one, if the task may; says whether.
    fn hold(&self, task: &Task, place: usize) -> bool {
        let count = get(&self.counts[place]);
        if count == 1 && !self.has_room(task) {
            return false;
        }
        if count == 1 {
            set(&self.nr_held, get(&self.nr_held) + 1);
        }
        set(&self.counts[place], count + 1);
        true
    }

    /// Takes a holder off a slot, on its CPU.
    fn release(&self, place: usize) {
        let left = get(&self.counts[place]) - 1;
        set(&self.counts[place], left);
        if left > 1 {
            return;
        }
        set(&self.nr_held, get(&self.nr_held) - 1);
        if get(&self.nr_waiting) > 0 {
            set(&self.released, get(&self.released) + 1);
            P::unpark(&raw const self.released, usize::MAX);
        }
    }

    /// Sleeps until a slot is released. Nobody releases one of this CPU between the reading of the word and the sleep.
    fn wait(&self, task: &Task) {
        // Relaxed, twice: counts of a CPU's own, but for those who wake up elsewhere.
        self.nr_waiting.fetch_add(1, Ordering::Relaxed);
        P::park(&self.released, get(&self.released));
        self.nr_waiting.fetch_sub(1, Ordering::Relaxed);
        if task.depth() > 0 {
            come_back::<P>(task);
        }
    }
}

// SAFETY: the slots are this CPU's; idle ones are given out after it forgot everything.
unsafe impl<P: Platform> Scheme<P> for PercpuPinned<P> {
    const NAME: &'static str = "percpu-pinned";
    const MAY_SLEEP: bool = true;
    const MAP_SLEEPS: bool = true;
    const IS_OWN: bool = true;

    fn new(shape: &Shape) -> Self {
        let nr_slots = shape.nr_slots.max(2 * NEST_MOST);
        Self { cpus: PerCpu::new(shape.nr_cpus, |_| OwnPool::new(nr_slots, shape.nr_frames)), nr_slots }
    }
    fn nr_slots(shape: &Shape) -> usize {
        shape.nr_cpus * shape.nr_slots.max(2 * NEST_MOST)
    }
    fn map(&self, windows: &Windows<P>, counters: &Counters<P>, task: &Task, pfn: u32) -> u32 {
        loop {
            let cpu = settled::<P>(task);
            let first = cpu * self.nr_slots;
            let pool = self.cpus.get(cpu);
            match (get(&pool.slot_of[pfn as usize]) as usize).checked_sub(1) {
                Some(place) if pool.hold(task, place) => {
                    counters.hits.add(1);
                    return (first + place) as u32;
                }
                None if pool.has_room(task) => return (first + pool.give(windows, first, pfn)) as u32,
                _ => {
                    counters.sleeps.add(1);
                    pool.wait(task);
                }
            }
        }
    }
    fn unmap(&self, _: &Windows<P>, task: &Task, slot: u32) {
        let cpu = stayed::<P>(task);
        self.cpus.get(cpu).release(slot as usize - cpu * self.nr_slots);
    }
    unsafe fn audit(&self, windows: &Windows<P>, nr_holders: &dyn Fn(u32) -> u32) -> Result<(), Wrong> {
        // SAFETY: the caller's promise.
        let is_remembered = |slot| unsafe { windows.is_remembered(slot) };
        let wrong_at = |slot: usize| {
            let (pool, place) = (self.cpus.get(slot / self.nr_slots), slot % self.nr_slots);
            let (frame, count) = (get(&pool.frame_of[place]), get(&pool.counts[place]));
            let what = match count {
                0 if windows.entry(slot as u32).is_some() => "is mapped although it is free",
                0 if is_remembered(slot as u32) => "is free, and a CPU remembers a frame",
                0 => return None,
                _ if windows.entry(slot as u32) != Some(frame) => "is mapped to another frame than it is kept for",
                _ if get(&pool.slot_of[frame as usize]) as usize != place + 1 => "is not the one of its frame",
                _ if count - 1 != nr_holders(slot as u32) => "has a count that is not that of its holders",
                _ => return None,
            };
            Some(Wrong { slot: slot as u32, what })
        };
        (0..self.cpus.nr_cpus() * self.nr_slots).find_map(wrong_at).map_or(Ok(()), Err)
    }
}
