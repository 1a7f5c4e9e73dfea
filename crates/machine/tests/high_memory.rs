//! A virtual memory whose frames of high memory are really out of reach unless somebody maps them: what the oracle does
//! not draw. An access without a map ends the test program by `SIGSEGV`.

use std::ops::ControlFlow;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::Arc;

use faultless_kmap::registry::SCHEMES;
use faultless_kmap::{Costs, Shape};
use faultless_machine::high::{self, Brief, Lies, Maps, When, Zones};
use faultless_machine::windows::RealMemory;
use faultless_phys::{FrameSource, Memory, Options};
use faultless_platform::native::{Machine, Native};
use faultless_platform::watched::{self, Watched};
use faultless_platform::{Holds, PAGE_BYTES, Platform, Processor, Threads};
use faultless_vm::check::invariants;
use faultless_vm::{
    Access, AddressRange, Advice, Backing, FetchError, Guest, Limits, MapOptions, MapRequest, Mode, ObjectSpec, PAGE,
    PageSource, PinKind, Placement, Populate, Protection, RemapPlacement, RemapRequest, Resolution, SpaceRef, VirtAddr,
    Vm, WriteNotice,
};

type High = Watched<Native>;

const NR_CPUS: usize = 2;
const NR_FRAMES: usize = 2048;
const NR_NORMAL: usize = 1024;

/// Runs `act` on a machine with such memory under a scheme; the maps that it has counted come back.
fn with_memory(scheme: &str, act: impl FnOnce(&Memory<High>)) -> u64 {
    let costs = Costs { walk_ns: 0, flush_ns: 0, flush_slot_ns: 0 };
    let shape = Shape { nr_cpus: NR_CPUS, nr_frames: NR_FRAMES, nr_slots: 8, costs, ..Shape::default() };
    let zones = Zones {
        lies: Lies::ALL,
        boundary_bytes: Some(NR_NORMAL * PAGE_BYTES),
        when: When::Always,
        brief: Brief::ByScheme,
    };
    let maps = high::maps::<High>(scheme, zones, shape).expect("registered");
    let real = Arc::new(RealMemory::new(NR_FRAMES as u32, NR_NORMAL as u32, maps).expect("the host has room"));
    let machine = watched::Machine::unwatched(Machine::new(NR_CPUS)).with_high_memory(real.clone());
    let zone = High::high_zone(&machine, real.base().as_ptr(), real.len_bytes()).expect("there is high memory");
    machine.attach(|| {
        real.begin();
        // SAFETY: the frames are fresh, so zero, used by this memory alone, and outlive it.
        let memory = unsafe { Memory::<High>::new(real.base(), real.len_bytes(), NR_CPUS, poisoned()) }.expect("large");
        memory.divide(zone);
        act(&memory);
        drop(memory);
        let counted = real.counted().maps;
        real.end();
        counted
    })
}

fn poisoned() -> Options {
    Options { poison: true, ..Options::default() }
}

/// A file whose words are their page's number plus one, from a device that takes its time.
struct Slow;

impl PageSource for Slow {
    fn fetch(&self, _identity: u64, page_index: u64, page: &mut [u8; PAGE_BYTES]) -> Result<(), FetchError> {
        let word = <High as Processor>::AtomicU32::new(0);
        High::park_until(&word, 0, High::now() + 1_000_000);
        page.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&(page_index + 1).to_le_bytes()));
        Ok(())
    }
}

/// Returns what asks for so many anonymous pages.
fn request_of(pages: u64) -> MapRequest<'static, High> {
    MapRequest {
        placement: Placement::Anywhere,
        len_bytes: pages * PAGE,
        protection: Protection::READ | Protection::WRITE,
        options: MapOptions::empty(),
        backing: Backing::Anonymous,
        populate: Populate::OnFault,
    }
}

fn map<'vm>(space: &SpaceRef<'vm, High>, pages: u64, options: MapOptions, backing: Backing<'_, High>) -> VirtAddr {
    space.mmap(&MapRequest { options, backing, ..request_of(pages) }).expect("there is room")
}

fn range(start: VirtAddr, pages: u64) -> AddressRange {
    AddressRange::new(start, pages * PAGE)
}

/// Uses all that reaches a page's bytes, or a table's entries, besides what a program does.
fn use_it(memory: &Memory<High>) {
    let vm = Vm::<High>::new(memory.clone()).expect("there is memory");
    let spec = ObjectSpec { identity: 1, size_bytes: 4 * PAGE, source: &Slow, write_notice: WriteNotice::Fault };
    let file = vm.create_object(&spec).expect("there is memory");
    let space = vm.create_space(Limits::default()).expect("there is memory");
    let guest = Guest::new(&space);

    // Pages of a file: fetched by a source that sleeps, read by a call, cut off in the middle, pinned.
    let mut words = [0; 2];
    vm.read_object(&file, PAGE, &mut words).expect("it is there");
    assert_eq!(words, [2, 2]);
    let shared = map(&space, 4, MapOptions::SHARED, Backing::Object(&file, 0));
    assert_eq!(guest.load(shared + 2 * PAGE + 8).expect("it is there").0, 3);
    vm.truncate(&file, 2 * PAGE + 12).expect("short enough");
    vm.truncate(&file, 4 * PAGE).expect("short enough");
    let cut: Vec<u64> = [0, 8, 16].map(|byte| guest.load(shared + 2 * PAGE + byte).expect("it is there").0).into();
    assert_eq!(cut, [3, 3, 0]);
    let pin = space.pin(shared, PinKind::Write).expect("it is there");
    assert!(pin.write(16, &[77]));
    pin.read(8, &mut words);
    assert_eq!((words, guest.load(shared + 16).expect("it is there").0), ([1, 77], 77));

    // A program's own pages: copied after a fork, made a reference page of, pinned while they are unmapped.
    let own = map(&space, 600, MapOptions::empty(), Backing::Anonymous);
    guest.store(own, 5).expect("there is memory");
    guest.store(own + 513 * PAGE, 6).expect("there is memory");
    let child = space.fork().expect("there is memory");
    guest.store(own, 7).expect("there is memory");
    let in_child = Guest::new(&child);
    assert_eq!((in_child.load(own).expect("it is there").0, guest.load(own).expect("it is there").0), (5, 7));
    let repeated = space.refpage_create_sized(own.get(), 16, 0).expect("it may be read");
    let of_it = map(&space, 2, MapOptions::empty(), Backing::Reference(&repeated, 0));
    assert_eq!(guest.load(of_it + 16).expect("it is there").0, 7);
    let pin = space.pin(own + 513 * PAGE, PinKind::Read).expect("it is there");
    space.munmap(range(own, 600)).expect("it is mapped");
    pin.read(0, &mut words);
    assert_eq!(words, [6, 0]);
    drop((pin, in_child, child));
    use_entries(&space);
    // SAFETY: no other thread uses the instance.
    unsafe { invariants(&vm) }.expect("nothing is broken");
}

/// Uses all that looks at a table's entries besides a fault of a guest: calls, and a fault that a kernel hands in.
fn use_entries(space: &SpaceRef<'_, High>) {
    let guest = Guest::new(space);
    let own = map(space, 600, MapOptions::empty(), Backing::Anonymous);
    let far = own + 513 * PAGE;
    for address in [own, far] {
        assert_eq!(space.handle_fault(address, Access::Write, Mode::User), Resolution::Resolved);
        guest.store(address, 8).expect("it is there");
    }
    let mut is_in_memory = Vec::new();
    let note = &mut |is_there| {
        is_in_memory.push(is_there);
        ControlFlow::Continue(())
    };
    space.mincore(range(own, 2), note).expect("it is mapped");
    assert_eq!(is_in_memory, [true, false]);
    space.mprotect(range(own, 600), Protection::READ).expect("it is mapped");
    guest.store(far, 9).expect_err("it may not be written");
    space.madvise(range(own, 1), Advice::DontNeed).expect("it is mapped");
    space.madvise(range(own + PAGE, 1), Advice::GuardInstall).expect("it is mapped");
    guest.load(own + PAGE).expect_err("a guard is there");
    space.madvise(range(own + PAGE, 1), Advice::GuardRemove).expect("it is mapped");
    assert_eq!([own, own + PAGE, far].map(|address| guest.load(address).expect("it may be read").0), [0, 0, 8]);
    let placement = RemapPlacement::MoveTo(VirtAddr::new(1 << 41));
    let request = RemapRequest { old: range(own, 600), new_len_bytes: 700 * PAGE, placement, keeps_source: false };
    let moved = space.mremap(&request).expect("there is room");
    assert_eq!(guest.load(moved + 513 * PAGE).expect("it may be read").0, 8);
    space.munmap(range(moved, 700)).expect("it is mapped");
    // A page that has its tables for itself.
    let lone = MapRequest { placement: Placement::Fixed(VirtAddr::new(1 << 40)), ..request_of(1) };
    let lone = space.mmap(&lone).expect("there is room");
    guest.store(lone, 10).expect("there is memory");
    space.munmap(range(lone, 1)).expect("it is mapped");
}

#[test]
fn whatever_the_library_reaches_it_has_mapped_under_every_scheme() {
    for scheme in SCHEMES {
        let maps = with_memory(scheme, use_it);
        assert!(maps > 50, "{scheme}: {maps} maps");
    }
}

/// Maps a frame, sleeps for a moment, and releases it; what the panic says, if there is one, comes back.
fn kept_over_a_sleep(scheme: &str) -> Option<String> {
    let mut said = None;
    with_memory(scheme, |memory| {
        let frame = memory.frame(memory.alloc_for(Some(Holds::AnonymousPage)).expect("there is memory"));
        let kept = std::panic::catch_unwind(|| {
            High::map_frame(frame, Holds::AnonymousPage);
            let word = <High as Processor>::AtomicU32::new(0);
            High::park_until(&word, 0, High::now() + 1_000_000);
            // SAFETY: the frame is ours, and mapped.
            unsafe { frame.cast::<u64>().write_volatile(8) };
            High::unmap_frame(frame, Holds::AnonymousPage);
        });
        said = kept.err().map(|panic| panic.downcast_ref::<String>().cloned().unwrap_or_default());
    });
    said
}

#[test]
fn a_map_is_kept_over_a_sleep_under_all_schemes_but_the_atomic_one() {
    for scheme in SCHEMES {
        let said = (*scheme == "atomic").then(|| "a task gives its CPU up with 1 atomic maps".to_owned());
        assert_eq!(kept_over_a_sleep(scheme), said, "{scheme}");
    }
}

const CHILD: &str = "FAULTLESS_UNMAPPED_ACCESS";

#[test]
fn a_frame_of_high_memory_is_there_only_while_it_is_mapped() {
    if std::env::var_os(CHILD).is_some() {
        with_memory("local", |memory| {
            let pfn = memory.alloc_for(Some(Holds::AnonymousPage)).expect("there is memory");
            assert!(memory.is_high(pfn));
            let frame = memory.frame(pfn);
            High::map_frame(frame, Holds::AnonymousPage);
            // SAFETY: the frame is ours, and mapped.
            unsafe { frame.cast::<u64>().write_volatile(8) };
            High::unmap_frame(frame, Holds::AnonymousPage);
            // SAFETY: the frame is ours; this is where the CPU finds it.
            assert_eq!(unsafe { High::in_hardware(frame).cast::<u64>().read_volatile() }, 8);
            println!("mapped");
            // SAFETY: none: it is what must fault.
            println!("read {}", unsafe { frame.cast::<u64>().read_volatile() });
        });
        return;
    }
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", "a_frame_of_high_memory_is_there_only_while_it_is_mapped", "--nocapture"]);
    let output = command.env(CHILD, "1").output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.signal(), Some(libc::SIGSEGV), "{said}");
    assert!(said.contains("mapped") && !said.contains("read"), "{said}");
}
