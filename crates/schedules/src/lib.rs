//! Exploring schedules of small worlds.
//!
//! # Guarantee
//! A seed names a sequence of schedules, the same on every machine. Each runs a small program of two or three threads
//! with up to four operations each, on a fresh instance whose freed memory is poisoned, watched, and given out again at
//! once. After each operation at which no other is under way, and at the end, every invariant is checked; the answers
//! must be those of some order of the operations, and nothing may be lost. A failure comes with the line that replays
//! it.
//!
//! # Rooms
//! `worlds` says what there is, `ops` what threads do, `perform` does it, `owner` to a semaphore by itself; `execution`
//! is one run; `model` and `history` judge its answers; `search` draws programs and schedules; `line` is a schedule as
//! text; `explore` runs many; `mutants` puts known bugs back.

#![deny(unsafe_code)]

mod execution;
pub mod explore;
pub mod history;
pub mod line;
pub mod model;
pub mod mutants;
pub mod ops;
mod owner;
mod perform;
pub mod report;
pub mod search;
pub mod worlds;
