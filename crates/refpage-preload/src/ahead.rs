//! Which fresh pages are copied before the program stores to them.
//!
//! # Guarantee
//! Bytes are the same either way. At most as many pages as the caller allows are copied ahead and not
//! yet known to have been written (`unproven`); none before pages that were handed out earlier have
//! been seen written, and none while more than an eighth of what was seen lately was not.
//!
//! # Why
//! The first store to a page of a tile is a fault of its own, and a memset that runs into one begins
//! anew: 2.15 us a page, where copying a run at once takes 1.2 us (AMD EPYC, Linux 6.18). A program
//! whose large buffers were all written will write the next one, too; one that leaves them empty shows
//! it as soon as the first comes back, and pays for nothing from then on.
//!
//! # What is seen
//! - Pages that are refilled for reuse: the kernel tells which were written.
//! - Pages that were copied ahead, when they are freed: some that still read as the pattern were not.
//! - Until something was seen: the run that was handed out last, through /proc/self/pagemap, a few
//!   times. That its pages were written says something; that they were not yet, nothing.

use faultless_refpage::{Error, Kind, RawMapping, RefPage};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering::Relaxed};

/// Fewer pages than this say nothing.
const LEAST_SEEN: usize = 16;
/// How often the kernel is asked about a run that is in use.
const MOST_LOOKS: usize = 32;
/// One page in so many may have been left unwritten.
const IDLE_SHARE: usize = 8;
/// When so many pages were seen, all that was seen counts half: programs change their ways.
const MOST_SEEN: usize = 1 << 16;

/// What has been seen of the pages that were handed out.
#[derive(Debug)]
pub(crate) struct Evidence {
    written: AtomicUsize,
    idle: AtomicUsize,
    unproven: AtomicUsize,
    watched: AtomicPtr<u8>,
    watched_len: AtomicUsize,
    looks: AtomicUsize,
    is_refused: AtomicBool,
}

/// The process's.
pub(crate) static EVIDENCE: Evidence = Evidence::new();

// Relaxed throughout: numbers on their own, which publish nothing. A wrong guess costs memory, never
// a byte.
impl Evidence {
    const fn new() -> Evidence {
        Evidence {
            written: AtomicUsize::new(0),
            idle: AtomicUsize::new(0),
            unproven: AtomicUsize::new(0),
            watched: AtomicPtr::new(ptr::null_mut()),
            watched_len: AtomicUsize::new(0),
            looks: AtomicUsize::new(0),
            is_refused: AtomicBool::new(false),
        }
    }

    /// Adds pages that were written, and pages that were not.
    pub(crate) fn saw(&self, written: usize, idle: usize) {
        let all = self.written.fetch_add(written, Relaxed) + self.idle.fetch_add(idle, Relaxed);
        if all > MOST_SEEN {
            self.written.store(self.written.load(Relaxed) / 2, Relaxed);
            self.idle.store(self.idle.load(Relaxed) / 2, Relaxed);
        }
    }

    /// Remembers pages that were not copied ahead, to look at later.
    pub(crate) fn watch(&self, run: &RawMapping) {
        self.watched_len.store(run.len(), Relaxed);
        self.watched.store(run.address(), Relaxed);
    }

    /// Returns whether pages shall be copied ahead, of which `guessed` may never be written; these
    /// are unproven then, of which there are `most` at most.
    pub(crate) fn claim(&self, pages: &RefPage, guessed: usize, most: usize) -> bool {
        if most == 0 || self.is_refused.load(Relaxed) {
            return false;
        }
        let more = |unproven: usize| unproven.checked_add(guessed).filter(|sum| *sum <= most);
        guessed == 0 || (self.is_dense(pages) && self.unproven.fetch_update(Relaxed, Relaxed, more).is_ok())
    }

    /// Takes pages off the unproven ones.
    pub(crate) fn settle(&self, guessed: usize) {
        self.unproven.fetch_sub(guessed, Relaxed);
    }

    /// Takes back what was claimed for a copy that the kernel refused. If it does not know the call,
    /// it is not asked again.
    pub(crate) fn refused(&self, guessed: usize, why: &Error) {
        self.settle(guessed);
        self.is_refused.fetch_or(matches!(why, Error::Unsupported { .. }), Relaxed);
    }

    fn is_dense(&self, pages: &RefPage) -> bool {
        let seen = || (self.written.load(Relaxed), self.idle.load(Relaxed));
        if seen().0 + seen().1 < LEAST_SEEN {
            self.look(pages);
        }
        let (written, idle) = seen();
        written + idle >= LEAST_SEEN && is_few(idle, written + idle)
    }

    /// Asks the kernel about the run that is watched. It may be gone: then nothing in it is written.
    #[cold]
    fn look(&self, pages: &RefPage) {
        let (start, len) = (self.watched.load(Relaxed), self.watched_len.load(Relaxed));
        if start.is_null() || self.looks.fetch_add(1, Relaxed) >= MOST_LOOKS {
            return;
        }
        let run = RawMapping::from_parts(start, len, Kind::Tiled, len);
        if let Some((all, written)) = pages.count_written(&run).filter(|(all, written)| is_few(all - written, *all)) {
            self.saw(written, all - written);
        }
    }
}

fn is_few(idle: usize, all: usize) -> bool {
    idle * IDLE_SHARE <= all
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: usize = 100;

    #[test]
    fn nothing_is_copied_ahead_before_pages_were_seen_written() {
        let (evidence, pages) = (Evidence::new(), RefPage::new(&[1]).unwrap());
        assert!(!evidence.claim(&pages, 1, MOST));
        evidence.saw(LEAST_SEEN - 1, 0);
        assert!(!evidence.claim(&pages, 1, MOST));
        evidence.saw(1, 0);
        assert!(evidence.claim(&pages, 1, MOST));
        assert!(!evidence.claim(&pages, 1, 0));
    }

    #[test]
    fn unproven_pages_end_at_the_limit_until_they_are_settled() {
        let (evidence, pages) = (Evidence::new(), RefPage::new(&[1]).unwrap());
        evidence.saw(1000, 0);
        assert!(evidence.claim(&pages, 60, MOST));
        assert!(!evidence.claim(&pages, 41, MOST));
        assert!(evidence.claim(&pages, 40, MOST));
        assert!(evidence.claim(&pages, 0, MOST), "what is known to be written is no guess");
        evidence.settle(50);
        assert!(evidence.claim(&pages, 50, MOST));
        assert!(!evidence.claim(&pages, 1, MOST));
    }

    #[test]
    fn idle_pages_end_it_and_written_ones_bring_it_back() {
        let (evidence, pages) = (Evidence::new(), RefPage::new(&[1]).unwrap());
        evidence.saw(700, 100);
        assert!(evidence.claim(&pages, 1, MOST));
        evidence.saw(0, 1);
        assert!(!evidence.claim(&pages, 1, MOST));
        evidence.saw(7, 0);
        assert!(evidence.claim(&pages, 1, MOST));
        evidence.saw(0, 10 * MOST_SEEN);
        assert!(!evidence.claim(&pages, 1, MOST));
        // What is long ago counts less and less.
        (0..20).for_each(|_| evidence.saw(MOST_SEEN, 0));
        assert!(evidence.claim(&pages, 1, MOST));
    }

    #[test]
    fn a_kernel_that_refuses_is_not_asked_again() {
        let (evidence, pages) = (Evidence::new(), RefPage::new(&[1]).unwrap());
        evidence.saw(1000, 0);
        assert!(evidence.claim(&pages, MOST, MOST));
        evidence.refused(MOST, &Error::OutOfMemory { len: 1 });
        assert!(evidence.claim(&pages, MOST, MOST));
        evidence.refused(MOST, &Error::Unsupported { call: "madvise", errno: 22 });
        assert!(!evidence.claim(&pages, 1, MOST));
    }

    #[test]
    fn a_run_in_use_counts_once_it_was_written() {
        let (evidence, pages) = (Evidence::new(), RefPage::new(&[1]).unwrap());
        let mut memory = pages.map(16 * 4096).unwrap();
        let run = RawMapping::from_parts(memory.as_mut_ptr(), memory.len(), Kind::Tiled, memory.len());
        evidence.watch(&run);
        assert!(!evidence.claim(&pages, 1, MOST));
        memory.fill(2);
        assert!(evidence.claim(&pages, 1, MOST));
        let asked_too_often = Evidence::new();
        asked_too_often.looks.store(MOST_LOOKS, Relaxed);
        asked_too_often.watch(&run);
        assert!(!asked_too_often.claim(&pages, 1, MOST));
    }
}
