//! Files from a fuzzer's bytes: traces with checksums made anew, machine files, result files.
//!
//! # Guarantee
//! A file that makes its reader, the plan or the replay of it panic, or that is not written and read back equal, ends
//! the process.

#![no_main]

use faultless_trials::fuzz::try_file;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| try_file(bytes));
