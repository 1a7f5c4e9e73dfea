//! Spin locks: for a few hundred instructions, never across a sleep.
//!
//! # Guarantee
//! Uncontended, each takes one read-modify-write; releasing the exclusive ones is one store. Those who wait read the
//! word and write it only once it looks free. Not fair but for the ticket lock, which serves in order of
//! arrival: where many queue for long, use [`McsQueue`](crate::McsQueue).

mod mutex;
mod raw;
mod rw;
mod ticket;

pub use mutex::{SpinMutex, SpinMutexGuard};
pub use raw::{RawSpinGuard, RawSpinLock};
pub use rw::{RwSpinLock, RwSpinReadGuard, RwSpinWriteGuard};
pub use ticket::{TicketGuard, TicketLock};
