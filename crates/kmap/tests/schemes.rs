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
            let result = with_scheme(name, Run(Play::new(2, 2, seed))).expect("registered");
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
fn local_maps_survive_other_tasks_on_their_cpu() {
    for seed in 0..300 {
        // One CPU: no platform keeps a thread on its CPU while it waits for one.
        let mut play = Play { threads_per_cpu: 3, ..Play::new(2, 2, seed) };
        play.shape.nr_cpus = 1;
        let result = with_scheme("local", Run(play)).expect("registered");
        result.unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
    }
}
