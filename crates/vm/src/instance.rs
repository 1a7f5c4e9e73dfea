//! An instance of the virtual memory system: frames, CPUs, counters, and the spaces made from them.

use crate::design::{Design, GenerationOf, SemaphoreOf};
use crate::error::{CallError, Shortage};
use crate::events::Events;
use crate::limits::Limits;
use crate::object::{Object, ObjectHandle, ObjectRef, ObjectSpec, WriteNotice, ZeroSource};
use crate::orphans::Orphans;
use crate::pin::Pinned;
use crate::pool::Pool;
use crate::reference::{Reference, ReferenceRef};
use crate::space::SpaceRef;
use crate::system::System;
use crate::tags::MemoryTags;
use crate::translations::Instance;
use crate::translations::frames;
use crate::translations::shootdown::Cpus;
pub use crate::types::Vm;
use crate::types::{Area, Space, Spaces};
use crate::unique::Unique;
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::marker::{PhantomData, PhantomPinned};
use core::mem::offset_of;
use core::pin::Pin;
use core::ptr::NonNull;
use faultless_phys::{Cause, FrameSource, Kind, OutOfFrames, Pfn, Slab};
use faultless_platform::CachePadded;
use faultless_platform::mutant;
use faultless_sync::{LockStats, Parts, RwSemaphore};

/// How many places the table of readers has for each CPU: enough that two faults seldom want the same one.
const PLACES_PER_CPU: usize = 4;

// SAFETY: the list's and the orphans' pointers are followed as their files say; everything else is shared by design.
unsafe impl<P: System, D: Design<P>> Sync for Vm<P, D> {}
// SAFETY: as above.
unsafe impl<P: System, D: Design<P>> Send for Vm<P, D> {}

impl<P: System, D: Design<P>> Vm<P, D> {
    /// Makes an instance over `memory`, for the calling thread's machine.
    ///
    /// A machine serves one instance at a time: it registers its interrupt handler. The calling thread owns a slot.
    /// The spaces' semaphores are of their family's default generation.
    pub fn new(memory: P::Frames) -> Result<Pin<Box<Self>>, OutOfFrames> {
        Self::with_semaphore(memory, GenerationOf::<P, D>::default())
    }

    /// As [`Vm::new`], with semaphores of the generation `semaphore`.
    ///
    /// ```
    /// use faultless_sync::{Generation, Rwsem};
    /// use faultless_vm::Vm;
    /// use faultless_vm::design::SpfV11;
    /// # use faultless_phys::{Memory, Options};
    /// # use faultless_platform::native::{HostRegion, Machine, Native};
    /// # let region = HostRegion::reserve(64 << 20)?;
    /// # Machine::new(2).attach(|| {
    /// #     // SAFETY: the region is zeroed, ours alone, and outlives the instance.
    /// #     let memory = unsafe { Memory::<Native>::new(region.base(), region.len_bytes(), 2, Options::default()) }?;
    /// // A published design over the semaphore that Linux had then.
    /// let old = Vm::<Native, SpfV11<Rwsem<Native>>>::with_semaphore(memory, Generation::RWSEM_2012)?;
    /// # drop(old);
    /// #     Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn with_semaphore(memory: P::Frames, semaphore: GenerationOf<P, D>) -> Result<Pin<Box<Self>>, OutOfFrames> {
        let nr_cpus = P::nr_cpus();
        let zero_page = frames::alloc_zeroed(&memory, Kind::Reserved)?;
        // SAFETY: just given to us, and ours until `drop`.
        mutant!(ZeroPageCounted, unsafe { memory.page(zero_page).owned() }.stop_counting() => ());
        let lock_stats = Arc::new(LockStats::new(nr_cpus));
        let readers = SemaphoreOf::<P, D>::reader_table(semaphore, PLACES_PER_CPU * nr_cpus);
        let vm = Box::pin(Self {
            // SAFETY: the place is for this: an area that is freed is no writer's any more.
            areas: unsafe { Slab::with_head_inside(&memory, offset_of!(Area<P, D>, head)) },
            nodes: Slab::new(&memory),
            spaces: Slab::new(&memory),
            objects: Pool::new(&memory),
            references: Pool::new(&memory),
            pins: Pool::new(&memory),
            design: D::new_instance_state(nr_cpus),
            semaphore,
            semaphore_parts: Parts { stats: Some(lock_stats.clone()), readers },
            lock_stats,
            next_space: Unique::new(nr_cpus),
            next_root: Unique::new(nr_cpus),
            list: Spaces::new(nr_cpus),
            orphans: CachePadded::new(Orphans::new()),
            instance: Instance {
                memory,
                tags: None,
                cpus: Cpus::new(nr_cpus),
                events: Events::new(nr_cpus),
                zero_page,
            },
            _stays: PhantomPinned,
        });
        // SAFETY: the context is the CPUs of what is pinned, which live until `drop` takes the handler away (I1).
        unsafe { P::set_interrupt_handler(drain::<P>, core::ptr::from_ref(&vm.instance.cpus).cast()) };
        if P::WATCHED {
            vm.memory().tell_names();
        }
        Ok(vm)
    }

    /// Returns the frames.
    pub fn memory(&self) -> &P::Frames {
        &self.instance.memory
    }

    /// Returns the counters.
    pub fn events(&self) -> &Events<P> {
        &self.instance.events
    }

    /// Returns what waiting for the spaces' semaphores has cost, all spaces together.
    pub fn lock_stats(&self) -> &Arc<LockStats<P>> {
        &self.lock_stats
    }

    /// Makes the semaphore of a new space.
    pub(crate) fn new_semaphore(&self) -> SemaphoreOf<P, D> {
        SemaphoreOf::<P, D>::with_parts(self.semaphore, self.semaphore_parts.clone())
    }

    /// Returns what the design keeps for the instance.
    pub(crate) fn design_state(&self) -> &D::InstanceState {
        &self.design
    }

    /// Blocks until every unreferenced deferred object is freed: areas, nodes, tables, frames.
    ///
    /// Called as the other calls are; see the crate.
    pub fn flush(&self) {
        self.end_orphans();
        self.pins.end_orphans();
        self.references.end_orphans();
        D::flush(self);
        self.memory().rcu().flush();
    }

    /// Frees what waits for the design's readers, after an allocation that found no frame; says whether to try again.
    ///
    /// Called without any lock, outside the design's read sections.
    #[cold]
    pub(crate) fn reclaim_after(&self, refusal: &OutOfFrames) -> bool {
        let has_waiting = D::has_deferred(self) || !self.orphans.is_empty() || self.has_pooled_orphans();
        let may_help = refusal.cause() == Cause::Exhausted && has_waiting;
        if may_help {
            self.flush();
        }
        may_help
    }

    /// Runs `act`; if there is no frame and some wait for the design's readers, frees those and runs it again.
    ///
    /// Called as [`Vm::reclaim_after`] is.
    #[track_caller]
    pub(crate) fn try_again<R, E: Shortage>(&self, act: impl Fn() -> Result<R, E>) -> Result<R, E> {
        // Called in one place, so that it is inlined there.
        let mut is_again = false;
        loop {
            match act() {
                Err(error) if !is_again && error.shortage().is_some_and(|cause| self.reclaim_after(cause)) => {
                    is_again = true;
                }
                result => return result,
            }
        }
    }

    /// Ends the spaces and objects whose last reference was dropped without a CPU; the caller has one.
    pub(crate) fn end_orphans(&self) {
        // SAFETY: no reference is left to orphans, and each is taken once.
        self.orphans.take(|space| unsafe { self.end_space(space) });
        self.objects.end_orphans();
    }

    fn has_pooled_orphans(&self) -> bool {
        self.objects.has_orphans() || self.pins.has_orphans() || self.references.has_orphans()
    }

    /// Returns the reference pages.
    pub(crate) fn references(&self) -> &Pool<P, Reference<P>> {
        &self.references
    }

    /// Returns the pins.
    pub(crate) fn pins(&self) -> &Pool<P, Pinned<P>> {
        &self.pins
    }

    /// Sets the hook for memory tags; before that, pages have none.
    /// A machine that has tags calls it once, before its first space; [`SoftwareTags`](crate::SoftwareTags) has an example.
    pub fn set_memory_tags(self: Pin<&mut Self>, tags: Arc<dyn MemoryTags>) {
        // SAFETY: nothing is moved.
        unsafe { self.get_unchecked_mut() }.instance.tags = Some(tags);
    }

    /// Returns the hook for memory tags.
    #[inline]
    pub(crate) fn tags(&self) -> Option<&dyn MemoryTags> {
        self.instance.tags.as_deref()
    }

    /// Returns the spaces whose last reference was dropped without a CPU.
    pub(crate) fn orphans(&self) -> &Orphans<P, Space<P, D>> {
        &self.orphans
    }

    /// Returns the list of spaces.
    pub(crate) fn list(&self) -> &Spaces<P, D> {
        &self.list
    }

    /// Frees an area at once.
    ///
    /// # Safety
    /// The last holder has released the area, and nobody looks at it any more.
    #[inline(always)]
    pub(crate) unsafe fn free_area_at_once(&self, area: NonNull<Area<P, D>>) {
        // SAFETY: as promised.
        unsafe {
            core::ptr::drop_in_place(area.as_ptr());
            self.areas.free(area);
        }
    }

    /// Frees an area, after a grace period.
    ///
    /// # Safety
    /// The last holder has released the area. RCU readers look only at its atomics; and, where it was joined with
    /// another without a wait for them (`change::only_adds`), at what stands behind it: its words stay, and the other
    /// area holds the same, whose unmapping waits for their sections.
    pub(crate) unsafe fn free_area(&self, area: NonNull<Area<P, D>>) {
        // SAFETY: as promised.
        unsafe {
            core::ptr::drop_in_place(area.as_ptr());
            mutant!(AreaReused, self.areas.free_deferred(area) => self.areas.free(area));
            mutant!(AreaSharesFreeLink => area.as_ref().lend_bounds());
        }
    }

    /// Returns the CPUs' TLBs.
    pub(crate) fn cpus(&self) -> &Cpus<P> {
        &self.instance.cpus
    }

    /// Returns the frame that loads of untouched anonymous memory see.
    pub fn zero_page(&self) -> Pfn {
        self.instance.zero_page
    }

    /// Makes an empty address space.
    pub fn create_space(&self, limits: Limits) -> Result<SpaceRef<'_, P, D>, CallError> {
        let space = self.create_unlisted(limits)?;
        space.enlist();
        Ok(space)
    }

    /// Makes an empty address space that nobody finds before it is listed.
    pub(crate) fn create_unlisted(&self, limits: Limits) -> Result<SpaceRef<'_, P, D>, CallError> {
        self.end_orphans();
        let id = self.next_space.draw();
        self.try_again(|| SpaceRef::create(self, &self.spaces, id, limits))
    }

    /// Makes a memory object.
    pub fn create_object(&self, spec: &ObjectSpec) -> Result<ObjectHandle<'_, P>, OutOfFrames> {
        self.end_orphans();
        // SAFETY: references are held by areas, which end before us, and by handles, which borrow us (I1).
        let object = self.try_again(|| unsafe { self.objects.create(self.memory(), spec) })?;
        Ok(ObjectHandle { opening: object.next_opening(), object, instance: PhantomData })
    }

    /// Makes the object behind shared anonymous memory: zeros, of which each mapping has its own.
    pub(crate) fn create_zeros(&self, size_bytes: u64) -> Result<ObjectRef<P>, OutOfFrames> {
        let spec = ObjectSpec { identity: 0, size_bytes, source: &ZeroSource, write_notice: WriteNotice::None };
        // SAFETY: the reference is held by areas, which end before us (I1).
        unsafe { self.objects.create(self.memory(), &spec) }
    }

    /// Refuses an object of another instance: its frames are not ours.
    pub(crate) fn check_owner(&self, object: &ObjectRef<P>) -> Result<(), CallError> {
        if self.objects.owns(object) {
            Ok(())
        } else {
            Err(CallError::Invalid("the object belongs to another instance"))
        }
    }

    /// Refuses a reference page of another instance: its frame is not ours.
    pub(crate) fn check_reference_owner(&self, reference: &ReferenceRef<P>) -> Result<(), CallError> {
        if self.references.owns(reference) {
            Ok(())
        } else {
            Err(CallError::Invalid("the reference page belongs to another instance"))
        }
    }

    /// Visits the reference pages that exist; those that are made meanwhile are left out. Each is kept alive while it
    /// is visited, and no lock is held: the visit may make some, and drop them.
    ///
    /// Called as the other calls are; see the crate.
    pub fn for_each_reference(&self, visit: impl FnMut(&Reference<P>)) {
        self.references.for_each(visit);
    }

    /// Visits the pins that exist; those that are made meanwhile are left out. Each is kept alive while it
    /// is visited, and no lock is held: the visit may make some, and drop them.
    ///
    /// Called as the other calls are; see the crate.
    pub fn for_each_pin(&self, visit: impl FnMut(&Pinned<P>)) {
        self.pins.for_each(visit);
    }

    /// Visits the memory objects that exist; those that are made meanwhile are left out. Each is kept alive while it
    /// is visited, and no lock is held: the visit may make some, and drop them.
    ///
    /// Called as the other calls are; see the crate.
    pub fn for_each_object(&self, visit: impl FnMut(&Object<P>)) {
        self.objects.for_each(visit);
    }

    /// Returns the memory objects.
    pub(crate) fn objects(&self) -> &Pool<P, Object<P>> {
        &self.objects
    }

    /// Returns a reverse-map root that nobody has.
    pub(crate) fn fresh_root(&self) -> u64 {
        self.next_root.draw()
    }

    pub(crate) fn space_slab(&self) -> &Slab<P, Space<P, D>, P::Frames> {
        &self.spaces
    }
}

/// Needs no CPU. A thread that has none leaves as it is what still waits for readers or for a CPU: it goes with the
/// frames.
impl<P: System, D: Design<P>> Drop for Vm<P, D> {
    fn drop(&mut self) {
        // SAFETY: registered when the instance was made; there is no space left, nor a guest of one (I1).
        unsafe { P::clear_interrupt_handler(core::ptr::from_ref(&self.instance.cpus).cast()) };
        if P::owned_cpu().is_some() {
            self.flush();
        }
        // SAFETY: no space is left that could map it (I1).
        unsafe { self.memory().free_without_cpu(self.zero_page()) };
    }
}

/// Serves a CPU's inbox in a wait.
///
/// # Safety
/// `context` is the `Cpus<P>` that was registered, and the calling thread owns `cpu` in kernel state.
unsafe fn drain<P: System>(context: *const (), cpu: usize) {
    // SAFETY: the caller's promise.
    unsafe { &*context.cast::<Cpus<P>>() }.drain(cpu);
}
