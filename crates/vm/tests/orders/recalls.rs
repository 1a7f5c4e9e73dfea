//! Faults that go by what earlier ones found (`design::recall`), beside changes of the same area.

use super::*;

type D = Faultless<Rwsem<Explore>>;

/// Pages of the area: one that is touched first, one that changes, and others.
const NR_PAGES: u64 = 4;
/// Mappings after which a CPU that has looked is forgotten: as many as a batch of deferred frees has, and some more.
const NR_MAPPINGS: u64 = 100;

fn mapping(placement: Placement, nr_pages: u64) -> MapRequest<'static, Explore> {
    MapRequest {
        placement,
        len_bytes: nr_pages * PAGE,
        protection: Protection::READ | Protection::WRITE,
        options: MapOptions::empty(),
        backing: Backing::Anonymous,
        populate: Populate::OnFault,
    }
}

/// Has one CPU do something, while nobody else does anything.
fn on_cpu(machine: &Machine, actor: usize, act: impl Fn() + Sync) {
    let run = machine.explore(NR_CPUS, Policy::in_turn(0), &|cpu| {
        Explore::enter();
        if cpu == actor {
            act();
        }
        Explore::leave();
    });
    run.outcome.unwrap_or_else(|failure| panic!("{}", failure.message));
}

/// Returns a space with an area in the range of CPU 0, which CPU 1 recalls, and its address.
fn set_up<'vm>(machine: &Machine, vm: &'vm Vm<Explore, D>) -> (Stage<'vm, D>, u64) {
    let stage = machine.alone(|| {
        let mut stage = Stage::new(vm, Sharers::Nobody);
        stage.guests.clear();
        stage.space =
            vm.create_space(Limits { placement: PlacementPolicy::Spread, ..Limits::default() }).expect("room");
        stage.guests = (0..NR_CPUS).map(|_| Guest::new(&stage.space)).collect();
        let area = stage.space.mmap(&mapping(Placement::Anywhere, NR_PAGES)).expect("room").get();
        stage.guests[0].store(VirtAddr::new(area), 1).expect("mapped");
        stage.owed[0].store(area, Ordering::Relaxed);
        stage
    });
    let area = stage.owed[0].load(Ordering::Relaxed);
    on_cpu(machine, 1, || {
        // The second fault keeps what it finds.
        for _ in 0..2 {
            stage.guests[1].store(VirtAddr::new(area + PAGE), 1).expect("mapped");
            stage.space.madvise(AddressRange::new(VirtAddr::new(area + PAGE), PAGE), Advice::DontNeed).expect("mapped");
        }
    });
    (stage, area)
}

/// Plays a change of CPU 0 beside a fault of CPU 1 on the area's last page, the fault first, as far as to each of its
/// steps, and the change in it.
fn beside_a_fault(
    prepare: impl Fn(&Machine, &Stage<'_, D>, u64),
    change: impl Fn(&Stage<'_, D>, u64) + Sync,
    judge: impl Fn(&Stage<'_, D>, VirtAddr) -> Result<(), String> + Sync + Send,
) -> usize {
    let mut nr_runs = 0;
    with_instance::<D>(|machine, vm| {
        let fault = |stage: &Stage<'_, D>, area: u64| {
            _ = stage.space.handle_fault(VirtAddr::new(area + PAGE), Access::Write, Mode::User);
        };
        let mut back = 1;
        loop {
            let (stage, area) = set_up(machine, vm);
            prepare(machine, &stage, area);
            let play = |stage: &Stage<'_, D>, cpu: usize| match cpu {
                0 => change(stage, area),
                1 => fault(stage, area),
                _ => {}
            };
            let switches = vec![Switch { from: 0, step: 1, to: 1 }, Switch { from: 1, step: back, to: 0 }];
            let run = play_once((machine, vm), stage, switches, play, |stage| judge(stage, VirtAddr::new(area + PAGE)));
            nr_runs += 1;
            back += 1;
            if back > run.steps[1] {
                break;
            }
        }
    });
    nr_runs
}

fn nothing_is_left(stage: &Stage<'_, D>, page: VirtAddr) -> Result<(), String> {
    let entry = stage.space.entry_at(page);
    if entry.is_empty() { Ok(()) } else { Err(format!("{entry:?} is left of what was unmapped")) }
}

#[test]
fn a_fault_that_recalls_an_area_finds_nothing_in_what_was_unmapped_meanwhile() {
    let nr_runs = beside_a_fault(
        |_, _, _| (),
        |stage, area| stage.space.munmap(AddressRange::new(VirtAddr::new(area + PAGE), PAGE)).expect("a range"),
        nothing_is_left,
    );
    assert!(nr_runs > 40, "{nr_runs} orders");
}

#[test]
fn a_fault_that_recalls_an_area_has_the_rights_of_before_or_after() {
    beside_a_fault(
        |_, _, _| (),
        |stage, area| {
            let page = AddressRange::new(VirtAddr::new(area + PAGE), PAGE);
            stage.space.mprotect(page, Protection::READ).expect("mapped");
        },
        |stage, page| {
            let stored = stage.guests[0].store(page, 2);
            if stored.is_ok() { Err("stores are let in".into()) } else { Ok(()) }
        },
    );
}

// Mappings are noted in no stamp: so the area is recalled although the one who does so was forgotten as a looker.
#[test]
fn a_cpu_that_was_forgotten_as_a_looker_and_recalls_an_area_is_waited_for() {
    beside_a_fault(
        |machine, stage, area| {
            on_cpu(machine, 0, || {
                for number in 1..=NR_MAPPINGS {
                    let below = VirtAddr::new(area - 4 * number * PAGE);
                    stage.space.mmap(&mapping(Placement::Fixed(below), 1)).expect("room");
                }
            });
        },
        |stage, area| stage.space.munmap(AddressRange::new(VirtAddr::new(area), NR_PAGES * PAGE)).expect("a range"),
        nothing_is_left,
    );
}

// What two faults find while another page of the area loses a right is gone by for none of that page.
#[test]
fn an_area_is_not_recalled_as_it_was_when_a_change_had_begun() {
    with_instance::<D>(|machine, vm| {
        let mut step = 1;
        loop {
            let (stage, area) = set_up(machine, vm);
            let page = |number: u64| VirtAddr::new(area + number * PAGE);
            let policy = Policy::Replay { first: 0, switches: vec![Switch { from: 0, step, to: 1 }] };
            let run = machine.explore(NR_CPUS, policy, &|cpu| {
                Explore::enter();
                match cpu {
                    0 => stage.space.mprotect(AddressRange::new(page(1), PAGE), Protection::READ).expect("mapped"),
                    1 => [2, 3].into_iter().for_each(|other| {
                        _ = stage.space.handle_fault(page(other), Access::Write, Mode::User);
                    }),
                    _ => {}
                }
                Explore::leave();
            });
            run.outcome.as_ref().unwrap_or_else(|failure| panic!("step {step}: {}", failure.message));
            on_cpu(machine, 1, || {
                let stored = stage.guests[1].store(page(1), 2);
                assert!(stored.is_err(), "step {step}: stores are let in");
            });
            machine.alone(|| drop(stage));
            step += 1;
            if step > run.steps[0] {
                break;
            }
        }
        assert!(step > 40, "{step} orders");
    });
}
