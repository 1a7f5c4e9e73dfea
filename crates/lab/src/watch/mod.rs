//! Watching a run: what its locks cost, and its events as they happen.
//!
//! # Guarantee
//! A run on a platform that is not [`Watched`] is what it is without this module. Of a watched run only what lies between
//! [`begin`] and [`end`] counts, so that setting up and taking down is not told of.

mod locks;
mod stream;

use std::sync::Arc;

use faultless_platform::watched::{Happening, Sink};
use faultless_platform::{Event, Processor};

pub use faultless_platform::watched::{Machine, Watched};
pub use locks::{Figures, LockRow, LockTable, LockWatch, Window};
pub use stream::Stream;

/// The point at which a run's window begins.
const BEGIN: &str = "window:begin";
/// The point at which it ends.
const END: &str = "window:end";

/// Tells those who watch that the run's window begins; called once, while nobody works.
#[inline]
pub fn begin<P: Processor>() {
    P::trace(Event::Point { name: BEGIN, value: 0 });
}

/// Tells those who watch that the run's window has ended; called once, when nobody works any more.
#[inline]
pub fn end<P: Processor>() {
    P::trace(Event::Point { name: END, value: 0 });
}

/// Tells several.
pub struct All(pub Vec<Arc<dyn Sink>>);

impl Sink for All {
    fn note(&self, happening: &Happening) {
        self.0.iter().for_each(|sink| sink.note(happening));
    }
}
