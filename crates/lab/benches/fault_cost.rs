//! What an anonymous fault costs on one CPU with one thread: on the VM under each design, beside zeroing the same frames
//! in the same order, and beside the host's own fault.
//!
//! `cargo bench -p faultless-lab --bench fault_cost` prints medians with a 95 % bootstrap interval, over interleaved
//! rounds. Each round maps fresh memory, stores to every page, zeroes the frames that it got, and unmaps. The host's
//! fault includes the exception's entry and exit, the VM's does not; huge pages are off for it.

use faultless_lab::stats::{median, median_ratio};
use faultless_phys::{Memory, Options};
use faultless_platform::native::{HostRegion, Machine, Native};
use faultless_platform::{Bulk, Platform};
use faultless_sync::RwsemV8;
use faultless_vm::design::{Design, MmapSem, SpfV11};
use faultless_vm::{AreaFlags, Backing, Guest, Limits, MapRequest, PAGE, Placement, Populate, Vm};
use std::time::Instant;

/// Rounds that are counted, after as many as [`WARM_UP`] that are not.
const ROUNDS: usize = 60;
const WARM_UP: usize = 5;
/// Pages of a round: 8 MiB.
const PAGES: u64 = 2048;
const BASE: u64 = 0x10_0000_0000;
const SEED: u64 = 1;

/// Nanoseconds a page, of one round.
#[derive(Clone, Copy)]
struct Round {
    fault: f64,
    zero: f64,
}

fn per_page(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e9 / PAGES as f64
}

fn request() -> MapRequest<'static, Native> {
    MapRequest {
        placement: Placement::Fixed(BASE),
        len_bytes: PAGES * PAGE,
        flags: AreaFlags::READ | AreaFlags::WRITE,
        backing: Backing::Anonymous,
        populate: Populate::OnFault,
    }
}

/// One round on the VM.
fn round<D: Design<Native>>(vm: &Vm<Native, D>, guest: &Guest<'_, Native, D>) -> Round {
    let space = guest.space();
    space.mmap(&request()).expect("room");
    let start = Instant::now();
    for page in 0..PAGES {
        guest.store(BASE + page * PAGE, page).expect("mapped");
    }
    let fault = per_page(start);
    let mut frames = Vec::with_capacity(PAGES as usize);
    let range = BASE..BASE + PAGES * PAGE;
    space.tables().for_each_mapped(vm.memory(), range, &mut |_, entry| frames.push(vm.memory().frame(entry.pfn())));
    let start = Instant::now();
    for &frame in &frames {
        // SAFETY: the frames are mapped by this space alone, and nobody accesses it meanwhile.
        unsafe { Native::bulk(frame, Bulk::Zero) };
    }
    let zero = per_page(start);
    space.munmap(BASE, PAGES * PAGE).expect("valid");
    Round { fault, zero }
}

/// One round on the host.
fn host_round() -> f64 {
    let len = (PAGES * PAGE) as usize;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping at a place of the kernel's choice, used below and unmapped at the end.
    unsafe {
        let memory = libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
        assert_ne!(memory, libc::MAP_FAILED, "the host has no room: {}", std::io::Error::last_os_error());
        libc::madvise(memory, len, libc::MADV_NOHUGEPAGE);
        let bytes = memory.cast::<u8>();
        let start = Instant::now();
        for page in 0..PAGES as usize {
            bytes.add(page * PAGE as usize).write_volatile(1);
        }
        let fault = per_page(start);
        libc::munmap(memory, len);
        fault
    }
}

/// An instance of a design, on a machine of one CPU of its own.
struct Subject<D: Design<Native>> {
    machine: Machine,
    vm: Box<Vm<Native, D>>,
    /// Holds the frames; dropped last.
    _region: HostRegion,
}

impl<D: Design<Native>> Subject<D> {
    fn new() -> Self {
        let region = HostRegion::reserve(64 << 20).expect("the host has room");
        let machine = Machine::new(1);
        // SAFETY: the region is zeroed, ours alone, and outlives the instance.
        let memory = unsafe { Memory::<Native>::new(region.base(), region.len_bytes(), 1, Options::default()) };
        let vm = machine.attach(|| Vm::new(memory.expect("large enough")).expect("a zero page"));
        Self { machine, vm, _region: region }
    }

    fn round(&self) -> Round {
        self.machine.attach(|| {
            let space = self.vm.create_space(Limits::default()).expect("room");
            round(&self.vm, &Guest::new(&space))
        })
    }

    fn end(self) {
        let Self { machine, vm, _region } = self;
        machine.attach(|| drop(vm));
    }
}

fn main() {
    let (mut classic, mut speculative, mut host) = (Vec::new(), Vec::new(), Vec::new());
    let first = Subject::<MmapSem<RwsemV8<Native>>>::new();
    let second = Subject::<SpfV11<RwsemV8<Native>>>::new();
    for turn in 0..WARM_UP + ROUNDS {
        let rounds = (first.round(), second.round(), host_round());
        if turn >= WARM_UP {
            classic.push(rounds.0);
            speculative.push(rounds.1);
            host.push(rounds.2);
        }
    }
    first.end();
    second.end();
    println!("anonymous fault, one CPU, one thread; {ROUNDS} interleaved rounds of {PAGES} pages, seed {SEED}");
    println!("{:<34} {:>9} {:>9}   ratio to zeroing (95 % interval)", "", "fault ns", "zero ns");
    show("mmap-sem / rwsem-v8", &classic);
    show("spf-v11 / rwsem-v8", &speculative);
    let zero: Vec<f64> = classic.iter().map(|round| round.zero).collect();
    let host: Vec<Round> = host.iter().zip(&zero).map(|(&fault, &zero)| Round { fault, zero }).collect();
    show("host, with exception entry and exit", &host);
    let faults = |rounds: &[Round]| rounds.iter().map(|round| round.fault).collect::<Vec<_>>();
    if let Some(ratio) = median_ratio(&faults(&classic), &faults(&speculative), SEED) {
        println!("spf-v11 over mmap-sem {:.3} ({:.3} to {:.3})", ratio.middle, ratio.low, ratio.high);
    }
}

fn show(name: &str, rounds: &[Round]) {
    let faults: Vec<f64> = rounds.iter().map(|round| round.fault).collect();
    let zeros: Vec<f64> = rounds.iter().map(|round| round.zero).collect();
    let (Some(fault), Some(zero), Some(ratio)) = (median(&faults), median(&zeros), median_ratio(&zeros, &faults, SEED))
    else {
        return;
    };
    println!("{name:<34} {fault:>9.1} {zero:>9.1}   {:.2} ({:.2} to {:.2})", ratio.middle, ratio.low, ratio.high);
}
