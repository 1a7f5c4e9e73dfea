//! Objects: where they stand, who has them, and that their frames come back.

mod support;

use faultless_phys::{Cause, Failing, Kind, Options, Slab};
use faultless_platform::native::{Machine, Native};
use faultless_platform::{PAGE_BYTES, Processor, Threads};
use proptest::prelude::*;
use std::collections::HashSet;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use support::shaky::Shaky;
use support::{Dice, World, narrow};

type NativeWorld = World<Native>;

fn in_world(nr_frames: usize, options: Options, test: impl FnOnce(&NativeWorld)) {
    let (world, machine) = (NativeWorld::new(nr_frames, 1, options), Machine::new(1));
    machine.attach(|| test(&world));
}

fn free_all<T>(slab: &Slab<Native, T>, objects: impl IntoIterator<Item = NonNull<T>>) {
    for object in objects {
        // SAFETY: the tests own what they free and use it no more.
        unsafe { slab.free(object) };
    }
}

fn take_all<T>(slab: &Slab<Native, T>) -> Vec<NonNull<T>> {
    std::iter::from_fn(|| slab.try_alloc().ok()).collect()
}

/// Takes all objects that a few frames hold, fills each with its own value, and looks whether all kept it.
fn objects_do_not_overlap<T: Copy + PartialEq + std::fmt::Debug>(value: impl Fn(u8) -> T) {
    in_world(7, narrow(), |world| {
        let slab = Slab::<Native, T>::new(&world.memory);
        let objects = take_all(&slab);
        assert_eq!(objects.len(), 7 * slab.objects_per_frame());
        for (object, number) in objects.iter().zip(0_usize..) {
            assert!(object.is_aligned() && object.addr().get().is_multiple_of(64), "a line has one object's words");
            // SAFETY: ours.
            unsafe { object.write(value(number as u8)) };
        }
        for (object, number) in objects.iter().zip(0_usize..) {
            // SAFETY: ours, and initialised above.
            assert_eq!(unsafe { object.read() }, value(number as u8));
        }
        free_all(&slab, objects);
        slab.drain();
        assert_eq!((world.memory.nr_free(), slab.nr_live(), slab.nr_frames()), (7, 0, 0));
    });
}

#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(align(256))]
struct Wide([u8; 300]);

#[test]
fn objects_of_all_sizes_and_alignments_stand_apart() {
    objects_do_not_overlap(|n| n);
    objects_do_not_overlap(|n| [u64::from(n); 6]);
    objects_do_not_overlap(|n| [u64::from(n); 25]);
    objects_do_not_overlap(|n| [n; 333]);
    objects_do_not_overlap(|n| Wide([n; 300]));
    objects_do_not_overlap(|n| [n; Slab::<Native, u8>::OBJECT_BYTES_MAX]);
    objects_do_not_overlap(|_| ());
}

#[test]
fn a_frame_is_used_well() {
    in_world(10, Options::default(), |world| {
        assert_eq!(Slab::<Native, u8>::new(&world.memory).objects_per_frame(), 63);
        // 192 bytes and two words for deferral, which are the beginning of a fourth line.
        assert_eq!(Slab::<Native, [u64; 24]>::new(&world.memory).objects_per_frame(), 4096 / 256);
        assert_eq!(Slab::<Native, [u8; 2000]>::new(&world.memory).objects_per_frame(), 2);
        assert_eq!(Slab::<Native, [u8; 4072]>::new(&world.memory).objects_per_frame(), 1);
    });
}

#[test]
fn the_object_freed_last_is_given_out_first() {
    in_world(10, Options::default(), |world| {
        let slab = Slab::<Native, [u64; 9]>::new(&world.memory);
        let objects: Vec<_> = (0..3).map(|_| slab.alloc().expect("plenty")).collect();
        free_all(&slab, objects.clone());
        let again: Vec<_> = (0..3).map(|_| slab.alloc().expect("plenty")).collect();
        assert!(again.iter().eq(objects.iter().rev()));
    });
}

#[test]
fn empty_frames_go_back_while_others_stay() {
    in_world(100, Options::default(), |world| {
        let slab = Slab::<Native, [u8; 1000]>::new(&world.memory);
        let mut objects: Vec<_> = (0..160).map(|_| slab.alloc().expect("plenty")).collect();
        assert!((40..=47).contains(&slab.nr_frames()), "{} frames", slab.nr_frames());
        let audit = world.memory.audit();
        assert_eq!((audit.nr_of(Kind::Slab), audit.is_clean()), (slab.nr_frames(), true));
        let kept = objects.split_off(155);
        free_all(&slab, objects);
        // What a magazine holds keeps some frames; a drained one holds nothing.
        assert!(slab.nr_frames() <= 2 + 64 / 4 + 4, "{} frames", slab.nr_frames());
        slab.drain();
        let in_use: HashSet<_> = kept.iter().map(|object| world.memory.pfn_of(object.as_ptr().cast())).collect();
        assert_eq!((slab.nr_frames(), slab.nr_live()), (in_use.len(), 5));
        free_all(&slab, kept);
        drop(slab);
        assert_eq!(world.memory.nr_free(), 100);
    });
}

#[test]
fn a_slab_dropped_without_a_slot_gives_its_frames_back() {
    let (world, machine) = (NativeWorld::new(100, 2, narrow()), Machine::new(2));
    let slab = Slab::<Native, [u64; 30]>::new(&world.memory);
    machine.attach(|| {
        let objects: Vec<_> = (0..200).map(|_| slab.alloc().expect("plenty")).collect();
        free_all(&slab, objects);
    });
    drop(slab);
    assert_eq!(world.memory.nr_free(), 100);
    assert!(world.memory.audit().is_clean());
}

#[test]
fn deferred_objects_keep_their_content_until_the_readers_are_gone() {
    in_world(1, narrow(), |world| {
        let slab = Slab::<Native, [u64; 400]>::new(&world.memory);
        let object = slab.alloc().expect("the only one");
        let section = world.memory.rcu().read();
        // SAFETY: ours; afterwards it is read inside a section that began before.
        unsafe {
            object.write([7; 400]);
            slab.free_deferred(object);
        }
        assert_eq!((slab.nr_live(), slab.nr_deferred()), (1, 1));
        assert!(slab.try_alloc().is_err());
        // SAFETY: the section began before the object was deferred.
        assert_eq!(unsafe { object.read() }, [7; 400]);
        drop(section);
        assert_eq!(slab.alloc(), Ok(object));
        assert_eq!((slab.nr_live(), slab.nr_deferred()), (1, 0));
    });
}

#[test]
fn a_head_inside_the_object_takes_no_room_behind_it_and_spares_the_rest() {
    // Two words that matter, two for the head, and two more.
    const HEAD: usize = 16;
    in_world(4, narrow(), |world| {
        // SAFETY: nobody looks at the two words.
        let slab = unsafe { Slab::<Native, [u64; 16]>::with_head_inside(&world.memory, HEAD) };
        assert_eq!(
            slab.objects_per_frame(),
            PAGE_BYTES / 128 - 1,
            "no slot more than the object, behind the first line"
        );
        assert_eq!(Slab::<Native, [u64; 16]>::new(&world.memory).objects_per_frame(), PAGE_BYTES / 192);
        let objects = take_all(&slab);
        let section = world.memory.rcu().read();
        for (object, number) in objects.iter().zip(0_u64..) {
            // SAFETY: ours; afterwards all but the head's place is read, inside a section that began before.
            unsafe {
                object.write([number; 16]);
                slab.free_deferred(*object);
            }
        }
        for (object, number) in objects.iter().zip(0_u64..) {
            // SAFETY: the section began before the objects were deferred.
            let words = unsafe { object.read() };
            assert_eq!((&words[..2], &words[4..]), (&[number; 2][..], &[number; 12][..]));
        }
        drop(section);
        let again: HashSet<_> = std::iter::from_fn(|| slab.alloc().ok()).collect();
        assert_eq!(again, objects.into_iter().collect());
        free_all(&slab, again);
    });
}

#[test]
#[should_panic(expected = "the head's place is not aligned")]
fn a_head_at_an_odd_place_is_refused() {
    let world = NativeWorld::new(2, 1, narrow());
    // SAFETY: refused.
    let _slab = unsafe { Slab::<Native, [u64; 16]>::with_head_inside(&world.memory, 12) };
}

#[test]
#[cfg_attr(miri, ignore = "what it checks is a leak")]
fn a_slab_dropped_with_deferred_objects_leaves_them_to_rcu() {
    in_world(3, narrow(), |world| {
        let slab = Slab::<Native, [u64; 400]>::new(&world.memory);
        let object = slab.alloc().expect("plenty");
        // SAFETY: ours, and not used any more.
        unsafe { slab.free_deferred(object) };
        drop(slab);
        world.memory.rcu().flush();
        assert_eq!(world.memory.nr_free(), 2, "the frame stays with the slab that is gone");
    });
}

#[test]
fn out_of_memory_is_exact_for_objects_too() {
    let (world, machine) = (NativeWorld::new(5, 2, narrow()), Machine::new(2));
    let slab = Slab::<Native, [u64; 30]>::new(&world.memory);
    machine.attach(|| {
        let objects = take_all(&slab);
        assert_eq!(objects.len(), 5 * slab.objects_per_frame());
        assert_eq!(slab.alloc().expect_err("all are taken").cause(), Cause::Exhausted);
        free_all(&slab, objects);
        // The other CPU gets all of them, out of this one's magazine too.
        let elsewhere = std::thread::scope(|scope| {
            let other = scope.spawn(|| machine.attach(|| take_all(&slab).len()));
            other.join().expect("the other CPU failed")
        });
        assert_eq!(elsewhere, 5 * slab.objects_per_frame());
    });
}

/// Counts its end, also by a panic.
struct Ended<'a>(&'a AtomicUsize);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A machine with other work gets through fewer rounds: threads that wait for each other hand its CPUs to strangers.
const PATIENCE: Duration = Duration::from_secs(5);

/// Three CPUs hold at most their share of all objects there can be, others empty the magazines all the time; nobody may
/// be refused.
fn nobody_is_refused<T>(nr_frames: usize, nr_drainers: usize, rounds: usize) {
    const WORKERS: usize = 3;
    let options = Options { list_high: 2, list_batch: 2, ..narrow() };
    let (world, machine) = (World::<Shaky>::new(nr_frames, 4, options), Machine::new(4));
    let slab = Slab::<Shaky, T>::new(&world.memory);
    let (share, nr_ended) = (nr_frames * slab.objects_per_frame() / WORKERS, AtomicUsize::new(0));
    let begun = Instant::now();
    let drain = || {
        while nr_ended.load(Ordering::Relaxed) < WORKERS {
            slab.drain();
        }
    };
    let work = |seed: usize| {
        let _ended = Ended(&nr_ended);
        let (mut dice, mut held) = (Dice(seed as u64), Vec::new());
        for round in 0..if cfg!(miri) { 50 } else { rounds } {
            if begun.elapsed() > PATIENCE {
                println!("thread {seed} ran {round} rounds of {rounds}");
                break;
            }
            if held.len() < share && dice.roll(4) != 0 {
                held.push(slab.try_alloc().expect("an object is free: each holds at most its share"));
            } else if !held.is_empty() {
                // SAFETY: ours, and not used any more.
                unsafe { slab.free(held.swap_remove(dice.roll(held.len()))) };
            }
        }
    };
    Shaky::run(&machine, WORKERS + nr_drainers, &|thread| {
        Shaky::enter();
        if thread >= WORKERS {
            drain()
        } else {
            work(thread)
        }
        Shaky::leave();
    });
    assert!(slab.nr_live() <= WORKERS * share && slab.nr_frames() <= nr_frames);
}

#[test]
fn nobody_is_refused_an_object_while_one_is_free() {
    // 5 objects a frame; then 1, so that every object freed may empty a frame.
    nobody_is_refused::<[u64; 100]>(3, 1, 8_000);
    nobody_is_refused::<[u64; 500]>(3, 1, 8_000);
    nobody_is_refused::<[u64; 500]>(9, 0, 40_000);
}

#[test]
fn failures_on_request_strike_objects_once_each() {
    in_world(10, Options::default(), |world| {
        let slab = Slab::<Native, [u64; 30]>::new(&world.memory);
        // The first needs a frame, which doesn't count as another allocation.
        world.memory.set_failing(Failing::Once(2));
        let results: Vec<bool> = (0..3).map(|_| slab.alloc().is_ok()).collect();
        assert_eq!(results, [true, false, true]);
        world.memory.set_failing(Failing::From(1));
        assert_eq!(slab.try_alloc().expect_err("asked for").cause(), Cause::Injected);
        assert_eq!(slab.nr_live(), 2);
    });
}

#[test]
#[should_panic(expected = "is freed twice")]
fn an_object_freed_twice_is_noticed_when_it_goes_back() {
    in_world(10, Options::default(), |world| {
        let slab = Slab::<Native, [u64; 30]>::new(&world.memory);
        let object = slab.alloc().expect("plenty");
        free_all(&slab, [object, object]);
        slab.drain();
    });
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 60 }) })]

    #[test]
    fn random_use_leaves_no_frame_behind(seed in any::<u64>(), nr_frames in 1..20_usize) {
        in_world(nr_frames, narrow(), |world| {
            let slab = Slab::<Native, [u64; 40]>::new(&world.memory);
            let (mut dice, mut held, mut deferred) = (Dice(seed), Vec::new(), 0);
            for _ in 0..if cfg!(miri) { 200 } else { 2000 } {
                match dice.roll(8) {
                    0..=4 => held.extend(slab.try_alloc()),
                    5 if !held.is_empty() => {
                        // SAFETY: ours, and not used any more.
                        unsafe { slab.free_deferred(held.swap_remove(dice.roll(held.len()))) };
                        deferred += 1;
                    }
                    6 if dice.roll(50) == 0 => slab.drain(),
                    7 if dice.roll(50) == 0 => {
                        world.memory.rcu().flush();
                        deferred = 0;
                    }
                    _ if !held.is_empty() => free_all(&slab, [held.swap_remove(dice.roll(held.len()))]),
                    _ => (),
                }
                world.memory.rcu().poll();
                assert!(slab.nr_deferred() <= deferred);
                assert_eq!(slab.nr_live(), held.len() + slab.nr_deferred());
            }
            free_all(&slab, held);
            world.memory.rcu().flush();
            slab.drain();
            assert_eq!((world.memory.nr_free(), slab.nr_frames()), (nr_frames, 0));
            assert!(world.memory.audit().is_clean());
        });
    }
}

/// Threads write their own mark into objects, pass the CPUs on, free at once and deferred; marks never mix.
#[test]
fn threads_share_a_slab() {
    const THREADS: usize = 4;
    let (world, machine) = (NativeWorld::new(60, 2, narrow()), Machine::new(2));
    let slab = Slab::<Native, [u64; 60]>::new(&world.memory);
    Native::run(&machine, THREADS, &|thread| {
        let (mut dice, mut held) = (Dice(thread as u64), Vec::new());
        for _ in 0..if cfg!(miri) { 150 } else { 30_000 } {
            Native::enter();
            work_once(&slab, &mut dice, &mut held, thread as u64 + 1);
            world.memory.rcu().poll();
            Native::leave();
        }
        Native::enter();
        free_all(&slab, held);
        Native::leave();
    });
    machine.attach(|| world.memory.rcu().flush());
    drop(slab);
    assert_eq!(world.memory.nr_free(), 60);
    assert!(world.memory.audit().is_clean(), "{}", world.memory.audit());
}

fn work_once(slab: &Slab<Native, [u64; 60]>, dice: &mut Dice, held: &mut Vec<NonNull<[u64; 60]>>, mark: u64) {
    if held.len() < 30 && dice.roll(2) == 0 {
        // Each frame holds 8, so that 60 are enough even if every magazine's object keeps one.
        let object = slab.alloc().expect("a frame or an object is free");
        // SAFETY: ours.
        unsafe { object.write([mark; 60]) };
        held.push(object);
    } else if !held.is_empty() {
        let object = held.swap_remove(dice.roll(held.len()));
        // SAFETY: ours, initialised when it was taken.
        assert!(unsafe { object.read() }.iter().all(|&word| word == mark), "two threads own one object");
        match dice.roll(3) {
            // SAFETY: not used any more.
            0 => unsafe { slab.free_deferred(object) },
            _ => free_all(slab, [object]),
        }
    }
    assert!(PAGE_BYTES / slab.objects_per_frame() >= 480);
}

/// Frames know where their slab's depots stand, whatever the slab's owner does with it.
#[test]
fn a_slab_may_move_while_objects_wait_for_readers() {
    in_world(20, Options::default(), |world| {
        let slab = Slab::<Native, u64>::new(&world.memory);
        let (waiting, live) = (slab.alloc().expect("plenty"), slab.alloc().expect("plenty"));
        // SAFETY: the object is ours, and used no more.
        unsafe { slab.free_deferred(waiting) };
        let mut slab = std::hint::black_box(slab);
        let mut other = Slab::<Native, u64>::new(&world.memory);
        std::mem::swap(&mut slab, &mut other);
        world.memory.rcu().flush();
        assert_eq!((other.nr_deferred(), other.nr_live(), slab.nr_live()), (0, 1, 0));
        free_all(&other, [live]);
    });
}
