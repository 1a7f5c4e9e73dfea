//! What a fault and each call do to memory, counted: figures that depend on the code alone.
//!
//! A change of these figures is a change of cost. If it is meant, change the table here and say why in the commit.
//! `writes to shared lines` are those to lines that a second CPU used before: here, one that faults in the same area.

use faultless_phys::{Memory, Options};
use faultless_platform::count::{Count, Figures, Machine};
use faultless_platform::native::HostRegion;
use faultless_platform::{Processor, Threads};
use faultless_sync::{Generation, Rwsem};
use faultless_vm::design::{
    Design, Faultless, FaultlessQueued, GenerationOf, MmapSem, SpfSrcu, SpfV9, SpfV11, VmaLock,
};
use faultless_vm::registry::{DESIGNS, DesignVisitor, with_design};
use faultless_vm::{
    AddressRange, Advice, Backing, Event, Guest, Limits, MapOptions, MapRequest, PAGE, Pattern, Placement,
    PlacementPolicy, Populate, Protection, RemapPlacement, RemapRequest, VirtAddr, Vm,
};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Barrier, Mutex};

const BASE: u64 = 0x10_0000_0000;

fn request(at: u64, nr_pages: u64) -> MapRequest<'static, Count> {
    MapRequest {
        placement: Placement::Fixed(VirtAddr::new(at)),
        len_bytes: nr_pages * PAGE,
        protection: Protection::READ | Protection::WRITE,
        options: MapOptions::empty(),
        backing: Backing::Anonymous,
        populate: Populate::OnFault,
    }
}

/// An operation that is counted, in a state that its predecessors have made.
type Step<D> = (&'static str, for<'a> fn(&Guest<'a, Count, D>, u64));

/// A fault in the area that all share, alone: calls would pass frames, and with them lines, from CPU to CPU.
fn fault<D: Design<Count>>() -> Vec<Step<D>> {
    vec![("fault", |guest, _| {
        let page = NEXT_PAGE.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        assert_eq!(guest.store(VirtAddr::new(BASE + page * PAGE), 1).expect("mapped").count, 1);
    })]
}

/// The calls, in order; the second argument is the first address of the thread's own 16 pages.
fn calls<D: Design<Count>>() -> Vec<Step<D>> {
    vec![
        ("mmap", |guest, at| assert_eq!(guest.space().mmap(&request(at, 16)), Ok(VirtAddr::new(at)))),
        ("mprotect", |guest, at| {
            guest.space().mprotect(AddressRange::new(VirtAddr::new(at), 4 * PAGE), Protection::READ).expect("mapped")
        }),
        ("mprotect back", |guest, at| {
            let both = Protection::READ | Protection::WRITE;
            guest.space().mprotect(AddressRange::new(VirtAddr::new(at), 4 * PAGE), both).expect("mapped");
        }),
        ("madvise dontneed", |guest, at| {
            guest.space().madvise(AddressRange::new(VirtAddr::new(at), 4 * PAGE), Advice::DontNeed).expect("mapped")
        }),
        ("mremap move", |guest, at| {
            let request = RemapRequest {
                old: AddressRange::new(VirtAddr::new(at), 16 * PAGE),
                new_len_bytes: 16 * PAGE,
                placement: RemapPlacement::Fixed(VirtAddr::new(at + 0x1000_0000)),
                keeps_source: false,
            };
            guest.space().mremap(&request).expect("room");
        }),
        ("munmap", |guest, at| {
            guest.space().munmap(AddressRange::new(VirtAddr::new(at + 0x1000_0000), 16 * PAGE)).expect("valid")
        }),
        ("brk up", |guest, _| {
            assert_eq!(guest.space().brk(VirtAddr::new(HEAP + 4 * PAGE)), VirtAddr::new(HEAP + 4 * PAGE))
        }),
        ("brk down", |guest, _| assert_eq!(guest.space().brk(VirtAddr::new(HEAP)), VirtAddr::new(HEAP))),
        ("fork, child ends", |guest, _| drop(guest.space().fork().expect("room"))),
    ]
}

const HEAP: u64 = 0x50_0000_0000;
static NEXT_PAGE: AtomicU64 = AtomicU64::new(0);
/// The page counter is shared by both designs' measurements.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Returns how often a thread does everything before anything counts; see `measure`.
fn rounds<D: Design<Count>>() -> usize {
    if D::NAME == "spf-srcu" { 5 } else { 7 }
}

/// Counts on CPU 0 what each operation does, after CPU 1 has done the same in the same space.
fn measure<D: Design<Count>>(steps: fn() -> Vec<Step<D>>) -> Vec<(&'static str, Figures)> {
    let _alone = ONE_AT_A_TIME.lock();
    NEXT_PAGE.store(0, std::sync::atomic::Ordering::SeqCst);
    let region = HostRegion::reserve(64 << 20).expect("the host has room");
    let machine = Machine::new(2);
    // std's barrier: it keeps the slot while it waits, so that thread and slot have one number.
    let barrier = Barrier::new(2);
    let first_is_in = AtomicBool::new(false);
    let result = Mutex::new(Vec::new());
    // SAFETY: the region is zeroed, ours alone, and outlives the instance.
    let memory = unsafe { Memory::<Count>::new(region.base(), region.len_bytes(), 2, Options::default()) };
    let vm = machine.attach(|| Vm::<Count, D>::new(memory.expect("large enough")).expect("a zero page"));
    let space = machine.attach(|| {
        let space = vm.create_space(Limits::default()).expect("room");
        space.mmap(&request(BASE, 256)).expect("room");
        space.set_heap_start(VirtAddr::new(HEAP));
        space
    });
    Count::run(&machine, 2, &|thread| {
        while thread == 1 && !first_is_in.load(std::sync::atomic::Ordering::SeqCst) {
            std::thread::yield_now();
        }
        Count::enter();
        first_is_in.store(true, std::sync::atomic::Ordering::SeqCst);
        assert_eq!(Count::cpu(), thread);
        let guest = Guest::new(&space);
        // There are two users from the first operation on: what it frees always waits for a grace period.
        barrier.wait();
        let own = BASE + 0x4000_0000 * (thread as u64 + 1);
        // Five or seven times each, so that the next page's entry shares a line (8 entries) with one that CPU 1 used,
        // and no call that counts runs the callbacks of a batch.
        // Both warm up, CPU 1 last, so that every line that both use was used by CPU 1 before CPU 0 is counted.
        for turn in [0, 1, 0, 1] {
            if turn == thread {
                (0..rounds::<D>()).for_each(|_| steps().iter().for_each(|(_, step)| step(&guest, own)));
            }
            barrier.wait();
        }
        if thread == 0 {
            let counted = steps().into_iter().map(|(name, step)| {
                let before = machine.figures(0);
                step(&guest, own);
                (name, machine.figures(0) - before)
            });
            result.lock().expect("no panic").extend(counted);
        }
        barrier.wait();
        drop(guest);
        Count::leave();
    });
    let has_faults = vm.events().total(Event::Faults) > 0;
    assert_eq!(vm.events().total(Event::Spf) > 0, has_faults && D::NAME != "mmap-sem");
    machine.attach(|| drop(space));
    machine.attach(|| drop(vm));
    result.into_inner().expect("no panic")
}

/// Debug builds look at the locks of the four tables that are freed with the child.
const DEBUG_LOOKS: u64 = if cfg!(debug_assertions) { 4 } else { 0 };

type Row = (&'static str, [u64; 4]);

fn check<D: Design<Count>>(source: &str, expected: &[Row]) {
    let both = || [measure::<D>(fault), measure::<D>(calls)].concat();
    let costs = both();
    assert_eq!(costs, both(), "{} differs between two runs", D::NAME);
    println!("{}: atomics, read-modify-writes, fences, writes to shared lines", D::NAME);
    let rows = costs.iter().map(|(name, f)| (*name, [f.atomics, f.read_modify_writes, f.fences, f.shared_writes]));
    let rows: Vec<Row> = rows.collect();
    rows.iter().for_each(|row| println!("        {row:?},"));
    assert_eq!(rows, expected);
    let fault = shared_writes_in(source, &["fault", "speculative fault", "fault under the area's lock"]);
    let counted = |wanted| rows.iter().find(|(name, _)| *name == wanted).map(|(_, figures)| figures[3]);
    assert_eq!(counted("fault"), fault, "the table that opens the design's file, row of the fault");
    let call = shared_writes_in(source, &["writer"]);
    assert_eq!(counted("mmap"), call, "the table that opens the design's file, row of the writer");
}

/// Returns the first number of the last cell of the row whose first cell is one of `who`, of the table that opens a
/// file.
fn shared_writes_in(source: &str, who: &[&str]) -> Option<u64> {
    let cells = |line: &str| -> Vec<String> { line.split('|').map(|cell| cell.trim().to_owned()).collect() };
    let mut rows = source.lines().filter_map(|line| line.strip_prefix("//! |")).map(cells);
    let row = rows.find(|row| who.contains(&row[0].as_str()))?;
    row[2].split(':').next()?.parse().ok()
}

#[test]
fn mmap_sem_costs_what_its_table_says() {
    check::<MmapSem<Rwsem<Count>>>(
        include_str!("../src/design/mmap_sem.rs"),
        &[
            ("fault", [48, 3, 3, 5]),
            ("mmap", [37, 3, 2, 8]),
            ("mprotect", [61, 3, 2, 7]),
            ("mprotect back", [55, 4, 1, 7]),
            ("madvise dontneed", [13, 4, 0, 4]),
            ("mremap move", [263, 7, 14, 14]),
            ("munmap", [35, 4, 1, 8]),
            ("brk up", [44, 3, 2, 9]),
            ("brk down", [41, 4, 1, 9]),
            ("fork, child ends", [656 + DEBUG_LOOKS, 6, 9, 4]),
        ],
    );
}

/// What the versions with an index lock and references cost: they differ only where they meet a busy lock.
const SPF_WITH_INDEX_LOCK: &[Row] = &[
    ("fault", [63, 5, 7, 7]),
    ("mmap", [42, 5, 2, 10]),
    ("mprotect", [70, 5, 3, 9]),
    ("mprotect back", [65, 6, 3, 9]),
    ("madvise dontneed", [13, 4, 0, 4]),
    ("mremap move", [274, 11, 15, 18]),
    ("munmap", [41, 6, 2, 10]),
    ("brk up", [49, 5, 2, 11]),
    ("brk down", [47, 6, 2, 11]),
    ("fork, child ends", [664 + DEBUG_LOOKS, 6, 10, 6]),
];

#[test]
fn spf_v9_costs_what_its_table_says() {
    check::<SpfV9<Rwsem<Count>>>(include_str!("../src/design/spf_v9.rs"), SPF_WITH_INDEX_LOCK);
}

#[test]
fn spf_v11_costs_what_its_table_says() {
    check::<SpfV11<Rwsem<Count>>>(include_str!("../src/design/spf_v11.rs"), SPF_WITH_INDEX_LOCK);
}

/// Returns the read-modify-writes of an mmap in a space of one thread, beside another one, and after that has left.
fn writes_of_mmap<D: Design<Count>>() -> [u64; 3] {
    let region = HostRegion::reserve(64 << 20).expect("the host has room");
    let machine = Machine::new(1);
    // SAFETY: the region is zeroed, ours alone, and outlives the instance.
    let memory = unsafe { Memory::<Count>::new(region.base(), region.len_bytes(), 1, Options::default()) };
    machine.attach(|| {
        let vm = Vm::<Count, D>::new(memory.expect("large enough")).expect("a zero page");
        let space = vm.create_space(Limits::default()).expect("room");
        let _guest = Guest::new(&space);
        let mut nr_mapped = 0;
        let mut count = || {
            let figures = [0, 1].map(|_| {
                nr_mapped += 1;
                let before = machine.figures(0);
                space.mmap(&request(BASE + nr_mapped * 2 * PAGE, 1)).expect("room");
                (machine.figures(0) - before).read_modify_writes
            });
            // The first one of both may take more memory.
            figures[1]
        };
        let alone = count();
        let second = Guest::new(&space);
        let beside = count();
        drop(second);
        [alone, beside, count()]
    })
}

#[test]
fn a_space_of_one_thread_locks_no_index_until_a_second_one_has_come() {
    let [alone, beside, after] = writes_of_mmap::<MmapSem<Rwsem<Count>>>();
    // Nodes that the map replaces are put on the list of those that wait for a grace period, under its lock.
    assert_eq!([beside, after], [alone + 1; 2]);
    let locked = [alone, beside + 2, beside + 2];
    assert_eq!(writes_of_mmap::<SpfV11<Rwsem<Count>>>(), locked);
    assert_eq!(writes_of_mmap::<SpfV9<Rwsem<Count>>>(), locked);
    assert_eq!(writes_of_mmap::<VmaLock<Rwsem<Count>>>(), [alone, beside, beside]);
    assert_eq!(writes_of_mmap::<FaultlessQueued<Rwsem<Count>>>(), [alone, beside, beside]);
    let [alone_of_ranges, ..] = writes_of_mmap::<Faultless<Rwsem<Count>>>();
    assert_eq!(alone_of_ranges, alone, "the table of parts is not used before");
}

/// Has the threads of two CPUs, CPU 0's first, do something in one space, each as a user of it.
fn on_two_cpus<D: Design<Count>>(
    (placement, semaphore): (PlacementPolicy, GenerationOf<Count, D>),
    act: impl Fn(usize, &Guest<'_, Count, D>, &dyn Fn() -> Figures, &Barrier) + Sync,
) {
    let _alone = ONE_AT_A_TIME.lock();
    let (region, machine) = (HostRegion::reserve(64 << 20).expect("the host has room"), Machine::new(2));
    // SAFETY: the region is zeroed, ours alone, and outlives the instance.
    let memory = unsafe { Memory::<Count>::new(region.base(), region.len_bytes(), 2, Options::default()) };
    let memory = memory.expect("large enough");
    let vm = machine.attach(|| Vm::<Count, D>::with_semaphore(memory, semaphore).expect("a zero page"));
    let space = machine.attach(|| vm.create_space(Limits { placement, ..Limits::default() }).expect("room"));
    let barrier = Barrier::new(2);
    let first_is_in = AtomicBool::new(false);
    Count::run(&machine, 2, &|thread| {
        while thread == 1 && !first_is_in.load(std::sync::atomic::Ordering::SeqCst) {
            std::thread::yield_now();
        }
        Count::enter();
        first_is_in.store(true, std::sync::atomic::Ordering::SeqCst);
        let guest = Guest::new(&space);
        barrier.wait();
        act(thread, &guest, &|| machine.figures(thread), &barrier);
        barrier.wait();
        drop(guest);
        Count::leave();
    });
    machine.attach(|| drop(space));
    machine.attach(|| drop(vm));
}

/// Returns the writes to shared lines of an mmap and its munmap, where CPU 1 does the same in turns.
fn shared_writes_of_a_pair<D: Design<Count>>(placement: PlacementPolicy, semaphore: GenerationOf<Count, D>) -> u64 {
    let result = Mutex::new(0);
    on_two_cpus::<D>((placement, semaphore), |thread, guest, figures, barrier| {
        let pair = || {
            let anywhere = MapRequest { placement: Placement::Anywhere, ..request(BASE, 16) };
            let place = guest.space().mmap(&anywhere).expect("room");
            guest.space().munmap(AddressRange::new(place, 16 * PAGE)).expect("mapped");
        };
        for turn in [0, 1, 0, 1, 0] {
            if turn == thread {
                (0..20).for_each(|_| pair());
            }
            barrier.wait();
        }
        if thread == 0 {
            // Some pairs run what a grace period was waited for, which all count in.
            let counted = (0..20).map(|_| {
                let before = figures();
                pair();
                (figures() - before).shared_writes
            });
            *result.lock().expect("no panic") = counted.min().expect("twenty");
        }
    });
    result.into_inner().expect("no panic")
}

// What an earlier fault found is gone by until something in the lane changes; it is kept by the second.
#[test]
fn a_fault_behind_another_in_its_area_looks_nothing_up() {
    type D = Faultless<Rwsem<Count>>;
    let counted = Mutex::new(Vec::new());
    let semaphore = Generation::named("rwsem-v8+bravo").expect("registered");
    on_two_cpus::<D>((PlacementPolicy::Spread, semaphore), |thread, guest, figures, _| {
        if thread == 0 {
            let anywhere = MapRequest { placement: Placement::Anywhere, ..request(BASE, 16) };
            let area = guest.space().mmap(&anywhere).expect("room").get();
            let page = |number: u64| VirtAddr::new(area + number * PAGE);
            let store = |number: u64| assert_eq!(guest.store(page(number), 1).map(|taken| taken.count), Ok(1));
            store(0);
            guest.space().mprotect(AddressRange::new(page(15), PAGE), Protection::READ).expect("mapped");
            for number in 1..=4 {
                let before = figures();
                store(number);
                counted.lock().expect("no panic").push((figures() - before).atomics);
            }
        }
    });
    let counted = counted.into_inner().expect("no panic");
    println!("accesses of faults in a lane behind a change: {counted:?}");
    // The first has no stamps to compare with, the second keeps what it finds.
    assert_eq!(counted, [71, 73, 63, 63]);
}

// The table of parts, the index and the counters are the lane's or the CPU's.
#[test]
fn map_calls_in_two_lanes_write_no_line_in_common() {
    let in_lanes = |semaphore: &str| {
        let semaphore = Generation::named(semaphore).expect("registered");
        shared_writes_of_a_pair::<Faultless<Rwsem<Count>>>(PlacementPolicy::Spread, semaphore)
    };
    // What counts is whether another CPU ever used a line: it looked whether this one is in an RCU section.
    let (bravo, word) = (in_lanes("rwsem-v8+bravo"), in_lanes("rwsem-v8"));
    println!("in two lanes: {bravo} writes to lines that others use with readers in a table, {word} without");
    assert_eq!((bravo, word), (0, 4));
}

#[test]
fn vma_lock_costs_what_its_table_says() {
    check::<VmaLock<Rwsem<Count>>>(
        include_str!("../src/design/vma_lock.rs"),
        &[
            ("fault", [55, 3, 4, 5]),
            ("mmap", [39, 3, 2, 8]),
            ("mprotect", [64, 6, 2, 7]),
            ("mprotect back", [58, 7, 1, 7]),
            ("madvise dontneed", [13, 4, 0, 4]),
            ("mremap move", [265, 9, 14, 14]),
            ("munmap", [36, 5, 1, 8]),
            ("brk up", [46, 3, 2, 9]),
            ("brk down", [42, 5, 1, 9]),
            ("fork, child ends", [660 + DEBUG_LOOKS, 8, 9, 6]),
        ],
    );
}

#[test]
fn faultless_costs_what_its_table_says() {
    check::<FaultlessQueued<Rwsem<Count>>>(
        include_str!("../src/design/faultless.rs"),
        &[
            ("fault", [51, 1, 4, 1]),
            ("mmap", [40, 3, 2, 8]),
            ("mprotect", [80, 4, 4, 7]),
            ("mprotect back", [74, 6, 4, 7]),
            ("madvise dontneed", [14, 4, 0, 4]),
            ("mremap move", [284, 8, 18, 14]),
            ("munmap", [44, 4, 3, 8]),
            ("brk up", [47, 3, 2, 9]),
            ("brk down", [49, 4, 3, 9]),
            ("fork, child ends", [675 + DEBUG_LOOKS, 6, 11, 10]),
        ],
    );
}

#[test]
fn spf_srcu_costs_what_its_table_says() {
    check::<SpfSrcu<Rwsem<Count>>>(
        include_str!("../src/design/spf_srcu.rs"),
        &[
            ("fault", [68, 1, 8, 3]),
            ("mmap", [40, 3, 2, 8]),
            ("mprotect", [68, 3, 3, 7]),
            ("mprotect back", [60, 4, 3, 7]),
            ("madvise dontneed", [13, 4, 0, 4]),
            // A refill of the areas' magazine falls to this call.
            ("mremap move", [266, 7, 15, 14]),
            ("munmap", [36, 4, 2, 8]),
            ("brk up", [47, 3, 2, 9]),
            ("brk down", [42, 4, 2, 9]),
            ("fork, child ends", [663 + DEBUG_LOOKS, 6, 10, 6]),
        ],
    );
}

/// What untouched pages of an area read as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Untouched {
    Zeros,
    Uniform,
    Arbitrary,
    Pattern,
}

/// Returns what the ninth of some first accesses does, alone in its space: atomics, read-modify-writes, fences.
fn first_access<D: Design<Count>>(
    untouched: Untouched,
    access: fn(&Guest<'_, Count, D>, u64),
    is_shared: bool,
) -> [u64; 3] {
    let region = HostRegion::reserve(64 << 20).expect("the host has room");
    let machine = Machine::new(1);
    // SAFETY: the region is zeroed, ours alone, and outlives the instance.
    let memory = unsafe { Memory::<Count>::new(region.base(), region.len_bytes(), 1, Options::default()) };
    machine.attach(|| {
        let vm = Vm::<Count, D>::new(memory.expect("large enough")).expect("a zero page");
        let space = vm.create_space(Limits::default()).expect("room");
        let uniform = vm.create_repeated(Pattern::Byte(0xaa)).expect("room");
        let arbitrary = vm.create_reference(&std::array::from_fn(|place| place as u64)).expect("room");
        let backing = match untouched {
            Untouched::Zeros => Backing::Anonymous,
            Untouched::Uniform => Backing::Reference(&uniform, 0),
            Untouched::Arbitrary => Backing::Reference(&arbitrary, 0),
            Untouched::Pattern => Backing::Pattern(Pattern::Byte(0xaa)),
        };
        space.mmap(&MapRequest { backing, ..request(BASE, 16) }).expect("room");
        // Two users: faults of the series' designs are speculative.
        let (guest, _other) = (Guest::new(&space), Guest::new(&space));
        let _child = is_shared.then(|| {
            (0..16).for_each(|page| {
                assert_eq!(guest.store(VirtAddr::new(BASE + page * PAGE), 1).map(|taken| taken.count), Ok(1))
            });
            space.fork().expect("room")
        });
        (0..8).for_each(|page| access(&guest, BASE + page * PAGE));
        let before = machine.figures(0);
        access(&guest, BASE + 8 * PAGE);
        let figures = machine.figures(0) - before;
        [figures.atomics, figures.read_modify_writes, figures.fences]
    })
}

fn store<D: Design<Count>>(guest: &Guest<'_, Count, D>, address: u64) {
    assert_eq!(guest.store(VirtAddr::new(address), 1).expect("mapped").count, 1);
}

fn load<D: Design<Count>>(guest: &Guest<'_, Count, D>, address: u64) {
    assert_eq!(guest.load(VirtAddr::new(address)).expect("mapped").1.count, 1);
}

fn untouched_pages_cost_what_those_of_zeros_do<D: Design<Count>>() {
    let stores = |untouched| first_access::<D>(untouched, store, false);
    let loads = |untouched| first_access::<D>(untouched, load, false);
    let plain = stores(Untouched::Zeros);
    println!("{}: {plain:?} a first store, {:?} a first load", D::NAME, loads(Untouched::Zeros));
    for untouched in [Untouched::Uniform, Untouched::Arbitrary, Untouched::Pattern] {
        assert_eq!(stores(untouched), plain, "{}: a first store, {untouched:?}", D::NAME);
    }
    for untouched in [Untouched::Uniform, Untouched::Arbitrary] {
        assert_eq!(loads(untouched), loads(Untouched::Zeros), "{}: a first load, {untouched:?}", D::NAME);
    }
    let copy = first_access::<D>(Untouched::Zeros, store, true);
    for (place, (reference, copy)) in stores(Untouched::Arbitrary).into_iter().zip(copy).enumerate() {
        assert!(10 * reference <= 11 * copy, "{}, figure {place}: {reference} against {copy} of a copy", D::NAME);
    }
}

struct UntouchedPages;

impl DesignVisitor<Count> for UntouchedPages {
    type Output = ();
    fn visit<D: Design<Count>>(self, _: GenerationOf<Count, D>) {
        untouched_pages_cost_what_those_of_zeros_do::<D>();
    }
}

#[test]
fn the_first_access_to_a_reference_page_costs_what_one_to_plain_memory_does() {
    for design in DESIGNS {
        with_design::<Count, _>(design, "rwsem-v8", UntouchedPages).expect("registered");
    }
}
