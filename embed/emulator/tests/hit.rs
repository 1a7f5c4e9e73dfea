//! What a load takes that hits the TLB, in instructions of the host.
//!
//! The program runs itself under callgrind, which counts the instructions of one function. Without valgrind there is
//! nothing to count with: the test says so and passes.

use faultless_embed_emulator::{Cpu, Memory};
use faultless_phys::{Memory as Frames, Options};
use faultless_platform::native::{HostRegion, Machine};
use faultless_vm::{Backing, Limits, MapOptions, MapRequest, Placement, Populate, Protection, VirtAddr, Vm};
use std::hint::black_box;
use std::pin::Pin;
use std::process::Command;

const BASE: u64 = 0x10_0000_0000;
const NR_LOADS: u64 = 10_000;
const CASE: &str = "FAULTLESS_EMULATOR_LOADS";

/// The part that is counted: loads, or the same loop without them.
#[inline(never)]
#[unsafe(no_mangle)]
fn faultless_emulator_measured(memory: &mut Memory<'_>, does_load: bool) -> u64 {
    let mut sum = 0_u64;
    if does_load {
        for place in 0..NR_LOADS {
            sum = sum.wrapping_add(memory.load::<u64>(black_box(BASE + place % 512 * 8)).unwrap_or(1));
        }
    } else {
        for place in 0..NR_LOADS {
            sum = sum.wrapping_add(black_box(BASE + place % 512 * 8));
        }
    }
    sum
}

fn run(does_load: bool) {
    let region = HostRegion::reserve(64 << 20).expect("the host has room");
    Machine::new(1).attach(|| {
        // SAFETY: the region is zeroed, ours alone, and outlives the instance.
        let frames = unsafe { Frames::<Cpu>::new(region.base(), region.len_bytes(), 1, Options::default()) };
        let vm: Pin<Box<Vm<Cpu>>> = Vm::new(frames.expect("large enough")).expect("a zero page");
        let space = vm.create_space(Limits::default()).expect("room");
        let request = MapRequest {
            placement: Placement::Fixed(VirtAddr::new(BASE)),
            len_bytes: 4096,
            protection: Protection::READ | Protection::WRITE,
            options: MapOptions::empty(),
            backing: Backing::Anonymous,
            populate: Populate::OnFault,
        };
        space.mmap(&request).expect("room");
        let mut memory = Memory::new(&space);
        memory.store(BASE, 1_u64).expect("mapped");
        memory.load::<u64>(BASE).expect("mapped");
        let sum = faultless_emulator_measured(&mut memory, does_load);
        assert!(!does_load || sum == NR_LOADS.div_ceil(512));
    });
}

fn counted(case: &str) -> Option<u64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--toggle-collect=faultless_emulator_measured"])
        .arg(std::env::current_exe().expect("the test's own program"))
        .args(["--exact", "a_hit_takes_at_most_twelve_instructions", "--nocapture"])
        .env(CASE, case)
        .output()
        .ok()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    let line = said.lines().find_map(|line| line.split_once("Collected :")).expect("callgrind's sum");
    Some(line.1.trim().parse().expect("a number"))
}

#[test]
fn a_hit_takes_at_most_twelve_instructions() {
    if let Ok(case) = std::env::var(CASE) {
        return run(case == "loads");
    }
    let (Some(loads), Some(nothing)) = (counted("loads"), counted("nothing")) else {
        return println!("valgrind: <not supported>");
    };
    let each = loads.saturating_sub(nothing) as f64 / NR_LOADS as f64;
    println!("{each:.2} instructions a load: {loads} with loads, {nothing} without");
    assert!(each > 2.0, "{each} instructions are no load");
    // A few instructions are the loop's own beginning.
    assert!(loads - nothing <= 12 * NR_LOADS + 20, "{each} instructions a load");
}

#[test]
fn a_thread_has_one_memory() {
    let region = HostRegion::reserve(64 << 20).expect("the host has room");
    Machine::new(1).attach(|| {
        // SAFETY: the region is zeroed, ours alone, and outlives the instance.
        let frames = unsafe { Frames::<Cpu>::new(region.base(), region.len_bytes(), 1, Options::default()) };
        let vm: Pin<Box<Vm<Cpu>>> = Vm::new(frames.expect("large enough")).expect("a zero page");
        let space = vm.create_space(Limits::default()).expect("room");
        let first = Memory::new(&space);
        let second = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(Memory::new(&space))));
        assert!(second.is_err(), "the first one would not be told what to forget");
        drop(first);
        drop(Memory::new(&space));
    });
}
