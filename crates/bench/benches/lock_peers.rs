//! The semaphores beside parking_lot's, std's and pthread's, on threads of the host that know no machine.
//!
//! # Guarantee
//! * alone: pairs of lock and unlock, ours and a peer's in turn, so many rounds; the ratio is the median of the rounds'
//!   ratios
//! * together: every lock in turn, round by round; each thread draws its side by a seed of its own; a writer's wait is
//!   from the call to its return
//!
//! `cargo bench -p faultless-bench --bench lock_peers [-- SEMAPHORES...]`

use std::cell::UnsafeCell;
use std::hint::black_box;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use faultless_platform::native::Native;
use faultless_results::stats::{Histogram, Random, median, median_ratio};
use faultless_sync::{Generation, RwLock, SEMAPHORES};

/// A lock under test: runs something shared, or alone.
trait Subject: Sync {
    fn read(&self, section: &dyn Fn());
    fn write(&self, section: &dyn Fn());
    /// Pairs of lock and unlock in a loop of the lock's own, so that no call through a table is measured.
    fn pairs(&self, is_read: bool, count: u32);
}

macro_rules! subject {
    ($type:ty, $lock:ident => $read:expr, $write:expr) => {
        impl Subject for $type {
            fn read(&self, section: &dyn Fn()) {
                let $lock = self;
                let _guard = $read;
                section();
            }
            fn write(&self, section: &dyn Fn()) {
                let $lock = self;
                let _guard = $write;
                section();
            }
            fn pairs(&self, is_read: bool, count: u32) {
                let $lock = self;
                match is_read {
                    true => (0..count).for_each(|_| drop(black_box($read))),
                    false => (0..count).for_each(|_| drop(black_box($write))),
                }
            }
        }
    };
}

subject!(RwLock<Native, ()>, lock => lock.read(), lock.write());
subject!(parking_lot::RwLock<()>, lock => lock.read(), lock.write());
subject!(std::sync::RwLock<()>, lock => lock.read().expect("no panic"), lock.write().expect("no panic"));
subject!(Pthread, lock => lock.lock(libc::pthread_rwlock_rdlock), lock.lock(libc::pthread_rwlock_wrlock));

/// pthread's lock.
struct Pthread(Box<UnsafeCell<libc::pthread_rwlock_t>>);

// SAFETY: the C library's lock is made to be used by several threads.
unsafe impl Sync for Pthread {}

struct PthreadGuard<'a>(&'a Pthread);

impl Pthread {
    fn new() -> Self {
        Self(Box::new(UnsafeCell::new(libc::PTHREAD_RWLOCK_INITIALIZER)))
    }

    fn lock(&self, lock: unsafe extern "C" fn(*mut libc::pthread_rwlock_t) -> i32) -> PthreadGuard<'_> {
        // SAFETY: initialised, never moved, and taken once by a thread at a time.
        assert_eq!(unsafe { lock(self.0.get()) }, 0);
        PthreadGuard(self)
    }
}

impl Drop for PthreadGuard<'_> {
    fn drop(&mut self) {
        // SAFETY: this thread has it.
        unsafe { libc::pthread_rwlock_unlock(self.0.0.get()) };
    }
}

const PAIRS: u32 = 200_000;
const ROUNDS: usize = 30;

fn ns_a_pair(subject: &dyn Subject, is_read: bool) -> f64 {
    let begin = Instant::now();
    subject.pairs(is_read, PAIRS);
    begin.elapsed().as_nanos() as f64 / f64::from(PAIRS)
}

fn alone(subjects: &[(String, Box<dyn Subject>)], peer: &dyn Subject) {
    println!("alone, ns a pair, and the ratio to parking_lot's (95 % interval), {ROUNDS} rounds of {PAIRS} pairs");
    for (name, subject) in subjects {
        let cells = [true, false].map(|is_read| {
            let rounds = (0..ROUNDS).map(|_| (ns_a_pair(peer, is_read), ns_a_pair(&**subject, is_read)));
            let (base, head): (Vec<f64>, Vec<f64>) = rounds.unzip();
            let ratio = median_ratio(&base, &head, 1).expect("enough rounds");
            let side = if is_read { "read" } else { "write" };
            let ns = median(&head).unwrap_or_default();
            format!("{side} {ns:5.1} ns {:.2} ({:.2} to {:.2})", ratio.middle, ratio.low, ratio.high)
        });
        println!("  {name:<22} {}   {}", cells[0], cells[1]);
    }
}

/// How long the lock is held, and how long a round lasts.
const SECTION: Duration = Duration::from_nanos(100);
const ROUND: Duration = Duration::from_millis(200);

fn hold() {
    let begin = Instant::now();
    while begin.elapsed() < SECTION {
        std::hint::spin_loop();
    }
}

/// Returns sections in a second of all threads, and what writers waited.
fn together(subject: &dyn Subject, nr_threads: usize, seed: u64) -> (f64, Histogram) {
    let barrier = Barrier::new(nr_threads);
    let work = |thread: usize| {
        let (mut random, mut waits, mut ops) = (Random::new(seed * 1000 + thread as u64), Histogram::default(), 0_u64);
        barrier.wait();
        let begin = Instant::now();
        while begin.elapsed() < ROUND {
            let asked = Instant::now();
            if random.below(2) == 0 {
                subject.read(&hold);
            } else {
                let waited = std::cell::Cell::new(0);
                subject.write(&|| {
                    waited.set(asked.elapsed().as_nanos() as u64);
                    hold();
                });
                waits.note(waited.get());
            }
            ops += 1;
        }
        (ops as f64 / begin.elapsed().as_secs_f64(), waits)
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..nr_threads).map(|thread| scope.spawn(move || work(thread))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no thread fails")).fold(
            (0.0, Histogram::default()),
            |(rate, mut waits), (more, others)| {
                waits.add(&others);
                (rate + more, waits)
            },
        )
    })
}

fn main() {
    let asked: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let ours = SEMAPHORES.iter().filter(|name| asked.is_empty() || asked.iter().any(|word| word == *name));
    let ours = ours.map(|name| {
        let generation = Generation::named(name).expect("registered");
        ((*name).to_owned(), Box::new(RwLock::<Native, ()>::of(generation, ())) as Box<dyn Subject>)
    });
    let mut subjects: Vec<(String, Box<dyn Subject>)> = ours.collect();
    subjects.push(("std".into(), Box::new(std::sync::RwLock::new(()))));
    subjects.push(("pthread".into(), Box::new(Pthread::new())));
    let peer = parking_lot::RwLock::new(());
    alone(&subjects, &peer);
    subjects.push(("parking_lot".into(), Box::new(peer)));
    println!("together, half writers, sections of {SECTION:?}: M sections/s, a writer's p99.9 wait in us; 5 rounds");
    for nr_threads in [1, 2, 4, 16, 64] {
        println!(" {nr_threads} threads");
        let mut rates = vec![Vec::new(); subjects.len()];
        let mut waits = vec![Histogram::default(); subjects.len()];
        for round in 0..5 {
            for (place, (_, subject)) in subjects.iter().enumerate() {
                let (rate, waited) = together(&**subject, nr_threads, round);
                rates[place].push(rate / 1e6);
                waits[place].add(&waited);
            }
        }
        for ((name, _), (rate, waited)) in subjects.iter().zip(rates.iter().zip(&waits)) {
            let p999_us = waited.percentile(999).unwrap_or_default() as f64 / 1e3;
            println!("  {name:<22} {:6.2} M/s {p999_us:9.1} us", median(rate).unwrap_or_default());
        }
    }
}
