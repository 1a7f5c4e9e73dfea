//! Every scheme under random orders of every access: an access through a map reaches its frame, and nobody waits for
//! ever.

mod stage;

use faultless_kmap::registry::{SCHEMES, SchemeVisitor, with_scheme};
use faultless_kmap::{KernelMaps, Scheme, Shape, Task};
use faultless_platform::Processor;
use faultless_platform::native::{Machine, Native};
use stage::{Play, Run};
use std::sync::mpsc::channel;
use std::time::Duration;

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

/// Tasks of one CPU hold a map each, of four slots. Two that were passed by while they were held are released: whoever
/// comes next gets one of them.
struct PassedBy;

impl SchemeVisitor<Native> for PassedBy {
    type Output = u64;

    fn visit<S: Scheme<Native>>(self) -> u64 {
        let maps = KernelMaps::<Native, S>::new(&Shape { nr_cpus: 1, nr_frames: 16, nr_slots: 4, ..Shape::default() });
        let tasks = [(); 6].map(|()| Task::new(0, Native::cpu()));
        (0..4).for_each(|task| maps.hold(&tasks[task], task as u32));
        [1, 2].into_iter().for_each(|task| maps.release(&tasks[task], task as u32));
        [4, 5].into_iter().for_each(|task| maps.hold(&tasks[task], task as u32));
        [0, 3, 4, 5].into_iter().for_each(|task| maps.release(&tasks[task], task as u32));
        maps.counters().sleeps.sum()
    }
}

#[test]
fn nobody_waits_beside_a_free_slot() {
    for name in SCHEMES.iter().filter(|name| name.starts_with("pool") || **name == "per-process") {
        let (sender, receiver) = channel();
        std::thread::spawn(move || {
            sender.send(Machine::new(1).attach(|| with_scheme(name, PassedBy).expect("registered")))
        });
        let nr_sleeps = receiver.recv_timeout(Duration::from_secs(30));
        assert_eq!(nr_sleeps, Ok(0), "{name}");
    }
}
