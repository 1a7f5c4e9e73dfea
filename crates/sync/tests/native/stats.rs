//! What is counted of waits and holds.

use crate::on_machine;
use faultless_platform::Processor;
use faultless_platform::native::{Machine, Native};
use faultless_sync::{Completion, Generation, LockStats, RwSemaphore, Rwsem, SEMAPHORES, Side, Timed};
use std::sync::Arc;

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
