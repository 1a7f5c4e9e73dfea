//! The CPU set: whoever takes an entry away sees the CPU that still used it, given the fences of both.

use crate::race;
use faultless_platform::loom::Loom;
use faultless_platform::{Atomic, Ordering, Processor};
use faultless_sync::AtomicCpuSet;

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
