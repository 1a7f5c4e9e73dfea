//! When memory runs out: not before every frame is in use, and with nothing half done.

mod support;

use faultless_phys::{Cause, Failing, Kind, Memory, NoReclaim, Options, Pfn, Reclaim, Shortage, ZoneKind};
use faultless_platform::native::{Machine, Native};
use faultless_platform::{Processor, Threads};
use std::cell::RefCell;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use support::shaky::Shaky;
use support::{Dice, World, narrow};

type NativeWorld = World<Native>;

#[test]
fn the_message_says_zone_size_and_order() {
    let (world, machine) = (NativeWorld::new(3, 1, Options::default()), Machine::new(1));
    machine.attach(|| {
        assert_eq!(world.take_all().len(), 3);
        let refusal = world.memory.alloc().expect_err("all are taken");
        assert_eq!((refusal.zone(), refusal.nr_frames(), refusal.order()), (ZoneKind::Normal, 3, 0));
        let text = refusal.to_string();
        assert!(text.contains("zone normal, 3 frames in all") && text.contains("every frame is in use"), "{text}");
        let text = world.memory.alloc_order(2).expect_err("all are taken").to_string();
        assert!(text.contains("order 2") && text.contains("ask for single frames"), "{text}");
    });
}

/// What one CPU has freed onto its list, another gets to the last frame, while the first does nothing.
#[test]
fn frames_on_an_idle_cpus_list_are_found() {
    let (world, machine) = (NativeWorld::new(200, 2, Options::default()), Machine::new(2));
    machine.attach(|| {
        let frames = world.take_all();
        world.free_all(frames);
        let elsewhere = std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                machine.attach(|| {
                    assert_eq!(Native::cpu(), 1);
                    world.take_all().len()
                })
            });
            other.join().expect("the other CPU failed")
        });
        assert_eq!(elsewhere, 200);
    });
}

#[test]
fn a_row_is_made_from_what_lies_on_the_lists() {
    let (world, machine) = (NativeWorld::new(8, 1, Options::default()), Machine::new(1));
    machine.attach(|| {
        let frames = world.take_all();
        let row = *frames.iter().find(|pfn| pfn.get().is_multiple_of(4)).expect("eight hold an aligned four");
        let (four, rest): (Vec<Pfn>, Vec<Pfn>) =
            frames.iter().partition(|pfn| (row.get()..row.get() + 4).contains(&pfn.get()));
        world.free_all(four);
        assert_eq!(world.memory.alloc_order(2), Ok(row));
        world.free_all(rest);
        world.memory.drain_cpu_lists();
        assert_eq!(world.memory.nr_free(), 4);
    });
}

#[test]
fn deferred_frames_are_waited_for_before_it_is_out_of_memory() {
    let (world, machine) = (NativeWorld::new(5, 1, narrow()), Machine::new(1));
    machine.attach(|| {
        let frames = world.take_all();
        // SAFETY: the frame is ours, and isn't used any more.
        unsafe { world.memory.free_deferred(frames[2]) };
        let audit = world.memory.audit();
        assert_eq!((audit.nr_deferred, audit.nr_free, audit.is_clean()), (1, 0, true));
        assert!(!world.memory.page(frames[2]).try_get(), "nobody gets a reference to a deferred frame");
        assert!(world.memory.try_alloc().is_err(), "this one does not wait");
        assert_eq!(world.memory.alloc(), Ok(frames[2]));
        assert!(world.memory.alloc().is_err());
    });
}

#[test]
fn a_deferred_frame_is_not_reused_while_a_reader_may_see_it() {
    let (world, machine) = (NativeWorld::new(1, 2, narrow()), Machine::new(2));
    let stage = std::sync::Barrier::new(2);
    let ended = std::sync::atomic::AtomicBool::new(false);
    let pfn = machine.attach(|| world.memory.alloc().expect("the only one"));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            machine.attach(|| {
                let section = world.memory.rcu().read();
                stage.wait();
                std::thread::sleep(std::time::Duration::from_millis(30));
                // SAFETY: the section began before the frame was deferred; reads only.
                assert_ne!(unsafe { world.memory.frame(pfn).read_volatile() }, 0xee, "poisoned under a reader");
                ended.store(true, std::sync::atomic::Ordering::Release);
                drop(section);
            });
        });
        stage.wait();
        machine.attach(|| {
            // SAFETY: ours; only the reader goes on using it.
            unsafe { world.memory.free_deferred(pfn) };
            assert_eq!(world.memory.alloc(), Ok(pfn));
            assert!(ended.load(std::sync::atomic::Ordering::Acquire), "reused while the reader was inside");
        });
    });
}

/// Frees one frame each time it is asked.
struct Larder<'a> {
    memory: &'a Memory<Native>,
    frames: RefCell<Vec<Pfn>>,
}

impl Reclaim for Larder<'_> {
    fn reclaim(&self, shortage: Shortage) -> usize {
        assert_eq!((shortage.zone, shortage.order), (ZoneKind::Normal, 0));
        let Some(pfn) = self.frames.borrow_mut().pop() else { return 0 };
        // SAFETY: the larder's own; deferred, so that the flush after it is needed too.
        unsafe { self.memory.free_deferred(pfn) };
        1
    }
}

#[test]
fn the_reclaimer_is_asked_until_it_has_nothing_left() {
    let (world, machine) = (NativeWorld::new(10, 1, narrow()), Machine::new(1));
    machine.attach(|| {
        let mut frames = world.take_all();
        let larder = Larder { memory: &world.memory, frames: RefCell::new(frames.split_off(7)) };
        let got = (0..20).map_while(|_| world.memory.alloc_or_reclaim(&larder).ok()).count();
        assert_eq!(got, 3);
        assert!(world.memory.alloc_or_reclaim(&NoReclaim).is_err());
    });
}

#[test]
fn failures_on_request_strike_single_allocations_and_change_nothing() {
    let (world, machine) = (NativeWorld::new(50, 1, Options::default()), Machine::new(1));
    machine.attach(|| {
        let frames: Vec<Pfn> = (0..5).map(|_| world.memory.alloc().expect("plenty")).collect();
        world.free_all(frames);
        world.memory.set_failing(Failing::Once(2));
        let results: Vec<bool> = (0..3).map(|_| world.memory.alloc().is_ok()).collect();
        assert_eq!((results, world.memory.failing()), (vec![true, false, true], Failing::Never));
        world.memory.set_failing(Failing::From(1));
        let refusal = world.memory.alloc_zeroed().expect_err("asked for");
        assert_eq!(refusal.cause(), Cause::Injected);
        assert!(refusal.to_string().contains("asked for by a test"));
        assert!(world.memory.try_alloc().is_err() && world.memory.alloc_order(3).is_err());
        assert!(world.memory.alloc_or_reclaim(&Larder { memory: &world.memory, frames: RefCell::default() }).is_err());
        world.memory.set_failing(Failing::Never);
        assert!(world.memory.alloc().is_ok());
        assert_eq!(world.memory.nr_free(), 47);
    });
}

const THREADS: usize = 3;
const EACH: usize = 6;

/// A machine with other work gets through fewer rounds.
const PATIENCE: Duration = Duration::from_secs(20);

/// Each thread takes a frame only while it has fewer than its share; so nobody may ever be refused.
fn nobody_is_refused<P: Threads>(machine: &P::Machine, options: Options, rounds: usize, rounds_a_drain: usize) {
    let (world, begun) = (World::<P>::new(THREADS * EACH, 2, options), Instant::now());
    P::run(machine, THREADS, &|thread| {
        let mut dice = Dice(thread as u64);
        let mut held: Vec<Pfn> = Vec::new();
        for round in 0..if cfg!(miri) { 25 } else { rounds } {
            if begun.elapsed() > PATIENCE {
                println!("thread {thread} ran {round} rounds of {rounds}");
                break;
            }
            P::enter();
            if held.len() < EACH && dice.roll(4) != 0 {
                held.push(world.memory.try_alloc().expect("a frame is free: each holds at most its share"));
            } else if !held.is_empty() {
                world.free_all([held.swap_remove(dice.roll(held.len()))]);
            }
            if round % rounds_a_drain == 0 {
                world.memory.drain_cpu_lists();
            }
            P::leave();
        }
        P::enter();
        world.free_all(held);
        P::leave();
    });
    assert_eq!(world.memory.nr_free(), THREADS * EACH);
    assert!(world.memory.audit().is_clean(), "{}", world.memory.audit());
}

#[test]
fn nobody_is_refused_while_a_frame_is_on_some_list() {
    nobody_is_refused::<Native>(&Machine::new(2), narrow(), 100_000, 64);
}

/// A batch is all there is: whoever fetches it must not hide it on the way to the list, or back.
#[test]
fn nobody_is_refused_while_frames_are_on_their_way() {
    let wide = Options { list_high: 192, list_batch: 64, ..narrow() };
    nobody_is_refused::<Shaky>(&Machine::new(2), wide, 20_000, 2);
    let tight = Options { list_high: 2, list_batch: 2, ..narrow() };
    nobody_is_refused::<Shaky>(&Machine::new(2), tight, 60_000, 1000);
}

/// Two CPUs fight for all frames: every one is given out, to one of them, and the sum is exact.
#[test]
fn two_cpus_take_exactly_all_frames() {
    let (world, machine) = (NativeWorld::new(777, 2, Options::default()), Machine::new(2));
    for _ in 0..if cfg!(miri) { 1 } else { 20 } {
        let taken: Mutex<Vec<Pfn>> = Mutex::default();
        Native::run(&machine, 2, &|_| {
            Native::enter();
            let mine = world.take_all();
            Native::leave();
            taken.lock().expect("no panic").extend(mine);
        });
        let mut taken = taken.into_inner().expect("no panic");
        assert_eq!(taken.len(), 777);
        taken.sort_unstable();
        assert!(taken.windows(2).all(|pair| pair[0] != pair[1]), "a frame was given out twice");
        machine.attach(|| world.free_all(taken));
    }
}

#[test]
fn an_audit_tells_lost_frames_from_used_ones() {
    let (world, machine) = (NativeWorld::new(100, 1, Options::default()), Machine::new(1));
    machine.attach(|| {
        let table = world.memory.alloc().expect("plenty");
        world.owned(table).set_kind(Kind::Table);
        let row = world.memory.alloc_order(3).expect("plenty");
        world.owned(row).set_kind(Kind::Object);
        let lost = world.memory.alloc().expect("plenty");
        assert!(world.owned(lost).put(), "the last reference is put, and the frame never freed");
        let mut seen = Vec::new();
        let audit = world.memory.audit_with(|info| seen.push((info.pfn, info.kind, info.order, info.is_lost())));
        let kinds = [Kind::Free, Kind::Table, Kind::Object, Kind::Reserved].map(|kind| audit.nr_of(kind));
        assert_eq!((kinds, audit.nr_in_use(), audit.nr_free), ([90, 1, 8, 1], 10, 90));
        assert_eq!((audit.nr_lost, audit.first_lost, audit.is_clean()), (1, Some(lost), false));
        let mut expected =
            vec![(table, Kind::Table, 0, false), (row, Kind::Object, 3, false), (lost, Kind::Reserved, 0, true)];
        expected.sort_by_key(|entry| entry.0);
        assert_eq!(seen, expected);
        assert!(audit.to_string().contains("1 lost"));
    });
}
