//! Sequences of memory calls from a fuzzer's bytes, on the running kernel and on the library under each design.
//!
//! # Guarantee
//! A sequence that differs, breaks an invariant, panics or hangs ends the process with the line that replays it.
//! `FAULTLESS_FUZZ_DESIGNS=a,b` runs some of the designs only.

#![no_main]

use std::cell::RefCell;

use faultless_machine::designs::DESIGNS;
use faultless_oracle::generate::decode;
use faultless_oracle::{Checking, Jury, pasteable};
use faultless_oracle::kernel::{Host, User};
use libfuzzer_sys::fuzz_target;

thread_local! {
    static JURY: RefCell<Jury> = RefCell::new(jury());
}

fn jury() -> Jury {
    let chosen = std::env::var("FAULTLESS_FUZZ_DESIGNS").unwrap_or_default();
    let is_chosen = |design: &&'static str| chosen.is_empty() || chosen.split(',').any(|name| name == *design);
    let designs: Vec<_> = DESIGNS.iter().copied().filter(is_chosen).collect();
    let users: Vec<_> = [User::Nobody, User::Root].into_iter().filter(|&user| Host::can_be(user)).collect();
    Jury::start(&designs, &users, Checking::EachOperation, 0).unwrap_or_else(|error| panic!("{error}"))
}

fuzz_target!(|bytes: &[u8]| {
    let sequence = decode(bytes);
    let (_, verdicts) = JURY.with_borrow_mut(|jury| jury.compare(&sequence)).unwrap_or_else(|error| panic!("{error}"));
    for (design, result) in verdicts {
        if let Err(finding) = result {
            panic!("{}", pasteable(&sequence, &finding, design));
        }
    }
});
