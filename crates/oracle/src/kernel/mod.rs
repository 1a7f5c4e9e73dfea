//! The kernel as judge: sequences of memory operations, run by the real kernel in a process made for it.
//!
//! # Guarantee
//! What [`Host::run`] answers is what the kernel did: results, errors, signals with code and address, bytes, area
//! lists. A sequence never reaches memory outside its own zones, and leaves nothing behind for the next one.
//!
//! # Rooms
//! * `op`, `words`, `sequence`, `zone`: what can be asked for, as numbers and as text
//! * `answer`, `block`: what comes back, and the memory through which it does
//! * `sys`, `attempt`: system calls, and accesses that survive their signals
//! * `child`, `serve`, `steps`, `processes`, `look`, `resident`: the process in which sequences run, and those that it
//!   makes; they use no heap, no thread-local, no C library
//! * `host`: starts that process, watches over it, and collects the answers

mod answer;
mod attempt;
mod block;
mod child;
mod host;
mod look;
mod op;
mod processes;
mod resident;
mod sequence;
mod serve;
mod steps;
mod sys;
mod words;
mod zone;

pub use answer::{Answer, AreaSeen, Behind, Outcome, Seen, errno_name};
pub use attempt::digest;
pub use block::Room;
pub use host::{Baseline, Host, HostError, NoAnswer, has_protection_keys, usual_limits};
pub use op::{
    Call, FILE_BYTES, FILE_CONTENT, File, Kind, Op, REFERENCE_BYTE, REFERENCE_BYTES, REFERENCE_PAGES, byte, file_byte,
};
pub use sequence::{BadSequence, Bounds, Sequence, User};
pub use steps::{PIPE_BYTES, fold, sum_of};
pub use words::advice_name;
pub use zone::{HEAP_START, Harm, LOW_END, PAGE, USER_END, WINDOW, WINDOW_BYTES, Zone};
