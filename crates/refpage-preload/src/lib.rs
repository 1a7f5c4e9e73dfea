//! A preload that gives every large allocation of a program a pattern to start with.
//!
//! `LD_PRELOAD=libfaultless_refpage_preload.so program ...`
//!
//! # Guarantee
//! Allocations of at least `FAULTLESS_THRESHOLD` bytes start out as `FAULTLESS_PATTERN`, by
//! reference pages; calloc's are zero; smaller ones pass through, or are filled on request. A
//! pointer that this library did not make is handed to the next allocator, whatever it is.
//!
//! # Invariants
//! - P1 What we hand out begins on a page; every other pointer takes the short way.
//! - P2 A mapping is in `large::MAPPINGS` from before its address is returned until it is freed.
//! - P3 Nothing here allocates, and nothing here uses thread-local storage of its own.
//! - P4 Functions that succeed leave errno alone.
//!
//! | module | holds |
//! |---|---|
//! | `exports` | the functions that the program calls instead of libc's |
//! | `settings` | the environment variables |
//! | `next` | the allocator behind this one |
//! | `boot` | memory for the short time before that is known |
//! | `large` | patterned allocations |
//! | `pool` | runs of patterned pages, reused; `bits`: which of them are free |
//! | `ahead` | which fresh pages are copied before the program stores to them |
//! | `report` | what is said on stderr, and the counters |

#![deny(missing_docs)]
// Its tests do not interpose: they would run on the allocator that they test.
#![cfg_attr(test, allow(dead_code))]

mod ahead;
mod bits;
mod boot;
mod exports;
mod large;
mod lines;
mod next;
mod pool;
mod report;
mod settings;
