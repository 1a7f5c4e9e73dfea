//! `spf-v11`: a fault first tries without the semaphore (seed 1: the 2018 series, version 11).
//!
//! # Guarantee
//! A speculative fault commits under the page-table lock, after it saw there that its area has not begun to change. So
//! whoever changes the area afterwards takes that lock later and finds the page; whoever began before is noticed.
//!
//! # Protocol
//! ```text
//! fault                                          writer (holds the semaphore)
//! index lock (read): look up, reference area     area.sequence += 1        (odd)
//! seq = area.sequence; odd: give up              index lock (write): publish
//! check kind, rights, bounds                     page-table lock: clear entries, one table after the other
//! RCU: walk to pmd and pte, remember both        shoot down; free empty tables after a grace period
//! seq changed? give up                           area.sequence += 1        (even; never, for a removed area)
//! take a frame                                   index's reference to the area dropped
//! irq off, RCU: seq or pmd changed? give up
//!   trylock page table; busy: irq on, wait a little, again
//!   seq changed? pte changed? give up
//! irq on; install; unlock; drop the reference
//! ```
//! | who | does | writes to shared lines |
//! |---|---|---|
//! | speculative fault | the above | the index lock's word twice, the area's reference count twice, the page-table lock twice, the entry |
//! | classic fault | as `mmap-sem` | as `mmap-sem` |
//! | writer | as `mmap-sem`, plus sequence counts and index lock | as `mmap-sem`, plus each area's sequence, and the index lock's word twice |
//!
//! # Give-ups
//! Each attempt that isn't completed has exactly one reason, in the order of the checks. A space that one thread uses
//! does not speculate; such faults count as classic and not as failed.
//!
//! # Reconstructed (the thread's prose leaves it open)
//! * No area at or above the address, or the address outside the area found: `spf_vma_changed` (the classic path then
//!   finds out whether it is a bad access or a stack that grows).
//! * A read fault needs no reverse-map root; `spf_vma_noanon` is for writes.
//! * The page's entry changed between walk and lock: `spf_pmd_changed`.
//! * The tables stay allocated during the walk by RCU, as on architectures that free them so; the series held
//!   interrupts off, which here does not keep a writer from freeing, since shootdowns don't wait for kernel code.
//! * An attempt that finds no frame is given up as `spf_vma_notsup`; the classic path reports the shortage.

use super::Design;
use crate::area::{Area, AreaFlags, AreaView};
use crate::entry::Entry;
use crate::error::AccessError;
use crate::events::{Event, GiveUp};
use crate::fault::{EntryLock, Fault, Handled, LeafGuard, PageFault, Stop, classic, permits, resolve};
use crate::space::Space;
use crate::table::Leaf;
use core::marker::PhantomData;
use core::ptr::NonNull;
use faultless_platform::{Atomic, AtomicInteger, IrqOffGuard, Ordering, Platform};
use faultless_sync::{RwSemaphore, RwSpinLock, Seq, SeqCount};

/// See the module.
pub struct SpfV11<S>(PhantomData<fn() -> S>);

/// What `spf-v11` keeps for each area.
pub struct AreaState<P: Platform> {
    sequence: SeqCount<P>,
    /// One for the index, one for each fault that uses the area.
    references: P::AtomicU32,
}

impl<P: Platform, S: RwSemaphore<P>> Design<P> for SpfV11<S> {
    const NAME: &'static str = "spf-v11";
    type Semaphore = S;
    type SpaceState = RwSpinLock<P>;
    type AreaState = AreaState<P>;

    fn new_space_state() -> RwSpinLock<P> {
        RwSpinLock::new()
    }

    fn new_area_state() -> AreaState<P> {
        AreaState { sequence: SeqCount::new(), references: P::AtomicU32::new(1) }
    }

    #[inline]
    fn begin_change(area: &AreaState<P>) {
        area.sequence.begin_write();
    }

    #[inline]
    fn end_change(area: &AreaState<P>) {
        area.sequence.end_write();
    }

    #[inline]
    fn update_index(space: &RwSpinLock<P>, update: impl FnOnce()) {
        let _index = space.write();
        update();
    }

    #[inline]
    fn release_area(area: &AreaState<P>) -> bool {
        // ORDER: AcqRel pairs with the other holders' puts: the last one frees after all uses.
        area.references.fetch_sub(1, Ordering::AcqRel) == 1
    }

    #[inline]
    fn fault(space: &Space<P, Self>, fault: Fault) -> Result<Handled, AccessError> {
        if space.nr_users() > 1 {
            match speculate(space, fault) {
                Ok(()) => return Ok(Handled::Speculative),
                Err(reason) => {
                    space.vm().events().count(Event::SpfFailed);
                    space.vm().events().count(reason.event());
                }
            }
        }
        classic::handle(space, fault)?;
        Ok(Handled::Classic)
    }
}

/// A reference to an area, taken without the semaphore.
struct AreaGuard<'a, P: Platform, S: RwSemaphore<P>> {
    space: &'a Space<P, SpfV11<S>>,
    area: NonNull<Area<P, SpfV11<S>>>,
}

impl<'a, P: Platform, S: RwSemaphore<P>> AreaGuard<'a, P, S> {
    fn lookup(space: &'a Space<P, SpfV11<S>>, address: u64) -> Option<Self> {
        let _index = space.design_state().read();
        let entry = space.index().first_ending_after(address)?;
        // SAFETY: the index holds a reference for as long as we hold its lock.
        let references = &unsafe { entry.area.as_ref() }.state.references;
        // Relaxed: the index's own reference, kept by its lock, is why the count is not 0.
        references.fetch_add(1, Ordering::Relaxed);
        Some(Self { space, area: entry.area })
    }

    fn area(&self) -> &Area<P, SpfV11<S>> {
        // SAFETY: our reference keeps it.
        unsafe { self.area.as_ref() }
    }
}

impl<P: Platform, S: RwSemaphore<P>> Drop for AreaGuard<'_, P, S> {
    fn drop(&mut self) {
        if SpfV11::<S>::release_area(&self.area().state) {
            self.space.free_area(self.area);
        }
    }
}

/// Tries to handle a fault without the semaphore.
fn speculate<P: Platform, S: RwSemaphore<P>>(space: &Space<P, SpfV11<S>>, fault: Fault) -> Result<(), GiveUp> {
    let held = AreaGuard::lookup(space, fault.address).ok_or(GiveUp::VmaChanged)?;
    let area = held.area();
    let sequence = area.state.sequence.read();
    if sequence.is_write_in_progress() {
        return Err(GiveUp::VmaChanged);
    }
    let view = area.view();
    check(&view, fault)?;
    let (leaf, seen) = walk(space, area, sequence, fault)?;
    let page = PageFault { space, area, view, fault, leaf, seen };
    let lock = SpeculativeLock { area, sequence };
    resolve(&page, &lock).map_err(|stop| match stop {
        Stop::GiveUp(reason) => reason,
        Stop::Fetch(_) | Stop::Failed(_) => GiveUp::VmaNotsup,
    })
}

/// Checks what the series checks before it walks, in its order.
fn check<P: Platform>(view: &AreaView<P>, fault: Fault) -> Result<(), GiveUp> {
    if view.object.is_some() {
        return Err(GiveUp::VmaNotsup);
    }
    if fault.access.is_write() && view.root == 0 {
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

/// Walks to the page's entry; a missing level is not supported.
fn walk<'a, P: Platform, S: RwSemaphore<P>>(
    space: &'a Space<P, SpfV11<S>>,
    area: &Area<P, SpfV11<S>>,
    sequence: Seq,
    fault: Fault,
) -> Result<(Leaf<'a, P>, Entry), GiveUp> {
    let walked = {
        let _irq = IrqOffGuard::<P>::new();
        let _rcu = space.memory().rcu().read();
        let leaf = space.tables().walk(space.memory(), fault.address).ok_or(GiveUp::VmaNotsup)?;
        (leaf, leaf.entry())
    };
    if area.state.sequence.is_unchanged(sequence) { Ok(walked) } else { Err(GiveUp::VmaChanged) }
}

/// Locks the entry as the series' `pte_map_lock` does.
struct SpeculativeLock<'a, P: Platform, S: RwSemaphore<P>> {
    area: &'a Area<P, SpfV11<S>>,
    sequence: Seq,
}

enum Attempt<'a, P: Platform> {
    Locked(LeafGuard<'a, P>),
    Busy,
}

impl<P: Platform, S: RwSemaphore<P>> SpeculativeLock<'_, P, S> {
    fn is_unchanged(&self) -> Result<(), GiveUp> {
        if self.area.state.sequence.is_unchanged(self.sequence) { Ok(()) } else { Err(GiveUp::VmaChanged) }
    }

    /// One attempt, with interrupts off.
    fn attempt<'a>(&self, page: &PageFault<'a, P, SpfV11<S>>) -> Result<Attempt<'a, P>, GiveUp> {
        let _irq = IrqOffGuard::<P>::new();
        // The tables below can't be freed while we read them: a writer that bumps the sequence after the check that
        // follows waits for this section before it frees any.
        let _rcu = page.space.memory().rcu().read();
        self.is_unchanged()?;
        let (parent, walked) = page.leaf.parent;
        // ORDER: Acquire pairs with the Release in `Tables::free_empty`.
        if parent.load(Ordering::Acquire) != walked.bits() {
            return Err(GiveUp::PmdChanged);
        }
        let Some(guard) = LeafGuard::try_lock(page.space.memory(), page.leaf) else { return Ok(Attempt::Busy) };
        self.is_unchanged()?;
        if guard.entry() != page.seen { Err(GiveUp::PmdChanged) } else { Ok(Attempt::Locked(guard)) }
    }
}

impl<P: Platform, S: RwSemaphore<P>> EntryLock<P, SpfV11<S>> for SpeculativeLock<'_, P, S> {
    fn lock<'a>(&self, page: &PageFault<'a, P, SpfV11<S>>) -> Result<LeafGuard<'a, P>, GiveUp> {
        loop {
            match self.attempt(page)? {
                Attempt::Locked(guard) => return Ok(guard),
                // Interrupts are on: the wait serves shootdowns.
                Attempt::Busy => P::spin_until(|| !LeafGuard::is_locked(page.space.memory(), page.leaf)),
            }
        }
    }

    fn root(&self, page: &PageFault<'_, P, SpfV11<S>>) -> u64 {
        page.view.root
    }
}
