//! The corner cases of Linux's semantics, one test each: the same steps on the running kernel and on the VM.
//!
//! # Guarantee
//! A row passes if the kernel answers every step as it is written here, and the VM, under every design, does too. So
//! neither side is taken on trust: a kernel that answers otherwise fails the row as well.
//!
//! # Rooms
//! `table` runs rows; the others hold them: `maps` 1 to 9, `ranges` 10 to 16, `moves` 17 to 23, `advice` 24 to 31,
//! `files` 32, `stacks` 33 to 35, `limits` 36 and 40, `asks` 37 to 39, `processes` 41 and 42.

mod advice;
mod asks;
mod files;
mod limits;
mod maps;
mod moves;
mod processes;
mod ranges;
mod stacks;
mod table;
