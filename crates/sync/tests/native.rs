//! Stress on OS threads: more threads than slots, so that spinners meet sleepers.

use core::ptr::NonNull;
use faultless_platform::native::{Machine, Native};
use faultless_platform::{MAX_CPUS, Ordering, Processor, Threads};
use faultless_sync::{
    AtomicCpuSet, Barrier, Completion, Ended, Generation, Interrupt, LockStats, McsQueue, Patches, PerCpuCounter,
    PerVmaLock, Rcu, RcuHead, RwLock, RwSemaphore, RwSpinLock, Rwsem, SEMAPHORES, SemaphoreVisitor, SeqCount, Side,
    SpinMutex, TicketLock, Timed, with_semaphore,
};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

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
fn the_longest_wait_is_kept_though_shorter_ones_follow() {
    let stats = LockStats::<Native>::new(1);
    Machine::new(1).attach(|| [3, 9, 4].map(|wait_ns| stats.note_wait(Side::Write, wait_ns)));
    let figures = stats.figures(Side::Write);
    assert_eq!((figures.nr_contended, figures.wait_ns, figures.longest_wait_ns), (3, 16, 9));
    assert_eq!(stats.figures(Side::Read).nr_contended, 0);
}

#[test]
fn whoever_waits_is_counted_with_its_time() {
    let machine = Machine::new(2);
    let stats = Arc::new(LockStats::new(2));
    let lock = Rwsem::<Native>::with_stats(Generation::RWSEM_2012, Some(Arc::clone(&stats)));
    let (held, wait_ns) = (Completion::<Native>::new(), 3_000_000);
    on_machine(&machine, 2, |thread| {
        if thread == 0 {
            let _write = lock.write();
            held.set();
            Native::spin_until(|| lock.is_contended());
            Native::spin_until_deadline(Native::now() + wait_ns, || false);
        } else {
            held.wait();
            let _read = lock.read();
        }
    });
    let read = stats.figures(Side::Read);
    assert_eq!(read.nr_contended, 1);
    assert!(read.wait_ns >= wait_ns && read.longest_wait_ns == read.wait_ns, "{read:?}");
    assert_eq!(stats.figures(Side::Write).nr_contended, 0);
}

#[test]
fn a_timed_semaphore_counts_acquisitions_and_the_time_held() {
    let stats = Arc::new(LockStats::new(1));
    let lock = Timed::<Native, Rwsem<Native>>::with_stats(Generation::RWSEM_V8, Some(Arc::clone(&stats)));
    let hold = |ns| _ = Native::spin_until_deadline(Native::now() + ns, || false);
    Machine::new(1).attach(|| {
        let write = lock.write();
        hold(2_000_000);
        let read = write.downgrade();
        hold(1_000_000);
        let held_so_far = stats.figures(Side::Read);
        assert!((1_000_000..1_000_000_000).contains(&held_so_far.held_ns), "{held_so_far:?}");
        drop(read);
        assert!(lock.try_write().is_some() && lock.try_read().is_some());
    });
    let (read, write) = (stats.figures(Side::Read), stats.figures(Side::Write));
    assert_eq!((read.nr_acquired, write.nr_acquired, read.nr_contended, write.nr_contended), (2, 2, 0, 0));
    assert!((2_000_000..1_000_000_000).contains(&write.held_ns), "{write:?}");
    assert_eq!(stats.figures(Side::Write), write, "what is released counts no more time");
}

#[test]
fn a_timed_semaphore_tells_what_the_one_inside_does() {
    let lock = Timed::<Native, Rwsem<Native>>::with_stats(Generation::RWSEM_V8, None);
    let tells = || (RwSemaphore::is_locked(&lock), RwSemaphore::is_contended(&lock), RwSemaphore::owner(&lock));
    let machine = Machine::new(2);
    machine.attach(|| {
        assert_eq!(tells(), (false, false, None));
        let read = lock.read();
        assert_eq!(tells(), (true, false, None));
        assert!(lock.try_write().is_none());
        drop(read);
        let write = lock.write();
        assert_eq!(tells(), (true, false, Some(Native::current())));
        assert!(lock.try_read().is_none());
        drop(write);
        assert_eq!(tells(), (false, false, None));
    });
    let held = Completion::<Native>::new();
    on_machine(&machine, 2, |thread| {
        if thread == 0 {
            let _write = lock.write();
            held.set();
            Native::spin_until(|| RwSemaphore::is_contended(&lock));
        } else {
            held.wait();
            drop(lock.read());
        }
    });
}

#[test]
fn a_timed_semaphore_has_the_table_of_the_one_inside() {
    let has_table = |generation| {
        let places = [8, 64].map(|nr_places| {
            let inside = Rwsem::<Native>::reader_table(generation, nr_places).is_some();
            let timed = Timed::<Native, Rwsem<Native>>::reader_table(generation, nr_places).is_some();
            (inside, timed)
        });
        assert!(places.iter().all(|&(inside, timed)| inside == timed), "{places:?}");
        places[0].1
    };
    let nr_with = SEMAPHORES.iter().filter(|name| Generation::named(name).is_some_and(&has_table)).count();
    assert!(nr_with > 0 && nr_with < SEMAPHORES.len(), "{nr_with}");
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
fn sequence_count_readers_accept_no_torn_pair() {
    let (count, lock, pair) = (SeqCount::<Native>::new(), SpinMutex::<Native, ()>::new(()), Pair::new());
    let nr_accepted = PerCpuCounter::<Native>::new(4);
    on(4, 4, |thread| {
        for _ in rounds() {
            if thread == 0 {
                let _serial = lock.lock();
                let _write = count.write();
                pair.change();
            } else {
                let seq = count.read();
                let (left, right) = (pair.left.load(Ordering::Relaxed), pair.right.load(Ordering::Relaxed));
                if count.is_unchanged(seq) {
                    assert_eq!(left, right);
                    nr_accepted.add(1);
                }
            }
        }
    });
    assert!(nr_accepted.sum() > 0);
}

/// Something that readers reach and writers free.
struct Object {
    head: RcuHead<Native>,
    is_alive: Word,
    nr_freed: Arc<Word>,
}

impl Object {
    fn boxed(nr_freed: &Arc<Word>) -> *mut Self {
        let nr_freed = Arc::clone(nr_freed);
        Box::into_raw(Box::new(Self { head: RcuHead::new(), is_alive: Word::new(1), nr_freed }))
    }

    /// Returns an object's head, by a pointer that may be used for all of the object: `free` does.
    fn head_of(object: *mut Self) -> NonNull<RcuHead<Native>> {
        let head = object.wrapping_byte_add(core::mem::offset_of!(Self, head)).cast();
        NonNull::new(head).expect("an object's place is not null")
    }
}

/// Frees the object that the head stands in.
///
/// # Safety
/// The head is that of an [`Object`] from [`Object::boxed`] that nobody reaches.
unsafe fn free(head: NonNull<RcuHead<Native>>) {
    // SAFETY: see above.
    let object = unsafe { Box::from_raw(head.as_ptr().byte_sub(core::mem::offset_of!(Object, head)).cast::<Object>()) };
    assert_eq!(object.is_alive.swap(0, Ordering::Relaxed), 1, "freed twice");
    object.nr_freed.fetch_add(1, Ordering::Relaxed);
}

fn replace_under_readers(nr_cpus: usize, group_bits: u32, free_old: impl Fn(&Rcu<Native>, *mut Object) + Sync) {
    let (rcu, nr_freed) = (Rcu::<Native>::with_groups(nr_cpus, group_bits), Arc::new(Word::new(0)));
    let nr_replaced = PerCpuCounter::<Native>::new(nr_cpus);
    let current = <Native as Processor>::AtomicPtr::new(Object::boxed(&nr_freed));
    let machine = Machine::new(nr_cpus);
    on_machine(&machine, 5, |thread| {
        for _ in rounds() {
            if thread < 2 {
                free_old(&rcu, current.swap(Object::boxed(&nr_freed), Ordering::AcqRel));
                nr_replaced.add(1);
            } else {
                let _guard = rcu.read();
                // SAFETY: reached under the guard.
                let object = unsafe { &*current.load(Ordering::Acquire) };
                assert_eq!(object.is_alive.load(Ordering::Relaxed), 1, "reached after it was freed");
            }
        }
        rcu.poll();
    });
    on_machine(&machine, 1, |_| rcu.flush());
    assert_eq!(nr_freed.load(Ordering::Relaxed), nr_replaced.sum());
    assert_eq!(rcu.nr_deferred(), 0);
    // SAFETY: the last one, which nobody reaches any more.
    drop(unsafe { Box::from_raw(current.load(Ordering::Relaxed)) });
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

/// A guard that leaves its CPU with its thread is as one that is forgotten: the CPU's next owner has sections of its
/// own.
#[test]
fn a_section_that_has_lost_its_cpu_ends_nobody_elses() {
    let (machine, rcu) = (Machine::new(1), Rcu::<Native>::new(1));
    let lost = machine.attach(|| rcu.read());
    machine.attach(|| {
        drop(rcu.read());
        assert!(rcu.is_reading(), "the first one goes on");
    });
    drop(lost);
    machine.attach(|| assert!(rcu.is_reading(), "the section is not its to end any more"));
    // One that parks, against the rule, and gets its CPU back.
    let rcu = Rcu::<Native>::new(1);
    machine.attach(|| {
        let kept = rcu.read();
        Native::leave();
        Native::enter();
        drop(kept);
        assert!(!rcu.is_reading());
    });
}

fn defer<const BATCH: usize>(rcu: &Rcu<Native, BATCH>, object: *mut Object) {
    // SAFETY: unlinked by the caller, once; `free` gets what `Object::boxed` made.
    unsafe { rcu.defer(Object::head_of(object), free) };
    rcu.poll();
}

#[test]
fn nothing_is_freed_under_a_reader() {
    // One group, and three of two CPUs.
    for (nr_cpus, group_bits) in [(2, 3), (5, 3), (5, 1)] {
        replace_under_readers(nr_cpus, group_bits, defer);
        replace_under_readers(nr_cpus, group_bits, |rcu, object| {
            rcu.synchronize();
            // SAFETY: unlinked, and a grace period has passed.
            unsafe { free(Object::head_of(object)) };
        });
        replace_under_readers(nr_cpus, group_bits, |rcu, object| {
            defer(rcu, object);
            rcu.flush();
        });
    }
}

#[test]
fn a_batch_runs_by_poll_once_its_grace_period_is_over() {
    let (rcu, nr_freed) = (Rcu::<Native>::new(2), Arc::new(Word::new(0)));
    Machine::new(1).attach(|| {
        for _ in 0..63 {
            defer(&rcu, Object::boxed(&nr_freed));
        }
        assert_eq!((nr_freed.load(Ordering::Relaxed), rcu.nr_deferred()), (0, 63), "an open batch is not run");
        let guard = rcu.read();
        defer(&rcu, Object::boxed(&nr_freed));
        rcu.poll();
        assert_eq!(nr_freed.load(Ordering::Relaxed), 0, "freed under a reader");
        drop(guard);
        rcu.poll();
        assert_eq!((nr_freed.load(Ordering::Relaxed), rcu.nr_deferred()), (64, 0));
    });
}

#[test]
fn a_batch_is_not_put_off_by_later_ones() {
    let (rcu, nr_freed) = (Rcu::<Native, 1>::with_batch(2), Arc::new(Word::new(0)));
    let [is_reading, has_deferred, is_reading_again, is_done] = core::array::from_fn(|_| Completion::<Native>::new());
    on(2, 2, |thread| {
        if thread == 0 {
            is_reading.wait();
            defer(&rcu, Object::boxed(&nr_freed));
            defer(&rcu, Object::boxed(&nr_freed));
            assert_eq!(nr_freed.load(Ordering::Relaxed), 0, "the reader is in the way");
            has_deferred.set();
            is_reading_again.wait();
            // The grace periods of both are over, that of the third is not.
            defer(&rcu, Object::boxed(&nr_freed));
            assert_eq!(nr_freed.load(Ordering::Relaxed), 2);
            is_done.set();
        } else {
            let first = rcu.read();
            is_reading.set();
            Native::spin_until(|| has_deferred.is_set());
            drop(first);
            rcu.synchronize();
            let _second = rcu.read();
            is_reading_again.set();
            Native::spin_until(|| is_done.is_set());
        }
    });
    on(2, 1, |_| rcu.flush());
    assert_eq!(nr_freed.load(Ordering::Relaxed), 3);
}

#[test]
fn a_grace_period_waits_for_no_section_that_began_after_it() {
    let (rcu, nr_freed) = (Rcu::<Native, 1>::with_batch(2), Arc::new(Word::new(0)));
    let [is_reading, has_deferred, is_reading_again, is_done] = core::array::from_fn(|_| Completion::<Native>::new());
    on(2, 2, |thread| {
        if thread == 0 {
            is_reading.wait();
            defer(&rcu, Object::boxed(&nr_freed));
            rcu.poll();
            assert_eq!(nr_freed.load(Ordering::Relaxed), 0, "the reader is in the way");
            has_deferred.set();
            is_reading_again.wait();
            // More often than the CPU may be patient.
            (0..200).for_each(|_| rcu.poll());
            assert_eq!(nr_freed.load(Ordering::Relaxed), 1);
            is_done.set();
        } else {
            let first = rcu.read();
            is_reading.set();
            Native::spin_until(|| has_deferred.is_set());
            drop(first);
            let _second = rcu.read();
            is_reading_again.set();
            Native::spin_until(|| is_done.is_set());
        }
    });
}

#[test]
fn synchronize_inside_a_read_section_is_a_panic_and_no_hang() {
    let rcu = Rcu::<Native>::new(1);
    let result = catch_unwind(AssertUnwindSafe(|| {
        Machine::new(1).attach(|| {
            let _guard = rcu.read();
            rcu.synchronize();
        });
    }));
    assert!(result.is_err());
    Machine::new(1).attach(|| rcu.synchronize());
}

#[test]
fn barrier_and_event_work_with_fewer_slots_than_threads() {
    let (barrier, event, total) = (Barrier::<Native>::new(6), Completion::<Native>::new(), Word::new(0));
    let nr_leaders = Word::new(0);
    on(2, 6, |_| {
        for round in 1..=100 {
            total.fetch_add(1, Ordering::Relaxed);
            let is_leader = barrier.wait();
            assert_eq!(total.load(Ordering::Relaxed), 6 * round);
            nr_leaders.fetch_add(u64::from(is_leader), Ordering::Relaxed);
            barrier.wait();
        }
        if total.fetch_add(1, Ordering::Relaxed) == 605 { event.set() } else { event.wait() }
    });
    assert!(event.is_set());
    assert_eq!(nr_leaders.load(Ordering::Relaxed), 100);
}

#[test]
fn counters_of_all_cpus_add_up() {
    let counter = PerCpuCounter::<Native>::new(4);
    on(4, 8, |thread| {
        for _ in 0..1000 {
            counter.add(3);
            counter.sub(if thread % 2 == 0 { 3 } else { 1 });
        }
    });
    assert_eq!(counter.sum(), 4 * 2 * 1000);
    Machine::new(1).attach(|| counter.sub(9000));
    assert_eq!(counter.sum(), 0, "less than nothing is shown as nothing");
}

#[test]
fn cpu_set_holds_what_was_inserted() {
    let set = AtomicCpuSet::<Native>::new();
    assert!(set.insert(0) && set.insert(1023) && set.insert(64) && !set.insert(64));
    assert!(set.remove(0) && !set.remove(0));
    assert!(set.contains(1023) && !set.contains(0) && !set.contains(65) && !set.contains(MAX_CPUS));
    assert!(set.snapshot().iter().eq([64, 1023]));
}

#[test]
fn cpu_set_names_its_members_below_a_number() {
    let set = AtomicCpuSet::<Native>::new();
    let members = [0, 1, 63, 64, 127, 128, 1023];
    members.iter().for_each(|&cpu| assert!(set.insert(cpu)));
    for nr_cpus in [0, 1, 2, 63, 64, 65, 127, 128, 129, 1023, 1024] {
        let below = members.iter().copied().filter(|&cpu| cpu < nr_cpus);
        assert!(set.members_below(nr_cpus).eq(below), "below {nr_cpus}");
    }
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

/// Steps through `nr_writes` writes under a reader; says whether it accepts what it read before them.
fn accepts_across<const BITS: u32>(nr_writes: u32) -> bool {
    let count = SeqCount::<Native, BITS>::new();
    let seq = count.read();
    for _ in 0..nr_writes {
        drop(count.write());
    }
    count.is_unchanged(seq)
}

#[test]
fn narrow_sequence_counts_wrap_after_a_whole_turn_alone() {
    assert!((1..8).all(|writes| !accepts_across::<4>(writes)));
    assert!(accepts_across::<4>(8), "four bits are back where they were: what a reader must not sleep through");
    assert!((1..=300).all(|writes| accepts_across::<8>(writes) == (writes % 128 == 0)));
    assert!((1..=300).all(|writes| !accepts_across::<64>(writes)));
}

#[test]
fn an_odd_count_is_never_unchanged() {
    let count = SeqCount::<Native, 4>::new();
    let write = count.write();
    let seq = count.read();
    assert!(seq.is_write_in_progress() && !count.is_unchanged(seq));
    drop(write);
    assert!(count.is_unchanged(count.read()));
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
