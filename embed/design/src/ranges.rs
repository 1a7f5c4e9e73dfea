//! A lock for ranges of addresses.
//!
//! # Guarantee
//! Two guards that live at once are of disjoint ranges. Who locks everything waits for all, and lets nobody in.
//!
//! # Protocol
//! Calls on a range share the semaphore, and enter their range in a table; who finds one there that overlaps sleeps
//! until some range has left. Calls on everything have the semaphore alone.
//!
//! Who waits for a range has a share of the semaphore and no range, so that those who are waited for go on and leave.
//! Nobody holds two ranges.

use core::ops::Range;
use faultless_platform::{Atomic, AtomicInteger, Ordering, Platform};
use faultless_sync::{ReadGuard, RwSemaphore, SpinMutex, WriteGuard};
use faultless_vm::design::MapLock;
use faultless_vm::{System, VirtAddr};

/// Ranges that are held at once; one more waits.
const CAPACITY: usize = 64;

/// The ranges that are held.
struct Held {
    ranges: [Option<(VirtAddr, VirtAddr)>; CAPACITY],
    nr: usize,
    /// The most that ever were.
    most: usize,
}

impl Held {
    /// Enters a range, if there is room and nothing that overlaps; returns its place.
    fn enter(&mut self, range: &Range<VirtAddr>) -> Option<usize> {
        let overlaps = |held: &(VirtAddr, VirtAddr)| held.0 < range.end && range.start < held.1;
        if self.ranges.iter().flatten().any(overlaps) {
            return None;
        }
        let place = self.ranges.iter().position(Option::is_none)?;
        self.ranges[place] = Some((range.start, range.end));
        self.nr += 1;
        self.most = self.most.max(self.nr);
        Some(place)
    }

    fn leave(&mut self, place: usize) {
        self.ranges[place] = None;
        self.nr -= 1;
    }
}

/// See the module.
pub struct Ranges<P: Platform, S> {
    semaphore: S,
    held: SpinMutex<P, Held>,
    /// Ranges that have left: what waiters sleep on.
    nr_left: P::AtomicU32,
}

impl<P: Platform, S: RwSemaphore<P>> Ranges<P, S> {
    /// Returns how many calls on ranges were inside at once, at most.
    pub fn most_at_once(&self) -> usize {
        self.held.lock().most
    }

    fn lock(&self, range: &Range<VirtAddr>) -> RangeGuard<'_, P, S> {
        if range.end == VirtAddr::new(u64::MAX) {
            return RangeGuard { lock: self, place: None, _read: None, _write: Some(self.semaphore.write()) };
        }
        let read = self.semaphore.read();
        loop {
            // ORDER: Acquire pairs with the Release in `drop`: who sees no departure since then sleeps, or finds the
            // range in the table.
            let seen = self.nr_left.load(Ordering::Acquire);
            let entered = self.held.lock().enter(range);
            match entered {
                Some(place) => return RangeGuard { lock: self, place: Some(place), _read: Some(read), _write: None },
                None => P::park(&self.nr_left, seen),
            }
        }
    }
}

/// A range that is held, or everything.
pub struct RangeGuard<'a, P: Platform, S: RwSemaphore<P>> {
    lock: &'a Ranges<P, S>,
    place: Option<usize>,
    _read: Option<ReadGuard<'a, P, S>>,
    _write: Option<WriteGuard<'a, P, S>>,
}

impl<P: Platform, S: RwSemaphore<P>> Drop for RangeGuard<'_, P, S> {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            self.lock.held.lock().leave(place);
            // ORDER: Release pairs with the Acquire in `lock`.
            self.lock.nr_left.fetch_add(1, Ordering::Release);
            P::unpark(&raw const self.lock.nr_left, usize::MAX);
        }
    }
}

// SAFETY: guards of overlapping ranges don't live at once, whatever they are for.
unsafe impl<P: System, S: RwSemaphore<P>> MapLock<P> for Ranges<P, S> {
    type Semaphore = S;
    type Read<'a> = RangeGuard<'a, P, S>;
    type Write<'a> = RangeGuard<'a, P, S>;

    fn new(semaphore: S) -> Self {
        let held = Held { ranges: [None; CAPACITY], nr: 0, most: 0 };
        Self { semaphore, held: SpinMutex::new(held), nr_left: P::AtomicU32::new(0) }
    }

    fn read(&self, range: Range<VirtAddr>) -> RangeGuard<'_, P, S> {
        self.lock(&range)
    }

    fn try_read(&self, range: Range<VirtAddr>) -> Option<RangeGuard<'_, P, S>> {
        let read = self.semaphore.try_read()?;
        let place = self.held.lock().enter(&range)?;
        Some(RangeGuard { lock: self, place: Some(place), _read: Some(read), _write: None })
    }

    fn write(&self, range: Range<VirtAddr>) -> RangeGuard<'_, P, S> {
        self.lock(&range)
    }

    fn downgrade<'a>(&'a self, write: RangeGuard<'a, P, S>) -> RangeGuard<'a, P, S> {
        write
    }

    /// Nobody is let in half way.
    fn is_contended(&self) -> bool {
        false
    }
}
