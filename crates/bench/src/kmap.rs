//! Threads that do nothing but map frames, look at them and unmap them, on a simulated machine.
//!
//! # Guarantee
//! * I1 a rate is what all threads did between one instant, at which all were ready and warm, and the end that was
//!   asked for
//! * I2 each access through a map is checked: it reaches the frame that was mapped
//! * I3 which frames a thread takes is drawn by its own seed: the same in every run with that seed
//!
//! On this machine there is nothing to measure: its kernel has maps of its own, which no program can set.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use faultless_kmap::registry::{SchemeVisitor, with_scheme};
use faultless_kmap::{Costs, KernelMaps, Mapped, Scheme, Shape, Task};
use faultless_linux::space::has_interrupt;
use faultless_machine::host_frames::alone;
use faultless_machine::session::arms_in_parallel;
use faultless_machine::simulated::{Spec, with_rerun};
use faultless_machine::watch::{self, All, Simulated};
use faultless_platform::native::{HostRegion, ReserveError};
use faultless_platform::watched::Sink;
use faultless_platform::{Bulk, IrqOffGuard, PAGE_BYTES, Platform, Threads};
use faultless_results::stats::Random;
use faultless_sim::{Machine, isolate};
use faultless_sync::Barrier;
use serde_json::{Map, Value};

use crate::measure::MeasureError;
use crate::spread::Draws;

/// What each thread does, again and again: it maps `nest` frames, looks at each, holds them, and unmaps them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KmapLoad {
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
    /// Whether the first frame of each round is copied into the second, both being mapped.
    pub copies: bool,
    /// Threads beside those that are measured, which hold as many maps while they sleep.
    pub sleepers: usize,
    /// How long they sleep, each time with maps and then without.
    pub sleep_ns: u64,
    /// Whether each thread is a process of its own.
    pub processes: bool,
    /// What the hardware's part costs.
    pub costs: Costs,
    /// How long they go on, after as long a warm-up.
    pub duration_ns: u64,
}

impl KmapLoad {
    /// Returns the flags of `bench kmap` that ask for it under a scheme.
    pub fn params(&self, scheme: &str) -> Map<String, Value> {
        let numbers = [
            ("frames", self.frames as u64),
            ("hold_ns", self.hold_ns),
            ("nest", self.nest as u64),
            ("reuse", self.reuse_percent as u64),
            ("sleepers", self.sleepers as u64),
            ("sleep_ns", self.sleep_ns),
            ("slots", self.slots as u64),
        ];
        let numbers = numbers.map(|(name, number)| (name.to_owned(), number.into()));
        let rest = [("scheme".to_owned(), scheme.into()), ("copy".to_owned(), self.copies.into())];
        numbers.into_iter().chain(rest).collect()
    }
}

/// A run to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KmapArm {
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

/// Makes every arm's runs, under the seeds `seeds`, each on a machine of its own draw if there are draws; in the order
/// of the arms. An interrupt ends it with what there is.
pub fn run(
    spec: &Spec,
    draws: Option<&Draws>,
    arms: &[KmapArm],
    load: &KmapLoad,
    seeds: std::ops::Range<u64>,
    jobs: usize,
    ended: impl FnMut(usize),
) -> Result<Vec<Vec<Mapping>>, MeasureError> {
    let first = seeds.start;
    let one = |arm: usize, seed: u64| {
        let drawn = draws.map(|draws| draws.machine((seed - first) as usize));
        once(drawn.as_ref().unwrap_or(spec), &arms[arm], load, seed, Vec::new())
    };
    arms_in_parallel(arms.len(), seeds, jobs, has_interrupt, one, ended)
}

/// Makes one run, and tells `sinks` what happens after its warm-up.
pub fn once(
    spec: &Spec,
    arm: &KmapArm,
    load: &KmapLoad,
    seed: u64,
    sinks: Vec<Arc<dyn Sink>>,
) -> Result<Mapping, MeasureError> {
    let result = isolate(|| {
        let machine = Machine::new(spec, arm.cpus, seed).map_err(MeasureError::TooManyCpus)?;
        let machine = watch::Machine::new(machine, Arc::new(All(sinks)));
        let visitor = LoadOnScheme::<Simulated> { machine: &machine, cpus: arm.cpus, load, seed };
        let unknown = || Err(MeasureError::Message(format!("there is no scheme {}", arm.scheme)));
        with_scheme(&arm.scheme, visitor).unwrap_or_else(unknown)
    });
    result.unwrap_or_else(|failure| Err(MeasureError::Simulation(with_rerun(failure, seed))))
}

struct LoadOnScheme<'a, P: Threads> {
    machine: &'a P::Machine,
    cpus: usize,
    load: &'a KmapLoad,
    seed: u64,
}

impl<P: Platform + Threads> SchemeVisitor<P> for LoadOnScheme<'_, P> {
    type Output = Result<Mapping, MeasureError>;

    fn visit<S: Scheme<P>>(self) -> Self::Output {
        let Self { machine, cpus, load, .. } = self;
        if load.sleepers > 0 && !S::MAY_SLEEP {
            let why = format!("under {} nobody sleeps while holding a map: leave --sleepers out", S::NAME);
            return Err(MeasureError::Message(why));
        }
        let nr_processes = if load.processes { cpus + load.sleepers } else { 1 };
        let pages = MappedFrames::reserve::<P>(machine, if load.copies { load.frames } else { 0 })?;
        let shape = Shape {
            nr_cpus: cpus,
            nr_frames: load.frames,
            nr_slots: load.slots,
            nr_processes,
            costs: load.costs,
            is_metered: false,
        };
        let maps = alone::<P, _>(machine, || KernelMaps::<P, S>::new(&shape));
        let ops_per_s = self.map_for_a_while(&maps, &pages);
        let (counters, windows) = (maps.counters(), maps.windows());
        let counted = Mapping {
            ops_per_s,
            maps: counters.maps.sum(),
            hits: counters.hits.sum(),
            flushes: windows.nr_flushes(),
            interrupts: windows.nr_interrupts(),
            sleeps: counters.sleeps.sum(),
        };
        alone::<P, _>(machine, || drop(maps));
        Ok(counted)
    }
}

impl<P: Platform + Threads> LoadOnScheme<'_, P> {
    /// Lets all threads map, and returns the rate of those that are measured (I1).
    fn map_for_a_while<S: Scheme<P>>(&self, maps: &KernelMaps<P, S>, pages: &MappedFrames) -> f64 {
        let &Self { machine, cpus, load, seed } = self;
        let (ready, done) = (Barrier::<P>::new(cpus as u32), Barrier::<P>::new(cpus as u32));
        let (end_ns, all) = (AtomicU64::new(u64::MAX), Mutex::new(0.0));
        P::run(machine, cpus + load.sleepers, &|thread| {
            P::enter();
            let task = &Task::new(if load.processes { thread } else { 0 }, P::cpu());
            if thread >= cpus {
                sleep_with_maps(maps, task, load, thread - cpus, &end_ns);
                return P::leave();
            }
            let random = Random::new(seed.wrapping_mul(0x9e37_79b9).wrapping_add(thread as u64));
            let mut mapper = Mapper { maps, task, load, pages, random, last: [0; faultless_kmap::NEST_MOST] };
            ready.wait();
            mapper.go_on(P::now() + load.duration_ns);
            ready.wait();
            if thread == 0 {
                watch::begin::<P>();
            }
            ready.wait();
            let end = P::now() + load.duration_ns;
            let nr_rounds = mapper.go_on(end);
            // Relaxed: a hint to those who sleep.
            end_ns.store(end, Ordering::Relaxed);
            done.wait();
            if thread == 0 {
                watch::end::<P>();
            }
            P::leave();
            *lock(&all) += (nr_rounds * load.nest as u64) as f64 * 1e9 / load.duration_ns as f64;
        });
        all.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One thread.
struct Mapper<'a, P: Platform, S: Scheme<P>> {
    maps: &'a KernelMaps<P, S>,
    task: &'a Task,
    load: &'a KmapLoad,
    pages: &'a MappedFrames,
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
            let frames = &self.last[..self.load.nest];
            nest(self.maps, self.task, frames, &mut || {
                if self.load.copies {
                    self.pages.copy::<P>(frames[0], frames[1]);
                }
                // Whoever holds a map of a CPU's own is not preempted, so that nobody need take it off and on again.
                let _on_cpu = S::IS_OWN.then(IrqOffGuard::<P>::new);
                P::work(self.load.hold_ns);
            });
            rounds += 1;
            if P::should_yield() {
                P::leave();
                P::enter();
            }
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
        if self.load.copies && self.last[0] == self.last[1] {
            self.last[1] = (self.last[0] + 1) % self.load.frames as u32;
        }
    }
}

/// Holds a map of each frame, one inside the other, around `act`.
fn nest<P: Platform, S: Scheme<P>>(maps: &KernelMaps<P, S>, task: &Task, frames: &[u32], act: &mut dyn FnMut()) {
    let Some((&frame, inner)) = frames.split_first() else { return act() };
    let page: Mapped<'_, P, S> = maps.map(task, frame);
    assert_eq!(page.touch(), frame, "{} reached another frame", S::NAME);
    nest(maps, task, inner, act);
}

/// Sleeps again and again until the end: with maps of frames that no other sleeper has, and as long without.
fn sleep_with_maps<P: Platform, S: Scheme<P>>(
    maps: &KernelMaps<P, S>,
    task: &Task,
    load: &KmapLoad,
    number: usize,
    end_ns: &AtomicU64,
) {
    let frames: Vec<u32> = (0..load.nest).map(|depth| ((number * load.nest + depth) % load.frames) as u32).collect();
    // Relaxed: a hint; whoever sleeps looks again.
    while P::now() < end_ns.load(Ordering::Relaxed) {
        nest(maps, task, &frames, &mut || {
            maps.suspend(task);
            sleep::<P>(load.sleep_ns);
            maps.come_back(task);
            maps.resume(task);
        });
        // Who maps the same frame again at once finds its slot before anybody wakes up that waits for one, for ever.
        sleep::<P>(load.sleep_ns);
    }
}

/// Gives the CPU up for so long. (A wait with a deadline may spin.)
fn sleep<P: Platform>(ns: u64) {
    P::leave();
    P::work(ns);
    P::enter();
}

/// The frames' own memory, for those who copy.
struct MappedFrames {
    region: Option<HostRegion>,
}

impl MappedFrames {
    /// Reserves so many frames, and puts an equal share on each of the machine's NUMA nodes.
    fn reserve<P: Threads>(machine: &P::Machine, nr_frames: usize) -> Result<Self, MeasureError> {
        if nr_frames == 0 {
            return Ok(Self { region: None });
        }
        let failed = |error: ReserveError| MeasureError::Message(error.to_string());
        let region = HostRegion::reserve(nr_frames * PAGE_BYTES).map_err(failed)?;
        let nr_nodes = P::nodes(machine).len();
        let share = nr_frames.div_ceil(nr_nodes) * PAGE_BYTES;
        for node in 0..nr_nodes {
            let bytes = (node * share).min(region.len_bytes())..((node + 1) * share).min(region.len_bytes());
            P::place(machine, node, region.base().as_ptr().wrapping_add(bytes.start), bytes.len());
        }
        Ok(Self { region: Some(region) })
    }

    /// Copies a frame into another one.
    #[allow(unsafe_code, reason = "whole frames are copied by their addresses")]
    fn copy<P: Platform>(&self, from: u32, to: u32) {
        let Some(region) = &self.region else { return };
        let frame = |number: u32| region.base().as_ptr().wrapping_add(number as usize * PAGE_BYTES);
        assert_ne!(from, to, "a frame is copied into another one");
        // SAFETY: both frames lie in the region, apart; threads of a simulated machine are one of the host's, which
        // switches between them outside the copy alone.
        unsafe { P::bulk(frame(to), Bulk::CopyFrom(frame(from))) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultless_kmap::registry::SCHEMES;

    const LOAD: KmapLoad = KmapLoad {
        frames: 300,
        hold_ns: 200,
        nest: 2,
        reuse_percent: 50,
        slots: 64,
        copies: false,
        sleepers: 0,
        sleep_ns: 0,
        processes: false,
        costs: Costs { walk_ns: 30, flush_ns: 600, flush_slot_ns: 150 },
        duration_ns: 1_000_000,
    };

    #[test]
    fn every_scheme_is_measured_and_the_same_seed_gives_the_same() {
        let spec = Spec::preset("numaq-16").expect("a preset");
        let arms: Vec<KmapArm> = SCHEMES.iter().map(|&scheme| KmapArm { scheme: scheme.into(), cpus: 4 }).collect();
        let made = || run(&spec, None, &arms, &LOAD, 3..4, 2, |_| ()).expect("they can be run");
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
        let arm = KmapArm { scheme: "pool".into(), cpus: 4 };
        let load = KmapLoad { slots: 2, nest: 1, ..LOAD };
        let runs = run(&spec, None, &[arm], &load, 1..2, 1, |_| ()).expect("it runs");
        assert!(runs[0][0].sleeps > 0, "{:?}", runs[0][0]);
    }

    #[test]
    fn sleepers_that_hold_all_slots_are_waited_for_and_schemes_that_forbid_it_say_so() {
        let spec = Spec::preset("numaq-16").expect("a preset");
        let made = |scheme: &str, sleepers| {
            let load = KmapLoad { nest: 1, slots: 64, sleepers, sleep_ns: 100_000, ..LOAD };
            once(&spec, &KmapArm { scheme: scheme.into(), cpus: 2 }, &load, 1, Vec::new())
        };
        let (few, full) = (made("pool", 2).expect("it runs"), made("pool", 192).expect("it runs"));
        assert!(few.sleeps == 0 && full.sleeps > 0, "{few:?} {full:?}");
        assert!(full.ops_per_s < few.ops_per_s, "{few:?} {full:?}");
        for scheme in ["local", "percpu-pinned", "per-process"] {
            assert!(made(scheme, 2).expect("it runs").ops_per_s > 1e4, "{scheme}");
        }
        assert!(matches!(made("atomic", 2), Err(MeasureError::Message(why)) if why.contains("atomic")));
    }

    /// The rate of all CPUs beside what is linear by arithmetic.
    fn of_linear(machine: &str, scheme: &str, cpus: usize) -> f64 {
        let spec = Spec::preset(machine).expect("a preset");
        let load = KmapLoad { nest: 1, reuse_percent: 0, slots: 128, duration_ns: 200_000, ..LOAD };
        let rate = |cpus| {
            let arm = KmapArm { scheme: scheme.into(), cpus };
            once(&spec, &arm, &load, 1, Vec::new()).expect("it runs").ops_per_s
        };
        rate(cpus) / (rate(1) * spec.linear_factor(cpus))
    }

    #[test]
    fn maps_of_a_cpu_s_own_are_linear_and_a_pool_s_are_not() {
        for (machine, cpus) in [("numaq-16", 16), ("skylake-192", 192)] {
            for scheme in ["local", "percpu-pinned"] {
                let reached = of_linear(machine, scheme, cpus);
                assert!(reached >= 0.9, "{scheme} on {cpus} CPUs of {machine}: {reached} of linear");
            }
            let reached = of_linear(machine, "pool", cpus);
            assert!(reached < 0.1, "pool on {cpus} CPUs of {machine}: {reached} of linear");
        }
    }

    #[test]
    fn a_copy_takes_two_maps_and_the_time_of_a_page() {
        let spec = Spec::preset("numaq-16").expect("a preset");
        let arm = KmapArm { scheme: "local".into(), cpus: 1 };
        let plain = once(&spec, &arm, &LOAD, 1, Vec::new()).expect("it runs");
        let copies = once(&spec, &arm, &KmapLoad { copies: true, ..LOAD }, 1, Vec::new()).expect("it runs");
        assert!(copies.ops_per_s * 2.0 < plain.ops_per_s, "{plain:?} {copies:?}");
    }
}
