//! Two and more CPUs that map frames in each other's way, on a machine that draws who goes on.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use faultless_explore::{Explore, Machine, Policy};
use faultless_kmap::audit::Holders;
use faultless_kmap::registry::SchemeVisitor;
use faultless_kmap::{Costs, KernelMaps, Scheme, Shape, Task};
use faultless_platform::Processor;

/// What the tasks of a run do.
#[derive(Clone, Copy)]
pub struct Play {
    pub shape: Shape,
    pub rounds: u32,
    pub nest: usize,
    pub seed: u64,
    /// Threads for each CPU, which take turns while they hold maps.
    pub threads_per_cpu: usize,
    /// How far apart the frames of threads lie.
    pub stride: u32,
}

impl Play {
    /// Two CPUs that map frames of a few, one in another's way.
    pub fn new(nr_slots: usize, nest: usize, seed: u64) -> Self {
        let costs = Costs { walk_ns: 0, flush_ns: 0, flush_slot_ns: 0 };
        Self {
            shape: Shape { nr_cpus: 2, nr_frames: 4, nr_slots, nr_processes: 1, costs, is_metered: false },
            rounds: 4,
            nest,
            seed,
            threads_per_cpu: 1,
            stride: 1,
        }
    }

    /// More tasks on one CPU than its sixteen slots can serve at a time: each holds four.
    pub fn full_cpu(seed: u64) -> Self {
        let mut play = Self { threads_per_cpu: 8, stride: 8, rounds: 2, ..Self::new(2, 4, seed) };
        (play.shape.nr_cpus, play.shape.nr_frames) = (1, 128);
        play
    }
}

/// Who holds which slot, and the first thing that was wrong with it: a slot leads to one frame, and nobody releases
/// what is free.
#[derive(Default)]
struct Held {
    slots: Mutex<HashMap<u32, (u32, u32)>>,
    wrong: Mutex<Option<String>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Held {
    fn nr_holders(&self, slot: u32) -> u32 {
        lock(&self.slots).get(&slot).map_or(0, |&(_, nr_holders)| nr_holders)
    }

    fn note(&self, wrong: String) {
        lock(&self.wrong).get_or_insert(wrong);
    }
}

impl Holders for Held {
    fn hold(&self, slot: u32, pfn: u32) {
        let mut slots = lock(&self.slots);
        let (frame, nr_holders) = slots.entry(slot).or_insert((pfn, 0));
        if *frame != pfn {
            self.note(format!("slot {slot} is held for frame {frame}, and given to {pfn}"));
        }
        *nr_holders += 1;
    }

    fn release(&self, slot: u32) {
        let mut slots = lock(&self.slots);
        match slots.get_mut(&slot) {
            None => self.note(format!("slot {slot} is free, and was held")),
            Some((_, 1)) => drop(slots.remove(&slot)),
            Some((_, nr_holders)) => *nr_holders -= 1,
        }
    }
}

/// Maps and touches on every CPU; what goes wrong is the outcome.
pub struct Run(pub Play);

impl SchemeVisitor<Explore> for Run {
    type Output = Result<u64, String>;

    fn visit<S: Scheme<Explore>>(self) -> Self::Output {
        let Play { shape, rounds, nest, seed, threads_per_cpu, stride } = self.0;
        let machine = Machine::new(shape.nr_cpus);
        let made = Mutex::new(None);
        let held = Arc::new(Held::default());
        let new = || KernelMaps::<Explore, S>::with_holders(&shape, Some(held.clone()));
        alone(&machine, || *made.lock().unwrap() = Some(new()));
        let maps = made.into_inner().unwrap().expect("made");
        let run = machine.explore(
            shape.nr_cpus * threads_per_cpu,
            Policy::Random { seed, period: 1 + seed % 8 },
            &|thread| {
                Explore::enter();
                let task = Task::new(0, Explore::cpu());
                for round in 0..rounds {
                    let pfn =
                        |depth: usize| (thread as u32 * stride + round * 3 + depth as u32) % shape.nr_frames as u32;
                    nested(&maps, &task, nest, threads_per_cpu > 1, &pfn);
                }
                Explore::leave();
            },
        );
        let flushes = maps.windows().nr_flushes();
        let mut wrong = Ok(());
        alone(&machine, || {
            if run.outcome.is_ok() {
                // SAFETY: the run is over.
                wrong = unsafe { maps.audit(&|slot| held.nr_holders(slot)) };
            }
            drop(maps);
        });
        run.outcome.map_err(|failure| failure.message)?;
        lock(&held.wrong).take().map_or(Ok(()), Err)?;
        wrong.map(|()| flushes).map_err(|wrong| format!("at rest {wrong}"))
    }
}

/// Holds `left` maps more, each touched while all are held.
fn nested<S: Scheme<Explore>>(
    maps: &KernelMaps<Explore, S>,
    task: &Task,
    left: usize,
    makes_room: bool,
    pfn: &dyn Fn(usize) -> u32,
) {
    if left == 0 {
        return;
    }
    let wanted = pfn(left);
    let page = maps.map(task, wanted);
    assert_eq!(page.touch(), wanted, "the first look");
    if makes_room {
        give_way(maps, task);
    }
    nested(maps, task, left - 1, makes_room, pfn);
    if makes_room {
        give_way(maps, task);
    }
    assert_eq!(page.touch(), wanted, "after others were mapped");
}

/// Lets other tasks have the CPU.
fn give_way<S: Scheme<Explore>>(maps: &KernelMaps<Explore, S>, task: &Task) {
    maps.suspend(task);
    Explore::leave();
    Explore::enter();
    maps.come_back(task);
    maps.resume(task);
}

fn alone(machine: &Machine, act: impl FnOnce() + Send) {
    let act = Mutex::new(Some(act));
    let run = machine.explore(1, Policy::in_turn(0), &|_| {
        Explore::enter();
        if let Some(act) = act.lock().unwrap().take() {
            act();
        }
        Explore::leave();
    });
    run.outcome.unwrap_or_else(|failure| panic!("{}", failure.message));
}
