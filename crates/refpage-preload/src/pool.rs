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
//! A pool is one patterned mapping, with a set of the pages that are in use, one of those that may
//! have been written by an earlier user, and one of those that are known to be private copies. Runs
//! are taken from the lowest address that fits, so that few pages are written at all. Of the pages
//! in the second set those in the third are filled again; of the others, those that the kernel says
//! were written (`refresh_and_tell`), which then are in the third set, too. Freed runs are kept, up
//! to twice the longest one that was freed (libc's rule), and given back to the system beyond that.
//! Pages that were never written are copied ahead of the first store where `ahead` expects one.
//!
//! # Invariants
//! - P5 `used` holds a page before its address is handed out, until it is free again.
//! - P6 A free page that is not in `stale` reads as the pattern.
//! - P7 `start` and `tile_len` change only while `state` is `MAKING`, or every page is in `used`; so
//!   whoever has claimed a page, and then found the pool `READY`, may read them until it releases.
//!
//! # Making, claiming and retiring a pool
//!
//! ```text
//! make                      | claim                      | retire
//! state EMPTY -> MAKING     | claim pages                | claim all pages
//! map, set `start`          | state READY? else release  | state READY -> MAKING, unmap
//! state -> READY            | read `start`               | state -> EMPTY, release all pages
//! ```

use crate::ahead::EVIDENCE;
use crate::bits::{self, Bits};
use crate::report;
use crate::settings::Settings;
use faultless_refpage::{Kind, RawMapping, RefPage};
use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicUsize, Ordering};

/// How many pools there can be: 3.6 GiB in all.
const POOLS_LEN: usize = 64;
/// The first two pools' length; every second is twice as long as the one before, up to the longest.
/// Twice each time would cost a program of some megabytes twice the tiles that it needs.
const SHORTEST: usize = 4 << 20;
const LONGEST: usize = 64 << 20;
/// The longest run; libc maps what is longer, too.
const LONGEST_RUN: usize = 32 << 20;
/// At least this much is kept of what was freed.
const LEAST_KEPT: usize = 4 << 20;
/// Of how many pages the content is looked at, when a run is freed, to see whether they were used.
const SAMPLES: usize = 16;
/// The longest period whose multiples runs may begin at.
const LONGEST_STEP: usize = 64 << 10;

const EMPTY: u8 = 0;
const MAKING: u8 = 1;
const READY: u8 = 2;

/// One pool. Its state moves from `EMPTY` over `MAKING` (one thread) to `READY`, and the same way
/// back when it is retired. In a child that was forked meanwhile it stays `MAKING`, and unused.
struct Pool {
    state: AtomicU8,
    start: AtomicPtr<u8>,
    tile_len: AtomicUsize,
    used: Bits,
    /// How many pages are in `used`: full pools are passed over.
    nr_used: AtomicUsize,
    stale: Bits,
    copied: Bits,
    /// Copied ahead, for the user who has the page now.
    ahead: Bits,
}

/// Whether a page that is copied ahead will be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Guess {
    Known,
    Likely,
}

static POOLS: [Pool; POOLS_LEN] = [const { Pool::new() }; POOLS_LEN];
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
    let pools = POOLS.iter().enumerate().map(|(index, pool)| (pool, length_of(index)));
    for (pool, pool_len) in pools.filter(|(_, pool_len)| *pool_len >= len) {
        if pool.is_empty() {
            pool.make(&settings.pages, pool_len)?;
        }
        let (all, len, step) = (pool_len / page(), len / page(), step / page());
        if let Some(run) = pool.claim(all, len, step) {
            return Some(pool.hand_out(settings, run, start));
        }
    }
    None
}

/// Makes a run longer where it is, if the pages behind it are free.
pub(crate) fn extend(settings: &Settings, run: &RawMapping, len: usize) -> Option<RawMapping> {
    let len = faultless_refpage::round_to_pages(len)?;
    let (pool, pool_len) = pool_of(run)?;
    let (old, new) = (pool.pages(run, run.len()), pool.pages(run, len));
    let is_free = new.end <= pool_len / page() && pool.used.claim(old.end..new.end);
    is_free.then(|| {
        pool.nr_used.fetch_add(new.end - old.end, Ordering::Relaxed); // Relaxed: a hint
        pool.hand_out(settings, new, run.len())
    })
}

/// Takes a run, or its end from `keep` bytes on, back; returns whether it is a pool's.
pub(crate) fn release(settings: &Settings, run: &RawMapping, keep: usize) -> bool {
    let Some((pool, pool_len)) = pool_of(run) else { return false };
    let whole = pool.pages(run, run.len());
    let freed = whole.start + keep.div_ceil(page())..whole.end;
    let len = freed.len() * page();
    pool.judge(&settings.pages, run, whole.start, &freed);
    // Relaxed, here and below: numbers on their own.
    let longest = LONGEST_FREED.fetch_max(len, Ordering::Relaxed).max(len);
    let most = (2 * longest).max(LEAST_KEPT).min(settings.cache);
    let is_kept = KEPT.load(Ordering::Relaxed) + len <= most;
    if is_kept || !pool.give_back(&settings.pages, pool_len, &freed) {
        KEPT.fetch_add(pool.stale.insert(freed.clone()) * page(), Ordering::Relaxed);
    }
    pool.nr_used.fetch_sub(freed.len(), Ordering::Relaxed);
    pool.used.release(freed);
    true
}

/// Returns whether a mapping is a pool's run.
pub(crate) fn has(run: &RawMapping) -> bool {
    pool_of(run).is_some()
}

/// Unmaps the pools of which nothing is in use; returns whether there was one.
#[cold]
pub(crate) fn retire_empty(pages: &RefPage) -> bool {
    let retire = |(index, pool): (usize, &Pool)| pool.retire(pages, length_of(index));
    POOLS.iter().enumerate().map(retire).filter(|is_retired| *is_retired).count() > 0
}

fn length_of(index: usize) -> usize {
    LONGEST.min(SHORTEST << (index / 2).min(8)).min(bits::LEN * page())
}

fn page() -> usize {
    faultless_refpage::round_to_pages(1).unwrap_or(1)
}

/// Returns the pool of a run that the caller has, and the pool's length.
fn pool_of(run: &RawMapping) -> Option<(&'static Pool, usize)> {
    let address = run.address().addr();
    POOLS.iter().enumerate().find_map(|(index, pool)| {
        // Relaxed: the run's own pool does not move (P7), and the others do not lie here.
        let start = pool.start.load(Ordering::Relaxed);
        let offset = address.wrapping_sub(start.addr());
        (!start.is_null() && offset < length_of(index)).then(|| (pool, length_of(index)))
    })
}

impl Pool {
    const fn new() -> Pool {
        Pool {
            state: AtomicU8::new(EMPTY),
            start: AtomicPtr::new(ptr::null_mut()),
            tile_len: AtomicUsize::new(0),
            used: Bits::new(),
            nr_used: AtomicUsize::new(0),
            stale: Bits::new(),
            copied: Bits::new(),
            ahead: Bits::new(),
        }
    }

    fn is_ready(&self) -> bool {
        // ORDER: Acquire pairs with the Release in `make`.
        self.state.load(Ordering::Acquire) == READY
    }

    fn is_empty(&self) -> bool {
        self.state.load(Ordering::Relaxed) == EMPTY // Relaxed: `make` decides
    }

    /// Makes the pool, unless another thread does meanwhile; nothing where that is impossible.
    #[cold]
    fn make(&self, pages: &RefPage, len: usize) -> Option<()> {
        // ORDER: Acquire pairs with the Release in `retire`; Relaxed on failure: nothing is touched.
        let was = self.state.compare_exchange(EMPTY, MAKING, Ordering::Acquire, Ordering::Relaxed);
        if was.is_err() {
            return Some(());
        }
        let made = pages.map_raw(len, 1).ok();
        if let Some(raw) = made {
            // Relaxed: published by `state` (P7).
            self.tile_len.store(raw.tile_len().unwrap_or(len), Ordering::Relaxed);
            self.start.store(raw.address(), Ordering::Relaxed);
        }
        let state = if made.is_some() { READY } else { EMPTY };
        // ORDER: Release pairs with the Acquire in `is_ready`.
        self.state.store(state, Ordering::Release);
        made.map(|_| ())
    }

    /// Claims `len` of the pool's pages.
    fn claim(&self, all: usize, len: usize, step: usize) -> Option<Range<usize>> {
        // Relaxed, here and below: a hint.
        if self.nr_used.load(Ordering::Relaxed) + len > all {
            return None;
        }
        let run = self.used.claim_first(len, all, step)?;
        if !self.is_ready() {
            self.used.release(run);
            return None;
        }
        self.nr_used.fetch_add(len, Ordering::Relaxed);
        Some(run)
    }

    /// Unmaps the pool, if nothing of it is in use.
    fn retire(&self, pages: &RefPage, len: usize) -> bool {
        let all = 0..len / page();
        if !self.is_ready() || !self.used.claim(all.clone()) {
            return false;
        }
        // Another thread may have retired it, and a third be making it anew.
        // ORDER: Acquire pairs with the Release in `make`; the fields below are ours by P7.
        let was = self.state.compare_exchange(READY, MAKING, Ordering::Acquire, Ordering::Relaxed);
        if was.is_ok() {
            KEPT.fetch_sub(self.stale.remove(all.clone()) * page(), Ordering::Relaxed);
            self.copied.remove(all.clone());
            let raw = self.part(all.clone());
            self.start.store(ptr::null_mut(), Ordering::Relaxed);
            // SAFETY: all pages are claimed here, so nobody uses them.
            unsafe { pages.unmap_raw(raw) };
            // ORDER: Release pairs with the Acquire in `make`.
            self.state.store(EMPTY, Ordering::Release);
        }
        self.used.release(all);
        was.is_ok()
    }

    /// Returns some claimed pages of the pool as a mapping.
    fn part(&self, pages: Range<usize>) -> RawMapping {
        // Relaxed: P7.
        let start = self.start.load(Ordering::Relaxed);
        let address = start.wrapping_add(pages.start * page());
        let tile_len = self.tile_len.load(Ordering::Relaxed);
        RawMapping::from_parts(address, pages.len() * page(), Kind::Tiled, tile_len)
    }

    /// Returns the pages of a run, as if it were `len` bytes long.
    fn pages(&self, run: &RawMapping, len: usize) -> Range<usize> {
        // Relaxed: P7.
        let start = self.start.load(Ordering::Relaxed);
        let first = (run.address().addr() - start.addr()) / page();
        first..first + len / page()
    }

    /// Makes claimed pages the pattern from byte `start` on.
    fn hand_out(&self, settings: &Settings, all: Range<usize>, start: usize) -> RawMapping {
        let pages = &settings.pages;
        let run = self.part(all.clone());
        let first = all.start + (start / page()).min(all.len());
        for (fresh, _) in self.stale.parts(all.clone()).filter(|(_, is_stale)| !*is_stale) {
            // The caller copies bytes to the pages before `first`.
            let known = first.clamp(fresh.start, fresh.end);
            for (part, guess) in [(fresh.start..known, Guess::Known), (known..fresh.end, Guess::Likely)] {
                if !part.is_empty() {
                    self.copy_ahead(settings, part, guess);
                }
            }
        }
        for (stale, _) in self.stale.parts(first..all.end).filter(|(_, is_stale)| *is_stale) {
            for (part, is_copied) in self.copied.parts(stale) {
                self.refresh(pages, &run, all.start, part, is_copied);
            }
        }
        let kept = self.stale.remove(all) * page();
        KEPT.fetch_sub(kept, Ordering::Relaxed); // Relaxed: a number on its own
        run
    }

    /// Makes pages of a run, whose first page is `first`, the pattern again.
    fn refresh(&self, pages: &RefPage, run: &RawMapping, first: usize, part: Range<usize>, is_copied: bool) {
        // The phase is the run's, so the range is, too.
        let range = (part.start - first) * page()..(part.end - first) * page();
        if is_copied {
            let address = run.address().wrapping_add(range.start);
            // SAFETY: the run is the caller's alone.
            return unsafe { pages.fill(address, range.len(), range.start) };
        }
        let mut nr_written = 0;
        let learn = |written: Range<usize>| {
            nr_written += written.len() / page();
            self.copied.insert(first + written.start / page()..first + written.end / page());
        };
        // SAFETY: as above. Refreshing cannot fail inside the mapping.
        let _ = unsafe { pages.refresh_and_tell(run, range, learn) };
        EVIDENCE.saw(nr_written, part.len() - nr_written);
    }

    /// Copies fresh pages of a claimed run ahead of the first store, where it is expected.
    fn copy_ahead(&self, settings: &Settings, fresh: Range<usize>, guess: Guess) {
        let nr_guessed = if guess == Guess::Known { 0 } else { fresh.len() };
        let part = self.part(fresh.clone());
        if !EVIDENCE.claim(&settings.pages, nr_guessed, settings.ahead / page()) {
            return EVIDENCE.watch(&part);
        }
        // SAFETY: the pages are claimed, and the pool's.
        match unsafe { settings.pages.copy_ahead_raw(&part, 0..part.len()) } {
            Ok(()) => {
                self.copied.insert(fresh.clone());
                self.ahead.insert(fresh.start..fresh.start + nr_guessed);
                report::count_ahead(settings, part.len());
            }
            Err(why) => EVIDENCE.refused(nr_guessed, &why),
        }
    }

    /// Looks whether pages of a freed run that were copied ahead have been written since.
    fn judge(&self, pages: &RefPage, run: &RawMapping, first: usize, freed: &Range<usize>) {
        let parts = || self.ahead.parts(freed.clone()).filter(|(_, is_ahead)| *is_ahead).map(|(part, _)| part);
        let nr_ahead: usize = parts().map(|part| part.len()).sum();
        if nr_ahead == 0 {
            return;
        }
        let step = nr_ahead.div_ceil(SAMPLES);
        let is_idle = |at: &usize| {
            let offset = (at - first) * page();
            // SAFETY: the run is still claimed, and its user has given it up.
            unsafe { pages.is_pattern_raw(run, offset..offset + page()) }
        };
        let (mut nr_looked, mut nr_idle) = (0, 0);
        for at in parts().flat_map(|part| part.step_by(step)) {
            nr_looked += 1;
            nr_idle += usize::from(is_idle(&at));
        }
        let nr_idle = nr_ahead * nr_idle / nr_looked;
        EVIDENCE.saw(nr_ahead - nr_idle, nr_idle);
        EVIDENCE.settle(self.ahead.remove(freed.clone()));
    }

    /// Gives claimed pages back to the system.
    fn give_back(&self, pages: &RefPage, pool_len: usize, run: &Range<usize>) -> bool {
        let all = self.part(0..pool_len / page());
        self.copied.remove(run.clone());
        // SAFETY: the run is still claimed, and its user has given it up.
        unsafe { pages.reset_raw(&all, run.start * page()..run.end * page()) }.is_ok()
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

    /// Returns this process's private memory, in KiB.
    fn anonymous_kib() -> usize {
        let text = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap();
        let line = text.lines().find(|line| line.starts_with("Anonymous:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    /// The pools are the process's, and have one pattern: so this is one test.
    #[test]
    fn pools_hand_out_the_pattern_and_keep_no_more_than_they_may() {
        let settings = settings_for(&[1, 2, 3]);
        reused_runs_are_the_pattern_again(&settings);
        assert!(retire_empty(&settings.pages));
        freed_memory_is_given_back_beyond_the_limit(&Settings { cache: 64 << 10, ahead: 0, ..settings });
    }

    fn freed_memory_is_given_back_beyond_the_limit(settings: &Settings) {
        let roomy = Settings { pages: settings.pages.clone(), cache: 64 << 20, stats: None, ..*settings };
        let before = anonymous_kib();
        for _ in 0..5 {
            let run = allocate(settings, 3 << 20, 0).unwrap();
            bytes(&run)[1 << 20..].fill(9);
            // The first time the kernel is asked which pages were written, and they are kept.
            assert!(release(&roomy, &run, 0));
            let again = allocate(settings, 3 << 20, 0).unwrap();
            assert_eq!(again, run);
            assert!(anonymous_kib() >= before + (2 << 10));
            assert!(release(settings, &again, 0));
            assert!(anonymous_kib() < before + 512);
            // Nobody writes this one, so it has no page that would have to be filled.
            let third = allocate(settings, 3 << 20, 0).unwrap();
            assert!(release(&roomy, &third, 0));
            let fourth = allocate(settings, 3 << 20, 0).unwrap();
            assert!(anonymous_kib() < before + 512, "pages that were given back were filled");
            assert!(release(settings, &fourth, 0));
        }
    }

    fn reused_runs_are_the_pattern_again(settings: &Settings) {
        for round in 0..50 {
            let run = allocate(settings, 150_000 + round * 1_000, 0).unwrap();
            let is_pattern = bytes(&run).iter().enumerate().all(|(i, byte)| *byte == (i % 3) as u8 + 1);
            assert!(is_pattern, "round {round}");
            bytes(&run)[round * 100..].fill(9);
            let longer = extend(settings, &run, run.len() + 100_000).unwrap();
            let new = &bytes(&longer)[run.len()..];
            assert!(new.iter().enumerate().all(|(i, byte)| *byte == ((run.len() + i) % 3) as u8 + 1));
            assert!(release(settings, &longer, if round % 2 == 0 { 0 } else { run.len() }));
            if round % 2 == 1 {
                assert!(release(settings, &run, 0));
            }
            if round % 10 == 0 {
                assert!(retire_empty(&settings.pages));
                assert!(!retire_empty(&settings.pages));
            }
        }
    }
}
