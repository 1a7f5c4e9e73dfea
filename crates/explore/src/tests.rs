//! The engine, seen through the traits.

use super::{Arena, Explore, Kind, Machine, Policy, Run, Switch, note, stamp, standing_still};
use faultless_platform::{Atomic, AtomicInteger, CpuSet, Ordering, Platform, Processor, Threads};
use std::sync::Mutex;

type Word = <Explore as Processor>::AtomicU64;
type Word32 = <Explore as Processor>::AtomicU32;

const ORDER: Ordering = Ordering::SeqCst;

/// Two threads that add one by a load and a store: one update may be lost.
fn add_twice(policy: Policy) -> (Run, u64) {
    let word = Word::new(0);
    let run = Machine::new(2).explore(2, policy, &|_| {
        Explore::enter();
        let seen = word.load(ORDER);
        word.store(seen + 1, ORDER);
        Explore::leave();
    });
    (run, word.load(ORDER))
}

fn priorities(seed: u64) -> Policy {
    let mut random = super::Random::new(seed);
    let mut order = vec![0, 1];
    random.shuffle(&mut order);
    Policy::Priorities { order, drops: vec![(random.below(2) as usize, 1 + random.below(8))] }
}

#[test]
fn in_turn_no_update_is_lost_and_both_policies_lose_one() {
    let (run, sum) = add_twice(Policy::in_turn(1));
    assert_eq!((sum, run.first, run.switches.len(), &run.outcome), (2, 1, 0, &Ok(())));
    let lost = |policy: &dyn Fn(u64) -> Policy| (0..200).filter(|&seed| add_twice(policy(seed)).1 == 1).count();
    assert!(lost(&|seed| Policy::Random { seed, period: 3 }) > 10);
    assert!(lost(&priorities) > 10);
}

#[test]
fn a_run_is_replayed_by_its_switches() {
    let mut nr_switched = 0;
    for seed in 0..300 {
        for policy in [Policy::Random { seed, period: 2 + seed % 5 }, priorities(seed)] {
            let (run, sum) = add_twice(policy);
            let policy = Policy::Replay { first: run.first, switches: run.switches.clone() };
            assert_eq!(add_twice(policy), (run.clone(), sum));
            nr_switched += usize::from(!run.switches.is_empty());
        }
    }
    assert!(nr_switched > 100);
}

#[test]
fn a_switch_can_come_before_and_after_every_access() {
    let both = |step| add_twice(Policy::Replay { first: 0, switches: vec![Switch { from: 0, step, to: 1 }] }).1;
    let sums: Vec<u64> = (1..=8).map(both).collect();
    // Between the load and the store, from either side; nowhere else.
    assert_eq!(sums.iter().filter(|&&sum| sum == 1).count(), 2, "{sums:?}");
}

#[test]
fn a_panic_is_caught_with_its_words_and_locks_nobody_up() {
    let (machine, word) = (Machine::new(2), Word::new(0));
    struct Unlock<'a>(&'a Word);
    impl Drop for Unlock<'_> {
        fn drop(&mut self) {
            // Would wait for ever: nobody else runs any more.
            Explore::spin_until(|| self.0.load(ORDER) == 7);
        }
    }
    let run = machine.explore(2, Policy::in_turn(0), &|thread| {
        Explore::enter();
        note(format!("part {thread}"));
        let _unlock = Unlock(&word);
        assert_ne!(thread, 0, "thread zero fails");
        word.store(7, ORDER);
    });
    let failure = run.outcome.expect_err("it failed");
    assert_eq!((failure.kind, failure.place.as_str()), (Kind::Panic, "thread 0 on CPU 0 in part 0"));
    assert!(failure.message.contains("thread zero fails") && failure.message.contains("tests.rs"), "{failure}");
    assert_eq!(add_twice(Policy::in_turn(0)).1, 2, "the next run is not disturbed");
}

#[test]
fn a_deadlock_says_who_waits_where() {
    let words = [Word32::new(0), Word32::new(0)];
    let run = Machine::new(2).explore(3, Policy::in_turn(0), &|thread| {
        Explore::enter();
        match thread {
            0 => Explore::park(&words[0], 0),
            1 => Explore::spin_until(|| words[1].load(ORDER) == 1),
            _ => Explore::spin_until(|| words[1].load(ORDER) == 2),
        }
    });
    let failure = run.outcome.expect_err("they wait for ever");
    assert_eq!(failure.kind, Kind::Deadlock);
    for part in ["thread 0 sleeps at", "thread 1 on CPU", "waits awake at", "tests.rs"] {
        assert!(failure.message.contains(part), "{failure}");
    }
}

#[test]
fn who_never_ends_is_stopped() {
    let word = Word::new(0);
    let run = Machine::new(1).with_step_limit(1000).explore(1, Policy::in_turn(0), &|_| {
        Explore::enter();
        loop {
            word.fetch_add(1, ORDER);
        }
    });
    assert_eq!(run.outcome.expect_err("it never ends").kind, Kind::Endless);
}

#[test]
fn freed_memory_is_not_touched() {
    let machine = Machine::with_arena(1, Arena::new(8192).expect("room"));
    let base = machine.arena().map(|arena| arena.base().as_ptr().expose_provenance()).expect("it has one");
    let at = |offset: usize| std::ptr::with_exposed_provenance_mut::<u8>(base + offset);
    let run = machine.explore(1, Policy::in_turn(0), &|_| {
        Explore::enter();
        Explore::forbid(at(0), 64);
        // SAFETY: inside the arena, aligned, and accessed atomically only.
        let word = |offset| unsafe { <Word as faultless_platform::InPlace>::view(at(offset).cast()) };
        word(64).store(1, ORDER);
        word(56).store(1, ORDER);
    });
    let failure = run.outcome.expect_err("it is forbidden");
    assert_eq!((failure.kind, failure.message.as_str()), (Kind::Freed, "access to freed memory: byte 56 of frame 0"));
    // SAFETY: the run is over.
    assert_eq!(unsafe { at(56).cast::<u64>().read() }, 0);
}

#[test]
fn shootdown_waits_for_a_cpu_in_guest_under_every_schedule() {
    for seed in 0..500 {
        let (machine, in_guest, gone) = (Machine::new(2), Word::new(0), Word::new(0));
        let run = machine.explore(2, Policy::Random { seed, period: 1 + seed % 7 }, &|thread| {
            Explore::enter();
            if thread == 0 {
                // SAFETY: a request that is pending is drained at once: nothing is translated here.
                let _ = unsafe { Explore::guest_enter() };
                in_guest.store(1, ORDER);
                let was_gone = gone.load(ORDER);
                let is_gone = gone.load(ORDER);
                assert_eq!(was_gone, is_gone, "the shootdown returned while the CPU was in guest");
                // SAFETY: as above.
                unsafe { Explore::guest_exit() };
            } else {
                let before = in_guest.load(ORDER);
                let mut targets = CpuSet::new();
                targets.insert(0);
                targets.insert(1);
                Explore::shoot_down(&targets, |_| false);
                gone.store(before, ORDER);
            }
        });
        assert_eq!(run.outcome, Ok(()), "seed {seed}");
    }
}

#[test]
fn sleepers_are_woken_in_order_and_cpus_go_to_the_first_in_line() {
    for seed in 0..300 {
        let (word, order) = (Word32::new(0), Mutex::new(Vec::new()));
        let run = Machine::new(1).explore(3, Policy::Random { seed, period: 2 }, &|thread| {
            Explore::enter();
            if thread == 2 {
                // Both asleep, or not come yet.
                word.store(1, ORDER);
                Explore::unpark(&word, 2);
            } else {
                while word.load(ORDER) == 0 {
                    Explore::park(&word, 0);
                }
                order.lock().expect("nobody panicked").push(thread);
            }
            Explore::leave();
        });
        assert_eq!(run.outcome, Ok(()), "seed {seed}");
        assert_eq!(order.lock().expect("nobody panicked").len(), 2);
    }
}

#[test]
fn the_clock_goes_on_when_all_wait_for_a_time_and_stands_still_when_told() {
    let times = Mutex::new(Vec::new());
    Explore::run(&Machine::new(2), 2, &|thread| {
        Explore::enter();
        Explore::work(1000 * (2 - thread as u64));
        times.lock().expect("nobody panicked").push((thread, Explore::now()));
        let (before, after) = standing_still(|| (stamp(), stamp()));
        assert_eq!(after, before);
    });
    let times = times.into_inner().expect("nobody panicked");
    assert!(times[0].0 == 1 && times[0].1 >= 1000 && times[1].1 >= 2000, "{times:?}");
}

#[test]
fn a_pointer_into_nowhere_ends_the_run_and_not_the_process() {
    for address in [0x7000_0000_1000_usize, 0xdead_f4ee_dead_f4ee & !7] {
        let run = Machine::new(1).explore(1, Policy::in_turn(0), &|_| {
            Explore::enter();
            let nowhere = std::ptr::with_exposed_provenance::<u64>(std::hint::black_box(address));
            // SAFETY: none; this is what must be caught.
            let value = unsafe { nowhere.read_volatile() };
            note(format!("the value {value}"));
        });
        let failure = run.outcome.expect_err("nothing is there");
        assert_eq!(failure.kind, Kind::Crash, "{failure}");
    }
    assert_eq!(add_twice(Policy::in_turn(0)).1, 2, "the next run is not disturbed");
}
