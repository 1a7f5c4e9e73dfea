//! Sets of CPUs that come while a space is in use, as `vm::translations::lanes` publishes them: whoever takes an entry
//! away asks the CPU that still uses it, by the set of all users or, once that is in force, by those of lanes.

use crate::race;
use faultless_platform::loom::Loom;
use faultless_platform::{Atomic, Ordering, Processor};
use faultless_sync::AtomicCpuSet;

type Flag = <Loom as Processor>::AtomicU32;

/// No sets yet.
const NO_SETS: u32 = 0;
/// CPUs come into them.
const JOINED: u32 = 1;
/// They are asked by them.
const WHOLE: u32 = 2;

/// What a known bug leaves out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lacks {
    Nothing,
    PublishersFence,
    JoinersFence,
    /// Who is among the users already is noted as one who may be everywhere.
    UsersNoted,
    /// CPUs come into the sets before they are asked by them.
    TwoSteps,
}

struct Space {
    lacks: Lacks,
    state: Flag,
    users: AtomicCpuSet<Loom>,
    lane: AtomicCpuSet<Loom>,
    everywhere: AtomicCpuSet<Loom>,
    is_mapped: Flag,
    has_used: Flag,
    has_missed: Flag,
}

fn space(lacks: Lacks) -> Space {
    let [is_mapped, state, has_used, has_missed] = [1, NO_SETS, 0, 0].map(Flag::new);
    let [users, lane, everywhere] = core::array::from_fn(|_| AtomicCpuSet::new());
    Space { lacks, state, users, lane, everywhere, is_mapped, has_used, has_missed }
}

/// CPU 0 uses the space for the first time.
fn enter(space: &Space) {
    // ORDER: Acquire pairs with the Releases in `publish`.
    if space.state.load(Ordering::Acquire) >= JOINED {
        space.users.insert(0);
        space.lane.insert(0);
    } else if space.users.insert(0) {
        if space.lacks != Lacks::JoinersFence {
            // ORDER: pairs with the fence in `publish`.
            Loom::fence(Ordering::SeqCst);
        }
        // ORDER: as above.
        if space.state.load(Ordering::Acquire) >= JOINED {
            space.lane.insert(0);
        }
    }
    use_entry(space);
}

/// CPU 0, which is in its sets, uses an entry.
fn use_entry(space: &Space) {
    // ORDER: pairs with the fence in `take_away`.
    Loom::fence(Ordering::SeqCst);
    space.has_used.store(space.is_mapped.load(Ordering::Relaxed), Ordering::Relaxed);
}

fn publish(space: &Space) {
    // ORDER: Release pairs with the Acquires in `enter`.
    space.state.store(if space.lacks == Lacks::TwoSteps { WHOLE } else { JOINED }, Ordering::Release);
    if space.lacks != Lacks::PublishersFence {
        // ORDER: pairs with the fence in `enter`.
        Loom::fence(Ordering::SeqCst);
    }
    if space.lacks != Lacks::UsersNoted && space.users.contains(0) {
        space.everywhere.insert(0);
    }
    // ORDER: Release pairs with the Acquire in `take_away`.
    space.state.store(WHOLE, Ordering::Release);
}

fn take_away(space: &Space) {
    space.is_mapped.store(0, Ordering::Relaxed);
    // ORDER: pairs with the fence in `use_entry`.
    Loom::fence(Ordering::SeqCst);
    // ORDER: Acquire pairs with the Releases in `publish`.
    let is_asked = match space.state.load(Ordering::Acquire) {
        WHOLE => space.lane.contains(0) || space.everywhere.contains(0),
        _ => space.users.contains(0),
    };
    space.has_missed.store((!is_asked).into(), Ordering::Relaxed);
}

fn publish_and_take_away(space: &Space) {
    publish(space);
    take_away(space);
}

fn nobody_is_missed(space: &Space) {
    let outcome = [&space.has_used, &space.has_missed].map(|flag| flag.load(Ordering::Relaxed));
    assert_ne!(outcome, [1, 1], "used, and missed");
}

/// The publisher is the one who takes away.
fn two(lacks: Lacks) {
    race(None, move || space(lacks), [enter, publish_and_take_away], nobody_is_missed);
}

/// Somebody else takes away meanwhile.
fn three(lacks: Lacks) {
    race(Some(3), move || space(lacks), [enter, publish, take_away], nobody_is_missed);
}

/// CPU 0 has been among the users for long.
fn old_user(lacks: Lacks) {
    let setup = move || {
        let space = space(lacks);
        space.users.insert(0);
        space
    };
    race(Some(3), setup, [use_entry, publish, take_away], nobody_is_missed);
}

#[test]
fn sets_that_come_meanwhile_miss_nobody() {
    [two, three, old_user].into_iter().for_each(|model| model(Lacks::Nothing));
}

#[test]
#[should_panic(expected = "used, and missed")]
fn the_publishers_fence_is_needed() {
    two(Lacks::PublishersFence);
}

#[test]
#[should_panic(expected = "used, and missed")]
fn the_fence_of_who_comes_is_needed() {
    two(Lacks::JoinersFence);
}

#[test]
#[should_panic(expected = "used, and missed")]
fn users_of_before_are_noted() {
    old_user(Lacks::UsersNoted);
}

#[test]
#[should_panic(expected = "used, and missed")]
fn nobody_is_asked_by_sets_that_lack_the_users_of_before() {
    old_user(Lacks::TwoSteps);
}
