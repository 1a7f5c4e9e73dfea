//! RCU: what is unlinked stays while a section may reach it, and goes after it.

use crate::{Word, on, on_machine, rounds};
use core::ptr::NonNull;
use faultless_platform::native::{Machine, Native};
use faultless_platform::{Ordering, Processor};
use faultless_sync::{Completion, PerCpuCounter, Rcu, RcuHead};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

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

/// Two threads: a writer defers objects while the reader is in a section, and goes on while it is in its next.
struct TwoSections {
    rcu: Rcu<Native, 1>,
    nr_freed: Arc<Word>,
    is_reading: Completion<Native>,
    has_deferred: Completion<Native>,
    is_reading_again: Completion<Native>,
    is_done: Completion<Native>,
}

impl TwoSections {
    fn new() -> Self {
        let [is_reading, has_deferred, is_reading_again, is_done] = core::array::from_fn(|_| Completion::new());
        let (rcu, nr_freed) = (Rcu::with_batch(2), Arc::new(Word::new(0)));
        Self { rcu, nr_freed, is_reading, has_deferred, is_reading_again, is_done }
    }

    fn nr_freed(&self) -> u64 {
        self.nr_freed.load(Ordering::Relaxed)
    }

    fn write(&self, nr_objects: usize, in_the_second: impl FnOnce()) {
        self.is_reading.wait();
        (0..nr_objects).for_each(|_| defer(&self.rcu, Object::boxed(&self.nr_freed)));
        assert_eq!(self.nr_freed(), 0, "the reader is in the way");
        self.has_deferred.set();
        self.is_reading_again.wait();
        in_the_second();
        self.is_done.set();
    }

    fn read(&self, between: impl FnOnce()) {
        let first = self.rcu.read();
        self.is_reading.set();
        Native::spin_until(|| self.has_deferred.is_set());
        drop(first);
        between();
        let _second = self.rcu.read();
        self.is_reading_again.set();
        Native::spin_until(|| self.is_done.is_set());
    }
}

#[test]
fn a_batch_is_not_put_off_by_later_ones() {
    let both = TwoSections::new();
    on(2, 2, |thread| {
        if thread == 0 {
            both.write(2, || {
                // The grace periods of both are over, that of the third is not.
                defer(&both.rcu, Object::boxed(&both.nr_freed));
                assert_eq!(both.nr_freed(), 2);
            });
        } else {
            both.read(|| both.rcu.synchronize());
        }
    });
    on(2, 1, |_| both.rcu.flush());
    assert_eq!(both.nr_freed(), 3);
}

#[test]
fn a_grace_period_waits_for_no_section_that_began_after_it() {
    let both = TwoSections::new();
    on(2, 2, |thread| {
        if thread == 0 {
            both.write(1, || {
                // More often than the CPU may be patient.
                (0..200).for_each(|_| both.rcu.poll());
                assert_eq!(both.nr_freed(), 1);
            });
        } else {
            both.read(|| ());
        }
    });
}

/// More than any of the tests takes.
const LONG: Duration = Duration::from_secs(60);

/// Says whether a flag goes up within a time.
fn goes_up(flag: &AtomicBool, within: Duration) -> bool {
    let end = Instant::now() + within;
    while !flag.load(Ordering::SeqCst) && Instant::now() < end {
        thread::sleep(Duration::from_millis(1));
    }
    flag.load(Ordering::SeqCst)
}

/// Says whether a third thread gets one of two slots while a reader has one, and the other thread, which may keep its
/// own, waits for that reader.
fn a_third_gets_in(keeps: bool) -> bool {
    let (machine, rcu) = (Machine::new(2), Rcu::<Native>::new(2));
    let [has_begun, waits, is_in, may_end] = [const { AtomicBool::new(false) }; 4];
    thread::scope(|scope| {
        scope.spawn(|| {
            machine.attach(|| {
                let _section = rcu.read();
                has_begun.store(true, Ordering::SeqCst);
                assert!(goes_up(&may_end, LONG));
            });
        });
        assert!(goes_up(&has_begun, LONG));
        scope.spawn(|| {
            machine.attach(|| {
                let _kept = keeps.then(|| rcu.keep_slot());
                waits.store(true, Ordering::SeqCst);
                rcu.flush();
            });
        });
        assert!(goes_up(&waits, LONG));
        scope.spawn(|| machine.attach(|| is_in.store(true, Ordering::SeqCst)));
        let got_in = goes_up(&is_in, if keeps { Duration::from_millis(100) } else { LONG });
        may_end.store(true, Ordering::SeqCst);
        got_in
    })
}

#[test]
fn a_slot_that_is_kept_is_not_given_up_by_a_wait() {
    assert!(a_third_gets_in(false), "a wait gives the slot up");
    assert!(!a_third_gets_in(true), "but for who keeps it");
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
