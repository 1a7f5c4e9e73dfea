//! Stamps: what is recalled is used neither beside a change nor after one.

use crate::{Plain, race};
use faultless_platform::loom::Loom;
use faultless_platform::{Atomic, Ordering, Processor};
use faultless_sync::{Announcement, Rcu, Stamp};

type Word = <Loom as Processor>::AtomicU64;

/// Nothing is recalled.
const NOTHING: u64 = u64::MAX;

struct Shared {
    rcu: Rcu<Loom, 1>,
    change: Announcement<Loom>,
    stamp: Word,
    /// What a change changes, and a reader uses: it may write, too.
    place: Plain,
    /// How many changes there were.
    version: Word,
    /// What the reader recalls: a stamp, and the version that it found.
    recalled: [Word; 2],
}

fn shared() -> Shared {
    let change = Announcement::new();
    change.set_range(0..0);
    change.end();
    Shared {
        rcu: Rcu::with_batch(2),
        change,
        stamp: Word::new(0),
        place: Plain::new(),
        version: Word::new(0),
        recalled: [Word::new(0), Word::new(0)],
    }
}

fn shared_of_who_recalls_nothing() -> Shared {
    let shared = shared();
    shared.recalled[0].store(NOTHING, Ordering::Relaxed);
    shared
}

fn change(shared: &Shared) {
    change_and_note(shared, |stamp| stamp.note_change());
}

/// As `change`, by a writer who is the only one.
fn change_alone(shared: &Shared) {
    change_and_note(shared, |stamp| stamp.note_change_alone());
}

fn change_and_note(shared: &Shared, note: fn(&Stamp<'_, Loom>)) {
    shared.change.set_range(0..1);
    shared.change.begin();
    note(&Stamp::of(&shared.stamp));
    shared.rcu.await_sections_of(0..Loom::nr_cpus());
    shared.place.bump();
    // Relaxed, here and below: a word only so that the reader may look at it beside a change.
    shared.version.store(shared.version.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    shared.change.end();
}

fn change_twice(shared: &Shared) {
    change(shared);
    change(shared);
}

/// Uses what is recalled, if its stamp is that of now; else looks for itself.
fn fault(shared: &Shared) {
    let _section = shared.rcu.read();
    let stamp = Stamp::<Loom>::of(&shared.stamp).read();
    let [with, version] = [0, 1].map(|word: usize| shared.recalled[word].load(Ordering::Relaxed));
    if with == stamp {
        shared.place.bump();
        assert_eq!(shared.version.load(Ordering::Relaxed), version, "what was recalled has changed");
        return;
    }
    if !shared.change.is_made() {
        shared.recalled[0].store(stamp, Ordering::Relaxed);
        shared.recalled[1].store(shared.version.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

fn fault_twice(shared: &Shared) {
    fault(shared);
    fault(shared);
}

#[test]
pub fn what_is_recalled_is_not_used_beside_a_change() {
    race(None, shared, [change, fault], |_| ());
    race(None, shared, [change_alone, fault], |_| ());
}

#[test]
pub fn what_is_recalled_beside_a_change_is_used_if_it_is_of_now() {
    race(Some(3), shared_of_who_recalls_nothing, [change, fault_twice], |_| ());
    race(Some(3), shared_of_who_recalls_nothing, [change_alone, fault_twice], |_| ());
    race(Some(3), shared, [change_twice, fault_twice], |_| ());
}
