//! corten-*: the five microbenchmarks of the CortenMM paper: one kind of call or fault, all others kept aside.
//!
//! Source: J. Zhang et al., "CortenMM", SOSP 2025, microbenchmarks `mmap`, `mmap_pf`, `pf`, `munmap_virt`, `munmap`.
//!
//! | workload | before a round, aside | an operation | after it, aside |
//! |---|---|---|---|
//! | `corten-mmap` | the region is free | maps an item of 4 pages | unmapped |
//! | `corten-mmap_pf` | the region is free | maps an item of a page, stores to it | unmapped |
//! | `corten-pf` | the region is mapped | stores to an item, a page | discarded |
//! | `corten-munmap_virt` | the items, of 4 pages, are mapped | unmaps an item | |
//! | `corten-munmap` | the items, a page each, are mapped and stored to | unmaps an item | |
//!
//! | flag | where the items lie |
//! |---|---|
//! | `--low`, the default | each worker's together, in a region and tables of their own; a hole lies between two regions, so that they never become one area |
//! | `--near` | each worker's together, in tables of their own, in one region of all |
//! | `--interleaved` | the workers' alternate every 64 KiB, in one region of all |
//! | `--high` | in one region of all, dealt out in an order that a fixed seed shuffles |
//!
//! The first and the last are the paper's. `corten-pf --protect` has one worker change the rights of pages in the
//! region all the time, which is no operation: *inside* the others' tables, on a page of each that nobody stores to, or
//! *outside*, in a table of its own. It takes a page's stores away and gives them back. One worker alone stores.

use crate::PAGE;
use crate::program::{Program, Seat, Step, Worker};
use crate::random::Random;
use crate::rounds::Rounds;
use crate::settings::{Contention, Protects, Settings};
use crate::space::{AddressSpace, MapCall, Refused, Rights};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;
use faultless_platform::Threads;

/// What an operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CortenAct {
    /// Maps.
    Map,
    /// Maps and stores.
    MapAndStore,
    /// Stores.
    Store,
    /// Unmaps what nobody touched.
    UnmapUntouched,
    /// Unmaps what was stored to.
    Unmap,
}

/// Items of a worker in a round.
pub(crate) const ITEMS: u64 = 512;
/// Bytes that one page table covers: a worker's items of its own begin at a multiple.
const TABLE_BYTES: u64 = 2 << 20;
/// Bytes after which the next worker's items begin, where they alternate.
const STRIPE_BYTES: u64 = 64 << 10;
const SEED: u64 = 2025;
/// ENOMEM: what mprotect answers where nothing is mapped.
const NOT_MAPPED: i32 = 12;

impl CortenAct {
    /// Bytes of an item.
    pub(crate) const fn item_bytes(self) -> u64 {
        match self {
            Self::Map | Self::UnmapUntouched => 4 * PAGE,
            Self::MapAndStore | Self::Store | Self::Unmap => PAGE,
        }
    }

    /// Bytes of a worker's items.
    const fn part_bytes(self) -> u64 {
        ITEMS * self.item_bytes()
    }

    /// Bytes from one worker's region to the next.
    const fn stride_bytes(self) -> u64 {
        self.part_bytes().next_multiple_of(TABLE_BYTES) + TABLE_BYTES
    }

    /// Bytes from one worker's items to the next in one region.
    const fn near_bytes(self) -> u64 {
        self.part_bytes().next_multiple_of(TABLE_BYTES)
    }

    /// Says whether a round begins with items that are mapped.
    const fn begins_mapped(self) -> bool {
        matches!(self, Self::Store | Self::UnmapUntouched | Self::Unmap)
    }
}

/// What the threads of a space share.
pub(crate) struct Region<P: Threads> {
    act: CortenAct,
    /// The workers' regions, or the one of all.
    ranges: Vec<Range<u64>>,
    /// The items' places, worker after worker.
    items: Vec<u64>,
    rounds: Rounds<P>,
    /// What the first worker does, if it does not take part in the rounds.
    protects: Option<Protects>,
}

/// Makes the region of a team.
pub(crate) fn prepare<P: Threads>(
    act: CortenAct,
    settings: &Settings,
    space: &dyn AddressSpace,
    team: usize,
) -> Result<Region<P>, Refused> {
    let len_bytes = act.stride_bytes() * team as u64;
    let found = space.map(&MapCall { rights: Rights::None, ..MapCall::anonymous(len_bytes + TABLE_BYTES) })?;
    space.unmap(found..found + len_bytes + TABLE_BYTES)?;
    let start = found.next_multiple_of(TABLE_BYTES);
    let items = places(act, settings.contention, team).into_iter().map(|place| start + place).collect();
    let parts = |count: u64, bytes: u64| (0..count).map(|part| start + part * bytes).collect::<Vec<_>>();
    let nr_workers = team as u64;
    let (starts, len_bytes) = match settings.contention {
        Contention::Low => (parts(nr_workers, act.stride_bytes()), act.part_bytes()),
        Contention::Near => (parts(1, 0), nr_workers * act.near_bytes()),
        Contention::Interleaved | Contention::High => (parts(1, 0), nr_workers * act.part_bytes()),
    };
    let ranges = starts.into_iter().map(|start| start..start + len_bytes).collect();
    let protects = settings.protects.filter(|_| team > 1);
    let nr_in_rounds = team - usize::from(protects.is_some());
    Ok(Region { act, ranges, items, rounds: Rounds::new(nr_in_rounds), protects })
}

/// Returns the places of all items, worker after worker.
fn places(act: CortenAct, contention: Contention, team: usize) -> Vec<u64> {
    let (item_bytes, nr_items) = (act.item_bytes(), ITEMS * team as u64);
    let together = |stride_bytes: u64| {
        let part = |worker: u64| (0..ITEMS).map(move |item| worker * stride_bytes + item * item_bytes);
        (0..team as u64).flat_map(part).collect()
    };
    let alternating = |worker: u64| {
        (0..ITEMS).map(move |item| {
            let (stripe, rest) = (item * item_bytes / STRIPE_BYTES, item * item_bytes % STRIPE_BYTES);
            (stripe * team as u64 + worker) * STRIPE_BYTES + rest
        })
    };
    match contention {
        Contention::Low => together(act.stride_bytes()),
        Contention::Near => together(act.near_bytes()),
        Contention::Interleaved => (0..team as u64).flat_map(alternating).collect(),
        Contention::High => {
            let mut all: Vec<u64> = (0..nr_items).map(|item| item * item_bytes).collect();
            Random::new(SEED).shuffle(&mut all);
            all
        }
    }
}

impl<P: Threads> Region<P> {
    /// Makes everything as it has to be before a round.
    fn renew(&self, space: &dyn AddressSpace) -> Result<(), Refused> {
        space.aside(&mut || self.make_anew(space))
    }

    fn make_anew(&self, space: &dyn AddressSpace) -> Result<(), Refused> {
        for range in &self.ranges {
            space.unmap(range.clone())?;
            if self.act.begins_mapped() {
                let len_bytes = range.end - range.start;
                space.map(&MapCall { fixed: Some(range.start), ..MapCall::anonymous(len_bytes) })?;
            }
        }
        if self.act == CortenAct::Unmap {
            self.items.iter().try_for_each(|&item| space.store(item, item))?;
        }
        Ok(())
    }
}

impl<P: Threads> Program<P> for Region<P> {
    fn worker<'a>(&'a self, seat: Seat, space: &'a dyn AddressSpace) -> Result<Box<dyn Worker + 'a>, Refused> {
        let mine = &self.items[seat.worker * ITEMS as usize..(seat.worker + 1) * ITEMS as usize];
        let Some(protects) = self.protects else {
            return Ok(Box::new(Hand { region: self, space, items: mine, next: mine.len() }));
        };
        let (last, stored) = mine.split_last().unwrap_or((&0, &[]));
        if seat.worker > 0 {
            return Ok(Box::new(Hand { region: self, space, items: stored, next: stored.len() }));
        }
        let first_of_next = (seat.worker + 1) * ITEMS as usize;
        let pages = match protects {
            Protects::Inside => {
                self.items[first_of_next..].chunks(ITEMS as usize).filter_map(<[u64]>::last).copied().collect()
            }
            Protects::Outside => alloc::vec![*last],
        };
        Ok(Box::new(Protector { space, pages, next: 0 }))
    }
}

/// Takes the stores to one page after the other away, and gives them back.
struct Protector<'a> {
    space: &'a dyn AddressSpace,
    pages: Vec<u64>,
    next: usize,
}

impl Worker for Protector<'_> {
    fn step(&mut self) -> Result<Step, Refused> {
        let page = self.pages[self.next % self.pages.len()];
        self.next += 1;
        for rights in [Rights::Read, Rights::ReadWrite] {
            match self.space.protect(page..page + PAGE, rights) {
                // Between two rounds nothing is mapped.
                Ok(()) | Err(Refused::Call { errno: NOT_MAPPED, .. }) => {}
                Err(refused) => return Err(refused),
            }
        }
        Ok(Step::of(0))
    }
}

struct Hand<'a, P: Threads> {
    region: &'a Region<P>,
    space: &'a dyn AddressSpace,
    items: &'a [u64],
    next: usize,
}

impl<P: Threads> Hand<'_, P> {
    fn act(&self, item: u64) -> Result<(), Refused> {
        let act = self.region.act;
        let range = item..item + act.item_bytes();
        let map = || self.space.map(&MapCall { fixed: Some(item), ..MapCall::anonymous(act.item_bytes()) });
        match act {
            CortenAct::Map => map().map(drop),
            CortenAct::MapAndStore => map().and_then(|start| self.space.store(start, start)),
            CortenAct::Store => self.space.store(item, item),
            CortenAct::UnmapUntouched | CortenAct::Unmap => self.space.unmap(range),
        }
    }
}

impl<P: Threads> Worker for Hand<'_, P> {
    fn step(&mut self) -> Result<Step, Refused> {
        let mut aside_ns = 0;
        if self.next == self.items.len() {
            aside_ns = self.region.rounds.turn(|| self.region.renew(self.space))?;
            self.next = 0;
        }
        self.act(self.items[self.next])?;
        self.next += 1;
        Ok(Step { ops: 1, aside_ns })
    }

    fn finish(&mut self) {
        self.region.rounds.finish(|| self.region.renew(self.space));
    }
}
