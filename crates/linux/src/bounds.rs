//! When a recording ends though nobody has ended or asked it to.
//!
//! # Guarantee
//! A recording goes on at most [`LOOK`](crate::signals::LOOK) beyond its time, and puts aside at most what comes
//! meanwhile beyond its size.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long a recording may take and how large its raw records may grow; without end where nothing is said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// How long, from the moment from which everything is watched.
    pub duration: Option<Duration>,
    /// How many bytes of raw records.
    pub raw_bytes: Option<u64>,
}

/// The bounds of a recording that has begun.
pub(crate) struct Bounded<'a> {
    /// When its time is over.
    pub(crate) deadline: Option<Instant>,
    raw_bytes: &'a AtomicU64,
    raw_bytes_most: u64,
}

impl Bounds {
    /// Returns the bounds of a recording that begins now and counts its raw records there.
    pub(crate) fn begin(self, raw_bytes: &AtomicU64) -> Bounded<'_> {
        let deadline = self.duration.and_then(|duration| Instant::now().checked_add(duration));
        Bounded { deadline, raw_bytes, raw_bytes_most: self.raw_bytes.unwrap_or(u64::MAX) }
    }
}

impl Bounded<'_> {
    /// Returns whether the recording has reached one of them.
    pub(crate) fn is_reached(&self) -> bool {
        let is_over = self.deadline.is_some_and(|deadline| Instant::now() >= deadline);
        // Relaxed: the figure only says when to stop, and nothing is read through it.
        is_over || self.raw_bytes.load(Ordering::Relaxed) >= self.raw_bytes_most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_reached_by_its_own_measure() {
        let raw_bytes = AtomicU64::new(99);
        let is_reached = |bounds: Bounds| bounds.begin(&raw_bytes).is_reached();
        assert!(!is_reached(Bounds::default()));
        assert!(!is_reached(Bounds { raw_bytes: Some(100), ..Bounds::default() }));
        assert!(is_reached(Bounds { raw_bytes: Some(99), ..Bounds::default() }));
        assert!(is_reached(Bounds { duration: Some(Duration::ZERO), ..Bounds::default() }));
        assert!(!is_reached(Bounds { duration: Some(Duration::MAX), raw_bytes: Some(100) }));
    }
}
