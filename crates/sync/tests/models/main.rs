//! Models of every protocol of the crate under the loom checker: all interleavings, within the bounds named in each.
//!
//! Data are relaxed atomics: a missing ordering shows as an old value. Nodes on stacks are atomics that notice their use
//! after their drop. A lost wake-up shows as a deadlock.

mod mcs;
mod parking;
mod rcu;
mod rwsem;
mod seqcount;
mod spin;

use faultless_platform::loom::{Bounds, Loom, explore, start};
use faultless_platform::{Atomic, Ordering, Processor};
use std::rc::Rc;

type Word = <Loom as Processor>::AtomicU64;

fn read(word: &Word) -> u64 {
    word.load(Ordering::Relaxed)
}

fn write(word: &Word, value: u64) {
    word.store(value, Ordering::Relaxed);
}

/// Adds 1 by a load and a store: two at a time lose one.
fn bump(word: &Word) {
    write(word, read(word) + 1);
}

type Body<S> = fn(&S);

/// Explores `bodies`, one a thread, on what `setup` makes; `check` sees it after all have ended.
fn race<S: 'static, const N: usize>(
    max_preemptions: Option<usize>,
    setup: fn() -> S,
    bodies: [Body<S>; N],
    check: fn(&S),
) {
    explore(Bounds { nr_cpus: N, max_preemptions }, move || {
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
}
