//! The semaphores: readers and writers exclude each other, and nobody sleeps for ever.

use crate::{Body, Plain, race};
use faultless_platform::Processor;
use faultless_platform::loom::{Loom, set_crowded, set_second_node};
use faultless_sync::{
    Completion, Ended, Generation, Interrupt, Parts, Patches, ReaderTable, Rules, RwSemaphore, Rwsem, WaitLimits,
};

struct Pair {
    lock: Rwsem<Loom>,
    left: Plain,
    right: Plain,
}

fn pair(generation: Generation) -> impl Fn() -> Pair {
    move || Pair { lock: Rwsem::of(generation), left: Plain::new(), right: Plain::new() }
}

fn change(pair: &Pair) {
    let _write = pair.lock.write();
    pair.left.bump();
    pair.right.bump();
}

fn change_and_downgrade(pair: &Pair) {
    let write = pair.lock.write();
    pair.left.bump();
    pair.right.bump();
    let _read = write.downgrade();
    assert_eq!(pair.left.read(), pair.right.read());
}

fn look(pair: &Pair) {
    let _read = pair.lock.read();
    assert_eq!(pair.left.read(), pair.right.read());
}

fn try_both(pair: &Pair) {
    if let Some(_read) = pair.lock.try_read() {
        assert_eq!(pair.left.read(), pair.right.read());
    }
    if let Some(_write) = pair.lock.try_write() {
        pair.left.bump();
        pair.right.bump();
    }
}

fn is_free(pair: &Pair) {
    assert_eq!(pair.left.read(), pair.right.read());
    assert!(!pair.lock.is_locked() && !pair.lock.is_contended(), "the word is not clean");
    assert!(pair.lock.owner().is_none(), "somebody who has gone is named as the owner");
}

fn went(pair: &Pair, writers: u64) {
    assert_eq!(pair.left.read(), writers, "a writer's change was lost");
    is_free(pair);
}

fn two_at_a_time(generation: Generation) {
    two_at_a_time_within(generation, 4);
}

fn two_at_a_time_within(generation: Generation, max_preemptions: usize) {
    let bound = Some(max_preemptions);
    race(bound, pair(generation), [change, change] as [Body<Pair>; 2], |pair| went(pair, 2));
    race(bound, pair(generation), [change, look], |pair| went(pair, 1));
    race(bound, pair(generation), [change_and_downgrade, look], |pair| went(pair, 1));
    race(bound, pair(generation), [change_and_downgrade, change], |pair| went(pair, 2));
    race(bound, pair(generation), [change, try_both], is_free);
}

fn three_at_a_time(generation: Generation, max_preemptions: usize) {
    let bound = Some(max_preemptions);
    race(bound, pair(generation), [change, look, look], |pair| went(pair, 1));
    race(bound, pair(generation), [change, change, look], |pair| went(pair, 2));
    race(bound, pair(generation), [change, change, change], |pair| went(pair, 3));
    race(bound, pair(generation), [change_and_downgrade, change, look], |pair| went(pair, 2));
}

#[test]
pub fn rwsem_2012_two_threads() {
    two_at_a_time(Generation::RWSEM_2012);
}

#[test]
pub fn rwsem_2012_three_threads() {
    three_at_a_time(Generation::RWSEM_2012, 3);
}

#[test]
pub fn rwsem_v8_two_threads() {
    two_at_a_time(Generation::RWSEM_V8);
}

#[test]
#[ignore = "takes a minute: run it with --ignored, as .ci/sanitize does"]
pub fn rwsem_v8_three_threads() {
    three_at_a_time(Generation::RWSEM_V8, 2);
}

#[test]
pub fn a_spinner_that_waits_for_readers_is_not_forgotten() {
    let spins = Generation::RWSEM_V8.with(Rules::SPINS_FOR_READERS);
    race(Some(3), pair(spins), [look as Body<Pair>, change], |pair| went(pair, 1));
    race(Some(1), pair(spins), [look as Body<Pair>, change, change], |pair| went(pair, 2));
    race(Some(2), uncrowded_of(spins), [look_in_a_crowd as Body<Pair>, change], |pair| went(pair, 1));
}

#[test]
pub fn handoff_two_threads() {
    two_at_a_time_within(Generation::HANDOFF, 3);
}

/// The first in line shuts the door as soon as it is in line: time does not pass here.
const SHUT_AT_ONCE: Generation = Generation::new(0, Patches::NONE).with(Rules::HANDOFF);

#[test]
pub fn a_door_that_is_shut_is_for_the_first_in_line() {
    two_at_a_time(SHUT_AT_ONCE);
    race(Some(3), pair(SHUT_AT_ONCE), [change, look, look] as [Body<Pair>; 3], |pair| went(pair, 1));
    race(Some(3), pair(SHUT_AT_ONCE), [change, change, look], |pair| went(pair, 2));
    race(Some(4), pair(SHUT_AT_ONCE), [overtake as Body<Pair>, change], |pair| went(pair, 1));
}

#[test]
pub fn readers_that_go_ahead_after_a_writer() {
    let open = Generation::new(4, Patches::NONE).with(Rules::HANDOFF);
    race(Some(3), pair(open), [change, look, look] as [Body<Pair>; 3], |pair| went(pair, 1));
    race(Some(3), pair(open), [change, change, look], |pair| went(pair, 2));
}

#[test]
#[ignore = "takes a minute: run it with --ignored, as .ci/sanitize does"]
pub fn handoff_three_threads() {
    three_at_a_time(Generation::HANDOFF, 1);
}

#[test]
#[ignore = "takes seven minutes: run it with --ignored, as .ci/sanitize does"]
pub fn handoff_three_threads_interrupted_twice() {
    three_at_a_time(Generation::HANDOFF, 2);
}

#[test]
pub fn phase_fair_two_threads() {
    two_at_a_time(Generation::PHASE_FAIR);
}

#[test]
pub fn phase_fair_three_threads() {
    three_at_a_time(Generation::PHASE_FAIR, 3);
}

/// Thieves may overtake once, so that their bound is met within a model.
const IMPATIENT: Generation = Generation::new(1, Patches::NONE);

#[test]
pub fn thieves_without_spinning() {
    two_at_a_time(IMPATIENT);
    three_at_a_time(IMPATIENT, 3);
}

/// Wants the spinners' CPUs while it holds the lock.
fn change_in_a_crowd(pair: &Pair) {
    let _write = pair.lock.write();
    set_crowded(true);
    pair.left.bump();
    pair.right.bump();
}

fn uncrowded() -> Pair {
    set_crowded(false);
    pair(Generation::RWSEM_V8)()
}

#[test]
pub fn a_spinner_that_gives_way_is_not_forgotten() {
    race(Some(3), uncrowded, [change_in_a_crowd as Body<Pair>, change], |pair| went(pair, 2));
    race(Some(2), uncrowded, [change_in_a_crowd, change, look], |pair| went(pair, 2));
    race(Some(1), uncrowded, [change_in_a_crowd, change, change], |pair| went(pair, 3));
}

/// On a machine of two nodes; the main thread's has every other slot.
fn of_two_nodes(generation: Generation) -> impl Fn() -> Pair {
    move || {
        set_second_node(0b10);
        uncrowded_of(generation.with(Rules::CNA))()
    }
}

#[test]
pub fn spinners_of_two_nodes_that_give_way_are_not_forgotten() {
    for generation in [Generation::RWSEM_V8, Generation::HANDOFF] {
        race(Some(2), of_two_nodes(generation), [change_in_a_crowd as Body<Pair>, change], |pair| went(pair, 2));
        race(Some(1), of_two_nodes(generation), [change_in_a_crowd, change, change], |pair| went(pair, 3));
    }
    race(Some(1), of_two_nodes(Generation::HANDOFF), [change as Body<Pair>, change, change], |pair| went(pair, 3));
}

/// Gives up after some looks, once CPUs are wanted; has the lock or not.
fn change_in_time(pair: &Pair) {
    let limits = WaitLimits::until(Loom::now() + 3);
    if let Ok(_write) = pair.lock.write_within(&limits) {
        pair.left.bump();
        pair.right.bump();
    }
}

fn look_in_time(pair: &Pair) {
    let limits = WaitLimits::until(Loom::now() + 3);
    if let Ok(_read) = pair.lock.read_within(&limits) {
        assert_eq!(pair.left.read(), pair.right.read());
    }
}

fn uncrowded_of(generation: Generation) -> impl Fn() -> Pair {
    move || {
        set_crowded(false);
        pair(generation)()
    }
}

/// A waiter whose time is over leaves the line; those behind it go on, and what it was granted meanwhile is not lost.
fn gives_up(generation: Generation) {
    race(Some(3), uncrowded_of(generation), [change_in_a_crowd as Body<Pair>, change_in_time], is_free);
    race(Some(3), uncrowded_of(generation), [change_in_a_crowd, look_in_time], is_free);
    race(Some(2), uncrowded_of(generation), [change_in_a_crowd, change_in_time, look], is_free);
}

#[test]
pub fn a_waiter_whose_time_is_over_leaves_the_line() {
    for generation in [Generation::RWSEM_2012, IMPATIENT, SHUT_AT_ONCE, Generation::PHASE_FAIR] {
        gives_up(generation);
    }
}

struct Interruptible {
    pair: Pair,
    interrupt: Interrupt<Loom>,
}

fn interruptible(generation: Generation) -> impl Fn() -> Interruptible {
    move || Interruptible { pair: pair(generation)(), interrupt: Interrupt::new() }
}

/// Holds the lock until the other's wait has ended.
fn interrupt_while_it_is_held(shared: &Interruptible) {
    let _write = shared.pair.lock.write();
    shared.interrupt.raise();
}

fn wait_for_write(shared: &Interruptible) {
    match shared.pair.lock.write_within(&WaitLimits::NONE.or_interrupted_by(&shared.interrupt)) {
        Ok(_write) => shared.pair.left.bump(),
        Err(ended) => assert_eq!(ended, Ended::Interrupted),
    }
}

fn wait_for_read(shared: &Interruptible) {
    let read = shared.pair.lock.read_within(&WaitLimits::NONE.or_interrupted_by(&shared.interrupt));
    assert!(read.is_ok() || shared.interrupt.is_raised());
}

#[test]
pub fn an_interrupted_waiter_leaves_the_line() {
    let is_clean = |shared: &Interruptible| {
        assert!(!shared.pair.lock.is_locked() && !shared.pair.lock.is_contended());
    };
    let two = [interrupt_while_it_is_held as Body<Interruptible>, wait_for_read, wait_for_write];
    race(Some(1), interruptible(Generation::RWSEM_2012), two, is_clean);
    for generation in [Generation::RWSEM_2012, IMPATIENT] {
        let setup = || interruptible(generation);
        race(Some(4), setup(), [interrupt_while_it_is_held as Body<Interruptible>, wait_for_write], is_clean);
        race(Some(4), setup(), [interrupt_while_it_is_held, wait_for_read], is_clean);
    }
}

/// The holder releases the lock only when the other's wait has ended: if the interrupt were lost, both would wait for
/// ever.
#[test]
pub fn an_interrupt_is_not_lost() {
    struct Held {
        shared: Interruptible,
        has_ended: Completion<Loom>,
    }
    let hold = |held: &Held| {
        let _write = held.shared.pair.lock.write();
        held.shared.interrupt.raise();
        held.has_ended.wait();
    };
    let wait = |held: &Held| {
        wait_for_read(&held.shared);
        held.has_ended.set();
    };
    let setup = || Held { shared: interruptible(Generation::RWSEM_2012)(), has_ended: Completion::new() };
    race(Some(4), setup, [hold as Body<Held>, wait], |held| assert!(!held.shared.pair.lock.is_locked()));
}

const BIASED: Generation = Generation::RWSEM_2012.with(Rules::BRAVO);

/// A lock with a table of few places, whose first reader turns the bias on.
fn unbiased() -> Pair {
    set_crowded(false);
    let readers = Some(std::sync::Arc::new(ReaderTable::new(2)));
    let lock = Rwsem::with_parts(BIASED, Parts { stats: None, readers });
    Pair { lock, left: Plain::new(), right: Plain::new() }
}

fn biased() -> Pair {
    let pair = unbiased();
    drop(pair.lock.read());
    pair
}

/// Fails to take the lock if a reader is in the table, and gives the bias back.
fn change_and_try_again(pair: &Pair) {
    change(pair);
    drop(pair.lock.try_write());
}

fn look_twice(pair: &Pair) {
    look(pair);
    look(pair);
}

#[test]
pub fn bravo_a_reader_that_never_touched_the_word_sees_the_last_writer() {
    race(Some(2), unbiased, [change as Body<Pair>, look, look], |pair| went(pair, 1));
    race(Some(2), unbiased, [change_and_try_again as Body<Pair>, look_twice, look], |pair| went(pair, 1));
}

#[test]
pub fn bravo_readers_in_the_table_keep_writers_out() {
    race(Some(4), biased, [look as Body<Pair>, change], |pair| went(pair, 1));
    race(Some(3), biased, [change_and_downgrade as Body<Pair>, look], |pair| went(pair, 1));
    race(Some(3), biased, [look, try_both], is_free);
    race(Some(2), biased, [look, look, change], |pair| went(pair, 1));
}

fn try_to_change(pair: &Pair) {
    if let Some(_write) = pair.lock.try_write() {
        pair.left.bump();
        pair.right.bump();
    }
}

#[test]
pub fn bravo_the_bias_goes_and_comes_back_between_two_looks() {
    race(Some(2), biased, [try_to_change as Body<Pair>, look, look], is_free);
}

/// Wants the writer's CPU while it is in the table, so that the writer sleeps until it leaves.
fn look_in_a_crowd(pair: &Pair) {
    let _read = pair.lock.read();
    set_crowded(true);
    assert_eq!(pair.left.read(), pair.right.read());
}

#[test]
pub fn bravo_a_writer_that_sleeps_for_a_reader_is_woken() {
    race(Some(3), biased, [look_in_a_crowd as Body<Pair>, change], |pair| went(pair, 1));
    race(Some(3), biased, [look_in_a_crowd, change_in_time], is_free);
    race(Some(2), biased, [look_in_a_crowd, look, change], |pair| went(pair, 1));
}

/// Overtakes whoever is in line as often as it can, and sees that this is once.
fn overtake(pair: &Pair) {
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
pub fn a_sleeper_is_overtaken_no_more_often_than_patience_allows() {
    race(Some(4), pair(IMPATIENT), [overtake as Body<Pair>, change], |pair| went(pair, 1));
}

/// A lock, and a reader that says that it is in.
struct Announced {
    lock: Rwsem<Loom>,
    is_in: Completion<Loom>,
}

#[test]
pub fn a_downgrade_lets_in_the_readers_that_wait() {
    let downgrade = |shared: &Announced| {
        let write = shared.lock.write();
        let _read = write.downgrade();
        shared.is_in.wait();
    };
    let enter = |shared: &Announced| {
        let _read = shared.lock.read();
        shared.is_in.set();
    };
    let setup = || Announced { lock: Rwsem::of(Generation::RWSEM_2012), is_in: Completion::new() };
    race(Some(4), setup, [downgrade as Body<Announced>, enter], |shared| assert!(!shared.lock.is_locked()));
}

/// Spins, and leaves the waking to spinners, but hardly ever overtakes.
const POLITE: Generation = Generation::new(1, Patches::ALL);

#[test]
pub fn spinners_that_hardly_overtake_four_threads() {
    race(Some(1), pair(POLITE), [change as Body<Pair>, look, change, change], |pair| went(pair, 3));
}
