//! What a frame, an object and a reference cost, taken and given back: nanoseconds a pair, on one thread and on two.
//!
//! `cargo bench -p faultless-phys`. Each line: median, smallest and largest sample, and their number.

use faultless_phys::{Memory, Options, Slab};
use faultless_platform::native::{HostRegion, Machine, Native};
use faultless_platform::{Processor, Threads};
use std::hint::black_box;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

const SAMPLES: usize = 31;
const PAIRS: u32 = 100_000;
/// Frames taken in a row: four times what a CPU's list keeps.
const ROW: usize = 512;

fn main() {
    let machine = Machine::new(2);
    let region = HostRegion::reserve(64 << 20).expect("64 MiB");
    // SAFETY: the region is new and outlives the memory.
    let memory = unsafe { Memory::<Native>::new(region.base(), region.len_bytes(), 2, Options::default()) };
    let memory = memory.expect("the region is large enough");
    let slab = Slab::<Native, [u64; 24]>::new(&memory);
    let pfn = machine.attach(|| memory.alloc()).expect("plenty");
    // SAFETY: allocated above, and never freed.
    let page = unsafe { memory.page(pfn).owned() };
    for threads in [1, 2] {
        println!("{threads} thread(s), ns a pair: median (smallest to largest, samples)");
        measure(&machine, threads, "store and fence", 1, store_and_fence);
        measure(&machine, threads, "frame", 1, || frame(&memory));
        measure(&machine, threads, "frame, 512 in a row", ROW, || row(&memory));
        measure(&machine, threads, "frame, zeroed", 1, || zeroed(&memory));
        measure(&machine, threads, "object, 192 bytes", 1, || object(&slab));
        measure(&machine, threads, "reference", 1, || assert!(page.try_get() && !page.put()));
    }
}

/// What the hit path can't do without, to compare.
fn store_and_fence() {
    let word = AtomicU64::new(0);
    black_box(&word).store(1, Ordering::Relaxed);
    Native::fence(Ordering::SeqCst);
    assert_eq!(black_box(&word).load(Ordering::Relaxed), 1);
}

fn frame(memory: &Memory<Native>) {
    let pfn = black_box(memory.alloc().expect("plenty"));
    // SAFETY: ours, and not used any more.
    unsafe { memory.free(pfn) };
}

fn zeroed(memory: &Memory<Native>) {
    let pfn = black_box(memory.alloc_zeroed().expect("plenty"));
    // SAFETY: ours, and not used any more.
    unsafe { memory.free(pfn) };
}

fn row(memory: &Memory<Native>) {
    let frames: [_; ROW] = std::array::from_fn(|_| memory.alloc().expect("plenty"));
    for pfn in black_box(frames) {
        // SAFETY: ours, and not used any more.
        unsafe { memory.free(pfn) };
    }
}

fn object(slab: &Slab<Native, [u64; 24]>) {
    let object = black_box(slab.alloc().expect("plenty"));
    // SAFETY: ours, and not used any more.
    unsafe { slab.free(object) };
}

/// Runs `pairs` again and again on each of `threads`, and prints what a pair took.
fn measure(machine: &Machine, threads: usize, name: &str, pairs_each: usize, pairs: impl Fn() + Sync) {
    let samples = Mutex::new(Vec::new());
    Native::run(machine, threads, &|_| {
        Native::enter();
        let rounds = PAIRS / pairs_each as u32;
        let mine: Vec<f64> = (0..=SAMPLES).map(|_| time(rounds, &pairs) / pairs_each as f64).collect();
        // The first one warms up.
        samples.lock().expect("no panic").extend_from_slice(&mine[1..]);
        Native::leave();
    });
    let mut samples = samples.into_inner().expect("no panic");
    samples.sort_by(f64::total_cmp);
    let (least, most) = (samples[0], samples[samples.len() - 1]);
    let median = samples[samples.len() / 2];
    println!("  {name:<20} {median:7.1} ({least:.1} to {most:.1}, n = {})", samples.len());
}

/// Nanoseconds a round.
fn time(rounds: u32, act: impl Fn()) -> f64 {
    let start = Instant::now();
    (0..rounds).for_each(|_| act());
    start.elapsed().as_nanos() as f64 / f64::from(rounds)
}
