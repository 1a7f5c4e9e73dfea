//! High memory: frames without a permanent address, and which allocations may get one.
//!
//! # Guarantee
//! Once a memory is divided, what may not lie in high memory never does; what may, lies there as long as such a frame
//! is free, and in normal memory otherwise. Blocks of several frames lie in normal memory. Where a platform has no high
//! memory (`Platform::HAS_HIGH_MEMORY`) none of this is compiled in.
//!
//! # How
//! The allocator below knows no zones. A CPU that gets a frame of the wrong zone sets it aside for a later allocation
//! from that zone and takes another; a frame is set aside at most once between a free and an allocation. Frames set
//! aside are free; a CPU that finds no other frame takes those that other CPUs set aside, and one that finds no block
//! gives all of them back, where they merge.
//!
//! An allocation can fail although a frame of its zone is free if another CPU is just putting it aside: the promise of
//! [`Memory`](crate::Memory) that a failure is exact holds for memories that are not divided.
//!
//! # Lock order
//! A lock of frames that were put aside is taken with none of the allocator's held, and no two at a time.

use crate::frames::Frames;
use crate::pfn::Pfn;
use alloc::boxed::Box;
use faultless_platform::{Atomic, HighZone, Holds, Ordering, Platform};
use faultless_sync::{PerCpu, SpinMutex, lock_class};

lock_class! {
    /// The lock of the frames of one zone that a CPU has put aside.
    pub AsideLock = "frames_aside"
}

/// A part of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ZoneKind {
    /// It has addresses.
    Normal = 0,
    /// It has none.
    High = 1,
}

/// Free frames in a row of links, by the first one's number; 0 for none.
#[derive(Default)]
struct Aside {
    first: u32,
    nr_frames: usize,
}

/// What a CPU has put aside, of each zone.
type OfCpu<P> = [SpinMutex<P, Aside, AsideLock>; 2];

/// A memory's division in two zones.
pub(crate) struct Division<P: Platform> {
    /// The first frame without an address.
    begin: u32,
    may_hold: HighZone,
    aside: PerCpu<P, OfCpu<P>>,
    nr_cpus: usize,
}

impl<P: Platform> Division<P> {
    pub(crate) fn new(begin: u32, may_hold: HighZone, nr_cpus: usize) -> Box<Self> {
        let of_cpu = |_| core::array::from_fn(|_| SpinMutex::classed(Aside::default()));
        Box::new(Self { begin, may_hold, aside: PerCpu::new(nr_cpus, of_cpu), nr_cpus })
    }

    /// Says whether a frame has no address of its own.
    pub(crate) fn is_high(&self, pfn: Pfn) -> bool {
        pfn.get() >= self.begin
    }

    /// Says whether each frame of a block has an address.
    pub(crate) fn is_normal(&self, first: Pfn, order: u8) -> bool {
        first.get() + (1 << order) <= self.begin
    }

    /// Returns how many free frames were put aside.
    pub(crate) fn nr_aside(&self) -> usize {
        (0..self.nr_cpus).flat_map(|cpu| self.aside.get(cpu)).map(|aside| aside.lock().nr_frames).sum()
    }

    fn zone_of(&self, pfn: Pfn) -> ZoneKind {
        if self.is_high(pfn) { ZoneKind::High } else { ZoneKind::Normal }
    }

    /// Takes a frame to hold such a thing; `take` asks the allocator below for any.
    pub(crate) fn take(
        &self,
        frames: &Frames<P>,
        holds: Option<Holds>,
        mut take: impl FnMut() -> Option<Pfn>,
    ) -> Option<Pfn> {
        let wanted = match holds {
            Some(holds) if self.may_hold.may_hold(holds) => ZoneKind::High,
            _ => ZoneKind::Normal,
        };
        let own = self.aside.get(P::cpu());
        if let Some(pfn) = pop(frames, &own[wanted as usize]) {
            return Some(pfn);
        }
        while let Some(pfn) = take() {
            let zone = self.zone_of(pfn);
            if zone == wanted {
                return Some(pfn);
            }
            push(frames, &own[zone as usize], pfn);
        }
        let of_others =
            |zone: ZoneKind| (0..self.nr_cpus).find_map(|cpu| pop(frames, &self.aside.get(cpu)[zone as usize]));
        of_others(wanted).or_else(|| if wanted == ZoneKind::High { of_others(ZoneKind::Normal) } else { None })
    }

    /// Gives what was put aside back to the allocator below; says whether that was anything.
    pub(crate) fn give_back(&self, frames: &Frames<P>, mut give: impl FnMut(Pfn)) -> bool {
        let mut nr_given = 0;
        for aside in (0..self.nr_cpus).flat_map(|cpu| self.aside.get(cpu)) {
            while let Some(pfn) = pop(frames, aside) {
                give(pfn);
                nr_given += 1;
            }
        }
        nr_given != 0
    }
}

fn link<P: Platform>(frames: &Frames<P>, pfn: Pfn) -> &P::AtomicU64 {
    &frames.page(pfn).links()[0]
}

fn push<P: Platform>(frames: &Frames<P>, aside: &SpinMutex<P, Aside, AsideLock>, pfn: Pfn) {
    let mut aside = aside.lock();
    // Relaxed: the lock orders it.
    link(frames, pfn).store(u64::from(aside.first), Ordering::Relaxed);
    (aside.first, aside.nr_frames) = (pfn.get(), aside.nr_frames + 1);
}

fn pop<P: Platform>(frames: &Frames<P>, aside: &SpinMutex<P, Aside, AsideLock>) -> Option<Pfn> {
    let mut aside = aside.lock();
    // 0 is no frame that is handed out: metadata lies there.
    let first = Pfn::new((aside.first != 0).then_some(aside.first)?);
    // Relaxed: the lock orders it.
    (aside.first, aside.nr_frames) = (link(frames, first).load(Ordering::Relaxed) as u32, aside.nr_frames - 1);
    Some(first)
}
