//! Parents and children that have page tables in common (`translations::sharing`): what they see is what they would see
//! if every fork had copied all of them.

use crate::world::{RW, Random, Tested, World, anonymous};
use faultless_platform::native::{HostRegion, Machine, Native};
use faultless_platform::{Processor, Threads};
use faultless_vm::{
    AddressRange, Advice, Event, Guest, Limits, PAGE, PageRange, PinKind, Protection, RemapPlacement, RemapRequest,
    SpaceRef, VirtAddr,
};
use std::fmt::Write;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};

/// The first page of a table.
const BASE: u64 = 0x10_0000_0000;
const TABLE_PAGES: u64 = 512;
/// Three tables.
const NR_PAGES: u64 = 3 * TABLE_PAGES;
/// Where ranges begin and end: at and beside the tables' bounds, and between them.
const MARKS: [u64; 15] = [0, 1, 2, 200, 510, 511, 512, 513, 700, 1022, 1023, 1024, 1025, 1400, NR_PAGES];
const MOST_SPACES: usize = 4;

fn at(page: u64) -> VirtAddr {
    VirtAddr::new(BASE + page * PAGE)
}

fn limits(shared_table_bytes: u64) -> Limits {
    Limits { shared_table_bytes, ..Limits::default() }
}

impl Random {
    fn page(&mut self) -> u64 {
        MARKS[self.below(MARKS.len() - 1)]
    }

    fn addresses(&mut self) -> AddressRange {
        let (one, other) = (self.below(MARKS.len()), self.below(MARKS.len()));
        let (first, end) = (MARKS[one.min(other)], MARKS[one.max(other)]);
        AddressRange::new(at(first), (end - first).max(1) * PAGE)
    }
}

/// A space and who runs in it.
struct Member<'vm, D: Tested> {
    space: SpaceRef<'vm, Native, D>,
    guest: Guest<'vm, Native, D>,
}

impl<'vm, D: Tested> Member<'vm, D> {
    fn of(space: SpaceRef<'vm, Native, D>) -> Self {
        Self { guest: Guest::new(&space), space }
    }
}

/// Does something at random to one of a family; tells what came of it.
fn act<'vm, D: Tested>(family: &mut Vec<Member<'vm, D>>, random: &mut Random, mark: u64) -> String {
    let who = random.below(family.len());
    let Member { space, guest } = &family[who];
    let (range, page) = (random.addresses(), random.page());
    let mut said = String::new();
    let told = match random.below(20) {
        0 | 1 if family.len() < MOST_SPACES => {
            let child = space.fork();
            let told = format!("fork {:?}", child.as_ref().map(drop));
            family.extend(child.ok().map(Member::of));
            told
        }
        2 if family.len() > 1 => {
            family.remove(who);
            "end".to_owned()
        }
        3 => format!("mmap {range:?} {:?}", space.mmap(&anonymous(Some(range.start.get()), range.len_bytes))),
        4 => format!("munmap {range:?} {:?}", space.munmap(range)),
        5 | 6 => {
            let rights = [Protection::READ, RW.protection(), RW.protection(), Protection::empty()][random.below(4)];
            format!("mprotect {range:?} {rights:?} {:?}", space.mprotect(range, rights))
        }
        7..=9 => {
            const ADVICE: [Advice; 11] = [
                Advice::DontNeed,
                Advice::DontNeed,
                Advice::Free,
                Advice::PageOut,
                Advice::GuardInstall,
                Advice::GuardRemove,
                Advice::PopulateWrite,
                Advice::WipeOnFork,
                Advice::KeepOnFork,
                Advice::DontFork,
                Advice::DoFork,
            ];
            let advice = ADVICE[random.below(ADVICE.len())];
            format!("madvise {range:?} {advice:?} {:?}", space.madvise(range, advice))
        }
        10 => {
            let to = random.page();
            let placement = RemapPlacement::MoveTo(at(to));
            let request = RemapRequest {
                old: range,
                new_len_bytes: range.len_bytes,
                placement,
                keeps_source: to.is_multiple_of(2),
            };
            format!("mremap {range:?} to {to} {:?}", space.mremap(&request))
        }
        11 => {
            let whole = PageRange::new(range.start, range.len_bytes).expect("whole pages");
            space.collect_written(whole, &mut |page| write!(said, " {page:?}").expect("a string"));
            format!("written {range:?}{said}")
        }
        12 => match space.pin(at(page), [PinKind::Read, PinKind::Write, PinKind::LongTermRead][random.below(3)]) {
            Ok(pin) => {
                let mut words = [0];
                pin.read(0, &mut words);
                format!("pin {page} {words:?}")
            }
            Err(error) => format!("pin {page} {error:?}"),
        },
        13..=15 => format!("load {page} {:?}", guest.load(at(page)).map(|(word, _)| word)),
        _ => format!("store {page} {:?}", guest.store(at(page), mark).map(drop)),
    };
    format!("{who}: {told}")
}

/// Tells all that can be seen of a family, as far as looking changes nothing.
fn portrait<D: Tested>(family: &[Member<'_, D>]) -> String {
    let mut seen = String::new();
    for Member { space, .. } in family {
        write!(seen, "[{} pages, {} areas", space.resident_pages(), space.nr_areas()).expect("a string");
        space.for_each_area(|area| {
            let mut nr_in_memory = 0;
            let range = AddressRange::new(area.range.start(), area.range.len_bytes());
            let count = &mut |is_in_memory: bool| {
                nr_in_memory += u32::from(is_in_memory);
                ControlFlow::Continue(())
            };
            space.mincore(range, count).expect("mapped");
            write!(seen, " {:?} {:?} {nr_in_memory}", area.range, area.flags).expect("a string");
        });
        seen.push(']');
    }
    seen
}

/// Lets a family live; returns what was seen, and how many tables were shared.
fn lived<D: Tested>(seed: u64, shared_table_bytes: u64) -> (Vec<String>, u64) {
    let (mut seen, mut nr_shared) = (Vec::new(), 0);
    World::<D>::run(1, 64 << 20, |world| {
        let mut random = Random(seed);
        let mut family = vec![Member::of(world.vm.create_space(limits(shared_table_bytes)).expect("room"))];
        family[0].space.mmap(&anonymous(Some(BASE), NR_PAGES * PAGE)).expect("room");
        for mark in 1..=120 {
            seen.push(act(&mut family, &mut random, mark));
            seen.push(portrait(&family));
            if mark % 8 == 0 {
                world.check(&format!("seed {seed}, act {mark}: {}", seen[seen.len() - 2]));
            }
        }
        drop(family);
        world.vm.flush();
        world.check("when all have gone");
        nr_shared = world.vm.events().total(Event::TablesShared);
    });
    (seen, nr_shared)
}

/// Returns how many families live: as many as the environment says, or 40.
fn nr_families() -> u64 {
    std::env::var("FAULTLESS_FAMILIES").ok().and_then(|number| number.parse().ok()).unwrap_or(40)
}

for_each_design!(a_family_sees_what_it_would_see_if_forks_copied, D, {
    if D::SHARES_TABLES {
        let mut nr_shared = 0;
        for seed in 1..=nr_families() {
            let (copying, none) = lived::<D>(seed * 0x9e37_79b9, u64::MAX);
            let (sharing, some) = lived::<D>(seed * 0x9e37_79b9, 0);
            assert_eq!(none, 0, "nothing is shared where the limit forbids it");
            for (act, (shared, copied)) in sharing.iter().zip(&copying).enumerate() {
                assert_eq!(shared, copied, "seed {seed}, {act}, after {:?}", &sharing[act.saturating_sub(6)..act]);
            }
            nr_shared += some;
        }
        assert!(nr_shared > 5 * nr_families(), "{nr_shared} tables were shared");
    }
});

for_each_design!(a_table_is_copied_once_and_the_last_one_keeps_it, D, {
    World::<D>::run(2, 64 << 20, |world| {
        let space = world.space();
        let guest = Guest::new(&space);
        space.mmap(&anonymous(Some(BASE), NR_PAGES * PAGE)).expect("room");
        for page in 0..NR_PAGES {
            guest.store(at(page), page).expect("mapped");
        }
        let counts = || [Event::TablesShared, Event::TablesCopied].map(|event| world.vm.events().total(event));
        let child = Member::of(space.fork().expect("room"));
        if !D::SHARES_TABLES {
            return assert_eq!(counts(), [0, 0]);
        }
        assert_eq!((counts(), child.space.resident_pages()), ([3, 0], NR_PAGES));
        world.check("shared");
        assert_eq!(
            child.guest.load(at(5)).map(|(word, taken)| (word, taken.count)),
            Ok((5, 0)),
            "a load needs no fault"
        );
        assert_eq!(child.guest.store(at(5), 50).map(|taken| taken.count), Ok(1));
        assert_eq!(counts(), [3, 1]);
        assert_eq!(guest.store(at(6), 60).map(|taken| taken.count), Ok(1), "the last one keeps the table");
        assert_eq!(guest.store(at(1000), 1).map(|taken| taken.count), Ok(1), "the first one copies it");
        assert_eq!(counts(), [3, 2]);
        world.check("one each");
        let words = |of: &Guest<'_, Native, D>| [5, 6, 1000].map(|page| of.load(at(page)).expect("mapped").0);
        assert_eq!((words(&guest), words(&child.guest)), ([5, 60, 1], [50, 6, 1000]));
        // Three have the last table; two go.
        let grandchild = child.space.fork().expect("room");
        assert_eq!(grandchild.resident_pages(), NR_PAGES);
        drop(child);
        world.check("a child is gone");
        drop(grandchild);
        world.check("both are gone");
        assert_eq!(guest.store(at(1200), 1).map(|taken| taken.count), Ok(1));
        assert_eq!(guest.store(at(1201), 1).map(|taken| taken.count), Ok(0), "its pages are the parent's own again");
        assert_eq!((counts()[1], space.resident_pages()), (2, NR_PAGES));
    });
});

for_each_design!(a_page_that_a_child_pinned_does_not_show_what_the_parent_stores_later, D, {
    World::<D>::run(2, 64 << 20, |world| {
        let space = world.vm.create_space(limits(0)).expect("room");
        let guest = Guest::new(&space);
        space.mmap(&anonymous(Some(BASE), TABLE_PAGES * PAGE)).expect("room");
        guest.store(at(3), 1).expect("mapped");
        let child = space.fork().expect("room");
        let pin = child.pin(at(3), PinKind::Read).expect("mapped");
        drop(child);
        guest.store(at(3), 2).expect("mapped");
        let mut words = [0];
        pin.read(0, &mut words);
        assert_eq!((words, guest.load(at(3)).expect("mapped").0), ([1], 2));
    });
});

for_each_design!(a_page_that_a_parent_pinned_does_not_show_what_its_child_stores_later, D, {
    World::<D>::run(2, 64 << 20, |world| {
        let parent = Member::of(world.vm.create_space(limits(0)).expect("room"));
        parent.space.mmap(&anonymous(Some(BASE), TABLE_PAGES * PAGE)).expect("room");
        parent.guest.store(at(3), 1).expect("mapped");
        let pin = parent.space.pin(at(3), PinKind::Write).expect("mapped");
        let child = Member::of(parent.space.fork().expect("room"));
        drop(parent);
        child.guest.store(at(3), 2).expect("mapped");
        let mut words = [0];
        pin.read(0, &mut words);
        assert_eq!(words, [1]);
        assert!(pin.write(0, &[7]));
        assert_eq!(child.guest.load(at(3)).expect("mapped").0, 2);
    });
});

for_each_design!(stores_go_on_while_a_space_is_forked_again_and_again, D, {
    const NR_THREADS: usize = 3;
    const NR_FORKS: u64 = 60;
    let region = HostRegion::reserve(128 << 20).expect("the host has room");
    let machine = Machine::new(NR_THREADS);
    let world = machine.attach(|| World::<D>::new(&region, NR_THREADS));
    let space = machine.attach(|| {
        let space = world.vm.create_space(limits(0)).expect("room");
        space.mmap(&anonymous(Some(BASE), NR_PAGES * PAGE)).expect("room");
        let guest = Guest::new(&space);
        for page in 0..NR_PAGES {
            guest.store(at(page), 1).expect("mapped");
        }
        drop(guest);
        space
    });
    let nr_forks = AtomicU64::new(0);
    Native::run(&machine, NR_THREADS, &|thread| {
        Native::enter();
        let guest = Guest::new(&space);
        if thread == 0 {
            for _ in 0..NR_FORKS {
                let child = Member::of(space.fork().expect("room"));
                // What the child sees stays, whatever the parent's threads store.
                let seen = |page| child.guest.load(at(page)).expect("mapped").0;
                let first: Vec<u64> = MARKS[..14].iter().map(|&page| seen(page)).collect();
                child.guest.store(at(700), 0).expect("mapped");
                assert_eq!(child.space.resident_pages(), NR_PAGES);
                let second: Vec<u64> = MARKS[..14].iter().map(|&page| seen(page)).collect();
                let same = |index: usize| MARKS[index] == 700 || first[index] == second[index];
                assert!((0..14).all(same), "{first:?}, later {second:?}");
                nr_forks.fetch_add(1, Ordering::SeqCst);
            }
        } else {
            // Each word only grows: a store that a fork loses would be seen.
            let mut value = 1;
            while nr_forks.load(Ordering::SeqCst) < NR_FORKS {
                value += 1;
                for page in MARKS[..14].iter().map(|mark| mark + thread as u64 - 1) {
                    let word = VirtAddr::new(at(page).get() + 8 * thread as u64);
                    guest.store(word, value).expect("mapped");
                    assert_eq!(guest.load(word).expect("mapped").0, value, "page {page}");
                }
                match value % 16 {
                    0 => space.madvise(AddressRange::new(at(300), 8 * PAGE), Advice::PopulateWrite).expect("mapped"),
                    8 => space.mprotect(AddressRange::new(at(800), 4 * PAGE), RW.protection()).expect("mapped"),
                    _ => {}
                }
            }
        }
        drop(guest);
        Native::leave();
    });
    machine.attach(|| {
        assert_eq!(space.resident_pages(), NR_PAGES);
        world.check("at the end");
    });
});
