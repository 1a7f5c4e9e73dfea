//! Set-up: what is refused, and how little it touches.

mod support;

use faultless_phys::{Memory, Options, SetupError};
use faultless_platform::PAGE_BYTES;
use faultless_platform::native::{HostRegion, Machine, Native};
use std::time::{Duration, Instant};
use support::World;

fn set_up(len_bytes: usize, nr_cpus: usize, options: Options, shift: usize) -> Result<usize, SetupError> {
    let region = HostRegion::reserve(1 << 20).expect("a MiB");
    // SAFETY: the region is new and outlives the memory; refused lengths aren't touched.
    let memory = unsafe { Memory::<Native>::new(region.base().add(shift), len_bytes, nr_cpus, options) };
    memory.map(|memory| memory.nr_frames())
}

fn plain(len_bytes: usize) -> Result<usize, SetupError> {
    set_up(len_bytes, 1, Options::default(), 0)
}

#[test]
fn the_smallest_region_has_one_frame() {
    assert_eq!(plain(2 * PAGE_BYTES), Ok(1));
    assert_eq!(plain(2 * PAGE_BYTES + 4095), Ok(1), "a part of a frame is not used");
    assert_eq!(plain(65 * PAGE_BYTES), Ok(63), "64 frames' metadata fills one");
    for len_bytes in [0, 1, PAGE_BYTES, 2 * PAGE_BYTES - 1] {
        assert_eq!(plain(len_bytes), Err(SetupError::TooSmall { len_bytes, least_bytes: 2 * PAGE_BYTES }));
    }
}

#[test]
fn what_cannot_work_is_refused_with_a_reason() {
    let mib = 1 << 20;
    let text = |result: Result<usize, SetupError>| result.expect_err("it can't work").to_string();
    assert!(text(set_up(mib, 1, Options::default(), 64)).contains("does not begin at a page"));
    assert!(text(plain(usize::MAX)).contains("is too large: 4294967295 frames are the most"));
    assert!(text(set_up(mib, 0, Options::default(), 0)).contains("0 CPUs: a machine has 1 to 1024"));
    assert!(text(set_up(mib, 1025, Options::default(), 0)).contains("1025 CPUs"));
    let with = |change: fn(&mut Options)| {
        let mut options = Options::default();
        change(&mut options);
        text(set_up(mib, 1, options, 0))
    };
    assert_eq!(with(|options| options.refcount_bits = 32), "option refcount_bits is 32: it can be 2 to 31");
    assert_eq!(with(|options| options.list_high = 193), "option list_high is 193: it can be 2 to 192");
    assert_eq!(with(|options| options.list_batch = 0), "option list_batch is 0: it can be 1 to 64");
    assert_eq!(with(|options| options.list_high = 16), "option list_batch is 32: it can be 1 to 16");
}

#[test]
fn the_extreme_options_work() {
    for (list_high, list_batch) in [(2, 1), (2, 2), (192, 64), (192, 1)] {
        let options = Options { list_high, list_batch, refcount_bits: 2, poison: true };
        let nr_frames = if cfg!(miri) { 250 } else { 900 };
        let (world, machine) = (World::<Native>::new(nr_frames, 1, options), Machine::new(1));
        machine.attach(|| {
            for _ in 0..if cfg!(miri) { 1 } else { 3 } {
                let frames = world.take_all();
                assert_eq!(frames.len(), nr_frames);
                world.free_all(frames);
            }
        });
    }
}

/// Bytes of a range that the host has given memory to.
fn resident_bytes(start: *mut u8, len_bytes: usize) -> usize {
    let mut pages = vec![0_u8; len_bytes / PAGE_BYTES];
    // SAFETY: the range is mapped, and the vector has one byte a page.
    assert_eq!(unsafe { libc::mincore(start.cast(), len_bytes, pages.as_mut_ptr()) }, 0);
    pages.iter().filter(|&&page| page & 1 == 1).count() * PAGE_BYTES
}

#[test]
#[cfg_attr(miri, ignore = "Miri has neither 64 GiB nor mincore")]
fn a_huge_region_costs_what_is_used_of_it() {
    const GIB: usize = 1 << 30;
    let region = HostRegion::reserve(64 * GIB).expect("address space");
    let start = Instant::now();
    // SAFETY: the region is new and outlives the memory.
    let memory = unsafe { Memory::<Native>::new(region.base(), 64 * GIB, 2, Options::default()) }.expect("it fits");
    let took = start.elapsed();
    assert!(took < Duration::from_millis(200), "set-up took {took:?}");
    Machine::new(2).attach(|| memory.alloc().map(drop)).expect("plenty");
    assert_eq!(memory.nr_frames(), 63 * GIB / PAGE_BYTES);
    // The anchor's huge page, the first frames' metadata and nothing else.
    let resident = resident_bytes(region.base().as_ptr(), GIB);
    assert!(resident <= 8 << 20, "{resident} bytes of metadata were touched");
}

#[test]
fn handles_name_the_same_memory_and_several_memories_live_side_by_side() {
    let (one, other) =
        (World::<Native>::new(10, 1, Options::default()), World::<Native>::new(20, 1, Options::default()));
    Machine::new(1).attach(|| {
        let handle = one.memory.clone();
        let pfn = handle.alloc().expect("plenty");
        assert_eq!((one.memory.nr_free(), other.memory.nr_free()), (9, 20));
        assert_eq!(other.memory.pfn_of(one.memory.frame(pfn)), None);
    });
}
