//! The semaphores: exclusion, order, and waits that end early.

use crate::{Pair, Word, on, on_machine, rounds};
use faultless_platform::native::{Machine, Native};
use faultless_platform::{Ordering, Processor};
use faultless_sync::{
    Completion, Ended, Generation, Interrupt, LockStats, Patches, PerCpuCounter, RwLock, RwSemaphore, Rwsem,
    SEMAPHORES, SemaphoreVisitor, Side, with_semaphore,
};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

struct ReadersAndWriters {
    nr_cpus: usize,
}

impl SemaphoreVisitor<Native> for ReadersAndWriters {
    type Output = ();
    fn visit<S: RwSemaphore<Native>>(self, generation: S::Generation) {
        let (lock, pair, nr_changes) = (S::of(generation), Pair::new(), PerCpuCounter::<Native>::new(self.nr_cpus));
        on(self.nr_cpus, 6, |thread| {
            for round in rounds() {
                match (thread + round) % 6 {
                    0 | 1 => {
                        let write = lock.write();
                        pair.change();
                        nr_changes.add(1);
                        if round % 5 == 0 {
                            let _read = write.downgrade();
                            pair.check();
                        }
                    }
                    2 => {
                        if let Some(_read) = lock.try_read() {
                            pair.check();
                        }
                        if let Some(_write) = lock.try_write() {
                            pair.check();
                        }
                    }
                    _ => {
                        let _read = lock.read();
                        pair.check();
                    }
                }
            }
        });
        assert_eq!(pair.changes(), nr_changes.sum());
        assert!(!lock.is_locked() && !lock.is_contended());
    }
}

#[test]
fn every_registered_semaphore_excludes_and_loses_no_wake_up() {
    for name in SEMAPHORES {
        for nr_cpus in [1, 2, 6] {
            assert_eq!(with_semaphore(name, ReadersAndWriters { nr_cpus }), Some(()));
        }
    }
    assert_eq!(with_semaphore("rwsem-1999", ReadersAndWriters { nr_cpus: 1 }), None);
}

/// Stealing alone, with a bound that a short test meets.
const IMPATIENT: Generation = Generation::new(3, Patches::NONE);

/// Mixtures that have no name: hardly any stealing, and spinning without any.
#[test]
fn patches_mix_with_any_patience() {
    let generations = [
        IMPATIENT,
        Generation::new(0, Patches::LOOK_BEFORE_GRANT | Patches::OPTIMISTIC_SPIN | Patches::SPINNER_SPARES_WAKE),
        Generation::new(1, Patches::ALL),
    ];
    for nr_cpus in [1, 2, 6] {
        for generation in generations {
            ReadersAndWriters { nr_cpus }.visit::<Rwsem<Native>>(generation);
        }
    }
}

/// Returns the longest run of tenures of one thread, each begun with the other in line.
fn longest_overtaking(generation: Generation) -> u64 {
    let (lock, run, longest) = (Rwsem::<Native>::of(generation), Word::new(0), Word::new(0));
    on(2, 2, |thread| {
        for _ in rounds() {
            let _write = lock.write();
            let now = if thread == 0 && lock.is_contended() { run.load(Ordering::Relaxed) + 1 } else { 0 };
            run.store(now, Ordering::Relaxed);
            longest.store(longest.load(Ordering::Relaxed).max(now), Ordering::Relaxed);
        }
    });
    longest.load(Ordering::Relaxed)
}

#[test]
fn a_sleeper_is_overtaken_no_more_often_than_patience_allows() {
    // The first tenure of a run is the one that the sleeper found; the others overtake it.
    assert!(longest_overtaking(Generation::RWSEM_2012) <= 1);
    assert!(longest_overtaking(IMPATIENT) <= 1 + 3);
    assert!(longest_overtaking(Generation::RWSEM_STEAL) <= 1 + 63);
}

#[test]
fn a_writer_is_known_where_spinners_look_for_it_and_since_there_are_phases() {
    for name in SEMAPHORES {
        let lock = Rwsem::<Native>::of(Generation::named(name).expect("in the list"));
        let keeps = !["rwsem-2012", "rwsem-steal"].iter().any(|old| name.starts_with(old))
            || name.contains("+p8")
            || name.contains("+p9");
        let keeps = keeps && !["rwsem-v8-p8", "rwsem-v8-no-optspin"].contains(name);
        drop(lock.read());
        let write = lock.write();
        assert_eq!(lock.owner(), keeps.then(Native::current), "{name}");
        let read = write.downgrade();
        assert_eq!(lock.owner(), None, "{name}");
        drop(read);
    }
}

#[test]
fn a_reader_that_does_not_wait_stays_behind_a_writer_that_does() {
    for generation in [Generation::RWSEM_2012, Generation::RWSEM_V8] {
        let (lock, is_read) = (Rwsem::<Native>::of(generation), Completion::<Native>::new());
        on(2, 2, |thread| {
            if thread == 0 {
                let _read = lock.read();
                assert!(lock.try_read().is_some(), "nobody else is there");
                is_read.set();
                Native::spin_until(|| lock.is_contended());
                assert!(lock.try_read().is_none(), "a reader came in before a writer in line");
            } else {
                is_read.wait();
                drop(lock.write());
            }
        });
        assert!(lock.try_read().is_some());
    }
}

/// Thread 0 fails while the others wait for a lock that nobody releases.
fn a_panic_empties_the_line(generation: Generation, nr_cpus: usize) {
    let (machine, lock) = (Machine::new(nr_cpus), Rwsem::<Native>::of(generation));
    let result = catch_unwind(AssertUnwindSafe(|| {
        on_machine(&machine, 6, |thread| match thread {
            0 => {
                lock.write_lock();
                let wait_ns = 5_000_000;
                Native::spin_until_deadline(Native::now() + wait_ns, || false);
                std::panic::resume_unwind(Box::new("the writer fails"));
            }
            1..4 => drop(lock.write()),
            _ => drop(lock.read()),
        });
    }));
    assert!(result.is_err());
    assert!(lock.is_locked() && !lock.is_contended(), "somebody is left in line");
    // SAFETY: thread 0 took it, and is gone.
    on_machine(&machine, 1, |_| unsafe { lock.write_unlock() });
    on_machine(&machine, 2, |_| (drop(lock.write()), drop(lock.read())).0);
    assert!(!lock.is_locked() && !lock.is_contended());
}

#[test]
fn a_panic_of_another_thread_takes_waiters_out_of_the_line() {
    for nr_cpus in [1, 2, 6] {
        a_panic_empties_the_line(Generation::RWSEM_2012, nr_cpus);
        a_panic_empties_the_line(Generation::RWSEM_V8, nr_cpus);
        a_panic_empties_the_line(Generation::HANDOFF, nr_cpus);
        a_panic_empties_the_line(Generation::PHASE_FAIR, nr_cpus);
    }
}

/// Forgotten guards are counted, up to half of what the word holds; the others come in no more.
#[test]
#[cfg_attr(miri, ignore = "eight million guards")]
fn forgotten_guards_let_no_writer_in() {
    let lock = RwLock::<Native, u32>::new(1);
    let nr_forgotten = (0..1 << 24).take_while(|_| lock.try_read().map(core::mem::forget).is_some()).count();
    assert_eq!((nr_forgotten, lock.try_write().is_none()), (1 << 23, true));
    assert!(catch_unwind(AssertUnwindSafe(|| drop(lock.read()))).is_err());
    assert!(lock.try_read().is_none() && lock.try_write().is_none() && lock.semaphore().is_locked());
}

#[test]
fn figures_are_sums_over_cpus_and_threads_without_one() {
    let stats = LockStats::<Native>::new(2);
    stats.note_wait(Side::Read, 5);
    on(2, 2, |_| stats.note_wait(Side::Read, 7));
    stats.note_acquired(Side::Read);
    stats.note_released(Side::Read);
    let figures = stats.figures(Side::Read);
    assert_eq!((figures.nr_contended, figures.wait_ns, figures.longest_wait_ns), (3, 19, 7));
    assert!(figures.nr_acquired == 1 && figures.held_ns < 1_000_000_000, "{figures:?}");
}

/// Threads of the host that know no machine: nobody says whether an owner runs, nobody waits for a slot.
#[test]
fn threads_without_a_machine_use_every_semaphore() {
    for name in SEMAPHORES {
        let generation = Generation::named(name).expect("registered");
        let (lock, stats) = (RwLock::<Native, _>::of(generation, [0_u64; 2]), Arc::new(LockStats::new(1)));
        let counted = Rwsem::<Native>::with_stats(generation, Some(Arc::clone(&stats)));
        let total = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|thread| {
                    let (lock, counted) = (&lock, &counted);
                    scope.spawn(move || {
                        let mut nr_changes = 0;
                        for round in rounds() {
                            if (round + thread) % 3 == 0 {
                                let mut write = lock.write();
                                write[0] += 1;
                                write[1] += 1;
                                nr_changes += 1;
                            } else if let Some(read) = lock.try_read_for(std::time::Duration::from_micros(50)) {
                                assert_eq!(read[0], read[1]);
                            }
                            drop(counted.write());
                        }
                        nr_changes
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().expect("no thread fails")).sum::<u64>()
        });
        assert_eq!(*lock.read(), [total; 2], "{name}");
        assert!(!counted.is_locked() && !counted.is_contended());
        let figures = stats.figures(Side::Write);
        assert!((figures.nr_contended == 0) == (figures.wait_ns == 0), "{figures:?}");
    }
}

/// A guard that was taken on no machine is dropped on one, and the other way round.
#[test]
fn a_share_survives_a_change_of_machine() {
    for name in SEMAPHORES {
        let lock = RwLock::<Native, _>::of(Generation::named(name).expect("registered"), 7);
        drop(lock.read());
        let read = lock.read();
        Machine::new(3).attach(move || drop(read));
        assert_eq!(*lock.try_write().expect("nobody reads"), 7, "{name}");
    }
}

#[test]
fn waits_end_in_time_and_by_interrupts() {
    for name in SEMAPHORES {
        let lock = RwLock::<Native, _>::of(Generation::named(name).expect("registered"), ());
        let short = std::time::Duration::from_millis(1);
        let read = lock.read();
        assert!(lock.try_write_for(short).is_none(), "{name}");
        assert!(lock.try_read_for(short).is_some(), "{name}: who gave up is still in line");
        drop(read);
        assert!(lock.try_write_for(short).is_some() && lock.try_read_for(short).is_some(), "{name}: nobody has it");
        let (write, interrupt) = (lock.write(), Interrupt::new());
        assert!(lock.try_read_for(short).is_none(), "{name}");
        std::thread::scope(|scope| {
            let waiters = [
                scope.spawn(|| lock.read_interruptible(&interrupt).err()),
                scope.spawn(|| lock.write_interruptible(&interrupt).err()),
            ];
            std::thread::sleep(short);
            interrupt.raise();
            for waiter in waiters {
                assert_eq!(waiter.join().expect("it ends"), Some(Ended::Interrupted), "{name}");
            }
        });
        assert!(lock.try_read().is_none());
        assert_eq!(lock.read_interruptible(&interrupt).err(), Some(Ended::Interrupted), "{name}: it is raised still");
        interrupt.clear();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| lock.read_interruptible(&interrupt).map(drop));
            std::thread::sleep(short);
            drop(write);
            assert_eq!(waiter.join().expect("it ends"), Ok(()), "{name}: nothing ends the waits of a cleared one");
        });
        assert!(lock.try_write().is_some() && !lock.semaphore().is_contended(), "{name}");
    }
}
