//! The semaphores: readers and writers exclude each other, and nobody sleeps for ever.

use crate::{Body, Word, bump, race, read};
use faultless_platform::Atomic;
use faultless_platform::loom::Loom;
use faultless_sync::{Patches, RwSemaphore, Rwsem, Rwsem2012, RwsemV8};

struct Pair<S> {
    lock: S,
    left: Word,
    right: Word,
}

fn pair<S: RwSemaphore<Loom>>() -> Pair<S> {
    Pair { lock: S::new(), left: Word::new(0), right: Word::new(0) }
}

fn change<S: RwSemaphore<Loom>>(pair: &Pair<S>) {
    let _write = pair.lock.write();
    bump(&pair.left);
    bump(&pair.right);
}

fn change_and_downgrade<S: RwSemaphore<Loom>>(pair: &Pair<S>) {
    let write = pair.lock.write();
    bump(&pair.left);
    bump(&pair.right);
    let _read = write.downgrade();
    assert_eq!(read(&pair.left), read(&pair.right));
}

fn look<S: RwSemaphore<Loom>>(pair: &Pair<S>) {
    let _read = pair.lock.read();
    assert_eq!(read(&pair.left), read(&pair.right));
}

fn try_both<S: RwSemaphore<Loom>>(pair: &Pair<S>) {
    if let Some(_read) = pair.lock.try_read() {
        assert_eq!(read(&pair.left), read(&pair.right));
    }
    if let Some(_write) = pair.lock.try_write() {
        bump(&pair.left);
        bump(&pair.right);
    }
}

fn is_free<S: RwSemaphore<Loom>>(pair: &Pair<S>) {
    assert_eq!(read(&pair.left), read(&pair.right));
    assert!(!pair.lock.is_locked() && !pair.lock.is_contended(), "the word is not clean");
}

fn went<S: RwSemaphore<Loom>>(pair: &Pair<S>, writers: u64) {
    assert_eq!(read(&pair.left), writers, "a writer's change was lost");
    is_free(pair);
}

fn two_at_a_time<S: RwSemaphore<Loom>>() {
    let bound = Some(4);
    race(bound, pair::<S>, [change, change] as [Body<Pair<S>>; 2], |pair| went(pair, 2));
    race(bound, pair::<S>, [change, look], |pair| went(pair, 1));
    race(bound, pair::<S>, [change_and_downgrade, look], |pair| went(pair, 1));
    race(bound, pair::<S>, [change_and_downgrade, change], |pair| went(pair, 2));
    race(bound, pair::<S>, [change, try_both], is_free);
}

fn three_at_a_time<S: RwSemaphore<Loom>>(max_preemptions: usize) {
    let bound = Some(max_preemptions);
    race(bound, pair::<S>, [change, look, look], |pair| went(pair, 1));
    race(bound, pair::<S>, [change, change, look], |pair| went(pair, 2));
    race(bound, pair::<S>, [change, change, change], |pair| went(pair, 3));
    race(bound, pair::<S>, [change_and_downgrade, change, look], |pair| went(pair, 2));
}

#[test]
fn rwsem_2012_two_threads() {
    two_at_a_time::<Rwsem2012<Loom>>();
}

#[test]
fn rwsem_2012_three_threads() {
    three_at_a_time::<Rwsem2012<Loom>>(3);
}

#[test]
fn rwsem_v8_two_threads() {
    two_at_a_time::<RwsemV8<Loom>>();
}

#[test]
fn rwsem_v8_three_threads() {
    three_at_a_time::<RwsemV8<Loom>>(2);
}

/// Thieves may overtake once, so that their bound is met within a model.
enum Impatient {}

impl Patches for Impatient {
    const NAME: &'static str = "impatient";
    const PATIENCE: u32 = 1;
    const LOOK_BEFORE_TRY: bool = false;
    const LOOK_BEFORE_GRANT: bool = false;
    const OPTIMISTIC_SPIN: bool = false;
    const SPINNER_SPARES_WAKE: bool = false;
}

#[test]
fn thieves_without_spinning() {
    two_at_a_time::<Rwsem<Loom, Impatient>>();
    three_at_a_time::<Rwsem<Loom, Impatient>>(3);
}
