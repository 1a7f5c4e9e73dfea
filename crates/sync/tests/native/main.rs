//! Stress on OS threads: more threads than slots, so that spinners meet sleepers. One program, as each compiles every
//! semaphore anew.

mod cells;
mod range_lock;
mod rcu;
mod semaphores;
mod seqcount;
mod spin;
mod stats;

use faultless_platform::native::{Machine, Native};
use faultless_platform::{Ordering, Processor, Threads};
use faultless_sync::Barrier;

type Word = <Native as Processor>::AtomicU64;

/// Runs `body` on every thread, on a slot.
fn on(nr_cpus: usize, nr_threads: usize, body: impl Fn(usize) + Sync) {
    on_machine(&Machine::new(nr_cpus), nr_threads, body);
}

fn on_machine(machine: &Machine, nr_threads: usize, body: impl Fn(usize) + Sync) {
    let start = Barrier::<Native>::new(u32::try_from(nr_threads).expect("a few threads"));
    Native::run(machine, nr_threads, &|thread| {
        Native::enter();
        start.wait();
        body(thread);
        Native::leave();
    });
}

/// How long a stress lasts: enough for the host to run several threads at once, and to interrupt them anywhere.
/// Miri's clock ticks with the interpreted code, which interrupts threads at any place: 3 ms of it are enough.
const STRESS_NS: u64 = if cfg!(miri) { 3_000_000 } else { 60_000_000 };

/// Counts rounds until the stress is over.
fn rounds() -> impl Iterator<Item = usize> {
    let end_ns = Native::now() + STRESS_NS;
    (0..).take_while(move |round| round % 16 != 0 || Native::now() < end_ns)
}

/// Two words that writers change and readers never see apart.
struct Pair {
    left: Word,
    right: Word,
}

impl Pair {
    fn new() -> Self {
        Self { left: Word::new(0), right: Word::new(0) }
    }

    fn change(&self) {
        for word in [&self.left, &self.right] {
            word.store(word.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
    }

    fn check(&self) {
        assert_eq!(self.left.load(Ordering::Relaxed), self.right.load(Ordering::Relaxed));
    }

    fn changes(&self) -> u64 {
        self.check();
        self.left.load(Ordering::Relaxed)
    }
}
