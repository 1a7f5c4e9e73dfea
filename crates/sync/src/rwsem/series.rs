//! The generations of the semaphore: which of the 2013 series' patches each has.
//!
//! Source: the series "rwsem performance optimizations", version 8, October 2013, nine patches. Its second and third only tidy
//! the source, five to seven are the MCS queue that the eighth needs. Stealing is older than the series: it is the
//! base that the series was measured on. What its prose leaves open is written here as reconstructed: a writer spins while
//! a running writer owns the lock or while nobody does, and goes to sleep when readers own it; a sleeper is overtaken at most
//! [`Patches::PATIENCE`] times in a row, where the original knows no bound.

use super::body::Rwsem;

/// What tells one generation from another. Constants: what a generation lacks costs it nothing.
pub trait Patches: Send + Sync + 'static {
    /// The name under which users choose it.
    const NAME: &'static str;
    /// How often in a row a writer may take the lock before those in line; 0: never, and a writer in line is handed the lock.
    const PATIENCE: u32;
    /// Patch 1: `try_write` looks at the word before it writes it.
    const LOOK_BEFORE_TRY: bool;
    /// Patch 4: a waker looks for a writer before it counts a reader in.
    const LOOK_BEFORE_GRANT: bool;
    /// Patches 5 to 8: a writer spins, in an MCS queue, while the owner runs.
    const OPTIMISTIC_SPIN: bool;
    /// Patch 9: a release leaves the waking to a spinner when the queue's lock is busy.
    const SPINNER_SPARES_WAKE: bool;
}

/// The semaphore of 2012: a queue in order of arrival, in which everyone sleeps.
#[derive(Debug, Clone, Copy)]
pub enum Series2012 {}

impl Patches for Series2012 {
    const NAME: &'static str = "rwsem-2012";
    const PATIENCE: u32 = 0;
    const LOOK_BEFORE_TRY: bool = false;
    const LOOK_BEFORE_GRANT: bool = false;
    const OPTIMISTIC_SPIN: bool = false;
    const SPINNER_SPARES_WAKE: bool = false;
}

/// The semaphore of October 2013 with all nine patches.
#[derive(Debug, Clone, Copy)]
pub enum SeriesV8 {}

impl Patches for SeriesV8 {
    const NAME: &'static str = "rwsem-v8";
    const PATIENCE: u32 = 63;
    const LOOK_BEFORE_TRY: bool = true;
    const LOOK_BEFORE_GRANT: bool = true;
    const OPTIMISTIC_SPIN: bool = true;
    const SPINNER_SPARES_WAKE: bool = true;
}

/// `rwsem-2012`.
pub type Rwsem2012<P> = Rwsem<P, Series2012>;
/// `rwsem-v8`.
pub type RwsemV8<P> = Rwsem<P, SeriesV8>;
