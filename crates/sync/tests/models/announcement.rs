//! Announced changes: no reader is beside a change of its place, or misses one that came before.

use crate::{Plain, race};
use faultless_platform::Processor;
use faultless_platform::loom::Loom;
use faultless_sync::{Announcement, AtomicCpuSet, Rcu};

struct Shared {
    rcu: Rcu<Loom, 1>,
    change: Announcement<Loom>,
    /// What lies at the places 0 and 1.
    places: [Plain; 2],
}

fn shared() -> Shared {
    let change = Announcement::new();
    // A reader that meets a bound of an earlier change may give up for nothing: here none of those does it.
    change.set_range(0..0);
    change.end();
    Shared { rcu: Rcu::with_batch(2), change, places: core::array::from_fn(|_| Plain::new()) }
}

fn change(shared: &Shared, place: usize) {
    shared.change.set_range(place as u64..place as u64 + 1);
    shared.change.begin();
    shared.rcu.await_sections_of(0..Loom::nr_cpus());
    shared.places[place].bump();
    shared.change.end();
}

/// A reader that uses a place as a fault does: it may write, too.
fn use_place(shared: &Shared, place: usize) {
    let _section = shared.rcu.read();
    if shared.change.is_made() && shared.change.concerns(place as u64) {
        return;
    }
    shared.places[place].bump();
}

fn change_low(shared: &Shared) {
    change(shared, 0);
}

fn change_both_up(shared: &Shared) {
    change(shared, 0);
    change(shared, 1);
}

fn change_both_down(shared: &Shared) {
    change(shared, 1);
    change(shared, 0);
}

fn use_low(shared: &Shared) {
    use_place(shared, 0);
}

fn use_high(shared: &Shared) {
    use_place(shared, 1);
}

#[test]
pub fn nobody_is_beside_a_change_of_its_place() {
    race(None, shared, [change_low, use_low], |_| ());
}

#[test]
pub fn who_is_beside_another_change_has_seen_the_one_before() {
    race(Some(3), shared, [change_both_up, use_low], |_| ());
    race(Some(3), shared, [change_both_down, use_high], |_| ());
}

#[test]
pub fn a_reader_elsewhere_goes_on() {
    race(None, shared, [change_low, use_high], |shared| assert_eq!(shared.places[1].read(), 1, "it gave up"));
}

/// What several CPUs use, of which a writer waits for those that came into its set (`vm`'s `translations::lanes`).
struct Lane {
    shared: Shared,
    users: AtomicCpuSet<Loom>,
}

fn lane() -> Lane {
    Lane { shared: shared(), users: AtomicCpuSet::new() }
}

fn come_and_use(lane: &Lane) {
    lane.users.insert(Loom::cpu());
    use_place(&lane.shared, 0);
}

fn change_for_users(lane: &Lane) {
    let shared = &lane.shared;
    shared.change.set_range(0..1);
    shared.change.begin();
    // The set is read behind the fence that this begins with.
    shared.rcu.await_sections_of(lane.users.members_below(Loom::nr_cpus()));
    shared.places[0].bump();
    shared.change.end();
}

#[test]
pub fn who_comes_beside_a_change_is_waited_for_or_sees_it() {
    race(None, lane, [change_for_users, come_and_use], |_| ());
}
