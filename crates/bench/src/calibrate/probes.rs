//! Small programs that do one thing many times, on a machine of any platform.

use std::hint::black_box;
use std::sync::atomic::AtomicU64;

use faultless_platform::{
    Atomic, AtomicInteger, Bulk, CachePadded, Ordering, PAGE_BYTES, Platform, Processor, Threads,
};
use faultless_sync::Barrier;

use crate::measure::Site;
use faultless_results::stats::{Random, median};

/// How often a probe is repeated; the median counts.
const REPEATS: usize = 9;

/// What a sleeper is given to fall asleep before it is woken.
const ASLEEP_AFTER_NS: u64 = 5_000;

/// A machine of a platform, and what carries it.
pub(super) struct Bench<'a, P: Threads> {
    pub(super) machine: &'a P::Machine,
    pub(super) site: &'a dyn Site,
}

/// Lines that one thread after the other has.
type CacheLines<P> = Vec<CachePadded<<P as Processor>::AtomicU64>>;

impl<P: Threads> Bench<'_, P> {
    /// Runs `body` on so many threads at once, each on a CPU; returns the nanoseconds that thread 0 says, the median of
    /// some runs.
    fn run(&self, threads: usize, body: impl Fn(usize) -> f64 + Sync) -> f64 {
        let samples: Vec<f64> = (0..REPEATS).map(|_| self.run_once(threads, &body)).collect();
        median(&samples).unwrap_or(0.0)
    }

    fn run_once(&self, threads: usize, body: &(impl Fn(usize) -> f64 + Sync)) -> f64 {
        let said = AtomicU64::new(0);
        P::run(self.machine, threads, &|thread| {
            self.site.settle(thread, threads);
            P::enter();
            let ns = body(thread);
            if thread == 0 {
                // Relaxed: read after the run.
                said.store(ns.to_bits(), Ordering::Relaxed);
            }
            P::leave();
        });
        f64::from_bits(said.into_inner())
    }

    /// Nanoseconds of one `act`, of so many on one thread.
    pub(super) fn each(&self, count: usize, act: impl Fn(usize) + Sync) -> f64 {
        self.run(1, |_| {
            (0..count / 8).for_each(&act);
            let began_ns = P::now();
            (0..count).for_each(&act);
            (P::now() - began_ns) as f64 / count as f64
        })
    }

    /// Loads of a line of one's own.
    pub(super) fn load(&self) -> f64 {
        let word = CachePadded::new(P::AtomicU64::new(1));
        self.each(1 << 20, |_| keep(word.load(Ordering::Relaxed)))
    }

    /// Read-modify-writes of a line of one's own.
    pub(super) fn rmw(&self) -> f64 {
        let word = CachePadded::new(P::AtomicU64::new(1));
        // The next addend depends on the value, as it does where a lock word decides what is done next.
        self.each(1 << 18, |_| keep(word.fetch_add(1 + (word.load(Ordering::Relaxed) >> 63), Ordering::Relaxed)))
    }

    /// A store and the fence behind it.
    pub(super) fn store_fence(&self) -> f64 {
        let word = CachePadded::new(P::AtomicU64::new(1));
        self.each(1 << 18, |round| {
            word.store(round as u64, Ordering::Relaxed);
            // ORDER: none is needed: its cost is what is measured.
            P::fence(Ordering::SeqCst);
        })
    }

    /// Reading the clock.
    pub(super) fn clock(&self) -> f64 {
        self.each(1 << 14, |_| keep(P::now()))
    }

    /// Dependent accesses of lines that the other CPU has written, each a `touch` that returns the next place.
    pub(super) fn dirty(&self, touch: impl Fn(&P::AtomicU64) -> u64 + Sync) -> f64 {
        const LINES: usize = 512;
        let next = round_trip(LINES);
        let lines: CacheLines<P> = (0..LINES).map(|_| CachePadded::new(P::AtomicU64::new(0))).collect();
        let barrier = Barrier::<P>::new(2);
        self.run(2, |thread| {
            if thread == 1 {
                (0..LINES).for_each(|place| lines[place].store(next[place] as u64, Ordering::Relaxed));
            }
            barrier.wait();
            let mut place = 0;
            let began_ns = P::now();
            if thread == 0 {
                (0..LINES - 1).for_each(|_| place = touch(&lines[place]) as usize);
            }
            let ns = (P::now() - began_ns) as f64 / (LINES - 1) as f64;
            black_box(place);
            barrier.wait();
            ns
        })
    }

    /// A word that two spinners hand to each other: one way.
    pub(super) fn hand_off(&self) -> f64 {
        const ROUNDS: u64 = 4000;
        let word = CachePadded::new(P::AtomicU64::new(0));
        self.run(2, |thread| {
            let base = word.load(Ordering::Relaxed) / (2 * ROUNDS) * (2 * ROUNDS);
            let began_ns = P::now();
            for round in 0..ROUNDS {
                let mine = base + 2 * round + thread as u64;
                // ORDER: Acquire pairs with the Release below.
                P::spin_until(|| word.load(Ordering::Acquire) >= mine);
                // ORDER: Release pairs with the Acquire above, of the other thread.
                word.store(mine + 1, Ordering::Release);
            }
            (P::now() - began_ns) as f64 / (2 * ROUNDS) as f64
        })
    }

    /// Two CPUs that add to one word: of each addition.
    pub(super) fn contended_add(&self) -> f64 {
        const ROUNDS: u64 = 100_000;
        let (word, barrier) = (CachePadded::new(P::AtomicU64::new(0)), Barrier::<P>::new(2));
        self.run(2, |_| {
            barrier.wait();
            let before = word.fetch_add(1, Ordering::Relaxed);
            let began_ns = P::now();
            (1..ROUNDS).for_each(|_| keep(word.fetch_add(1, Ordering::Relaxed)));
            let (ns, after) = ((P::now() - began_ns) as f64, word.load(Ordering::Relaxed));
            barrier.wait();
            ns / (after - before) as f64
        })
    }

    /// Two threads that wake each other: one way, all told, [`ASLEEP_AFTER_NS`] included.
    pub(super) fn wake(&self) -> f64 {
        const ROUNDS: u32 = 300;
        let word = CachePadded::new(P::AtomicU32::new(0));
        self.run(2, |thread| {
            let base = word.load(Ordering::Relaxed) / (2 * ROUNDS) * (2 * ROUNDS);
            let began_ns = P::now();
            for round in 0..ROUNDS {
                pass_on::<P>(&word, base + 2 * round + thread as u32);
            }
            (P::now() - began_ns) as f64 / f64::from(2 * ROUNDS)
        })
    }

    /// Waking when nobody sleeps.
    pub(super) fn wake_nobody(&self) -> f64 {
        let word = CachePadded::new(P::AtomicU32::new(0));
        self.each(1 << 12, |_| keep(P::unpark(&raw const *word, 1)))
    }

    #[allow(unsafe_code, reason = "pages are filled as the library fills them")]
    /// Filling pages, going round through so many.
    pub(super) fn fill(&self, pages: *mut u8, count: usize, is_copy: Copying) -> f64 {
        let pages = ProbedPages(pages);
        let half = count / 2;
        self.each(if count > 4096 { half } else { 1 << 13 }, move |round| {
            let (target, source) = (pages.at(round % half), pages.at(half + round % half));
            let kind = if is_copy == Copying::Yes { Bulk::CopyFrom(source) } else { Bulk::Zero };
            // SAFETY: both pages lie in the caller's memory, which nobody else uses, and differ.
            unsafe { P::bulk(target, kind) };
        })
    }
}

impl<P: Threads> Bench<'_, P> {
    /// Two CPUs that zero pages at once, each its half: of each page.
    pub(super) fn fill_both(&self, pages: *mut u8, count: usize) -> f64 {
        let (pages, half, barrier) = (ProbedPages(pages), count / 2, Barrier::<P>::new(2));
        self.run(2, move |thread| {
            barrier.wait();
            let began_ns = P::now();
            for page in 0..half {
                #[allow(unsafe_code, reason = "pages are filled as the library fills them")]
                // SAFETY: each thread has its half of the caller's memory.
                unsafe {
                    P::bulk(pages.at(thread * half + page), Bulk::Zero);
                }
            }
            let ns = (P::now() - began_ns) as f64 / half as f64;
            barrier.wait();
            ns
        })
    }
}

/// Returns a walk through so many places, in an order that no prefetcher knows: where each leads.
fn round_trip(places: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..places).collect();
    Random::new(1).shuffle(&mut order);
    let mut next = vec![0; places];
    (0..places).for_each(|step| next[order[step]] = order[(step + 1) % places]);
    next
}

/// Keeps the compiler from leaving out what made this value.
#[inline]
fn keep<T>(value: T) {
    black_box(value);
}

/// Whether pages are copied or zeroed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Copying {
    Yes,
    No,
}

/// Pages of the caller's.
#[derive(Clone, Copy)]
struct ProbedPages(*mut u8);
#[allow(unsafe_code, reason = "a pointer to memory that the probe's caller owns")]
// SAFETY: plain memory, which one probe at a time uses.
unsafe impl Send for ProbedPages {}
#[allow(unsafe_code, reason = "as above")]
// SAFETY: as above.
unsafe impl Sync for ProbedPages {}

impl ProbedPages {
    fn at(self, page: usize) -> *mut u8 {
        self.0.wrapping_add(page * PAGE_BYTES)
    }
}

/// Sleeps until it is our turn, and wakes the next.
fn pass_on<P: Platform>(word: &P::AtomicU32, mine: u32) {
    loop {
        // ORDER: Acquire pairs with the Release below.
        let turn = word.load(Ordering::Acquire);
        if turn >= mine {
            break;
        }
        P::park(word, turn);
    }
    // The other one must sleep by now: who is quick enough never does, and then nothing is measured.
    P::spin_until_deadline(P::now() + ASLEEP_AFTER_NS, || false);
    // ORDER: Release pairs with the Acquire above, of the other thread.
    word.store(mine + 1, Ordering::Release);
    P::unpark(word, 1);
}
