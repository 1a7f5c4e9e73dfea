//! Two and more CPUs that map frames in each other's way, on a machine that draws who goes on.

use std::sync::Mutex;

use faultless_explore::{Explore, Machine, Policy};
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
}

impl Play {
    /// Two CPUs that map frames of a few, one in another's way.
    pub fn new(nr_slots: usize, nest: usize, seed: u64) -> Self {
        let costs = Costs { walk_ns: 0, flush_ns: 0, flush_slot_ns: 0 };
        Self {
            shape: Shape { nr_cpus: 2, nr_frames: 4, nr_slots, nr_processes: 1, costs },
            rounds: 4,
            nest,
            seed,
            threads_per_cpu: 1,
        }
    }
}

/// Maps and touches on every CPU; what goes wrong is the outcome.
pub struct Run(pub Play);

impl SchemeVisitor<Explore> for Run {
    type Output = Result<u64, String>;

    fn visit<S: Scheme<Explore>>(self) -> Self::Output {
        let Play { shape, rounds, nest, seed, threads_per_cpu } = self.0;
        let machine = Machine::new(shape.nr_cpus);
        let made = Mutex::new(None);
        alone(&machine, || *made.lock().unwrap() = Some(KernelMaps::<Explore, S>::new(&shape)));
        let maps = made.into_inner().unwrap().expect("made");
        let run = machine.explore(
            shape.nr_cpus * threads_per_cpu,
            Policy::Random { seed, period: 1 + seed % 8 },
            &|thread| {
                Explore::enter();
                let task = Task::new(0, Explore::cpu());
                for round in 0..rounds {
                    let pfn = |depth: usize| (thread as u32 + round * 3 + depth as u32) % shape.nr_frames as u32;
                    nested(&maps, &task, nest, threads_per_cpu > 1, &pfn);
                }
                Explore::leave();
            },
        );
        let flushes = maps.windows().nr_flushes();
        alone(&machine, || drop(maps));
        run.outcome.map(|_| flushes).map_err(|failure| failure.message)
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
    nested(maps, task, left - 1, makes_room, pfn);
    if makes_room {
        maps.suspend(task);
        Explore::leave();
        Explore::enter();
        maps.resume(task);
    }
    assert_eq!(page.touch(), wanted, "after others were mapped");
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
