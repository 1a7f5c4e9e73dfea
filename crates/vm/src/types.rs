//! The types that name each other: an instance, its address spaces, their areas, and the design under which they run.
//!
//! # Why they stand together
//! A design is asked about spaces, areas and the instance; those keep what the design says ([`Design::AreaState`] and
//! its like); a space knows its instance, which lists its spaces. Each of them apart would import all others. What they
//! do stands in files of its own: `instance`, `space`, `area`, `space::spaces`, and the designs.
//!
//! # Who may touch a field
//! An area's: `area`. An instance's: `instance`. A space's: the rooms of `space`, under the lock that the field's
//! comment names. A listing's: `space::spaces` (I1 there).

use crate::addr::{PageRange, VirtAddr};
use crate::asked::Protection;
use crate::content::Behind;
use crate::design::names::DefaultDesign;
use crate::error::{AccessError, CallError};
use crate::fault::kinds::{Fault, Handled};
use crate::index::{Index, Node};
use crate::limits::Limits;
use crate::object::Object;
use crate::orphans::Orphans;
use crate::pin::Pinned;
use crate::pool::Pool;
use crate::reference::Reference;
use crate::space::departures::Departures;
use crate::space::line::AreaLine;
use crate::space::map_lock::MapLock;
use crate::space::mappers::Mappers;
use crate::space::quantity::NR_QUANTITIES;
use crate::space::request::MapRequest;
use crate::system::System;
use crate::translations::{Instance, Translations};
use crate::unique::Unique;
use crate::view::{AreaFlags, AreaView};
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::cell::UnsafeCell;
use core::marker::PhantomPinned;
use core::mem::MaybeUninit;
use core::ops::Range;
use core::ptr::NonNull;
use faultless_phys::Slab;
use faultless_platform::CachePadded;
use faultless_sync::{LockStats, Parts, RcuHead, RwSemaphore, SpinMutex, lock_class};

/// A way to lock an address space against its faults.
///
/// # Safety
/// * `update_index` runs `update` once.
/// * Between `begin_change` and `end_change`, once `await_faults` has returned, no fault on an address of the range
///   that `announce_range` named uses what it found in the area before.
/// * `release_area` frees the area once, after every fault that may use it.
///
/// # Who calls what
/// | callers | functions |
/// |---|---|
/// | [`Vm::new`], `create_space`, a new area | `new_instance_state`, `new_space_state`, `new_area_state` |
/// | every map call, in this order | `announce_range` and `begin_change` for each area, the lanes' stamps under a design that `STAMPS`, `await_faults` once, the change, `update_index`, `end_change` or `end_change_unpublished`, `release_area` |
/// | each page fault | `fault` |
/// | a call that found no frame, [`Vm::flush`] | `has_deferred`, `flush` |
/// | each call, when it has unlocked | `poll` |
/// | reports, registries | `NAME`, `AREA_STATE_NAME`, `SPECULATES`, `GIVES_UP_WHEN_BUSY` |
/// | faults that all designs share | `FILLS_FREELY` |
/// | map calls that rely on an area's reverse-map root | `ROOTS_FREELY` |
/// | map calls that put an area into a hole | `ADDS_FREELY` |
/// | a munmap of more than one table | `REMOVES_APART` |
/// | changes of what faults may have found | `STAMPS` |
/// | forks, ends of spaces | `SHARES_TABLES` |
pub unsafe trait Design<P: System>: Sized + Send + Sync + 'static {
    /// The name in the registry.
    const NAME: &'static str;
    /// Whether faults fill empty entries by compare-and-swap, without their table's lock; then nobody empties one for a
    /// moment.
    const FILLS_FREELY: bool = false;
    /// Whether faults give an area its reverse-map root without the space's lock.
    const ROOTS_FREELY: bool = false;
    /// Whether an area may grow over a hole without waiting for the faults at work in it.
    const ADDS_FREELY: bool = false;
    /// Whether faults are tried without the space's lock first. Reports leave out the events of attempts where not.
    const SPECULATES: bool = true;
    /// Whether such an attempt gives up where its table's lock is busy ([`GiveUp::PteLock`](crate::GiveUp)).
    const GIVES_UP_WHEN_BUSY: bool = false;
    /// What reports call the memory of an area's state.
    const AREA_STATE_NAME: &'static str = "what the design keeps of an area";
    /// Whether a long unmapping gives the space's lock away before it empties its tables (`space::departure`); then no
    /// fault uses an area that a change took away, once [`Design::await_faults`] has returned.
    const REMOVES_APART: bool = false;
    /// Whether a CPU's faults go by what earlier ones found, so that changes are noted in the lanes' stamps
    /// (`design::recall`).
    const STAMPS: bool = false;
    /// Whether fork lets the child have the parent's leaf tables until one of them changes something there
    /// (`translations::sharing`); then no fault is at work without the space's lock once [`Design::await_faults`] has
    /// returned, and each fault that changes an entry asks for a table of its own.
    const SHARES_TABLES: bool = false;
    /// What map operations write and classic faults read; the instance says of which generation its semaphore is.
    type Lock: MapLock<P>;
    /// Where the map is, and what map calls do to it: areas in the space's index, or promises in entries.
    type Map: Map<P, Self>;
    /// What the design keeps for the instance.
    type InstanceState: Send + Sync;
    /// What the design keeps for each address space.
    type SpaceState: Send + Sync;
    /// What the design keeps for each area.
    type AreaState: Send + Sync;

    /// Returns the state of a new instance; may allocate.
    fn new_instance_state(nr_cpus: usize) -> Self::InstanceState;
    /// Returns the state of a new address space.
    fn new_space_state() -> Self::SpaceState;
    /// Returns the state of a new area, which the index holds; under a change, as after [`Design::begin_change`].
    fn new_area_state() -> Self::AreaState;

    /// Says which addresses of the area a change is about. Called under the write lock: before
    /// [`Design::begin_change`], before a new area is published, and when another change of the area begins inside the
    /// first. At other addresses only the area's bounds change, and its root if it had none.
    #[inline]
    fn announce_range(_area: &Self::AreaState, _range: Range<VirtAddr>) {}
    /// Called under the write lock before an area's attributes or translations change; may wait for faults that use it.
    fn begin_change(area: &Self::AreaState);
    /// Called under the write lock when all areas of a change are announced, and before anything changes: waits for the
    /// faults that found one of them before, if [`Design::begin_change`] has not. The areas, and what the change is
    /// about, lie in `_addresses`.
    #[inline]
    fn await_faults(_space: &Space<P, Self>, _addresses: Range<VirtAddr>) {}
    /// Called under the write lock when they have changed. A removed area gets no such call, and calls don't nest.
    fn end_change(area: &Self::AreaState);
    /// As [`Design::end_change`], for an area that is not published yet.
    #[inline]
    fn end_change_unpublished(area: &Self::AreaState) {
        Self::end_change(area);
    }
    /// Runs `update`, which puts an edit of the index in force; called under the write lock.
    fn update_index(space: &Space<P, Self>, update: impl FnOnce());
    /// Ends the index's hold on a removed area; whoever holds it last frees it by `Space::free_area`.
    ///
    /// # Safety
    /// The area was in the index of `space`, is not any more, and is released once.
    unsafe fn release_area(space: &Space<P, Self>, area: NonNull<Area<P, Self>>);
    /// Blocks until every deferred area that nobody holds is freed; called without any lock.
    fn flush(_vm: &Vm<P, Self>) {}
    /// Frees deferred areas, as far as that needs no waiting; called without any lock.
    #[inline]
    fn poll(_vm: &Vm<P, Self>) {}
    /// Says whether deferred areas wait, so that [`Design::flush`] may free memory.
    fn has_deferred(_vm: &Vm<P, Self>) -> bool {
        false
    }

    /// Handles a page fault; returns how.
    fn fault(space: &Space<P, Self>, fault: Fault) -> Result<Handled, AccessError>;
}

/// Where a space's map is, and what the map calls do to it.
///
/// Calls that are not named here look for areas. Under a map of promises there is none: they answer as for a hole, brk
/// moves nothing, and fork refuses.
///
/// # Safety
/// * `area_at` and `for_each_area` tell the same, and what the calls made it.
/// * Nobody else fills a page where `area_at` tells of no area; where it does, pages have no stronger rights.
///
/// # Who calls what
/// | callers | functions |
/// |---|---|
/// | the calls of [`Space`] with these names | `mmap`, `munmap`, `mprotect`, `search`, `for_each_area` |
/// | `handle_fault`, futex keys, pins, the checker | `area_at` |
/// | calls that look for areas, to find out that there is none | `PROMISES` |
pub unsafe trait Map<P: System, D: Design<P>>: 'static {
    /// Whether memory is promised by the entries of its pages, and no area is made.
    const PROMISES: bool;

    /// Maps `len_bytes`, whole pages; returns where, and the flags that were asked for together with the space's
    /// default ones (mlockall). The caller makes the pages that these lock.
    fn mmap(
        space: &Space<P, D>,
        request: &MapRequest<'_, P>,
        len_bytes: u64,
    ) -> Result<(PageRange, AreaFlags), CallError>;
    /// Removes what is mapped in a range.
    fn munmap(space: &Space<P, D>, range: PageRange) -> Result<(), CallError>;
    /// Gives the pages of a range the rights; across a hole, those before it.
    fn mprotect(space: &Space<P, D>, range: PageRange, rights: Protection) -> Result<(), CallError>;
    /// Returns the range that mmap would choose for `len_bytes`, whole pages.
    fn search(space: &Space<P, D>, len_bytes: u64) -> Option<PageRange>;
    /// Visits the areas, ascending, while none changes.
    fn for_each_area(space: &Space<P, D>, visit: impl FnMut(AreaLine));
    /// Returns the area that holds an address, if one does; nobody changes the map meanwhile.
    fn area_at(space: &Space<P, D>, address: VirtAddr) -> Option<AreaView<P>>;
}

/// What tells the members of a design's family of semaphores apart.
/// [`Vm::with_semaphore`] takes a value of it.
pub type GenerationOf<P, D> = <SemaphoreOf<P, D> as RwSemaphore<P>>::Generation;

/// The semaphore that a design's lock is made of.
/// A caller that asks the lock's statistics by type uses it; so does [`GenerationOf`].
pub type SemaphoreOf<P, D> = <<D as Design<P>>::Lock as MapLock<P>>::Semaphore;

/// An instance; everything else borrows from it.
///
/// # Invariants
/// * I1 it stays where it was made (it is boxed), and outlives its spaces and objects, which borrow it.
/// * I2 the zero page is never written, never counted, never freed.
///
/// ```
/// use faultless_vm::{Event, Limits, ObjectSpec, PAGE, Pattern, PinKind, WriteNotice, ZeroSource};
/// # use faultless_phys::{Memory, Options};
/// # use faultless_platform::native::{HostRegion, Machine, Native};
/// # let region = HostRegion::reserve(64 << 20)?;
/// # Machine::new(2).attach(|| {
/// #     // SAFETY: the region is zeroed, ours alone, and outlives the instance.
/// #     let memory = unsafe { Memory::<Native>::new(region.base(), region.len_bytes(), 2, Options::default()) }?;
/// #     let vm = faultless_vm::Vm::<Native>::new(memory)?;
/// let space = vm.create_space(Limits::default())?;
/// let child = space.fork()?;
/// assert!(!child.is_same(&space));
/// let mut nr_spaces = 0;
/// vm.for_each_space(|_| nr_spaces += 1);
/// assert_eq!(nr_spaces, 2);
///
/// // Files and shared memory.
/// let spec = ObjectSpec { identity: 1, size_bytes: 4 * PAGE, source: &ZeroSource, write_notice: WriteNotice::None };
/// let object = vm.create_object(&spec)?;
/// vm.punch(&object, PAGE..2 * PAGE)?;
/// vm.truncate(&object, 2 * PAGE)?;
/// let mut words = [1; 2];
/// vm.read_object(&object, 0, &mut words)?;
/// assert_eq!((words, object.size_bytes()), ([0; 2], 2 * PAGE));
/// let mut identities = Vec::new();
/// vm.for_each_object(|object| identities.push(object.identity()));
/// assert_eq!(identities, [1]);
///
/// // Pages that memory starts as.
/// let ones = vm.create_repeated(Pattern::Byte(1))?;
/// let page = vm.create_reference(&[7; 512])?;
/// assert_ne!(ones.page(), page.page());
/// let mut nr_references = 0;
/// vm.for_each_reference(|_| nr_references += 1);
/// vm.for_each_pin(|pin| assert_ne!(pin.kind(), PinKind::Write));
/// assert_eq!(nr_references, 2);
///
/// // For reports, and before a test counts frames.
/// assert_eq!(vm.events().total(Event::Faults), 0);
/// assert_eq!(vm.lock_stats().figures(faultless_sync::Side::Write).nr_contended, 0);
/// vm.flush();
/// assert!(vm.memory().nr_free() > 0 && vm.memory().contains(vm.zero_page()));
/// #     Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Vm<P: System, D: Design<P> = DefaultDesign<P>> {
    pub(crate) instance: Instance<P>,
    pub(crate) areas: Slab<P, Area<P, D>, P::Frames>,
    pub(crate) nodes: Slab<P, Node<P>, P::Frames>,
    pub(crate) spaces: Slab<P, Space<P, D>, P::Frames>,
    pub(crate) objects: Pool<P, Object<P>>,
    pub(crate) references: Pool<P, Reference<P>>,
    pub(crate) pins: Pool<P, Pinned<P>>,
    pub(crate) design: D::InstanceState,
    pub(crate) semaphore: GenerationOf<P, D>,
    pub(crate) lock_stats: Arc<LockStats<P>>,
    pub(crate) semaphore_parts: Parts<P>,
    pub(crate) next_space: Unique<P>,
    pub(crate) next_root: Unique<P>,
    pub(crate) list: Spaces<P, D>,
    pub(crate) orphans: CachePadded<Orphans<P, Space<P, D>>>,
    /// The interrupt handler and what areas hold know where the instance lies.
    pub(crate) _stays: PhantomPinned,
}

/// An address space; made by [`Vm::create_space`], reached through [`SpaceRef`](crate::SpaceRef).
///
/// ```
/// use faultless_vm::{
///     AccessError, AddressRange, Advice, CallError, LockAll, PAGE, PageLock, PageRange, Protection, RemapPlacement,
///     RemapRequest, SyncFlags, VirtAddr,
/// };
/// use std::ops::ControlFlow;
/// # use faultless_phys::{Memory, Options};
/// # use faultless_platform::native::{HostRegion, Machine, Native};
/// # let region = HostRegion::reserve(64 << 20)?;
/// # Machine::new(2).attach(|| {
/// #     // SAFETY: the region is zeroed, ours alone, and outlives the instance.
/// #     let memory = unsafe { Memory::<Native>::new(region.base(), region.len_bytes(), 2, Options::default()) }?;
/// #     let vm = faultless_vm::Vm::<Native>::new(memory)?;
/// #     let space = vm.create_space(faultless_vm::Limits::default())?;
/// #     let guest = faultless_vm::Guest::new(&space);
/// #     let map = |len_bytes, protection| {
/// #         space.mmap(&faultless_vm::MapRequest {
/// #             placement: faultless_vm::Placement::Anywhere,
/// #             len_bytes,
/// #             protection,
/// #             options: faultless_vm::MapOptions::empty(),
/// #             backing: faultless_vm::Backing::Anonymous,
/// #             populate: faultless_vm::Populate::OnFault,
/// #         })
/// #     };
/// #     let both = faultless_vm::Protection::READ | faultless_vm::Protection::WRITE;
/// let start = map(4 * PAGE, both)?;
/// let range = AddressRange::new(start, 4 * PAGE);
/// guest.store(start, 7)?;
///
/// // What is there.
/// let mut resident = Vec::new();
/// space.mincore(range, &mut |is_there| {
///     resident.push(is_there);
///     ControlFlow::Continue(())
/// })?;
/// assert_eq!(resident, [true, false, false, false]);
/// assert_eq!((space.nr_areas(), space.mapped_bytes(), space.resident_pages()), (1, 4 * PAGE, 1));
/// assert!(space.entry_at(start).is_writable());
/// print!("{}", space.list());
///
/// // Changes.
/// space.mprotect(AddressRange::new(start, PAGE), Protection::READ)?;
/// assert!(matches!(guest.store(start, 8), Err(AccessError::Forbidden { .. })));
/// space.madvise(range, Advice::DontNeed)?;
/// assert_eq!((guest.load(start)?.0, space.peak_resident_pages()), (0, 1));
/// let old = AddressRange::new(start, 4 * PAGE);
/// space.mprotect(old, both)?;
/// let placement = RemapPlacement::MayMove;
/// let moved = space.mremap(&RemapRequest { old, new_len_bytes: 8 * PAGE, placement, keeps_source: false })?;
/// space.msync(AddressRange::new(moved, PAGE), SyncFlags::SYNC)?;
/// assert!(space.remap_file_pages(AddressRange::new(moved, PAGE), 0, faultless_vm::Populate::OnFault).is_err());
///
/// // Locks.
/// space.mlock(AddressRange::new(moved, PAGE), PageLock::Lock)?;
/// assert_eq!((space.locked_bytes(), space.data_bytes()), (PAGE, 8 * PAGE));
/// space.mlock_all(LockAll::CURRENT)?;
/// space.munlock_all();
///
/// // What a migration asks, again and again.
/// guest.store(moved + PAGE, 9)?;
/// let all = PageRange::new(moved, 8 * PAGE).expect("user memory");
/// let mut written = Vec::new();
/// space.collect_written(all, &mut |page| written.push(page));
/// assert!(written.contains(&(moved + PAGE)));
///
/// // The heap, and the end.
/// space.set_heap_start(VirtAddr::new(0x1000_0000));
/// space.set_static_data_bytes(PAGE);
/// assert_eq!(space.brk(VirtAddr::new(0x1000_4000)), VirtAddr::new(0x1000_4000));
/// space.mseal(AddressRange::new(moved, PAGE))?;
/// assert!(matches!(space.munmap(AddressRange::new(moved, PAGE)), Err(CallError::Sealed { .. })));
/// assert!(space.search(PAGE).is_some_and(|free| !free.contains(moved)));
/// assert!(space.limits().lock_bytes > 0 && space.nr_users() == 1 && space.id() != 0);
/// #     Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Space<P: System, D: Design<P> = DefaultDesign<P>> {
    pub(crate) vm: NonNull<Vm<P, D>>,
    pub(crate) limits: Limits,
    /// What every fault writes stands apart from what every fault reads.
    pub(crate) lock: CachePadded<D::Lock>,
    pub(crate) state: CachePadded<D::SpaceState>,
    pub(crate) index: Index<P, Area<P, D>>,
    pub(crate) translations: Translations<P>,
    pub(crate) references: P::AtomicU32,
    pub(crate) nr_users: P::AtomicU32,
    /// Whether there were ever two users at once.
    pub(crate) is_shared: P::AtomicBool,
    /// Changed under the semaphore's write side, or as `credits` says.
    pub(crate) counts: [P::AtomicU64; NR_QUANTITIES],
    /// See `quota`.
    pub(crate) lost_lock_bytes: P::AtomicU64,
    /// Flags that every new area gets: what `mlockall` said about the future.
    pub(crate) default_flags: P::AtomicU32,
    /// See `removal`.
    pub(crate) is_removing: P::AtomicBool,
    /// Whether a page of the space was ever pinned: then its forks share no tables (`translations::sharing`).
    pub(crate) has_pinned: P::AtomicBool,
    pub(crate) departures: Departures<P, SemaphoreOf<P, D>>,
    pub(crate) mappers: Mappers<P>,
    pub(crate) heap_start: P::AtomicU64,
    pub(crate) heap_end: P::AtomicU64,
    /// Bytes of the program's own data, which count against RLIMIT_DATA when the heap grows.
    pub(crate) static_data_bytes: P::AtomicU64,
    pub(crate) listing: UnsafeCell<Listing<P, D>>,
    pub(crate) next_orphan: P::AtomicPtr<Self>,
}

/// An area; see the module `area`. A [`Design`] that keeps areas reads it by [`Area::view`], and keeps a state in it:
/// it is passed to [`Design::release_area`], once nobody finds it any more.
pub struct Area<P: System, D: Design<P>> {
    pub(crate) start: P::AtomicU64,
    pub(crate) end: P::AtomicU64,
    pub(crate) first_page: P::AtomicU64,
    pub(crate) flags: P::AtomicU32,
    pub(crate) root: P::AtomicU64,
    pub(crate) behind: Behind<P>,
    pub(crate) opening: u64,
    /// What the design keeps for each area.
    pub(crate) state: D::AreaState,
    /// For whoever frees the area after a grace period; readers never look at it.
    pub(crate) head: UnsafeCell<MaybeUninit<RcuHead<P>>>,
    /// Links areas that one change removes; the writer's alone.
    pub(crate) next_removed: UnsafeCell<Option<NonNull<Self>>>,
    /// Changes at work: a move changes its source while its target is still held. The writer's alone.
    pub(crate) nr_changes: UnsafeCell<u32>,
}

lock_class! {
    /// The locks of an instance's lists of spaces.
    pub(crate) ListLock = "space_list"
}

/// A place that links to a space.
pub(crate) type Link<P, D> = Option<NonNull<Space<P, D>>>;

/// Where a space is listed; all but `list` is used under that list's lock.
pub(crate) struct Listing<P: System, D: Design<P>> {
    pub(crate) before: Link<P, D>,
    pub(crate) behind: Link<P, D>,
    /// The round in which it was listed (I4); 0 of a space that is not listed.
    pub(crate) round: u64,
    /// The visitor that met it last, by its first round.
    pub(crate) met_by: u64,
    pub(crate) list: usize,
}

/// The spaces that were made on a CPU.
pub(crate) type CpuList<P, D> = CachePadded<SpinMutex<P, List<P, D>, ListLock>>;

/// The lists.
pub(crate) struct Spaces<P: System, D: Design<P>> {
    pub(crate) lists: Box<[CpuList<P, D>]>,
    /// The newest round; the first visitor's is 2.
    pub(crate) round: CachePadded<P::AtomicU64>,
}

pub(crate) struct List<P: System, D: Design<P>> {
    pub(crate) first: Link<P, D>,
    pub(crate) last: Link<P, D>,
}
