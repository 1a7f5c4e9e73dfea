//! Patterned memory that is handed out in runs of pages and reused.
//!
//! # Guarantee
//! A run belongs to one allocation at a time and is the pattern when it is handed out. Several
//! threads may call; a forked child goes on with its copy.
//!
//! # Why
//! Programs free and allocate large buffers thousands of times. libc's allocator answers by serving
//! all but the largest from its heap; a mapping for each would copy every page anew, each time.
//!
//! # How
//! A pool is one patterned mapping, with a set of the pages that are in use and a set of those that
//! may have been written by an earlier user. Runs are taken from the lowest address that fits, so
//! that few pages are written at all; of the pages in the second set those that really were written
//! are filled again (`refresh_raw`). Freed runs are kept, up to twice the longest one that was freed
//! (libc's rule), and given back to the system beyond that.
//!
//! # Invariants
//! - P5 `used` holds a page before its address is handed out, until it is free again.
//! - P6 A free page that is not in `stale` reads as the pattern.

use crate::bits::{self, Bits};
use crate::settings::Settings;
use faultless_refpage::{Kind, RawMapping, RefPage};
use std::cell::UnsafeCell;
use std::ops::Range;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

/// The lengths of the pools, in the order in which they are made.
const LENGTHS: [usize; 8] =
    [4 << 20, 8 << 20, 16 << 20, 32 << 20, LONGEST, LONGEST, LONGEST, LONGEST];
const LONGEST: usize = 64 << 20;
/// The longest run; libc maps what is longer, too.
const LONGEST_RUN: usize = 32 << 20;
/// At least this much is kept of what was freed.
const LEAST_KEPT: usize = 4 << 20;
/// The longest period whose multiples runs may begin at.
const LONGEST_STEP: usize = 64 << 10;

const EMPTY: u8 = 0;
const MAKING: u8 = 1;
const READY: u8 = 2;

/// One pool. Its state moves from `EMPTY` to `MAKING` (one thread) to `READY`, or back to `EMPTY`
/// where no mapping could be made.
struct Pool {
    state: AtomicU8,
    raw: UnsafeCell<Option<RawMapping>>,
    used: Bits,
    stale: Bits,
}

// SAFETY: `raw` is written by the one thread that moves `state` to MAKING, and read once READY.
unsafe impl Sync for Pool {}

static POOLS: [Pool; LENGTHS.len()] = [const { Pool::new() }; LENGTHS.len()];
/// How many bytes of free runs are stale.
static KEPT: AtomicUsize = AtomicUsize::new(0);
/// The longest run that was freed.
static LONGEST_FREED: AtomicUsize = AtomicUsize::new(0);

/// Returns a run of at least `len` bytes that is the pattern from byte `start` on.
pub(crate) fn allocate(settings: &Settings, len: usize, start: usize) -> Option<RawMapping> {
    let len = faultless_refpage::round_to_pages(len)?;
    let step = settings.pages.period().filter(|step| *step <= LONGEST_STEP)?;
    if settings.cache == 0 || len > LONGEST_RUN || settings.pages.is_zero() {
        return None;
    }
    let lengths = POOLS.iter().zip(LENGTHS).filter(|(_, pool_len)| *pool_len >= len);
    for (pool, pool_len) in lengths {
        let run = pool.raw(&settings.pages, pool_len).map(|raw| pool.claim(raw, len, step));
        match run {
            Some(Some(run)) => return Some(pool.hand_out(&settings.pages, run, start)),
            Some(None) => {}
            None => return None,
        }
    }
    None
}

/// Makes a run longer where it is, if the pages behind it are free.
pub(crate) fn extend(pages: &RefPage, run: &RawMapping, len: usize) -> Option<RawMapping> {
    let len = faultless_refpage::round_to_pages(len)?;
    let (pool, raw) = pool_of(run)?;
    let (old, new) = (pool.pages(raw, run, run.len()), pool.pages(raw, run, len));
    let is_free = new.end <= raw.len() / page() && pool.used.claim(old.end..new.end);
    is_free.then(|| {
        let longer = part(raw, new);
        pool.hand_out(pages, longer, run.len())
    })
}

/// Takes a run, or its end from `keep` bytes on, back; returns whether it is a pool's.
pub(crate) fn release(settings: &Settings, run: &RawMapping, keep: usize) -> bool {
    let Some((pool, raw)) = pool_of(run) else { return false };
    let whole = pool.pages(raw, run, run.len());
    let freed = whole.start + keep.div_ceil(page())..whole.end;
    let len = freed.len() * page();
    // Relaxed, here and below: numbers on their own.
    let longest = LONGEST_FREED.fetch_max(len, Ordering::Relaxed).max(len);
    let most = (2 * longest).max(LEAST_KEPT).min(settings.cache);
    if KEPT.load(Ordering::Relaxed) + len <= most || !pool.give_back(&settings.pages, raw, &freed) {
        KEPT.fetch_add(pool.stale.insert(freed.clone()) * page(), Ordering::Relaxed);
    }
    pool.used.release(freed);
    true
}

/// Returns whether a mapping is a pool's run.
pub(crate) fn has(run: &RawMapping) -> bool {
    pool_of(run).is_some()
}

fn page() -> usize {
    faultless_refpage::round_to_pages(1).unwrap_or(1)
}

fn pool_of(run: &RawMapping) -> Option<(&'static Pool, &'static RawMapping)> {
    POOLS.iter().find_map(|pool| {
        let raw = pool.ready()?;
        let offset = run.address().addr().wrapping_sub(raw.address().addr());
        (offset < raw.len()).then_some((pool, raw))
    })
}

/// Returns some pages of a pool as a mapping of their own.
fn part(raw: &RawMapping, pages: Range<usize>) -> RawMapping {
    let address = raw.address().wrapping_add(pages.start * page());
    RawMapping::from_parts(address, pages.len() * page(), Kind::Tiled, raw.len())
}

impl Pool {
    const fn new() -> Pool {
        Pool {
            state: AtomicU8::new(EMPTY),
            raw: UnsafeCell::new(None),
            used: Bits::new(),
            stale: Bits::new(),
        }
    }

    fn ready(&self) -> Option<&RawMapping> {
        // ORDER: Acquire pairs with the Release in `make`.
        let is_ready = self.state.load(Ordering::Acquire) == READY;
        // SAFETY: READY: nobody writes it any more.
        if is_ready { unsafe { (*self.raw.get()).as_ref() } } else { None }
    }

    /// Returns the pool's mapping, which is made when it is first asked for.
    fn raw(&self, pages: &RefPage, len: usize) -> Option<&RawMapping> {
        self.ready().or_else(|| self.make(pages, len))
    }

    #[cold]
    fn make(&self, pages: &RefPage, len: usize) -> Option<&RawMapping> {
        // ORDER: Acquire, Relaxed on failure: another thread makes it, and this one goes without.
        self.state.compare_exchange(EMPTY, MAKING, Ordering::Acquire, Ordering::Relaxed).ok()?;
        let len = len.min(bits::LEN * page());
        let made = pages.map_raw(len, 1).ok();
        let state = if made.is_some() { READY } else { EMPTY };
        // SAFETY: the exchange makes this the only thread here.
        unsafe { *self.raw.get() = made };
        // ORDER: Release pairs with the Acquire in `ready`.
        self.state.store(state, Ordering::Release);
        self.ready()
    }

    fn claim(&self, raw: &RawMapping, len: usize, step: usize) -> Option<RawMapping> {
        let run = self.used.claim_first(len / page(), raw.len() / page(), step / page())?;
        Some(part(raw, run))
    }

    /// Returns the pages of a run that are `len` bytes long.
    fn pages(&self, raw: &RawMapping, run: &RawMapping, len: usize) -> Range<usize> {
        let first = (run.address().addr() - raw.address().addr()) / page();
        first..first + len / page()
    }

    /// Makes a claimed run the pattern from byte `start` on.
    fn hand_out(&self, pages: &RefPage, run: RawMapping, start: usize) -> RawMapping {
        let Some(raw) = self.ready() else { return run };
        let all = self.pages(raw, &run, run.len());
        let unwritten = all.start..all.start + (start / page()).min(all.len());
        let stale = self.stale.hull(unwritten.end..all.end);
        let kept = self.stale.remove(all) * page();
        KEPT.fetch_sub(kept, Ordering::Relaxed); // Relaxed: a number on its own
        // The phase is the run's, so the range is, too.
        let offset = |number: usize| number * page() - (run.address().addr() - raw.address().addr());
        if !stale.is_empty() {
            // SAFETY: the run is the caller's alone. Resetting cannot fail inside the mapping.
            let _ = unsafe { pages.refresh_raw(&run, offset(stale.start)..offset(stale.end)) };
        }
        run
    }

    /// Gives the pages of a run back to the system.
    fn give_back(&self, pages: &RefPage, raw: &RawMapping, run: &Range<usize>) -> bool {
        // SAFETY: the run is still claimed, and its user has given it up.
        unsafe { pages.reset_raw(raw, run.start * page()..run.end * page()) }.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::tests::settings_for;

    #[expect(clippy::mut_from_ref, reason = "the tests use a run only while they have it")]
    fn bytes(run: &RawMapping) -> &mut [u8] {
        // SAFETY: the tests use a run only while they have it.
        unsafe { std::slice::from_raw_parts_mut(run.address(), run.len()) }
    }

    #[test]
    fn a_reused_run_is_the_pattern_again() {
        let settings = settings_for(&[1, 2, 3]);
        for round in 0..50 {
            let run = allocate(&settings, 150_000 + round * 1_000, 0).unwrap();
            let is_pattern = bytes(&run).iter().enumerate().all(|(i, byte)| *byte == (i % 3) as u8 + 1);
            assert!(is_pattern, "round {round}");
            bytes(&run)[round * 100..].fill(9);
            let longer = extend(&settings.pages, &run, run.len() + 100_000).unwrap();
            let new = &bytes(&longer)[run.len()..];
            assert!(new.iter().enumerate().all(|(i, byte)| *byte == ((run.len() + i) % 3) as u8 + 1));
            assert!(release(&settings, &longer, if round % 2 == 0 { 0 } else { run.len() }));
            if round % 2 == 1 {
                assert!(release(&settings, &run, 0));
            }
        }
    }
}
