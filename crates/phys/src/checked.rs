//! A frame source under watch: the obligations of [`FrameSource`], checked as far as they can be seen from outside.
//!
//! # Guarantee
//! [`CheckedSource`] panics at the first call that shows a broken obligation, and names it. It changes nothing else:
//! what the source under it does with frames, options and injected failures stays as it is. For tests: it keeps a
//! ledger in the global allocator, behind one lock.

use crate::audit::FrameInfo;
use crate::error::Cause;
use crate::options::Options;
use crate::page::Page;
use crate::pfn::Pfn;
use crate::source::FrameSource;
use crate::{Audit, Kind};
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use core::ops::Range;
use core::ptr::NonNull;
use faultless_platform::{Holds, PAGE_BYTES, Platform};
use faultless_sync::{Rcu, SpinMutex, lock_class};

lock_class! {
    /// The lock of a checked source's ledger.
    LedgerLock = "frame_ledger"
}

/// A source that is `F`, checked.
///
/// ```
/// use faultless_phys::{CheckedSource, FrameSource, Memory, Options};
/// use faultless_platform::native::{HostRegion, Machine, Native};
///
/// let (machine, region) = (Machine::new(2), HostRegion::reserve(4 << 20)?);
/// // SAFETY: the region is ours and outlives the memory.
/// let memory = unsafe { Memory::<Native>::new(region.base(), region.len_bytes(), 2, Options::default())? };
/// let checked = CheckedSource::new(memory);
/// machine.attach(|| {
///     let row = checked.alloc_order(3)?;
///     assert!(row.get().is_multiple_of(8) && checked.nr_out() == 8);
///     // SAFETY: the row is ours until it is freed.
///     unsafe { checked.free_order(row, 3) };
///     assert_eq!(checked.nr_out(), 0);
///     Ok::<(), faultless_phys::OutOfFrames>(())
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct CheckedSource<P: Platform, F> {
    source: F,
    ledger: Arc<SpinMutex<P, Ledger, LedgerLock>>,
}

/// What is known of each frame that was ever handed out.
#[derive(Default)]
struct Ledger {
    frames: BTreeMap<u32, Known>,
    /// Blocks that are out, by their first frame.
    out: BTreeMap<u32, Out>,
}

/// Where a frame was when it was first seen.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Known {
    frame: usize,
    page: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Out {
    order: u8,
    is_deferred: bool,
}

impl<P: Platform, F: FrameSource<P>> Clone for CheckedSource<P, F> {
    fn clone(&self) -> Self {
        Self { source: self.source.clone(), ledger: self.ledger.clone() }
    }
}

impl<P: Platform, F: FrameSource<P>> CheckedSource<P, F> {
    /// Watches a source, of which nothing is handed out yet.
    pub fn new(source: F) -> Self {
        Self { source, ledger: Arc::new(SpinMutex::classed(Ledger::default())) }
    }

    /// Returns the source.
    /// Tests call it to audit what they have wrapped.
    pub fn inner(&self) -> &F {
        &self.source
    }

    /// Returns how many frames are out, those that wait for a grace period left out.
    pub fn nr_out(&self) -> usize {
        let ledger = self.ledger.lock();
        ledger.out.values().filter(|out| !out.is_deferred).map(|out| 1_usize << out.order).sum()
    }

    /// Checks a block that the source has just handed out.
    fn note_taken(&self, first: Pfn, order: u8) {
        let numbers = first.get()..first.get() + (1 << order);
        assert!(first.get() != 0, "F3: number 0 was handed out");
        assert!(numbers.start.is_multiple_of(1 << order), "F1: {first} does not begin a block of order {order}");
        let mut ledger = self.ledger.lock();
        for (index, number) in numbers.enumerate() {
            let pfn = Pfn::new(number);
            // A frame whose grace period ended came back past this wrapper.
            if ledger.out.get(&number).is_some_and(|out| out.is_deferred) {
                ledger.out.remove(&number);
            }
            assert!(self.source.contains(pfn), "F1: {pfn} was handed out, but the source does not contain it");
            assert!(!ledger.is_out(number), "F1: {pfn} was handed out twice");
            let known = self.look_at(pfn);
            let expected = self.source.frame(first).addr() + index * PAGE_BYTES;
            assert!(known.frame == expected, "F1: {pfn} is not in a row with {first}");
            let before = *ledger.frames.entry(number).or_insert(known);
            assert!(before == known, "F2: {pfn} or its metadata has moved");
        }
        ledger.out.insert(first.get(), Out { order, is_deferred: false });
    }

    /// Checks what the source says of a free frame.
    fn look_at(&self, pfn: Pfn) -> Known {
        let (frame, page) = (self.source.frame(pfn), self.source.page_pointer(pfn));
        assert!(frame.addr().is_multiple_of(PAGE_BYTES), "F2: {pfn} stands at {frame:p}, which begins no page");
        assert!(page.is_aligned(), "F2: the metadata of {pfn} at {page:p} is not aligned");
        let ends = [frame.cast_const(), frame.wrapping_add(PAGE_BYTES - 1)];
        let is_found = ends.iter().all(|&byte| self.source.pfn_of(byte) == Some(pfn));
        assert!(is_found, "F5: pfn_of does not find {pfn} at {frame:p}");
        assert!(self.source.page(pfn).kind() == Kind::Free, "F4: {pfn} is handed out, but its metadata says in use");
        Known { frame: frame.addr(), page: page.addr().get() }
    }

    /// Checks a block that is about to go back to the source.
    fn note_given(&self, first: Pfn, order: u8) {
        let out = self.ledger.lock().out.remove(&first.get());
        let expected = Out { order, is_deferred: false };
        assert!(out == Some(expected), "F1: {first} comes back as a block of order {order} that was not handed out");
    }
}

impl Ledger {
    /// Says whether a frame belongs to a block that is out.
    fn is_out(&self, number: u32) -> bool {
        let before = self.out.range(..=number).next_back();
        before.is_some_and(|(&first, out)| number - first < 1 << out.order)
    }
}

// SAFETY: every call goes to `F`, which keeps the obligations.
unsafe impl<P: Platform, F: FrameSource<P>> FrameSource<P> for CheckedSource<P, F> {
    fn take(&self, order: u8) -> Result<Pfn, Cause> {
        self.source.take(order).inspect(|&first| self.note_taken(first, order))
    }

    fn take_for(&self, holds: Option<Holds>) -> Result<Pfn, Cause> {
        self.source.take_for(holds).inspect(|&pfn| self.note_taken(pfn, 0))
    }

    unsafe fn give(&self, first: Pfn, order: u8) {
        self.note_given(first, order);
        // SAFETY: passed on.
        unsafe { self.source.give(first, order) }
    }

    unsafe fn give_without_cpu(&self, first: Pfn, order: u8) {
        self.note_given(first, order);
        // SAFETY: passed on.
        unsafe { self.source.give_without_cpu(first, order) }
    }

    unsafe fn release(page: NonNull<Page<P>>, pfn: Pfn) {
        // SAFETY: passed on.
        unsafe { F::release(page, pfn) }
    }

    /// Deferred by `F`, whose `release` frees the frame past this wrapper.
    unsafe fn free_deferred(&self, pfn: Pfn) {
        let before = self.ledger.lock().out.insert(pfn.get(), Out { order: 0, is_deferred: true });
        let is_out = before == Some(Out { order: 0, is_deferred: false });
        assert!(is_out, "F1: {pfn} is deferred, but is no single frame that was handed out");
        // SAFETY: passed on.
        unsafe { self.source.free_deferred(pfn) }
    }

    fn page_pointer(&self, pfn: Pfn) -> NonNull<Page<P>> {
        self.source.page_pointer(pfn)
    }

    fn frame(&self, pfn: Pfn) -> *mut u8 {
        self.source.frame(pfn)
    }

    fn pfn_of(&self, address: *const u8) -> Option<Pfn> {
        self.source.pfn_of(address)
    }

    fn contains(&self, pfn: Pfn) -> bool {
        self.source.contains(pfn)
    }

    fn for_each_range(&self, visit: &mut dyn FnMut(Range<u32>, u32)) {
        let mut end = 0;
        self.source.for_each_range(&mut |range, fresh| {
            let is_ascending = end <= range.start && range.start <= range.end;
            assert!(is_ascending, "the ranges of frames don't ascend: {range:?} behind {end}");
            assert!((range.start..=range.end).contains(&fresh), "{fresh} is outside {range:?}");
            end = range.end;
            visit(range, fresh);
        });
    }

    fn nr_free(&self) -> usize {
        self.source.nr_free()
    }

    fn nr_cpus(&self) -> usize {
        self.source.nr_cpus()
    }

    fn rcu(&self) -> &Rcu<P> {
        self.source.rcu()
    }

    fn options(&self) -> &Options {
        self.source.options()
    }

    fn strikes(&self) -> bool {
        self.source.strikes()
    }

    unsafe fn begin_life(&self, first: Pfn, order: u8) {
        // SAFETY: passed on.
        unsafe { self.source.begin_life(first, order) }
    }

    unsafe fn end_life(&self, first: Pfn, order: u8) {
        // SAFETY: passed on.
        unsafe { self.source.end_life(first, order) }
    }

    fn audit_with(&self, visit: impl FnMut(FrameInfo)) -> Audit {
        self.source.audit_with(visit)
    }
}
