//! Exploring schedules: threads are coroutines, and before and after every access of the platform another may go on.
//!
//! # Guarantee
//! A run is a function of the bodies and of the [`Policy`]: the same one gives the same run, on any machine. What a run
//! did comes back as a list of [`Switch`]es, and a policy that replays them gives that run again. A run ends in one of
//! three ways: all threads have ended; a [`Failure`]: a panic, an access to memory that was freed or is none, a
//! deadlock, or no end in sight. A run that failed is dropped as it stands: nothing of it is unwound.
//!
//! # What it shows, and what it doesn't
//! Every value is the one last written: the accesses of all threads form one sequence. So it finds what goes wrong in
//! some interleaving, and never what only a weaker memory order shows; that is the model checker's business. Costs,
//! times and caches are not modelled: the clock is the number of steps.
//!
//! # Invariants
//! * I1 one coroutine runs at a time; a switch happens in `Engine::tick` and in waits, nowhere else.
//! * I2 no borrow of the engine's cells is held across a switch.
//! * I3 what an access touches is looked up before it is touched, so that freed memory is never read or written.
//!
//! # Rooms
//! `policy` says who goes on; `schedule` writes what happened as a line of text; `engine` runs coroutines; `machine` is
//! what outlives a run; `arena` is memory that notices accesses after a free; `platform` and `atomics` are the platform
//! itself; `shrink` shortens lists that make something fail; `alone` is what comes before a run, and behind it.
//!
//! Source: random and priority schedules after Burckhardt, Kothari, Musuvathi, Nagarakatte, "A randomized scheduler
//! with probabilistic guarantees of finding bugs", ASPLOS 2010. Change points are drawn from a thread's own steps.

mod alone;
mod arena;
mod atomics;
mod crash;
mod engine;
mod failure;
mod machine;
mod platform;
mod policy;
mod schedule;
mod shrink;
mod threads;

#[cfg(test)]
mod tests;

pub use arena::{Arena, ArenaError};
pub use atomics::Watched;
pub use engine::{Access, Run};
pub use failure::{Failure, Kind};
pub use machine::Machine;
pub use platform::{Explore, note, stamp, standing_still};
pub use policy::{Policy, Random};
pub use schedule::{Switch, SwitchesError, parse_switches, write_switches};
pub use shrink::shrink;
