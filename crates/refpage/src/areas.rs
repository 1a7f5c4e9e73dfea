//! How many areas of the process tiles may take.
//!
//! # Guarantee
//! Tiles take at most half of `vm.max_map_count`; the other half stays the program's own. The count
//! is this process's, and a forked child goes on from its parent's.

use crate::{Error, sys};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// What the kernel allows where /proc cannot be read.
const DEFAULT_LIMIT: usize = 65_530;

// Relaxed throughout: both are numbers on their own, which publish nothing.
static LIMIT: AtomicUsize = AtomicUsize::new(0);
static IN_USE: AtomicUsize = AtomicUsize::new(0);

/// Returns `vm.max_map_count`, read once.
pub(crate) fn limit() -> usize {
    match LIMIT.load(Relaxed) {
        0 => {
            let limit = read_limit().unwrap_or(DEFAULT_LIMIT);
            LIMIT.store(limit, Relaxed);
            limit
        }
        limit => limit,
    }
}

fn read_limit() -> Option<usize> {
    let mut buffer = [0; 32];
    let text = sys::read_small(c"/proc/sys/vm/max_map_count", &mut buffer)?;
    std::str::from_utf8(text).ok()?.trim().parse().ok().filter(|limit| *limit > 0)
}

/// Returns how many areas tiles hold now.
pub(crate) fn in_use() -> usize {
    IN_USE.load(Relaxed)
}

/// Returns how many more areas tiles may take.
pub(crate) fn left() -> usize {
    (limit() / 2).saturating_sub(in_use())
}

/// Takes `count` areas, or says that too few are left.
pub(crate) fn take(count: usize) -> Result<(), Error> {
    let most = limit() / 2;
    let more = |used: usize| used.checked_add(count).filter(|sum| *sum <= most);
    match IN_USE.fetch_update(Relaxed, Relaxed, more) {
        Ok(_) => Ok(()),
        Err(_) => Err(Error::Areas { limit: limit() }),
    }
}

/// Gives `count` areas back.
pub(crate) fn give_back(count: usize) {
    IN_USE.fetch_sub(count, Relaxed);
}
