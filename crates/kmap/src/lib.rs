//! Kernel maps: an address for a moment, for a frame that the kernel has none for.
//!
//! # Guarantee
//! As long as a [`Mapped`] lives, every access through it reaches its frame, whatever other CPUs map meanwhile, under
//! every scheme. What a scheme forbids is said in its file, and ends in a panic that names the rule.
//!
//! # Rooms
//! | room | holds |
//! |---|---|
//! | [`windows`] | the addresses (*slots*), their entries, each CPU's TLB, and how translations are taken away |
//! | [`audit`] | who holds which slot, for judges; windows of a real address space |
//! | `slots` | slots with a count each, behind one lock, and five ways to use them again |
//! | [`pool`] | `pool`, `pool-halves`, `pool-lazy`, `pool-invlpg`: one set of slots for all CPUs; `per-process`: one for each process |
//! | [`own`] | `atomic`, `percpu-pinned`, `local`: slots that one CPU has for itself |
//! | [`registry`] | all of them by name |
//! | [`broken`] | known bugs, for the tests that must find them |
//!
//! # Sources
//! The thread *Scalability problem (kmap_lock) with -aa kernels* (linux-kernel, March 2002); Linux 2.4 `mm/highmem.c`;
//! for `local`, Linux 5.11 `mm/highmem.c` (T. Gleixner, 2020).
//!
//! ```
//! use faultless_kmap::{KernelMaps, Shape, Task, own::Atomic};
//! use faultless_platform::native::{Machine, Native};
//! Machine::new(1).attach(|| {
//!     let maps = KernelMaps::<Native, Atomic<Native>>::new(&Shape { nr_cpus: 1, nr_frames: 100, ..Shape::default() });
//!     let task = Task::new(0, 0);
//!     let page = maps.map(&task, 42);
//!     assert_eq!(page.touch(), 42);
//! });
//! ```

#![no_std]

extern crate alloc;

pub mod audit;
pub mod broken;
pub mod own;
pub mod pool;
pub mod registry;
mod slots;
pub mod windows;

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::cell::Cell;
use core::marker::PhantomData;
use core::ptr::NonNull;
use faultless_platform::{CpuSet, Platform};
use faultless_sync::PerCpuCounter;

use audit::{Holders, Wrong};
use broken::Broken;

pub use windows::{Costs, Windows};

/// How many maps one task may hold at a time.
pub const NEST_MOST: usize = 8;

/// How large everything is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// CPUs of the machine.
    pub nr_cpus: usize,
    /// Frames that may be mapped, numbered from 0.
    pub nr_frames: usize,
    /// Slots of a pool: 1024 in Linux 2.4 (512 with three levels of tables), 128 in the thread's second measurement.
    pub nr_slots: usize,
    /// Processes, for the scheme in which each has maps of its own.
    pub nr_processes: usize,
    /// What the hardware's part costs.
    pub costs: Costs,
    /// Whether the locks of pools are metered as lockmeter did it in 2002: it wrote a number into a lock's word after
    /// the lock was taken, and read it again before the release. Both are accesses to a line that others spin on.
    pub is_metered: bool,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            nr_cpus: 1,
            nr_frames: 1 << 16,
            nr_slots: 1024,
            nr_processes: 1,
            costs: Costs::default(),
            is_metered: false,
        }
    }
}

/// What is counted.
pub struct Counters<P: faultless_platform::Processor> {
    /// Maps.
    pub maps: PerCpuCounter<P>,
    /// Maps that found their frame mapped already.
    pub hits: PerCpuCounter<P>,
    /// Waits for a slot, asleep.
    pub sleeps: PerCpuCounter<P>,
}

impl<P: faultless_platform::Processor> Counters<P> {
    fn new(nr_cpus: usize) -> Self {
        let counter = || PerCpuCounter::new(nr_cpus);
        Self { maps: counter(), hits: counter(), sleeps: counter() }
    }
}

/// Who maps: a thread of a process, with the maps that it holds. A thread makes one and keeps it.
#[derive(Debug)]
pub struct Task {
    process: usize,
    /// The frame behind each map that it holds, and the slot; the first `depth` of them.
    held: [Cell<(u32, u32)>; NEST_MOST],
    depth: Cell<usize>,
    /// The CPU that it must not leave while it holds one, under schemes that say so.
    cpu: Cell<usize>,
}

impl Task {
    /// Returns a task of a process, which holds nothing; processes are numbered from 0. `cpu` is where it runs.
    pub fn new(process: usize, cpu: usize) -> Self {
        Self { process, held: [const { Cell::new((0, 0)) }; NEST_MOST], depth: Cell::new(0), cpu: Cell::new(cpu) }
    }

    /// Returns how many maps it holds.
    pub fn depth(&self) -> usize {
        self.depth.get()
    }

    /// Returns the frame that it mapped last, of those that it holds.
    pub fn last(&self) -> Option<u32> {
        self.depth().checked_sub(1).map(|place| self.held[place].get().0)
    }

    fn push(&self, pfn: u32, slot: u32) {
        self.held[self.depth.get()].set((pfn, slot));
        self.depth.set(self.depth.get() + 1);
    }

    /// Calls `of` with the frame and the slot of each map that it holds.
    fn each(&self, mut of: impl FnMut(u32, u32)) {
        self.held[..self.depth.get()].iter().map(Cell::get).for_each(|(pfn, slot)| of(pfn, slot));
    }

    fn pop(&self, slot: u32) {
        let depth = self.depth.get() - 1;
        assert!(self.held[depth].get().1 == slot, "maps are released in the opposite order");
        self.depth.set(depth);
    }
}

/// A way to give addresses to frames.
///
/// # Safety
/// Between `map` and the `unmap` of what it returned the slot's entry is the frame's, and no CPU that the task may
/// run on has another translation of the slot.
pub unsafe trait Scheme<P: Platform>: Sized + Send + Sync + 'static {
    /// The name in the registry.
    const NAME: &'static str;
    /// Whether a task may sleep while it holds a map.
    const MAY_SLEEP: bool;
    /// Whether [`Scheme::map`] sleeps until there is a slot.
    const MAP_SLEEPS: bool;
    /// Whether a task that holds a map stays on its CPU.
    const IS_OWN: bool;
    /// Whether others may use the task's slots between [`Scheme::suspend`] and [`Scheme::resume`].
    const LEAVES_SLOTS: bool = false;

    /// Returns the scheme's state, nothing mapped.
    fn new(shape: &Shape) -> Self;
    /// Returns how many slots it has.
    fn nr_slots(shape: &Shape) -> usize;
    /// Maps a frame; returns the slot. May sleep if [`Scheme::MAP_SLEEPS`]. The task's number of maps is what it was
    /// before.
    fn map(&self, windows: &Windows<P>, counters: &Counters<P>, task: &Task, pfn: u32) -> u32;
    /// Releases the last map of the task.
    fn unmap(&self, windows: &Windows<P>, task: &Task, slot: u32);
    /// Called before the task gives its CPU up.
    fn suspend(&self, _windows: &Windows<P>, _task: &Task) {}
    /// Called when the task runs again after another had its CPU.
    fn resume(&self, _windows: &Windows<P>, _task: &Task) {}
    /// Says what is wrong with a slot, if anything is; `nr_holders` says how many hold a slot.
    ///
    /// # Safety
    /// Nobody maps meanwhile.
    unsafe fn audit(&self, windows: &Windows<P>, nr_holders: &dyn Fn(u32) -> u32) -> Result<(), Wrong>;
}

/// All maps of a machine, under one scheme.
///
/// There is one on each machine: it serves the machine's interrupts.
pub struct KernelMaps<P: Platform, S: Scheme<P>> {
    /// In a place of their own, which the machine's handler knows.
    windows: Arc<Windows<P>>,
    scheme: S,
    counters: Counters<P>,
    nr_frames: usize,
    holders: Option<Arc<dyn Holders>>,
}

impl<P: Platform, S: Scheme<P>> KernelMaps<P, S> {
    /// Returns maps for a machine; the calling thread runs on it.
    pub fn new(shape: &Shape) -> Box<Self> {
        Self::with_holders(shape, None)
    }

    /// As [`KernelMaps::new`]; `holders` is told of each map and its end, and may give slots addresses of a real space.
    pub fn with_holders(shape: &Shape, holders: Option<Arc<dyn Holders>>) -> Box<Self> {
        let maps = Box::new(Self {
            windows: Arc::new(Windows::new(shape.nr_cpus, S::nr_slots(shape), shape.costs)),
            scheme: S::new(shape),
            counters: Counters::new(shape.nr_cpus),
            nr_frames: shape.nr_frames,
            holders,
        });
        // SAFETY: the windows stay where they are until they are dropped, which takes the handler away first.
        unsafe { P::set_interrupt_handler(windows::serve::<P>, Arc::as_ptr(&maps.windows).cast()) };
        maps
    }

    /// Gives a frame an address until the guard is dropped.
    ///
    /// # Panics
    /// If the frame's number is too large, or the task holds [`NEST_MOST`] maps.
    #[track_caller]
    pub fn map<'a>(&'a self, task: &'a Task, pfn: u32) -> Mapped<'a, P, S> {
        assert!((pfn as usize) < self.nr_frames, "frame {pfn} of {}", self.nr_frames);
        assert!(task.depth() < NEST_MOST, "a task holds at most {NEST_MOST} maps");
        self.counters.maps.add(1);
        let slot = self.scheme.map(&self.windows, &self.counters, task, pfn);
        task.push(pfn, slot);
        self.tell(|holders| holders.hold(slot, pfn));
        Mapped { maps: self, task, slot, on_thread: PhantomData }
    }

    /// Tells whoever wants to know who holds what.
    #[inline]
    fn tell(&self, of: impl FnOnce(&dyn Holders)) {
        if let Some(holders) = &self.holders {
            of(&**holders);
        }
    }

    /// Ends a map that its task no longer counts.
    #[inline]
    fn end(&self, task: &Task, slot: u32) {
        self.tell(|holders| holders.release(slot));
        self.scheme.unmap(&self.windows, task, slot);
    }

    /// Maps a frame as [`KernelMaps::map`] does, and looks at it, until [`KernelMaps::release`]: for those who can keep
    /// no guard.
    ///
    /// # Panics
    /// As [`KernelMaps::map`] does.
    pub fn hold(&self, task: &Task, pfn: u32) {
        let page = self.map(task, pfn);
        assert_eq!(page.touch(), pfn, "{} reached another frame", S::NAME);
        core::mem::forget(page);
    }

    /// Releases the task's last map, which is one of that frame.
    ///
    /// # Panics
    /// If it is not, or the task holds none.
    pub fn release(&self, task: &Task, pfn: u32) {
        let last = task.depth().checked_sub(1).map(|place| task.held[place].get());
        let Some((held, slot)) = last else { panic!("frame {pfn} is released by a task that holds nothing") };
        assert!(held == pfn, "frame {pfn} is released before frame {held}, which was mapped after it");
        task.pop(slot);
        self.end(task, slot);
    }

    /// Takes the task's maps off its CPU, which it is about to give up: the next one there begins with clean slots.
    pub fn suspend(&self, task: &Task) {
        if S::LEAVES_SLOTS {
            self.tell(|holders| task.each(|_, slot| holders.release(slot)));
        }
        self.scheme.suspend(&self.windows, task);
    }

    /// Says whether a task that had given its CPU up may go on with its maps on the CPU that it has now: whoever
    /// schedules tasks looks for another one otherwise.
    pub fn may_go_on(&self, task: &Task) -> bool {
        !S::IS_OWN || task.depth() == 0 || task.cpu.get() == P::cpu() || broken::is(Broken::KeptOverMigration)
    }

    /// Looks for the CPU that a task must go on on, which has just got another's: its own, if it holds maps of one.
    pub fn come_back(&self, task: &Task) {
        if !self.may_go_on(task) {
            come_back::<P>(task);
        }
    }

    /// Gives the task its maps back, after another had its CPU.
    ///
    /// # Panics
    /// If they belong to another CPU.
    pub fn resume(&self, task: &Task) {
        self.scheme.resume(&self.windows, task);
        if S::LEAVES_SLOTS {
            self.tell(|holders| task.each(|pfn, slot| holders.hold(slot, pfn)));
        }
    }

    /// Says what is wrong with a slot, if anything is; `nr_holders` says how many hold a slot.
    ///
    /// # Safety
    /// Nobody maps meanwhile.
    pub unsafe fn audit(&self, nr_holders: &dyn Fn(u32) -> u32) -> Result<(), Wrong> {
        // SAFETY: the caller's promise.
        unsafe { self.scheme.audit(&self.windows, nr_holders) }
    }

    /// Returns what was counted.
    pub fn counters(&self) -> &Counters<P> {
        &self.counters
    }

    /// Returns the windows.
    pub fn windows(&self) -> &Windows<P> {
        &self.windows
    }
}

impl<P: Platform, S: Scheme<P>> Drop for KernelMaps<P, S> {
    fn drop(&mut self) {
        // SAFETY: registered when it was made; nobody maps any more.
        unsafe { P::clear_interrupt_handler(Arc::as_ptr(&self.windows).cast()) };
    }
}

/// A frame with an address; dropping it gives the address back.
///
/// It stays on its thread:
/// ```compile_fail,E0277
/// use faultless_platform::native::Native;
/// fn is_sent<T: Send>() {}
/// is_sent::<faultless_kmap::Mapped<'static, Native, faultless_kmap::own::Local<Native>>>();
/// ```
/// It is released once, because it is gone then:
/// ```compile_fail,E0382
/// use faultless_kmap::{KernelMaps, Mapped, own::Local};
/// use faultless_platform::native::Native;
/// fn twice(page: Mapped<'_, Native, Local<Native>>) {
///     drop(page);
///     drop(page);
/// }
/// ```
/// Neither it nor its task outlives the maps:
/// ```compile_fail,E0505
/// use faultless_kmap::{KernelMaps, Task, own::Local};
/// use faultless_platform::native::Native;
/// fn kept(maps: Box<KernelMaps<Native, Local<Native>>>, task: Task) {
///     let page = maps.map(&task, 0);
///     drop(maps);
///     page.touch();
/// }
/// ```
pub struct Mapped<'a, P: Platform, S: Scheme<P>> {
    maps: &'a KernelMaps<P, S>,
    task: &'a Task,
    slot: u32,
    on_thread: PhantomData<*const ()>,
}

impl<P: Platform, S: Scheme<P>> Mapped<'_, P, S> {
    /// Accesses the frame through its address: returns which frame this CPU's translation leads to.
    ///
    /// # Panics
    /// If nothing is mapped there, which a scheme never lets happen.
    #[inline]
    pub fn touch(&self) -> u32 {
        self.maps.windows.touch(self.slot).expect("the slot is mapped as long as its guard lives")
    }

    /// Returns the slot.
    pub fn slot(&self) -> u32 {
        self.slot
    }

    /// Returns the slot's address where windows are those of a real address space; it reaches the frame as long as the
    /// guard lives, and faults afterwards.
    pub fn address(&self) -> Option<NonNull<u8>> {
        self.maps.holders.as_ref()?.address(self.slot)
    }
}

impl<P: Platform, S: Scheme<P>> Drop for Mapped<'_, P, S> {
    fn drop(&mut self) {
        self.task.pop(self.slot);
        self.maps.end(self.task, self.slot);
    }
}

/// How long a task that got another CPU than its own waits before it asks again.
const ASIDE_NS: u64 = 10_000;

/// Gives up CPUs until the task has its own.
fn come_back<P: Platform>(task: &Task) {
    while P::cpu() != task.cpu.get() {
        P::leave();
        P::prefer(task.cpu.get());
        P::work(ASIDE_NS);
        P::enter();
    }
}

/// Returns all CPUs of a machine.
fn every_cpu(nr_cpus: usize) -> CpuSet {
    let mut all = CpuSet::new();
    (0..nr_cpus).for_each(|cpu| all.insert(cpu));
    all
}
