//! Threads that use one space at random under each design, with the invariants checked each round (`faultless_soak`).
//!
//! `FAULTLESS_SOAK_SECONDS` sets the time for each design (2 by default); `FAULTLESS_SEED` the seed. A failure prints
//! it.

use faultless_soak::{Settings, Shortages, run_named};
use std::time::Duration;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

/// Runs half of the time with failing allocations, and half without.
fn soak(design: &str) {
    let seed = setting("FAULTLESS_SEED", 1);
    let duration = Duration::from_secs(setting("FAULTLESS_SOAK_SECONDS", 2)) / 2;
    println!("FAULTLESS_SEED={seed} replays the choices, not the interleaving");
    let semaphore = if design == "mmap-sem" { "rwsem-2012" } else { "rwsem-v8" };
    for shortages in [Shortages::None, Shortages::Injected] {
        let settings = Settings { seed, duration, shortages, ..Settings::default() };
        let report = run_named(design, semaphore, &settings).expect("known names");
        assert!(report.rounds > 0);
        assert_eq!(report.shortages > 0, shortages == Shortages::Injected, "{report:?}");
        println!("{report:?}");
    }
}

const _: () = assert!(faultless_vm::registry::DESIGNS.len() == 7, "each has a test below");

#[test]
fn mmap_sem() {
    soak("mmap-sem");
}

#[test]
fn spf_srcu() {
    soak("spf-srcu");
}

#[test]
fn spf_v9() {
    soak("spf-v9");
}

#[test]
fn spf_v11() {
    soak("spf-v11");
}

#[test]
fn vma_lock() {
    soak("vma-lock");
}

#[test]
fn faultless_queued() {
    soak("faultless-queued");
}

#[test]
fn faultless() {
    soak("faultless");
}
