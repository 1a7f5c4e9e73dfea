//! Each known bug, put back, is found by the tests' own programs; and without one nothing is.

mod stage;

use faultless_kmap::broken::{Broken, choose};
use faultless_kmap::registry::with_scheme;
use stage::{Play, Run};

/// Returns how many of so many orders found something wrong.
fn found(scheme: &str, nr_orders: u64, play: impl Fn(u64) -> Play) -> usize {
    (0..nr_orders).filter(|&seed| with_scheme(scheme, Run(play(seed))).expect("registered").is_err()).count()
}

fn crowded(seed: u64) -> Play {
    let mut play = Play::new(2, 1, seed);
    (play.shape.nr_cpus, play.shape.nr_frames) = (4, 8);
    play
}

fn wide(seed: u64) -> Play {
    let mut play = Play::new(4, 1, seed);
    (play.shape.nr_cpus, play.shape.nr_frames, play.rounds) = (3, 16, 8);
    play
}

/// A bug, the scheme that has it, and the program that finds it.
type Case<'a> = (Broken, &'a str, &'a dyn Fn(u64) -> Play);

/// One test: what is broken is so for the whole program.
#[test]
fn every_known_bug_is_found() {
    let nested = |seed| Play::new(2, 2, seed);
    let sharing = |seed| {
        let mut play = Play { threads_per_cpu: 3, ..nested(seed) };
        play.shape.nr_cpus = 1;
        play
    };
    let migrating = |seed| Play { threads_per_cpu: 3, ..nested(seed) };
    let bugs: [Case<'_>; 10] = [
        (Broken::NoFlush, "pool", &crowded),
        (Broken::OwnFlushOnly, "pool", &crowded),
        (Broken::OwnFlushOnly, "pool-invlpg", &crowded),
        (Broken::CountUnchecked, "pool", &crowded),
        (Broken::PinnedReused, "pool", &crowded),
        (Broken::TwoFlushes, "pool-lazy", &wide),
        (Broken::OneClass, "pool", &nested),
        (Broken::OneClass, "percpu-pinned", &Play::full_cpu),
        (Broken::KeptOverSwitch, "local", &sharing),
        (Broken::KeptOverMigration, "local", &migrating),
    ];
    for (broken, scheme, play) in bugs {
        // Few orders have two flushes in each other's way.
        let nr_orders = if broken == Broken::TwoFlushes { 1500 } else { 300 };
        choose(Broken::Nothing);
        assert_eq!(found(scheme, nr_orders, play), 0, "{scheme} as it is");
        choose(broken);
        let nr_found = found(scheme, nr_orders, play);
        println!("{broken:?} under {scheme}: {nr_found} of {nr_orders} orders");
        assert!(nr_found > 0, "{broken:?} is not found under {scheme}");
    }
}
