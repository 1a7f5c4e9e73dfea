//! A small instance to test on, and drawings of area lists.

use faultless_phys::{Memory, Options};
use faultless_platform::Platform;
use faultless_platform::native::{HostRegion, Machine, Native};
use faultless_sync::{Generation, Rwsem};
use faultless_vm::design::{Design, Map, MapLock};
use faultless_vm::{
    AreaFlags, Backing, Guest, Limits, MapOptions, MapRequest, PAGE, Placement, Populate, Protection, SpaceRef,
    VirtAddr, Vm, check,
};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Loads and stores.
pub const RW: AreaFlags = AreaFlags::READ.union(AreaFlags::WRITE);

/// A design over the semaphore that all tests have.
pub trait Tested: Design<Native, Lock: MapLock<Native, Semaphore = Rwsem<Native>>> {}

impl<D: Design<Native, Lock: MapLock<Native, Semaphore = Rwsem<Native>>>> Tested for D {}

/// Returns the generation that a design is tested over: the oldest design over the oldest one.
fn generation<D: Tested>() -> Generation {
    if D::NAME == "mmap-sem" { Generation::RWSEM_2012 } else { Generation::RWSEM_V8 }
}

/// An instance on a machine of its own.
pub struct World<D: Tested> {
    pub vm: Pin<Box<Vm<Native, D>>>,
}

impl<D: Tested> World<D> {
    /// Runs `test` with an instance of `nr_cpus` CPUs and poisoned frames.
    pub fn run(nr_cpus: usize, memory_bytes: usize, test: impl FnOnce(&Self)) {
        Self::run_boxed(nr_cpus, memory_bytes, Box::new(test));
    }

    /// Apart from `run`, which is compiled for each test.
    fn run_boxed<'a>(nr_cpus: usize, memory_bytes: usize, test: Box<dyn FnOnce(&Self) + 'a>) {
        let region = HostRegion::reserve(memory_bytes).expect("the host has room");
        let machine = Machine::new(nr_cpus);
        machine.attach(|| test(&Self::new(&region, nr_cpus)));
    }

    /// Makes an instance; the calling thread is attached to the machine.
    pub fn new(region: &HostRegion, nr_cpus: usize) -> Self {
        let options = Options { poison: true, ..Options::default() };
        // SAFETY: the region is zeroed, ours alone, and outlives the world.
        let memory = unsafe { Memory::new(region.base(), region.len_bytes(), nr_cpus, options) }.expect("large enough");
        Self { vm: Vm::with_semaphore(memory, generation::<D>()).expect("a frame for the zero page") }
    }

    /// Checks every invariant; no other thread uses the world meanwhile.
    ///
    /// # Panics
    /// If one is broken.
    pub fn check(&self, when: &str) {
        // SAFETY: the caller's promise, which a test can keep.
        unsafe { check::invariants(&self.vm) }.unwrap_or_else(|broken| panic!("{when}: {broken}"));
    }

    /// Says whether the design can have what these rows draw: one without areas has memory with rights, and no
    /// neighbours that only their history keeps apart.
    pub fn draws(&self, rows: &[&str]) -> bool {
        let is_plain = |row: &&str| row.chars().all(|mark| "wrxn.()z0123456789".contains(mark));
        !D::Map::PROMISES || rows.iter().all(is_plain)
    }

    pub fn space(&self) -> SpaceRef<'_, Native, D> {
        self.vm.create_space(Limits::default()).expect("room for a space")
    }
}

/// A generator of numbers (xorshift).
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }
}

/// Asks for private anonymous memory.
pub fn anonymous(at: Option<u64>, len_bytes: u64) -> MapRequest<'static, Native> {
    MapRequest {
        placement: at.map_or(Placement::Anywhere, |at| Placement::Fixed(VirtAddr::new(at))),
        len_bytes,
        protection: Protection::READ | Protection::WRITE,
        options: MapOptions::empty(),
        backing: Backing::Anonymous,
        populate: Populate::OnFault,
    }
}

/// Goes into guest state with nothing left to forget, and so holds up whoever unmaps; `mapped` is in the tables.
pub fn stand_in_guest<D: Tested>(guest: &Guest<'_, Native, D>, mapped: u64) {
    loop {
        guest.load(VirtAddr::new(mapped)).expect("mapped");
        // SAFETY: what waits is drained by the load of the next round, before it uses a translation.
        if !unsafe { Native::guest_enter() } {
            break;
        }
        leave_guest();
    }
}

/// Leaves the guest state that [`stand_in_guest`] went into.
pub fn leave_guest() {
    // SAFETY: nothing was translated since.
    unsafe { Native::guest_exit() };
}

/// Waits a while for a flag, and answers no shootdown meanwhile, as the platform's own waits do.
pub fn is_soon(flag: &AtomicBool, within: Duration) -> bool {
    let end = Instant::now() + within;
    while !flag.load(Ordering::SeqCst) && Instant::now() < end {
        std::thread::yield_now();
    }
    flag.load(Ordering::SeqCst)
}

/// Draws the areas: a letter an area, a character a page, a line for each run without a hole of more than 8 pages.
pub fn lines<D: Tested>(space: &SpaceRef<'_, Native, D>) -> Vec<String> {
    let mut drawing: Vec<String> = Vec::new();
    let (mut end, mut letter) = (None, 0_u8);
    space.for_each_area(|area| {
        let hole = end.map(|end: u64| (area.range.start().get() - end) / PAGE);
        match hole {
            Some(pages) if pages <= 8 => drawing.last_mut().expect("a line").push_str(&".".repeat(pages as usize)),
            _ => drawing.push(String::new()),
        }
        let mark = char::from(b'A' + letter % 26);
        letter += 1;
        let pages = ((area.range.end().get() - area.range.start().get()) / PAGE) as usize;
        drawing.last_mut().expect("a line").push_str(&mark.to_string().repeat(pages));
        end = Some(area.range.end().get());
    });
    drawing
}
