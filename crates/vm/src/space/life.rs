//! Creation, sharing and teardown of spaces, and their counters.

use super::Space;
use super::departures::Departures;
use super::map_lock::MapLock;
use super::mappers::Mappers;
use super::place::spread;
use crate::addr::PageRange;
use crate::area::Area;
use crate::design::{DefaultDesign, Design};
use crate::error::CallError;
use crate::index::{Index, IndexEntry};
use crate::instance::Vm;
use crate::limits::Limits;
use crate::orphans::Orphan;
use crate::pool::refer_again;
use crate::system::System;
use crate::translations::Translations;
use crate::translations::table::Tables;
use crate::translations::tlb::SpaceId;
use crate::types::Listing;
use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::ptr::NonNull;
use faultless_phys::Slab;
use faultless_platform::mutant;
use faultless_platform::{Atomic, AtomicInteger, CachePadded, Ordering, Tracepoint};

/// A counted reference to an address space; the last one to go unmaps everything.
///
/// ```
/// use faultless_vm::PAGE;
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
/// let start = map(PAGE, both)?;
/// guest.store(start, 7)?;
/// // fork(2): the child sees what the parent had.
/// let child = space.fork()?;
/// assert!(!child.is_same(&space) && child.is_same(&child.clone()));
/// assert_eq!(faultless_vm::Guest::new(&child).load(start)?.0, 7);
/// // A reference page of what the page holds, and one of its first 8 bytes.
/// let page = space.refpage_create(start.get(), 0)?;
/// let word = space.refpage_create_sized(start.get(), 8, 0)?;
/// assert_ne!(page.page(), word.page());
/// #     Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct SpaceRef<'vm, P: System, D: Design<P> = DefaultDesign<P>> {
    space: NonNull<Space<P, D>>,
    vm: PhantomData<&'vm Vm<P, D>>,
}

// SAFETY: a space is shared by design, and the instance outlives `'vm`.
unsafe impl<P: System, D: Design<P>> Send for SpaceRef<'_, P, D> {}
// SAFETY: as above.
unsafe impl<P: System, D: Design<P>> Sync for SpaceRef<'_, P, D> {}

impl<'vm, P: System, D: Design<P>> SpaceRef<'vm, P, D> {
    /// Makes an empty space, which is not listed yet.
    pub(crate) fn create(
        vm: &'vm Vm<P, D>,
        slab: &Slab<P, Space<P, D>, P::Frames>,
        id: SpaceId,
        limits: Limits,
    ) -> Result<Self, CallError> {
        let memory = vm.memory();
        // SAFETY: the instance stays where it is, and outlives its spaces (I1 of `Vm`).
        let translations = unsafe { Translations::new(&vm.instance, id, spread::<P, D>(&limits).as_ref()) }?;
        let room = slab.alloc().inspect_err(|_| {
            translations.tables.free_root(memory);
            translations.free();
        })?;
        // SAFETY: the slab gave us room for a space.
        unsafe { room.write(Space::new(vm, limits, translations)) };
        let space = Self { space: room, vm: PhantomData };
        space.spread_new()?;
        if P::WATCHED {
            space.tell_names();
        }
        Ok(space)
    }

    /// Tells observers what lies where.
    fn tell_names(&self) {
        P::trace(Tracepoint::named("an address space's own words", &**self));
        P::trace(Tracepoint::named("the root of the area index", &self.index));
        P::trace(Tracepoint::named("the lock of the area index", &self.state));
        P::trace(Tracepoint::named("the set of CPUs that use the address space", self.users()));
        P::trace(Tracepoint::named("the address-space lock (its count of readers and writers)", &self.lock));
    }

    /// Takes a counted reference over.
    ///
    /// # Safety
    /// The reference is the caller's to give, and the space is one of an instance that lives for `'vm`.
    pub(super) unsafe fn from_raw(space: NonNull<Space<P, D>>) -> Self {
        Self { space, vm: PhantomData }
    }

    /// Lists the space, which is complete from now on.
    pub(crate) fn enlist(&self) {
        self.vm().list().append(self);
    }

    /// Returns the instance, for as long as it lives.
    /// For a caller that has a space and makes another one beside it.
    pub fn instance(&self) -> &'vm Vm<P, D> {
        // SAFETY: the instance outlives `'vm`.
        unsafe { self.space.as_ref().vm.as_ref() }
    }

    /// Says whether both are references to one space.
    pub fn is_same(&self, other: &Self) -> bool {
        self.space == other.space
    }
}

impl<P: System, D: Design<P>> core::ops::Deref for SpaceRef<'_, P, D> {
    type Target = Space<P, D>;
    fn deref(&self) -> &Space<P, D> {
        // SAFETY: the reference keeps it.
        unsafe { self.space.as_ref() }
    }
}

impl<P: System, D: Design<P>> Clone for SpaceRef<'_, P, D> {
    fn clone(&self) -> Self {
        refer_again::<P>(&self.references);
        Self { space: self.space, vm: PhantomData }
    }
}

impl<P: System, D: Design<P>> SpaceRef<'_, P, D> {
    /// Gives the reference back; says whether it was the last.
    fn put(&self) -> bool {
        // ORDER: AcqRel pairs with the other references' drops: the last one sees all that was done to the space.
        let before = self.references.fetch_sub(1, Ordering::AcqRel);
        // ORDER: a known bug's, which two may pass.
        mutant!(LastUserTooEarly, before == 1 => self.references.load(Ordering::Acquire) == 0)
    }
}

impl<P: System, D: Design<P>> Drop for SpaceRef<'_, P, D> {
    fn drop(&mut self) {
        if self.put() {
            // SAFETY: the last reference is gone.
            unsafe { self.instance().lose_space(self.space) };
        }
    }
}

impl<P: System, D: Design<P>> Vm<P, D> {
    /// Ends a space, now or when somebody has a CPU for it; see `orphans`.
    ///
    /// # Safety
    /// The caller dropped the last reference.
    unsafe fn lose_space(&self, space: NonNull<Space<P, D>>) {
        if P::owned_cpu().is_none() {
            // SAFETY: passed on.
            return unsafe { self.orphans().leave(space) };
        }
        // SAFETY: passed on.
        unsafe { self.end_space(space) };
        self.end_orphans();
    }

    /// Ends a space; see `spaces` for the order.
    ///
    /// # Safety
    /// The last reference is gone, and the caller alone ends the space.
    pub(crate) unsafe fn end_space(&self, space: NonNull<Space<P, D>>) {
        mutant!(SpaceUnlinkedLate, self.list().remove(space) => ());
        // SAFETY: no reference is left, and the list, by which one could come about, does not know the space any more.
        unsafe {
            space.as_ref().end();
            mutant!(SpaceUnlinkedLate => self.list().remove(space));
            core::ptr::drop_in_place(space.as_ptr());
            self.space_slab().free(space);
        }
    }
}

impl<P: System, D: Design<P>> Orphan<P> for Space<P, D> {
    fn link(&self) -> &P::AtomicPtr<Self> {
        &self.next_orphan
    }
}

impl<P: System, D: Design<P>> Space<P, D> {
    fn new(vm: &Vm<P, D>, limits: Limits, translations: Translations<P>) -> Self {
        Self {
            vm: NonNull::from(vm),
            limits,
            lock: CachePadded::new(D::Lock::new(vm.new_semaphore())),
            state: CachePadded::new(D::new_space_state()),
            index: Index::new(),
            translations,
            references: P::AtomicU32::new(1),
            nr_users: P::AtomicU32::new(0),
            is_shared: P::AtomicBool::new(false),
            counts: core::array::from_fn(|_| P::AtomicU64::new(0)),
            lost_lock_bytes: P::AtomicU64::new(0),
            default_flags: P::AtomicU32::new(0),
            static_data_bytes: P::AtomicU64::new(0),
            is_removing: P::AtomicBool::new(false),
            has_pinned: P::AtomicBool::new(false),
            departures: Departures::new(vm.new_semaphore()),
            mappers: Mappers::new(),
            heap_start: P::AtomicU64::new(0),
            heap_end: P::AtomicU64::new(0),
            listing: UnsafeCell::new(Listing::none()),
            next_orphan: P::AtomicPtr::new(core::ptr::null_mut()),
        }
    }

    /// Unmaps everything, for the last user.
    fn end(&self) {
        let memory = self.memory();
        self.translations.lookers.forget();
        self.flush(PageRange::USER);
        if D::SHARES_TABLES {
            self.translations.give_shared_back();
        }
        let all = 0..Tables::<P>::END;
        self.tables().for_each_mapped(memory, all, &mut |_, entry| self.translations.instance().drop_entry(entry));
        self.tables().free_tables(memory);
        for entry in self.areas_overlapping(0..u64::MAX) {
            // SAFETY: nobody looks the index up any more, and its nodes go next.
            unsafe { D::release_area(self, entry.area) };
        }
        self.empty_index(&self.index);
        if let Some(lanes) = self.lane_rooms() {
            lanes.for_each_index(&(0..u64::MAX), |index| self.empty_index(index));
        }
        self.translations.free();
    }

    pub(super) fn empty_index(&self, index: &Index<P, Area<P, D>>) {
        // An edit that leaves nothing needs no memory.
        let mut edit = index.unprepared(&self.vm().nodes, None);
        if edit.prepare(0..u64::MAX, core::iter::empty::<IndexEntry<Area<P, D>>>()).is_ok() {
            edit.commit(|| false);
        }
        drop(edit);
        index.free_kept(&self.vm().nodes);
    }
}
