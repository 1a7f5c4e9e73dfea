//! What CPUs count and where they meet: counters, sets of CPUs, barriers, completions.

use crate::{Word, on};
use faultless_platform::native::{Machine, Native};
use faultless_platform::{MAX_CPUS, Ordering};
use faultless_sync::{AtomicCpuSet, Barrier, Completion, PerCpuCounter};

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
