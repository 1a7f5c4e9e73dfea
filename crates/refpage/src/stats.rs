//! What the library has done in this process.

use crate::areas;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counters since the process began; a forked child goes on from its parent's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stats {
    /// Bytes that were mapped from tiles.
    pub tiled_bytes: u64,
    /// Bytes that were filled, since they could not be tiled.
    pub filled_bytes: u64,
    /// Memfds that were made.
    pub tiles_made: u64,
    /// Bytes that were written to those memfds: memory that no mapping's resident size shows, held
    /// while the memfd is open or mapped.
    pub tile_bytes: u64,
    /// Areas that tiles hold now.
    pub areas: usize,
}

/// A counter.
#[derive(Debug)]
pub(crate) struct Counter(AtomicU64);

// Relaxed throughout: a counter publishes nothing.
impl Counter {
    /// Adds to it.
    pub(crate) fn add(&self, amount: usize) {
        self.0.fetch_add(amount as u64, Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

pub(crate) static TILED_BYTES: Counter = Counter(AtomicU64::new(0));
pub(crate) static FILLED_BYTES: Counter = Counter(AtomicU64::new(0));
pub(crate) static TILES_MADE: Counter = Counter(AtomicU64::new(0));
pub(crate) static TILE_BYTES: Counter = Counter(AtomicU64::new(0));

/// Returns the counters.
pub fn stats() -> Stats {
    Stats {
        tiled_bytes: TILED_BYTES.get(),
        filled_bytes: FILLED_BYTES.get(),
        tiles_made: TILES_MADE.get(),
        tile_bytes: TILE_BYTES.get(),
        areas: areas::in_use(),
    }
}
