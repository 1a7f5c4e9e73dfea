//! How the stories of the tests begin.

use crate::story::{PAGE, Story};

/// Where the first of the heap's eight pages is.
pub(crate) const HEAP: u64 = 0x7f00_0000_0000;

/// Returns where a page of the heap is.
pub(crate) fn page(number: u64) -> u64 {
    HEAP + number * PAGE
}

/// Tells a story of a process that maps the heap, and of others to be.
pub(crate) fn begun(nr_processes: u32) -> Story {
    let mut story = Story::new(nr_processes);
    story.trace.threads.iter_mut().zip(1..).for_each(|(thread, pid)| thread.pid = pid);
    story.map(0, HEAP, 8);
    story
}
