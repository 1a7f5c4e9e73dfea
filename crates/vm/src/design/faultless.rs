//! `faultless`: a fault writes its entry, its frame's metadata and its own CPU's lines, and nothing else.
//!
//! # Guarantee
//! While a fault is at work on an area, nobody changes that area, its translations or its tables: a writer announces
//! the change, and then waits for the faults that are at work on CPUs that use the space. So a fault looks once whether
//! a change was announced, and then fills an empty entry by one compare-and-swap, without a lock.
//!
//! # Protocol
//! ```text
//! fault on CPU c, which uses the space            writer (holds the semaphore)
//! RCU section begins (own line); fence            each area that takes part: sequence = odd
//! look the area up                                fence
//! its sequence is odd? give up                    each CPU that uses the space: in a section? wait for its end
//! check bounds, kind, rights; walk, add tables    publish the index, change the areas and their translations
//! entry empty -> page (compare-and-swap)          sequence = even, of areas that stay
//! RCU section ends
//! ```
//! | who | does | writes to shared lines |
//! |---|---|---|
//! | fault | on an empty entry: the above, of anonymous and file memory alike | 1: the entry; of a file also the page's references |
//! | store to a page that is shared, or was clean | the above, under the leaf table's lock | 3: the page-table lock 2, the entry 1 |
//! | classic fault | as `mmap-sem` | as `mmap-sem` |
//! | writer | as `mmap-sem`, plus the areas' sequences | 8: as `mmap-sem`; the sequence of each area that faults elsewhere 2, of a removed one 1; it reads a line of each CPU that uses the space |
//!
//! # Races
//! | race | why it is sound |
//! |---|---|
//! | a fault begins beside an announcement | of its fence and the writer's one comes first: the fault sees the odd sequence, or the writer sees the section and waits |
//! | a fault finds an area that was cut, moved or removed since | its bounds are looked at again; a removed one stays odd, and is not freed before the section ends |
//! | MADV_DONTNEED, which announces nothing, beside a fault | it takes entries by compare-and-swap: a page that comes later stays, as if the fault had begun later |
//! | a copy takes the old page out for the time of a shootdown | it leaves a guard, which is no empty entry (`fault::copy`) |
//! | a guard is set (MADV_GUARD_INSTALL) beside a fault | it is swapped in: what the fault put there is found and dropped |
//! | a fault under the semaphore fills the same entry | it does so by the same compare-and-swap ([`Design::FILLS_FREELY`]) |
//! | a fault gives the area its first root beside a writer who reads that there is none | the writer pins that by compare-and-swap before it relies on it, as the fault gives the root by one: one comes first (I4 of `area`) |
//! | a fault takes a neighbour's root beside a change of the neighbour | it looks whether that was announced, as of its own area; so neither changes before its section ends |
//! | two faults give neighbours their first roots | each finds none at the other: they get two, as under the shared semaphore, and are not joined later |
//! | a CPU that the space does not know as its user | it faults under the semaphore |
//! | a CPU begins to use the space beside the writer's look | its bit comes before its section: as in the first row |
//!
//! # Give-ups
//! As `vma-lock`: `spf_vma_changed`: no area there, a change is announced, or its bounds are others. `spf_vma_noanon`:
//! the first store to private memory whose root a writer has pinned, or of which a neighbour changes: the root is given
//! under the semaphore. `spf_vma_access`: the rights forbid it. `spf_vma_notsup`: an object must fetch the page first, or there is no frame.
//!
//! What a change costs grows with the CPUs that use the space; what map calls share is `mmap-sem`'s. docs/faultless.md
//! has the figures, and what was tried and lost.

use super::{Design, attempt};
use crate::area::Area;
use crate::error::AccessError;
use crate::events::GiveUp;
use crate::fault::classic::{Found, Missed};
use crate::fault::{EntryLock, Fault, Handled, LeafGuard, PageFault, resolve};
use crate::space::{Areas, Space, WholeSpace};
use crate::system::System;
use crate::translations::frames;
use core::marker::PhantomData;
use core::ptr::NonNull;
use faultless_phys::{FrameSource, Kind, OutOfFrames, Pfn};
use faultless_platform::mutant;
use faultless_sync::{RwSemaphore, SeqCount};

/// See the module.
pub struct Faultless<S>(PhantomData<fn() -> S>);

// SAFETY: a change is announced and then waits for the faults of all CPUs that use the space; those that begin later
// see the announcement. A removed area is freed after the sections that found it.
unsafe impl<P: System, S: RwSemaphore<P>> Design<P> for Faultless<S> {
    const NAME: &'static str = "faultless";
    const AREA_STATE_NAME: &'static str = "an area's sequence count";
    const FILLS_FREELY: bool = true;
    const REMOVES_APART: bool = true;
    const ROOTS_FREELY: bool = true;
    type Lock = WholeSpace<S>;
    type Map = Areas;
    type InstanceState = ();
    type SpaceState = ();
    /// Odd while a change is announced. Beside what faults only read: both are written by changes alone.
    type AreaState = SeqCount<P>;

    fn new_instance_state(_: usize) {}
    fn new_space_state() {}

    fn new_area_state() -> SeqCount<P> {
        SeqCount::new_in_write()
    }

    #[inline]
    fn begin_change(area: &SeqCount<P>) {
        area.begin_write();
    }

    #[inline]
    fn await_faults(space: &Space<P, Self>) {
        mutant!(FaultsUnawaited, {
            let cpus = space.users().members_below(P::nr_cpus());
            space.memory().rcu().await_sections_of(cpus);
        } => ());
    }

    #[inline]
    fn end_change(area: &SeqCount<P>) {
        area.end_write();
    }

    #[inline]
    fn update_index(_: &Space<P, Self>, update: impl FnOnce()) {
        update();
    }

    #[inline]
    unsafe fn release_area(space: &Space<P, Self>, area: NonNull<Area<P, Self>>) {
        // Out of the index, and odd for good.
        space.free_area(area);
    }

    #[inline]
    fn fault(space: &Space<P, Self>, fault: Fault) -> Result<Handled, AccessError> {
        match in_a_section(space, fault) {
            Ok(()) => Ok(Handled::Speculative),
            Err(missed) => attempt::handle_missed(space, fault, missed),
        }
    }
}

/// Tries to handle a fault inside an RCU section.
fn in_a_section<P: System, S: RwSemaphore<P>>(
    space: &Space<P, Faultless<S>>,
    fault: Fault,
) -> Result<(), Missed<'_, P, Faultless<S>>> {
    if !space.is_used_by(P::cpu()) {
        return Err(GiveUp::VmaNotsup.into());
    }
    let _section = space.look();
    let version = space.index().version();
    let entry = space.index().containing(fault.address.get()).ok_or(GiveUp::VmaChanged)?;
    // SAFETY: found in this RCU section, so not freed before it ends.
    let area = unsafe { entry.area.as_ref() };
    if mutant!(AnnouncementIgnored, area.state.read().is_write_in_progress() => false) {
        return Err(GiveUp::VmaChanged.into());
    }
    // From here on nobody changes the area: a writer waits for the section.
    let mut view = area.view();
    attempt::check_access(&view, fault)?;
    if attempt::lacks_root(&view, fault) {
        // SAFETY: so it is with each area of which no change is announced when the section looks.
        let root = unsafe { space.give_root(area, &view, is_unannounced) };
        let keep = || Missed { reason: GiveUp::VmaNoanon, found: Found::keep(space, fault, version, entry.area) };
        view.root = root.ok_or_else(keep)?;
    }
    let leaf = space.tables().walk_or_try_grow(space.memory(), fault.address.get()).map_err(|_| GiveUp::VmaNotsup)?;
    let page = PageFault { space, view, behind: area.behind(), fault, leaf, seen: leaf.read(space.memory()) };
    resolve(&page, &TableLock).map_err(|stop| GiveUp::from(stop).into())
}

/// Says whether no change of an area is announced; then none begins before the section of the caller ends.
fn is_unannounced<P: System, S: RwSemaphore<P>>(area: &Area<P, Faultless<S>>) -> bool {
    !area.state.read().is_write_in_progress()
}

/// Replaces entries under the page table's lock; the announcement keeps the area as it is.
struct TableLock;

impl<P: System, S: RwSemaphore<P>> EntryLock<P, Faultless<S>> for TableLock {
    #[inline]
    fn lock<'a>(&self, page: &PageFault<'a, P, Faultless<S>>) -> Result<LeafGuard<'a, P>, GiveUp> {
        Ok(LeafGuard::lock(page.space.memory(), page.leaf))
    }

    /// Without sleeping, inside the RCU section: frames that wait for a grace period are the classic path's.
    #[inline]
    fn alloc(&self, memory: &P::Frames) -> Result<Pfn, OutOfFrames> {
        frames::try_alloc(memory, Kind::Anonymous)
    }

    #[inline]
    fn root(&self, page: &PageFault<'_, P, Faultless<S>>) -> u64 {
        page.view.root
    }
}
