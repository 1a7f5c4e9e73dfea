//! What is said on stderr, and the counters.
//!
//! # Guarantee
//! A line is put together on the stack and written by one call; nothing is said unless a setting
//! is wrong or the user asked for it.

use crate::lines::{say, write_line};
use crate::settings::{self, Settings};
use faultless_refpage::{Error, stats};
use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

// Relaxed throughout: counters publish nothing.
static CALLS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);
static FILLED: AtomicU64 = AtomicU64::new(0);
static PASSED: AtomicU64 = AtomicU64::new(0);
static PATTERNED: AtomicU64 = AtomicU64::new(0);
static AHEAD: AtomicU64 = AtomicU64::new(0);

/// Says, once and on request, why allocations are neither mapped nor filled.
pub(crate) fn warn_of_passing(settings: &Settings, why: &Error) {
    static IS_SAID: AtomicBool = AtomicBool::new(false);
    if settings.warns && !IS_SAID.swap(true, Relaxed) {
        say(format_args!("allocations pass without the pattern, filling them would take too much memory: {why}"));
    }
}

/// Counts an allocation, if counters were asked for.
pub(crate) fn count(settings: &Settings, len: usize) {
    if settings.stats.is_some() {
        CALLS.fetch_add(1, Relaxed);
        BYTES.fetch_add(len as u64, Relaxed);
    }
}

/// Counts bytes of the next allocator that were filled, if counters were asked for.
pub(crate) fn count_filled(settings: &Settings, len: usize) {
    if settings.stats.is_some() {
        FILLED.fetch_add(len as u64, Relaxed);
    }
}

/// Counts bytes that passed although they should be patterned, if counters were asked for.
pub(crate) fn count_passed(settings: &Settings, len: usize) {
    if settings.stats.is_some() {
        PASSED.fetch_add(len as u64, Relaxed);
    }
}

/// Counts bytes that are to start out as the pattern, if counters were asked for.
pub(crate) fn count_patterned(settings: &Settings, len: usize) {
    if settings.stats.is_some() {
        PATTERNED.fetch_add(len as u64, Relaxed);
    }
}

/// Counts bytes that were copied ahead of the first store, if counters were asked for.
pub(crate) fn count_ahead(settings: &Settings, len: usize) {
    if settings.stats.is_some() {
        AHEAD.fetch_add(len as u64, Relaxed);
    }
}

/// Runs when the program exits.
extern "C" fn at_exit() {
    if let Some(path) = settings::settings().and_then(|settings| settings.stats.as_ref()) {
        append_counters(path.as_c_str());
    }
}

/// Runs when the program is loaded, before its own code can overwrite the environment.
#[cfg(not(test))]
extern "C" fn at_load() {
    settings::settings();
}

fn append_counters(path: &CStr) {
    let flags = libc::O_WRONLY | libc::O_APPEND | libc::O_CREAT | libc::O_CLOEXEC;
    // SAFETY: the path is a C string.
    let fd = unsafe { libc::open(path.as_ptr(), flags, 0o644) };
    if fd < 0 {
        return say(format_args!("cannot append counters to FAULTLESS_STATS={path:?}"));
    }
    write_counters(fd);
    // SAFETY: the descriptor is ours.
    unsafe { libc::close(fd) };
}

fn write_counters(fd: i32) {
    let stats = stats();
    // SAFETY: asks the kernel for a number.
    let pid = unsafe { libc::getpid() };
    write_line(
        fd,
        format_args!(
            "pid={pid} calls={} allocated_bytes={} patterned_bytes={} tiled_bytes={} filled_bytes={} passed_bytes={} ahead_bytes={} tiles_made={} tile_bytes={} areas={}",
            CALLS.load(Relaxed),
            BYTES.load(Relaxed),
            PATTERNED.load(Relaxed),
            stats.tiled_bytes,
            FILLED.load(Relaxed),
            PASSED.load(Relaxed),
            AHEAD.load(Relaxed),
            stats.tiles_made,
            stats.tile_bytes,
            stats.areas,
        ),
    );
}

#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;

#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = at_exit;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lines::Line;
    use std::fmt::Write;

    #[test]
    fn a_line_that_is_too_long_is_cut() {
        let mut line = Line { bytes: [0; 512], len: 0 };
        write!(line, "{:600}", 1).unwrap();
        assert_eq!(line.len, 512);
        at_exit();
    }
}
