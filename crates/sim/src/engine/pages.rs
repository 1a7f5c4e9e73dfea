//! Zeroing and copying pages: a fixed cost, and the socket's memory bus, which is busy until it has moved what came before.
//!
//! A page that this CPU filled not long ago is still in its cache: it costs less, and the bus nothing.

use super::schedule::order;
use super::{Engine, IS_BORROWED, NO_CPU, step, with};

/// What is done to a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filling {
    /// It is zeroed.
    Zero,
    /// Another one is copied over it.
    Copy,
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
        with(|engine| engine.lines.forget(address, len_bytes));
    }
}

impl Engine {
    fn fill(&mut self, address: usize, filling: Filling) {
        let (cpu, clock) = (self.cpu, self.clock);
        self.figures.pages_filled += 1;
        let here = self.here();
        here.nr_fillings += 1;
        let now = here.nr_fillings;
        let before = self.lines.fill_page(address, cpu, now);
        if before.by == cpu && now - before.filling < self.costs.cache_pages {
            self.clock += if filling == Filling::Zero { self.costs.zero_hot } else { self.costs.copy_hot };
            return;
        }
        let cost = if filling == Filling::Zero { self.costs.zero_cold } else { self.costs.copy_cold };
        let moved_at = self.move_page(if filling == Filling::Zero { 1 } else { 2 });
        self.clock = (clock + self.random.about(cost)).max(moved_at);
    }

    /// Takes the bus of this CPU's socket for so many pages; returns when they are through.
    fn move_page(&mut self, pages: u64) -> u64 {
        let bus = &mut self.buses[self.topology.socket(usize::from(self.cpu))];
        *bus = self.clock.max(*bus) + pages * self.costs.page_transfer;
        *bus
    }
}
