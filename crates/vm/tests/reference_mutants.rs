//! Known bugs about reference pages, put back one at a time: which of them dies how.
//!
//! Each runs the same program on one thread, which looks at what it loads and checks the invariants after each step.
#![cfg(feature = "mutants")]

use faultless_phys::{Memory, Options};
use faultless_platform::mutants::{self, Mutant};
use faultless_platform::native::{HostRegion, Machine, Native};
use faultless_sync::Rwsem;
use faultless_vm::design::VmaLock;
use faultless_vm::{
    AddressRange, Advice, Backing, Guest, Limits, MapOptions, MapRequest, PAGE, Pattern, PinKind, Placement, Populate,
    Protection, ReferenceHandle, VirtAddr, Vm, check,
};

type Instance = Vm<Native, VmaLock<Rwsem<Native>>>;
const START: u64 = 0x1000_0000;
const FIRST: u64 = 0x1111_1111_1111_1111;
const SECOND: u64 = 0x2222_2222_2222_2222;

/// What found a bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Finder {
    Invariant(u32),
    Content,
}

fn at(page: u64) -> VirtAddr {
    VirtAddr::new(START + page * PAGE)
}

fn checked(vm: &Instance) -> Result<(), Finder> {
    // SAFETY: the thread is the only one.
    unsafe { check::invariants(vm) }.map_err(|broken| Finder::Invariant(broken.invariant))
}

fn shows(guest: &Guest<'_, Native, VmaLock<Rwsem<Native>>>, page: u64, word: u64) -> Result<(), Finder> {
    if guest.load(at(page)).expect("mapped").0 == word { Ok(()) } else { Err(Finder::Content) }
}

/// Two reference pages side by side: looked at, stored to, dropped, inherited, pinned and unmapped. On an error nothing
/// is undone.
fn program(vm: &Instance) -> Result<(), Finder> {
    let create = |byte| vm.create_repeated(Pattern::Byte(byte)).expect("room");
    let (first, second) = (create(0x11), create(0x22));
    let space = std::mem::ManuallyDrop::new(vm.create_space(Limits::default()).expect("room"));
    let map = |handle: &ReferenceHandle<'_, Native>, page: u64| {
        let request = MapRequest {
            placement: Placement::Fixed(at(page)),
            len_bytes: 4 * PAGE,
            protection: Protection::READ | Protection::WRITE,
            options: MapOptions::empty(),
            backing: Backing::Reference(handle, page * PAGE),
            populate: Populate::OnFault,
        };
        space.mmap(&request).expect("room");
    };
    map(&first, 0);
    map(&second, 4);
    let guest = std::mem::ManuallyDrop::new(Guest::new(&space));
    shows(&guest, 0, FIRST)?;
    checked(vm)?;
    shows(&guest, 4, SECOND)?;
    checked(vm)?;
    guest.store(at(0), 1).expect("mapped");
    checked(vm)?;
    shows(&guest, 1, FIRST)?;
    space.madvise(AddressRange::new(at(0), PAGE), Advice::DontNeed).expect("mapped");
    shows(&guest, 0, FIRST)?;
    checked(vm)?;
    let child = std::mem::ManuallyDrop::new(space.fork().expect("room"));
    let in_child = std::mem::ManuallyDrop::new(Guest::new(&child));
    shows(&in_child, 2, FIRST)?;
    checked(vm)?;
    drop(std::mem::ManuallyDrop::into_inner(in_child));
    drop(std::mem::ManuallyDrop::into_inner(child));
    drop(first);
    checked(vm)?;
    shows(&guest, 3, FIRST)?;
    let pin = std::mem::ManuallyDrop::new(space.pin(at(3), PinKind::Read).expect("mapped"));
    space.munmap(AddressRange::new(at(0), 4 * PAGE)).expect("mapped");
    vm.flush();
    checked(vm)?;
    let mut word = [0];
    pin.read(0, &mut word);
    if word != [FIRST] {
        return Err(Finder::Content);
    }
    drop(std::mem::ManuallyDrop::into_inner(pin));
    drop(std::mem::ManuallyDrop::into_inner(guest));
    drop(std::mem::ManuallyDrop::into_inner(space));
    checked(vm)
}

fn found(mutant: Option<Mutant>) -> Result<(), Finder> {
    let run = move || {
        mutants::choose(mutant);
        let region = std::mem::ManuallyDrop::new(HostRegion::reserve(16 << 20).expect("the host has room"));
        Machine::new(1).attach(|| {
            let options = Options { poison: true, ..Options::default() };
            // SAFETY: the region is zeroed, ours alone, and never given back.
            let memory = unsafe { Memory::new(region.base(), region.len_bytes(), 1, options) };
            let vm = std::mem::ManuallyDrop::new(Instance::new(memory.expect("large enough")).expect("room"));
            program(&vm)
        })
    };
    std::thread::spawn(run).join().expect("the program finds the bug before it panics")
}

#[test]
fn each_known_bug_is_found() {
    assert_eq!(found(None), Ok(()));
    let finders = [
        (Mutant::ReferencePageCounted, Finder::Invariant(2)),
        (Mutant::ReferencePageWritable, Finder::Invariant(3)),
        (Mutant::ReferenceFreedWhileMapped, Finder::Invariant(3)),
        (Mutant::ReferenceFreedWhilePinned, Finder::Invariant(3)),
        (Mutant::ReferencesMerged, Finder::Content),
        (Mutant::ReferenceLostAtFork, Finder::Content),
        (Mutant::ReferenceZeroAfterDontNeed, Finder::Content),
    ];
    for (mutant, finder) in finders {
        assert_eq!(found(Some(mutant)), Err(finder), "{}", mutant.name());
    }
}
