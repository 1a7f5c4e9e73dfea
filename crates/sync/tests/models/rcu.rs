//! RCU: nothing that a reader can see is freed, and waits end.

use crate::object::Object;
use crate::race;
use faultless_platform::loom::Loom;
use faultless_platform::{Atomic, Ordering, Processor};
use faultless_sync::Rcu;

struct Shared {
    /// Each callback is a batch.
    rcu: Rcu<Loom, 1>,
    is_linked: <Loom as Processor>::AtomicBool,
    object: Object,
    other: Object,
    third: Object,
    has_deferred: <Loom as Processor>::AtomicU32,
}

fn shared<const N: usize>() -> Shared {
    let [object, other, third] = core::array::from_fn(|_| Object::new());
    Shared { rcu: Rcu::with_batch(N), is_linked: Atomic::new(true), object, other, third, has_deferred: Atomic::new(0) }
}

/// As [`shared`], with a group for each CPU.
fn grouped<const N: usize>() -> Shared {
    Shared { rcu: Rcu::with_groups(N, 0), ..shared::<N>() }
}

fn reader(shared: &Shared) {
    let _guard = shared.rcu.read();
    if shared.is_linked.load(Ordering::Relaxed) {
        assert!(!shared.object.is_freed(), "freed under a reader");
    }
}

fn reader_twice(shared: &Shared) {
    reader(shared);
    reader(shared);
}

fn nested_reader(shared: &Shared) {
    let _guard = shared.rcu.read();
    let is_linked = shared.is_linked.load(Ordering::Relaxed);
    drop(shared.rcu.read());
    if is_linked {
        assert!(!shared.object.is_freed(), "freed after an inner section ended");
    }
}

fn free_after_synchronize(shared: &Shared) {
    shared.is_linked.store(false, Ordering::Relaxed);
    shared.rcu.synchronize();
    shared.object.end();
}

fn synchronize(shared: &Shared) {
    shared.rcu.synchronize();
}

#[test]
pub fn synchronize_waits_for_readers() {
    race(None, shared::<2>, [free_after_synchronize, reader], |_| ());
    race(None, shared::<2>, [free_after_synchronize, reader_twice], |_| ());
    race(None, shared::<2>, [free_after_synchronize, nested_reader], |_| ());
    race(Some(3), shared::<3>, [free_after_synchronize, reader, reader], |_| ());
}

fn free_after_sections_of_all(shared: &Shared) {
    shared.is_linked.store(false, Ordering::Relaxed);
    shared.rcu.await_sections_of(0..Loom::nr_cpus());
    shared.object.end();
}

#[test]
pub fn sections_of_named_cpus_are_waited_for() {
    race(None, shared::<2>, [free_after_sections_of_all, reader], |_| ());
    race(None, shared::<2>, [free_after_sections_of_all, reader_twice], |_| ());
    race(Some(3), shared::<3>, [free_after_sections_of_all, reader, reader], |_| ());
}

#[test]
pub fn a_grace_period_that_began_too_early_does_not_count() {
    race(Some(3), shared::<3>, [free_after_synchronize, reader, synchronize], |_| ());
}

fn defer(shared: &Shared, object: &Object) {
    // SAFETY: the object is unlinked, deferred once, and lives as long as the model.
    unsafe { shared.rcu.defer(object.head(), Object::free) };
}

fn free_by_flush(shared: &Shared) {
    shared.is_linked.store(false, Ordering::Relaxed);
    defer(shared, &shared.object);
    shared.rcu.flush();
    assert!(shared.object.is_freed(), "flush came back too early");
}

fn flush_other(shared: &Shared) {
    defer(shared, &shared.other);
    shared.rcu.flush();
    assert!(shared.other.is_freed(), "flush came back too early");
}

fn both_are_freed(shared: &Shared) {
    assert!(shared.object.is_freed() && shared.other.is_freed());
    assert_eq!(shared.rcu.nr_deferred(), 0);
}

#[test]
pub fn deferred_callbacks_run_after_a_grace_period() {
    race(None, shared::<2>, [free_by_flush, reader], |shared| assert_eq!(shared.rcu.nr_deferred(), 0));
}

#[test]
pub fn flush_waits_for_what_another_cpu_runs() {
    race(Some(3), shared::<2>, [free_by_flush, flush_other], both_are_freed);
}

fn free_by_poll(shared: &Shared) {
    shared.is_linked.store(false, Ordering::Relaxed);
    defer(shared, &shared.object);
    shared.rcu.poll();
    shared.rcu.poll();
}

fn poll_other(shared: &Shared) {
    defer(shared, &shared.other);
    shared.rcu.poll();
}

fn rest_is_freed(shared: &Shared) {
    shared.rcu.flush();
    both_are_freed(shared);
}

#[test]
pub fn polling_frees_after_a_grace_period_and_never_waits() {
    race(Some(3), shared::<2>, [free_by_poll, reader], |shared| {
        shared.rcu.flush();
        assert!(shared.object.is_freed());
    });
    race(Some(2), shared::<2>, [free_by_poll, poll_other], rest_is_freed);
    race(Some(2), shared::<3>, [free_by_poll, reader, synchronize], |_| ());
}

fn defer_three(shared: &Shared) {
    defer(shared, &shared.object);
    defer(shared, &shared.other);
    shared.has_deferred.store(1, Ordering::Release);
    defer(shared, &shared.third);
}

fn flush_two(shared: &Shared) {
    Loom::spin_until(|| shared.has_deferred.load(Ordering::Acquire) == 1);
    shared.rcu.flush();
    assert!(shared.object.is_freed() && shared.other.is_freed(), "flush came back too early");
}

#[test]
pub fn flush_is_not_put_off_by_what_is_deferred_meanwhile() {
    race(Some(3), shared::<3>, [defer_three, flush_two, synchronize], |shared| {
        shared.rcu.flush();
        assert_eq!(shared.rcu.nr_deferred(), 0);
    });
}

fn free_by_two_polls_and_flush(shared: &Shared) {
    free_by_poll(shared);
    shared.rcu.flush();
    assert!(shared.object.is_freed(), "flush came back too early");
}

#[test]
pub fn groups_are_looked_at_by_whoever_comes_by() {
    race(Some(2), grouped::<2>, [free_after_synchronize, reader], |_| ());
}

/// No fence lies between the end of the section and the look.
fn reader_that_polls(shared: &Shared) {
    defer(shared, &shared.other);
    reader(shared);
    shared.rcu.poll();
}

/// A reader looks at its own group and leaves the end of the grace period to the one who frees.
#[test]
pub fn whoever_ends_a_grace_period_has_what_others_saw() {
    race(Some(3), grouped::<2>, [reader_that_polls, free_after_synchronize], |shared| shared.rcu.flush());
}

#[test]
pub fn polls_look_at_their_own_group() {
    race(Some(2), grouped::<2>, [free_by_two_polls_and_flush, reader], |_| ());
}
