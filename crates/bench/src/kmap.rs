//! Threads that do nothing but map frames, look at them and unmap them, on a simulated machine.
//!
//! # Guarantee
//! * I1 a rate is what all threads did between one instant, at which all were ready and warm, and the end that was
//!   asked for
//! * I2 each access through a map is checked: it reaches the frame that was mapped
//! * I3 which frames a thread takes is drawn by its own seed: the same in every run with that seed
//!
//! On this machine there is nothing to measure: its kernel has maps of its own, which no program can set.

use std::sync::{Arc, Mutex, PoisonError};

use faultless_kmap::registry::{SchemeVisitor, with_scheme};
use faultless_kmap::{Costs, KernelMaps, Mapped, Scheme, Shape, Task};
use faultless_linux::space::has_interrupt;
use faultless_machine::simulated::{Spec, in_parallel, with_rerun};
use faultless_machine::watch::{self, All, Simulated};
use faultless_platform::watched::Sink;
use faultless_platform::{Platform, Threads};
use faultless_results::stats::Random;
use faultless_sim::{Machine, isolate};
use faultless_sync::Barrier;

use crate::measure::MeasureError;

/// What each thread does, again and again: it maps `nest` frames, looks at each, holds them, and unmaps them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Frames to choose from.
    pub frames: usize,
    /// How long the innermost map is held.
    pub hold_ns: u64,
    /// Maps held at a time.
    pub nest: usize,
    /// Of 100 maps so many are of the frame that the thread mapped last at that depth.
    pub reuse_percent: usize,
    /// Slots of a pool.
    pub slots: usize,
    /// Whether each thread is a process of its own.
    pub processes: bool,
    /// What the hardware's part costs.
    pub costs: Costs,
    /// How long they go on, after as long a warm-up.
    pub duration_ns: u64,
}

/// A run to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arm {
    /// The scheme.
    pub scheme: String,
    /// CPUs, and threads.
    pub cpus: usize,
}

/// What came of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Mapping {
    /// Maps of all threads in a second.
    pub ops_per_s: f64,
    /// Maps, the warm-up's too; the figures below are shares of these.
    pub maps: u64,
    /// Maps that found their frame mapped.
    pub hits: u64,
    /// Flushes of several CPUs' translations.
    pub flushes: u64,
    /// CPUs interrupted for one.
    pub interrupts: u64,
    /// Waits for a slot, asleep.
    pub sleeps: u64,
}

/// Makes every arm's runs, under the seeds `seeds`; in the order of the arms. An interrupt ends it with what there is.
pub fn run(
    spec: &Spec,
    arms: &[Arm],
    load: &Load,
    seeds: std::ops::Range<u64>,
    jobs: usize,
    mut ended: impl FnMut(usize),
) -> Result<Vec<Vec<Mapping>>, MeasureError> {
    let tasks: Vec<(usize, u64)> = seeds.flat_map(|seed| (0..arms.len()).map(move |arm| (arm, seed))).collect();
    let one = |&(arm, seed): &(usize, u64)| match has_interrupt() {
        true => Ok(None),
        false => once(spec, &arms[arm], load, seed, Vec::new()).map(Some),
    };
    let runs = in_parallel(jobs, &tasks, one, |done, _| ended(done));
    let mut made = vec![Vec::new(); arms.len()];
    for (run, (arm, _)) in runs.into_iter().zip(tasks) {
        made[arm].extend(run?);
    }
    Ok(made)
}

/// Makes one run, and tells `sinks` what happens after its warm-up.
pub fn once(
    spec: &Spec,
    arm: &Arm,
    load: &Load,
    seed: u64,
    sinks: Vec<Arc<dyn Sink>>,
) -> Result<Mapping, MeasureError> {
    let result = isolate(|| {
        let machine = Machine::new(spec, arm.cpus, seed).map_err(MeasureError::TooManyCpus)?;
        let machine = watch::Machine::new(machine, Arc::new(All(sinks)));
        let visitor = Visitor::<Simulated> { machine: &machine, cpus: arm.cpus, load, seed };
        Ok(with_scheme(&arm.scheme, visitor).unwrap_or_default())
    });
    result.unwrap_or_else(|failure| Err(MeasureError::Simulation(with_rerun(failure, seed))))
}

struct Visitor<'a, P: Threads> {
    machine: &'a P::Machine,
    cpus: usize,
    load: &'a Load,
    seed: u64,
}

impl<P: Platform + Threads> SchemeVisitor<P> for Visitor<'_, P> {
    type Output = Mapping;

    fn visit<S: Scheme<P>>(self) -> Mapping {
        let Self { machine, cpus, load, seed } = self;
        let nr_processes = if load.processes { cpus } else { 1 };
        let shape =
            Shape { nr_cpus: cpus, nr_frames: load.frames, nr_slots: load.slots, nr_processes, costs: load.costs };
        let (ready, done) = (Barrier::<P>::new(cpus as u32), Barrier::<P>::new(cpus as u32));
        let (maps, all) = (Mutex::new(None), Mutex::new(Mapping::default()));
        P::run(machine, 1, &|_| {
            P::enter();
            *lock(&maps) = Some(KernelMaps::<P, S>::new(&shape));
            P::leave();
        });
        let maps = lock(&maps).take().unwrap_or_else(|| unreachable!("made by the thread before"));
        P::run(machine, cpus, &|thread| {
            P::enter();
            let task = Task::new(if load.processes { thread } else { 0 }, P::cpu());
            let random = Random::new(seed.wrapping_mul(0x9e37_79b9).wrapping_add(thread as u64));
            let mut mapper = Mapper { maps: &maps, task: &task, load, random, last: [0; faultless_kmap::NEST_MOST] };
            ready.wait();
            mapper.go_on(P::now() + load.duration_ns);
            ready.wait();
            if thread == 0 {
                watch::begin::<P>();
            }
            ready.wait();
            let nr_rounds = mapper.go_on(P::now() + load.duration_ns);
            done.wait();
            if thread == 0 {
                watch::end::<P>();
            }
            P::leave();
            lock(&all).ops_per_s += (nr_rounds * load.nest as u64) as f64 * 1e9 / load.duration_ns as f64;
        });
        let rate = lock(&all).ops_per_s;
        let (counters, windows) = (maps.counters(), maps.windows());
        let counted = Mapping {
            ops_per_s: rate,
            maps: counters.maps.sum(),
            hits: counters.hits.sum(),
            flushes: windows.nr_flushes(),
            interrupts: windows.nr_interrupts(),
            sleeps: counters.sleeps.sum(),
        };
        let maps = Mutex::new(Some(maps));
        P::run(machine, 1, &|_| {
            P::enter();
            drop(lock(&maps).take());
            P::leave();
        });
        counted
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One thread.
struct Mapper<'a, P: Platform, S: Scheme<P>> {
    maps: &'a KernelMaps<P, S>,
    task: &'a Task,
    load: &'a Load,
    random: Random,
    /// The last frame at each depth.
    last: [u32; faultless_kmap::NEST_MOST],
}

impl<P: Platform, S: Scheme<P>> Mapper<'_, P, S> {
    /// Maps and unmaps until an instant; returns how often.
    fn go_on(&mut self, end_ns: u64) -> u64 {
        let mut rounds = 0;
        while P::now() < end_ns {
            self.draw();
            nest(self.maps, self.task, &self.last[..self.load.nest], self.load.hold_ns);
            rounds += 1;
        }
        rounds
    }

    /// Draws the frames of a round.
    fn draw(&mut self) {
        for depth in 0..self.load.nest {
            if self.random.below(100) >= self.load.reuse_percent {
                self.last[depth] = self.random.below(self.load.frames) as u32;
            }
        }
    }
}

/// Holds a map of each frame, one inside the other.
fn nest<P: Platform, S: Scheme<P>>(maps: &KernelMaps<P, S>, task: &Task, frames: &[u32], hold_ns: u64) {
    let Some((&frame, inner)) = frames.split_first() else { return P::work(hold_ns) };
    let page: Mapped<'_, P, S> = maps.map(task, frame);
    assert_eq!(page.touch(), frame, "{} reached another frame", S::NAME);
    nest(maps, task, inner, hold_ns);
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultless_kmap::registry::SCHEMES;

    const LOAD: Load = Load {
        frames: 300,
        hold_ns: 200,
        nest: 2,
        reuse_percent: 50,
        slots: 64,
        processes: false,
        costs: Costs { walk_ns: 30, flush_ns: 600, flush_slot_ns: 150 },
        duration_ns: 1_000_000,
    };

    #[test]
    fn every_scheme_is_measured_and_the_same_seed_gives_the_same() {
        let spec = Spec::preset("numaq-16").expect("a preset");
        let arms: Vec<Arm> = SCHEMES.iter().map(|&scheme| Arm { scheme: scheme.into(), cpus: 4 }).collect();
        let made = || run(&spec, &arms, &LOAD, 3..4, 2, |_| ()).expect("they can be run");
        let first = made();
        for (arm, runs) in arms.iter().zip(&first) {
            let Mapping { ops_per_s, maps, hits, flushes, interrupts, .. } = runs[0];
            assert!(ops_per_s > 1e4 && maps > 100, "{}: {:?}", arm.scheme, runs[0]);
            let is_own = ["atomic", "percpu-pinned", "local"].contains(&arm.scheme.as_str());
            assert_eq!((flushes == 0 && interrupts == 0, hits == 0), (is_own, is_own && arm.scheme != "percpu-pinned"));
        }
        assert_eq!(first, made());
    }

    #[test]
    fn a_pool_that_is_too_small_is_waited_for() {
        let spec = Spec::preset("numaq-16").expect("a preset");
        let arm = Arm { scheme: "pool".into(), cpus: 4 };
        let load = Load { slots: 2, nest: 1, ..LOAD };
        let runs = run(&spec, &[arm], &load, 1..2, 1, |_| ()).expect("it runs");
        assert!(runs[0][0].sleeps > 0, "{:?}", runs[0][0]);
    }
}
