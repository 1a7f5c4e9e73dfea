//! How many instructions a first store takes: to plain memory, to a reference page, and to a page that a child shares.
//!
//! The program runs itself under callgrind, which counts the instructions of [`measured`] alone. Without valgrind there
//! is nothing to count with: the test says so and passes.

use faultless_phys::{Memory, Options};
use faultless_platform::native::{HostRegion, Machine, Native};
use faultless_vm::design::{Design, GenerationOf};
use faultless_vm::registry::{DESIGNS, DesignVisitor, with_design};
use faultless_vm::{
    Backing, Guest, Limits, MapOptions, MapRequest, PAGE, Pattern, Placement, Populate, Protection, VirtAddr, Vm,
};
use std::process::Command;

const BASE: u64 = 0x10_0000_0000;
/// First stores that are counted.
const NR_STORES: u64 = 128;
/// Says in a child what to run.
const CASE: &str = "FAULTLESS_INSTRUCTIONS_OF";

/// The part that is counted.
#[inline(never)]
#[unsafe(no_mangle)]
fn faultless_measured(store: &mut dyn FnMut(u64)) {
    (0..NR_STORES).for_each(|page| store(BASE + page * PAGE));
}

fn run<D: Design<Native>>(semaphore: GenerationOf<Native, D>, case: &str) {
    let region = HostRegion::reserve(64 << 20).expect("the host has room");
    Machine::new(1).attach(|| {
        // SAFETY: the region is zeroed, ours alone, and outlives the instance.
        let memory = unsafe { Memory::<Native>::new(region.base(), region.len_bytes(), 1, Options::default()) };
        let vm = Vm::<Native, D>::with_semaphore(memory.expect("large enough"), semaphore).expect("a zero page");
        let space = vm.create_space(Limits::default()).expect("room");
        let uniform = vm.create_repeated(Pattern::Byte(0xaa)).expect("room");
        let arbitrary = vm.create_reference(&std::array::from_fn(|place| place as u64)).expect("room");
        let backing = match case {
            "plain" | "copy" => Backing::Anonymous,
            "uniform" => Backing::Reference(&uniform, 0),
            "arbitrary" => Backing::Reference(&arbitrary, 0),
            "pattern" => Backing::Pattern(Pattern::Byte(0xaa)),
            other => panic!("no case {other}"),
        };
        let request = MapRequest {
            placement: Placement::Fixed(VirtAddr::new(BASE)),
            len_bytes: 256 * PAGE,
            protection: Protection::READ | Protection::WRITE,
            options: MapOptions::empty(),
            backing,
            populate: Populate::OnFault,
        };
        space.mmap(&request).expect("room");
        let (guest, _other) = (Guest::new(&space), Guest::new(&space));
        // The tables and the area's root are there; and each CPU's frames are at hand.
        (NR_STORES..2 * NR_STORES).for_each(|page| {
            assert_eq!(guest.store(VirtAddr::new(BASE + page * PAGE), 1).map(|taken| taken.count), Ok(1))
        });
        let _child = (case == "copy").then(|| {
            (0..NR_STORES).for_each(|page| {
                assert_eq!(guest.store(VirtAddr::new(BASE + page * PAGE), 1).map(|taken| taken.count), Ok(1))
            });
            space.fork().expect("room")
        });
        faultless_measured(&mut |address| assert_eq!(guest.store(VirtAddr::new(address), 1).expect("mapped").count, 1));
    });
}

/// Runs a case under a design.
struct Case<'a>(&'a str);

impl DesignVisitor<Native> for Case<'_> {
    type Output = ();
    fn visit<D: Design<Native>>(self, semaphore: GenerationOf<Native, D>) {
        run::<D>(semaphore, self.0);
    }
}

/// Returns the instructions of a first store, as callgrind counts them; nothing without valgrind.
fn counted(design: &str, case: &str) -> Option<f64> {
    let exe = std::env::current_exe().expect("the test's own program");
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--toggle-collect=faultless_measured"])
        .arg(exe)
        .args(["--exact", "first_stores_cost_little_more_than_those_to_plain_memory", "--nocapture"])
        .env(CASE, format!("{design} {case}"))
        .output()
        .ok()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{design} {case}: {said}{}", String::from_utf8_lossy(&output.stdout));
    let line = said.lines().find_map(|line| line.split_once("Collected :")).expect("callgrind's sum");
    Some(line.1.trim().parse::<f64>().expect("a number") / NR_STORES as f64)
}

#[test]
fn first_stores_cost_little_more_than_those_to_plain_memory() {
    if let Ok(case) = std::env::var(CASE) {
        let (design, case) = case.split_once(' ').expect("a design and a case");
        return with_design::<Native, _>(design, "rwsem-v8", Case(case)).expect("registered");
    }
    for &design in DESIGNS {
        let Some(plain) = counted(design, "plain") else { return println!("valgrind: <not supported>") };
        let of = |case| counted(design, case).expect("valgrind is there");
        let (uniform, pattern, arbitrary, copy) = (of("uniform"), of("pattern"), of("arbitrary"), of("copy"));
        println!(
            "{design}: plain {plain:.0}, uniform {uniform:.0}, pattern {pattern:.0}, arbitrary {arbitrary:.0}, copy {copy:.0}"
        );
        assert!(plain > 100.0, "{design}: {plain} instructions are no fault");
        assert!(uniform <= 1.1 * plain && pattern <= 1.1 * plain, "{design}: {uniform} or {pattern} against {plain}");
        assert!(arbitrary <= 1.1 * copy, "{design}: {arbitrary} against {copy}");
    }
}
