//! What a thread does in a round. Operations are those of the workloads of the same names.

use faultless_platform::native::Native;
use faultless_vm::design::Design;
use faultless_vm::{
    AddressRange, AreaFlags, Backing, Guest, MapOptions, MapRequest, ObjectHandle, PAGE, Placement, Populate,
    Protection, VirtAddr,
};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What a thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// Maps 128 MiB, stores to each page, unmaps: an operation is a page.
    PageFault1,
    /// Maps 128 MiB, stores to the first page, unmaps.
    Malloc1,
    /// Maps a file privately, stores to each page, unmaps.
    PageFault2,
    /// As `PageFault2`, but shared.
    PageFault3,
}

/// The loads that promises are about.
pub const LOADS: &[Load] = &[Load::PageFault1, Load::Malloc1];
/// Those that are printed beside them.
pub const FILE_LOADS: &[Load] = &[Load::PageFault2, Load::PageFault3];

/// Pages of an anonymous mapping: 128 MiB, as published.
pub const PAGES: u64 = 32_768;
/// Pages that the caches hold: 8 MiB.
pub const CACHED_PAGES: u64 = 2048;
/// Pages of the file.
pub const FILE_PAGES: u64 = 4096;
const PAIRS: u64 = 1000;
/// Pages between two looks at the clock.
const PAGES_PER_LOOK: u64 = 32;

impl Load {
    /// Returns the workload's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::PageFault1 => "page_fault1",
            Self::Malloc1 => "malloc1",
            Self::PageFault2 => "page_fault2",
            Self::PageFault3 => "page_fault3",
        }
    }

    /// Says whether the load maps a file.
    pub fn maps_file(self) -> bool {
        FILE_LOADS.contains(&self)
    }

    /// Says whether two threads in one space shall reach 0.9 of what they reach in two.
    pub fn is_promised_under(self, design: &str) -> bool {
        match self {
            Self::PageFault1 => ["spf-srcu", "spf-v11", "vma-lock"].contains(&design),
            Self::PageFault2 => design == "vma-lock",
            Self::Malloc1 | Self::PageFault3 => false,
        }
    }

    /// Returns what a round maps, and how many pages it stores to.
    fn round<'a>(self, file: Option<&'a ObjectHandle<'a, Native>>) -> (MapRequest<'a, Native>, u64) {
        let file = |kind| of_file(file.expect("a load that maps a file gets one"), kind);
        match self {
            Self::PageFault1 => (anonymous(), PAGES),
            Self::Malloc1 => (anonymous(), 1),
            Self::PageFault2 => (file(AreaFlags::empty()), FILE_PAGES),
            Self::PageFault3 => (file(AreaFlags::SHARED), FILE_PAGES),
        }
    }

    /// Does one round, or many short ones; returns the nanoseconds of an operation.
    pub fn run<D: Design<Native>>(
        self,
        guest: &Guest<'_, Native, D>,
        file: Option<&ObjectHandle<'_, Native>>,
        more: &Locked,
    ) -> f64 {
        let (request, nr_pages) = self.round(file);
        let nr_rounds = if self == Self::Malloc1 { PAIRS } else { 1 };
        let start = Instant::now();
        for _ in 0..nr_rounds {
            let base = guest.space().mmap(&request).expect("room");
            more.call();
            if more.is_none() {
                touch(guest, base.get(), nr_pages);
            } else {
                (0..nr_pages).for_each(|page| {
                    touch(guest, (base + page * PAGE).get(), 1);
                    more.fault(self);
                });
            }
            guest.space().munmap(AddressRange::new(base, request.len_bytes)).expect("valid");
            more.call();
        }
        start.elapsed().as_secs_f64() * 1e9 / (nr_rounds * nr_pages) as f64
    }

    /// Does rounds for so long, the last one maybe in part; returns operations in a second.
    pub fn rate<D: Design<Native>>(
        self,
        guest: &Guest<'_, Native, D>,
        file: Option<&ObjectHandle<'_, Native>>,
        window: Duration,
    ) -> f64 {
        let (request, nr_pages) = self.round(file);
        let (start, mut nr_ops) = (Instant::now(), 0);
        loop {
            let base = guest.space().mmap(&request).expect("room");
            let mut done = 0;
            while done < nr_pages && start.elapsed() < window {
                let part = PAGES_PER_LOOK.min(nr_pages - done);
                touch(guest, (base + done * PAGE).get(), part);
                done += part;
            }
            nr_ops += done;
            let elapsed = start.elapsed();
            guest.space().munmap(AddressRange::new(base, request.len_bytes)).expect("valid");
            if elapsed >= window {
                return nr_ops as f64 / elapsed.as_secs_f64();
            }
        }
    }
}

/// Locked instructions beside those of a design, on a word that nobody else has: what a protocol with more of them
/// takes at least.
#[derive(Default)]
pub struct Locked {
    word: AtomicU64,
    per_call: u32,
    per_fault: u32,
    per_first_fault: u32,
}

impl Locked {
    /// What `spf-v9` and `spf-v11` have more than `mmap-sem`, as published, in a space of two threads: a map call locks
    /// the index and unlocks it; so does an attempt before a fault, and one that is completed takes a reference and
    /// puts it, and has a fence for the tables.
    pub fn of_the_index_lock() -> Self {
        Self { word: AtomicU64::new(0), per_call: 2, per_fault: 5 - 2, per_first_fault: 2 }
    }

    fn is_none(&self) -> bool {
        self.per_call == 0
    }

    fn call(&self) {
        self.make(self.per_call);
    }

    /// A completed attempt takes the place of the semaphore's two; each of malloc1's is a first store, which is given
    /// up.
    fn fault(&self, load: Load) {
        self.make(if load == Load::Malloc1 { self.per_first_fault } else { self.per_fault });
    }

    fn make(&self, nr: u32) {
        (0..nr).for_each(|_| {
            self.word.fetch_add(1, Ordering::SeqCst);
        });
    }
}

/// Asks for 128 MiB of anonymous memory.
pub fn anonymous() -> MapRequest<'static, Native> {
    MapRequest {
        placement: Placement::Anywhere,
        len_bytes: PAGES * PAGE,
        protection: Protection::READ | Protection::WRITE,
        options: MapOptions::empty(),
        backing: Backing::Anonymous,
        populate: Populate::OnFault,
    }
}

fn of_file<'a>(file: &'a ObjectHandle<'a, Native>, kind: AreaFlags) -> MapRequest<'a, Native> {
    MapRequest {
        len_bytes: FILE_PAGES * PAGE,
        protection: (AreaFlags::READ | AreaFlags::WRITE | kind).protection(),
        options: (AreaFlags::READ | AreaFlags::WRITE | kind).options(),
        backing: Backing::Object(file, 0),
        ..anonymous()
    }
}

/// Stores to so many pages.
pub fn touch<D: Design<Native>>(guest: &Guest<'_, Native, D>, base: u64, nr_pages: u64) {
    for page in 0..nr_pages {
        guest.store(VirtAddr::new(base + page * PAGE), page).expect("mapped");
    }
}
