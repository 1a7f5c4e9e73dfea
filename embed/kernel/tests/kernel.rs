//! The kernel on a processor that walks its tables: what programs see, and what becomes of memory.

mod machine;

use faultless_embed_kernel::{BootError, DIRECT_MAP, Fate, Ram, Window};
use faultless_phys::{CheckedSource, FrameSource, Pfn};
use faultless_platform::native::HostRegion;
use faultless_vm::{VirtAddr, check};
use machine::{MAP, Machine, Pc, Program, kernel_load};

const PAGE: u64 = 4096;
const READ: u64 = 1;
const WRITE: u64 = 2;
const EXEC: u64 = 4;
const MAPERR: Fate = Fate::Signal(11, 1);
const ACCERR: Fate = Fate::Signal(11, 2);

/// Runs `act` with a kernel and a process that has the CPU; afterwards nothing is lost, and interrupts are on.
fn with_process(act: impl FnOnce(&Machine, &Program<'_, '_>)) {
    let machine = Machine::new();
    let kernel = machine.kernel();
    {
        let process = kernel.spawn().expect("there is memory");
        process.resume();
        act(&machine, &Program(&process));
        process.suspend();
        // SAFETY: no other thread uses the kernel.
        unsafe { check::invariants(kernel.vm()) }.unwrap_or_else(|broken| panic!("{broken}"));
    }
    kernel.vm().flush();
    // SAFETY: as above.
    unsafe { check::invariants(kernel.vm()) }.unwrap_or_else(|broken| panic!("at the end: {broken}"));
    assert!(machine.interrupts_are_on());
}

#[test]
fn memory_is_zero_then_what_was_stored() {
    with_process(|_, program| {
        let start = program.map(64 * PAGE, READ | WRITE);
        for page in 0..64 {
            assert_eq!(program.load(start + page * PAGE), Ok(0));
            assert_eq!(program.store(start + page * PAGE, page + 1), Ok(()), "the zero page is never written");
        }
        assert!((0..64).all(|page| program.load(start + page * PAGE) == Ok(page + 1)));
    });
}

#[test]
fn what_is_taken_away_is_gone_from_the_tlb() {
    with_process(|machine, program| {
        let start = program.map(4 * PAGE, READ | WRITE);
        (0..4).for_each(|page| program.store(start + page * PAGE, 7).expect("mapped"));
        let before = machine.nr_forgotten();
        assert_eq!(program.call(11, &[start, PAGE]), 0, "munmap");
        assert_eq!(program.load(start), Err(MAPERR));
        assert!(machine.nr_forgotten() > before);
        assert_eq!(program.call(10, &[start + PAGE, PAGE, READ]), 0, "mprotect");
        assert_eq!(program.store(start + PAGE, 8), Err(ACCERR));
        assert_eq!(program.load(start + PAGE), Ok(7));
        assert_eq!(program.fetch(start + PAGE), Err(ACCERR));
        assert_eq!(program.call(10, &[start + PAGE, PAGE, READ | EXEC]), 0);
        assert_eq!(program.fetch(start + PAGE), Ok(()));
        assert_eq!(program.call(28, &[start + 2 * PAGE, PAGE, 4]), 0, "MADV_DONTNEED");
        assert_eq!(program.load(start + 2 * PAGE), Ok(0));
        let moved = program.call(25, &[start + 3 * PAGE, PAGE, 2 * PAGE, 1, 0]) as u64;
        assert_eq!(program.load(moved), Ok(7), "mremap");
        assert_eq!(program.call(11, &[moved, 2 * PAGE]), 0);
        assert_eq!(program.load(moved), Err(MAPERR));
    });
}

#[test]
fn a_child_has_a_copy_and_neither_sees_the_others_stores() {
    with_process(|_, program| {
        let start = program.map(8 * PAGE, READ | WRITE);
        program.store(start, 1).expect("mapped");
        let child = program.0.fork().expect("there is memory");
        program.store(start, 2).expect("the parent's translation is not writable any more: it copies");
        program.0.suspend();
        child.resume();
        assert_eq!(Program(&child).load(start), Ok(1));
        Program(&child).store(start, 3).expect("mapped");
        child.suspend();
        program.0.resume();
        assert_eq!(program.load(start), Ok(2));
    });
}

#[test]
fn the_kernels_half_is_the_same_in_every_space_and_not_the_users() {
    with_process(|_, program| {
        let start = program.map(PAGE, READ | WRITE);
        program.store(start, 0xfeed).expect("mapped");
        let physical = program.0.space().entry_at(VirtAddr::new(start)).pfn().address().get();
        assert!(MAP.iter().any(|range| range.contains(&physical)));
        assert_eq!(kernel_load(DIRECT_MAP + physical), 0xfeed);
        let other = program.0.fork().expect("there is memory");
        program.0.suspend();
        other.resume();
        assert_eq!(kernel_load(DIRECT_MAP + physical), 0xfeed, "seen from another space");
        assert_eq!(Program(&other).load(DIRECT_MAP + physical), Err(MAPERR));
        other.suspend();
        program.0.resume();
    });
}

#[test]
fn calls_copy_and_refuse_as_linux_does() {
    with_process(|_, program| {
        let start = program.map(2 * PAGE, READ | WRITE);
        let text = u64::from_le_bytes(*b"hi there");
        program.store(start + PAGE - 8, text).expect("mapped");
        let mut written = Vec::new();
        let arguments = [1, start + PAGE - 8, 8, 0, 0, 0];
        assert_eq!(program.0.call(1, arguments, &mut |byte| written.push(byte)), 8);
        assert_eq!(written, b"hi there");
        assert_eq!(program.call(1, &[1, 0x1000, 8]), -14, "EFAULT");
        assert_eq!(program.call(1, &[1, start + 2 * PAGE - 3, 8]), 3, "as far as memory goes");
        assert_eq!(program.call(11, &[start + 1, PAGE]), -22, "EINVAL");
        assert_eq!(program.call(9999, &[]), -38, "ENOSYS");
        assert_eq!(program.0.copy_to_user(start, 0x41), Ok(()));
        assert_eq!(program.load(start), Ok(0x41));
        let heap = program.call(12, &[0]) as u64;
        assert_eq!(program.call(12, &[heap + PAGE]) as u64, heap + PAGE, "brk");
        assert_eq!(program.store(heap, 5), Ok(()));
    });
}

#[test]
fn memory_runs_out_without_losing_any() {
    let machine = Machine::new();
    let kernel = machine.kernel();
    let nr_free = kernel.vm().memory().nr_free();
    for _ in 0..3 {
        let process = kernel.spawn().expect("what the last one had is free");
        process.resume();
        let program = Program(&process);
        let start = program.map(64 << 20, READ | WRITE);
        let end = (0..).map(|page| start + page * PAGE).find(|&address| program.store(address, address).is_err());
        let end = end.expect("there are 4 MiB of memory");
        assert!(matches!(program.store(end, 1), Err(Fate::Ended(Some(_)))));
        assert!((start..end).step_by(PAGE as usize).all(|address| program.load(address) == Ok(address)));
        process.suspend();
    }
    kernel.vm().flush();
    assert!(kernel.vm().memory().nr_free() + 64 >= nr_free, "a few frames of slabs stay");
    // SAFETY: no other thread uses the kernel.
    unsafe { check::invariants(kernel.vm()) }.unwrap_or_else(|broken| panic!("{broken}"));
}

#[test]
fn the_frame_source_keeps_its_obligations() {
    let machine = Machine::new();
    let source = CheckedSource::new(machine.boot());
    let nr_free = source.nr_free();
    let mut blocks: Vec<(Pfn, u8)> = Vec::new();
    for turn in 0_u32..4000 {
        let order = (turn.wrapping_mul(2_654_435_761) >> 29) as u8 % 5;
        match source.try_alloc_order(order) {
            Ok(first) => blocks.push((first, order)),
            Err(_) => blocks.truncate({
                // SAFETY: each block is ours, and given back once.
                blocks.iter().skip(blocks.len() / 2).for_each(|&(pfn, order)| unsafe { source.free_order(pfn, order) });
                blocks.len() / 2
            }),
        }
    }
    // SAFETY: as above.
    blocks.drain(..).for_each(|(pfn, order)| unsafe { source.free_order(pfn, order) });
    let deferred = source.alloc().expect("all are free");
    // SAFETY: as above.
    unsafe { source.free_deferred(deferred) };
    assert_eq!((source.nr_out(), source.nr_free()), (0, nr_free - 1));
    source.rcu().flush();
    assert_eq!(source.nr_free(), nr_free);
    assert!(source.audit_with(|_| ()).is_clean());
}

#[test]
fn a_bad_map_is_refused() {
    let region = HostRegion::reserve(1 << 20).expect("the host has room");
    let window = Window { pointer: region.base().as_ptr(), first: 0x1000 };
    let boot = |map: &[(u64, u64)]| {
        let map: Vec<_> = map.iter().map(|&(start, end)| start..end).collect();
        // SAFETY: the region is new; nothing is written where the map is refused.
        unsafe { Ram::<Pc>::boot(window, &map) }.err()
    };
    assert_eq!(boot(&[(0, 0x8000)]), Some(BootError::BadRange { start: 0 }));
    assert_eq!(boot(&[(0x2000, 0x3800)]), Some(BootError::BadRange { start: 0x2000 }));
    assert_eq!(boot(&[(0x4000, 0x6000), (0x5000, 0x8000)]), Some(BootError::BadRange { start: 0x5000 }));
    assert!(matches!(boot(&[(0x2000, 0x4000)]), Some(BootError::NoRoom { .. })));
    assert!(matches!(boot(&[]), Some(BootError::NoRoom { .. })));
}
