//! The MCS queue: one head at a time, nobody lost, no touch of a node that has gone.

use crate::{Plain, race};
use faultless_platform::loom::Loom;
use faultless_platform::{Atomic, Ordering, Processor};
use faultless_sync::McsQueue;

struct Queue {
    queue: McsQueue<Loom>,
    count: Plain,
    /// How many have found that they are not the head.
    nr_waiting: <Loom as Processor>::AtomicU32,
}

fn queue() -> Queue {
    Queue { queue: McsQueue::new(), count: Plain::new(), nr_waiting: Atomic::new(0) }
}

fn stay(shared: &Queue) {
    shared.queue.lock(|| shared.count.bump());
}

/// Leaves at once when it is not at the head; may be handed the head meanwhile.
fn leave(shared: &Queue) {
    shared.queue.lock_while(|| false, || shared.count.bump());
}

/// Stays at the head until somebody waits behind.
fn stay_until_awaited(shared: &Queue) {
    shared.queue.lock(|| {
        Loom::spin_until(|| shared.nr_waiting.load(Ordering::Relaxed) != 0);
        shared.count.bump();
    });
}

/// Says that it waits, and leaves; or is the head, where nobody holds the others up.
fn leave_behind(shared: &Queue) {
    let note = || {
        shared.nr_waiting.store(1, Ordering::Relaxed);
        false
    };
    if shared.queue.lock_while(note, || shared.count.bump()).is_some() {
        shared.nr_waiting.store(1, Ordering::Relaxed);
    }
}

/// Leaves after one look.
fn hesitate(shared: &Queue) {
    let mut looks = 0;
    let keep_waiting = || {
        looks += 1;
        looks < 2
    };
    shared.queue.lock_while(keep_waiting, || shared.count.bump());
}

fn is_empty_with(shared: &Queue, counts: core::ops::RangeInclusive<u64>) {
    assert!(counts.contains(&shared.count.read()), "{} of {counts:?} sections are seen", shared.count.read());
    assert!(!shared.queue.is_occupied());
}

#[test]
pub fn one_head_at_a_time() {
    race(None, queue, [stay, stay], |shared| is_empty_with(shared, 2..=2));
    race(Some(3), queue, [stay, stay, stay], |shared| is_empty_with(shared, 3..=3));
}

#[test]
pub fn whoever_leaves_loses_nobody() {
    race(None, queue, [stay, leave], |shared| is_empty_with(shared, 1..=2));
    race(None, queue, [stay, hesitate], |shared| is_empty_with(shared, 1..=2));
    race(Some(2), queue, [stay, leave, stay], |shared| is_empty_with(shared, 2..=3));
}

#[test]
pub fn the_head_takes_over_from_one_who_leaves() {
    race(Some(2), queue, [stay_until_awaited, leave_behind, stay], |shared| is_empty_with(shared, 2..=3));
}

#[test]
pub fn neighbours_leave_at_the_same_time() {
    race(Some(2), queue, [stay, leave, leave], |shared| is_empty_with(shared, 1..=3));
    race(Some(1), queue, [stay, leave, leave, stay], |shared| is_empty_with(shared, 2..=4));
}
