//! Threads that do nothing but take a semaphore: what each of them is worth by itself, on this machine or a simulated
//! one.
//!
//! # Guarantee
//! * I1 a rate is what all threads did between one instant, at which all were ready, and the end that was asked for; of
//!   the last sections the part that lies before it is not counted
//! * I2 a wait lasts from the call to its return, by the platform's clock, which is read twice for each section
//! * I3 which side a thread takes next is drawn by its own seed: the same in every run with that seed
//!
//! Threads beyond the CPUs take turns: a thread that has run for `SLICE_NS` while another waits for a CPU makes room.

use std::sync::{Mutex, PoisonError};

use faultless_linux::space::has_interrupt;
use faultless_machine::session::arms_in_parallel;
use faultless_machine::simulated::{MachineChoice, Spec, with_rerun};
use faultless_machine::watch::{self, Simulated};
use faultless_platform::native::{self, Native};
use faultless_platform::{CachePadded, Platform, Threads};
use faultless_results::stats::{Histogram, Random};
use faultless_sim::{Machine, isolate};
use faultless_sync::{Barrier, Parts, RwSemaphore, SemaphoreVisitor, with_semaphore};
use faultless_vm::registry::Unknown;

use crate::measure::{HostSite, MeasureError, NoSite, Pinning, Site};
use crate::spread::Draws;

/// How long a thread keeps a CPU that another waits for: a tick of a kernel's clock.
const SLICE_NS: u64 = 1_000_000;

/// How many places for readers a `+bravo` semaphore has for each CPU: as many as an instance gives its spaces'.
const PLACES_PER_CPU: usize = 4;

/// What the threads do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RwsemLoad {
    /// Of `readers + writers` sections so many are readers'.
    pub readers: u32,
    /// The other ones; not both are 0.
    pub writers: u32,
    /// How long the lock is held.
    pub section_ns: u64,
    /// How many threads there are for each CPU.
    pub threads_per_cpu: usize,
    /// How long they go on.
    pub duration_ns: u64,
}

/// A run to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RwsemArm {
    /// The semaphore.
    pub semaphore: String,
    /// CPUs.
    pub cpus: usize,
}

/// What came of a run.
#[derive(Clone, Debug, Default)]
pub struct Taken {
    /// Sections of all threads in a second.
    pub ops_per_s: f64,
    /// How long readers waited.
    pub read_waits: Histogram,
    /// How long writers waited.
    pub write_waits: Histogram,
}

impl Taken {
    fn add(&mut self, other: &Self) {
        self.ops_per_s += other.ops_per_s;
        self.read_waits.add(&other.read_waits);
        self.write_waits.add(&other.write_waits);
    }

    /// Returns what 999 of 1000 writers waited at most, in ns; none if nobody wrote.
    pub fn write_p999_ns(&self) -> Option<f64> {
        self.write_waits.percentile(999).map(|ns| ns as f64)
    }
}

/// Makes every arm's runs, under the seeds `seeds`; in the order of the arms, the runs of each beside each other.
///
/// With `draws`, each seed's runs are on a machine of its own, the arms' on the same.
///
/// On this machine one run after the other, round by round, so that no arm has the better hour. An interrupt ends it
/// with what there is.
pub fn run(
    machine: &MachineChoice,
    draws: Option<&Draws>,
    arms: &[RwsemArm],
    load: &RwsemLoad,
    seeds: std::ops::Range<u64>,
    jobs: usize,
    ended: impl FnMut(usize),
) -> Result<Vec<Vec<Taken>>, MeasureError> {
    let first = seeds.start;
    let spec = |seed: u64| match draws {
        Some(draws) => Some(draws.machine((seed - first) as usize)),
        None => machine.simulated().cloned(),
    };
    let one = |arm: usize, seed: u64| match spec(seed) {
        Some(spec) => once_simulated(&spec, &arms[arm], load, seed),
        None => once_natively(&arms[arm], load, seed),
    };
    let jobs = if machine.simulated().is_some() { jobs } else { 1 };
    arms_in_parallel(arms.len(), seeds, jobs, has_interrupt, one, ended)
}

fn once_simulated(spec: &Spec, arm: &RwsemArm, load: &RwsemLoad, seed: u64) -> Result<Taken, MeasureError> {
    let result = isolate(|| {
        let machine = Machine::new(spec, arm.cpus, seed).map_err(MeasureError::TooManyCpus)?;
        once::<Simulated>(&watch::Machine::unwatched(machine), &NoSite, arm, load, seed)
    });
    result.unwrap_or_else(|failure| Err(MeasureError::Simulation(with_rerun(failure, seed))))
}

fn once_natively(arm: &RwsemArm, load: &RwsemLoad, seed: u64) -> Result<Taken, MeasureError> {
    let site = HostSite::new(Pinning::IfEnough, arm.cpus);
    once::<Native>(&native::Machine::new(arm.cpus), &site, arm, load, seed)
}

fn once<P: Platform + Threads>(
    machine: &P::Machine,
    site: &dyn Site,
    arm: &RwsemArm,
    load: &RwsemLoad,
    seed: u64,
) -> Result<Taken, MeasureError> {
    let visitor = LoadOnSemaphore::<P> { machine, site, cpus: arm.cpus, load, seed };
    with_semaphore(&arm.semaphore, visitor).ok_or(MeasureError::Unknown(Unknown::Semaphore))
}

struct LoadOnSemaphore<'a, P: Threads> {
    machine: &'a P::Machine,
    site: &'a dyn Site,
    cpus: usize,
    load: &'a RwsemLoad,
    seed: u64,
}

impl<P: Platform + Threads> SemaphoreVisitor<P> for LoadOnSemaphore<'_, P> {
    type Output = Taken;

    fn visit<S: RwSemaphore<P>>(self, generation: S::Generation) -> Taken {
        let nr_threads = self.cpus * self.load.threads_per_cpu.max(1);
        // On a line of its own: where a lock lies on its line, and what else does, moved these rates by a factor of 2.
        let parts = Parts { stats: None, readers: S::reader_table(generation, PLACES_PER_CPU * self.cpus) };
        let lock = CachePadded::new(S::with_parts(generation, parts));
        let barrier = CachePadded::new(Barrier::<P>::new(nr_threads as u32));
        let all = Mutex::new(Taken::default());
        P::run(self.machine, nr_threads, &|thread| {
            self.site.settle(thread, nr_threads);
            P::enter();
            let random = Random::new(self.seed.wrapping_mul(0x9e37_79b9).wrapping_add(thread as u64));
            barrier.wait();
            let taken = take_again_and_again::<P, S>(&lock, self.load, random);
            P::leave();
            all.lock().unwrap_or_else(PoisonError::into_inner).add(&taken);
        });
        all.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

fn take_again_and_again<P: Platform, S: RwSemaphore<P>>(lock: &S, load: &RwsemLoad, mut random: Random) -> Taken {
    let (mut taken, mut ops) = (Taken::default(), 0_u64);
    let sides = load.readers as usize + load.writers as usize;
    let mut asked_ns = P::now();
    let (end_ns, mut slice_end_ns) = (asked_ns + load.duration_ns, asked_ns + SLICE_NS);
    while asked_ns < end_ns {
        let is_read = random.below(sides) < load.readers as usize;
        let waited_ns = if is_read { read::<P, S>(lock, load, asked_ns) } else { write::<P, S>(lock, load, asked_ns) };
        let waits = if is_read { &mut taken.read_waits } else { &mut taken.write_waits };
        waits.note(waited_ns);
        asked_ns = P::now();
        ops += u64::from(asked_ns <= end_ns);
        if asked_ns >= slice_end_ns {
            slice_end_ns = make_room::<P>() + SLICE_NS;
        }
    }
    taken.ops_per_s = ops as f64 * 1e9 / load.duration_ns as f64;
    taken
}

/// Shares the lock for a section; returns how long it was waited for.
fn read<P: Platform, S: RwSemaphore<P>>(lock: &S, load: &RwsemLoad, asked_ns: u64) -> u64 {
    let _share = lock.read();
    let waited_ns = P::now() - asked_ns;
    P::work(load.section_ns);
    waited_ns
}

/// Has the lock alone for a section; returns how long it was waited for.
fn write<P: Platform, S: RwSemaphore<P>>(lock: &S, load: &RwsemLoad, asked_ns: u64) -> u64 {
    let _alone = lock.write();
    let waited_ns = P::now() - asked_ns;
    P::work(load.section_ns);
    waited_ns
}

/// Lets a thread that waits for a CPU have ours; returns when we have one again.
fn make_room<P: Platform>() -> u64 {
    if P::should_yield() {
        P::leave();
        P::enter();
    }
    P::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOAD: RwsemLoad =
        RwsemLoad { readers: 1, writers: 1, section_ns: 100, threads_per_cpu: 2, duration_ns: 200_000 };

    fn arm(semaphore: &str, cpus: usize) -> RwsemArm {
        RwsemArm { semaphore: semaphore.into(), cpus }
    }

    #[test]
    fn every_semaphore_is_measured_and_the_same_seed_gives_the_same() {
        let machine = MachineChoice::Simulated(Box::new(Spec::preset("xeon-40").expect("a preset")));
        let arms: Vec<RwsemArm> = faultless_sync::SEMAPHORES.iter().map(|name| arm(name, 4)).collect();
        let rates = || -> Vec<f64> {
            let runs = run(&machine, None, &arms, &LOAD, 3..4, 2, |_| ()).expect("they can be run");
            runs.iter().map(|runs| runs[0].ops_per_s).collect()
        };
        let first = rates();
        assert!(first.iter().all(|&rate| rate > 1e4), "{first:?}");
        assert_eq!(first, rates());
    }

    #[test]
    fn sides_are_drawn_as_asked_for_and_waits_are_noted() {
        let only = |readers, writers| {
            let load = RwsemLoad { readers, writers, duration_ns: 2_000_000, ..LOAD };
            let runs =
                run(&MachineChoice::Native, None, &[arm("rwsem-v8", 2)], &load, 1..2, 1, |_| ()).expect("it runs");
            (runs[0][0].read_waits.total(), runs[0][0].write_waits.total(), runs[0][0].write_p999_ns().is_some())
        };
        assert!(matches!(only(1, 0), (1.., 0, false)) && matches!(only(0, 1), (0, 1.., true)));
        let error = run(&MachineChoice::Native, None, &[arm("rwsem-1999", 1)], &LOAD, 1..2, 1, |_| ());
        assert!(matches!(error, Err(MeasureError::Unknown(Unknown::Semaphore))));
    }
}
