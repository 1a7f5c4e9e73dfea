//! Zones: what needs an address never lies in a frame that has none.

use faultless_phys::{FrameSource, Memory, Options, Pfn};
use faultless_platform::native::{HostRegion, Machine, Native};
use faultless_platform::watched::{self, Watched};
use faultless_platform::{HighZone, Holds, PAGE_BYTES, Processor, Threads};

type P = Watched<Native>;

const BYTES: usize = 4 << 20;

/// Runs `test` on two CPUs' memory of which the upper half has no addresses.
fn divided(may_hold: [bool; 4], test: impl Fn(&Memory<P>) + Sync) {
    let region = HostRegion::reserve(BYTES).expect("room");
    // SAFETY: the region is ours and outlives the memory.
    let memory = unsafe { Memory::<P>::new(region.base(), BYTES, 2, Options { poison: true, ..Options::DEFAULT }) };
    let memory = memory.expect("it fits");
    memory.divide(HighZone { begin: region.base().as_ptr().addr() + BYTES / 2, may_hold });
    let machine = watched::Machine::<Native>::unwatched(Machine::new(2));
    P::run(&machine, 1, &|_| {
        P::enter();
        test(&memory);
        P::leave();
    });
}

fn all(memory: &Memory<P>, holds: Option<Holds>) -> Vec<Pfn> {
    std::iter::from_fn(|| memory.try_alloc_for(holds).ok()).collect()
}

fn free(memory: &Memory<P>, frames: Vec<Pfn>) {
    // SAFETY: the caller allocated them, and nobody uses them.
    frames.into_iter().for_each(|pfn| unsafe { FrameSource::free(memory, pfn) });
}

#[test]
fn what_needs_an_address_gets_one_and_fails_when_there_is_none() {
    divided([true, false, false, true], |memory| {
        let nr_free = memory.nr_free();
        let high = all(memory, Some(Holds::AnonymousPage));
        assert_eq!(high.len(), nr_free, "when high memory is used up, normal memory serves");
        let nr_high = high.iter().filter(|&&pfn| memory.is_high(pfn)).count();
        assert_eq!(nr_high, BYTES / 2 / PAGE_BYTES);
        assert!(high[..nr_high].iter().all(|&pfn| memory.is_high(pfn)), "high memory comes first");
        free(memory, high);
        for holds in [None, Some(Holds::FilePage), Some(Holds::UpperTable)] {
            let normal = all(memory, holds);
            assert!(normal.iter().all(|&pfn| !memory.is_high(pfn)), "{holds:?}");
            assert_eq!((normal.len(), memory.nr_free()), (nr_free - nr_high, nr_high), "{holds:?}");
            free(memory, normal);
        }
        assert_eq!(memory.nr_free(), nr_free);
    });
}

#[test]
fn blocks_and_plain_allocations_have_addresses() {
    divided([true; 4], |memory| {
        let nr_free = memory.nr_free();
        let mut blocks = Vec::new();
        while let Ok(first) = memory.alloc_order(4) {
            assert!((first.get()..first.get() + 16).all(|number| !memory.is_high(Pfn::new(number))));
            blocks.push(first);
        }
        assert!(blocks.len() > 16, "{} blocks of {nr_free} frames", blocks.len());
        // SAFETY: allocated above.
        blocks.into_iter().for_each(|first| unsafe { memory.free_order(first, 4) });
        let plain: Vec<Pfn> = std::iter::from_fn(|| memory.try_alloc().ok()).collect();
        assert!(!plain.is_empty() && plain.iter().all(|&pfn| !memory.is_high(pfn)));
        free(memory, plain);
        assert_eq!(memory.nr_free(), nr_free);
    });
}

#[test]
fn frames_that_another_cpu_put_aside_are_found() {
    divided([false, false, false, true], |memory| {
        // This CPU puts all high frames aside while it takes all normal ones.
        let normal = all(memory, None);
        let nr_high = memory.nr_free();
        P::leave();
        P::enter();
        assert_eq!(all(memory, Some(Holds::AnonymousPage)).len(), nr_high);
        assert_eq!((memory.nr_free(), normal.is_empty()), (0, false));
    });
}

#[test]
fn blocks_are_made_of_frames_that_were_put_aside() {
    divided([false, false, false, true], |memory| {
        let nr_free = memory.nr_free();
        // The last one finds no high frame, and has put all others aside on its way.
        let nr_taken = BYTES / 2 / PAGE_BYTES + 1;
        let taken: Vec<Pfn> =
            (0..nr_taken).map(|_| memory.try_alloc_for(Some(Holds::AnonymousPage)).expect("one is free")).collect();
        assert!(taken.last().is_some_and(|&last| !memory.is_high(last)));
        let block = memory.alloc_order(4).expect("normal memory is free");
        assert!((block.get()..block.get() + 16).all(|number| !memory.is_high(Pfn::new(number))));
        // SAFETY: allocated above.
        unsafe { memory.free_order(block, 4) };
        free(memory, taken);
        assert_eq!(memory.nr_free(), nr_free);
    });
}
