//! The platform's contracts, and what a run costs, on simulated CPUs.

use faultless_platform::{
    Atomic, AtomicInteger, Bulk, CpuSet, Ordering, PAGE_BYTES, Platform, Processor, Threads, TouchKind, Tracepoint,
};
use faultless_sim::{Failure, Figures, LineAllocator, Machine, Profile, Sim, Spec, isolate, waits};
use std::panic::resume_unwind;
use std::sync::atomic::AtomicPtr;

#[global_allocator]
static ALLOCATOR: LineAllocator = LineAllocator;

type Word = <Sim as Processor>::AtomicU32;
type Wide = <Sim as Processor>::AtomicU64;

fn machine(name: &str, cpus: usize, seed: u64) -> Machine {
    let spec = Spec::preset(name).expect("a preset");
    Machine::new(&spec, cpus, seed).expect("so many CPUs")
}

/// Runs `body` on all CPUs; returns what it did and how long it took.
fn on_all(name: &str, cpus: usize, seed: u64, body: impl Fn(usize) + Sync) -> Result<Figures, Failure> {
    isolate(|| {
        let machine = machine(name, cpus, seed);
        Sim::run(&machine, cpus, &|thread| {
            Sim::enter();
            body(thread);
            Sim::leave();
        });
        machine.figures()
    })
}

fn adds(name: &str, cpus: usize, seed: u64) -> Figures {
    let total = Wide::new(0);
    let figures = on_all(name, cpus, seed, |_| {
        for _ in 0..500 {
            total.fetch_add(1, Ordering::Relaxed);
        }
    });
    assert_eq!(total.load(Ordering::Relaxed), 500 * cpus as u64);
    figures.expect("nothing fails")
}

#[test]
fn what_the_host_did_with_its_memory_before_makes_no_difference() {
    let run = |nr_holes: usize| {
        isolate(|| {
            // Holes of the host's heap, which the program's objects fill or don't.
            let blocks: Vec<Vec<u8>> = (0..2 * nr_holes).map(|n| vec![0; 64 * (n % 5 + 1)]).collect();
            let walls: Vec<Vec<u8>> = blocks.into_iter().step_by(2).collect();
            let machine = machine("epyc-384", 8, 1);
            let shared = Box::new(Wide::new(0));
            Sim::run(&machine, 8, &|thread| {
                Sim::enter();
                for round in 0..50 {
                    let own: Vec<Box<Wide>> = (0..(thread + round) % 7).map(|_| Box::new(Wide::new(0))).collect();
                    own.iter().for_each(|word| _ = word.fetch_add(1, Ordering::Relaxed));
                    shared.fetch_add(1, Ordering::Relaxed);
                }
                Sim::leave();
            });
            assert_eq!(walls.len(), nr_holes);
            machine.figures()
        })
    };
    let fresh = run(0);
    assert!(fresh.is_ok());
    for nr_holes in [3, 40, 500] {
        assert_eq!(run(nr_holes), fresh, "{nr_holes} holes");
    }
}

#[test]
fn contention_costs_and_private_lines_do_not() {
    let (alone, crowd) = (adds("skylake-192", 1, 1), adds("skylake-192", 40, 1));
    assert_eq!(alone.transfers, 0);
    assert!(crowd.transfers > 500, "{crowd:?}");
    let own = on_all("skylake-192", 40, 1, |_| {
        let word = Wide::new(0);
        for _ in 0..500 {
            word.fetch_add(1, Ordering::Relaxed);
        }
    });
    let own = own.expect("nothing fails");
    assert_eq!(own.transfers, 0);
    assert!(own.elapsed_ns < crowd.elapsed_ns / 5, "{own:?} {crowd:?}");
}

fn add(word: &Wide) {
    word.fetch_add(1, Ordering::Relaxed);
}

/// Lets CPUs fight for a word, and then wait; says what was counted where they told.
fn booked(tells: bool) -> (Figures, Profile) {
    let tell = |event: Tracepoint| {
        if tells {
            Sim::trace(event);
        }
    };
    let result = isolate(|| {
        let fought = Box::new(Wide::new(0));
        let machine = machine("xeon-40", 4, 1);
        Sim::run(&machine, 4, &|thread| {
            Sim::enter();
            if thread == 0 {
                tell(Tracepoint::named("what they fight for", &*fought));
            }
            // Before it works, nothing counts.
            (0..100).for_each(|_| add(&fought));
            tell(Tracepoint::WorkBegins);
            (0..200).for_each(|_| add(&fought));
            tell(Tracepoint::WaitBegins { name: "outer" });
            tell(Tracepoint::WaitBegins { name: "inner" });
            (0..50).for_each(|_| add(&fought));
            tell(Tracepoint::WaitEnds { aside_ns: 0 });
            tell(Tracepoint::WaitEnds { aside_ns: 1000 });
            Sim::spin_until_deadline(Sim::watch_clock() + 5000, || false);
            tell(Tracepoint::WorkEnds);
            (0..100).for_each(|_| add(&fought));
            Sim::leave();
        });
        (machine.figures(), machine.profile())
    });
    result.expect("nobody fails")
}

#[test]
fn books_say_where_the_time_of_threads_goes_each_part_once_and_take_no_time() {
    let (figures, profile) = booked(true);
    assert_eq!(booked(false), (figures, Profile::default()), "who tells nothing is not counted, and runs alike");
    let line = profile.lines.iter().find(|line| line.name == "what they fight for").expect("the line");
    assert!((100..=800).contains(&line.all.transfers), "outside work and waits nothing counts: {line:?}");
    assert_eq!((line.all, line.hottest_writers), (line.hottest, 4), "one line that all write");
    let wait = |name: &str| profile.waits.iter().find(|(known, _)| *known == name).map_or(0, |(_, ns)| *ns);
    assert!(wait("outer") > 0 && wait("inner") == 0, "of nested waits the outer one: {:?}", profile.waits);
    assert!((19_900..24_000).contains(&wait(waits::SPINNING)), "{:?}", profile.waits);
    let lines: u64 = profile.lines.iter().map(|line| line.all.wait_ns).sum();
    let parts = lines + profile.waits.iter().map(|(_, ns)| ns).sum::<u64>();
    let work = profile.thread_ns - parts;
    // 200 additions by each of four, 6 to 20 ns each, and no more.
    assert!((800 * 5..800 * 40).contains(&work), "the rest is work: {work} of {profile:?}");
}

#[test]
fn memory_that_is_named_anew_is_counted_anew() {
    let result = isolate(|| {
        let page = pages_of(1);
        // SAFETY: the page is zeroed, aligned, and lives as long as the machine; an atomic is in place in its bytes.
        let word: &Wide = unsafe { &*page[0].0.as_ptr().cast() };
        let name =
            |name| Sim::trace(Tracepoint::Named { name, address: page[0].0.as_ptr().addr(), len_bytes: PAGE_BYTES });
        let machine = machine("xeon-40", 2, 1);
        Sim::run(&machine, 2, &|_| {
            Sim::enter();
            Sim::trace(Tracepoint::WorkBegins);
            for names in ["first", "second"] {
                name(names);
                (0..200).for_each(|_| add(word));
            }
            Sim::trace(Tracepoint::named("part", word));
            (0..200).for_each(|_| add(word));
            Sim::trace(Tracepoint::WorkEnds);
            Sim::leave();
        });
        machine.profile()
    });
    let profile = result.expect("nobody fails");
    let mut names: Vec<&str> =
        profile.lines.iter().filter(|line| line.all.transfers > 20).map(|line| line.name).collect();
    names.sort_unstable();
    assert_eq!(names, ["first", "part", "second"], "{:?}", profile.lines);
}

/// A page of host memory.
#[repr(align(4096))]
#[derive(Clone)]
struct Page([u8; PAGE_BYTES]);

const NR_PAGES: usize = 400;

fn pages() -> Vec<Page> {
    pages_of(NR_PAGES)
}

fn pages_of(many: usize) -> Vec<Page> {
    vec![Page([0; PAGE_BYTES]); many]
}

/// Lets CPU 0 of `epyc-384` touch the lines of pages on a node, one after another; returns how long it took.
fn touched_on(node: usize) -> u64 {
    let pages = pages();
    let machine = machine("epyc-384", 97, 1);
    Sim::place(&machine, node, pages.as_ptr().cast(), NR_PAGES * PAGE_BYTES);
    machine.attach(|| pages.iter().for_each(|page| Sim::touch(page.0.as_ptr(), PAGE_BYTES, TouchKind::Read)));
    machine.figures().elapsed_ns
}

#[test]
fn memory_of_another_node_is_farther() {
    let (here, there) = (touched_on(0), touched_on(1));
    // 200 ns beside 115 for each of 64 lines a page, and a few for the instructions.
    assert!(there > here * 3 / 2 && there < here * 9 / 5, "{there} beside {here}");
}

/// CPUs of one socket fill pages: half of them on the other socket, they have two buses.
#[test]
fn a_page_goes_over_the_bus_of_its_own_node() {
    let filled = |nr_there: usize| {
        let mut pages = pages();
        let start = pages.as_mut_ptr();
        let machine = machine("epyc-384", 97, 1);
        Sim::place(&machine, 1, start.cast(), nr_there * PAGE_BYTES);
        Sim::place(&machine, 0, start.wrapping_add(nr_there).cast(), (NR_PAGES - nr_there) * PAGE_BYTES);
        let start = AtomicPtr::new(start);
        // The spread of the starts is small beside it: everybody fills four pages at once, a hundred times faster than
        // one bus moves them.
        Sim::run(&machine, 96, &|thread| {
            Sim::enter();
            for page in (thread..NR_PAGES).step_by(96) {
                let page = start.load(Ordering::Relaxed).wrapping_add(page).cast::<u8>();
                // SAFETY: each page is one thread's.
                unsafe { Sim::bulk(page, Bulk::Zero) };
            }
            Sim::leave();
        });
        machine.figures().elapsed_ns
    };
    let (one_bus, two_buses) = (filled(0), filled(200));
    assert!(one_bus > two_buses + 1000, "{one_bus} beside {two_buses}");
}

#[test]
fn threads_of_one_core_slow_each_other_down() {
    let adds = || {
        let word = Wide::new(0);
        for _ in 0..20_000 {
            word.fetch_add(1, Ordering::Relaxed);
        }
    };
    for body in [&adds as &(dyn Fn() + Sync), &|| Sim::work(200_000)] {
        let each = |cpus| on_all("power8-80", cpus, 1, |_| body()).expect("nothing fails").elapsed_ns;
        let (alone, crowded) = (each(10), each(80));
        assert!(crowded > alone * 3 && crowded < alone * 4, "{alone} {crowded}");
    }
}

#[test]
fn a_seed_gives_the_same_run_and_another_one_another() {
    let first = adds("epyc-384", 100, 7);
    assert_eq!(first, adds("epyc-384", 100, 7));
    assert_ne!(first, adds("epyc-384", 100, 8));
}

#[test]
fn simulations_beside_each_other_do_not_disturb() {
    let alone = adds("power8-80", 80, 3);
    std::thread::scope(|scope| {
        let beside: Vec<_> = (0..4).map(|_| scope.spawn(|| adds("power8-80", 80, 3))).collect();
        for run in beside {
            assert_eq!(run.join().expect("a run"), alone);
        }
    });
}

#[test]
fn a_word_goes_round_all_cpus_by_spinning() {
    let turn = Word::new(0);
    let figures = on_all("xeon-40", 40, 5, |thread| {
        for round in 0..20 {
            let mine = round * 40 + thread as u32;
            Sim::spin_until(|| turn.load(Ordering::Acquire) == mine);
            turn.store(mine + 1, Ordering::Release);
        }
    });
    assert_eq!(turn.load(Ordering::Relaxed), 800);
    assert!(figures.expect("nobody is left waiting").elapsed_ns > 800 * 50);
}

#[test]
fn a_deadline_ends_a_wait_at_its_time() {
    let figures = on_all("here", 2, 1, |_| {
        let before = Sim::now();
        assert!(!Sim::spin_until_deadline(before + 5000, || false));
        assert!((5000..6000).contains(&(Sim::now() - before)));
    });
    figures.expect("time passes");
}

#[test]
fn sleepers_are_woken_in_order_and_more_threads_than_cpus_take_turns() {
    let (word, order) = (Word::new(0), Wide::new(0));
    let done = isolate(|| {
        let machine = machine("here", 2, 9);
        Sim::run(&machine, 7, &|thread| {
            Sim::enter();
            if thread == 6 {
                Sim::work(2_000_000);
                word.store(1, Ordering::Release);
                assert_eq!(Sim::unpark(&word, usize::MAX), 6);
            } else {
                while word.load(Ordering::Acquire) == 0 {
                    Sim::park(&word, 0);
                }
                order.fetch_add(1, Ordering::Relaxed);
            }
            Sim::leave();
        });
    });
    assert_eq!(done, Ok(()));
    assert_eq!(order.load(Ordering::Relaxed), 6);
}

/// How pages are filled.
#[derive(Clone, Copy, Debug)]
enum Filled {
    Zeroed,
    Copied,
}

/// Returns how long a round of filling so many pages takes on CPU 0 of `here`, when `filler` has filled them before.
fn filling(nr_pages: usize, filler: usize, filled: Filled) -> u64 {
    let numbers = [
        ("memory.zero_warm_ns", 50.0),
        ("memory.zero_hot_ns", 20.0),
        ("memory.zero_cold_ns", 200.0),
        ("memory.copy_hot_ns", 20.0),
        ("memory.copy_warm_ns", 50.0),
        ("memory.copy_cold_ns", 400.0),
        ("memory.cache_kib_per_core", 64.0),
        ("memory.cache_kib_per_complex", 1024.0),
    ];
    let spec = numbers.iter().fold(Spec::preset("here").expect("a preset"), |spec, &(key, value)| {
        spec.with_number(key, value, "a test").expect("a number")
    });
    let region = vec![0_u128; (nr_pages + 2) * 4096 / 16];
    let base = region.as_ptr().addr().next_multiple_of(4096);
    let kind = || match filled {
        Filled::Zeroed => Bulk::Zero,
        Filled::Copied => Bulk::CopyFrom((base + nr_pages * 4096) as *const u8),
    };
    let (done, took) = (Word::new(0), Wide::new(0));
    let ran = isolate(|| {
        let machine = Machine::new(&spec, 2, 1).expect("two CPUs");
        Sim::run(&machine, 2, &|thread| {
            Sim::enter();
            // SAFETY: the pages lie in the region, and one thread at a time fills them.
            let fill = || (0..nr_pages).for_each(|page| unsafe { Sim::bulk((base + page * 4096) as *mut u8, kind()) });
            if thread == filler {
                fill();
                done.store(1, Ordering::Release);
            }
            if thread == 0 {
                Sim::spin_until(|| done.load(Ordering::Acquire) == 1);
                let began_ns = Sim::now();
                fill();
                took.store((Sim::now() - began_ns) / nr_pages as u64, Ordering::Relaxed);
            }
            Sim::leave();
        });
    });
    assert_eq!(ran, Ok(()));
    drop(region);
    took.load(Ordering::Relaxed)
}

#[test]
fn a_page_costs_what_the_cache_says_in_which_it_lies() {
    let is_near = |ns: u64, wanted: u64| ns.abs_diff(wanted) <= wanted / 10 + 3;
    let zeroed = [(8, 0, 20), (128, 0, 50), (8, 1, 50), (512, 0, 200)].map(|case| (Filled::Zeroed, case));
    // A copy's source takes room in the cache too.
    let copied = [(7, 0, 20), (64, 0, 50), (128, 0, 400)].map(|case| (Filled::Copied, case));
    for (filled, (nr_pages, filler, wanted)) in zeroed.into_iter().chain(copied) {
        let ns = filling(nr_pages, filler, filled);
        assert!(is_near(ns, wanted), "{nr_pages} pages that {filler} filled, {filled:?}: {ns} ns, not {wanted}");
    }
}

#[test]
fn computing_threads_share_a_cpu_by_slices() {
    let ended = [const { std::sync::atomic::AtomicU64::new(0) }; 3];
    let done = isolate(|| {
        let machine = machine("here", 1, 2);
        Sim::run(&machine, 3, &|thread| {
            Sim::enter();
            Sim::work(30_000_000);
            ended[thread].store(Sim::now(), Ordering::Relaxed);
            Sim::leave();
        });
        machine.figures().elapsed_ns
    });
    let elapsed = done.expect("all end");
    assert!((85_000_000..100_000_000).contains(&elapsed), "{elapsed}");
    let first = ended.iter().map(|end| end.load(Ordering::Relaxed)).min();
    assert!(first > Some(60_000_000), "one thread computed without giving way: {first:?}");
}

#[test]
fn a_deadlock_says_who_waits_for_what_and_names_machine_and_seed() {
    let (word, other) = (Word::new(0), Word::new(0));
    let run = || {
        on_all("here", 2, 77, |thread| {
            if thread == 0 {
                Sim::spin_until(|| word.load(Ordering::Acquire) == 1);
            } else {
                Sim::park(&other, 0);
                Sim::park(&other, 0);
            }
        })
    };
    let message = run().expect_err("both wait forever").message;
    for words in [
        "deadlock",
        "machine here, 2 CPUs, seed 77",
        "thread 0 on CPU",
        "spins until a write to line",
        "sleeps until a word",
    ] {
        assert!(message.contains(words), "{words:?} is missing in {message:?}");
    }
    assert_eq!(run().expect_err("again").message, message);
}

#[test]
fn a_panic_names_the_cpu_and_the_seed_and_ends_the_others() {
    let (word, nr_dropped) = (Word::new(0), std::sync::atomic::AtomicU64::new(0));
    struct Noted<'a>(&'a std::sync::atomic::AtomicU64);
    impl Drop for Noted<'_> {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let result = on_all("xeon-40", 4, 3, |thread| {
        let _noted = Noted(&nr_dropped);
        match thread {
            0 => Sim::spin_until(|| word.load(Ordering::Acquire) == 1),
            1 => (0..2).for_each(|_| Sim::park(&word, 0)),
            2 => Sim::work(1_000_000_000),
            _ => {
                Sim::work(100_000);
                panic!("thread three fails");
            }
        }
    });
    let message = result.expect_err("a thread failed").message;
    for words in [
        "thread 3 panicked on simulated CPU",
        "machine xeon-40, 4 CPUs, seed 3",
        "thread three fails at crates/sim/tests/engine.rs:",
    ] {
        assert!(message.contains(words), "{words:?} is missing in {message:?}");
    }
    assert_eq!(nr_dropped.load(Ordering::Relaxed), 4);
}

#[test]
fn a_guard_that_waits_while_it_is_dropped_gets_what_it_waits_for() {
    let (lock, failed) = (Word::new(0), Word::new(0));
    struct Held<'a>(&'a Word);
    impl Drop for Held<'_> {
        fn drop(&mut self) {
            self.0.store(0, Ordering::Release);
        }
    }
    struct Takes<'a>(&'a Word);
    impl Drop for Takes<'_> {
        fn drop(&mut self) {
            while self.0.swap(1, Ordering::Acquire) != 0 {
                Sim::spin_until(|| self.0.load(Ordering::Relaxed) == 0);
            }
            self.0.store(0, Ordering::Release);
        }
    }
    let result = on_all("here", 2, 1, |thread| {
        if thread == 0 {
            lock.store(1, Ordering::Release);
            let _held = Held(&lock);
            failed.store(1, Ordering::Release);
            loop {
                Sim::park(&failed, 1);
            }
        }
        Sim::spin_until(|| failed.load(Ordering::Acquire) == 1);
        let _takes = Takes(&lock);
        resume_unwind(Box::new("no hook sees this"));
    });
    assert!(result.expect_err("a thread failed").message.contains("no hook sees this"));
    assert_eq!(lock.load(Ordering::Relaxed), 0);
}

#[test]
fn a_machine_runs_again_after_a_failure() {
    let done = isolate(|| {
        let machine = machine("here", 2, 1);
        let failed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            Sim::run(&machine, 1, &|_| panic!("once"));
        }));
        assert!(failed.is_err());
        machine.attach(Sim::cpu)
    });
    assert_eq!(done, Ok(0));
}

#[test]
fn started_threads_are_waited_for() {
    let ended = Wide::new(0);
    let done = isolate(|| {
        let machine = machine("here", 2, 1);
        Sim::run(&machine, 1, &|thread| {
            if thread < 300 {
                Sim::start(thread + 1).expect("the host has room for a stack");
            }
            Sim::enter();
            ended.fetch_add(1, Ordering::Relaxed);
            Sim::leave();
        });
    });
    assert_eq!(done, Ok(()));
    assert_eq!(ended.load(Ordering::Relaxed), 301);
}

#[test]
fn shootdown_waits_for_a_cpu_in_guest_and_steals_its_time() {
    let stage = Word::new(0);
    let figures = on_all("here", 2, 4, |thread| {
        if thread == 0 {
            // SAFETY: nothing is translated here.
            assert!(!unsafe { Sim::guest_enter() });
            stage.store(Sim::cpu() as u32 + 1, Ordering::Release);
            Sim::spin_until_deadline(Sim::now() + 20_000, || false);
            stage.store(10, Ordering::Release);
            // SAFETY: as above.
            unsafe { Sim::guest_exit() };
        } else {
            Sim::spin_until(|| stage.load(Ordering::Acquire) != 0);
            let mut targets = CpuSet::new();
            targets.insert(1 - Sim::cpu());
            Sim::shoot_down(&targets, |_| false);
            assert_eq!(stage.load(Ordering::Acquire), 10, "returned while the other CPU was in guest");
        }
    });
    assert_eq!(figures.expect("nobody is left waiting").interrupts, 1);
}

#[test]
fn idle_cpus_are_not_interrupted() {
    let figures = isolate(|| {
        let machine = machine("xeon-40", 40, 1);
        machine.attach(|| {
            let mut targets = CpuSet::new();
            (0..40).for_each(|cpu| targets.insert(cpu));
            Sim::shoot_down(&targets, |_| false);
        });
        machine.figures()
    });
    assert_eq!(figures.expect("nothing waits").interrupts, 0);
}

#[test]
fn a_line_that_is_only_read_is_had_by_all_after_its_last_write() {
    for (machine, cpus) in [("epyc-384", 64), ("epyc-384", 16), ("skylake-192", 64)] {
        let word = Wide::new(0);
        let figures = on_all(machine, cpus, 1, |thread| {
            word.fetch_or(1 << thread, Ordering::Relaxed);
            for _ in 0..300 {
                word.load(Ordering::Relaxed);
                Sim::spin_until_deadline(Sim::now() + 1000, || false);
            }
        });
        let figures = figures.expect("nothing fails");
        // All fetch the line to write, and once or twice to read it, one after the other.
        assert!(figures.elapsed_ns < 300_000 + 4 * 300 * cpus as u64 + 50_000, "{machine} {cpus} {figures:?}");
    }
}
