//! Any arguments to the library's public functions, from several threads; the bytes are the seed.
//!
//! # Guarantee
//! A call that panics, an invariant that is broken, and a frame that is lost end the process.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|seed: u64| {
    if let Err(error) = faultless_soak::api::run(seed) {
        panic!("{error:?}");
    }
});
