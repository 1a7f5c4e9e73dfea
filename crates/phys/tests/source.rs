//! Frame sources that break an obligation, and the checking wrapper that must notice.

use faultless_phys::{Audit, Cause, CheckedSource, Failing, FrameSource, Memory, Options, Page, Pfn, Slab};
use faultless_platform::PAGE_BYTES;
use faultless_platform::native::{HostRegion, Machine, Native};
use faultless_sync::Rcu;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// How a source goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrong {
    No,
    HandsOutTwice,
    HandsOutZero,
    Misaligned,
    OutsideItsRanges,
    FrameMoves,
    FrameInsidePage,
    PfnOfIsOff,
    MetadataInUse,
}

/// A memory that goes wrong from its tenth frame on.
#[derive(Clone)]
struct Bad {
    memory: Memory<Native>,
    wrong: Wrong,
    nr_taken: Arc<AtomicU32>,
    /// The first frame that was taken.
    first: Arc<AtomicU32>,
}

impl Bad {
    fn is_due(&self, wrong: Wrong) -> bool {
        self.wrong == wrong && self.nr_taken.load(Ordering::Relaxed) >= 10
    }
}

// SAFETY: it isn't one on purpose, and nobody uses the frames.
unsafe impl FrameSource<Native> for Bad {
    fn take(&self, order: u8) -> Result<Pfn, Cause> {
        let first = FrameSource::take(&self.memory, order)?;
        if self.nr_taken.fetch_add(1, Ordering::Relaxed) == 0 {
            self.first.store(first.get(), Ordering::Relaxed);
        }
        Ok(match self.wrong {
            Wrong::HandsOutTwice if self.is_due(Wrong::HandsOutTwice) => Pfn::new(self.first.load(Ordering::Relaxed)),
            Wrong::HandsOutZero if self.is_due(Wrong::HandsOutZero) => Pfn::new(0),
            Wrong::Misaligned if self.is_due(Wrong::Misaligned) => Pfn::new(first.get() | 1),
            Wrong::OutsideItsRanges if self.is_due(Wrong::OutsideItsRanges) => Pfn::new(0x7fff_0000),
            Wrong::MetadataInUse if self.is_due(Wrong::MetadataInUse) => {
                // SAFETY: just taken.
                unsafe { self.memory.begin_life(first, order) };
                first
            }
            _ => first,
        })
    }
    unsafe fn give(&self, first: Pfn, order: u8) {
        // SAFETY: passed on.
        unsafe { FrameSource::give(&self.memory, first, order) }
    }
    unsafe fn release(page: NonNull<Page<Native>>, pfn: Pfn) {
        // SAFETY: passed on.
        unsafe { <Memory<Native> as FrameSource<Native>>::release(page, pfn) }
    }
    fn page_pointer(&self, pfn: Pfn) -> NonNull<Page<Native>> {
        self.memory.page_pointer(pfn)
    }
    fn frame(&self, pfn: Pfn) -> *mut u8 {
        let frame = self.memory.frame(pfn);
        if self.is_due(Wrong::FrameMoves) {
            return frame.wrapping_add(PAGE_BYTES);
        }
        if self.is_due(Wrong::FrameInsidePage) { frame.wrapping_add(64) } else { frame }
    }
    fn pfn_of(&self, address: *const u8) -> Option<Pfn> {
        let pfn = self.memory.pfn_of(address);
        let back = if self.is_due(Wrong::FrameMoves) { 1 } else { 0 } - i64::from(self.is_due(Wrong::PfnOfIsOff));
        pfn.map(|pfn| Pfn::new((i64::from(pfn.get()) - back) as u32))
    }
    fn contains(&self, pfn: Pfn) -> bool {
        self.memory.contains(pfn)
    }
    fn for_each_range(&self, visit: &mut dyn FnMut(Range<u32>, u32)) {
        self.memory.for_each_range(visit);
    }
    fn nr_free(&self) -> usize {
        self.memory.nr_free()
    }
    fn nr_cpus(&self) -> usize {
        1
    }
    fn rcu(&self) -> &Rcu<Native> {
        self.memory.rcu()
    }
}

/// Takes and gives blocks of a source that goes wrong so, under the wrapper's eyes.
fn use_it(wrong: Wrong) -> Audit {
    let region = HostRegion::reserve(4 << 20).expect("the host has room");
    Machine::new(1).attach(|| {
        // SAFETY: the region is new and outlives the memory.
        let memory = unsafe { Memory::<Native>::new(region.base(), region.len_bytes(), 1, Options::default()) };
        let memory = memory.expect("large enough");
        let source =
            CheckedSource::new(Bad { memory: memory.clone(), wrong, nr_taken: Arc::default(), first: Arc::default() });
        let kept = source.take(0).expect("plenty");
        // One frame is taken, given back and taken again before anything is wrong.
        for turn in 0..40 {
            let order = if turn < 20 { 0 } else { turn % 3 };
            let first = source.take(order).expect("plenty");
            assert_eq!(source.nr_out(), 1 + (1 << order), "in frames");
            // SAFETY: ours alone.
            unsafe { source.give(first, order) };
        }
        let slab = Slab::<Native, [u64; 40], _>::new(&source);
        let objects: Vec<_> = (0..100).map(|_| slab.alloc().expect("plenty")).collect();
        // SAFETY: ours alone.
        objects.into_iter().for_each(|object| unsafe { slab.free(object) });
        drop(slab);
        // SAFETY: ours alone.
        unsafe { source.give(kept, 0) };
        assert_eq!(source.nr_out(), 0);
        memory.audit()
    })
}

#[test]
fn a_good_source_passes() {
    let audit = use_it(Wrong::No);
    assert!(audit.is_clean() && audit.nr_in_use() == 0, "{audit}");
}

/// Runs a bad source, and returns what the wrapper said.
fn complaint(wrong: Wrong) -> String {
    let panic = std::panic::catch_unwind(|| use_it(wrong)).expect_err("the wrapper notices");
    panic.downcast_ref::<String>().cloned().or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string)).unwrap()
}

#[test]
fn each_broken_obligation_is_named() {
    let expected = [
        (Wrong::HandsOutZero, "F3"),
        (Wrong::Misaligned, "F1"),
        (Wrong::OutsideItsRanges, "F1"),
        (Wrong::FrameMoves, "F2"),
        (Wrong::FrameInsidePage, "F2"),
        (Wrong::PfnOfIsOff, "F5"),
        (Wrong::MetadataInUse, "F4"),
    ];
    for (wrong, obligation) in expected {
        let said = complaint(wrong);
        assert!(said.starts_with(obligation), "{wrong:?}: {said}");
    }
}

#[test]
fn a_block_handed_out_twice_is_noticed() {
    let said = complaint(Wrong::HandsOutTwice);
    assert!(said.starts_with("F1") && said.ends_with("handed out twice"), "{said}");
}

#[test]
fn a_block_that_was_not_handed_out_does_not_come_back() {
    let region = HostRegion::reserve(4 << 20).expect("the host has room");
    Machine::new(3).attach(|| {
        // SAFETY: the region is new and outlives the memory.
        let memory = unsafe { Memory::<Native>::new(region.base(), region.len_bytes(), 3, Options::default()) };
        let source = CheckedSource::new(memory.expect("large enough"));
        assert_eq!(source.nr_cpus(), 3);
        let row = source.alloc_order(2).expect("plenty");
        let half = Pfn::new(row.get() + 2);
        for (first, order) in [(row, 1), (half, 1), (half, 0)] {
            // SAFETY: the wrapper refuses it before anything is done.
            let give = || unsafe { source.give(first, order) };
            assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(give)).is_err(), "{first}, order {order}");
        }
    });
}

#[test]
fn what_is_watched_answers_as_the_source_does() {
    let region = HostRegion::reserve(4 << 20).expect("the host has room");
    Machine::new(2).attach(|| {
        let options = Options { poison: true, refcount_bits: 5, ..Options::default() };
        // SAFETY: the region is new and outlives the memory.
        let memory = unsafe { Memory::<Native>::new(region.base(), region.len_bytes(), 2, options) };
        let memory = memory.expect("large enough");
        let source = CheckedSource::new(memory.clone());
        let row = source.alloc_order(3).expect("plenty");
        let [mut seen, mut expected] = [const { Vec::new() }; 2];
        let audit = source.audit_with(|info| seen.push((info.pfn, info.order)));
        assert_eq!(audit, memory.audit_with(|info| expected.push((info.pfn, info.order))));
        assert_eq!((seen.clone(), audit.nr_in_use()), (expected, 8));
        assert!(seen.contains(&(row, 3)));
        assert_eq!((source.nr_free(), source.nr_cpus(), source.options()), (memory.nr_free(), 2, &options));
        assert!(source.contains(row) && !source.contains(Pfn::new(0)));
        assert_eq!((source.frame(row), source.pfn_of(source.frame(row))), (memory.frame(row), Some(row)));
        let [mut ranges, mut own] = [const { Vec::new() }; 2];
        source.for_each_range(&mut |range, fresh| ranges.push((range, fresh)));
        memory.for_each_range(&mut |range, fresh| own.push((range, fresh)));
        assert!(!ranges.is_empty() && ranges == own);
        memory.set_failing(Failing::Once(1));
        assert!(source.try_alloc().is_err() && source.try_alloc().is_ok());
    });
}

#[test]
fn who_may_not_sleep_is_found_with_any_source_that_has_poison() {
    let region = HostRegion::reserve(4 << 20).expect("the host has room");
    Machine::new(1).attach(|| {
        let options = Options { poison: true, ..Options::default() };
        // SAFETY: the region is new and outlives the memory.
        let memory = unsafe { Memory::<Native>::new(region.base(), region.len_bytes(), 1, options) };
        let source = CheckedSource::new(memory.expect("large enough"));
        let _section = source.rcu().read();
        let kept = source.try_alloc().expect("plenty");
        let calls: [&dyn Fn() -> bool; 2] = [&|| source.alloc().is_ok(), &|| source.alloc_order(1).is_ok()];
        for call in calls {
            let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(call)).expect_err("inside a section");
            let said = panic.downcast_ref::<&str>().expect("words");
            assert!(said.starts_with("an allocation that may sleep is made inside an RCU section"), "{said}");
        }
        // SAFETY: ours alone.
        unsafe { source.give(kept, 0) };
    });
}
