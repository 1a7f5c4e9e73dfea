//! Memory without addresses of its own, on a watched machine: what a frame holds decides whether it is mapped before
//! anybody looks, under one of the schemes of kernel maps.
//!
//! # Guarantee
//! * I1 what may lie in high memory is told apart by what a frame holds: leaf tables, tables above them, pages of
//!   files, pages of programs' own. Each look at a table's entries, under its lock or without, is a map and an unmap of
//!   that table, and so is its clearing; each page that is cleared, filled, copied or read by a call is one, of a
//!   copy's source as well. A CPU's own walk needs no address.
//! * I2 a map that is asked for leads to its frame at that moment, or the thread panics
//! * I3 maps and their counts are those of the window, where the memory is asked to keep to one: what sets a virtual
//!   memory up maps nothing
//! * I4 with a boundary, frames from there on have no address, those below have one, and what may not lie in high
//!   memory is never there (`faultless_phys`). Without one, the frames without an address are those that hold such
//!   things, as secret memory is taken from the kernel's own map when it is handed out.
//! * I5 a task is of a process, whose maps `per-process` keeps. Whose table a thread maps does not matter, because it
//!   maps it into its own process's range.
//! * I6 who maps again what he mapped last, and still holds, has that map: it is neither made nor counted twice
//! * I7 whoever sleeps with a map keeps it as its scheme says: `atomic` panics, and `local` takes its slots off the CPU
//!   and puts them there again.
//!
//! # Protocol
//! [`Maps::begin`] on the machine before the virtual memory is made, [`Maps::end`] after it has gone: both serve the
//! machine's interrupts.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use faultless_kmap::registry::{self, SchemeVisitor, with_scheme};
use faultless_kmap::{KernelMaps, NEST_MOST, Scheme, Shape, Task};
use faultless_platform::native::Native;
use faultless_platform::watched::{Happening, HighMemory, Sink};
use faultless_platform::{HighZone, Holds, Platform, Threads};

use crate::watch::{Edge, edge};

/// What has no address of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lies {
    /// Leaf tables.
    pub tables: bool,
    /// Tables above the leaves.
    pub upper_tables: bool,
    /// Pages of files.
    pub files: bool,
    /// Programs' own pages.
    pub anonymous: bool,
}

impl Lies {
    /// All that may lie there.
    pub const ALL: Self = Self { tables: true, upper_tables: true, files: true, anonymous: true };

    /// In the order of [`Holds::ALL`].
    fn may_hold(self) -> [bool; Holds::ALL.len()] {
        [self.tables, self.upper_tables, self.files, self.anonymous]
    }

    /// Says whether tables lie there.
    pub fn has_tables(self) -> bool {
        self.tables || self.upper_tables
    }
}

/// When maps are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// From the first one on.
    Always,
    /// Between the edges of a measured window.
    InWindow,
}

/// Where maps are made that nobody keeps over a sleep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Brief {
    /// By the scheme, as all others.
    #[default]
    ByScheme,
    /// In a slot of the CPU's own, beside the scheme: as Linux 2.4 had `kmap_atomic` beside its pool. They cost the
    /// flush of that slot and the walk after it, and are counted by themselves.
    OwnSlot,
}

/// What high memory there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zones {
    /// What lies there.
    pub lies: Lies,
    /// Bytes of normal memory, from the first frame on; if nothing, what `lies` says has no address wherever it is.
    pub boundary_bytes: Option<usize>,
    /// When it is mapped.
    pub when: When,
    /// Where maps are made that nobody keeps over a sleep.
    pub brief: Brief,
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Maps.
    pub maps: u64,
    /// Of these, maps of tables.
    pub table_maps: u64,
    /// Maps in slots of a CPU's own, beside the scheme ([`Brief::OwnSlot`]); not among `maps`.
    pub brief_maps: u64,
    /// Maps that found their frame mapped.
    pub hits: u64,
    /// Flushes of several CPUs' translations.
    pub flushes: u64,
    /// CPUs interrupted for one.
    pub interrupts: u64,
    /// Waits for a slot, asleep.
    pub sleeps: u64,
}

/// High memory under a scheme.
pub trait Maps: HighMemory + Sink {
    /// Makes the maps; the calling thread runs on the machine.
    fn begin(&self);
    /// Ends them, on the machine.
    fn end(&self);
    /// Returns what was counted.
    fn counted(&self) -> Counted;
    /// Says whether a map may sleep until there is a slot.
    fn map_sleeps(&self) -> bool;
}

/// Returns high memory under the scheme of that name; nothing if there is none.
pub fn maps<P: Platform + Threads>(scheme: &str, zones: Zones, shape: Shape) -> Option<Arc<dyn Maps>> {
    with_scheme::<P, _>(scheme, Make { zones, shape })
}

/// Says whether maps of the scheme of that name may sleep until there is a slot; nothing if there is none.
pub fn map_sleeps(scheme: &str) -> Option<bool> {
    registry::map_sleeps::<Native>(scheme)
}

/// Says whether threads may sleep while they hold maps of the scheme of that name; nothing if there is none.
pub fn may_sleep(scheme: &str) -> Option<bool> {
    registry::may_sleep::<Native>(scheme)
}

struct Make {
    zones: Zones,
    shape: Shape,
}

impl<P: Platform + Threads> SchemeVisitor<P> for Make {
    type Output = Arc<dyn Maps>;

    fn visit<S: Scheme<P>>(self) -> Self::Output {
        Arc::new(Under::<P, S>::new(self.zones, self.shape))
    }
}

std::thread_local! {
    /// The machine's threads that run on this thread of the host: one, or all of a simulated machine.
    static MAPPERS: RefCell<HashMap<usize, Rc<Mapper>>> = RefCell::default();
}

/// A thread that maps.
struct Mapper {
    task: Task,
    /// How often each of its maps was asked for again (I6).
    repeats: [Cell<u32>; NEST_MOST],
}

impl Mapper {
    fn new(task: Task) -> Self {
        Self { task, repeats: [const { Cell::new(0) }; NEST_MOST] }
    }

    /// Returns the place of its last map, if that is one of this frame.
    fn repeats_of_last(&self, number: u32) -> Option<&Cell<u32>> {
        (self.task.last() == Some(number)).then(|| &self.repeats[self.task.depth() - 1])
    }

    /// Says whether it holds such a map already, and notes that it is asked for once more.
    fn repeats(&self, number: u32) -> bool {
        self.repeats_of_last(number).is_some_and(|repeats| {
            repeats.set(repeats.get() + 1);
            true
        })
    }

    /// Says whether it was asked for more than once, and notes that it is once less.
    fn ends_repeat(&self, number: u32) -> bool {
        let more = self.repeats_of_last(number).filter(|repeats| repeats.get() > 0);
        more.is_some_and(|repeats| {
            repeats.set(repeats.get() - 1);
            true
        })
    }
}

/// Maps in a box, whose address the interrupt handler has.
type Kept<P, S> = Box<KernelMaps<P, S>>;

/// High memory under a scheme.
struct Under<P: Platform, S: Scheme<P>> {
    zones: Zones,
    shape: Shape,
    /// The first address in high memory; 0 if what lies there is told by what it holds alone.
    begin: AtomicUsize,
    maps: Mutex<Option<Arc<Kept<P, S>>>>,
    /// Numbers of frames, by address: in the order in which they are first mapped.
    numbers: Mutex<HashMap<usize, u32>>,
    /// Whether maps are made (I3).
    is_open: AtomicBool,
    table_maps: AtomicU64,
    brief_maps: AtomicU64,
    platform: PhantomData<fn() -> P>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<P: Platform, S: Scheme<P>> Under<P, S> {
    fn new(zones: Zones, shape: Shape) -> Self {
        Self {
            zones,
            shape,
            begin: AtomicUsize::new(0),
            maps: Mutex::default(),
            numbers: Mutex::default(),
            is_open: AtomicBool::new(zones.when == When::Always),
            table_maps: AtomicU64::new(0),
            brief_maps: AtomicU64::new(0),
            platform: PhantomData,
        }
    }

    /// Runs `act` on the maps, with the calling thread and the frame's number, while maps are made.
    fn act(&self, frame: *const u8, act: impl FnOnce(&KernelMaps<P, S>, &Mapper, u32)) {
        // Relaxed: a simulated machine's threads are one of the host's, and elsewhere it does not change.
        if !self.is_open.load(Ordering::Relaxed) {
            return;
        }
        let Some(maps) = lock(&self.maps).clone() else { return };
        let mapper = MAPPERS.with_borrow_mut(|mappers| {
            // Each thread that comes is the next process, where they are processes.
            let process = if self.shape.nr_processes == 1 { 0 } else { mappers.len() };
            let new = || Rc::new(Mapper::new(Task::new(process, P::cpu())));
            mappers.entry(P::current().bits()).or_insert_with(new).clone()
        });
        let number = {
            let mut numbers = lock(&self.numbers);
            let next = numbers.len() as u32;
            *numbers.entry(frame.addr()).or_insert(next)
        };
        act(&maps, &mapper, number);
    }

    /// Runs `act` on the calling thread's task, if it has maps.
    fn of_task(&self, act: impl FnOnce(&KernelMaps<P, S>, &Task)) {
        let mapper = MAPPERS.with_borrow(|mappers| mappers.get(&P::current().bits()).cloned());
        let Some(mapper) = mapper.filter(|mapper| mapper.task.depth() > 0) else { return };
        let Some(maps) = lock(&self.maps).clone() else { return };
        act(&maps, &mapper.task);
    }

    fn is_high(&self, frame: *const u8, holds: Holds) -> bool {
        // Relaxed: written before the first frame is taken.
        self.zones.lies.may_hold()[holds as usize] && frame.addr() >= self.begin.load(Ordering::Relaxed)
    }
}

impl<P: Platform, S: Scheme<P>> Maps for Under<P, S> {
    fn begin(&self) {
        MAPPERS.with_borrow_mut(HashMap::clear);
        *lock(&self.maps) = Some(Arc::new(KernelMaps::new(&self.shape)));
    }

    fn end(&self) {
        let maps = lock(&self.maps).take();
        drop(maps);
    }

    fn counted(&self) -> Counted {
        let Some(maps) = lock(&self.maps).clone() else { return Counted::default() };
        let counters = maps.counters();
        Counted {
            maps: counters.maps.sum(),
            // Relaxed, twice: nobody works any more.
            table_maps: self.table_maps.load(Ordering::Relaxed),
            brief_maps: self.brief_maps.load(Ordering::Relaxed),
            hits: counters.hits.sum(),
            flushes: maps.windows().nr_flushes(),
            interrupts: maps.windows().nr_interrupts(),
            sleeps: counters.sleeps.sum(),
        }
    }

    fn map_sleeps(&self) -> bool {
        S::MAP_SLEEPS
    }
}

impl<P: Platform, S: Scheme<P>> Drop for Under<P, S> {
    /// Leaves what a failed run has not ended: it can end on its machine alone, which is gone.
    fn drop(&mut self) {
        std::mem::forget(lock(&self.maps).take());
    }
}

// SAFETY: all of the memory has its addresses all the time; only what maps cost is counted.
#[allow(unsafe_code, reason = "what it promises is said above")]
unsafe impl<P: Platform, S: Scheme<P>> HighMemory for Under<P, S> {
    fn map(&self, frame: *const u8, holds: Holds) {
        if self.is_high(frame, holds) {
            self.act(frame, |maps, mapper, number| {
                if !mapper.repeats(number) {
                    maps.hold(&mapper.task, number);
                    let is_table = matches!(holds, Holds::Table | Holds::UpperTable);
                    // Relaxed: a count.
                    self.table_maps.fetch_add(u64::from(is_table), Ordering::Relaxed);
                }
            });
        }
    }

    fn unmap(&self, frame: *const u8, holds: Holds) {
        // Where somebody panics, the run has failed already, maybe in the middle of a map.
        if self.is_high(frame, holds) && !std::thread::panicking() {
            self.act(frame, |maps, mapper, number| {
                if !mapper.ends_repeat(number) {
                    maps.release(&mapper.task, number);
                }
            });
        }
    }

    fn map_briefly(&self, frame: *const u8, holds: Holds) {
        if self.zones.brief == Brief::ByScheme {
            return self.map(frame, holds);
        }
        // Relaxed: as in `act`.
        if self.is_high(frame, holds) && self.is_open.load(Ordering::Relaxed) {
            P::work(self.shape.costs.flush_slot_ns + self.shape.costs.walk_ns);
            // Relaxed: a count.
            self.brief_maps.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn unmap_briefly(&self, frame: *const u8, holds: Holds) {
        if self.zones.brief == Brief::ByScheme {
            self.unmap(frame, holds);
        }
    }

    fn outlasts_sleep(&self) -> bool {
        S::MAY_SLEEP
    }

    fn zone(&self, address: *const u8, len_bytes: usize) -> Option<HighZone> {
        let begin = address.addr() + self.zones.boundary_bytes?.min(len_bytes);
        // Relaxed: no frame was taken yet.
        self.begin.store(begin, Ordering::Relaxed);
        Some(HighZone { begin, may_hold: self.zones.lies.may_hold() })
    }

    fn lacks_address(&self, frame: *const u8, holds: Holds) -> bool {
        self.is_high(frame, holds)
    }

    /// A CPU's own maps are nobody's while their task sleeps (I7).
    fn suspend(&self) {
        self.of_task(|maps, task| maps.suspend(task));
    }

    fn resume(&self) {
        self.of_task(|maps, task| {
            maps.come_back(task);
            maps.resume(task);
        });
    }
}

impl<P: Platform, S: Scheme<P>> Sink for Under<P, S> {
    fn note(&self, happening: &Happening) {
        let edge = if self.zones.when == When::InWindow { edge(&happening.event) } else { None };
        if let Some(edge) = edge {
            // Relaxed: nobody works at an edge.
            self.is_open.store(edge == Edge::Begin, Ordering::Relaxed);
        }
    }
}
