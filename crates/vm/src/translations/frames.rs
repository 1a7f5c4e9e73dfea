//! Frames with their kind and references, as `vm` uses them.
//!
//! # Guarantee
//! These are the only places where `vm` gives references back. [`put`] is called by whoever owns the reference and
//! has, for mapped frames, shot the translations down; see `gather`.

use core::marker::PhantomData;
use faultless_phys::{FrameSource, Kind, OutOfFrames, Pfn};
use faultless_platform::mutant;
use faultless_platform::{Atomic, Bulk, Holds, Ordering, PAGE_BYTES, Platform, Tracepoint};

/// The frame has as many references as it can count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Saturated;

/// Says as what a frame of some kind may lie in high memory; nothing for what always has an address.
const fn holds(kind: Kind) -> Option<Holds> {
    match kind {
        Kind::Anonymous => Some(Holds::AnonymousPage),
        Kind::Object => Some(Holds::FilePage),
        Kind::Table => Some(Holds::Table),
        Kind::Free | Kind::Slab | Kind::Reserved | Kind::Reference => None,
    }
}

/// Holds the address of a frame that may lie in high memory, where it has none of its own. Where all memory has
/// addresses it is nothing at all. Who holds a brief one does not sleep.
pub(crate) struct FrameMap<'a, P: Platform, F: FrameSource<P>, const BRIEF: bool = false> {
    memory: &'a F,
    pfn: Pfn,
    holds: Option<Holds>,
    platform: PhantomData<fn() -> P>,
}

/// As [`FrameMap`], of somebody who does not sleep.
pub(crate) type BriefFrameMap<'a, P, F> = FrameMap<'a, P, F, true>;

impl<'a, P: Platform, F: FrameSource<P>> FrameMap<'a, P, F> {
    /// Maps a frame until the guard is dropped, if it may lack an address.
    #[inline(always)]
    pub(crate) fn new(memory: &'a F, pfn: Pfn, holds: Option<Holds>) -> Self {
        if let Some(holds) = holds {
            P::map_frame(memory.frame(pfn), holds);
        }
        Self { memory, pfn, holds, platform: PhantomData }
    }

    /// As [`FrameMap::new`], of a frame that says by its kind what it holds.
    #[inline(always)]
    pub(crate) fn by_kind(memory: &'a F, pfn: Pfn) -> Self {
        Self::new(memory, pfn, held_by_kind(memory, pfn))
    }
}

impl<'a, P: Platform, F: FrameSource<P>> BriefFrameMap<'a, P, F> {
    /// As [`FrameMap::new`].
    #[inline(always)]
    pub(crate) fn brief(memory: &'a F, pfn: Pfn, holds: Option<Holds>) -> Self {
        if let Some(holds) = holds {
            P::map_briefly(memory.frame(pfn), holds);
        }
        Self { memory, pfn, holds, platform: PhantomData }
    }

    /// As [`FrameMap::by_kind`].
    #[inline(always)]
    pub(crate) fn brief_by_kind(memory: &'a F, pfn: Pfn) -> Self {
        Self::brief(memory, pfn, held_by_kind(memory, pfn))
    }
}

/// Says as what a frame may lie in high memory, by its kind.
#[inline(always)]
fn held_by_kind<P: Platform>(memory: &impl FrameSource<P>, pfn: Pfn) -> Option<Holds> {
    if P::HAS_HIGH_MEMORY { holds(memory.page(pfn).kind()) } else { None }
}

impl<P: Platform, F: FrameSource<P>, const BRIEF: bool> Drop for FrameMap<'_, P, F, BRIEF> {
    #[inline(always)]
    fn drop(&mut self) {
        match self.holds {
            Some(holds) if BRIEF => P::unmap_briefly(self.memory.frame(self.pfn), holds),
            Some(holds) => P::unmap_frame(self.memory.frame(self.pfn), holds),
            None => {}
        }
    }
}

/// Takes a frame; its content is anything.
#[inline(always)]
pub(crate) fn alloc<P: Platform>(memory: &impl FrameSource<P>, kind: Kind) -> Result<Pfn, OutOfFrames> {
    let pfn = memory.alloc_for(holds(kind))?;
    // SAFETY: just given to us.
    unsafe { memory.page(pfn).owned() }.set_kind(kind);
    Ok(pfn)
}

/// Takes a frame without sleeping; its content is anything.
#[inline(always)]
pub(crate) fn try_alloc<P: Platform>(memory: &impl FrameSource<P>, kind: Kind) -> Result<Pfn, OutOfFrames> {
    let pfn = memory.try_alloc_for(holds(kind))?;
    // SAFETY: just given to us.
    unsafe { memory.page(pfn).owned() }.set_kind(kind);
    Ok(pfn)
}

/// Takes a frame filled with zeros.
#[inline]
pub(crate) fn alloc_zeroed<P: Platform>(memory: &impl FrameSource<P>, kind: Kind) -> Result<Pfn, OutOfFrames> {
    let pfn = memory.alloc_for(holds(kind))?;
    let map = FrameMap::brief(memory, pfn, holds(kind));
    zero(memory, pfn);
    drop(map);
    // SAFETY: just given to us.
    unsafe { memory.page(pfn).owned() }.set_kind(kind);
    Ok(pfn)
}

/// Takes a page table, empty. May sleep.
#[inline]
pub(crate) fn alloc_table<P: Platform>(memory: &impl FrameSource<P>, holds: Option<Holds>) -> Result<Pfn, OutOfFrames> {
    let pfn = memory.alloc_for(holds)?;
    let map = FrameMap::new(memory, pfn, holds);
    zero(memory, pfn);
    drop(map);
    // SAFETY: just given to us.
    unsafe { memory.page(pfn).owned() }.set_kind(Kind::Table);
    tell_table(memory, pfn);
    Ok(pfn)
}

/// Tells observers that the frame is a table.
#[inline(always)]
fn tell_table<P: Platform>(memory: &impl FrameSource<P>, pfn: Pfn) {
    if P::WATCHED {
        let address = memory.frame(pfn).addr();
        P::trace(Tracepoint::Named { name: "entries of a page table", address, len_bytes: PAGE_BYTES });
        P::trace(Tracepoint::named("the lock and the counts of a page table", memory.page(pfn)));
    }
}

/// As [`alloc_table`], of a leaf table whose entries may be anything: [`clear_table`] comes before it is linked in.
pub(crate) fn alloc_raw_table<P: Platform>(memory: &impl FrameSource<P>) -> Result<Pfn, OutOfFrames> {
    let pfn = alloc(memory, Kind::Table)?;
    tell_table(memory, pfn);
    Ok(pfn)
}

/// Empties a leaf table of the caller's own, which is mapped: all at once, so that its lines are at hand.
pub(crate) fn clear_table<P: Platform>(memory: &impl FrameSource<P>, table: Pfn) {
    zero(memory, table);
}

/// As [`alloc_table`], without sleeping.
pub(crate) fn try_alloc_table<P: Platform>(
    memory: &impl FrameSource<P>,
    holds: Option<Holds>,
) -> Result<Pfn, OutOfFrames> {
    let pfn = memory.try_alloc_for(holds)?;
    // SAFETY: just given to us.
    unsafe { memory.page(pfn).owned() }.set_kind(Kind::Table);
    let map = FrameMap::new(memory, pfn, holds);
    zero(memory, pfn);
    drop(map);
    tell_table(memory, pfn);
    Ok(pfn)
}

/// Fills a frame of the caller's own, which is mapped, with zeros.
#[inline(always)]
fn zero<P: Platform>(memory: &impl FrameSource<P>, pfn: Pfn) {
    // SAFETY: the caller just got it.
    unsafe { P::bulk(memory.frame(pfn), Bulk::Zero) };
}

/// Takes `1 << order` frames in a row, filled with zeros.
pub(crate) fn alloc_row_zeroed<P: Platform>(memory: &impl FrameSource<P>, order: u8) -> Result<Pfn, OutOfFrames> {
    let first = memory.alloc_order(order)?;
    // SAFETY: just given to us.
    unsafe { memory.page(first).owned() }.set_kind(Kind::Reserved);
    for index in 0..1_usize << order {
        // SAFETY: the row is ours alone.
        unsafe { P::bulk(memory.frame(first).add(index * PAGE_BYTES), Bulk::Zero) };
    }
    Ok(first)
}

/// Takes a reference to a frame that somebody holds.
#[inline]
pub(crate) fn get<P: Platform>(memory: &impl FrameSource<P>, pfn: Pfn) -> Result<(), Saturated> {
    if memory.page(pfn).try_get() { Ok(()) } else { Err(Saturated) }
}

/// Gives a reference back.
#[inline]
pub(crate) fn put<P: Platform>(memory: &impl FrameSource<P>, pfn: Pfn) {
    // SAFETY: the caller owns the reference, and no translation is left (see the module).
    unsafe { memory.put(pfn) };
}

/// Notes that a table, whose lock the caller holds, is shared by several spaces: those of them that have left it may
/// walk there still, in RCU sections that the last user knows nothing of.
pub(crate) fn note_shared_table<P: Platform>(memory: &impl FrameSource<P>, table: Pfn) {
    // SAFETY: the caller has the table, and its lock.
    let page = unsafe { memory.page(table).owned() };
    // Relaxed: who frees the table has it alone, by a lock that orders it.
    page.owner().store(1, Ordering::Relaxed);
}

/// Says whether a table of the caller's alone was ever shared.
#[inline]
pub(crate) fn was_shared_table<P: Platform>(memory: &impl FrameSource<P>, table: Pfn) -> bool {
    // SAFETY: the caller has the table alone.
    let page = unsafe { memory.page(table).owned() };
    // Relaxed: as in `note_shared_table`.
    page.owner().load(Ordering::Relaxed) != 0
}

/// Frees a page table at once: nobody else has a reference to one.
#[inline]
pub(crate) fn put_table<P: Platform>(memory: &impl FrameSource<P>, table: Pfn) {
    // SAFETY: the table was taken out of the tree and shot down, and nobody walks it.
    unsafe { memory.free(table) };
}

/// Frees a page table after a grace period.
pub(crate) fn put_table_deferred<P: Platform>(memory: &impl FrameSource<P>, table: Pfn) {
    mutant!(TablesFreedAtOnce => return put(memory, table));
    // SAFETY: the table was taken out of the tree and shot down; walkers in RCU sections may go on reading.
    unsafe { memory.free_deferred(table) };
}

/// Says whose anonymous page this is: its reverse-map root and page offset.
#[inline]
pub(crate) fn set_owner<P: Platform>(memory: &impl FrameSource<P>, pfn: Pfn, root: u64, page_offset: u64) {
    // SAFETY: the caller has the frame alone.
    let page = unsafe { memory.page(pfn).owned() };
    // Relaxed: published with the entry that maps the frame.
    page.owner().store(root, Ordering::Relaxed);
    page.index().store(page_offset, Ordering::Relaxed);
}

/// Links a frame to the next of a list: a table that was taken out of the tree, or that is locked with others, or a
/// frame of the caller's own.
pub(crate) fn set_link<P: Platform>(memory: &impl FrameSource<P>, table: Pfn, next: Option<Pfn>) {
    // SAFETY: who took the frame out of its tree has it alone; of a table in the tree its lock guards the links.
    let page = unsafe { memory.page(table).owned() };
    // Relaxed: one thread's list. 0 is no frame that was given out: metadata lies there.
    page.links()[0].store(next.map_or(0, |pfn| u64::from(pfn.get())), Ordering::Relaxed);
}

/// Returns the next table of a list.
pub(crate) fn link<P: Platform>(memory: &impl FrameSource<P>, table: Pfn) -> Option<Pfn> {
    // SAFETY: as in `set_link`.
    let page = unsafe { memory.page(table).owned() };
    // Relaxed: one thread's list.
    match page.links()[0].load(Ordering::Relaxed) {
        0 => None,
        number => Some(Pfn::new(number as u32)),
    }
}
