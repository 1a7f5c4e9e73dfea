//! Every scheme under random orders of every access: an access through a map reaches its frame, and nobody waits for
//! ever.

mod stage;

use faultless_kmap::registry::{SCHEMES, with_scheme};
use stage::{Play, Run};

#[test]
fn an_access_reaches_its_frame_under_every_scheme_and_order() {
    for name in SCHEMES {
        let mut flushes = 0;
        for seed in 0..300 {
            let mut play = Play::new(2, 2, seed);
            play.shape.is_metered = seed % 2 == 1;
            let result = with_scheme(name, Run(play)).expect("registered");
            flushes += result.unwrap_or_else(|wrong| panic!("{name}, seed {seed}: {wrong}"));
        }
        let is_pool = name.starts_with("pool") && *name != "pool-invlpg" || *name == "per-process";
        assert_eq!(flushes > 0, is_pool, "{name} flushed {flushes} times");
    }
}

#[test]
fn a_full_pool_is_waited_for() {
    for name in ["pool", "pool-halves", "pool-lazy", "pool-invlpg", "per-process"] {
        for seed in 0..300 {
            let mut play = Play::new(2, 1, seed);
            play.shape.nr_cpus = 4;
            play.shape.nr_frames = 8;
            let result = with_scheme(name, Run(play)).expect("registered");
            result.unwrap_or_else(|wrong| panic!("{name}, seed {seed}: {wrong}"));
        }
    }
}

#[test]
fn maps_of_a_cpu_s_own_survive_other_tasks_there() {
    for name in ["local", "percpu-pinned"] {
        for (seed, nr_cpus) in (0..300).flat_map(|seed| [(seed, 1), (seed, 2)]) {
            let mut play = Play { threads_per_cpu: 3, ..Play::new(2, 2, seed) };
            play.shape.nr_cpus = nr_cpus;
            let result = with_scheme(name, Run(play)).expect("registered");
            result.unwrap_or_else(|wrong| panic!("{name}, {nr_cpus} CPUs, seed {seed}: {wrong}"));
        }
    }
}

#[test]
fn tasks_that_hold_all_slots_of_a_cpu_do_not_wait_for_each_other() {
    for seed in 0..100 {
        let result = with_scheme("percpu-pinned", Run(Play::full_cpu(seed))).expect("registered");
        result.unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
    }
}
