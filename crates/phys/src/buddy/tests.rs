//! The allocator against a plain set of free frames.

use super::*;
use faultless_platform::PAGE_BYTES;
use faultless_platform::native::{HostRegion, Native};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::vec::Vec;

/// What the allocator should be: which frames are free, and nothing else.
struct Model {
    free: BTreeSet<u32>,
}

impl Model {
    fn frames_of(block: u32, order: u8) -> core::ops::Range<u32> {
        block..block + (1 << order)
    }

    fn has_block(&self, order: u8) -> bool {
        let is_block = |&block: &u32| {
            block.is_multiple_of(1 << order) && Self::frames_of(block, order).all(|frame| self.free.contains(&frame))
        };
        self.free.iter().any(is_block)
    }

    fn take(&mut self, block: u32, order: u8) {
        for frame in Self::frames_of(block, order) {
            assert!(self.free.remove(&frame), "frame {frame} was given out twice");
        }
    }

    fn give(&mut self, block: u32, order: u8) {
        assert!(Self::frames_of(block, order).all(|frame| self.free.insert(frame)));
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Take(u8),
    Give(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let order = prop_oneof![4 => 0..3_u8, 2 => 3..8_u8, 1 => 8..=MAX_ORDER];
    let step = prop_oneof![3 => order.prop_map(Step::Take), 2 => any::<usize>().prop_map(Step::Give)];
    prop::collection::vec(step, 0..200)
}

fn with_buddy(nr_frames: usize, test: impl FnOnce(Frames<Native>, Buddy<Native>)) {
    let region = HostRegion::reserve(nr_frames * PAGE_BYTES).expect("the host has a few MiB");
    // SAFETY: the region is new and outlives the test.
    let frames = unsafe { Frames::new(region.base(), nr_frames * PAGE_BYTES) }.expect("large enough");
    test(frames, Buddy::new(frames, frames.first()..frames.end()));
}

fn check(nr_frames: usize, steps: &[Step]) {
    with_buddy(nr_frames, |frames, mut buddy| {
        let mut model = Model { free: (frames.first()..frames.end()).collect() };
        let mut taken = Vec::new();
        for &step in steps {
            match step {
                Step::Take(order) => take(&mut buddy, &mut model, &mut taken, order),
                Step::Give(which) if !taken.is_empty() => {
                    let (block, order) = taken.swap_remove(which % taken.len());
                    buddy.give(Pfn::new(block), order);
                    model.give(block, order);
                }
                Step::Give(_) => (),
            }
            assert_eq!(buddy.nr_free(), model.free.len());
            assert!(!model.free.contains(&(frames.first() - 1)));
        }
    });
}

fn take(buddy: &mut Buddy<Native>, model: &mut Model, taken: &mut Vec<(u32, u8)>, order: u8) {
    let Some(pfn) = buddy.take(order) else {
        assert!(!model.has_block(order), "a block of order {order} was free");
        return;
    };
    assert!(pfn.get().is_multiple_of(1 << order), "{pfn} is not aligned to order {order}");
    model.take(pfn.get(), order);
    taken.push((pfn.get(), order));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 200 }) })]

    #[test]
    fn blocks_are_given_out_once_and_exactly_as_long_as_there_are_any(nr_frames in 2..1400_usize, steps in steps()) {
        check(nr_frames, &steps);
    }

    #[test]
    fn everything_merges_again(nr_frames in 2..2500_usize, seed in any::<u64>()) {
        with_buddy(nr_frames, |frames, mut buddy| {
            let mut taken: Vec<Pfn> = core::iter::from_fn(|| buddy.take(0)).collect();
            assert_eq!(taken.len(), (frames.end() - frames.first()) as usize);
            shuffle(&mut taken, seed);
            taken.iter().for_each(|&pfn| buddy.give(pfn, 0));
            let mut left = frames.first();
            // The largest blocks that alignment allows, from the first frame to the last.
            while left < frames.end() {
                let order = left.trailing_zeros().min((frames.end() - left).ilog2()).min(u32::from(MAX_ORDER)) as u8;
                assert!(buddy.is_listed(left, order), "no block of order {order} at {left}");
                left += 1 << order;
            }
        });
    }
}

fn shuffle(frames: &mut [Pfn], seed: u64) {
    let mut state = seed | 1;
    for place in (1..frames.len()).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        frames.swap(place, (state >> 33) as usize % (place + 1));
    }
}

#[test]
fn the_newest_block_is_taken_first_and_frames_ascend_at_first() {
    with_buddy(300, |frames, mut buddy| {
        let first = frames.first();
        assert_eq!(first, 5);
        let taken: Vec<u32> = (0..3).filter_map(|_| buddy.take(0)).map(Pfn::get).collect();
        assert_eq!(taken, [5, 6, 7]);
        buddy.give(Pfn::new(6), 0);
        assert_eq!(buddy.take(0), Some(Pfn::new(6)));
    });
}

#[test]
fn untouched_frames_stay_untouched_until_nothing_else_is_left() {
    with_buddy(4096, |frames, mut buddy| {
        assert_eq!(buddy.fresh(), frames.first());
        let block = buddy.take(4).expect("everything is free");
        let mark = buddy.fresh();
        buddy.give(block, 4);
        for _ in 0..100 {
            let block = buddy.take(3).expect("everything is free");
            buddy.give(block, 3);
        }
        assert_eq!(buddy.fresh(), mark);
    });
}

#[test]
fn a_row_goes_on_into_untouched_frames() {
    with_buddy(5000, |frames, mut buddy| {
        let nr_frames = buddy.nr_free();
        let row = buddy.take_row(4096).expect("everything is free");
        assert_eq!((row.first, row.len), (1024, 3072), "one block, and all whole ones behind it");
        assert_eq!((buddy.nr_free(), buddy.fresh()), (nr_frames - 3072, 4096));
        buddy.give_row(Pfn::new(row.first), row.len);
        // Listed blocks don't join to a row.
        assert_eq!(buddy.take_row(4096).map(|row| row.len), Some(1024));
        assert_eq!(buddy.take_row(1023).map(|row| row.len), Some(512));
        assert_eq!(buddy.nr_free(), nr_frames - 1536);
        assert!(buddy.fresh() <= frames.end());
    });
}

#[test]
fn a_row_is_no_longer_than_asked_for() {
    for most in 1..5000 {
        with_buddy(9000, |_, mut buddy| {
            let row = buddy.take_row(most).expect("everything is free");
            assert!((row.len as usize) <= most && row.len as usize * 2 > most.min(1024), "{} of {most}", row.len);
        });
    }
}

#[test]
fn the_largest_block_begins_where_it_may_fits_and_is_no_larger_than_asked_for() {
    for (block, left, most, order) in
        [(16, 100, 10, 4), (16, 15, 10, 3), (16, 16, 10, 4), (24, 100, 10, 3), (7, 100, 10, 0)]
    {
        assert_eq!(largest_order(block, left, most), order, "at {block}, of {left}");
    }
    assert_eq!([0, 3, 4, 5].map(|most| largest_order(16, 100, most)), [0, 3, 4, 4]);
    assert_eq!(largest_order(1 << 12, 1 << 12, MAX_ORDER), MAX_ORDER);
}
