//! fork: what a shell does all the time: it forks, the child stores to some of its memory and exits, the shell waits;
//! or what a database does that saves itself: one thread forks, the others go on.
//!
//! A shell's memory is small: 64 pages of data, of which a child stores to 16 before it would call exec. An operation
//! is a child. The published relatives are lmbench's "fork+exit" (L. McVoy) and UnixBench's "Process Creation".
//!
//! | flag | what it changes |
//! |---|---|
//! | `--region SIZE` | the parent has stored to so much memory; a child stores to a page of each 2 MiB of it |
//! | `--every DURATION` | the region is one of all threads, 1 GiB unless told. The first one forks a child, which ends at once, when so much time has passed since it last did; the others store to pages of the region, in random order, and a store is an operation. One thread alone stores |
//! | `--low`, the default, or `--high` | each of the others stores to a part of its own, or everywhere; with `--every` |
//! | `--every never` | the same, and nobody forks |

use crate::PAGE;
use crate::program::{Program, Seat, Step, Worker};
use crate::random::Random;
use crate::settings::{Contention, Every, Settings};
use crate::space::{AddressSpace, MapCall, Refused};
use alloc::boxed::Box;
use core::marker::PhantomData;
use core::ops::Range;
use faultless_platform::Threads;

/// A shell's data.
pub(crate) const REGION_BYTES: u64 = 64 * PAGE;
/// The memory that the threads of `--every` share.
pub(crate) const SHARED_REGION_BYTES: u64 = 1 << 30;
/// Of a shell's data a child stores to each fourth page.
const SHELL_STRIDE: u64 = 4 * PAGE;
/// Of more memory, to a page of each of these.
const TABLE_BYTES: u64 = 2 << 20;
const SEED: u64 = 2018;

/// The program: what its threads share is the region of `--every`.
pub(crate) struct Forking<'s, P> {
    settings: &'s Settings,
    shared: Option<(Range<u64>, Every)>,
    platform: PhantomData<fn() -> P>,
}

impl<'s, P: Threads> Forking<'s, P> {
    /// Makes the region that all threads of a space share, if they do.
    pub(crate) fn prepare(settings: &'s Settings, space: &dyn AddressSpace) -> Result<Self, Refused> {
        let region = |every| Ok((touched(space, settings.region_bytes)?, every));
        let shared = settings.fork_every.map(region).transpose()?;
        Ok(Self { settings, shared, platform: PhantomData })
    }
}

impl<P: Threads> Program<P> for Forking<'_, P> {
    fn worker<'a>(&'a self, seat: Seat, space: &'a dyn AddressSpace) -> Result<Box<dyn Worker + 'a>, Refused> {
        let Some((region, every)) = self.shared.clone() else {
            let data = touched(space, self.settings.region_bytes)?;
            return Ok(Box::new(Shell { space, data, nr_children: 0 }));
        };
        if seat.worker == 0 && seat.team > 1 {
            return Ok(Box::new(Saver::<P> { space, every, next_ns: P::now(), platform: PhantomData }));
        }
        let pages = match self.settings.contention {
            Contention::Low => part(&region, seat),
            _ => region,
        };
        Ok(Box::new(Storer { space, pages, random: Random::of_worker(SEED, seat.global) }))
    }
}

/// Maps memory and stores to each of its pages.
fn touched(space: &dyn AddressSpace, len_bytes: u64) -> Result<Range<u64>, Refused> {
    let start = space.map(&MapCall::anonymous(len_bytes))?;
    let data = start..start + len_bytes;
    data.clone().step_by(PAGE as usize).try_for_each(|page| space.store(page, page))?;
    Ok(data)
}

/// Returns a worker's part of the region: that of the one who forks is the next one's, too.
fn part(region: &Range<u64>, seat: Seat) -> Range<u64> {
    let nr_parts = (seat.team as u64).saturating_sub(1).max(1);
    let nr_pages = (region.end - region.start) / PAGE;
    let bound = |part: u64| region.start + nr_pages * part / nr_parts * PAGE;
    let place = (seat.worker as u64).saturating_sub(1);
    let (start, end) = (bound(place), bound(place + 1));
    // There may be more workers than pages.
    if start < end { start..end } else { region.clone() }
}

/// Forks, and waits for each child.
struct Shell<'a> {
    space: &'a dyn AddressSpace,
    data: Range<u64>,
    nr_children: u64,
}

/// A child finds what the parent stored, and stores something else.
fn live(space: &dyn AddressSpace, data: Range<u64>, mark: u64) -> Result<(), Refused> {
    let stride = if data.end - data.start < TABLE_BYTES { SHELL_STRIDE } else { TABLE_BYTES };
    for page in data.step_by(stride as usize) {
        check(space, page, page)?;
        space.store(page, mark)?;
    }
    Ok(())
}

fn check(space: &dyn AddressSpace, address: u64, expected: u64) -> Result<(), Refused> {
    match space.load(address)? {
        found if found == expected => Ok(()),
        found => Err(Refused::Wrong { address, found, expected }),
    }
}

impl Worker for Shell<'_> {
    fn step(&mut self) -> Result<Step, Refused> {
        self.nr_children += 1;
        let (data, mark) = (self.data.clone(), self.nr_children);
        self.space.fork(&mut |child| live(child, data.clone(), mark))?;
        // The parent works on with its own memory, as a shell does: pages that were shared with the child.
        check(self.space, data.start, data.start)?;
        self.space.store(data.start, data.start)?;
        Ok(Step::of(1))
    }
}

/// Forks from time to time, beside others who store.
struct Saver<'a, P> {
    space: &'a dyn AddressSpace,
    every: Every,
    /// When the next child is due.
    next_ns: u64,
    platform: PhantomData<fn() -> P>,
}

/// As long as a step may last in which nothing is due.
const STEP_NS: u64 = 10_000;

impl<P: Threads> Worker for Saver<'_, P> {
    fn step(&mut self) -> Result<Step, Refused> {
        let now = P::now();
        match self.every {
            Every::Ns(every_ns) if now >= self.next_ns => {
                self.next_ns = now + every_ns;
                self.space.fork(&mut |_| Ok(()))?;
            }
            Every::Ns(_) | Every::Never => {
                P::spin_until_deadline(now + STEP_NS, || false);
            }
        }
        Ok(Step::of(0))
    }
}

/// Stores to pages that are there.
struct Storer<'a> {
    space: &'a dyn AddressSpace,
    pages: Range<u64>,
    random: Random,
}

impl Worker for Storer<'_> {
    fn step(&mut self) -> Result<Step, Refused> {
        let Range { start, end } = self.pages;
        let page = start + self.random.below((end - start) / PAGE) * PAGE;
        self.space.store(page, page)?;
        Ok(Step::of(1))
    }
}
