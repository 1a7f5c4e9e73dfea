//! Locks whose waiters spin.

use crate::{Pair, Word, on, on_machine, rounds};
use faultless_platform::native::{Machine, Native};
use faultless_platform::{Ordering, Processor};
use faultless_sync::{McsQueue, PerCpuCounter, PerVmaLock, RwSpinLock, TicketLock};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A writer waits for a reader that never leaves, until another thread fails.
#[test]
fn a_writer_whose_wait_fails_lets_readers_in_again() {
    let (machine, lock) = (Machine::new(2), RwSpinLock::<Native>::new());
    let result = catch_unwind(AssertUnwindSafe(|| {
        on_machine(&machine, 2, |thread| {
            if thread == 0 {
                core::mem::forget(lock.read());
                Native::spin_until(|| lock.try_read().is_none());
                std::panic::resume_unwind(Box::new("the reader fails"));
            }
            Native::spin_until(|| lock.is_locked());
            drop(lock.write());
        });
    }));
    assert!(result.is_err());
    assert!(lock.try_read().is_some(), "the writer has gone, and readers stay out");
}

#[test]
fn mcs_queue_keeps_order_though_many_leave() {
    for nr_cpus in [2, 6] {
        let (queue, pair, nr_entered) = (McsQueue::<Native>::new(), Pair::new(), Word::new(0));
        on(nr_cpus, 6, |thread| {
            for round in rounds() {
                let mut looks = (thread * 7 + round) % 5;
                let keep_waiting = || {
                    looks = looks.wrapping_sub(1);
                    looks != 0 && !Native::should_yield()
                };
                if queue.lock_while(keep_waiting, || pair.change()).is_some() {
                    nr_entered.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        assert_eq!(pair.changes(), nr_entered.load(Ordering::Relaxed));
        assert!(!queue.is_occupied());
    }
}

#[test]
fn spinning_reader_writer_lock_excludes() {
    let (lock, pair, nr_changes) = (RwSpinLock::<Native>::new(), Pair::new(), PerCpuCounter::<Native>::new(4));
    on(4, 4, |thread| {
        for round in rounds() {
            if (thread + round) % 4 == 0 {
                let _write = lock.write();
                pair.change();
                nr_changes.add(1);
            } else {
                let _read = lock.read();
                pair.check();
            }
        }
    });
    assert_eq!(pair.changes(), nr_changes.sum());
}

#[test]
fn tickets_keep_order_and_lose_nobody() {
    let (lock, pair, nr_entered) = (TicketLock::<Native>::new(), Pair::new(), Word::new(0));
    on(2, 4, |thread| {
        for round in rounds() {
            let guard = if (thread + round) % 4 == 0 { lock.try_lock() } else { Some(lock.lock()) };
            if guard.is_some() {
                pair.change();
                nr_entered.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    assert_eq!(pair.changes(), nr_entered.load(Ordering::Relaxed));
    assert!(!lock.is_locked());
}

/// A reader may need the writer's CPU to get to where it leaves.
#[test]
fn a_writer_that_waits_for_a_reader_gives_its_cpu_away() {
    let (machine, lock) = (Machine::new(1), PerVmaLock::<Native>::new());
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let share = lock.try_read().expect("nobody writes");
        scope.spawn(|| {
            machine.attach(|| {
                lock.write_lock();
                lock.write_unlock();
            });
        });
        while !lock.is_write_locked() {
            std::thread::yield_now();
        }
        scope.spawn(|| machine.attach(|| sender.send(()).expect("somebody listens")));
        let given = receiver.recv_timeout(std::time::Duration::from_secs(60));
        drop(share);
        assert!(given.is_ok(), "it kept the machine's only CPU");
    });
}
