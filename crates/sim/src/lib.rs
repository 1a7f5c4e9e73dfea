//! Machines in one OS thread: code that is generic over a platform runs on them as coroutines, step by step as it is told.
//!
//! # Rooms
//! [`explore`]: every access a possible switch, schedules drawn at random, recorded, replayed and shortened.

pub mod explore;
