//! What a CPU recalls of areas that its last faults found, so that the next ones look nothing up.
//!
//! # Guarantee
//! A view that a CPU recalls is what a lookup would have found, but for flags that no fault looks at. A fault that goes
//! by it reads no node of the index, and no line of the area; of a lane's index it reads who has looked there. So
//! changes of other lanes take nothing away from it, although they are changes of the same area. A change of its own
//! lane has it look up anew, once.
//!
//! # Invariants
//! * M1 a CPU keeps a view with the stamps of its lane (`translations::lanes`, L5) as they were before it looked the
//!   area up, and keeps none of an area of which any change was announced. So whatever is announced later has other
//!   stamps.
//! * M2 it is kept for addresses that have those stamps, and that the area had.
//! * M3 it goes by one in an RCU section in which it has read the stamps, having come into the lane and been noted as a
//!   looker before. So a change of the address that was announced before is seen, and one announced later waits.
//! * M4 it is a value: whatever stands behind such an area needs no reference, and the area itself may be gone.
//!
//! # Races
//! | race | why it is sound |
//! |---|---|
//! | a change is announced beside a fault that recalls | of the section's fence and the one behind the stamp one comes first: the fault reads the new stamp, or is waited for |
//! | a change is announced between a fault's look at the stamps and its lookup | what it keeps has the old stamps, and is never used |
//! | a fault reads a new stamp, and then the area of before | the stamp was noted after the announcement: it finds that, and keeps nothing; if the change has ended, it finds what that made |
//! | an area is cut elsewhere, or becomes part of a neighbour | at this address content, the root, if there was one, and flags but those that joins ignore stay (I1 of `design::faultless`); a view without a root makes no page of its own |
//! | an area grows over a hole, which is noted in no stamp | what is recalled has the old bounds, and the same of all else |
//! | a CPU is taken out of its lane, or forgotten as a looker | it notes itself again, in the section, before it reads the stamps |
//! | the space ends, and another one begins in its place | its lanes have a number of their own |
//! | two threads, one after the other, on one CPU | the second may go by what the first one kept: it is the space's, not a thread's |
//!
//! # Memory
//! Four lines for each CPU of an instance.

use crate::addr::VirtAddr;
use crate::area::{AreaFlags, AreaView};
use crate::content::Content;
use crate::system::System;
use crate::translations::lanes::Stamps;
use core::ops::Range;
use faultless_platform::{Atomic, Ordering, mutant};

/// Views that a CPU keeps: of pieces of 2 MiB whose numbers differ in the last bits.
const NR_KEPT: usize = 4;
const PIECE_SHIFT: u32 = 21;

/// What one CPU keeps; its owner's alone.
pub struct Recalled<P: System> {
    kept: [Kept<P>; NR_KEPT],
}

/// A view, with the stamps that it goes with. A line.
#[repr(align(64))]
struct Kept<P: System> {
    /// 0: none.
    space: P::AtomicU64,
    own_stamp: P::AtomicU64,
    common_stamp: P::AtomicU64,
    start: P::AtomicU64,
    end: P::AtomicU64,
    flags: P::AtomicU64,
    page_offset: P::AtomicU64,
    root: P::AtomicU64,
}

/// A view that is kept of an address, before its stamps are compared.
pub(super) struct Held<'a, P: System> {
    kept: &'a Kept<P>,
    start: u64,
    end: u64,
}

impl<P: System> Recalled<P> {
    pub(super) fn new() -> Self {
        Self { kept: core::array::from_fn(|_| Kept::new()) }
    }

    fn at(&self, address: VirtAddr) -> &Kept<P> {
        &self.kept[(address.get() >> PIECE_SHIFT) as usize % NR_KEPT]
    }

    /// Returns what the CPU recalls of an address, whatever its stamps are.
    #[inline]
    pub(super) fn of(&self, address: VirtAddr) -> Option<Held<'_, P>> {
        let kept = self.at(address);
        // Relaxed, both: the cell is this CPU's own.
        let (start, end) = (kept.start.load(Ordering::Relaxed), kept.end.load(Ordering::Relaxed));
        (start..end).contains(&address.get()).then_some(Held { kept, start, end })
    }

    /// Keeps a view of an area that holds an address, for addresses that have these stamps (M1, M2).
    ///
    /// It is kept when a second fault looks it up with the same stamps: the area of one fault alone is not worth that.
    #[inline]
    pub(super) fn keep(
        &self,
        stamps: &Stamps,
        view: &AreaView<P>,
        address: VirtAddr,
        alike: impl FnOnce() -> Range<u64>,
    ) {
        if view.object.is_some() || view.content != Content::Zeros {
            return;
        }
        let kept = self.at(address);
        // Relaxed, all: as in `view`.
        let set = |word: &P::AtomicU64, value| word.store(value, Ordering::Relaxed);
        // Of the same space or not: it is a guess.
        let is_second = kept.own_stamp.load(Ordering::Relaxed) == stamps.own;
        if !is_second {
            // What is there goes with other stamps.
            set(&kept.end, 0);
            set(&kept.own_stamp, stamps.own);
            return;
        }
        set(&kept.space, stamps.space);
        set(&kept.common_stamp, stamps.common);
        let alike = alike();
        let start = view.start.max(VirtAddr::new(alike.start));
        set(&kept.start, start.get());
        set(&kept.end, view.end.get().min(alike.end));
        set(&kept.flags, u64::from(view.flags.bits()));
        set(&kept.page_offset, view.page_offset_of(start));
        set(&kept.root, view.root);
    }
}

impl<P: System> Held<'_, P> {
    /// Returns the view, if these are its stamps (M3).
    #[inline]
    pub(super) fn view(&self, stamps: &Stamps) -> Option<AreaView<P>> {
        // Relaxed, all: the cell is this CPU's own.
        let word = |word: &P::AtomicU64| word.load(Ordering::Relaxed);
        let kept = self.kept;
        let are_equal = word(&kept.own_stamp) == stamps.own && word(&kept.common_stamp) == stamps.common;
        if word(&kept.space) != stamps.space || !mutant!(StampsIgnored, are_equal => true) {
            return None;
        }
        Some(AreaView {
            start: VirtAddr::new(self.start),
            end: VirtAddr::new(self.end),
            flags: AreaFlags::from_bits_truncate(word(&kept.flags) as u32),
            page_offset: word(&kept.page_offset),
            object: None,
            content: Content::Zeros,
            opening: 0,
            root: word(&kept.root),
        })
    }
}

impl<P: System> Kept<P> {
    fn new() -> Self {
        let word = || P::AtomicU64::new(0);
        Self {
            space: word(),
            own_stamp: word(),
            common_stamp: word(),
            start: word(),
            end: word(),
            flags: word(),
            page_offset: word(),
            root: word(),
        }
    }
}
