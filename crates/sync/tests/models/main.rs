//! Models of every protocol of the crate under the loom checker: all interleavings, within the bounds named in each.
//!
//! Data are plain cells: a missing ordering shows as a race, in either direction. Nodes on stacks are atomics that
//! notice their use after their drop. A lost wake-up shows as a deadlock.

mod announcement;
mod cna;
mod cpu_set;
mod credit;
mod lane_sets;
mod lookers;
mod mcs;
#[cfg(feature = "mutants")]
mod mutants;
mod object;
mod orders;
mod parking;
mod per_vma_lock;
mod range_lock;
mod rcu;
mod rwsem;
mod seqcount;
mod spin;
mod srcu;
mod stamp;

use faultless_platform::loom::{Bounds, UnsafeCell, explore, start};
use std::rc::Rc;

/// Plain data: the checker fails on accesses that nothing orders.
struct Plain(UnsafeCell<u64>);

impl Plain {
    fn new() -> Self {
        Self(UnsafeCell::new(0))
    }

    fn read(&self) -> u64 {
        // SAFETY: the checker has seen that no write is concurrent.
        self.0.with(|value| unsafe { *value })
    }

    fn write(&self, value: u64) {
        // SAFETY: the checker has seen that no other access is concurrent.
        self.0.with_mut(|place| unsafe { *place = value });
    }

    fn bump(&self) {
        self.write(self.read() + 1);
    }
}

type Body<S> = fn(&S);

/// Explores `bodies`, one a thread, on what `setup` makes; `check` sees it after all have ended. Returns the number of
/// interleavings.
///
/// # Panics
/// If there were hardly any interleavings: the model races nobody.
fn race<S: 'static, const N: usize>(
    max_preemptions: Option<usize>,
    setup: impl Fn() -> S + Send + Sync + 'static,
    bodies: [Body<S>; N],
    check: fn(&S),
) -> u64 {
    let nr_runs = explore(Bounds { nr_cpus: N, max_preemptions }, move || {
        let shared = Rc::new(setup());
        let others: Vec<_> = bodies[1..]
            .iter()
            .map(|&body| {
                let shared = Rc::clone(&shared);
                start(move || body(&shared))
            })
            .collect();
        bodies[0](&shared);
        others.into_iter().for_each(|thread| thread.join().expect("a model thread failed"));
        check(&shared);
    });
    println!("{nr_runs} interleavings");
    assert!(nr_runs >= 10, "{nr_runs} interleavings: the model races nobody");
    nr_runs
}
