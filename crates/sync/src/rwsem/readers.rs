//! The table in which readers of biased semaphores show themselves, and what a reader is given: see `bravo`.

use alloc::boxed::Box;
use faultless_platform::{Atomic, AtomicInteger, CachePadded, Ordering, Processor, Tracepoint};

/// Values of a semaphore's `bias`.
pub(super) const OFF: u32 = 0;
pub(super) const ON: u32 = 1;
pub(super) const REVOKED: u32 = 2;

/// Values of a place; any other is a semaphore's address, with or without [`AWAITED`].
pub(super) const FREE: usize = 0;
pub(super) const AWAITED: usize = 1;

/// What a reader was given, to be given back when it leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a share is given back by read_unlock"]
pub struct Share(pub(super) u32);

impl Share {
    /// A share that the lock word counts: what a semaphore without a table returns.
    pub const COUNTED: Self = Self(0);

    /// Returns the place in the table, if it is one.
    pub(super) fn place(self) -> Option<usize> {
        (self.0 as usize).checked_sub(1)
    }
}

/// Places in which readers of biased semaphores show themselves.
pub struct ReaderTable<P: Processor> {
    pub(super) places: Box<[CachePadded<Place<P>>]>,
}

/// A line of the table.
pub(super) struct Place<P: Processor> {
    pub(super) word: P::AtomicUsize,
    /// How many semaphores were made by CPUs of this number: so two that make some write no line in common.
    nr_drawn: P::AtomicU32,
}

impl<P: Processor> ReaderTable<P> {
    /// How many places a semaphore gets that is given no table.
    pub const USUAL_PLACES: usize = 64;

    /// Returns a table of at least `nr_places`, and of at most 65,536; allocates, so it is for set-up.
    pub fn new(nr_places: usize) -> Self {
        let nr_places = nr_places.clamp(1, 1 << 16).next_power_of_two();
        let place = |_| Place { word: P::AtomicUsize::new(FREE), nr_drawn: P::AtomicU32::new(0) };
        let table = Self { places: (0..nr_places).map(|number| CachePadded::new(place(number))).collect() };
        if P::WATCHED {
            P::trace(Tracepoint::named_row("the table of semaphores' readers", &table.places));
        }
        table
    }

    /// Returns by what a semaphore that is being made scatters its readers: unlike its address, the same in each run.
    pub(super) fn draw_scatter(&self) -> u32 {
        // Who has no CPU, as at set-up, makes few.
        let own = P::try_cpu().unwrap_or(0) & (self.places.len() - 1);
        // Relaxed: two that draw the same have readers in each other's places, no more.
        let nr_drawn = self.places[own].nr_drawn.fetch_add(1, Ordering::Relaxed);
        nr_drawn.wrapping_mul(self.places.len() as u32).wrapping_add(own as u32)
    }

    /// Returns where a reader of the semaphore with that `scatter` looks for room. Any place is right. A semaphore's
    /// readers on different CPUs have different ones, if there are so many; and so have readers of semaphores that each
    /// of them made as its first, or as its n-th, as processes make theirs.
    pub(super) fn guess(&self, scatter: u32) -> usize {
        let nr_drawn = scatter as usize / self.places.len();
        let thread = P::try_cpu().unwrap_or_else(|| mixed(P::current().bits()));
        mixed(nr_drawn).wrapping_add(thread) & (self.places.len() - 1)
    }
}

/// Fibonacci hashing: neighbouring numbers come far apart.
const fn mixed(number: usize) -> usize {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as usize) >> (usize::BITS / 2)
}
