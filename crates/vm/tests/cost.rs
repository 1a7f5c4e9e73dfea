//! What a fault and a pair of map calls do to memory, counted: figures that depend on the code alone.
//!
//! A change of these figures is a change of cost. If it is meant, change the table here and say why in the commit.
//! `writes to shared lines` are those to lines that a second CPU used before: here, one that faults in the same area.

use faultless_phys::{Memory, Options};
use faultless_platform::count::{Count, Figures, Machine};
use faultless_platform::native::HostRegion;
use faultless_platform::{Processor, Threads};
use faultless_sync::RwsemV8;
use faultless_vm::design::{Design, MmapSem, SpfV11};
use faultless_vm::{AreaFlags, Backing, Event, Guest, Limits, MapRequest, PAGE, Placement, Populate, Vm};
use std::sync::{Barrier, Mutex};

const BASE: u64 = 0x10_0000_0000;

fn request(at: u64, nr_pages: u64) -> MapRequest<'static, Count> {
    MapRequest {
        placement: Placement::Fixed(at),
        len_bytes: nr_pages * PAGE,
        flags: AreaFlags::READ | AreaFlags::WRITE,
        backing: Backing::Anonymous,
        populate: Populate::OnFault,
    }
}

/// What was counted.
struct Cost {
    fault: Figures,
    map_pair: Figures,
    spf: u64,
}

/// Counts on CPU 0, after CPU 1 has done the same in the same space.
fn measure<D: Design<Count>>() -> Cost {
    let region = HostRegion::reserve(64 << 20).expect("the host has room");
    let machine = Machine::new(2);
    let result = Mutex::new(None);
    // std's barrier: it keeps the slot while it waits, so that thread and slot have one number.
    let barrier = Barrier::new(2);
    let slot = Mutex::new(None);
    // SAFETY: the region is zeroed, ours alone, and outlives the instance.
    let memory = unsafe { Memory::<Count>::new(region.base(), region.len_bytes(), 2, Options::default()) };
    let vm = machine.attach(|| Vm::<Count, D>::new(memory.expect("large enough")).expect("a zero page"));
    let space = machine.attach(|| {
        let space = vm.create_space(Limits::default()).expect("room");
        space.mmap(&request(BASE, 64)).expect("room");
        space
    });
    Count::run(&machine, 2, &|thread| {
        // Thread 0 takes slot 0, thread 1 slot 1: one after the other.
        while thread == 1 && slot.lock().expect("no panic").is_none() {
            std::thread::yield_now();
        }
        Count::enter();
        *slot.lock().expect("no panic") = Some(());
        assert_eq!(Count::cpu(), thread);
        let guest = Guest::new(&space);
        let own = BASE + 0x4000_0000 * (thread as u64 + 1);
        let mut pages = (thread as u64..64).step_by(2).map(|page| BASE + page * PAGE);
        let mut fault = || {
            let taken = guest.store(pages.next().expect("enough pages"), 1).expect("mapped");
            assert_eq!(taken.count, 1);
        };
        let pair = || {
            space.mmap(&request(own, 16)).expect("room");
            space.munmap(own, 16 * PAGE).expect("valid");
        };
        // Both warm up, CPU 1 last, so that every line that both use was used by CPU 1 before CPU 0 is counted.
        for turn in [0, 1, 0, 1] {
            if turn == thread {
                (0..4).for_each(|_| fault());
                (0..4).for_each(|_| pair());
            }
            barrier.wait();
        }
        if thread == 0 {
            let spf = vm.events().total(Event::Spf);
            let start = machine.figures(0);
            fault();
            let middle = machine.figures(0);
            let spf = vm.events().total(Event::Spf) - spf;
            let before_pair = machine.figures(0);
            pair();
            let end = machine.figures(0);
            *result.lock().expect("no panic") = Some(Cost { fault: middle - start, map_pair: end - before_pair, spf });
        }
        barrier.wait();
        drop(guest);
        Count::leave();
    });
    machine.attach(|| drop(space));
    machine.attach(|| drop(vm));
    result.into_inner().expect("no panic").expect("thread 0 counted")
}

fn show(name: &str, what: &str, figures: Figures) {
    println!(
        "{name:10} {what:14} atomics {:4}  read-modify-writes {:3}  fences {:2}  writes to shared lines {:3}",
        figures.atomics, figures.read_modify_writes, figures.fences, figures.shared_writes
    );
}

#[test]
fn figures_are_deterministic_and_as_recorded() {
    let costs = [
        ("mmap-sem", measure::<MmapSem<RwsemV8<Count>>>(), measure::<MmapSem<RwsemV8<Count>>>()),
        ("spf-v11", measure::<SpfV11<RwsemV8<Count>>>(), measure::<SpfV11<RwsemV8<Count>>>()),
    ];
    for (name, cost, again) in &costs {
        show(name, "anonymous fault", cost.fault);
        show(name, "mmap + munmap", cost.map_pair);
        assert_eq!((cost.fault, cost.map_pair), (again.fault, again.map_pair), "{name} differs between two runs");
        assert_eq!(cost.spf, u64::from(*name == "spf-v11"));
    }
    let figures = costs.map(|(_, cost, _)| [cost.fault, cost.map_pair]);
    let rows = figures.map(|pair| pair.map(|f| (f.atomics, f.read_modify_writes, f.fences, f.shared_writes)));
    // atomics, read-modify-writes, fences, writes to shared lines; the last as the designs' tables say
    let mmap_sem = [(48, 3, 3, 5), (108, 10, 3, 18)];
    let spf_v11 = [(66, 5, 8, 7), (119, 15, 5, 22)];
    assert_eq!(rows, [mmap_sem, spf_v11]);
}
