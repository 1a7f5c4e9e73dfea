//! Objects of one type, cut from frames: areas, index nodes and the like.
//!
//! # Guarantee
//! An object given out belongs to the caller alone until it is freed, stays in place, and is never handed to the global
//! allocator. On the hit path, a CPU's own magazine, `alloc` and `free` take plain loads and stores. A frame of which
//! no object is in use or in a magazine goes back to the [`Memory`] at once.
//!
//! # Objects are not constructed
//! `alloc` returns memory of the size and alignment of `T`, its content anything; the caller initialises it, and drops
//! what needs dropping before it frees it.
//!
//! # Invariants
//! * I1 an object is given out, in one magazine, waiting for a grace period, or its bit in its frame's map is set.
//! * I2 objects go between maps and magazines, and frames between the slab and the memory, inside a move of a
//!   magazine's (`Stash::begin_move`), which is counted.
//! * I3 `SlabCore` stays where it is while an object can still come back: its frames point to it.
//!
//! # Depots
//! CPUs whose numbers are next to each other share a depot with frames of its own. An object goes back to its frame's
//! depot, whoever frees it. Nobody holds two depots' locks.
//!
//! # Why a failure is exact
//! `stash::search` looks through all depots, the memory and all magazines, between two looks at what they gained: it
//! fails if at some instant no object was free in any of them, and the slab gave no frame back meanwhile (I2). The
//! searcher holds no lock, so that movers, who lock a depot and the zone, need not wait for it; it waits for them.
//!
//! # Rooms
//! `geometry` says where objects stand in a frame; `depot` keeps the maps of free objects; this file the magazines.

mod depot;
mod geometry;

use crate::error::{Cause, OutOfFrames};
use crate::list::SHORT_LISTS;
use crate::memory::Memory;
use crate::pfn::Pfn;
use crate::poison;
use crate::reclaim::{NoReclaim, Reclaim, Shortage};
use crate::source::FrameSource;
use crate::stash::{self, Batch, Stash};
use alloc::boxed::Box;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;
use depot::Depot;
use faultless_platform::{CachePadded, GROUP_BITS, NodeSet, PAGE_BYTES, Platform, Tracepoint};
use faultless_sync::{CounterCell, PerCpu, RcuHead, SpinMutex, lock_class};
use geometry::Geometry;

/// A magazine gives objects back once it holds more than this, or, of larger ones, so many bytes; short page lists make
/// it short too. A grace period frees what was deferred during the one before at once: hundreds of objects, where many
/// CPUs make it long.
const MAGAZINE_HIGH: usize = 512;
const MAGAZINE_BYTES: usize = 64 << 10;
/// It may hold as many objects, whatever their size.
const MAGAZINE_LEAST: usize = 64;
const MAGAZINE_LISTS: usize = 4;

lock_class! {
    /// The locks of slabs' depots.
    DepotLock = "slab"
}

/// How many objects go between a magazine and the depot at once, if not fewer frames do.
const MAGAZINE_BATCH: usize = 24;

/// A cache of objects of type `T`, at most [`Slab::OBJECT_BYTES_MAX`] bytes each.
///
/// ```
/// use faultless_phys::{Memory, Options, Slab};
/// use faultless_platform::native::{HostRegion, Machine, Native};
///
/// let (machine, region) = (Machine::new(2), HostRegion::reserve(4 << 20)?);
/// // SAFETY: the region is ours and outlives the memory and the slab.
/// let memory = unsafe { Memory::<Native>::new(region.base(), region.len_bytes(), 2, Options::default())? };
/// let points = Slab::<Native, (u64, u64)>::new(&memory);
/// machine.attach(|| {
///     let point = points.try_alloc().or_else(|_| points.alloc())?;
///     assert_eq!((points.nr_live(), points.nr_frames()), (1, 1));
///     assert!(points.objects_per_frame() > 10);
///     // SAFETY: the object is ours until it is freed.
///     unsafe {
///         point.write((3, 4));
///         points.free(point);
///         // Readers may still look at this one until a grace period is over.
///         points.free_deferred(points.alloc()?);
///     }
///     assert_eq!(points.nr_deferred(), 1);
///     memory.rcu().flush();
///     points.drain();
///     assert_eq!((points.nr_live(), points.nr_frames()), (0, 0));
///     Ok::<(), faultless_phys::OutOfFrames>(())
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Slab<P: Platform, T, F: FrameSource<P> = Memory<P>> {
    core: ManuallyDrop<Box<SlabCore<P, F>>>,
    objects: PhantomData<fn() -> T>,
}

/// What a slab is, whatever its objects are.
struct SlabCore<P: Platform, F: FrameSource<P>> {
    memory: F,
    magazines: PerCpu<P, Magazine<P>>,
    depots: Box<[CachePadded<LockedDepot<P, F>>]>,
    depot_bits: u32,
    geometry: Geometry,
    magazine_high: usize,
    magazine_batch: usize,
}

type LockedDepot<P, F> = SpinMutex<P, Depot<P, F>, DepotLock>;

/// A CPU's own objects.
struct Magazine<P: Platform> {
    objects: Stash<P>,
    /// Given out here less taken back here; of both, only the sum over all CPUs means something.
    nr_live: CounterCell<P>,
    nr_deferred: CounterCell<P>,
}

impl<P: Platform, T, F: FrameSource<P>> Slab<P, T, F> {
    /// The largest object that fits a frame.
    /// For a caller that chooses how large its objects are, such as the nodes of a tree.
    pub const OBJECT_BYTES_MAX: usize = geometry::object_bytes_max::<P>();

    /// Returns an empty cache, fed by `memory`. Allocates magazines from the global allocator, so it is for set-up.
    ///
    /// Compiles only for a `T` that fits.
    pub fn new(memory: &F) -> Self {
        Self::with_geometry(memory, const { Geometry::of::<P, T>() })
    }

    /// As [`Slab::new`], for objects that have a place for the [`RcuHead`] that [`Slab::free_deferred`] needs:
    /// `head_offset` bytes from their start, a multiple of 8. Otherwise it stands behind the object, on one more line.
    ///
    /// # Safety
    /// Nobody uses that place from the call of [`Slab::free_deferred`] on.
    ///
    /// # Panics
    /// If the place is not aligned, or not inside a frame.
    /// `vm` calls it for its areas, which have such a place.
    pub unsafe fn with_head_inside(memory: &F, head_offset: usize) -> Self {
        Self::with_geometry(memory, Geometry::with_head_at::<P, T>(head_offset))
    }

    fn with_geometry(memory: &F, geometry: Geometry) -> Self {
        let by_size = (MAGAZINE_BYTES / geometry.object_bytes.max(1)).clamp(MAGAZINE_LEAST, MAGAZINE_HIGH);
        let magazine_high = by_size.min(memory.options().list_high * MAGAZINE_LISTS);
        // Where page lists are short, as in tests, each CPU has a depot of its own; else each group of CPUs.
        let depot_bits = if memory.options().list_high < SHORT_LISTS { 0 } else { GROUP_BITS };
        let nr_cpus = memory.nr_cpus();
        let depot = |place| CachePadded::new(SpinMutex::classed(Depot::new(memory.clone(), geometry, place)));
        let core = SlabCore {
            magazines: PerCpu::new(nr_cpus, |_| Magazine::new(magazine_high)),
            depots: (0..nr_cpus.div_ceil(1 << depot_bits)).map(depot).collect(),
            depot_bits,
            memory: memory.clone(),
            geometry,
            magazine_high,
            magazine_batch: memory.options().list_batch.min(MAGAZINE_BATCH),
        };
        if P::WATCHED {
            core.depots
                .iter()
                .for_each(|depot| P::trace(Tracepoint::named("a store of objects that CPUs share", depot)));
        }
        Self { core: ManuallyDrop::new(Box::new(core)), objects: PhantomData }
    }

    /// Takes an object. May sleep, to wait for frames and objects that are freed after a grace period.
    #[inline]
    pub fn alloc(&self) -> Result<NonNull<T>, OutOfFrames> {
        self.core.memory.may_sleep();
        let object = self.core.try_alloc().or_else(|refusal| self.core.alloc_after_flush(refusal, &NoReclaim));
        object.map(|object| self.core.pointer(object))
    }

    /// Takes an object, without ever sleeping: for callers in an RCU section, or with a spin lock.
    #[inline]
    pub fn try_alloc(&self) -> Result<NonNull<T>, OutOfFrames> {
        self.core.try_alloc().map(|object| self.core.pointer(object))
    }

    /// Takes an object; asks `reclaim` for more frames as long as there are none. May sleep.
    /// For a caller that can free frames itself; [`Reclaim`] has an example.
    pub fn alloc_or_reclaim(&self, reclaim: &dyn Reclaim) -> Result<NonNull<T>, OutOfFrames> {
        self.core.memory.may_sleep();
        let object = self.core.try_alloc().or_else(|refusal| self.core.alloc_after_flush(refusal, reclaim));
        object.map(|object| self.core.pointer(object))
    }

    /// Frees an object, into the calling CPU's magazine: the next allocation there gets it. Never sleeps.
    ///
    /// # Safety
    /// `object` came from this slab and wasn't freed since; nobody uses it from now on.
    #[inline]
    pub unsafe fn free(&self, object: NonNull<T>) {
        self.core.free(object.cast());
    }

    /// Frees an object once every RCU section that runs now has ended. Never sleeps, never allocates.
    ///
    /// # Safety
    /// `object` came from this slab and wasn't freed since; only readers inside RCU sections that have begun already go
    /// on using it.
    pub unsafe fn free_deferred(&self, object: NonNull<T>) {
        // Not by the caller's pointer, which may come from a reference to less than the slot.
        let slot = self.core.pointer::<u8>(object.as_ptr().addr());
        // SAFETY: the head has a place in the object's slot, which nobody else uses now.
        let head = unsafe { slot.add(self.core.geometry.head_offset).cast::<RcuHead<P>>() };
        // SAFETY: the place is aligned and nobody else's.
        unsafe { head.write(RcuHead::new()) };
        self.core.magazines.here().nr_deferred.add(1);
        // SAFETY: the slot stays in place and isn't given out before `release` frees it, taking the depot's and the
        // zone's lock alone.
        unsafe { self.core.memory.rcu().defer(head, release::<P, F>) };
    }

    /// Gives all CPUs' free objects back to their frames, and the empty frames to the memory. Never sleeps.
    pub fn drain(&self) {
        let _moving = self.core.magazines.here().objects.begin_move();
        // SAFETY: a frame that a depot gives up is nobody's any more.
        self.core.drain(|pfn| unsafe { self.core.memory.free(pfn) });
    }

    /// Returns how many objects are given out, deferred ones included; exact while nobody allocates or frees.
    pub fn nr_live(&self) -> usize {
        self.core.sum(|magazine| &magazine.nr_live)
    }

    /// Returns how many objects wait for a grace period; exact while nobody frees any.
    pub fn nr_deferred(&self) -> usize {
        self.core.sum(|magazine| &magazine.nr_deferred)
    }

    /// Returns how many frames the cache holds.
    pub fn nr_frames(&self) -> usize {
        self.core.depots.iter().map(|depot| depot.lock().nr_frames()).sum()
    }

    /// Returns how many objects a frame holds.
    pub fn objects_per_frame(&self) -> usize {
        self.core.geometry.nr_slots as usize
    }
}

/// Dropping a slab returns the frames without objects in use; needs no CPU slot. Flush the [`Rcu`](faultless_sync::Rcu)
/// before: while deferred objects wait, the slab's frames and magazines are left as they are, for good.
impl<P: Platform, T, F: FrameSource<P>> Drop for Slab<P, T, F> {
    fn drop(&mut self) {
        if self.nr_deferred() != 0 {
            return;
        }
        // SAFETY: as in `drain`.
        self.core.drain(|pfn| unsafe { self.core.memory.free_without_cpu(pfn) });
        // SAFETY: not used again; nothing points to the core but frames whose objects nobody will free (I3).
        unsafe { ManuallyDrop::drop(&mut self.core) };
    }
}

impl<P: Platform> Magazine<P> {
    fn new(high: usize) -> Self {
        Self { objects: Stash::new(high + 2), nr_live: CounterCell::new(), nr_deferred: CounterCell::new() }
    }
}

impl<P: Platform, F: FrameSource<P>> SlabCore<P, F> {
    /// Returns the object at an address, as a pointer that may reach its frame.
    #[inline(always)]
    fn pointer<T>(&self, object: usize) -> NonNull<T> {
        // SAFETY: stores and maps hold addresses of the slab's objects alone, which lie in its frames.
        unsafe { self.memory.pointer(object).cast() }
    }

    #[inline(always)]
    fn try_alloc(&self) -> Result<usize, OutOfFrames> {
        if self.memory.strikes() {
            return Err(self.memory.refusal(0, Cause::Injected));
        }
        self.take()
    }

    #[inline(always)]
    fn take(&self) -> Result<usize, OutOfFrames> {
        let magazine = self.magazines.here();
        let object = match magazine.objects.pop_hot() {
            Some(object) => object,
            None => self.take_slow(magazine)?,
        };
        magazine.nr_live.add(1);
        if self.memory.options().poison {
            self.check_poison(object);
        }
        Ok(object)
    }

    /// 1. what this CPU's depot has, or a frame more, and the magazine's last; 2. one object of anywhere, or a frame.
    #[cold]
    fn take_slow(&self, magazine: &Magazine<P>) -> Result<usize, OutOfFrames> {
        let object = self.refill(magazine).or_else(|| self.search());
        object.ok_or(self.memory.refusal(0, Cause::Exhausted))
    }

    /// Fills the magazine up from the depot, and takes one.
    fn refill(&self, magazine: &Magazine<P>) -> Option<usize> {
        let _moving = magazine.objects.begin_move();
        let mut batch = Batch::new();
        {
            let mut depot = self.depots[self.depot_here()].lock();
            batch.fill(self.magazine_batch, || depot.take());
            if batch.len() == 0 && self.add_frame(&mut depot) {
                batch.fill(self.magazine_batch, || depot.take());
            }
        }
        let first = batch.take_first();
        magazine.objects.push_batch(&batch);
        first.or_else(|| magazine.objects.pop())
    }

    fn depot_here(&self) -> usize {
        P::cpu() >> self.depot_bits
    }

    /// Adds a frame to a depot, if there is one. Inside a move, or a search.
    fn add_frame(&self, depot: &mut Depot<P, F>) -> bool {
        // Never sleeps, and takes zones' locks alone.
        let Ok(pfn) = self.memory.take_alive(0) else { return false };
        if self.memory.options().poison {
            // SAFETY: the frame was just given out to us.
            unsafe { poison::fill::<P>(self.memory.frame(pfn), PAGE_BYTES) };
        }
        depot.adopt(pfn, core::ptr::from_ref(self).cast());
        true
    }

    /// Takes an object from any depot, of a frame more, or from any magazine.
    fn search(&self) -> Option<usize> {
        let of_depots = || self.depots.iter().find_map(|depot| depot.lock().take());
        let of_frame = || {
            let mut depot = self.depots[self.depot_here()].lock();
            if self.add_frame(&mut depot) { depot.take() } else { None }
        };
        let stashes = || self.magazines.iter().map(|magazine| &magazine.objects);
        stash::search(stashes, || of_depots().or_else(of_frame))
    }

    /// 1. what waits for a grace period; 2. what the caller can reclaim, as long as it finds something.
    #[cold]
    fn alloc_after_flush(&self, refusal: OutOfFrames, reclaim: &dyn Reclaim) -> Result<usize, OutOfFrames> {
        if refusal.cause != Cause::Exhausted {
            return Err(refusal);
        }
        loop {
            self.memory.rcu().flush();
            let object = self.take();
            if object.is_ok() || reclaim.reclaim(Shortage { zone: refusal.zone, order: 0, nodes: NodeSet::ALL }) == 0 {
                return object;
            }
        }
    }

    #[inline(always)]
    fn free(&self, object: NonNull<u8>) {
        if self.memory.options().poison {
            self.poison(object);
        }
        let magazine = self.magazines.here();
        magazine.nr_live.sub(1);
        if magazine.objects.push(object.as_ptr().addr()) > self.magazine_high {
            self.spill(magazine);
        }
    }

    /// Gives a magazine's coldest objects back.
    #[cold]
    fn spill(&self, magazine: &Magazine<P>) {
        let _moving = magazine.objects.begin_move();
        let shed = magazine.objects.shed(self.magazine_batch);
        let mut objects = shed.map(|object| (self.depot_of(object), object)).peekable();
        while let Some(&(place, _)) = objects.peek() {
            let mut depot = self.depots[place].lock();
            while let Some((_, object)) = objects.next_if(|&(other, _)| other == place) {
                // SAFETY: as in `drain`.
                depot.give(object).into_iter().for_each(|pfn| unsafe { self.memory.free(pfn) });
            }
        }
    }

    /// Returns the depot of an object's frame.
    fn depot_of(&self, object: usize) -> usize {
        depot::place_of(&self.memory, object).min(self.depots.len() - 1)
    }

    /// Takes the objects out of all magazines. Inside a move, or alone.
    fn drain(&self, free: impl Fn(Pfn)) {
        for magazine in self.magazines.iter() {
            while let Some(object) = magazine.objects.steal() {
                self.depots[self.depot_of(object)].lock().give(object).into_iter().for_each(&free);
            }
        }
    }

    fn sum(&self, counter: impl Fn(&Magazine<P>) -> &CounterCell<P>) -> usize {
        let sum = self.magazines.iter().fold(0_u64, |sum, magazine| sum.wrapping_add(counter(magazine).get()));
        // A reading amid changes may come out negative.
        usize::try_from(sum.cast_signed()).unwrap_or(0)
    }

    #[cold]
    fn poison(&self, object: NonNull<u8>) {
        // Not by the caller's pointer, which may come from a reference to less than the slot.
        let slot = self.pointer::<u8>(object.as_ptr().addr()).as_ptr();
        // SAFETY: the object was given back by its sole owner and is in no magazine yet.
        unsafe { poison::fill::<P>(slot, self.geometry.object_bytes) };
    }

    #[cold]
    fn check_poison(&self, object: usize) {
        let pointer = self.pointer::<u8>(object).as_ptr();
        // SAFETY: the object is in no magazine any more and not given out yet.
        unsafe { poison::check::<P>(pointer, self.geometry.object_bytes, &format_args!("the object at {object:#x}")) };
    }
}

/// Frees an object whose grace period is over.
///
/// # Safety
/// `head` stands in the slot of a deferred object of a slab of `T`.
unsafe fn release<P: Platform, F: FrameSource<P>>(head: NonNull<RcuHead<P>>) {
    // SAFETY: the head was made from a pointer to the object's frame, which has its slab's place at its end.
    let core = unsafe { depot::slab_of(head.cast()) }.cast::<SlabCore<P, F>>();
    // SAFETY: a slab with deferred objects keeps its core (I3).
    let core = unsafe { &*core };
    core.magazines.here().nr_deferred.sub(1);
    // SAFETY: the head stands `head_offset` behind its object.
    core.free(unsafe { head.cast::<u8>().sub(core.geometry.head_offset) });
}
