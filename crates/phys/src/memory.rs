//! Physical memory: what callers allocate frames from.
//!
//! # Guarantee
//! A frame given out belongs to the caller alone until it is freed. An allocation fails only if at some instant during
//! the call no frame was free and, where it may sleep, none waited for a grace period or could be reclaimed.
//!
//! # Invariants
//! * I1 a frame is free, given out, or deferred; its metadata says which.
//! * I2 `Core` stays where it is from set-up on: the region's anchor points to it.

use crate::audit::{Audit, FrameInfo};
use crate::error::{Cause, OutOfFrames, SetupError};
use crate::frames::Frames;
use crate::high::Division;
use crate::inject::{Failing, Injector};
use crate::options::Options;
use crate::page::Page;
use crate::pfn::Pfn;
use crate::policy::{NodeStats, Policy};
use crate::reclaim::{NoReclaim, Reclaim, Shortage};
use crate::source::FrameSource;
use crate::state::State;
use crate::zones::Zones;
use crate::{MAX_ORDER, poison};
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::mem::ManuallyDrop;
use core::ops::Range;
use core::ptr::NonNull;
use faultless_platform::{Atomic, Bulk, HighZone, Holds, MAX_CPUS, NodeSet, Nodes, Ordering, PAGE_BYTES, Platform};
use faultless_sync::Rcu;

/// The frames of one region of memory; a handle, of which clones name the same memory.
///
/// Cloning and dropping handles is for set-up; what is deferred when the last one is dropped stays so. See the [crate]
/// for an example, and for what may be called from where.
///
/// What a kernel or a hypervisor does with frames of its own:
///
/// ```
/// use faultless_phys::{Audit, Cause, Failing, Kind, MAX_ORDER, Memory, Options, OutOfFrames, TableLock, ZoneKind};
/// use faultless_sync::RawSpinLock;
/// # use faultless_platform::native::{HostRegion, Machine, Native};
/// # let (machine, region) = (Machine::new(2), HostRegion::reserve(8 << 20)?);
/// # // SAFETY: the region is ours and outlives the memory.
/// # let memory = unsafe { Memory::<Native>::new(region.base(), region.len_bytes(), 2, Options::default())? };
///
/// machine.attach(|| {
///     let (one, row) = (memory.alloc()?, memory.alloc_order(2)?);
///     assert!(memory.alloc_order(MAX_ORDER + 1).is_err() && !memory.options().poison);
///     assert!(memory.contains(one) && row.get() % 4 == 0);
///     assert_eq!(memory.pfn_of(memory.frame(one)), Some(one));
///     // The lock in its metadata: that of a page table, if it is one.
///     let lock: &RawSpinLock<Native, TableLock> = memory.page(one).lock();
///     drop(lock.guard());
///     // A second holder; whoever puts last frees.
///     assert!(memory.page(one).try_get());
///     // SAFETY: both references are ours, and nobody uses the frames any more.
///     unsafe {
///         assert!(!memory.put(one));
///         assert!(memory.put(one));
///         memory.free_order(row, 2);
///     }
///
///     // In an RCU section or under a spin lock: never waits.
///     let unread = memory.try_alloc_zeroed()?;
///     // SAFETY: the frame is ours; readers may go on until the grace period is over.
///     unsafe { memory.free_deferred(unread) };
///     memory.rcu().flush();
///
///     // What a test of an error path asks for.
///     memory.set_failing(Failing::Once(1));
///     let refusal: OutOfFrames = memory.try_alloc().expect_err("a test wants it");
///     assert_eq!(refusal.zone(), ZoneKind::Normal);
///     assert_eq!((refusal.cause(), refusal.order(), memory.failing()), (Cause::Injected, 0, Failing::Never));
///
///     // Nothing is lost.
///     memory.drain_cpu_lists();
///     let audit: Audit = memory.audit();
///     assert!(audit.is_clean() && audit.nr_of(Kind::Anonymous) == 0 && audit.nr_in_use() == 0);
///     assert_eq!(memory.nr_free(), memory.nr_frames());
///     Ok::<(), faultless_phys::OutOfFrames>(())
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Memory<P: Platform> {
    core: Arc<Core<P>>,
}

impl<P: Platform> Clone for Memory<P> {
    fn clone(&self) -> Self {
        Self { core: Arc::clone(&self.core) }
    }
}

/// What all handles share.
pub(crate) struct Core<P: Platform> {
    pub(crate) rcu: Rcu<P>,
    pub(crate) frames: Frames<P>,
    zones: Zones<P>,
    pub(crate) options: Options,
    pub(crate) nr_cpus: usize,
    injector: Injector<P>,
    /// How the memory is divided; null if it is not. The core's own.
    division: P::AtomicPtr<Division<P>>,
}

impl<P: Platform> Core<P> {
    fn tell_names(&self) {
        P::trace(self.frames.named("a frame's metadata (its count of references)"));
        self.zones.tell_names();
        self.rcu.tell_names();
    }
}

impl<P: Platform> Drop for Core<P> {
    fn drop(&mut self) {
        if !P::HAS_HIGH_MEMORY {
            return;
        }
        // Relaxed: the last handle goes.
        let division = self.division.load(Ordering::Relaxed);
        if !division.is_null() {
            // SAFETY: `divide` made it from a box, and nobody has it any more.
            drop(unsafe { Box::from_raw(division) });
        }
    }
}

impl<P: Platform> Memory<P> {
    /// Makes a memory of a region, for a machine of `nr_cpus` CPU slots.
    ///
    /// Metadata takes one 64th of the region, at its start. Nothing but one line of it is written, however large the
    /// region is. Allocates the per-CPU lists from the global allocator; nothing else does, ever.
    ///
    /// # Safety
    /// The region is valid for reads and writes, all zeros, and used by nobody else until the last handle, the last
    /// [`Slab`](crate::Slab), and the last use of a frame. The memory, and what is made over it, is used by the threads
    /// of one machine: what belongs to a CPU slot is told apart by the slot's number alone.
    pub unsafe fn new(
        region: NonNull<u8>,
        len_bytes: usize,
        nr_cpus: usize,
        options: Options,
    ) -> Result<Self, SetupError> {
        // SAFETY: passed on as promised.
        unsafe { Self::with_nodes(region, len_bytes, nr_cpus, &Nodes::one(), options) }
    }

    /// As [`Memory::new`], on a machine with NUMA nodes: each has a row of the region's frames, as many as the others.
    ///
    /// [`Memory::for_each_place`] says which addresses are whose, for a machine that puts them there.
    ///
    /// # Safety
    /// As for [`Memory::new`].
    pub unsafe fn with_nodes(
        region: NonNull<u8>,
        len_bytes: usize,
        nr_cpus: usize,
        nodes: &Nodes,
        options: Options,
    ) -> Result<Self, SetupError> {
        options.check()?;
        if !(1..=MAX_CPUS).contains(&nr_cpus) {
            return Err(SetupError::BadCpuCount { nr_cpus });
        }
        // SAFETY: as the caller promises.
        let frames = unsafe { Frames::new(region, len_bytes)? };
        let core = Arc::new(Core {
            rcu: Rcu::new(nr_cpus),
            frames,
            zones: Zones::new(frames, nr_cpus, nodes, &options),
            options,
            nr_cpus,
            injector: Injector::new(),
            division: P::AtomicPtr::new(core::ptr::null_mut()),
        });
        frames.set_anchor(Arc::as_ptr(&core).cast());
        Ok(Self { core })
    }

    /// Takes a frame; its content is anything.
    ///
    /// May sleep, to wait for frames that are freed after a grace period.
    #[inline]
    pub fn alloc(&self) -> Result<Pfn, OutOfFrames> {
        self.core.may_sleep();
        match self.core.try_alloc() {
            Ok(pfn) => Ok(pfn),
            Err(refusal) => self.core.alloc_slow(refusal, Policy::Local, &NoReclaim),
        }
    }

    /// Takes a frame, without ever sleeping: for callers in an RCU section or with a spin lock held.
    ///
    /// Fails although frames wait for a grace period.
    #[inline]
    pub fn try_alloc(&self) -> Result<Pfn, OutOfFrames> {
        self.core.try_alloc()
    }

    /// Takes a frame; asks `reclaim` for more as long as there are none. May sleep.
    #[inline]
    pub fn alloc_or_reclaim(&self, reclaim: &dyn Reclaim) -> Result<Pfn, OutOfFrames> {
        self.core.may_sleep();
        match self.core.try_alloc() {
            Ok(pfn) => Ok(pfn),
            Err(refusal) => self.core.alloc_slow(refusal, Policy::Local, reclaim),
        }
    }

    /// Takes a frame filled with zeros. May sleep.
    #[inline]
    pub fn alloc_zeroed(&self) -> Result<Pfn, OutOfFrames> {
        let pfn = self.alloc()?;
        self.zero(pfn);
        Ok(pfn)
    }

    /// Takes a frame filled with zeros, without ever sleeping.
    #[inline]
    pub fn try_alloc_zeroed(&self) -> Result<Pfn, OutOfFrames> {
        let pfn = self.try_alloc()?;
        self.zero(pfn);
        Ok(pfn)
    }

    /// Takes `1 << order` frames in a row, the first at a multiple of as many. May sleep.
    ///
    /// References are counted on the first frame alone.
    pub fn alloc_order(&self, order: u8) -> Result<Pfn, OutOfFrames> {
        let core = &self.core;
        core.may_sleep();
        core.try_alloc_order(order, Policy::Local)
            .or_else(|refusal| core.alloc_slow(refusal, Policy::Local, &NoReclaim))
    }

    /// Takes a row of frames as [`Memory::alloc_order`] does, asking `reclaim` as long as there is none. May sleep.
    /// For a caller that can free frames itself, such as a cache of file pages.
    pub fn alloc_order_or_reclaim(&self, order: u8, reclaim: &dyn Reclaim) -> Result<Pfn, OutOfFrames> {
        self.alloc_order_by(order, Policy::Local, reclaim)
    }

    /// Takes a frame from the nodes that `policy` says. May sleep.
    pub fn alloc_by(&self, policy: Policy) -> Result<Pfn, OutOfFrames> {
        self.alloc_order_by(0, policy, &NoReclaim)
    }

    /// Takes a frame from the nodes that `policy` says, without ever sleeping.
    /// As [`Memory::alloc_by`], for those who must not wait.
    pub fn try_alloc_by(&self, policy: Policy) -> Result<Pfn, OutOfFrames> {
        self.core.try_alloc_order(0, policy)
    }

    /// Takes a row of `1 << order` frames from the nodes that `policy` says, asking `reclaim` as long as there is
    /// none. May sleep.
    /// A kernel with a policy for each area or process calls it; [`Policy`] has an example.
    pub fn alloc_order_by(&self, order: u8, policy: Policy, reclaim: &dyn Reclaim) -> Result<Pfn, OutOfFrames> {
        let core = &self.core;
        core.may_sleep();
        core.try_alloc_order(order, policy).or_else(|refusal| core.alloc_slow(refusal, policy, reclaim))
    }

    /// Frees a frame, onto the calling CPU's list: the next allocation there gets it. Never sleeps.
    ///
    /// # Safety
    /// `pfn` came from this memory's allocation of a single frame and wasn't freed since. The caller is its sole owner
    /// (its one reference, or `Page::put` said that it was the last), and nobody uses the frame from now on, by its
    /// address or by a translation on any CPU.
    #[inline]
    pub unsafe fn free(&self, pfn: Pfn) {
        // SAFETY: passed on.
        unsafe { FrameSource::free(self, pfn) }
    }

    /// Frees a row of frames, with the order that it was allocated with. Never sleeps.
    ///
    /// # Safety
    /// As for [`Memory::free`], for the row.
    pub unsafe fn free_order(&self, pfn: Pfn, order: u8) {
        // SAFETY: passed on.
        unsafe { FrameSource::free_order(self, pfn, order) }
    }

    /// Gives a reference back and frees the frame if it was the last; says whether it did. Never sleeps.
    ///
    /// # Safety
    /// The caller has a reference to a single frame and gives it up. Should it be the last, nobody uses the frame.
    #[inline]
    pub unsafe fn put(&self, pfn: Pfn) -> bool {
        // SAFETY: passed on.
        unsafe { FrameSource::put(self, pfn) }
    }

    /// Frees a frame once every RCU section that runs now has ended. Never sleeps, never allocates. Readers may read
    /// it, and its metadata's lock, links, owner and index, until then.
    ///
    /// The freeing is done by [`Rcu::poll`], which the embedder calls now and then where it holds no lock, or by an
    /// allocation that finds nothing else.
    ///
    /// # Safety
    /// As for [`Memory::free`], but readers inside RCU sections that have begun already may go on using the frame.
    pub unsafe fn free_deferred(&self, pfn: Pfn) {
        // SAFETY: passed on.
        unsafe { FrameSource::free_deferred(self, pfn) }
    }

    /// Returns a frame's first byte, aligned to a page; valid for reads and writes of a page by whoever owns the frame.
    #[inline]
    pub fn frame(&self, pfn: Pfn) -> *mut u8 {
        self.core.frames.frame(pfn)
    }

    /// Returns the frame that holds an address of the host, if one does.
    #[inline]
    pub fn pfn_of(&self, address: *const u8) -> Option<Pfn> {
        self.core.frames.pfn_of(address)
    }

    /// Says whether this memory has such a frame; those that hold metadata don't count.
    #[inline]
    pub fn contains(&self, pfn: Pfn) -> bool {
        self.core.frames.contains(pfn)
    }

    /// Returns a frame's metadata.
    ///
    /// # Panics
    /// If [`Memory::contains`] says no.
    #[inline]
    pub fn page(&self, pfn: Pfn) -> &Page<P> {
        self.core.frames.page(pfn)
    }

    /// Returns how many frames are free; exact while nobody allocates or frees. Deferred ones aren't free yet.
    pub fn nr_free(&self) -> usize {
        self.core.nr_free()
    }

    /// Returns how many frames there are to allocate.
    pub fn nr_frames(&self) -> usize {
        self.core.zones.nr_frames()
    }

    /// Returns how many NUMA nodes there are.
    /// Called by reports that go through [`Memory::node_stats`].
    pub fn nr_nodes(&self) -> usize {
        self.core.zones.nodes().len()
    }

    /// Returns a frame's NUMA node.
    ///
    /// # Panics
    /// If [`Memory::contains`] says no.
    pub fn node_of(&self, pfn: Pfn) -> usize {
        assert!(self.contains(pfn), "{pfn} is outside the memory");
        self.core.zones.node_of(pfn)
    }

    /// Returns what is known of a NUMA node; exact while nobody allocates or frees.
    ///
    /// # Panics
    /// If there is no such node.
    pub fn node_stats(&self, node: usize) -> NodeStats {
        assert!(node < self.nr_nodes(), "node {node}: there are {}", self.nr_nodes());
        self.core.zones.stats(node)
    }

    /// Visits each node's memory, its frames and their metadata: node, first byte, length in bytes. What lies there
    /// stays where it is.
    /// Called once by whoever sets a machine up.
    pub fn for_each_place(&self, mut visit: impl FnMut(usize, *const u8, usize)) {
        let core = &self.core;
        for (node, range) in core.zones.ranges().enumerate().filter(|(_, range)| !range.is_empty()) {
            let (first, nr_frames) = (Pfn::new(range.start), range.len());
            visit(node, core.frames.page_pointer(first).as_ptr().cast(), nr_frames * size_of::<Page<P>>());
            visit(node, core.frames.frame(first), nr_frames * PAGE_BYTES);
        }
    }

    /// Divides the memory: frames from an address on have none of their own, and hold only what may lie there. Called
    /// by whoever sets the machine up, once, before frames are taken, on a platform that has high memory.
    ///
    /// # Panics
    /// If the platform has none (`Platform::HAS_HIGH_MEMORY`), or the memory is divided already.
    pub fn divide(&self, zone: HighZone) {
        assert!(P::HAS_HIGH_MEMORY, "this platform has no high memory");
        let (first, end) = (self.core.frames.first(), self.core.frames.end());
        let begin = (first..end).find(|&number| self.frame(Pfn::new(number)).addr() >= zone.begin).unwrap_or(end);
        let division = Box::into_raw(Division::new(begin, zone, self.core.nr_cpus));
        // ORDER: Release pairs with the Acquire in `Core::division`. Relaxed on failure: nothing is read.
        let before =
            self.core.division.compare_exchange(core::ptr::null_mut(), division, Ordering::Release, Ordering::Relaxed);
        if before.is_err() {
            // SAFETY: made above, and seen by nobody.
            drop(unsafe { Box::from_raw(division) });
            panic!("the memory is divided already");
        }
    }

    /// Says whether a frame has no address of its own.
    /// Asked by whoever maps frames for a moment before they are used: a frame below has an address.
    pub fn is_high(&self, pfn: Pfn) -> bool {
        self.core.division().is_some_and(|division| division.is_high(pfn))
    }

    /// Gives the frames on all CPUs' lists back to the buddy allocator, where they merge.
    pub fn drain_cpu_lists(&self) {
        if let Some(division) = self.core.division() {
            self.core.merge_aside(division);
        }
        self.core.zones.drain();
    }

    /// Returns the RCU whose grace periods deferred frames and objects wait for; an address space shares it.
    #[inline]
    pub fn rcu(&self) -> &Rcu<P> {
        &self.core.rcu
    }

    /// Returns what the memory was set up with.
    pub fn options(&self) -> &Options {
        &self.core.options
    }

    /// Lets allocations of frames and objects fail on request, on whichever CPU they come; for tests.
    pub fn set_failing(&self, failing: Failing) {
        self.core.injector.set(failing);
    }

    /// Returns which allocations are still to fail: [`Failing::Never`] after [`Failing::Once`] has struck.
    pub fn failing(&self) -> Failing {
        self.core.injector.get()
    }

    #[inline]
    fn zero(&self, pfn: Pfn) {
        // SAFETY: the frame was just given out to us, and `frame` is page-aligned.
        unsafe { P::bulk(self.frame(pfn), Bulk::Zero) };
    }
}

impl<P: Platform> Core<P> {
    #[inline(always)]
    pub(crate) fn try_alloc(&self) -> Result<Pfn, OutOfFrames> {
        if self.strikes() {
            return Err(self.refusal(0, Policy::Local, Cause::Injected));
        }
        self.take().ok_or_else(|| self.refusal(0, Policy::Local, Cause::Exhausted))
    }

    /// Notes that the caller may be put to sleep. With poison on, a caller that must not is found even if it isn't.
    ///
    /// # Panics
    /// With poison on, inside an RCU section.
    #[inline(always)]
    pub(crate) fn may_sleep(&self) {
        if self.options.poison {
            self.check_context();
        }
    }

    #[cold]
    fn check_context(&self) {
        assert!(!self.rcu.is_reading(), "an allocation that may sleep is made inside an RCU section: use try_alloc");
    }

    /// Counts an allocation; says whether it must fail.
    #[inline(always)]
    pub(crate) fn strikes(&self) -> bool {
        self.injector.strikes()
    }

    #[inline(always)]
    fn take(&self) -> Option<Pfn> {
        let pfn = self.take_one(None)?;
        self.hand_out(pfn, 0);
        Some(pfn)
    }

    /// Returns how the memory is divided, if it is.
    #[inline(always)]
    fn division(&self) -> Option<&Division<P>> {
        if !P::HAS_HIGH_MEMORY {
            return None;
        }
        // ORDER: Acquire pairs with the Release in `divide`.
        // SAFETY: it lives as long as the core.
        unsafe { self.division.load(Ordering::Acquire).as_ref() }
    }

    /// Takes a frame from the zones, to hold such a thing.
    #[inline(always)]
    fn take_one(&self, holds: Option<Holds>) -> Option<Pfn> {
        match self.division() {
            None => self.zones.take(),
            Some(division) => division.take(&self.frames, holds, || self.zones.take()),
        }
    }

    fn nr_free(&self) -> usize {
        self.zones.nr_free() + self.division().map_or(0, Division::nr_aside)
    }

    /// Takes a block of several frames from the zones: from normal memory, if there is a division.
    fn take_row(&self, order: u8, policy: Policy) -> Option<Pfn> {
        let Some(division) = self.division() else { return self.zones.take_block(order, policy) };
        let found = self.take_normal_row(division, order, policy);
        if found.is_some() || !self.merge_aside(division) {
            return found;
        }
        self.take_normal_row(division, order, policy)
    }

    /// Lets frames merge that were put aside for the other zone; says whether there were any.
    fn merge_aside(&self, division: &Division<P>) -> bool {
        division.give_back(&self.frames, |pfn| self.zones.put_past_list(pfn, 0))
    }

    fn take_normal_row(&self, division: &Division<P>, order: u8, policy: Policy) -> Option<Pfn> {
        let (mut aside, mut found) = (None::<Pfn>, None);
        while let Some(first) = self.zones.take_block(order, policy) {
            if division.is_normal(first, order) {
                found = Some(first);
                break;
            }
            // Relaxed: the frames are the caller's own.
            let link = &self.frames.page(first).links()[0];
            link.store(aside.map_or(0, |next| u64::from(next.get())), Ordering::Relaxed);
            aside = Some(first);
        }
        while let Some(first) = aside {
            // Relaxed: as above.
            let next = self.frames.page(first).links()[0].load(Ordering::Relaxed) as u32;
            aside = (next != 0).then(|| Pfn::new(next));
            self.zones.put_block(first, order);
        }
        found
    }

    fn try_alloc_order(&self, order: u8, policy: Policy) -> Result<Pfn, OutOfFrames> {
        if order > MAX_ORDER {
            return Err(self.refusal(order, policy, Cause::OrderTooHigh));
        }
        if self.strikes() {
            return Err(self.refusal(order, policy, Cause::Injected));
        }
        self.take_order(order, policy).ok_or_else(|| self.refusal(order, policy, Cause::Exhausted))
    }

    fn take_order(&self, order: u8, policy: Policy) -> Option<Pfn> {
        let pfn = match order {
            0 => match self.division() {
                None => self.zones.take_by(policy)?,
                Some(division) => division.take(&self.frames, None, || self.zones.take_by(policy))?,
            },
            _ => self.take_row(order, policy)?,
        };
        self.hand_out(pfn, order);
        Some(pfn)
    }

    /// 1. what waits for a grace period; 2. what the caller can reclaim, as long as it finds something.
    #[cold]
    fn alloc_slow(&self, refusal: OutOfFrames, policy: Policy, reclaim: &dyn Reclaim) -> Result<Pfn, OutOfFrames> {
        if refusal.cause != Cause::Exhausted {
            return Err(refusal);
        }
        let order = refusal.order;
        loop {
            self.rcu.flush();
            if let Some(pfn) = self.take_order(order, policy) {
                return Ok(pfn);
            }
            if reclaim.reclaim(Shortage { zone: refusal.zone, order, nodes: policy.allowed() }) == 0 {
                return Err(refusal);
            }
        }
    }

    #[inline]
    pub(crate) fn refusal(&self, order: u8, policy: Policy, cause: Cause) -> OutOfFrames {
        let nr_frames = match policy.allowed() {
            NodeSet::ALL => self.zones.nr_frames(),
            allowed => self.zones.nr_frames_of(allowed),
        };
        OutOfFrames { zone: self.zones.kind(), nr_frames, order, cause }
    }

    #[inline(always)]
    fn hand_out(&self, pfn: Pfn, order: u8) {
        if self.options.poison {
            self.check_poison(pfn, order);
        }
        self.frames.page(pfn).start_counting(State::given(order, self.options.refcount_bits));
    }

    /// Ends the life of a block that is about to be free.
    #[inline(always)]
    fn retire(&self, pfn: Pfn, order: u8) {
        let page = self.frames.page(pfn);
        let state = page.state();
        assert!(state.is_in_use(order), "I1: {pfn} is freed, but is no block of order {order} in use");
        page.clear();
        page.set_state(State::FREE);
        if self.options.poison {
            self.poison(pfn, order);
        }
    }

    fn block(pfn: Pfn, order: u8) -> impl Iterator<Item = Pfn> {
        (pfn.get()..pfn.get() + (1 << order)).map(Pfn::new)
    }

    #[cold]
    fn poison(&self, pfn: Pfn, order: u8) {
        for pfn in Self::block(pfn, order) {
            // SAFETY: the frame was given back by its sole owner and is on no list yet.
            unsafe { poison::fill::<P>(P::in_hardware(self.frames.frame(pfn)), PAGE_BYTES) };
            self.frames.page(pfn).set_state(State::FREE.with_poison());
        }
    }

    #[cold]
    fn check_poison(&self, pfn: Pfn, order: u8) {
        for pfn in Self::block(pfn, order) {
            let page = self.frames.page(pfn);
            if page.state().is_poisoned() {
                // SAFETY: the frame is on no list any more and not given out yet.
                unsafe { poison::check::<P>(P::in_hardware(self.frames.frame(pfn)), PAGE_BYTES, &pfn) };
                page.set_state(State::FREE);
            }
        }
    }
}

// SAFETY: F1: the zones hand out each frame once, rows as the buddy allocator makes them. F2 to F5: the region's frames
// and metadata stand at fixed places, numbers and addresses differ by a constant; frame 0 holds metadata. F6: handles
// count. F7: the anchor leads to the core. F8: the core's own.
unsafe impl<P: Platform> FrameSource<P> for Memory<P> {
    #[inline(always)]
    fn take(&self, order: u8) -> Result<Pfn, Cause> {
        match order {
            0 => self.core.take_one(None).ok_or(Cause::Exhausted),
            1..=MAX_ORDER => self.core.take_row(order, Policy::Local).ok_or(Cause::Exhausted),
            _ => Err(Cause::OrderTooHigh),
        }
    }

    #[inline(always)]
    fn take_for(&self, holds: Option<Holds>) -> Result<Pfn, Cause> {
        self.core.take_one(holds).ok_or(Cause::Exhausted)
    }

    #[inline(always)]
    unsafe fn give(&self, first: Pfn, order: u8) {
        match order {
            0 => self.core.zones.put(first),
            _ => self.core.zones.put_block(first, order),
        }
    }

    unsafe fn give_without_cpu(&self, first: Pfn, order: u8) {
        self.core.zones.put_past_list(first, order);
    }

    unsafe fn release(page: NonNull<Page<P>>, pfn: Pfn) {
        // SAFETY: the metadata stands behind the region's anchor.
        let core = unsafe { Frames::memory_of(page, pfn.get()) }.cast::<Core<P>>();
        // SAFETY: callbacks run from the core's own RCU, so that a handle is alive (I2), whose count stays as it is.
        let memory = ManuallyDrop::new(Self { core: unsafe { Arc::from_raw(core) } });
        // SAFETY: as promised.
        unsafe { memory.finish_deferral(pfn) };
    }

    #[inline(always)]
    fn page_pointer(&self, pfn: Pfn) -> NonNull<Page<P>> {
        self.core.frames.page_pointer(pfn)
    }

    #[inline(always)]
    fn frame(&self, pfn: Pfn) -> *mut u8 {
        self.core.frames.frame(pfn)
    }

    #[inline]
    fn pfn_of(&self, address: *const u8) -> Option<Pfn> {
        self.core.frames.pfn_of(address)
    }

    #[inline(always)]
    fn tell_names(&self) {
        self.core.tell_names();
    }
    unsafe fn pointer(&self, address: usize) -> NonNull<u8> {
        // SAFETY: passed on as promised.
        unsafe { self.core.frames.pointer(address) }
    }

    #[inline]
    fn contains(&self, pfn: Pfn) -> bool {
        self.core.frames.contains(pfn)
    }

    fn for_each_range(&self, visit: &mut dyn FnMut(Range<u32>, u32)) {
        self.core.zones.used_ranges().for_each(|(range, fresh)| visit(range, fresh));
    }

    fn nr_free(&self) -> usize {
        self.core.nr_free()
    }

    fn nr_frames(&self) -> usize {
        self.core.zones.nr_frames()
    }

    fn nr_cpus(&self) -> usize {
        self.core.nr_cpus
    }

    #[inline(always)]
    fn rcu(&self) -> &Rcu<P> {
        &self.core.rcu
    }

    #[inline(always)]
    fn options(&self) -> &Options {
        &self.core.options
    }

    #[inline(always)]
    fn strikes(&self) -> bool {
        self.core.strikes()
    }

    #[inline(always)]
    unsafe fn begin_life(&self, first: Pfn, order: u8) {
        self.core.hand_out(first, order);
    }

    #[inline(always)]
    unsafe fn end_life(&self, first: Pfn, order: u8) {
        self.core.retire(first, order);
    }

    #[inline]
    fn alloc(&self) -> Result<Pfn, OutOfFrames> {
        Self::alloc(self)
    }

    #[inline(always)]
    fn try_alloc(&self) -> Result<Pfn, OutOfFrames> {
        self.core.try_alloc()
    }
}

impl<P: Platform> Memory<P> {
    /// Counts all frames.
    pub fn audit(&self) -> Audit {
        self.audit_with(|_| ())
    }

    /// Counts all frames, and shows those in use to `visit`, ascending.
    pub fn audit_with(&self, visit: impl FnMut(FrameInfo)) -> Audit {
        FrameSource::audit_with(self, visit)
    }
}
