//! What the designs of the speculative page-fault series share: the attempt itself.
//!
//! # Guarantee
//! A speculative fault commits under the page-table lock, after it saw there that its area has not begun to change. So
//! a writer that begins afterwards takes that lock later and finds the page; one that began before is noticed.
//!
//! # Protocol
//! ```text
//! fault                                          writer (holds the semaphore)
//! get hold of the area (the version's way)       area.sequence += 1        (odd)
//! seq = area.sequence; odd: give up              publish the index (the version's way)
//! check kind, rights, bounds                     page-table lock: clear entries, one table after the other
//! RCU section begins                             shoot down; free empty tables after a grace period
//! walk to pmd and pte, remember both             area.sequence += 1        (even; never, for a removed area)
//! seq changed? give up                           let go of a removed area (the version's way)
//! take a frame
//! irq off: seq or pmd changed? give up
//!   trylock page table; busy: the version's way
//!   seq changed? pte changed? give up
//! irq on; install; unlock
//! RCU section ends; let go of the area
//! ```
//! A partial unmap ends the survivor's write section before it zaps the part: the survivor's new bounds exclude it.
//!
//! # Give-ups
//! Each attempt that isn't completed has exactly one reason, in the order of the checks. A space that one thread uses
//! does not speculate; such faults count as classic and not as failed.
//!
//! # Reconstructed (the threads' prose leaves it open)
//! * No area at or above the address, or the address outside the area found: `spf_vma_changed` (the classic path then
//!   finds out whether it is a bad access or a stack that grows).
//! * A read fault needs no reverse-map root; `spf_vma_noanon` is for writes.
//! * The page's entry changed between walk and lock: `spf_pmd_changed`.
//! * The tables stay allocated from the walk to the commit by one RCU section, as on architectures that free them so;
//!   the series held interrupts off during the walk, which here does not keep a writer from freeing, since shootdowns
//!   don't wait for kernel code. Nothing in the section sleeps: a shortage of frames ends it.
//! * An attempt that finds no frame is given up as `spf_vma_notsup`; the classic path reports the shortage.

use super::Design;
use super::attempt::{handle_missed, lacks_root};
use crate::area::{Area, AreaFlags, AreaView};
use crate::entry::Entry;
use crate::error::AccessError;
use crate::events::GiveUp;
use crate::fault::classic::{self, Missed};
use crate::fault::{EntryLock, Fault, Handled, PageFault, permits, resolve};
use crate::instance::Vm;
use crate::space::{Areas, Space, WholeSpace};
use crate::system::System;
use crate::translations::frames;
use crate::translations::leaf_guard::LeafGuard;
use crate::translations::table::Leaf;
use core::marker::PhantomData;
use core::ptr::NonNull;
use faultless_phys::{FrameSource, Kind, OutOfFrames, Pfn};
use faultless_platform::IrqOffGuard;
use faultless_platform::mutant;
use faultless_sync::{RwSemaphore, Seq, SeqCount};

/// What an attempt does that finds the page-table lock taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenBusy {
    /// Waits a little with interrupts on, and checks everything again.
    Wait,
    /// Gives up, as `spf_pte_lock`.
    GiveUp,
}

/// How a version of the series gets hold of an area without the semaphore.
///
/// # Safety
/// As for [`Design`]; and what `with_area` gives to `act` is not freed before `act` returns.
pub unsafe trait Version<P: System>: Sized + Send + Sync + 'static {
    /// The design's name.
    const NAME: &'static str;
    /// What it does when the page-table lock is taken.
    const WHEN_BUSY: WhenBusy;
    /// What it keeps for the instance.
    type InstanceState: Send + Sync;
    /// What it keeps for each space.
    type SpaceState: Send + Sync;
    /// What it keeps for each area.
    type AreaState: Send + Sync;

    /// Returns the state of a new instance.
    fn new_instance_state(nr_cpus: usize) -> Self::InstanceState;
    /// Returns the state of a new space.
    fn new_space_state() -> Self::SpaceState;
    /// See [`Design::new_area_state`].
    fn new_area_state() -> Self::AreaState;
    /// Returns an area's sequence count.
    fn sequence(area: &Self::AreaState) -> &SeqCount<P>;
    /// See [`Design::update_index`].
    fn update_index<S: RwSemaphore<P>>(space: &SpeculativeSpace<P, S, Self>, update: impl FnOnce());
    /// See [`Design::release_area`].
    ///
    /// # Safety
    /// As for that.
    unsafe fn release_area<S: RwSemaphore<P>>(space: &SpeculativeSpace<P, S, Self>, area: SpeculativeArea<P, S, Self>);
    /// See [`Design::flush`].
    fn flush(_instance: &Self::InstanceState) {}
    /// See [`Design::poll`].
    #[inline]
    fn poll(_instance: &Self::InstanceState) {}
    /// See [`Design::has_deferred`].
    fn has_deferred(_instance: &Self::InstanceState) -> bool {
        false
    }
    /// Runs `act` on the first area that ends behind the fault's address, which is not freed meanwhile.
    fn with_area<S: RwSemaphore<P>, R>(
        space: &SpeculativeSpace<P, S, Self>,
        fault: Fault,
        act: impl FnOnce(&Area<P, Speculation<S, Self>>) -> Result<R, GiveUp>,
    ) -> Result<R, SpeculativeMissed<'_, P, S, Self>>;
}

/// A space under a version of the series.
pub type SpeculativeSpace<P, S, V> = Space<P, Speculation<S, V>>;
/// An area under a version of the series.
pub type SpeculativeArea<P, S, V> = NonNull<Area<P, Speculation<S, V>>>;

/// An attempt under a version of the series that was given up.
pub type SpeculativeMissed<'a, P, S, V> = Missed<'a, P, Speculation<S, V>>;

/// The designs of the series; see the module.
pub struct Speculation<S, V>(PhantomData<fn() -> (S, V)>);

// SAFETY: changes are announced by the sequence count, which faults check under the table's lock; the rest is the
// version's.
unsafe impl<P: System, S: RwSemaphore<P>, V: Version<P>> Design<P> for Speculation<S, V> {
    const NAME: &'static str = V::NAME;
    const GIVES_UP_WHEN_BUSY: bool = matches!(V::WHEN_BUSY, WhenBusy::GiveUp);
    const AREA_STATE_NAME: &'static str = "an area's counts of users and of changes";
    type Lock = WholeSpace<S>;
    type Map = Areas;
    type InstanceState = V::InstanceState;
    type SpaceState = V::SpaceState;
    type AreaState = V::AreaState;

    fn new_instance_state(nr_cpus: usize) -> V::InstanceState {
        V::new_instance_state(nr_cpus)
    }

    fn new_space_state() -> V::SpaceState {
        V::new_space_state()
    }

    fn new_area_state() -> V::AreaState {
        V::new_area_state()
    }

    #[inline]
    fn begin_change(area: &V::AreaState) {
        V::sequence(area).begin_write();
    }

    #[inline]
    fn end_change(area: &V::AreaState) {
        V::sequence(area).end_write();
    }

    #[inline]
    fn update_index(space: &Space<P, Self>, update: impl FnOnce()) {
        V::update_index(space, update);
    }

    #[inline]
    unsafe fn release_area(space: &Space<P, Self>, area: NonNull<Area<P, Self>>) {
        // SAFETY: passed on.
        unsafe { V::release_area(space, area) };
    }

    fn flush(vm: &Vm<P, Self>) {
        V::flush(vm.design_state());
    }

    #[inline]
    fn poll(vm: &Vm<P, Self>) {
        V::poll(vm.design_state());
    }

    fn has_deferred(vm: &Vm<P, Self>) -> bool {
        V::has_deferred(vm.design_state())
    }

    #[inline]
    fn fault(space: &Space<P, Self>, fault: Fault) -> Result<Handled, AccessError> {
        if space.nr_users() < 2 {
            classic::handle(space, fault)?;
            return Ok(Handled::Classic);
        }
        match speculate(space, fault) {
            Ok(()) => Ok(Handled::Speculative),
            Err(missed) => handle_missed(space, fault, missed),
        }
    }
}

/// Tries to handle a fault without the semaphore.
fn speculate<P: System, S: RwSemaphore<P>, V: Version<P>>(
    space: &SpeculativeSpace<P, S, V>,
    fault: Fault,
) -> Result<(), SpeculativeMissed<'_, P, S, V>> {
    V::with_area(space, fault, |area| attempt(space, area, fault))
}

fn attempt<P: System, S: RwSemaphore<P>, V: Version<P>>(
    space: &SpeculativeSpace<P, S, V>,
    area: &Area<P, Speculation<S, V>>,
    fault: Fault,
) -> Result<(), GiveUp> {
    let seen = V::sequence(&area.state).read();
    if seen.is_write_in_progress() {
        return Err(GiveUp::VmaChanged);
    }
    let lock = SpeculativeLock { sequence: V::sequence(&area.state), seen, when_busy: V::WHEN_BUSY };
    let view = area.view();
    check(&view, fault)?;
    // The tables below can't be freed while we read them: a writer that bumps the sequence after the last check waits
    // for this section before it frees any.
    let _tables = mutant!(TablesUnheld, Some(space.memory().rcu().read()) => None);
    let (leaf, seen) = walk(space, &lock, fault)?;
    let found = (mutant!(RootSetWithoutLock, view => space.with_root_set_without_lock(view, fault)), area.behind());
    let page = space.page_fault(fault, found, (leaf, seen));
    resolve(&page, &lock).map_err(GiveUp::from)
}

/// Checks what the series checks before it walks, in its order.
fn check<P: System>(view: &AreaView<P>, fault: Fault) -> Result<(), GiveUp> {
    // As the series, and because nothing here keeps an object's page: no removal waits for a speculation (I2 of
    // `object::removal`).
    if view.object.is_some() {
        return Err(GiveUp::VmaNotsup);
    }
    if lacks_root(view, fault) {
        return Err(GiveUp::VmaNoanon);
    }
    if view.flags.contains(AreaFlags::GROWSDOWN) {
        return Err(GiveUp::VmaNotsup);
    }
    if !(view.start..view.end).contains(&fault.address) {
        return Err(GiveUp::VmaChanged);
    }
    if !permits(view.flags, fault.access) {
        return Err(GiveUp::VmaAccess);
    }
    Ok(())
}

/// Walks to the page's entry, in the caller's RCU section; a missing level is not supported.
fn walk<'a, P: System, D: Design<P>>(
    space: &'a Space<P, D>,
    lock: &SpeculativeLock<'_, P>,
    fault: Fault,
) -> Result<(Leaf<'a, P>, Entry), GiveUp> {
    let leaf = space.tables().walk(space.memory(), fault.address.get()).ok_or(GiveUp::VmaNotsup)?;
    let seen = leaf.read(space.memory());
    lock.check_unchanged().map(|()| (leaf, seen))
}

/// Locks the entry as the series' `pte_map_lock` does.
struct SpeculativeLock<'a, P: System> {
    sequence: &'a SeqCount<P>,
    seen: Seq,
    when_busy: WhenBusy,
}

enum Attempt<'a, P: System> {
    Locked(LeafGuard<'a, P>),
    Busy,
}

impl<P: System> SpeculativeLock<'_, P> {
    fn check_unchanged(&self) -> Result<(), GiveUp> {
        if self.sequence.is_unchanged(self.seen) { Ok(()) } else { Err(GiveUp::VmaChanged) }
    }

    /// One attempt, with interrupts off.
    fn attempt<'a>(&self, page: &PageFault<'a, P>) -> Result<Attempt<'a, P>, GiveUp> {
        let _irq = IrqOffGuard::<P>::new();
        self.check_unchanged()?;
        let (_, walked) = page.leaf.parent;
        if page.leaf.parent_entry(page.memory()) != walked {
            return Err(GiveUp::PmdChanged);
        }
        let Some(guard) = LeafGuard::try_lock(page.memory(), page.leaf) else { return Ok(Attempt::Busy) };
        mutant!(NoCheckUnderLock, self.check_unchanged()? => ());
        if guard.entry() != page.seen { Err(GiveUp::PmdChanged) } else { Ok(Attempt::Locked(guard)) }
    }
}

impl<P: System> EntryLock<P> for SpeculativeLock<'_, P> {
    fn lock<'a>(&self, page: &PageFault<'a, P>) -> Result<LeafGuard<'a, P>, GiveUp> {
        loop {
            match self.attempt(page)? {
                Attempt::Locked(guard) => return Ok(guard),
                Attempt::Busy if self.when_busy == WhenBusy::GiveUp => return Err(GiveUp::PteLock),
                // Interrupts are on: the wait serves shootdowns. The holder waits for no grace period: it holds a spin
                // lock.
                Attempt::Busy => P::spin_until(|| !LeafGuard::is_locked(page.memory(), page.leaf)),
            }
        }
    }

    /// Without sleeping, inside the RCU section: frames that wait for a grace period are the classic path's.
    #[inline]
    fn alloc(&self, memory: &P::Frames) -> Result<Pfn, OutOfFrames> {
        frames::try_alloc(memory, Kind::Anonymous)
    }
}
