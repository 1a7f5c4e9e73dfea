//! Single frames and rows of them: who owns what, and what the metadata says.

mod support;

use faultless_phys::{Cause, Kind, Options, Pfn};
use faultless_platform::native::{Machine, Native};
use faultless_platform::{Ordering, PAGE_BYTES};
use std::collections::HashSet;
use support::{World, narrow};

type NativeWorld = World<Native>;

#[test]
fn frames_are_distinct_aligned_and_writable_and_all_come_back() {
    let nr_frames = if cfg!(miri) { 150 } else { 1500 };
    let (world, machine) = (NativeWorld::new(nr_frames, 1, narrow()), Machine::new(1));
    machine.attach(|| {
        let frames = world.take_all();
        assert_eq!((frames.len(), world.memory.nr_free()), (nr_frames, 0));
        assert_eq!(frames.iter().collect::<HashSet<_>>().len(), nr_frames);
        for &pfn in &frames {
            let frame = world.memory.frame(pfn);
            assert!(world.memory.contains(pfn) && frame.addr().is_multiple_of(PAGE_BYTES));
            // SAFETY: the frame is ours.
            unsafe { frame.write_bytes(0xab, PAGE_BYTES) };
            assert_eq!(world.memory.pfn_of(frame.wrapping_add(PAGE_BYTES - 1)), Some(pfn));
        }
        world.free_all(frames);
        assert_eq!(world.memory.nr_free(), nr_frames);
        assert!(world.memory.audit().is_clean(), "{}", world.memory.audit());
    });
}

#[test]
fn the_frame_freed_last_is_given_out_first() {
    let (world, machine) = (NativeWorld::new(300, 1, Options::default()), Machine::new(1));
    machine.attach(|| {
        let frames: Vec<Pfn> = (0..3).map(|_| world.memory.alloc().expect("plenty")).collect();
        world.free_all(frames.clone());
        let again: Vec<Pfn> = (0..3).map(|_| world.memory.alloc().expect("plenty")).collect();
        assert!(again.iter().eq(frames.iter().rev()));
    });
}

#[test]
fn frames_that_are_drained_from_a_list_merge() {
    let (world, machine) = (World::<Native>::new(64, 1, Options::default()), Machine::new(1));
    machine.attach(|| {
        let mut frames = world.take_all();
        frames.sort_unstable();
        // In an order in which no two that are next to each other follow each other.
        world.free_all((0..64).map(|turn| frames[turn * 23 % 64]));
        world.memory.drain_cpu_lists();
        let first: Vec<_> = (0..8).map(|_| world.memory.try_alloc().expect("plenty").get()).collect();
        assert!(first.windows(2).all(|pair| pair[1] == pair[0] + 1), "{first:?}");
        world.free_all(first.into_iter().map(Pfn::new));
    });
}

#[test]
fn a_zeroed_frame_holds_zeros_whatever_it_held() {
    let (world, machine) = (NativeWorld::new(100, 1, Options::default()), Machine::new(1));
    machine.attach(|| {
        let pfn = world.memory.alloc().expect("plenty");
        // SAFETY: the frame is ours, then it isn't used any more.
        unsafe {
            world.memory.frame(pfn).write_bytes(0xff, PAGE_BYTES);
            world.memory.free(pfn);
        }
        for zeroed in [world.memory.alloc_zeroed(), world.memory.try_alloc_zeroed()] {
            let frame = world.memory.frame(zeroed.expect("plenty"));
            // SAFETY: the frame is ours.
            assert!((0..PAGE_BYTES).all(|byte| unsafe { frame.add(byte).read() } == 0));
        }
    });
}

#[test]
fn addresses_outside_the_frames_belong_to_none() {
    let (world, machine) = (NativeWorld::new(100, 1, Options::default()), Machine::new(1));
    machine.attach(|| {
        let first = world.take_all().into_iter().min().expect("plenty");
        let start = world.memory.frame(first);
        assert_eq!(world.memory.pfn_of(start.wrapping_sub(1)), None, "metadata is no frame");
        assert_eq!(world.memory.pfn_of(start.wrapping_add(100 * PAGE_BYTES)), None);
        assert_eq!(world.memory.pfn_of(std::ptr::null()), None);
        assert_eq!(world.memory.pfn_of(std::ptr::without_provenance(usize::MAX)), None);
        assert!(!world.memory.contains(Pfn::new(0)) && !world.memory.contains(Pfn::new(u32::MAX)));
    });
}

#[test]
fn rows_are_aligned_and_come_back_with_their_order() {
    let (nr_frames, largest) = if cfg!(miri) { (200, 4) } else { (5000, 10) };
    let (world, machine) = (NativeWorld::new(nr_frames, 1, narrow()), Machine::new(1));
    machine.attach(|| {
        for order in 0..=largest {
            let row = world.memory.alloc_order(order).expect("plenty");
            assert!(row.get().is_multiple_of(1 << order));
            assert_eq!(world.memory.nr_free(), nr_frames - (1 << order));
            // SAFETY: the row is ours, then it isn't used any more.
            unsafe {
                world.memory.frame(row).write_bytes(1, PAGE_BYTES << order);
                world.memory.free_order(row, order);
            }
            assert_eq!(world.memory.nr_free(), nr_frames);
        }
        let refusal = world.memory.alloc_order(11).expect_err("orders end at 10");
        assert_eq!((refusal.cause(), refusal.order()), (Cause::OrderTooHigh, 11));
        assert!(world.memory.alloc_order(255).is_err());
    });
}

#[test]
#[should_panic(expected = "is no block of order 0 in use")]
fn a_frame_freed_twice_is_noticed() {
    let (world, machine) = (NativeWorld::new(100, 1, Options::default()), Machine::new(1));
    machine.attach(|| {
        let pfn = world.memory.alloc().expect("plenty");
        world.free_all([pfn, pfn]);
    });
}

#[test]
#[should_panic(expected = "is no block of order 0 in use")]
fn a_frame_freed_at_once_and_deferred_is_noticed() {
    let (world, machine) = (NativeWorld::new(100, 1, Options::default()), Machine::new(1));
    machine.attach(|| {
        let pfn = world.memory.alloc().expect("plenty");
        // SAFETY: freed once too often, which is what the test is about: it must panic.
        unsafe { world.memory.free_deferred(pfn) };
        world.free_all([pfn]);
    });
}

#[test]
#[should_panic(expected = "is deferred, but is no single frame in use")]
fn a_row_deferred_is_noticed() {
    let (world, machine) = (NativeWorld::new(100, 1, Options::default()), Machine::new(1));
    machine.attach(|| {
        let row = world.memory.alloc_order(1).expect("plenty");
        // SAFETY: refused, which is what the test is about: it must panic.
        unsafe { world.memory.free_deferred(row) };
    });
}

#[test]
#[should_panic(expected = "is no block of order 1 in use")]
fn a_row_freed_with_another_order_is_noticed() {
    let (world, machine) = (NativeWorld::new(100, 1, Options::default()), Machine::new(1));
    machine.attach(|| {
        let row = world.memory.alloc_order(2).expect("plenty");
        // SAFETY: the order is wrong, which is what the test is about: it must panic.
        unsafe { world.memory.free_order(row, 1) };
    });
}

#[test]
fn a_frame_given_out_has_one_reference_and_no_past() {
    let (world, machine) = (NativeWorld::new(1, 1, Options::default()), Machine::new(1));
    machine.attach(|| {
        for _ in 0..3 {
            let pfn = world.memory.alloc().expect("the only one");
            let page = world.owned(pfn);
            assert_eq!((page.kind(), page.nr_references()), (Kind::Reserved, 1));
            let words = (page.owner().load(Ordering::Relaxed), page.index().load(Ordering::Relaxed));
            assert!(words == (0, 0) && page.is_counted() && !page.lock().is_locked());
            page.set_kind(Kind::Anonymous);
            page.owner().store(7, Ordering::Relaxed);
            page.index().store(8, Ordering::Relaxed);
            page.links()[1].store(9, Ordering::Relaxed);
            world.free_all([pfn]);
            assert_eq!(page.kind(), Kind::Free);
            assert!(!page.try_get(), "a free frame has no references to share");
        }
    });
}

#[test]
fn the_last_reference_frees_the_frame() {
    let (world, machine) = (NativeWorld::new(10, 1, Options::default()), Machine::new(1));
    machine.attach(|| {
        let pfn = world.memory.alloc().expect("plenty");
        assert!(world.memory.page(pfn).try_get());
        // SAFETY: two references were taken, and the frame isn't used.
        let freed = unsafe { [world.memory.put(pfn), world.memory.put(pfn)] };
        assert_eq!((freed, world.memory.nr_free()), ([false, true], 10));
    });
}

/// Known bug 15: a count that wraps frees a frame that is in use.
#[test]
fn a_count_at_its_limit_refuses_and_never_wraps() {
    let options = Options { refcount_bits: 4, ..Options::default() };
    let (world, machine) = (NativeWorld::new(10, 1, options), Machine::new(1));
    machine.attach(|| {
        let pfn = world.memory.alloc().expect("plenty");
        let page = world.owned(pfn);
        let taken = (0..100).filter(|_| page.try_get()).count();
        assert_eq!((taken, page.nr_references()), (14, 15));
        assert!(page.is_saturated() && !page.put() && !page.is_saturated() && page.try_get() && !page.try_get());
        assert_eq!((0..15).filter(|_| page.put()).count(), 1, "only the last is the last");
        world.free_all([pfn]);
    });
}

#[test]
fn threads_that_race_for_the_limit_stop_at_it() {
    let options = Options { refcount_bits: 8, ..Options::default() };
    let (world, machine) = (NativeWorld::new(10, 2, options), Machine::new(2));
    let pfn = machine.attach(|| world.memory.alloc().expect("plenty"));
    let page = world.owned(pfn);
    // Takes two for each one put until the limit stops it, then puts one.
    let race = || {
        let mut held = 0;
        for step in 0..if cfg!(miri) { 1000 } else { 100_000 } {
            if step % 3 == 2 && held > 0 || !page.try_get() {
                held -= i64::from(held > 0 && !page.put());
            } else {
                held += 1;
            }
            assert!(page.nr_references() <= 255);
        }
        held
    };
    let held: i64 = std::thread::scope(|scope| {
        let threads = [(); 2].map(|()| scope.spawn(|| machine.attach(race)));
        threads.into_iter().map(|thread| thread.join().expect("a racer failed")).sum()
    });
    assert_eq!(i64::from(page.nr_references()), held + 1);
    assert!(held > 200, "the race never came near the limit");
}

/// Known bug 16: a frame that everybody maps is not counted at all.
#[test]
fn an_uncounted_frame_can_be_mapped_without_end() {
    let options = Options { refcount_bits: 4, ..Options::default() };
    let (world, machine) = (NativeWorld::new(10, 1, options), Machine::new(1));
    machine.attach(|| {
        let page = world.owned(world.memory.alloc_zeroed().expect("plenty"));
        page.stop_counting();
        assert!((0..if cfg!(miri) { 100 } else { 1 << 16 }).all(|_| page.try_get()));
        assert!((0..if cfg!(miri) { 200 } else { 1 << 17 }).all(|_| !page.put()));
        assert_eq!((page.nr_references(), page.is_counted(), world.memory.nr_free()), (1, false, 9));
        assert!(world.memory.audit().is_clean());
    });
}

#[test]
#[should_panic(expected = "I2: a reference was put that nobody had taken")]
fn one_put_too_many_is_noticed() {
    let (world, machine) = (NativeWorld::new(10, 1, Options::default()), Machine::new(1));
    machine.attach(|| {
        let page = world.owned(world.memory.alloc().expect("plenty"));
        assert!(page.put());
        let _ = page.put();
    });
}

#[test]
fn metadata_is_one_line_a_frame() {
    assert_eq!(size_of::<faultless_phys::Page<Native>>(), 64);
}
