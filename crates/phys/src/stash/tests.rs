//! One owner, several thieves: every thing comes out once, in the order that was promised.

use super::*;
use core::sync::atomic::{AtomicBool, AtomicU8};
use faultless_platform::native::{Machine, Native};
use faultless_platform::{Threads, native};
use std::vec::Vec;

const _: () = assert!(HIGH_MAX + BATCH_MAX <= 256);

fn batch_of(things: impl IntoIterator<Item = usize>) -> Batch {
    let mut things = things.into_iter();
    let mut batch = Batch::new();
    batch.fill(BATCH_MAX, || things.next());
    batch
}

#[test]
fn the_newest_comes_out_first_and_the_oldest_is_stolen() {
    let stash = Stash::<Native>::new(8);
    for thing in 1..=5 {
        assert_eq!(stash.push(thing), thing);
    }
    assert_eq!((stash.pop(), stash.steal()), (Some(5), Some(1)));
    assert!(stash.shed(2).eq([2, 3]));
    assert_eq!((stash.len(), stash.pop_hot()), (1, None));
    assert_eq!((stash.pop(), stash.pop(), stash.steal()), (Some(4), None, None));
    assert_eq!(stash.shed(3).next(), None);
}

#[test]
fn a_batch_comes_out_in_its_order() {
    let stash = Stash::<Native>::new(8);
    stash.push(9);
    let mut batch = batch_of([1, 2, 3, 4]);
    assert_eq!(batch.take_first(), Some(1));
    stash.push_batch(&batch);
    let out: Vec<_> = core::iter::from_fn(|| stash.pop()).collect();
    assert_eq!(out, [2, 3, 4, 9]);
    assert_eq!(stash.nr_pushed(), 1);
}

#[test]
fn a_batch_ends_at_its_limits() {
    let mut batch = batch_of(0..);
    assert_eq!(batch.as_slice().len(), BATCH_MAX);
    batch.fill(usize::MAX, || Some(1));
    assert_eq!(batch.as_slice().len(), BATCH_MAX);
    assert_eq!(Batch::new().take_first(), None);
}

#[test]
fn the_ring_wraps() {
    let stash = Stash::<Native>::new(4);
    for round in 0..100 {
        stash.push(round);
        stash.push(round + 1000);
        assert_eq!((stash.steal(), stash.pop()), (Some(round), Some(round + 1000)));
    }
}

/// Pushes, pops and sheds at random, on a ring of 8 with two thieves; every thing is counted once.
#[test]
fn every_thing_comes_out_once() {
    const THINGS: usize = if cfg!(miri) { 300 } else { 400_000 };
    let (machine, stash, is_over) = (Machine::new(3), Stash::<Native>::new(8), AtomicBool::new(false));
    let seen: Vec<AtomicU8> = (0..THINGS).map(|_| AtomicU8::new(0)).collect();
    let count = |thing: usize| assert_eq!(seen[thing].fetch_add(1, Ordering::Relaxed), 0, "{thing} came out twice");
    native::Native::run(&machine, 3, &|thread| {
        Native::enter();
        if thread == 0 {
            own(&stash, THINGS, &count);
            is_over.store(true, Ordering::Release);
        } else {
            while !is_over.load(Ordering::Acquire) {
                stash.steal().into_iter().for_each(count);
            }
        }
        Native::leave();
    });
    core::iter::from_fn(|| stash.steal()).for_each(count);
    assert!(seen.iter().all(|seen| seen.load(Ordering::Relaxed) == 1), "a thing was lost");
}

fn own(stash: &Stash<Native>, things: usize, count: &impl Fn(usize)) {
    let mut next = 0;
    let mut state = 1_u64;
    while next < things {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        match state >> 61 {
            0..=3 if stash.len() < 7 => {
                stash.push(next);
                next += 1;
            }
            4 => stash.shed(2).for_each(count),
            5 => stash.pop_hot().into_iter().for_each(count),
            _ => stash.pop().into_iter().for_each(count),
        }
    }
}
