//! What locks tell those who watch, and that nobody else pays for it.

use faultless_platform::count::{self, Count, Figures};
use faultless_platform::watched::{Happening, Machine, Sink, Watched};
use faultless_platform::{Holding, Processor, Threads, Tracepoint};
use faultless_sync::{
    Generation, LockStats, PerVmaLock, RawSpinLock, RwSemaphore, RwSpinLock, Rwsem, SpinMutex, lock_class,
};
use std::sync::{Arc, Mutex};

lock_class! { Tested = "tested" }

/// What was heard, in words: the lock's name without its address, and only whether it was waited for.
#[derive(Default)]
struct Heard(Mutex<Vec<String>>);

impl Sink for Heard {
    fn note(&self, happening: &Happening) {
        let how = |holding: Holding| match holding {
            Holding::Shared => "shared",
            Holding::Alone => "alone",
            Holding::Plain => "plain",
        };
        let line = match happening.event {
            Tracepoint::LockTaken { lock, holding, site, waited_ns, .. } => {
                let wait = if waited_ns.is_some() { " after a wait" } else { "" };
                let file = site.file().rsplit('/').next().unwrap_or_default();
                format!("{} taken {} in {file}{wait}", lock.name, how(holding))
            }
            Tracepoint::LockRefused { lock, holding, .. } => format!("{} refused {}", lock.name, how(holding)),
            Tracepoint::LockReleased { lock, holding } => format!("{} released {}", lock.name, how(holding)),
            _ => return,
        };
        self.0.lock().expect("no panic").push(line);
    }
}

/// Uses each lock once, alone.
fn use_locks<P: Processor>() {
    let (raw, mutex) = (RawSpinLock::<P, Tested>::classed(), SpinMutex::<P, u32, Tested>::classed(0));
    let (rw, area) = (RwSpinLock::<P, Tested>::classed(), PerVmaLock::<P>::new());
    let semaphore = Rwsem::<P>::with_stats(Generation::RWSEM_V8, Some(Arc::new(LockStats::new(2))));
    drop(raw.guard());
    *mutex.lock() += 1;
    drop((rw.read(), rw.try_write()));
    drop(rw.write());
    drop(semaphore.write().downgrade());
    drop((semaphore.read(), semaphore.try_write()));
    drop(area.try_read());
    area.write_lock();
    assert!(area.try_read().is_none());
    area.write_unlock();
    // A lock without a class is nobody's business.
    drop(SpinMutex::<P, u32>::new(0).lock());
}

#[test]
fn those_who_watch_hear_of_each_lock_who_took_it_and_how() {
    let heard = Arc::new(Heard::default());
    let machine = Machine::<Count>::new(count::Machine::new(1), heard.clone());
    Watched::<Count>::run(&machine, 1, &|_| {
        Watched::<Count>::enter();
        use_locks::<Watched<Count>>();
        Watched::<Count>::leave();
    });
    let lines = heard.0.lock().expect("no panic");
    let expected = [
        "tested taken plain in watch.rs",
        "tested released plain",
        "tested taken plain in watch.rs",
        "tested released plain",
        "tested taken shared in watch.rs",
        "tested refused alone",
        "tested released shared",
        "tested taken alone in watch.rs",
        "tested released alone",
        "mmap_sem taken alone in watch.rs",
        "mmap_sem released alone",
        "mmap_sem taken shared in watch.rs",
        "mmap_sem released shared",
        "mmap_sem taken shared in watch.rs",
        "mmap_sem refused alone",
        "mmap_sem released shared",
        "vma_lock taken shared in watch.rs",
        "vma_lock released shared",
        "vma_lock taken alone in watch.rs",
        "vma_lock refused shared",
        "vma_lock released alone",
    ];
    assert_eq!(lines[..], expected);
}

#[test]
fn a_wait_is_told_with_its_length() {
    let heard = Arc::new(Heard::default());
    let machine = Machine::<Count>::new(count::Machine::new(2), heard.clone());
    let (lock, word) = (RawSpinLock::<Watched<Count>, Tested>::classed(), std::sync::atomic::AtomicBool::new(false));
    Watched::<Count>::run(&machine, 2, &|thread| {
        Watched::<Count>::enter();
        if thread == 0 {
            let _held = lock.guard();
            word.store(true, std::sync::atomic::Ordering::SeqCst);
            let until = Count::now() + 20_000_000;
            while Count::now() < until {
                std::thread::yield_now();
            }
        } else {
            while !word.load(std::sync::atomic::Ordering::SeqCst) {
                std::thread::yield_now();
            }
            drop(lock.guard());
        }
        Watched::<Count>::leave();
    });
    let lines = heard.0.lock().expect("no panic");
    assert!(lines.iter().any(|line| line.ends_with("after a wait")), "{lines:?}");
}

/// Counts what `use_locks` does on the platform of a machine.
fn cost<P: Threads>(machine: &P::Machine, count: &count::Machine) -> Figures {
    let figures = Mutex::new(Figures::default());
    P::run(machine, 1, &|_| {
        P::enter();
        let before = count.figures(0);
        use_locks::<P>();
        *figures.lock().expect("no panic") = count.figures(0) - before;
        P::leave();
    });
    figures.into_inner().expect("no panic")
}

#[test]
fn locks_cost_the_same_whether_or_not_they_can_be_watched() {
    let plain = count::Machine::new(1);
    let unwatched = cost::<Count>(&plain, &plain);
    let machine = Machine::<Count>::new(count::Machine::new(1), Arc::new(Heard::default()));
    let watched = cost::<Watched<Count>>(&machine, machine.inner());
    // All that is counted here is the locks' own words; watching adds none.
    assert_eq!((unwatched.atomics, unwatched.read_modify_writes), (watched.atomics, watched.read_modify_writes));
    const { assert!(!Count::WATCHED && <Watched<Count> as Processor>::WATCHED) };
    // Counted by hand from the code: two for each lock and its release, one for each look or attempt in vain. Debug
    // builds look whether an area that is unlocked was locked.
    let looks = u64::from(cfg!(debug_assertions));
    assert_eq!((unwatched.atomics, unwatched.read_modify_writes), (25 + looks, 19));
}
