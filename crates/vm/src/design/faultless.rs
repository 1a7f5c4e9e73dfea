//! `faultless`: a fault writes its entry, its frame's metadata and its own CPU's lines, and nothing else.
//!
//! # Guarantee
//! While a fault is at work, nobody changes what its address shows, its translations or its tables: a writer announces
//! which addresses of an area it changes, and then waits for the faults that are at work on CPUs that use that part of
//! the space (`translations::lanes`). So
//! a fault looks once whether a change of its address was announced, and then fills an empty entry by one
//! compare-and-swap, without a lock. Faults elsewhere in the area go on.
//!
//! # Invariants
//! * I1 a change of an area is about one range; of the area's other addresses it changes nothing but the area's bounds,
//!   which area holds them, and a root that none of those has yet.
//! * I2 so what a fault at an address beside the range reads of the area is right, whichever of its reads the change
//!   falls between: flags and content stay, and so does the page that the address shows (I5 of `area`).
//! * I3 a mapping that is added to a hole waits for no fault: no fault is at work in a hole.
//! * I4 where no CPU but the writer's has looked (`sync::Lookers`), no fault is at work that began before the
//!   announcement, so there is nothing to wait for.
//!
//! # Protocol
//! ```text
//! fault on CPU c, which uses the address's lane   writer (holds the semaphore)
//! RCU section begins (own line); fence            each area that takes part: range, announced (`sync::Announcement`)
//! recalled, and the stamps are the same? then     the stamps of the range's lanes, if there are lanes (`recall`)
//!   the next three need not be                    fence
//! look the area up                                did another CPU ever look? then each CPU of the areas' lanes:
//! announced, of this address? give up               in a section? wait for its end
//! bounds have moved? look up again                publish the index, change the areas and the range's translations
//! check kind, rights; walk, add tables            end the announcement in areas that stay
//! entry empty -> page (compare-and-swap)
//! RCU section ends
//! ```
//! | who | does | writes to shared lines |
//! |---|---|---|
//! | fault | on an empty entry: the above, of anonymous and file memory alike | 1: the entry |
//! | store to a page that is shared, or was clean | the above, under the leaf table's lock | 3: the page-table lock 2, the entry 1 |
//! | classic fault | as `mmap-sem` | as `mmap-sem` |
//! | writer | as `mmap-sem`, plus the areas' announcements, and the stamps of their lanes | 8: as `mmap-sem`; the announcement of each area that faults elsewhere 2, of a removed one 1; it also reads a line of each CPU that uses the areas' lanes |
//!
//! # Races
//! | race | why it is sound |
//! |---|---|
//! | a fault begins beside an announcement | one of the two fences comes first: the fault sees the announcement, or another stamp, or the writer sees the section and waits |
//! | a CPU faults in the space for the first time beside an announcement | the same two fences: the writer sees that somebody looks, and waits, or the fault sees the announcement (race table of `sync::Lookers`) |
//! | a fault finds an area that was cut, moved or removed since | the fault looks at its bounds again; a removed area keeps its announcement, and is not freed before the section ends |
//! | a fault beside the range of a change whose area was cut, or became part of a neighbour | it may go on with the area that it found: the one that holds the address now shows the same (I1); a later change of the address waits for it |
//! | an area's flags change in place beside a fault that found it (`space::change::in_place`) | the change is about all of the area: the fault sees it announced, or it waits for the fault before the flags change; who sees that it has ended sees the new flags (`sync::SeqCount`) |
//! | an area grows over a hole beside a fault elsewhere in it | I2, I3; if its root or flags change, too, the fault is waited for |
//! | MADV_DONTNEED, which announces nothing, beside a fault | it takes entries by compare-and-swap: a page that comes later stays, as if the fault had begun later |
//! | a copy takes the old page out for the time of a shootdown | it leaves a guard, which is no empty entry (`fault::copy`) |
//! | a guard is set (MADV_GUARD_INSTALL) beside a fault | it is swapped in: what the fault put there is found and dropped |
//! | a fault under the semaphore fills the same entry | it does so by the same compare-and-swap ([`Design::FILLS_FREELY`]) |
//! | a fault gives the area its first root beside a writer who reads that there is none | the writer pins that by compare-and-swap before it relies on it, as the fault gives the root by one: one comes first (I4 of `area`) |
//! | a fault finds the new rights of one area while the call has others before it, which it may join with that one | the pin stays until the call's last change: the first store goes to the semaphore, behind the call |
//! | a fault takes a neighbour's root beside a change of the neighbour | it looks for an announcement there, as in its own area; so neither changes before its section ends |
//! | two faults give neighbours their first roots | each may find none at the other: the areas get two roots, as under the shared semaphore, and are not joined later |
//! | a CPU that the address's lane does not know | it faults under the semaphore |
//! | a fault looks at a neighbour in another lane, or has an area of several | if there is a neighbour, the first root is left to the semaphore; of its area it reads what a change elsewhere leaves as it is (I1), and a change of anything the area has waits for its lane |
//! | a CPU begins to use the lane beside the writer's look | its bit comes before its section: as in the first row |
//! | a busy CPU is taken out of the lane's set beside its fault | only if it is in no section; the fault looks at the set within its section (`shootdown`) |
//! | a CPU without an owner is taken out of the lane's set while it gets one, who faults | the owner was in guest since, or answers what was asked of the CPU before the fault (`Space::handle_fault`): it finds its bit gone, or keeps it (`shootdown`) |
//! | a fault meets a fork | it waits awake until the changes have ended, and tries again; or, if that takes long, under the semaphore |
//! | a fault changes an entry of a table that a child has, too | it gets a table of the space's own first (`translations::sharing`) |
//!
//! # Give-ups
//! As `vma-lock`: `spf_vma_changed`: no area there, or a change of the address is announced. `spf_vma_noanon`: the
//! first store to private memory whose root a writer has pinned, or whose neighbour is changing: the root is given
//! under the semaphore. `spf_vma_access`: the rights forbid it. `spf_vma_notsup`: an object must fetch the page first,
//! or there is no frame.
//!
//! What a change costs grows with the CPUs that use the lanes of its areas; what map calls share is `mmap-sem`'s.
//! docs/faultless.md has the figures, and what was tried and lost.

use super::recall::Recalled;
use super::{Design, attempt};
use crate::addr::{PAGE, VirtAddr};
use crate::area::{Area, AreaView};
use crate::content::Behind;
use crate::error::AccessError;
use crate::events::GiveUp;
use crate::fault::classic::{self, Missed};
use crate::fault::{Fault, Handled, LockedInSection, permits, resolve};
use crate::space::{Areas, MapLock, Ranges, Space, WholeSpace};
use crate::system::System;
use core::marker::PhantomData;
use core::ops::Range;
use core::ptr::NonNull;
use faultless_phys::FrameSource;
use faultless_platform::mutant;
use faultless_sync::{Announcement, PerCpu, RwSemaphore};

/// The design, whose map calls exclude each other as `K` says.
pub struct Announced<S, K>(PhantomData<fn() -> (S, K)>);

/// What tells the members of the family apart.
pub trait Variant: 'static {
    /// The name in the registry.
    const NAME: &'static str;
    /// How map calls exclude each other.
    type Lock<P: System, S: RwSemaphore<P>>: MapLock<P, Semaphore = S>;
}

/// Map calls queue.
pub struct Queued;

impl Variant for Queued {
    const NAME: &'static str = "faultless-queued";
    type Lock<P: System, S: RwSemaphore<P>> = WholeSpace<S>;
}

/// Map calls about different parts go on side by side.
pub struct SideBySide;

impl Variant for SideBySide {
    const NAME: &'static str = "faultless";
    type Lock<P: System, S: RwSemaphore<P>> = Ranges<P, S>;
}

/// Faults that write nothing shared; map calls of different parts side by side.
pub type Faultless<S> = Announced<S, SideBySide>;
/// The same faults; map calls queue.
pub type FaultlessQueued<S> = Announced<S, Queued>;

// SAFETY: a change is announced and then waits for the faults of all CPUs that use the space; those that begin later
// see the announcement. A removed area is freed after the sections that found it.
unsafe impl<P: System, S: RwSemaphore<P>, K: Variant> Design<P> for Announced<S, K> {
    const NAME: &'static str = K::NAME;
    const AREA_STATE_NAME: &'static str = "the announcement of an area's change";
    const FILLS_FREELY: bool = true;
    /// Where calls are side by side, a long one keeps nobody waiting who is not about its part.
    const REMOVES_APART: bool = !K::Lock::<P, S>::DIVIDES;
    const ROOTS_FREELY: bool = true;
    const ADDS_FREELY: bool = true;
    type Lock = K::Lock<P, S>;
    type Map = Areas;
    const STAMPS: bool = true;
    const SHARES_TABLES: bool = true;
    /// By CPU.
    type InstanceState = PerCpu<P, Recalled<P>>;
    type SpaceState = ();
    /// Beside fields that faults only read: changes alone write either.
    type AreaState = Announcement<P>;

    fn new_instance_state(nr_cpus: usize) -> Self::InstanceState {
        PerCpu::new(nr_cpus, |_cpu| Recalled::new())
    }
    fn new_space_state() {}

    fn new_area_state() -> Announcement<P> {
        Announcement::new()
    }

    #[inline]
    fn announce_range(area: &Announcement<P>, range: Range<VirtAddr>) {
        area.set_range(range.start.get()..range.end.get());
    }

    #[inline]
    fn begin_change(area: &Announcement<P>) {
        area.begin();
    }

    #[inline]
    fn await_faults(space: &Space<P, Self>, addresses: Range<VirtAddr>) {
        // I4.
        if space.is_looked_at() {
            await_sections(space, addresses);
        }
    }

    #[inline]
    fn end_change(area: &Announcement<P>) {
        area.end();
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
        match in_a_section(space, fault).or_else(|missed| after_fork(space, fault, missed)) {
            Ok(()) => Ok(Handled::Speculative),
            Err(missed) => attempt::handle_missed(space, fault, missed),
        }
    }
}

/// Waits for the faults of CPUs that use the lanes of a change.
#[inline(never)]
fn await_sections<P: System, S: RwSemaphore<P>, K: Variant>(
    space: &Space<P, Announced<S, K>>,
    addresses: Range<VirtAddr>,
) {
    let around = mutant!(FaultsOfOneLane, with_pages_around(&addresses) => {
        let first = addresses.start.get();
        first..first + 1
    });
    let (rcu, members) = (space.memory().rcu(), space.lanes().members(&around));
    let _kept = space.keep_slot();
    mutant!(FaultsUnawaited, rcu.await_sections_of(members) => ());
}

/// Tries to handle a fault inside an RCU section.
fn in_a_section<P: System, S: RwSemaphore<P>, K: Variant>(
    space: &Space<P, Announced<S, K>>,
    fault: Fault,
) -> Result<(), Missed<'_, P, Announced<S, K>>> {
    let _section = space.look();
    // In the section: a CPU that is in one is not taken out of its lane.
    if !space.is_awaited(P::cpu(), fault.address.get()) {
        return Err(GiveUp::VmaNotsup.into());
    }
    let recalled = space.vm().design_state().here();
    let held = if space.lanes().nr_ranges() == 0 { None } else { recalled.of(fault.address) };
    if held.is_some() {
        // Before the stamps are read (M3 of `recall`).
        space.note_looker_at(fault.address.get());
    }
    // Before any lookup (M1).
    let stamps = space.lanes().stamps(fault.address.get());
    if let (Some(held), Some(stamps)) = (held, &stamps)
        && let Some(view) = held.view(stamps)
        && permits(view.flags, fault.access)
        && !attempt::lacks_root(&view, fault)
    {
        return make_page(space, fault, (view, &Behind::Zeros));
    }
    let found = find(space, fault).ok_or(GiveUp::VmaChanged)?;
    let (area, mut view) = (found.area, found.view);
    if !permits(view.flags, fault.access) {
        return Err(GiveUp::VmaAccess.into());
    }
    if attempt::lacks_root(&view, fault) {
        view.root = found.give_root(space).ok_or_else(|| found.without_root(space, fault))?;
    }
    if let Some(stamps) = stamps.filter(|_| !found.changes) {
        let alike = || space.lanes().stamped_alike(fault.address.get());
        recalled.keep(&stamps, &view, fault.address, alike);
    }
    make_page(space, fault, (view, area.behind()))
}

/// Tries once more, if what the attempt met was a fork, and that has ended.
#[cold]
fn after_fork<'s, P: System, S: RwSemaphore<P>, K: Variant>(
    space: &'s Space<P, Announced<S, K>>,
    fault: Fault,
    missed: Missed<'s, P, Announced<S, K>>,
) -> Result<(), Missed<'s, P, Announced<S, K>>> {
    let has_waited = missed.reason == GiveUp::VmaChanged && space.translations.await_fork();
    if has_waited { in_a_section(space, fault) } else { Err(missed) }
}

/// Makes the page of an area that stays as it is until the caller's section ends.
#[inline(always)]
fn make_page<'s, P: System, S: RwSemaphore<P>, K: Variant>(
    space: &'s Space<P, Announced<S, K>>,
    fault: Fault,
    (view, behind): (AreaView<P>, &Behind<P>),
) -> Result<(), Missed<'s, P, Announced<S, K>>> {
    let leaf = space.tables().walk_or_try_grow(space.memory(), fault.address.get()).map_err(|_| GiveUp::VmaNotsup)?;
    let page = space.page_fault(fault, (view, behind), space.translations.own_for((fault.address, fault.access), leaf));
    resolve(&page, &LockedInSection).map_err(|stop| GiveUp::from(stop).into())
}

/// Returns addresses with the page below and the one above: those that have neighbours.
fn with_pages_around(addresses: &Range<VirtAddr>) -> Range<u64> {
    addresses.start.get().saturating_sub(PAGE)..addresses.end.get().saturating_add(PAGE)
}

/// An area that a fault found; nobody changes what the fault is about before the fault's section ends.
struct FoundArea<'s, P: System, S: RwSemaphore<P>, K: Variant> {
    area: &'s Area<P, Announced<S, K>>,
    view: AreaView<P>,
    /// Whether a change of other addresses is announced.
    changes: bool,
}

/// Looks up the area of a fault; `None` if there is none, or a change of the address is announced.
#[inline]
fn find<P: System, S: RwSemaphore<P>, K: Variant>(
    space: &Space<P, Announced<S, K>>,
    fault: Fault,
) -> Option<FoundArea<'_, P, S, K>> {
    // A change of other addresses may cut the area between the lookup and the look at its bounds.
    const NR_LOOKS: u32 = 3;
    for _ in 0..NR_LOOKS {
        let entry = space.area_containing_unlocked(fault.address.get())?;
        // SAFETY: found in the caller's RCU section, so not freed before it ends.
        let area = unsafe { entry.area.as_ref() };
        let changes = mutant!(AnnouncementIgnored, area.state.is_made() => false);
        if changes && area.state.concerns(fault.address.get()) {
            return None;
        }
        let view = area.view();
        if attempt::holds(&view, fault) {
            return Some(FoundArea { area, view, changes });
        }
    }
    None
}

impl<'s, P: System, S: RwSemaphore<P>, K: Variant> FoundArea<'s, P, S, K> {
    /// Gives the area its root; `None` if that is left to the semaphore's holders.
    #[cold]
    fn give_root(&self, space: &'s Space<P, Announced<S, K>>) -> Option<u64> {
        if self.changes || self.view.lacks_root_of_chain() {
            return None;
        }
        // Who changes a neighbour waits for the faults of its lanes, and of those of the pages around it.
        let around = with_pages_around(&(self.view.start..self.view.end));
        let is_awaited = || space.lanes().are_one(&around);
        // SAFETY: if the section finds no change of an area announced that waits for this fault, the area keeps its
        // root, and what it shows, until the section ends.
        unsafe { space.give_root(self.area, &self.view, |area| is_awaited() && !area.state.is_made()) }
    }

    #[cold]
    fn without_root(&self, space: &'s Space<P, Announced<S, K>>, fault: Fault) -> Missed<'s, P, Announced<S, K>> {
        // SAFETY: found in the caller's RCU section, so not freed before it ends.
        let found = unsafe { classic::Found::keep(space, fault, self.area.into()) };
        Missed { reason: GiveUp::VmaNoanon, found }
    }
}
