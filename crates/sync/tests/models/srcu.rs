//! SRCU: nothing that a reader can see is freed, though it sleeps and goes on another CPU than it came; and waits end.

use crate::{Plain, race};
use core::ptr::NonNull;
use faultless_platform::loom::Loom;
use faultless_platform::{Atomic, Ordering, Processor};
use faultless_sync::{Event, RcuHead, Srcu};

struct Object {
    head: RcuHead<Loom>,
    is_freed: Plain,
}

fn object() -> Object {
    Object { head: RcuHead::new(), is_freed: Plain::new() }
}

struct Shared {
    srcu: Srcu<Loom, 1>,
    is_linked: <Loom as Processor>::AtomicBool,
    object: Object,
    other: Object,
    is_inside: Event<Loom>,
    may_leave: Event<Loom>,
}

fn shared<const N: usize>() -> Shared {
    Shared {
        srcu: Srcu::with_batch(N),
        is_linked: Atomic::new(true),
        object: object(),
        other: object(),
        is_inside: Event::new(),
        may_leave: Event::new(),
    }
}

fn reader(shared: &Shared) {
    let _guard = shared.srcu.read();
    if shared.is_linked.load(Ordering::Relaxed) {
        assert_eq!(shared.object.is_freed.read(), 0, "freed under a reader");
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
        assert_eq!(shared.object.is_freed.read(), 0, "freed after an inner section ended");
    }
}

/// Sleeps inside its section.
fn sleeper(shared: &Shared) {
    let _guard = shared.srcu.read();
    let is_linked = shared.is_linked.load(Ordering::Relaxed);
    shared.is_inside.set();
    shared.may_leave.wait();
    if is_linked {
        assert_eq!(shared.object.is_freed.read(), 0, "freed under a sleeper");
    }
}

/// Wakes the sleeper, and waits for it.
fn wake_and_free(shared: &Shared) {
    shared.is_inside.wait();
    shared.is_linked.store(false, Ordering::Relaxed);
    shared.may_leave.set();
    shared.srcu.synchronize();
    shared.object.is_freed.write(1);
}

fn free_after_synchronize(shared: &Shared) {
    shared.is_linked.store(false, Ordering::Relaxed);
    shared.srcu.synchronize();
    shared.object.is_freed.write(1);
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
fn synchronize_waits_for_readers() {
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
fn a_reader_may_sleep() {
    race(Some(4), shared::<2>, [wake_and_free, sleeper], |_| ());
    race(Some(2), shared::<3>, [wake_and_free, sleeper, reader], |_| ());
}

#[test]
fn a_grace_period_that_began_too_early_does_not_count() {
    race(Some(2), shared::<3>, [free_after_synchronize, reader, synchronize], |_| ());
}

/// Frees the object that the head stands in.
///
/// # Safety
/// The head is that of an [`Object`] that is alive.
unsafe fn free(head: NonNull<RcuHead<Loom>>) {
    // SAFETY: the head is the first field of an object; see above.
    let object = unsafe { &*head.as_ptr().cast_const().byte_sub(core::mem::offset_of!(Object, head)).cast::<Object>() };
    object.is_freed.write(1);
}

fn defer(shared: &Shared, object: &Object) {
    let head = NonNull::from(&object.head);
    // SAFETY: the object is unlinked, deferred once, and lives as long as the model.
    unsafe { shared.srcu.defer(head, free) };
}

fn free_by_flush(shared: &Shared) {
    shared.is_linked.store(false, Ordering::Relaxed);
    defer(shared, &shared.object);
    shared.srcu.flush();
    assert_eq!(shared.object.is_freed.read(), 1, "flush came back too early");
}

fn poll_other(shared: &Shared) {
    defer(shared, &shared.other);
    shared.srcu.poll();
}

#[test]
fn deferred_callbacks_run_after_a_grace_period() {
    race(Some(4), shared::<2>, [free_by_flush, reader], |shared| assert_eq!(shared.srcu.nr_deferred(), 0));
    race(Some(2), shared::<2>, [free_by_flush, poll_other], |shared| {
        shared.srcu.flush();
        assert_eq!((shared.object.is_freed.read(), shared.other.is_freed.read()), (1, 1));
        assert_eq!(shared.srcu.nr_deferred(), 0);
    });
}
