//! What the engine computes, to the nanosecond.
//!
//! # Guarantee
//! Whoever makes the engine faster finds the same figures here: programs of random steps, on machines of each kind.
//! They change where the model changes, and must then be meant.
//!
//! Objects lie on lines of their own and none is freed while the machine runs, so that nothing depends on where the
//! compiler puts what is on a stack.

use faultless_platform::{Atomic, AtomicInteger, Bulk, CpuSet, Ordering, PAGE_BYTES, Platform, Processor, Threads};
use faultless_platform::{TouchKind, Tracepoint};
use faultless_sim::{Figures, LineAllocator, Machine, Sim, Spec, isolate};

#[global_allocator]
static ALLOCATOR: LineAllocator = LineAllocator;

type Wide = <Sim as Processor>::AtomicU64;
type Lines = Vec<Box<Wide>>;

const NR_SHARED: usize = 40;
const NR_OWN: usize = 130;
const NR_PAGES: usize = 64;
const NR_STEPS: usize = 400;

/// A page of frames.
#[repr(C, align(4096))]
struct Page([u8; PAGE_BYTES]);

/// What the threads of a run share.
struct World {
    nr_cpus: usize,
    shared: Lines,
    own: Vec<Lines>,
    pages: Vec<Box<Page>>,
}

/// A thread's own chance (xorshift64*).
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % limit
    }
}

fn lines(nr_lines: usize) -> Lines {
    (0..nr_lines).map(|_| Box::new(Wide::new(0))).collect()
}

impl World {
    fn new(nr_cpus: usize, nr_threads: usize) -> Self {
        let own = (0..nr_threads).map(|_| lines(NR_OWN)).collect();
        let pages = (0..NR_PAGES).map(|_| Box::new(Page([0; PAGE_BYTES]))).collect();
        Self { nr_cpus, shared: lines(NR_SHARED), own, pages }
    }

    /// One CPU touches some lines of all threads, as set-up does.
    fn set_up(&self) {
        self.own.iter().flat_map(|lines| lines.iter().step_by(3)).for_each(|line| line.store(1, Ordering::Relaxed));
    }

    fn step(&self, thread: usize, chance: &mut Chance) {
        let own = &self.own[thread][chance.below(NR_OWN)];
        let shared = &self.shared[chance.below(NR_SHARED)];
        let page = (&raw const *self.pages[chance.below(NR_PAGES)]).cast::<u8>();
        let line = page.wrapping_add(chance.below(32) * 64);
        match chance.below(32) {
            0..=9 => _ = own.load(Ordering::Relaxed),
            10..=14 => own.store(7, Ordering::Release),
            15 => _ = own.fetch_add(1, Ordering::SeqCst),
            16..=17 => _ = shared.fetch_add(1, Ordering::AcqRel),
            18..=20 => _ = shared.load(Ordering::Acquire),
            21 => shared.store(7, Ordering::SeqCst),
            22 => Sim::fence(Ordering::SeqCst),
            23 => {
                // SAFETY: nobody reads the page's bytes.
                unsafe { Sim::bulk(page.cast_mut(), Bulk::Zero) };
                Sim::touch(line, 300, TouchKind::Write);
            }
            24 => Sim::touch(line, 500, TouchKind::Read),
            25 => Sim::work(chance.below(700) as u64),
            26 => {
                // SAFETY: nobody translates anything here.
                _ = unsafe { Sim::guest_enter() };
                _ = own.load(Ordering::Relaxed);
                // SAFETY: as above.
                unsafe { Sim::guest_exit() };
            }
            27 => self.shoot_down(chance),
            28..=29 => {
                let (seen, deadline_ns) = (shared.load(Ordering::Relaxed), Sim::now() + chance.below(3000) as u64);
                Sim::spin_until_deadline(deadline_ns, || shared.load(Ordering::Relaxed) != seen);
            }
            30 => Sim::trace(Tracepoint::Named { name: "a page", address: page.addr(), len_bytes: PAGE_BYTES }),
            _ if Sim::should_yield() => {
                Sim::leave();
                Sim::enter();
            }
            _ => Sim::trace(Tracepoint::Named { name: "a line", address: line.addr(), len_bytes: 8 }),
        }
    }

    fn shoot_down(&self, chance: &mut Chance) {
        let mut targets = CpuSet::default();
        (0..self.nr_cpus).filter(|_| chance.below(16) == 0).for_each(|cpu| targets.insert(cpu));
        Sim::shoot_down(&targets, |_| true);
    }
}

fn run(name: &str, nr_cpus: usize, nr_threads: usize) -> Figures {
    let figures = isolate(|| {
        let spec = Spec::preset(name).expect("a preset");
        let machine = Machine::new(&spec, nr_cpus, 1).expect("so many CPUs");
        let world = World::new(nr_cpus, nr_threads);
        machine.attach(|| world.set_up());
        Sim::run(&machine, nr_threads, &|thread| {
            let mut chance = Chance(thread as u64 * 1_000_003 + 77);
            Sim::enter();
            Sim::trace(Tracepoint::WorkBegins);
            (0..NR_STEPS).for_each(|_| world.step(thread, &mut chance));
            Sim::trace(Tracepoint::WorkEnds);
            Sim::leave();
        });
        machine.figures()
    });
    figures.expect("nobody fails")
}

#[test]
fn an_engine_that_is_made_faster_gives_the_same_figures() {
    // Machine, CPUs, threads: the virtual time, lines from other CPUs, lines from memory, turns, lines touched.
    let cases = [
        ("epyc-384", 1, 1, [76_897, 0, 236, 38, 333]),
        ("epyc-384", 8, 8, [126_680, 1277, 1326, 1885, 1956]),
        ("epyc-384", 384, 384, [2_227_488, 101_105, 43_934, 245_334, 46_085]),
        ("skylake-192", 24, 40, [327_930, 8815, 5045, 16_736, 6674]),
        ("power8-80", 80, 80, [518_000, 19_408, 9501, 47_415, 11_431]),
        ("xeon-40", 8, 20, [333_641, 3806, 2757, 6012, 4056]),
    ];
    for (name, nr_cpus, nr_threads, expected) in cases {
        let Figures { elapsed_ns, transfers, fetches, switches, lines, .. } = run(name, nr_cpus, nr_threads);
        let found = [elapsed_ns, transfers, fetches, switches, lines];
        assert_eq!(found, expected, "{nr_threads} threads on {nr_cpus} CPUs of {name}");
    }
}
