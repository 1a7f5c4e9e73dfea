//! SRCU: nothing that a reader can see is freed, though it sleeps and goes on another CPU than it came; and waits end.

use crate::object::Object;
use crate::race;
use faultless_platform::loom::Loom;
use faultless_platform::{Atomic, Ordering, Processor};
use faultless_sync::{Completion, Srcu};

struct Shared {
    srcu: Srcu<Loom, 1>,
    is_linked: <Loom as Processor>::AtomicBool,
    object: Object,
    other: Object,
    is_inside: Completion<Loom>,
    may_leave: Completion<Loom>,
}

fn shared<const N: usize>() -> Shared {
    Shared {
        srcu: Srcu::with_batch(N),
        is_linked: Atomic::new(true),
        object: Object::new(),
        other: Object::new(),
        is_inside: Completion::new(),
        may_leave: Completion::new(),
    }
}

fn reader(shared: &Shared) {
    let _guard = shared.srcu.read();
    if shared.is_linked.load(Ordering::Relaxed) {
        assert!(!shared.object.is_freed(), "freed under a reader");
    }
}

fn reader_twice(shared: &Shared) {
    reader(shared);
    reader(shared);
}

fn nested_reader(shared: &Shared) {
    let _guard = shared.srcu.read();
    let is_linked = shared.is_linked.load(Ordering::Relaxed);
    drop(shared.srcu.read());
    if is_linked {
        assert!(!shared.object.is_freed(), "freed after an inner section ended");
    }
}

/// Sleeps inside its section.
fn sleeper(shared: &Shared) {
    let _guard = shared.srcu.read();
    let is_linked = shared.is_linked.load(Ordering::Relaxed);
    shared.is_inside.set();
    shared.may_leave.wait();
    if is_linked {
        assert!(!shared.object.is_freed(), "freed under a sleeper");
    }
}

/// Wakes the sleeper, and waits for it.
fn wake_and_free(shared: &Shared) {
    shared.is_inside.wait();
    shared.is_linked.store(false, Ordering::Relaxed);
    shared.may_leave.set();
    shared.srcu.synchronize();
    shared.object.end();
}

fn free_after_synchronize(shared: &Shared) {
    shared.is_linked.store(false, Ordering::Relaxed);
    shared.srcu.synchronize();
    shared.object.end();
}

/// Turns the phase first, so that a late reader may come on either side.
fn free_after_two_periods(shared: &Shared) {
    shared.srcu.synchronize();
    free_after_synchronize(shared);
}

fn synchronize(shared: &Shared) {
    shared.srcu.synchronize();
}

#[test]
pub fn synchronize_waits_for_readers() {
    let explored = [
        race(None, shared::<2>, [free_after_synchronize, reader], |_| ()),
        race(Some(4), shared::<2>, [free_after_synchronize, reader_twice], |_| ()),
        race(Some(4), shared::<2>, [free_after_synchronize, nested_reader], |_| ()),
        race(Some(3), shared::<2>, [free_after_two_periods, reader_twice], |_| ()),
        race(Some(2), shared::<3>, [free_after_synchronize, reader, reader], |_| ()),
    ];
    assert!(explored.iter().all(|&nr| nr >= 50), "{explored:?} interleavings: a model races nobody");
}

#[test]
pub fn a_reader_may_sleep() {
    race(Some(4), shared::<2>, [wake_and_free, sleeper], |_| ());
    race(Some(2), shared::<3>, [wake_and_free, sleeper, reader], |_| ());
}

#[test]
pub fn a_grace_period_that_began_too_early_does_not_count() {
    race(Some(2), shared::<3>, [free_after_synchronize, reader, synchronize], |_| ());
}

fn defer(shared: &Shared, object: &Object) {
    // SAFETY: the object is unlinked, deferred once, and lives as long as the model.
    unsafe { shared.srcu.defer(object.head(), Object::free) };
}

fn free_by_flush(shared: &Shared) {
    shared.is_linked.store(false, Ordering::Relaxed);
    defer(shared, &shared.object);
    shared.srcu.flush();
    assert!(shared.object.is_freed(), "flush came back too early");
}

fn poll_other(shared: &Shared) {
    defer(shared, &shared.other);
    shared.srcu.poll();
}

#[test]
pub fn deferred_callbacks_run_after_a_grace_period() {
    race(Some(4), shared::<2>, [free_by_flush, reader], |shared| assert_eq!(shared.srcu.nr_deferred(), 0));
    race(Some(2), shared::<2>, [free_by_flush, poll_other], |shared| {
        shared.srcu.flush();
        assert!(shared.object.is_freed() && shared.other.is_freed());
        assert_eq!(shared.srcu.nr_deferred(), 0);
    });
}
