//! Bugs by name, one of which may be on: for the copy that `.ci/bugs` makes of the tree, and only there.
//!
//! The name comes from the environment variable `FAULTLESS_BUG`, read once. Names are compared by their hashes, so that
//! a bug that is off costs a load and a comparison. If `FAULTLESS_REACHED` names a file, the hash of each bug that is
//! come by is written there: a test that does not come by it can't notice it.

extern crate std;

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::fs::File;
use std::io::Write;
use std::sync::OnceLock;

const UNREAD: u64 = 0;
/// Somebody wants to know who comes by: no hash, because it is even.
const WATCHED: u64 = 2;

/// The hash of the name that is on.
static CHOSEN: AtomicU64 = AtomicU64::new(UNREAD);
static REPORT: OnceLock<File> = OnceLock::new();

/// Says whether the bug of that name is on.
#[macro_export]
macro_rules! bug {
    ($name:literal) => {{
        const NAME: u64 = $crate::bugs::hash($name);
        static IS_KNOWN: core::sync::atomic::AtomicBool = core::sync::atomic::AtomicBool::new(false);
        $crate::bugs::is_on(NAME, &IS_KNOWN)
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

/// Says whether the bug whose name has that hash is on; `is_known` says that this place was reported.
#[inline(always)]
pub fn is_on(name: u64, is_known: &AtomicBool) -> bool {
    // Relaxed: every thread that reads the environment reads the same.
    let chosen = CHOSEN.load(Ordering::Relaxed);
    name == chosen || (chosen <= WATCHED && note(name, is_known))
}

#[cold]
fn note(name: u64, is_known: &AtomicBool) -> bool {
    if CHOSEN.load(Ordering::Relaxed) == UNREAD {
        CHOSEN.store(read(), Ordering::Relaxed);
    }
    if let Some(mut file) = REPORT.get().filter(|_| !is_known.swap(true, Ordering::Relaxed)) {
        // One write, so that lines of several processes stay whole; no allocation, which tests may forbid.
        let mut line = *b"00000000000000000000\n";
        (0..20).for_each(|place| line[place] += (name / 10_u64.pow(19 - place as u32) % 10) as u8);
        let _ = file.write(&line);
    }
    name == CHOSEN.load(Ordering::Relaxed)
}

fn read() -> u64 {
    if let Some(path) = std::env::var_os("FAULTLESS_REACHED") {
        let file = File::options().append(true).create(true).open(path).expect("a file for what is reached");
        let _ = REPORT.set(file);
        return WATCHED;
    }
    hash(&std::env::var("FAULTLESS_BUG").unwrap_or_default())
}
