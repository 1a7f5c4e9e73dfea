//! Mutants by number, one of which may be on: for the copy that `.ci/mutation` makes of the tree, and only there.
//!
//! The number comes from the environment variable `FAULTLESS_MUTANT`, read once; a mutant that is off costs a load and
//! a comparison. If `FAULTLESS_REACHED` names a file, the number of each mutant whose function is called is written
//! there, once a process: who never calls it can't notice it. What the compiler computes is computed without mutants.

extern crate std;

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::fs::File;
use std::io::Write;
use std::sync::OnceLock;

const NONE: u32 = u32::MAX - 2;
/// From here on, `chosen` has more to do than to compare.
const WATCHED: u32 = u32::MAX - 1;
const UNREAD: u32 = u32::MAX;

/// The number that is on.
static CHOSEN: AtomicU32 = AtomicU32::new(UNREAD);
/// A bit for each mutant whose function was called.
static REACHED: [AtomicU64; 1024] = [const { AtomicU64::new(0) }; 1024];
static REPORT: OnceLock<File> = OnceLock::new();

/// Says whether the mutant of that number is on.
#[inline(always)]
pub const fn is_on(number: u32) -> bool {
    core::intrinsics::const_eval_select((number,), never, at_run_time)
}

const fn never(_: u32) -> bool {
    false
}

#[inline(always)]
fn at_run_time(number: u32) -> bool {
    // Relaxed: every thread that reads the environment reads the same.
    let chosen = CHOSEN.load(Ordering::Relaxed);
    number == chosen || (chosen >= WATCHED && note(number))
}

/// Reads the environment, if nobody has, and reports the call, if somebody asks.
#[cold]
fn note(number: u32) -> bool {
    if CHOSEN.load(Ordering::Relaxed) == UNREAD {
        CHOSEN.store(read(), Ordering::Relaxed);
    }
    if let Some(mut file) = REPORT.get() {
        let bit = 1 << (number % 64);
        if REACHED[number as usize / 64].fetch_or(bit, Ordering::Relaxed) & bit == 0 {
            // One write, so that lines of several processes stay whole; no allocation, which tests may forbid.
            let mut line = *b"00000\n";
            (0..5).for_each(|place| line[place] += (number / 10_u32.pow(4 - place as u32) % 10) as u8);
            let _ = file.write(&line);
        }
    }
    number == CHOSEN.load(Ordering::Relaxed)
}

fn read() -> u32 {
    if let Some(path) = std::env::var_os("FAULTLESS_REACHED") {
        let file = File::options().append(true).create(true).open(path).expect("a file for what is reached");
        let _ = REPORT.set(file);
        return WATCHED;
    }
    std::env::var("FAULTLESS_MUTANT").ok().and_then(|number| number.parse().ok()).unwrap_or(NONE)
}
