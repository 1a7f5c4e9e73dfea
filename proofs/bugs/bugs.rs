//! Bugs by name, one of which may be on: for the copy that `.ci/bugs` makes of the tree, and only there.
//!
//! The name comes from the environment variable `FAULTLESS_BUG`, read once. Names are compared by their hashes, so that
//! a bug that is off costs a load and a comparison.

extern crate std;

use core::sync::atomic::{AtomicU64, Ordering};

const UNREAD: u64 = 0;

/// The hash of the name that is on.
static CHOSEN: AtomicU64 = AtomicU64::new(UNREAD);

/// Says whether the bug of that name is on.
#[macro_export]
macro_rules! bug {
    ($name:literal) => {{
        const NAME: u64 = $crate::bugs::hash($name);
        $crate::bugs::is_on(NAME)
    }};
}

/// Returns the hash of a name (FNV-1a); never 0.
pub const fn hash(name: &str) -> u64 {
    let (bytes, mut hash, mut place) = (name.as_bytes(), 0xcbf2_9ce4_8422_2325_u64, 0);
    while place < bytes.len() {
        hash = (hash ^ bytes[place] as u64).wrapping_mul(0x100_0000_01b3);
        place += 1;
    }
    hash | 1
}

/// Says whether the bug whose name has that hash is on.
#[inline(always)]
pub fn is_on(name: u64) -> bool {
    // Relaxed: every thread that reads the environment reads the same.
    let chosen = CHOSEN.load(Ordering::Relaxed);
    name == if chosen == UNREAD { read() } else { chosen }
}

#[cold]
fn read() -> u64 {
    let chosen = hash(&std::env::var("FAULTLESS_BUG").unwrap_or_default());
    CHOSEN.store(chosen, Ordering::Relaxed);
    chosen
}
