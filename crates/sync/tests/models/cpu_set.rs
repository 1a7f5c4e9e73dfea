//! The CPU set: whoever takes an entry away sees the CPU that still used it, given the fences of both; and sees one
//! that was taken out of the set and came back.

use crate::{Plain, race};
use faultless_platform::loom::Loom;
use faultless_platform::{Atomic, Ordering, Processor};
use faultless_sync::{AtomicCpuSet, Rcu, SpinMutex};

type Flag = <Loom as Processor>::AtomicU32;

struct Space {
    set: AtomicCpuSet<Loom>,
    is_mapped: Flag,
    has_used: Flag,
    has_missed: Flag,
}

fn space() -> Space {
    let [has_used, has_missed] = core::array::from_fn(|_| Flag::new(0));
    Space { set: AtomicCpuSet::new(), is_mapped: Flag::new(1), has_used, has_missed }
}

fn use_entry(space: &Space) {
    space.set.insert(0);
    // ORDER: pairs with the fence in `take_away`.
    Loom::fence(Ordering::SeqCst);
    space.has_used.store(space.is_mapped.load(Ordering::Relaxed), Ordering::Relaxed);
}

fn take_away(space: &Space) {
    space.is_mapped.store(0, Ordering::Relaxed);
    // ORDER: pairs with the fence in `use_entry`.
    Loom::fence(Ordering::SeqCst);
    space.has_missed.store((!space.set.contains(0)).into(), Ordering::Relaxed);
}

#[test]
pub fn nobody_uses_an_entry_unseen() {
    race(None, space, [use_entry, take_away], |space| {
        let outcome = [&space.has_used, &space.has_missed].map(|flag| flag.load(Ordering::Relaxed));
        assert_ne!(outcome, [1, 1], "used, and missed");
    });
}

/// A CPU that somebody takes out of the set, as `vm`'s `shootdown` does: an inbox beside the set.
struct Asked {
    space: Space,
    inbox: SpinMutex<Loom, bool>,
    is_guest: Flag,
    is_pending: Flag,
}

fn asked() -> Asked {
    let [is_guest, is_pending] = core::array::from_fn(|_| Flag::new(0));
    let space = space();
    space.set.insert(0);
    Asked { space, inbox: SpinMutex::new(false), is_guest, is_pending }
}

/// CPU 0 comes into guest, where it stays.
fn come_back(world: &Asked) {
    world.space.set.insert(0);
    world.is_guest.store(1, Ordering::Relaxed);
    // ORDER: pairs with the fences in `let_go`.
    Loom::fence(Ordering::SeqCst);
    if world.is_pending.load(Ordering::Relaxed) == 1 {
        *world.inbox.lock() = false;
        if world.space.set.insert(0) {
            // ORDER: pairs with the second fence in `let_go`.
            Loom::fence(Ordering::SeqCst);
        }
    }
    world.space.has_used.store(world.space.is_mapped.load(Ordering::Relaxed), Ordering::Relaxed);
}

/// CPU 1 asks CPU 0, takes it out of the set if it may, and then takes an entry away.
fn let_go(world: &Asked) {
    *world.inbox.lock() = true;
    world.is_pending.store(1, Ordering::Relaxed);
    // ORDER: pairs with the fence in `come_back`.
    Loom::fence(Ordering::SeqCst);
    if world.is_guest.load(Ordering::Relaxed) == 0 {
        let is_undrained = world.inbox.lock();
        if *is_undrained {
            world.space.set.remove(0);
        }
    }
    take_away(&world.space);
}

#[test]
pub fn a_cpu_that_was_let_go_comes_back_seen() {
    race(None, asked, [come_back, let_go], |world| {
        let outcome = [&world.space.has_used, &world.space.has_missed].map(|flag| flag.load(Ordering::Relaxed));
        assert_ne!(outcome, [1, 1], "used, and missed");
    });
}

/// A busy CPU that somebody takes out of the set between its sections, as `vm`'s `shootdown` does.
struct Busy {
    set: AtomicCpuSet<Loom>,
    rcu: Rcu<Loom>,
    leaves: Flag,
    page: Plain,
}

fn busy() -> Busy {
    let set = AtomicCpuSet::new();
    set.insert(0);
    Busy { set, rcu: Rcu::new(2), leaves: Flag::new(0), page: Plain::new() }
}

/// CPU 0 uses a page in a section, if it is in the set.
fn rely(world: &Busy) {
    let _section = world.rcu.read();
    // ORDER: pairs with the Release in `let_go_of_busy`.
    if world.leaves.load(Ordering::Acquire) == 0 && world.set.contains(0) {
        world.page.read();
    }
}

/// CPU 1 takes CPU 0 out of the set, if it is in no section, and then changes the page without a wait, if CPU 0 is out.
fn let_go_of_busy(world: &Busy) {
    world.leaves.store(1, Ordering::Relaxed);
    // ORDER: pairs with the fence that begins a section.
    Loom::fence(Ordering::SeqCst);
    if !world.rcu.is_cpu_reading(0) {
        world.set.remove(0);
    }
    // ORDER: Release pairs with the Acquire in `rely`.
    world.leaves.store(0, Ordering::Release);
    if !world.set.contains(0) {
        world.page.write(1);
    }
}

#[test]
pub fn a_busy_cpu_leaves_between_its_sections() {
    race(None, busy, [rely, let_go_of_busy], |_| ());
}

/// As `rely`, without a look whether the CPU leaves.
fn rely_unaware(world: &Busy) {
    let _section = world.rcu.read();
    if world.set.contains(0) {
        world.page.read();
    }
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_cpu_that_overlooks_its_leaving_is_missed() {
    race(None, busy, [rely_unaware, let_go_of_busy], |_| ());
}
