//! Zeroing and copying pages: a fixed cost, and the memory bus of the socket where the page lies, which is busy until
//! it has moved what came before.
//! A page on another socket's memory waits for that one's bus, and costs no more otherwise: how much more it takes is
//! not known.
//!
//! A page that this CPU filled not long ago is still in its cache (hot), one that a CPU of the same complex filled not
//! much longer ago in theirs (warm): they cost less, and the bus nothing.

use super::lines::{Filled, Fillings, NOBODY};
use super::record::NO_CPU;
use super::schedule::order;
use super::state::{Engine, IS_BORROWED, step, with};

/// The greatest distance inside a complex.
const COMPLEX_LEVEL: usize = 2;

/// What is done to a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filling {
    /// It is zeroed.
    Zero,
    /// Another one is copied over it.
    Copy,
}

impl Filling {
    /// Returns how many pages go through the caches.
    fn pages(self) -> u64 {
        match self {
            Self::Zero => 1,
            Self::Copy => 2,
        }
    }
}

/// Charges for filling the page at `address`; its lines are this CPU's then.
pub(crate) fn bulk(address: usize, filling: Filling) {
    if with(|engine| engine.cpu != NO_CPU) != Some(true) {
        return;
    }
    order();
    step(|engine| engine.fill(address, filling));
}

/// Forgets who has the lines of memory that was given back.
pub(crate) fn forget(address: usize, len_bytes: usize) {
    if !IS_BORROWED.get() {
        with(|engine| {
            let books = &mut engine.books;
            engine.lines.forget(address, len_bytes, |line, id| books.forget_line(line, id));
        });
    }
}

impl Engine {
    fn fill(&mut self, address: usize, filling: Filling) {
        let clock = self.clock;
        let now = self.count_filling(filling);
        let before = self.lines.fill_page(address, self.cpu, now);
        let costs = if filling == Filling::Zero { &self.costs.zero } else { &self.costs.copy };
        if self.is_hot(&before, now) {
            self.clock += costs.hot;
        } else if self.is_warm(&before, now) {
            self.clock += costs.warm;
        } else {
            self.figures.pages_missed += 1;
            let cost = self.random.about(costs.cold);
            let moved_at = self.move_pages(address, filling.pages());
            self.clock = clock + cost;
            if moved_at > self.clock {
                self.count_bus(moved_at - self.clock);
                self.clock = moved_at;
            }
        }
    }

    /// Counts the pages that come into the caches: of a copy, its source too.
    fn count_filling(&mut self, filling: Filling) -> Fillings {
        self.figures.pages_filled += 1;
        let here = self.here();
        here.nr_fillings += filling.pages();
        let of_cpu = here.nr_fillings;
        let of_complex = &mut self.complex_fillings[self.topology.complex(usize::from(self.cpu))];
        *of_complex += filling.pages();
        Fillings { of_cpu, of_complex: *of_complex }
    }

    fn is_hot(&self, before: &Filled, now: Fillings) -> bool {
        before.by == self.cpu && now.of_cpu - before.at.of_cpu < self.costs.core_pages
    }

    fn is_warm(&self, before: &Filled, now: Fillings) -> bool {
        let is_near = |by| self.topology.level(usize::from(self.cpu), usize::from(by)) <= COMPLEX_LEVEL;
        before.by != NOBODY && is_near(before.by) && now.of_complex - before.at.of_complex < self.costs.complex_pages
    }

    /// Takes the bus of the socket where the page lies for so many pages; returns when they are through.
    fn move_pages(&mut self, address: usize, pages: u64) -> u64 {
        let home = self.places.home_of(address).unwrap_or(self.cpu);
        self.figures.pages_moved += pages;
        let bus = &mut self.buses[self.topology.socket(usize::from(home))];
        *bus = self.clock.max(*bus) + pages * self.costs.page_transfer;
        *bus
    }
}
