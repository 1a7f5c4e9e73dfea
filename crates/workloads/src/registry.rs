//! All workloads by name.

use crate::corten::{self, CortenAct};
use crate::program::{Program, Seat, Worker};
use crate::settings::{Contention, Settings, Touch};
use crate::space::{AddressSpace, Refused};
use crate::spec::Spec;
use crate::{
    PAGE, brk1, brk2, ebizzy, fork, malloc1, malloc2, mmap_touch, mmap1, mmap2, page_fault1, page_fault2, page_fault3,
};
use crate::{pagefaults, read_byte, read1, read2, refpage, renderer, tlb_flush1, tlb_flush2, tlb_flush3};
use alloc::boxed::Box;
use alloc::string::ToString;
use faultless_platform::Threads;

/// A workload.
#[derive(Debug)]
pub struct Workload {
    /// Its name.
    pub name: &'static str,
    /// What it does.
    pub about: &'static str,
    /// What one operation is.
    pub operation: &'static str,
    /// Where it is published.
    pub source: &'static str,
    /// Of so many steps one is timed; the clock is read no more often.
    pub steps_per_timing: u32,
    /// Which flags it has.
    pub flags: Flags,
    pages: fn(&Settings) -> u64,
    kind: Kind,
}

/// Which flags a workload has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flags {
    /// None.
    None,
    /// `--region SIZE`.
    Region,
    /// `--low` and its like.
    Contention,
    /// As `Contention`, and `--protect`.
    Stores,
    /// `--region SIZE`, `--own` and `--shared`.
    RegionAndWhose,
    /// ebizzy's.
    Ebizzy,
    /// refpage's.
    Refpage,
    /// mmap_touch's.
    MmapTouch,
    /// `--own` and `--shared`.
    Whose,
    /// pagefaults'.
    PageFaults,
    /// fork's.
    Fork,
}

impl Flags {
    /// Returns them as users write them.
    pub const fn names(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Region => "--region SIZE",
            Self::Contention => "--low, --near, --interleaved, --high",
            Self::Stores => "--low, --near, --interleaved, --high, --protect inside|outside",
            Self::RegionAndWhose => "--own, --shared, --region SIZE",
            Self::Refpage => {
                "--variant NAME, --touch one|half|all|N%|renderer, --load, --update, --reuse, --region SIZE"
            }
            Self::MmapTouch => "--mutex, --untouched, --region SIZE",
            Self::Whose => "--own, --shared",
            Self::PageFaults => {
                "--pattern sequential|random|stride=SIZE, --access read|write, --mapping private|shared, --region SIZE"
            }
            Self::Fork => "--every DURATION|never, --low, --high, --region SIZE",
            Self::Ebizzy => "-m -M -t THREADS -n CHUNKS -s SIZE -T -R -p",
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    /// Workers share nothing.
    Alone(MakeWorker),
    Corten(CortenAct),
    Ebizzy,
    Touching,
    Forking,
    /// Replayed from a recording: no program over an address space.
    Recorded,
}

type MakeWorker = for<'a> fn(&Settings, Seat, &'a dyn AddressSpace) -> Result<Box<dyn Worker + 'a>, Refused>;

const WILL_IT_SCALE: &str = "will-it-scale";

/// Steps between two readings of the clock for steps of some 100 ns or more: no divisor of a page table's 512 entries.
const SELDOM: u32 = 13;
/// The same for steps of some ns.
const RARELY: u32 = 1021;

const fn will_it_scale(name: &'static str, about: &'static str, operation: &'static str, make: MakeWorker) -> Workload {
    let (source, kind) = (WILL_IT_SCALE, Kind::Alone(make));
    Workload { name, about, operation, source, steps_per_timing: SELDOM, flags: Flags::None, pages: few_pages, kind }
}

impl Workload {
    const fn timed(self, steps_per_timing: u32) -> Self {
        Self { steps_per_timing, ..self }
    }

    /// Maps a region that may have another size.
    const fn in_region(self, pages: fn(&Settings) -> u64) -> Self {
        Self { flags: Flags::Region, pages, ..self }
    }
}

const fn corten(name: &'static str, about: &'static str, operation: &'static str, act: CortenAct) -> Workload {
    Workload {
        name,
        about,
        operation,
        source: "CortenMM, SOSP 2025",
        steps_per_timing: SELDOM,
        flags: Flags::Contention,
        pages: corten_pages,
        kind: Kind::Corten(act),
    }
}

impl Workload {
    /// Returns how many operations a worker makes at most until it begins anew: before it waits for the others, or over
    /// a file, which the first round brings into memory; 0 if all its operations are alike.
    pub fn ops_per_round(&self, settings: &Settings) -> u64 {
        match self.kind {
            Kind::Corten(_) => corten::ITEMS,
            _ if matches!(self.flags, Flags::RegionAndWhose) => settings.region_bytes / PAGE,
            _ => 0,
        }
    }

    /// Maps a file, which may be one of all, in a region that may have another size.
    const fn in_file(self, pages: fn(&Settings) -> u64) -> Self {
        Self { flags: Flags::RegionAndWhose, pages, ..self }
    }

    /// May have a worker that changes rights meanwhile.
    const fn beside_a_protector(self) -> Self {
        Self { flags: Flags::Stores, ..self }
    }
}

/// All workloads.
pub const WORKLOADS: &[Workload] = &[
    will_it_scale(
        "page_fault1",
        "stores to each page of 128 MiB of fresh anonymous memory, unmaps it, and again",
        "a page",
        page_fault1::worker,
    )
    .in_region(region_pages),
    will_it_scale(
        "page_fault2",
        "stores to each page of a private mapping of a file of 128 MiB, unmaps it, and again",
        "a page",
        page_fault2::worker,
    )
    .in_file(region_and_file_pages),
    will_it_scale(
        "page_fault3",
        "stores to each page of a shared mapping of a file of 128 MiB, unmaps it, and again",
        "a page",
        page_fault3::worker,
    )
    .in_file(region_pages),
    Workload {
        name: "pagefaults",
        about: "accesses each page of 128 MiB of fresh memory in a pattern, unmaps it, and again",
        operation: "an access",
        source: "the rwsem series' review, October 2013",
        steps_per_timing: SELDOM,
        flags: Flags::PageFaults,
        pages: region_pages,
        kind: Kind::Alone(pagefaults::worker),
    },
    will_it_scale("malloc1", "allocates 128 MiB and frees it", "an allocation and its end", malloc1::worker)
        .in_region(few_pages),
    will_it_scale("malloc2", "allocates 1 KiB and frees it", "an allocation and its end", malloc2::worker)
        .timed(RARELY),
    will_it_scale("mmap1", "maps 128 MiB of anonymous memory and unmaps it", "a mapping and its end", mmap1::worker)
        .in_region(few_pages),
    will_it_scale("mmap2", "maps 128 MiB of a file and unmaps it", "a mapping and its end", mmap2::worker)
        .in_region(few_pages),
    Workload {
        name: "mmap_touch",
        about: "maps 1 MiB of anonymous memory, stores to all of it, unmaps it",
        operation: "a mapping, its stores and its end",
        source: "the rwsem series, October 2013",
        steps_per_timing: 1,
        flags: Flags::MmapTouch,
        pages: region_pages,
        kind: Kind::Touching,
    },
    will_it_scale("brk1", "moves the heap's end up by a page and back", "a call", brk1::worker),
    will_it_scale("brk2", "moves the heap's end up by a page and back, each worker elsewhere", "a call", brk2::worker),
    will_it_scale(
        "tlb_flush1",
        "stores to a page of a private file mapping, discards it, loads it again",
        "a page",
        tlb_flush1::worker,
    )
    .in_region(region_pages),
    will_it_scale(
        "tlb_flush2",
        "stores to a page of anonymous memory, discards it, loads it again",
        "a page",
        tlb_flush2::worker,
    ),
    will_it_scale(
        "tlb_flush3",
        "stores to a page of a shared file mapping, discards it, loads it again",
        "a page",
        tlb_flush3::worker,
    )
    .in_region(region_pages),
    will_it_scale("read1", "reads a cached file of its own, 4 KiB at a time", "a read", read1::worker),
    will_it_scale("read2", "reads the cached file that all read, 4 KiB at a time", "a read", read2::worker),
    Workload {
        name: "read-byte",
        about: "reads one byte of a cached file and seeks back",
        operation: "a read and the way back",
        source: "the kmap_lock thread, March 2002",
        steps_per_timing: SELDOM,
        flags: Flags::Whose,
        pages: few_pages,
        kind: Kind::Alone(read_byte::worker),
    },
    Workload {
        name: "ebizzy",
        about: "copies a chunk of memory, searches the copy, and frees it",
        operation: "a record",
        source: "ebizzy 0.2",
        steps_per_timing: 1,
        flags: Flags::Ebizzy,
        pages: ebizzy_pages,
        kind: Kind::Ebizzy,
    },
    corten("corten-mmap", "maps 16 KiB", "a mapping", CortenAct::Map),
    corten("corten-mmap_pf", "maps a page and stores to it", "a mapping and its fault", CortenAct::MapAndStore),
    corten("corten-pf", "stores to a page that is mapped", "a fault", CortenAct::Store).beside_a_protector(),
    corten("corten-munmap_virt", "unmaps 16 KiB that nobody touched", "an unmapping", CortenAct::UnmapUntouched),
    corten("corten-munmap", "unmaps a page that was stored to", "an unmapping", CortenAct::Unmap),
    Workload {
        name: "fork",
        about: "forks; the child stores to 16 of 64 pages and exits; waits for it",
        operation: "a child; with --every a store",
        source: "lmbench and UnixBench have relatives",
        steps_per_timing: 1,
        flags: Flags::Fork,
        pages: fork_pages,
        kind: Kind::Forking,
    },
    Workload {
        name: "refpage",
        about: "maps 4 MiB that start as a byte, touches some pages, unmaps it; or a renderer's blocks",
        operation: "a mapping, its touches and its end",
        source: "reference pages v5, 2021",
        steps_per_timing: 1,
        flags: Flags::Refpage,
        pages: refpage_pages,
        kind: Kind::Alone(refpage::worker),
    },
    Workload {
        name: "compile",
        about: "replays the recorded gcc -O2 -c many.c, one for each CPU at once",
        operation: "a compilation",
        source: "examples/gcc.trace",
        steps_per_timing: 1,
        flags: Flags::None,
        pages: few_pages,
        kind: Kind::Recorded,
    },
];

/// Frames that wait for a grace period, and the tables of a few mappings.
const FEW_PAGES: u64 = 1024;

fn few_pages(_settings: &Settings) -> u64 {
    FEW_PAGES
}

/// A region, and its tables.
fn region_pages(settings: &Settings) -> u64 {
    let pages = settings.region_bytes / PAGE;
    pages + pages / 256 + FEW_PAGES
}

/// A region, or what a recorded renderer has mapped at once.
fn refpage_pages(settings: &Settings) -> u64 {
    match settings.refpage.touch {
        Touch::Renderer => renderer::pages_at_once() + FEW_PAGES,
        Touch::One | Touch::Percent(_) => region_pages(settings),
    }
}

fn region_and_file_pages(settings: &Settings) -> u64 {
    2 * region_pages(settings)
}

fn corten_pages(_settings: &Settings) -> u64 {
    corten::ITEMS + 2 * FEW_PAGES
}

/// A copy is as long as a chunk; the heap keeps some.
fn ebizzy_pages(settings: &Settings) -> u64 {
    4 * ebizzy_chunk_pages(settings) + 64
}

/// A chunk and its tables.
fn ebizzy_chunk_pages(settings: &Settings) -> u64 {
    (settings.ebizzy.chunk_bytes.div_ceil(PAGE) + 2) * 129 / 128 + 1
}

/// A worker's data and its child's; what all share is not a worker's.
fn fork_pages(settings: &Settings) -> u64 {
    if settings.fork_every.is_some() { 2 * FEW_PAGES } else { 2 * region_pages(settings) }
}

/// What shows most in about a minute.
pub const DEFAULT_SELECTION: &[&str] = &["page_fault1", "page_fault2", "malloc1", "mmap1", "tlb_flush2", "ebizzy -mT"];

impl Workload {
    /// Returns the workload without flags.
    pub fn plain(&'static self) -> Spec {
        let settings = Settings { region_bytes: self.region_bytes(), ..Settings::default() };
        Spec { name: self.name.to_string(), workload: self, settings }
    }

    /// Returns what a worker maps at once, unless told.
    pub(crate) const fn region_bytes(&self) -> u64 {
        match self.flags {
            Flags::MmapTouch => mmap_touch::REGION_BYTES,
            Flags::Refpage => refpage::REGION_BYTES,
            Flags::Fork => fork::REGION_BYTES,
            _ => 128 << 20,
        }
    }
}

impl Workload {
    /// Says whether it is replayed from a recording, instead of being a program over an address space.
    pub const fn is_recorded(&self) -> bool {
        matches!(self.kind, Kind::Recorded)
    }
}

/// Returns the workload of that name.
pub fn find(name: &str) -> Option<&'static Workload> {
    WORKLOADS.iter().find(|workload| workload.name == name)
}

impl Spec {
    /// Returns how many workers there are on so many CPUs.
    pub fn nr_workers(&self, cpus: usize) -> usize {
        match self.workload.flags {
            Flags::Ebizzy => self.settings.ebizzy.nr_threads.unwrap_or(2 * cpus),
            Flags::None
            | Flags::Region
            | Flags::Contention
            | Flags::Stores
            | Flags::RegionAndWhose
            | Flags::Refpage
            | Flags::MmapTouch
            | Flags::Whose
            | Flags::PageFaults
            | Flags::Fork => cpus,
        }
    }

    /// Returns how many frames the workers of a space need together at most, whatever their number.
    pub fn pages_shared(&self) -> u64 {
        match self.workload.flags {
            Flags::Ebizzy => self.settings.ebizzy.nr_chunks * ebizzy_chunk_pages(&self.settings) + FEW_PAGES,
            // What the others store to while a child is there is copied.
            Flags::Fork if self.settings.fork_every.is_some() => 2 * region_pages(&self.settings),
            Flags::None
            | Flags::Region
            | Flags::Contention
            | Flags::Stores
            | Flags::RegionAndWhose
            | Flags::Refpage
            | Flags::MmapTouch
            | Flags::Whose
            | Flags::PageFaults
            | Flags::Fork => 0,
        }
    }

    /// Returns how many frames a worker needs at most, besides.
    pub fn pages_each(&self) -> u64 {
        (self.workload.pages)(&self.settings)
    }

    /// Returns how many areas a worker may have that don't become one with others, beyond a handful.
    pub fn areas_each(&self) -> u64 {
        match (self.workload.kind, self.settings.contention) {
            (Kind::Corten(_), Contention::High | Contention::Interleaved) => corten::ITEMS,
            _ => 0,
        }
    }

    /// Makes the program for an address space with so many threads, seen by one of them.
    pub fn prepare<'a, P: Threads>(
        &'a self,
        space: &dyn AddressSpace,
        team: usize,
    ) -> Result<Box<dyn Program<P> + 'a>, Refused> {
        Ok(match self.workload.kind {
            Kind::Alone(make) => Box::new(Alone { settings: &self.settings, make }),
            Kind::Corten(act) => Box::new(corten::prepare::<P>(act, &self.settings, space, team)?),
            Kind::Ebizzy => Box::new(ebizzy::prepare(&self.settings, space)?),
            Kind::Forking => Box::new(fork::Forking::prepare(&self.settings, space)?),
            Kind::Touching => Box::new(mmap_touch::Touching::new(&self.settings)),
            Kind::Recorded => return Err(Refused::Call { call: "a recorded workload's program", errno: NO_SUCH_CALL }),
        })
    }
}

/// ENOSYS.
const NO_SUCH_CALL: i32 = 38;

/// A program whose workers share nothing.
struct Alone<'s> {
    settings: &'s Settings,
    make: MakeWorker,
}

impl<P: Threads> Program<P> for Alone<'_> {
    fn worker<'a>(&'a self, seat: Seat, space: &'a dyn AddressSpace) -> Result<Box<dyn Worker + 'a>, Refused> {
        (self.make)(self.settings, seat, space)
    }
}
