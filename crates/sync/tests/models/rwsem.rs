//! The semaphores: readers and writers exclude each other, and nobody sleeps for ever.

use crate::{Body, Plain, race};
use faultless_platform::loom::{Loom, set_crowded};
use faultless_sync::{Event, Patches, RwSemaphore, Rwsem, Rwsem2012, RwsemV8};

struct Pair<S> {
    lock: S,
    left: Plain,
    right: Plain,
}

fn pair<S: RwSemaphore<Loom>>() -> Pair<S> {
    Pair { lock: S::new(), left: Plain::new(), right: Plain::new() }
}

fn change<S: RwSemaphore<Loom>>(pair: &Pair<S>) {
    let _write = pair.lock.write();
    pair.left.bump();
    pair.right.bump();
}

fn change_and_downgrade<S: RwSemaphore<Loom>>(pair: &Pair<S>) {
    let write = pair.lock.write();
    pair.left.bump();
    pair.right.bump();
    let _read = write.downgrade();
    assert_eq!(pair.left.read(), pair.right.read());
}

fn look<S: RwSemaphore<Loom>>(pair: &Pair<S>) {
    let _read = pair.lock.read();
    assert_eq!(pair.left.read(), pair.right.read());
}

fn try_both<S: RwSemaphore<Loom>>(pair: &Pair<S>) {
    if let Some(_read) = pair.lock.try_read() {
        assert_eq!(pair.left.read(), pair.right.read());
    }
    if let Some(_write) = pair.lock.try_write() {
        pair.left.bump();
        pair.right.bump();
    }
}

fn is_free<S: RwSemaphore<Loom>>(pair: &Pair<S>) {
    assert_eq!(pair.left.read(), pair.right.read());
    assert!(!pair.lock.is_locked() && !pair.lock.is_contended(), "the word is not clean");
}

fn went<S: RwSemaphore<Loom>>(pair: &Pair<S>, writers: u64) {
    assert_eq!(pair.left.read(), writers, "a writer's change was lost");
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

/// Wants the spinners' CPUs while it holds the lock.
fn change_in_a_crowd<S: RwSemaphore<Loom>>(pair: &Pair<S>) {
    let _write = pair.lock.write();
    set_crowded(true);
    pair.left.bump();
    pair.right.bump();
}

fn uncrowded<S: RwSemaphore<Loom>>() -> Pair<S> {
    set_crowded(false);
    pair()
}

#[test]
fn a_spinner_that_gives_way_is_not_forgotten() {
    type Lock = RwsemV8<Loom>;
    race(Some(3), uncrowded::<Lock>, [change_in_a_crowd, change], |pair| went(pair, 2));
    race(Some(2), uncrowded::<Lock>, [change_in_a_crowd, change, look], |pair| went(pair, 2));
    race(Some(1), uncrowded::<Lock>, [change_in_a_crowd, change, change], |pair| went(pair, 3));
}

/// Overtakes whoever is in line as often as it can, and sees that this is once.
fn overtake(pair: &Pair<Rwsem<Loom, Impatient>>) {
    pair.lock.write_lock();
    let is_awaited = pair.lock.is_contended();
    let seen = pair.left.read();
    for _ in 0..2 {
        // SAFETY: taken above, or at the end of the last round.
        unsafe { pair.lock.write_unlock() };
        pair.lock.write_lock();
    }
    assert!(!is_awaited || pair.left.read() > seen, "overtaken twice");
    // SAFETY: taken at the end of the last round.
    unsafe { pair.lock.write_unlock() };
}

#[test]
fn a_sleeper_is_overtaken_no_more_often_than_patience_allows() {
    race(Some(4), pair, [overtake, change], |pair| went(pair, 1));
}

/// A lock, and a reader that says that it is in.
struct Announced {
    lock: Rwsem2012<Loom>,
    is_in: Event<Loom>,
}

#[test]
fn a_downgrade_lets_in_the_readers_that_wait() {
    let downgrade = |shared: &Announced| {
        let write = shared.lock.write();
        let _read = write.downgrade();
        shared.is_in.wait();
    };
    let enter = |shared: &Announced| {
        let _read = shared.lock.read();
        shared.is_in.set();
    };
    let setup = || Announced { lock: Rwsem2012::new(), is_in: Event::new() };
    race(Some(4), setup, [downgrade as Body<Announced>, enter], |shared| assert!(!shared.lock.is_locked()));
}

/// Spins, and leaves the waking to spinners, but hardly ever overtakes.
enum Polite {}

impl Patches for Polite {
    const NAME: &'static str = "polite";
    const PATIENCE: u32 = 1;
    const LOOK_BEFORE_TRY: bool = true;
    const LOOK_BEFORE_GRANT: bool = true;
    const OPTIMISTIC_SPIN: bool = true;
    const SPINNER_SPARES_WAKE: bool = true;
}

#[test]
fn spinners_that_hardly_overtake_four_threads() {
    race(Some(1), pair::<Rwsem<Loom, Polite>>, [change, look, change, change], |pair| went(pair, 3));
}
