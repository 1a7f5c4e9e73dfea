//! Results of calls that may fail for want of a frame.
//!
//! # Guarantee
//! A shortage is passed over only where the run injects shortages; everywhere else it is an answer like any other, and
//! wrong.

use crate::settings::Shortages;
use faultless_vm::{AccessError, CallError};

/// An error that may say that no frame was free.
pub(crate) trait MayBeShort {
    fn is_shortage(&self) -> bool;
}

impl MayBeShort for CallError {
    fn is_shortage(&self) -> bool {
        matches!(self, Self::OutOfFrames(_) | Self::OutOfFramesNow(_))
    }
}

impl MayBeShort for AccessError {
    fn is_shortage(&self) -> bool {
        matches!(self, Self::OutOfFrames(_))
    }
}

/// Whether shortages are expected, and how many there were.
pub(crate) struct Patience {
    pub shortages: Shortages,
    pub nr_short: u64,
}

impl Patience {
    /// Returns an answer that is to be judged, or nothing if the call failed for want of a frame as was to be expected.
    pub fn judged<T, E: MayBeShort>(&mut self, result: Result<T, E>) -> Option<Result<T, E>> {
        let is_short = self.shortages == Shortages::Injected && result.as_ref().is_err_and(MayBeShort::is_shortage);
        self.nr_short += u64::from(is_short);
        (!is_short).then_some(result)
    }

    /// Returns what a call gave that only a shortage may keep from succeeding.
    pub fn given<T, E: MayBeShort + std::fmt::Display>(&mut self, what: &str, result: Result<T, E>) -> Option<T> {
        self.judged(result).map(|result| result.unwrap_or_else(|error| panic!("{what}: {error}")))
    }
}
