//! What locks tell those who watch: taken, refused, released, by whom and after which wait.
//!
//! # Guarantee
//! On a platform that nobody watches ([`Processor::WATCHED`] is false) all of it compiles to nothing: no clock is read,
//! nothing is stored, no argument is passed on.
//!
//! A lock has a class, by type, whose name is what reports show; a lock without one is not reported. The caller is the
//! line that calls the first function without `#[track_caller]`, or the function that it names (`lock_in`).
//!
//! # Who calls it
//! Locks of this crate and of others: [`Wanted::begin`] before a lock is tried, [`Wanted::taken`] with how it was
//! waited for ([`Wait`]) once it is had, [`Wanted::taken_in`] where the caller names its function, [`tried`] by those
//! who don't wait, [`released`] before it is released.

use core::marker::PhantomData;
use core::panic::Location;
use faultless_platform::{Holding, LockId, Processor, Tracepoint};

/// What kind of lock it is.
///
/// ```
/// use faultless_platform::native::Native;
/// use faultless_sync::{LockClass, SpinMutex, lock_class};
///
/// lock_class! {
///     /// The lock of the table of open files.
///     pub FileTable = "file_table"
/// }
/// assert_eq!(FileTable::NAME, "file_table");
/// let files = SpinMutex::<Native, Vec<u32>, FileTable>::classed(Vec::new());
/// files.lock().push(3);
/// ```
pub trait LockClass: 'static {
    /// The name in reports; locks of a class with an empty one are not reported.
    const NAME: &'static str;
}

/// Declares a class of locks: a type, and the name that reports show.
#[macro_export]
macro_rules! lock_class {
    ($(#[$doc:meta])* $visible:vis $class:ident = $name:literal) => {
        $(#[$doc])*
        #[derive(Debug)]
        $visible enum $class {}

        impl $crate::LockClass for $class {
            const NAME: &'static str = $name;
        }
    };
}

lock_class! {
    /// The class of locks that reports have no use for.
    pub Unnamed = ""
}

/// Whether a lock was free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// It was.
    None,
    /// It was not, and was waited for.
    Some,
}

/// A wait in progress; over when this is dropped.
#[derive(Debug)]
pub(crate) struct Waiting<P: Processor>(PhantomData<fn() -> P>);

impl<P: Processor> Waiting<P> {
    /// Begins a wait for what has that name.
    #[inline(always)]
    pub(crate) fn begin(name: &'static str) -> Self {
        if P::WATCHED {
            P::trace(Tracepoint::WaitBegins { name });
        }
        Self(PhantomData)
    }
}

impl<P: Processor> Drop for Waiting<P> {
    #[inline(always)]
    fn drop(&mut self) {
        if P::WATCHED {
            P::trace(Tracepoint::WaitEnds { aside_ns: 0 });
        }
    }
}

/// An acquisition in progress; made before the first attempt.
#[derive(Debug)]
pub struct Wanted<P> {
    since_ns: u64,
    processor: PhantomData<fn() -> P>,
}

impl<P: Processor> Wanted<P> {
    /// Begins an acquisition of a lock with that name.
    #[inline(always)]
    pub fn begin(name: &'static str) -> Self {
        let is_told = P::WATCHED && !name.is_empty();
        Self { since_ns: if is_told { P::watch_clock() } else { 0 }, processor: PhantomData }
    }

    /// Tells that the lock was taken.
    #[inline(always)]
    #[track_caller]
    pub fn taken(self, name: &'static str, address: usize, holding: Holding, wait: Wait) {
        self.taken_in("", name, address, holding, wait);
    }

    /// Tells that a function took the lock.
    #[inline(always)]
    #[track_caller]
    pub fn taken_in(self, function: &'static str, name: &'static str, address: usize, holding: Holding, wait: Wait) {
        if P::WATCHED && !name.is_empty() {
            let waited_ns = (wait == Wait::Some).then(|| P::watch_clock().saturating_sub(self.since_ns));
            let lock = LockId { name, address };
            P::trace(Tracepoint::LockTaken { lock, holding, site: Location::caller(), function, waited_ns });
        }
    }
}

/// Tells that a lock was taken at once, or that it was not and nobody waits; returns which.
#[inline(always)]
#[track_caller]
pub fn tried<P: Processor>(is_taken: bool, name: &'static str, address: usize, holding: Holding) -> bool {
    if P::WATCHED && !name.is_empty() {
        let (lock, site) = (LockId { name, address }, Location::caller());
        P::trace(match is_taken {
            true => Tracepoint::LockTaken { lock, holding, site, function: "", waited_ns: None },
            false => Tracepoint::LockRefused { lock, holding, site },
        });
    }
    is_taken
}

/// Tells that a lock is about to be released.
#[inline(always)]
pub fn released<P: Processor>(name: &'static str, address: usize, holding: Holding) {
    if P::WATCHED && !name.is_empty() {
        P::trace(Tracepoint::LockReleased { lock: LockId { name, address }, holding });
    }
}
