//! The classic fault: under the address space's semaphore.

use super::{EntryLock, Fault, PageFault, Stop, permits, resolve};
use crate::access::Access;
use crate::addr::{PAGE, USER_END, VirtAddr};
use crate::area::{Area, AreaFlags};
use crate::design::Design;
use crate::error::AccessError;
use crate::events::GiveUp;
use crate::object::{FetchError, ObjectRef, PageError};
use crate::space::{Space, SpaceReadGuard};
use crate::system::System;
use crate::translations::table::TableMap;
use core::ops::Range;
use core::ptr::NonNull;
use faultless_platform::mutant;

/// An area that an attempt without the semaphore found before it was given up, and the share of the semaphore that
/// keeps it as it is: the classic fault need not look it up again.
pub struct Found<'a, P: System, D: Design<P>> {
    read: SpaceReadGuard<'a, P, D>,
    area: NonNull<Area<P, D>>,
}

impl<'a, P: System, D: Design<P>> Found<'a, P, D> {
    /// Shares the semaphore, if that takes no waiting and the area that was found is still the one of the fault's
    /// address.
    ///
    /// # Safety
    /// `area` was in the space's index, and the caller keeps it from being freed.
    #[inline]
    #[track_caller]
    pub(crate) unsafe fn keep(space: &'a Space<P, D>, fault: Fault, area: NonNull<Area<P, D>>) -> Option<Self> {
        let read = space.try_read(page_of(fault))?;
        // SAFETY: the caller's promise.
        unsafe { area.as_ref() }.is_in_force_at(fault.address).then_some(Self { read, area })
    }
}

/// An attempt without the semaphore that was given up.
pub struct Missed<'a, P: System, D: Design<P>> {
    /// Why.
    pub(crate) reason: GiveUp,
    /// What it found on the way.
    pub(crate) found: Option<Found<'a, P, D>>,
}

impl<P: System, D: Design<P>> From<GiveUp> for Missed<'_, P, D> {
    fn from(reason: GiveUp) -> Self {
        Self { reason, found: None }
    }
}

/// Returns the addresses that a fault is about.
#[inline]
fn page_of(fault: Fault) -> Range<VirtAddr> {
    let page = fault.address.page();
    page..page + PAGE
}

/// What must happen without the semaphore before the fault is tried again.
enum Again<P: System> {
    Fetch(ObjectRef<P>, u64),
    GrowStack,
    /// The area is of a chain that gets its first root (`space::seams`).
    RootChain,
    /// Something is being unmapped: maybe what is missing.
    AwaitRemoval,
}

/// Handles a fault under the semaphore; if there is no frame and some wait for the design's readers, frees those first.
#[inline]
pub(crate) fn handle<P: System, D: Design<P>>(space: &Space<P, D>, fault: Fault) -> Result<(), AccessError> {
    handle_found(space, fault, None)
}

/// As [`handle`], after an attempt that may have found the area.
#[inline]
pub(crate) fn handle_found<'a, P: System, D: Design<P>>(
    space: &'a Space<P, D>,
    fault: Fault,
    found: Option<Found<'a, P, D>>,
) -> Result<(), AccessError> {
    match try_handle(space, fault, found) {
        Err(AccessError::OutOfFrames(cause)) if space.vm().reclaim_after(&cause) => try_handle(space, fault, None),
        result => result,
    }
}

/// Handles a fault under the semaphore, as often as it takes.
fn try_handle<'a, P: System, D: Design<P>>(
    space: &'a Space<P, D>,
    fault: Fault,
    mut found: Option<Found<'a, P, D>>,
) -> Result<(), AccessError> {
    loop {
        match attempt(space, fault, found.take())? {
            None => return Ok(()),
            Some(Again::Fetch(object, page_index)) => fetch(space, fault, &object, page_index)?,
            Some(Again::GrowStack) => space.grow_stack(fault.address)?,
            Some(Again::RootChain) => space.root_chains(&page_of(fault)),
            Some(Again::AwaitRemoval) => space.await_removal(),
        }
    }
}

#[inline]
fn attempt<'a, P: System, D: Design<P>>(
    space: &'a Space<P, D>,
    fault: Fault,
    found: Option<Found<'a, P, D>>,
) -> Result<Option<Again<P>>, AccessError> {
    let (read, area) = match found {
        Some(found) => (found.read, found.area),
        // Nothing is ever mapped there, and the last page of all has no end.
        None if fault.address.get() >= USER_END => return Err(AccessError::NotMapped { address: fault.address }),
        None => {
            let read = space.read(page_of(fault));
            // What ends behind the address may begin behind what is locked: only the section keeps that.
            let beside = space.look_beside();
            let Some(found) = read.permit().first_ending_after(fault.address) else {
                return missed(space, fault);
            };
            let area = found.place();
            if beside.is_some() && found.start > fault.address {
                let grows = found.area().flags().contains(AreaFlags::GROWSDOWN);
                return if grows { Ok(Some(Again::GrowStack)) } else { missed(space, fault) };
            }
            (read, area)
        }
    };
    // SAFETY: the lock keeps the area.
    let area = unsafe { area.as_ref() };
    let view = area.view();
    if D::REMOVES_APART && view.flags.contains(AreaFlags::LEAVING) && view.start <= fault.address {
        return mutant!(DepartureUnawaited, Ok(Some(Again::AwaitRemoval)) => missed(space, fault));
    }
    if fault.address < view.start {
        let grows = view.flags.contains(AreaFlags::GROWSDOWN);
        return if grows { Ok(Some(Again::GrowStack)) } else { missed(space, fault) };
    }
    let is_refused = !permits(view.flags, fault.access);
    if is_refused && !makes_page(view.flags, fault) {
        return Err(forbidden(view.flags, fault));
    }
    // A refused fetch still populates the page, as a load would.
    let fault = Fault { access: if is_refused { Access::Read } else { fault.access }, ..fault };
    if view.lacks_root_of_chain() && view.makes_page(fault.access) {
        return Ok(Some(Again::RootChain));
    }
    let leaf = space.tables().walk_or_grow(space.memory(), fault.address.get())?;
    let shared = space.translations.own_if_shared((fault.address, fault.access), leaf);
    let leaf = shared.map_or(leaf, |(leaf, _)| leaf);
    let _map = TableMap::<P>::for_fault(space.memory(), leaf.table);
    let seen = shared.map_or_else(|| leaf.read(space.memory()), |(_, seen)| seen);
    let page = space.page_fault(fault, (view, area.behind()), (leaf, seen));
    match resolve(&page, &ClassicLock { root: &|| read.permit().root_of(area) }) {
        // The classic lock never gives up.
        Ok(()) | Err(Stop::GiveUp(_)) if is_refused => Err(forbidden(view.flags, fault)),
        Ok(()) | Err(Stop::GiveUp(_)) => Ok(None),
        // The area has one: its pages are fetched.
        Err(Stop::Fetch(page_index)) => Ok(area.object().map(|object| Again::Fetch(object.clone(), page_index))),
        Err(Stop::Failed(error)) => Err(error),
    }
}

/// Makes a page of a private area its own, although it is to be read alone; one that it is already, or that an object
/// has, is made as for a load.
pub(crate) fn unshare<P: System, D: Design<P>>(space: &Space<P, D>, fault: Fault) -> Result<(), AccessError> {
    handle(space, fault)?;
    let read = space.read(page_of(fault));
    // If the page is gone or forbidden now, the caller's next lookup notices.
    let Some(found) = read.permit().containing(fault.address) else { return Ok(()) };
    let area = found.area();
    let view = area.view();
    if view.flags.contains(AreaFlags::LEAVING) {
        return Ok(());
    }
    let Some(leaf) = space.translations.walk_own(fault.address.get()) else { return Ok(()) };
    let _map = TableMap::<P>::for_fault(space.memory(), leaf.table);
    let seen = leaf.read(space.memory());
    if view.flags.contains(AreaFlags::SHARED) || !seen.is_special() {
        return Ok(());
    }
    if view.lacks_root_of_chain() {
        drop(read);
        space.root_chains(&page_of(fault));
        return unshare(space, fault);
    }
    let fault = Fault { access: Access::Write, ..fault };
    let page = space.page_fault(fault, (view, area.behind()), (leaf, seen));
    match resolve(&page, &ClassicLock { root: &|| read.permit().root_of(area) }) {
        Err(Stop::Failed(error)) => Err(error),
        // The classic lock never gives up, and nothing is fetched for such a page.
        Ok(()) | Err(Stop::GiveUp(_) | Stop::Fetch(_)) => Ok(()),
    }
}

/// No area holds the address; under the semaphore.
#[cold]
fn missed<P: System, D: Design<P>>(space: &Space<P, D>, fault: Fault) -> Result<Option<Again<P>>, AccessError> {
    match space.is_removing() {
        true => Ok(Some(Again::AwaitRemoval)),
        false => Err(AccessError::NotMapped { address: fault.address }),
    }
}

/// Returns the error of an access that an area's rights, or its key, forbid.
pub(super) fn forbidden(flags: AreaFlags, fault: Fault) -> AccessError {
    let address = fault.address;
    // As Linux: the key forbids no fetch, and what it forbids is its doing whatever the rights say.
    if flags.contains(AreaFlags::EXECUTE_ONLY) && fault.access != Access::Fetch {
        return AccessError::ForbiddenByKey { address };
    }
    AccessError::Forbidden { address }
}

/// Says whether a fault that the area's rights forbid makes the page all the same: as on x86, a fetch from memory that
/// may be read finds out only when the page is there.
pub(super) fn makes_page(flags: AreaFlags, fault: Fault) -> bool {
    fault.access == Access::Fetch && !fault.is_present && flags.intersects(AreaFlags::RIGHTS)
}

#[cold]
fn fetch<P: System, D: Design<P>>(
    space: &Space<P, D>,
    fault: Fault,
    object: &ObjectRef<P>,
    page_index: u64,
) -> Result<(), AccessError> {
    match object.fill(space.memory(), page_index) {
        Ok(()) | Err(PageError::Fetch(FetchError::Retry)) => Ok(()),
        Err(PageError::OutOfFrames(cause)) => Err(cause.into()),
        Err(PageError::BehindEnd | PageError::Fetch(FetchError::Failed)) => {
            Err(AccessError::NoPage { address: fault.address })
        }
    }
}

/// Locks the page table and nothing else: the semaphore keeps the area as it is.
struct ClassicLock<'g> {
    /// Returns the area's root, made if it has none.
    root: &'g dyn Fn() -> u64,
}

impl<P: System> EntryLock<P> for ClassicLock<'_> {
    #[inline]
    fn root(&self, _: &PageFault<'_, P>) -> u64 {
        (self.root)()
    }
}
