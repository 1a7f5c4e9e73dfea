//! Page tables that a parent and its child have in common (`translations::sharing`), one switch at every step.

use super::*;

type D = Faultless<Rwsem<Explore>>;

/// The first of five pages in a table of their own, of which four are touched: the last table of user memory, which
/// spans a page that is nobody's.
const TABLE: u64 = 0x7fff_ffe0_0000;

fn page(number: u64) -> VirtAddr {
    VirtAddr::new(TABLE + number * PAGE)
}

/// Returns a space with pages, each of which holds 1, and a child that has their table, too.
fn family<'vm>(vm: &'vm Vm<Explore, D>) -> Stage<'vm, D> {
    let mut stage = Stage::new(vm, Sharers::Nobody);
    stage.guests.clear();
    let limits = Limits { shared_table_bytes: 0, ..Limits::default() };
    stage.space = vm.create_space(limits).expect("room");
    stage.guests = (0..NR_CPUS).map(|_| Guest::new(&stage.space)).collect();
    let request = MapRequest {
        placement: Placement::Fixed(page(0)),
        len_bytes: 5 * PAGE,
        protection: Protection::READ | Protection::WRITE,
        options: MapOptions::empty(),
        backing: Backing::Anonymous,
        populate: Populate::OnFault,
    };
    stage.space.mmap(&request).expect("room");
    for number in 0..4 {
        stage.guests[0].store(page(number), 1).expect("mapped");
    }
    let shared = vm.events().total(Event::TablesShared);
    stage.child = Some(stage.space.fork().expect("room"));
    assert_eq!(vm.events().total(Event::TablesShared), shared + 1, "the child has the parent's table");
    stage
}

/// Plays a program once for each step of CPU 0, or each `stride`-th, and each CPU that may come in there.
fn in_every_order_of_a_family(
    stride: u64,
    play: impl Fn(&Stage<'_, D>, usize) + Sync,
    judge: impl Fn(&Stage<'_, D>) -> Result<(), String> + Sync + Send,
) {
    with_instance::<D>(|machine, vm| {
        for other in 1..NR_CPUS {
            let mut step = 1_u64;
            loop {
                let stage = machine.alone(|| family(vm));
                let run = play_once((machine, vm), stage, vec![Switch { from: 0, step, to: other }], &play, &judge);
                step += stride;
                if step > run.steps[0] {
                    break;
                }
            }
            assert!(step > 10, "{step} orders");
        }
    });
}

/// A thread of the parent goes on to a table of the space's own, and then the child changes the one that it has left.
fn leave_and_change(stage: &Stage<'_, D>) {
    // What is dropped is not there: nothing but the table is shot down.
    stage.space.madvise(AddressRange::new(page(4), PAGE), Advice::DontNeed).expect("mapped");
    let child = stage.child.as_ref().expect("there is one");
    Guest::new(child).store(page(0), 99).expect("mapped");
}

// CPU 0 may be half way between both tables.
#[test]
fn a_walk_that_has_come_to_a_table_ends_there_before_others_change_it() {
    in_every_order_of_a_family(
        1,
        |stage, cpu| match cpu {
            0 => stage.owed[0].store(stage.guests[0].load(page(0)).expect("mapped").0, Ordering::Relaxed),
            1 => leave_and_change(stage),
            _ => {}
        },
        |stage| match stage.owed[0].load(Ordering::Relaxed) {
            1 => Ok(()),
            other => Err(format!("the parent's page holds {other}")),
        },
    );
}

#[test]
fn an_entry_that_is_read_beside_others_is_the_spaces_own() {
    in_every_order_of_a_family(
        1,
        |stage, cpu| match cpu {
            0 => stage.owed[0].store(u64::from(stage.space.entry_at(page(0)).pfn().get()), Ordering::Relaxed),
            1 => leave_and_change(stage),
            _ => {}
        },
        |stage| {
            let (seen, own) = (stage.owed[0].load(Ordering::Relaxed), stage.space.entry_at(page(0)).pfn());
            if seen == u64::from(own.get()) {
                Ok(())
            } else {
                Err(format!("frame {seen:#x} was seen in place of {own}"))
            }
        },
    );
}

// The second fork waits for faults, some of which wait for the first one's child.
#[test]
fn forks_and_ends_beside_stores_lose_nothing() {
    in_every_order_of_a_family(
        5,
        |stage, cpu| match cpu {
            0 => {
                let second = stage.space.fork().expect("room");
                assert_eq!(Guest::new(&second).load(page(1)).expect("mapped").0, 1, "nobody stores there");
                drop(second);
            }
            _ => {
                let word = VirtAddr::new(page(0).get() + cpu as u64 * 8);
                stage.guests[cpu].store(word, cpu as u64).expect("mapped");
                stage.owed[cpu].store(1, Ordering::Relaxed);
            }
        },
        |stage| {
            let child = Guest::new(stage.child.as_ref().expect("there is one"));
            let seen = [0, 1, 2].map(|word| child.load(VirtAddr::new(page(0).get() + word * 8)).expect("mapped").0);
            if seen != [1, 0, 0] {
                return Err(format!("the child sees {seen:?}"));
            }
            nothing_is_lost(stage, page(0).get())
        },
    );
}
