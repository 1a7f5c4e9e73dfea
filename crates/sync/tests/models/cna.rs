//! The queue that prefers a node's: one head at a time, nobody lost, no touch of a node that has gone, whoever is moved
//! meanwhile.
//!
//! Each model says which slots are of a second node.

use crate::{Body, Plain, race};
use faultless_platform::loom::{Loom, set_crowded, set_second_node};
use faultless_platform::{Atomic, AtomicInteger, Ordering, Processor};
use faultless_sync::CnaQueue;

type Word = <Loom as Processor>::AtomicU32;

struct Queue {
    queue: CnaQueue<Loom>,
    count: Plain,
    /// How many have found that they are not the head, or were there without waiting.
    nr_come: Word,
}

/// Returns a queue on a machine whose second node has the slots `SECOND`, a bit each; the head overtakes those of the
/// other node once in a row.
fn queue<const SECOND: u64>() -> Queue {
    queue_with(SECOND, 1)
}

fn queue_with(second: u64, nr_passes: u32) -> Queue {
    set_second_node(second);
    Queue { queue: CnaQueue::with_passes(nr_passes), count: Plain::new(), nr_come: Word::new(0) }
}

/// Stays at the head until so many others have come.
fn stay_until<const OTHERS: u32>(shared: &Queue) {
    shared.queue.lock(|| {
        Loom::spin_until(|| shared.nr_come.load(Ordering::Relaxed) >= OTHERS);
        shared.count.bump();
    });
}

/// Says that it has come, and stays for so many looks; what is not waited for is over at once.
fn wait_for(shared: &Queue, nr_looks: u32) {
    let mut looks = 0;
    let mut note = || {
        if looks == 0 {
            shared.nr_come.fetch_add(1, Ordering::Relaxed);
        }
        looks += 1;
        looks <= nr_looks
    };
    let is_had = shared.queue.lock_while(&mut note, || shared.count.bump()).is_some();
    if is_had && looks == 0 {
        shared.nr_come.fetch_add(1, Ordering::Relaxed);
    }
}

fn wait(shared: &Queue) {
    wait_for(shared, u32::MAX);
}

fn leave(shared: &Queue) {
    wait_for(shared, 0);
}

/// Leaves when CPUs are wanted, wherever it has been moved to; may be handed the head meanwhile.
fn give_way(shared: &Queue) {
    let is_uncrowded = || !Loom::should_yield();
    let mut has_come = false;
    let keep_waiting = || {
        if !core::mem::replace(&mut has_come, true) {
            shared.nr_come.fetch_add(1, Ordering::Relaxed);
        }
        is_uncrowded()
    };
    let is_had = shared.queue.lock_while(keep_waiting, || shared.count.bump()).is_some();
    if is_had && !has_come {
        shared.nr_come.fetch_add(1, Ordering::Relaxed);
    }
}

/// Stays at the head until so many others have come, and wants their CPUs before it leaves.
fn crowd_when<const OTHERS: u32>(shared: &Queue) {
    shared.queue.lock(|| {
        Loom::spin_until(|| shared.nr_come.load(Ordering::Relaxed) >= OTHERS);
        set_crowded(true);
        shared.count.bump();
    });
}

/// Waits for the head, whoever wants its CPU.
fn insist(shared: &Queue) {
    shared.nr_come.fetch_add(1, Ordering::Relaxed);
    shared.queue.lock(|| shared.count.bump());
}

/// Waits for the head, and wants the others' CPUs there.
fn insist_and_crowd(shared: &Queue) {
    shared.nr_come.fetch_add(1, Ordering::Relaxed);
    shared.queue.lock(|| {
        set_crowded(true);
        shared.count.bump();
    });
}

fn uncrowded<const SECOND: u64>() -> Queue {
    set_crowded(false);
    queue::<SECOND>()
}

fn is_empty_with(shared: &Queue, counts: core::ops::RangeInclusive<u64>) {
    assert!(counts.contains(&shared.count.read()), "{} of {counts:?} sections are seen", shared.count.read());
    assert!(!shared.queue.is_occupied());
}

#[test]
pub fn one_head_at_a_time() {
    race(None, queue::<0b10>, [wait, wait], |shared| is_empty_with(shared, 2..=2));
    race(Some(2), queue::<0b10>, [wait, wait, wait], |shared| is_empty_with(shared, 3..=3));
    // The second waiter goes ahead of the first; or both are put aside.
    race(Some(2), queue::<0b10>, [stay_until::<2>, wait, wait], |shared| is_empty_with(shared, 3..=3));
    race(Some(2), queue::<0b110>, [stay_until::<2>, wait, wait], |shared| is_empty_with(shared, 3..=3));
    race(Some(1), || queue_with(0b10, 0), [stay_until::<2>, wait, wait], |shared| is_empty_with(shared, 3..=3));
}

#[test]
pub fn whoever_leaves_loses_nobody() {
    race(Some(2), queue::<0b10>, [stay_until::<2>, leave, wait], |shared| is_empty_with(shared, 2..=3));
    race(Some(2), queue::<0b110>, [stay_until::<2>, leave, wait], |shared| is_empty_with(shared, 2..=3));
}

#[test]
pub fn whoever_is_moved_may_leave() {
    race(Some(2), uncrowded::<0b10>, [crowd_when::<2>, give_way, give_way], |shared| is_empty_with(shared, 1..=3));
    race(Some(1), uncrowded::<0b110>, [crowd_when::<2>, give_way, give_way], |shared| is_empty_with(shared, 1..=3));
    race(Some(1), uncrowded::<0b110>, [crowd_when::<2>, give_way, insist], |shared| is_empty_with(shared, 2..=3));
}

#[test]
#[ignore = "takes a minute: run it with --ignored, as .ci/sanitize does"]
pub fn neighbours_leave_while_they_are_moved() {
    let bodies: [Body<Queue>; 4] = [stay_until::<3>, give_way, give_way, insist_and_crowd];
    race(Some(1), uncrowded::<0b110>, bodies, |shared| is_empty_with(shared, 2..=4));
}
