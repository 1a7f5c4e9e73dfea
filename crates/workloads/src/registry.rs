//! All workloads by name.

use crate::program::{Program, Seat, Worker};
use crate::space::{AddressSpace, Refused};
use crate::spec::{Settings, Spec};
use crate::{PAGE, malloc1, mmap1, page_fault1};
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
    pages: fn(&Settings) -> u64,
    kind: Kind,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Alone(MakeWorker),
}

type MakeWorker = for<'a> fn(&Settings, Seat, &'a dyn AddressSpace) -> Result<Box<dyn Worker + 'a>, Refused>;

const WILL_IT_SCALE: &str = "will-it-scale";

/// Steps between two readings of the clock for steps of some 100 ns: no divisor of a page table's 512 entries.
const SELDOM: u32 = 13;

/// All workloads.
pub const WORKLOADS: &[Workload] = &[
    Workload {
        name: "page_fault1",
        about: "stores to each page of 128 MiB of fresh anonymous memory, unmaps it, and again",
        operation: "a page",
        source: WILL_IT_SCALE,
        steps_per_timing: SELDOM,
        pages: region_pages,
        kind: Kind::Alone(page_fault1::worker),
    },
    Workload {
        name: "malloc1",
        about: "allocates 128 MiB and frees it",
        operation: "an allocation and its end",
        source: WILL_IT_SCALE,
        steps_per_timing: SELDOM,
        pages: few_pages,
        kind: Kind::Alone(malloc1::worker),
    },
    Workload {
        name: "mmap1",
        about: "maps 128 MiB of anonymous memory and unmaps it",
        operation: "a mapping and its end",
        source: WILL_IT_SCALE,
        steps_per_timing: SELDOM,
        pages: few_pages,
        kind: Kind::Alone(mmap1::worker),
    },
];

fn region_pages(settings: &Settings) -> u64 {
    // Page tables besides, and what waits for a grace period.
    let pages = settings.region_bytes / PAGE;
    pages + pages / 256 + 512
}

fn few_pages(_settings: &Settings) -> u64 {
    512
}

/// What shows most in about a minute.
pub const DEFAULT_SELECTION: &[&str] = &["page_fault1", "malloc1", "mmap1"];

impl Workload {
    /// Returns the workload without flags.
    pub fn plain(&'static self) -> Spec {
        Spec { name: self.name.to_string(), workload: self, settings: Settings::default() }
    }
}

/// Returns the workload of that name.
pub fn find(name: &str) -> Option<&'static Workload> {
    WORKLOADS.iter().find(|workload| workload.name == name)
}

impl Spec {
    /// Returns how many workers there are on so many CPUs.
    pub fn nr_workers(&self, cpus: usize) -> usize {
        cpus
    }

    /// Returns how many frames a worker needs at most.
    pub fn pages_each(&self) -> u64 {
        (self.workload.pages)(&self.settings)
    }

    /// Makes the program for an address space, seen by one of its threads.
    pub fn prepare<'a, P: Threads>(
        &'a self,
        _space: &dyn AddressSpace,
        _team: usize,
    ) -> Result<Box<dyn Program<P> + 'a>, Refused> {
        match self.workload.kind {
            Kind::Alone(make) => Ok(Box::new(Alone { settings: &self.settings, make })),
        }
    }
}

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
