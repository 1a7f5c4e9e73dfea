//! How many instructions mmap, mprotect and munmap of one page take, alone in a space and beside many areas.
//!
//! The program runs itself under callgrind, which counts each call of [`faultless_measured`] by itself. Counts are the
//! same in each run of one build. Without valgrind there is nothing to count with: the test says so and passes.
//!
//! `cargo test --release -p faultless-vm --test map_calls -- --nocapture` prints the figures, and holds them to
//! [`MOST`] and what other builds may take more. With `FAULTLESS_MAP_CALLS=all` it also counts beside 30,000 areas, and
//! takes the build for one of one codegen unit, as the release profile has it (CI's has more). To see where they go,
//! give the program to callgrind: `FAULTLESS_MAP_CALLS_OF="mmap-sem 300 munmap" valgrind --tool=callgrind
//! --toggle-collect=faultless_measured PROGRAM`.

use faultless_phys::{Memory, Options};
use faultless_platform::native::{HostRegion, Machine, Native};
use faultless_platform::{Processor, Threads};
use faultless_sync::{Generation, Rwsem};
use faultless_vm::design::{
    Design, Faultless, FaultlessQueued, GenerationOf, MmapSem, SpfSrcu, SpfV9, SpfV11, VmaLock,
};
use faultless_vm::{
    AddressRange, Backing, Guest, Limits, MapOptions, MapRequest, PAGE, Placement, PlacementPolicy, Populate,
    Protection, Space, VirtAddr, Vm,
};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Barrier;

const BASE: u64 = 0x10_0000_0000;
/// Says in a child what to run: a design, how many areas there are beside, and the call to count, or all.
const CASE: &str = "FAULTLESS_MAP_CALLS_OF";
/// The calls of one round, in order.
const CALLS: [&str; 5] = ["mmap", "mprotect", "munmap", "mmap again", "munmap untouched"];
/// Rounds that are counted, after as many that are not.
const NR_ROUNDS: usize = 4;
/// `faultless` in a space that two CPUs use, each in its own lane; counted alone, and no design of that name.
const IN_COMPANY: &str = "faultless-company";
/// What each call may take at most in a build of one codegen unit, by designs: alone, and beside other areas.
/// The goal is 1,200 and 1,560.
const MOST: [(&str, [(u64, u64); CALLS.len()]); 8] = [
    ("mmap-sem", [(600, 1_285), (985, 1_225), (1_495, 1_785), (600, 1_285), (800, 1_455)]),
    ("spf-srcu", [(610, 1_295), (1_000, 1_240), (1_510, 1_800), (610, 1_295), (810, 1_470)]),
    ("spf-v9", [(610, 1_295), (990, 1_230), (1_535, 1_830), (610, 1_295), (840, 1_500)]),
    ("spf-v11", [(610, 1_295), (990, 1_230), (1_535, 1_830), (610, 1_295), (840, 1_500)]),
    ("vma-lock", [(600, 1_295), (1_005, 1_245), (1_525, 1_815), (600, 1_295), (825, 1_480)]),
    ("faultless-queued", [(605, 1_295), (1_045, 1_285), (1_565, 1_850), (605, 1_295), (860, 1_520)]),
    ("faultless", [(695, 1_395), (1_190, 1_435), (1_690, 1_980), (695, 1_395), (985, 1_650)]),
    (IN_COMPANY, [(1_050, 0), (3_045, 0), (2_305, 0), (1_050, 0), (1_140, 0)]),
];
/// What a build of more codegen units may take more: less is inlined, of a short call a larger share.
const OF_OTHER_BUILDS: f64 = 1.45;
/// As [`OF_OTHER_BUILDS`], in instructions, where that is more.
const MORE_OF_OTHER_BUILDS: f64 = 400.0;

/// The part that is counted.
#[inline(never)]
#[unsafe(no_mangle)]
fn faultless_measured(call: &mut dyn FnMut()) {
    call();
}

fn page_at(start: u64) -> AddressRange {
    AddressRange::new(VirtAddr::new(start), PAGE)
}

fn map<D: Design<Native>>(space: &Space<Native, D>, start: u64) -> u64 {
    map_at(space, Placement::Fixed(VirtAddr::new(start)))
}

fn map_at<D: Design<Native>>(space: &Space<Native, D>, placement: Placement) -> u64 {
    let request = MapRequest {
        placement,
        len_bytes: PAGE,
        protection: Protection::READ | Protection::WRITE,
        options: MapOptions::empty(),
        backing: Backing::Anonymous,
        populate: Populate::OnFault,
    };
    space.mmap(&request).expect("room").get()
}

/// Makes the calls of all rounds, on the page that `map` maps and notes in `place`, and `before` each of them does
/// something else; those of the later rounds are counted.
fn count_rounds<D: Design<Native>>(
    guest: &Guest<'_, Native, D>,
    counted: &str,
    before: impl Fn(),
    (map, place): (impl Fn(), &Cell<u64>),
) {
    let space = guest.space();
    for round in 0..2 * NR_ROUNDS {
        let call = |name: &str, act: &mut dyn FnMut()| {
            before();
            let is_counted = round >= NR_ROUNDS && (counted == "all" || counted == name);
            if is_counted { faultless_measured(act) } else { act() }
        };
        call("mmap", &mut || map());
        let start = place.get();
        assert_eq!(guest.store(VirtAddr::new(start), 1).map(|taken| taken.count), Ok(1));
        call("mprotect", &mut || space.mprotect(page_at(start), Protection::READ).expect("mapped"));
        call("munmap", &mut || space.munmap(page_at(start)).expect("room"));
        call("mmap again", &mut || map());
        let start = place.get();
        call("munmap untouched", &mut || space.munmap(page_at(start)).expect("room"));
    }
}

fn run<D: Design<Native>>(nr_beside: u64, counted: &str) {
    let region = HostRegion::reserve(1 << 30).expect("the host has room");
    Machine::new(1).attach(|| {
        // SAFETY: the region is zeroed, ours alone, and outlives the instance.
        let memory = unsafe { Memory::<Native>::new(region.base(), region.len_bytes(), 1, Options::default()) };
        let vm = Vm::<Native, D>::new(memory.expect("large enough")).expect("a zero page");
        let space = vm.create_space(Limits::default()).expect("room");
        let guest = Guest::new(&space);
        // One page in every four, and the page that is counted in between.
        (0..nr_beside).for_each(|number| _ = map(&space, BASE + number * 4 * PAGE));
        let start = BASE + (nr_beside / 2 * 4 + 2) * PAGE;
        let elsewhere = BASE + (nr_beside / 8 * 4 + 2) * PAGE;
        // The call before was elsewhere: each finds its own way.
        let before = || {
            if nr_beside != 0 {
                map(&space, elsewhere);
                space.munmap(page_at(elsewhere)).expect("room");
            }
        };
        count_rounds(&guest, counted, before, (|| _ = map(&space, start), &Cell::new(start)));
    });
}

/// As [`run`], in a space that two CPUs use whose mappings are spread; the kernel chooses the place.
fn run_in_company<D: Design<Native>>(semaphore: GenerationOf<Native, D>, counted: &str) {
    let region = HostRegion::reserve(1 << 30).expect("the host has room");
    let machine = Machine::new(2);
    // SAFETY: the region is zeroed, ours alone, and outlives the instance.
    let memory = || unsafe { Memory::<Native>::new(region.base(), region.len_bytes(), 2, Options::default()) };
    let vm = machine.attach(|| {
        // As the command has it: who holds parts writes no line of the semaphore that others write.
        Vm::<Native, D>::with_semaphore(memory().expect("large enough"), semaphore).expect("a zero page")
    });
    let limits = Limits { placement: PlacementPolicy::Auto, ..Limits::default() };
    let space = machine.attach(|| vm.create_space(limits).expect("room"));
    let meet = Barrier::new(2);
    Native::run(&machine, 2, &|thread| {
        Native::enter();
        let guest = Guest::new(&space);
        meet.wait();
        let here = map_at(&space, Placement::Anywhere);
        assert_eq!(guest.store(VirtAddr::new(here), 1).map(|taken| taken.count), Ok(1));
        space.munmap(page_at(here)).expect("room");
        meet.wait();
        if thread == 0 {
            let place = Cell::new(0);
            count_rounds(&guest, counted, || (), (|| place.set(map_at(&space, Placement::Anywhere)), &place));
        }
        meet.wait();
        drop(guest);
        Native::leave();
    });
    machine.attach(|| drop(space));
    machine.attach(|| drop(vm));
}

fn run_under(design: &str, nr_beside: u64, counted: &str) {
    match design {
        "mmap-sem" => run::<MmapSem<Rwsem<Native>>>(nr_beside, counted),
        "spf-srcu" => run::<SpfSrcu<Rwsem<Native>>>(nr_beside, counted),
        "spf-v9" => run::<SpfV9<Rwsem<Native>>>(nr_beside, counted),
        "spf-v11" => run::<SpfV11<Rwsem<Native>>>(nr_beside, counted),
        "vma-lock" => run::<VmaLock<Rwsem<Native>>>(nr_beside, counted),
        "faultless-queued" => run::<FaultlessQueued<Rwsem<Native>>>(nr_beside, counted),
        IN_COMPANY => run_in_company::<Faultless<Rwsem<Native>>>(
            Generation::named("rwsem-v8+bravo").expect("one of sync's"),
            counted,
        ),
        "faultless" => run::<Faultless<Rwsem<Native>>>(nr_beside, counted),
        other => panic!("no design {other}"),
    }
}

/// Returns the instructions of each call, the last round's; nothing without valgrind.
fn counted(design: &str, nr_beside: u64) -> Option<BTreeMap<&'static str, u64>> {
    let folder = std::env::temp_dir().join(format!("faultless-map-calls-{}-{design}-{nr_beside}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder for what callgrind writes");
    let out = folder.join("out");
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--toggle-collect=faultless_measured", "--dump-after=faultless_measured"])
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(std::env::current_exe().expect("the test's own program"))
        .args(["--exact", "map_calls_of_one_page", "--nocapture"])
        .env(CASE, format!("{design} {nr_beside} all"))
        .output();
    let found = output.ok().map(|output| {
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{design}: {said}{}", String::from_utf8_lossy(&output.stdout));
        (1..=NR_ROUNDS * CALLS.len())
            .map(|number| {
                let dump =
                    std::fs::read_to_string(format!("{}.{number}", out.display())).expect("a dump for each call");
                let total = dump.lines().find_map(|line| line.strip_prefix("totals: ")).expect("callgrind's sum");
                (CALLS[(number - 1) % CALLS.len()], total.trim().parse().expect("a number"))
            })
            .collect()
    });
    std::fs::remove_dir_all(&folder).expect("the folder is ours");
    found
}

/// Says whether the build was made with less optimisation than the profile says: then figures are no more than printed.
fn is_less_optimised() -> bool {
    cfg!(debug_assertions) || matches!(option_env!("CARGO_PROFILE_RELEASE_OPT_LEVEL"), Some("0" | "1"))
}

#[test]
fn map_calls_of_one_page() {
    if let Ok(case) = std::env::var(CASE) {
        let mut words = case.splitn(3, ' ');
        let mut word = || words.next().expect("a design, a number of areas, a call");
        return run_under(word(), word().parse().expect("a number of areas"), word());
    }
    let is_one_unit = std::env::var_os("FAULTLESS_MAP_CALLS").is_some();
    let sizes: &[u64] = if is_one_unit { &[0, 300, 30_000] } else { &[0, 300] };
    let of_this_build = |most: f64| match is_one_unit {
        true => most,
        false => (OF_OTHER_BUILDS * most).max(most + MORE_OF_OTHER_BUILDS),
    };
    let mut too_many = Vec::new();
    for (design, bounds) in MOST {
        let sizes = if design == IN_COMPANY { &sizes[..1] } else { sizes };
        for &nr_beside in sizes {
            let Some(counts) = counted(design, nr_beside) else { return println!("valgrind: <not supported>") };
            let shown: Vec<_> = CALLS.iter().map(|call| format!("{call} {}", counts[call])).collect();
            println!("{design} beside {nr_beside} areas: {}", shown.join(", "));
            for (call, (alone, beside)) in CALLS.into_iter().zip(bounds) {
                let (count, most) = (counts[call], if nr_beside == 0 { alone } else { beside });
                assert!(count > 100, "{design}: {count} instructions are no {call}");
                if count as f64 > of_this_build(most as f64) {
                    too_many.push(format!("{design}: {call} beside {nr_beside} areas: {count}, {most} at most"));
                }
            }
        }
    }
    assert!(too_many.is_empty() || is_less_optimised(), "{too_many:#?}");
}
