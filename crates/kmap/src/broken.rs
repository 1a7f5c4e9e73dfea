//! Known bugs of kernel maps, put back one at a time; for the test that must find them (feature `mutants`).

/// What is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Broken {
    /// Nothing.
    Nothing,
    /// Idle slots are given out again without a flush.
    NoFlush,
    /// Only the own CPU is flushed.
    OwnFlushOnly,
    /// A search takes any slot, whatever its count says.
    CountUnchecked,
    /// A search that comes round clears slots that are held, too.
    PinnedReused,
    /// The end of a flush frees slots that were cleared after its begin.
    TwoFlushes,
    /// All maps of a task come from one class, and no slots are kept for those who hold some.
    OneClass,
    /// A task that gets its CPU back continues above another task's maps.
    KeptOverSwitch,
    /// A task takes its maps along to another CPU.
    KeptOverMigration,
}

#[cfg(feature = "mutants")]
mod chosen {
    use super::Broken;
    use core::sync::atomic::{AtomicU8, Ordering};

    static CHOSEN: AtomicU8 = AtomicU8::new(0);

    /// Breaks one thing, for the whole program.
    pub fn choose(broken: Broken) {
        // Relaxed: set before a run begins.
        CHOSEN.store(broken as u8, Ordering::Relaxed);
    }

    pub(crate) fn is(broken: Broken) -> bool {
        // Relaxed: as above.
        CHOSEN.load(Ordering::Relaxed) == broken as u8
    }
}

#[cfg(feature = "mutants")]
pub use chosen::choose;
#[cfg(feature = "mutants")]
pub(crate) use chosen::is;

/// Says whether this is broken: never.
#[cfg(not(feature = "mutants"))]
pub(crate) const fn is(_: Broken) -> bool {
    false
}
