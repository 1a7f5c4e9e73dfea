//! Stress on OS threads: more threads than slots, so that spinners meet sleepers.

use faultless_platform::native::{Machine, Native};
use faultless_platform::{Ordering, Processor, Threads};
use faultless_sync::{RwSemaphore, SEMAPHORES, SemaphoreVisitor, with_semaphore};

type Cell = <Native as Processor>::AtomicU64;

/// Runs `body` on every thread, on a slot.
fn on(nr_cpus: usize, nr_threads: usize, body: impl Fn(usize) + Sync) {
    Native::run(&Machine::new(nr_cpus), nr_threads, &|thread| {
        Native::enter();
        body(thread);
        Native::leave();
    });
}

struct Pairs {
    nr_cpus: usize,
}

impl SemaphoreVisitor<Native> for Pairs {
    type Output = ();
    /// Writers change two words; readers never see one of them alone.
    fn visit<S: RwSemaphore<Native>>(self) {
        let (lock, left, right) = (S::new(), Cell::new(0), Cell::new(0));
        on(self.nr_cpus, 6, |thread| {
            for round in 0..2000 {
                if (thread + round) % 3 == 0 {
                    let write = lock.write();
                    left.store(left.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                    right.store(right.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                    if round % 5 == 0 {
                        let _read = write.downgrade();
                        assert_eq!(left.load(Ordering::Relaxed), right.load(Ordering::Relaxed));
                    }
                } else {
                    let _read = lock.read();
                    assert_eq!(left.load(Ordering::Relaxed), right.load(Ordering::Relaxed));
                }
            }
        });
        assert_eq!(left.load(Ordering::Relaxed), 4000);
        assert!(!lock.is_locked() && !lock.is_contended());
    }
}

#[test]
fn semaphores_exclude_and_lose_no_wake_up() {
    for name in SEMAPHORES {
        for nr_cpus in [1, 2, 6] {
            with_semaphore(name, Pairs { nr_cpus }).expect("every registered name is found");
        }
    }
}
