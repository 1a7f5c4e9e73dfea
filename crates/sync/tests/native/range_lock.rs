//! Range locks: what is claimed together, and what is given out again after somebody had everything.

use faultless_platform::native::{Machine, Native};
use faultless_sync::{Claim, RangeLock, RangeWriteGuard, RwSemaphore, Rwsem};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

type Lock = RangeLock<Native, Rwsem<Native>>;

/// Runs `test` with a lock that gives out parts.
fn with_divided(test: impl FnOnce(&Lock)) {
    let lock = Lock::new(Rwsem::new());
    Machine::new(1).attach(|| {
        lock.write().divide();
        test(&lock);
        assert!(!lock.semaphore().is_locked());
    });
}

/// Locks a part for writing.
fn part(lock: &Lock, start: u64, nr_added: u64, bytes_added: u64) -> RangeWriteGuard<'_, Native, Rwsem<Native>> {
    lock.write_part(&mut |_| Some(Claim { start, end: start + 2, nr_added, bytes_added })).0
}

#[test]
fn what_holders_of_parts_may_add_is_counted_for_all_of_them() {
    with_divided(|lock| {
        let (first, second, third) = (part(lock, 0, 1, 10), part(lock, 10, 2, 20), part(lock, 20, 4, 40));
        assert_eq!(lock.table().claimed(), (7, 70));
        let third = lock.downgrade(third);
        assert_eq!(lock.table().claimed(), (3, 30), "who looks adds nothing");
        drop(first);
        assert_eq!(lock.table().claimed(), (2, 20), "behind an empty place");
        let most = part(lock, 0, u64::MAX >> 1, u64::MAX);
        assert_eq!(lock.table().claimed(), ((u64::MAX >> 1) + 2, u64::MAX), "no sum goes round");
        drop((second, third, most));
        assert_eq!(lock.table().claimed(), (0, 0));
    });
}

/// A range that wraps around ends at 0, which once was also the mark of an empty place: the next part was entered into
/// the same place, and went when the reader of nothing did.
#[test]
fn a_part_of_no_place_takes_no_other_part_with_it() {
    with_divided(|lock| {
        for (start, end) in [(u64::MAX - 7, 0), (0, 0), (7, 5), (5, 5)] {
            let nothing = start..end;
            let reader = lock.read(nothing.clone());
            let tried = lock.try_read(nothing.clone()).expect("readers share");
            let writer = part(lock, 10, 1, 1);
            assert_eq!(lock.table().claimed(), (1, 1), "beside a reader of {nothing:?}");
            drop((reader, tried));
            assert_eq!(lock.table().claimed(), (1, 1), "after a reader of {nothing:?}");
            assert!(lock.try_read(10..11).is_none());
            drop(writer);

            let claim = Claim { start: nothing.start, end: nothing.end, ..Claim::default() };
            let empty_writer = lock.write_part(&mut |_| Some(claim)).0;
            let writer = part(lock, 10, 1, 1);
            drop(empty_writer);
            assert!(lock.try_read(10..11).is_none(), "after a writer of {nothing:?}");
            drop(writer);
            assert!(lock.try_read(10..11).is_some());
        }
    });
}

#[test]
fn parts_are_given_out_again_after_somebody_had_everything() {
    with_divided(|lock| {
        let are_given_out = || {
            let (low, high) = (part(lock, 0, 0, 0), part(lock, 10, 0, 0));
            lock.is_divided() && !low.is_whole() && !high.is_whole()
        };
        assert!(are_given_out());
        let all = lock.write();
        assert!(all.is_whole() && lock.try_read(0..1).is_none());
        drop(all);
        assert!(are_given_out(), "after a writer of everything");

        let all = lock.downgrade(lock.write());
        assert!(lock.try_read(5..6).is_some(), "others look, too");
        drop(all);
        assert!(part(lock, 0, 0, 0).is_whole(), "the next one has everything");
        assert!(lock.is_divided(), "and no one after it");
        assert!(are_given_out(), "after one that let others look, and the next");
    });
}

#[test]
fn who_meets_a_part_while_somebody_waits_for_everything_comes_behind_him_and_gets_a_part() {
    // With so many CPUs one waits awake for milliseconds: time enough for somebody else to get in line.
    let (lock, machine) = (Lock::new(Rwsem::new()), Machine::new(512));
    machine.attach(|| lock.write().divide());
    let comes_behind = || {
        let has_asked = AtomicBool::new(false);
        thread::scope(|scope| {
            machine.attach(|| {
                let held = part(&lock, 0, 0, 0);
                let second = scope.spawn(|| {
                    machine.attach(|| {
                        let (write, _) = lock.write_part(&mut |_| {
                            has_asked.store(true, Ordering::Relaxed);
                            Some(Claim { start: 1, end: 3, ..Claim::default() })
                        });
                        !write.is_whole()
                    })
                });
                while !has_asked.load(Ordering::Relaxed) {
                    thread::yield_now();
                }
                let third = scope.spawn(|| machine.attach(|| assert!(lock.write().is_whole())));
                // Longer than anybody waits awake.
                thread::sleep(Duration::from_millis(10));
                drop(held);
                third.join().expect("it had everything");
                second.join().expect("it had something")
            })
        })
    };
    // Where the third thread comes late, the second has everything: rightly.
    assert!((0..50).any(|_| comes_behind()), "each time it took everything");
    assert!(!lock.semaphore().is_locked());
}
