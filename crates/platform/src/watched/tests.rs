//! A watched platform answers as the one beneath, passes every call on to it, and tells its own sink alone.

use super::*;
use crate::native::{self, Native};
use std::format;
use std::string::String;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::vec::Vec;

#[derive(Default)]
struct Heard(Mutex<Vec<(u64, usize)>>);

impl Sink for Heard {
    fn note(&self, happening: &Happening) {
        let Tracepoint::Point { value, .. } = happening.event else { return };
        assert!((happening.now)() > 0 && happening.thread != ThreadToken::NONE);
        self.0.lock().expect("no panic").push((value, happening.cpu));
    }
}

#[test]
fn what_is_watched_is_the_platform_beneath() {
    type Seen = Watched<Native>;
    let machine = Machine::<Native>::new(native::Machine::new(2), Arc::new(Heard::default()));
    let stage = std::sync::atomic::AtomicUsize::new(0);
    Seen::run(&machine, 2, &|thread| {
        Seen::enter();
        if thread == 0 {
            let now = Seen::now();
            assert!(!Seen::spin_until_deadline(now + 1_000_000, || false) && Seen::now() >= now + 1_000_000);
            assert!(Seen::spin_until_deadline(Seen::now() + 10_000_000_000, || true));
            assert_eq!((Seen::cpu(), Seen::nr_cpus()), (Native::cpu(), Native::nr_cpus()));
            let own = Some(Seen::cpu());
            assert!(Seen::owned_cpu() == own && Seen::try_cpu() == own && !Seen::is_idle(Seen::cpu()));
            assert!(Seen::is_known(Seen::current()) && Seen::is_running(Seen::current()));
            // SAFETY: nothing is translated here.
            assert!(!unsafe { Seen::guest_enter() }, "nothing was asked");
            // SAFETY: as above.
            unsafe { Seen::guest_exit() };
            stage.store(Seen::cpu() + 1, Ordering::Release);
            // Not in guest, so nobody waits for us, though we wait for them.
            while stage.load(Ordering::Acquire) != 10 {
                std::thread::yield_now();
            }
        } else {
            Seen::spin_until(|| stage.load(Ordering::Acquire) != 0);
            let mut targets = CpuSet::new();
            targets.insert(stage.load(Ordering::Relaxed) - 1);
            Seen::shoot_down(&targets, |_| false);
            stage.store(10, Ordering::Release);
        }
        Seen::leave();
    });
    let unbound = std::thread::spawn(Native::current).join().expect("no panic");
    Seen::run(&machine, 1, &|_| assert!(!Seen::is_known(unbound), "a thread of no machine"));
}

#[test]
fn every_thread_of_a_machine_tells_its_sink_and_no_other() {
    let heard = [Arc::new(Heard::default()), Arc::new(Heard::default())];
    std::thread::scope(|scope| {
        for (offset, heard) in [0, 100].into_iter().zip(&heard) {
            let machine = Machine::<Native>::new(native::Machine::new(2), heard.clone());
            scope.spawn(move || {
                Watched::<Native>::run(&machine, 1, &|thread| {
                    Watched::<Native>::enter();
                    Watched::<Native>::trace(Tracepoint::Point { name: "here", value: offset + thread as u64 });
                    if thread < 3 {
                        Watched::<Native>::start(thread + 1).expect("the host starts a thread");
                    }
                    Watched::<Native>::leave();
                });
                Watched::<Native>::trace(Tracepoint::Point { name: "after", value: 99 });
            });
        }
    });
    for (offset, heard) in [0, 100].into_iter().zip(&heard) {
        let mut values: Vec<u64> = heard.0.lock().expect("no panic").iter().map(|(value, _)| *value).collect();
        values.sort_unstable();
        assert_eq!(values, (0..4).map(|thread| offset + thread).collect::<Vec<_>>());
    }
}

/// High memory whose maps are noted, by the address of the frame.
struct Maps;

// SAFETY: nobody follows an address here.
unsafe impl HighMemory for Maps {
    fn map(&self, frame: *const u8, holds: Holds) {
        note(format!("map {frame:?} {holds:?}"));
    }
    fn unmap(&self, frame: *const u8, holds: Holds) {
        note(format!("unmap {frame:?} {holds:?}"));
    }
    fn map_briefly(&self, frame: *const u8, holds: Holds) {
        note(format!("map {frame:?} {holds:?} briefly"));
    }
    fn outlasts_sleep(&self) -> bool {
        true
    }
    fn zone(&self, address: *const u8, len_bytes: usize) -> Option<HighZone> {
        Some(HighZone { begin: address.addr() + len_bytes / 2, may_hold: [false, true, false, true] })
    }
    fn lacks_address(&self, frame: *const u8, holds: Holds) -> bool {
        frame == somewhere() && holds == Holds::FilePage
    }
    fn in_hardware(&self, frame: *mut u8) -> *mut u8 {
        frame.wrapping_add(0x1000)
    }
    fn suspend(&self) {
        note("suspend".into());
    }
    fn resume(&self) {
        note("resume".into());
    }
}

#[test]
fn a_machines_high_memory_says_what_is_high_and_maps_it() {
    let plain = Machine::<Native>::unwatched(native::Machine::new(1));
    assert_eq!(Watched::<Native>::high_zone(&plain, somewhere(), 64), None);
    let high = plain.with_high_memory(Arc::new(Maps));
    let zone = Watched::<Native>::high_zone(&high, somewhere(), 64);
    assert_eq!(zone, Some(HighZone { begin: 0x60, may_hold: [false, true, false, true] }));
    high.attach(|| {
        Watched::<Native>::map_frame(somewhere(), Holds::FilePage);
        Watched::<Native>::unmap_frame(somewhere(), Holds::FilePage);
        Watched::<Native>::map_briefly(somewhere(), Holds::Table);
        Watched::<Native>::unmap_briefly(somewhere(), Holds::Table);
        assert!(Watched::<Native>::maps_outlast_sleep());
        assert!(Watched::<Native>::lacks_address(somewhere(), Holds::FilePage));
        assert!(!Watched::<Native>::lacks_address(somewhere(), Holds::Table));
        assert_eq!(Watched::<Native>::in_hardware(somewhere().cast_mut()).addr(), 0x1040);
        // It does not sleep: the word is another than the one that was seen.
        Watched::<Native>::park(&<Native as Processor>::AtomicU32::new(1), 0);
    });
    // Of a thread that has left the machine nobody hears.
    Watched::<Native>::map_frame(somewhere(), Holds::Table);
    assert_eq!(Watched::<Native>::in_hardware(somewhere().cast_mut()).addr(), 0x40);
    assert_eq!(
        asked(),
        ["map 0x40 FilePage", "unmap 0x40 FilePage", "map 0x40 Table briefly", "unmap 0x40 Table", "suspend", "resume"]
    );
}

/// What a handler does: counts itself in, and out once it may end.
#[derive(Default)]
struct Served {
    begun: AtomicUsize,
    ended: AtomicUsize,
    may_end: AtomicBool,
}

/// Serves until it may end.
unsafe fn serve_slowly(context: *const (), _cpu: usize) {
    // SAFETY: the tests register what outlives their machines' threads.
    let served = unsafe { &*context.cast::<Served>() };
    served.begun.fetch_add(1, Ordering::SeqCst);
    while !served.may_end.load(Ordering::SeqCst) {
        std::thread::yield_now();
    }
    served.ended.fetch_add(1, Ordering::SeqCst);
}

/// Asks a CPU of the calling thread's machine to serve what was published for it, and lets it do so.
fn ask_and_serve(machine: &Machine<Native>) {
    machine.attach(|| {
        let mut here = CpuSet::new();
        here.insert(Watched::<Native>::cpu());
        let ask = || machine.attach(|| Watched::<Native>::shoot_down(&here, |_| true));
        std::thread::scope(|scope| scope.spawn(ask).join()).expect("no panic");
        Watched::<Native>::spin_until_deadline(Watched::<Native>::now() + 1_000_000, || false);
    });
}

#[test]
fn a_handler_of_high_memory_is_taken_away_on_any_thread() {
    let high = || Machine::<Native>::unwatched(native::Machine::new(2)).with_high_memory(Arc::new(Maps));
    let (machine, other) = (high(), high());
    let served = [const { Served { begun: AtomicUsize::new(0), ended: AtomicUsize::new(0), may_end: AtomicBool::new(true) } };
        2];
    let begun = || served.each_ref().map(|served| served.begun.load(Ordering::SeqCst));
    let context = |which: usize| (&raw const served[which]).cast::<()>();
    // SAFETY: what is registered lives as long as the machine.
    let set =
        |which| machine.attach(|| unsafe { Watched::<Native>::set_interrupt_handler(serve_slowly, context(which)) });
    // SAFETY: nothing is translated here.
    let clear = |which| unsafe { Watched::<Native>::clear_interrupt_handler(context(which)) };
    set(0);
    set(1);
    ask_and_serve(&machine);
    assert_eq!(begun(), [1, 1]);
    other.attach(|| clear(0));
    ask_and_serve(&machine);
    assert_eq!(begun(), [1, 2], "taken away on another machine");
    clear(1);
    ask_and_serve(&machine);
    assert_eq!(begun(), [1, 2], "taken away on none");
    set(0);
    ask_and_serve(&machine);
    assert_eq!(begun(), [2, 2], "the first one again");
    clear(0);
}

#[test]
fn a_handler_of_high_memory_that_runs_is_waited_for() {
    let machine = Machine::<Native>::unwatched(native::Machine::new(2)).with_high_memory(Arc::new(Maps));
    let [slow, other] = [Served::default(), Served { may_end: AtomicBool::new(true), ..Served::default() }];
    let context = |served: &Served| core::ptr::from_ref(served).cast::<()>();
    machine.attach(|| {
        // SAFETY: what is registered lives as long as the machine.
        unsafe { Watched::<Native>::set_interrupt_handler(serve_slowly, context(&slow)) };
        // SAFETY: as above.
        unsafe { Watched::<Native>::set_interrupt_handler(serve_slowly, context(&other)) };
    });
    std::thread::scope(|scope| {
        scope.spawn(|| ask_and_serve(&machine));
        while slow.begun.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        let clears = scope.spawn(|| {
            // SAFETY: nothing is translated here.
            unsafe { Watched::<Native>::clear_interrupt_handler(context(&slow)) };
            slow.ended.load(Ordering::SeqCst)
        });
        std::thread::sleep(core::time::Duration::from_millis(20));
        slow.may_end.store(true, Ordering::SeqCst);
        assert_eq!(clears.join().expect("no panic"), 1, "it was taken away while it ran");
    });
    // SAFETY: as above.
    unsafe { Watched::<Native>::clear_interrupt_handler(context(&other)) };
}

/// A platform that does nothing but note what it is asked.
#[derive(Debug)]
enum Probe {}

std::thread_local! {
    static ASKED: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

fn note(asked: String) {
    ASKED.with(|all| all.borrow_mut().push(asked));
}

/// Returns what was asked since the last look.
fn asked() -> Vec<String> {
    ASKED.take()
}

impl Processor for Probe {
    type AtomicBool = <Native as Processor>::AtomicBool;
    type AtomicU8 = <Native as Processor>::AtomicU8;
    type AtomicU16 = <Native as Processor>::AtomicU16;
    type AtomicU32 = <Native as Processor>::AtomicU32;
    type AtomicU64 = <Native as Processor>::AtomicU64;
    type AtomicUsize = <Native as Processor>::AtomicUsize;
    type AtomicPtr<T> = <Native as Processor>::AtomicPtr<T>;

    // ORDER: none; nothing runs here.
    fn fence(order: Ordering) {
        note(format!("fence {order:?}"));
    }
    fn fence_after_rmw() {
        note("fence after rmw".into());
    }
    fn nr_cpus() -> usize {
        5
    }
    fn cpu() -> usize {
        3
    }
    fn try_cpu() -> Option<usize> {
        None
    }
    fn node() -> usize {
        6
    }
    fn enter() {
        note("enter".into());
    }
    fn prefer(cpu: usize) {
        note(format!("prefer {cpu}"));
    }
    fn leave() {
        note("leave".into());
    }
    fn irq_off() {
        note("irq off".into());
    }
    fn irq_on() {
        note("irq on".into());
    }
    fn current() -> ThreadToken {
        ThreadToken::from_bits(9)
    }
    fn is_running(thread: ThreadToken) -> bool {
        thread.bits() == 1
    }
    fn is_known(thread: ThreadToken) -> bool {
        thread.bits() == 2
    }
    fn should_yield() -> bool {
        true
    }
    fn now() -> u64 {
        11
    }
    fn watch_clock() -> u64 {
        12
    }
    fn spin_until(mut condition: impl FnMut() -> bool) {
        note(format!("spin until {}", condition()));
    }
    fn spin_until_deadline(deadline_ns: u64, mut condition: impl FnMut() -> bool) -> bool {
        note(format!("spin until {} or {deadline_ns}", condition()));
        deadline_ns == 1
    }
    fn park(word: &Self::AtomicU32, expected: u32) {
        note(format!("park {word:?} {expected}"));
    }
    fn park_until(word: &Self::AtomicU32, expected: u32, deadline_ns: u64) {
        note(format!("park {word:?} {expected} {deadline_ns}"));
    }
    fn unpark(_word: *const Self::AtomicU32, threads: usize) -> usize {
        threads + 1
    }
    fn trace(event: Tracepoint) {
        note(format!("trace {event:?}"));
    }
}

// SAFETY: nothing runs on it.
unsafe impl Platform for Probe {
    type Embedding = crate::Usual;

    unsafe fn guest_enter() -> bool {
        note("guest enter".into());
        true
    }
    unsafe fn guest_exit() {
        note("guest exit".into());
    }
    fn owned_cpu() -> Option<usize> {
        Some(4)
    }
    fn is_idle(cpu: usize) -> bool {
        cpu == 1
    }
    fn shoot_down(targets: &CpuSet, mut is_drained: impl FnMut(usize) -> bool) {
        note(format!("shoot down {:?} {}", targets.iter().collect::<Vec<_>>(), is_drained(7)));
    }
    unsafe fn set_interrupt_handler(_handler: InterruptHandler, context: *const ()) {
        note(format!("handler {context:?}"));
    }
    unsafe fn clear_interrupt_handler(context: *const ()) {
        note(format!("no handler {context:?}"));
    }
    fn work(ns: u64) {
        note(format!("work {ns}"));
    }
    fn enter_kernel(entry: KernelEntry) {
        note(format!("{entry:?}"));
    }
    fn touch(address: *const u8, len_bytes: usize, access: TouchKind) {
        note(format!("touch {address:?} {len_bytes} {access:?}"));
    }
    fn forbid(address: *const u8, len_bytes: usize) {
        note(format!("forbid {address:?} {len_bytes}"));
    }
    fn permit(address: *const u8, len_bytes: usize) {
        note(format!("permit {address:?} {len_bytes}"));
    }
    unsafe fn bulk(frame: *mut u8, kind: Bulk) {
        note(format!("bulk {frame:?} {kind:?}"));
    }
}

/// An address that nobody looks at.
fn somewhere() -> *const u8 {
    core::ptr::without_provenance(0x40)
}

type Seen = Watched<Probe>;

#[test]
fn each_call_of_a_processor_reaches_the_one_beneath() {
    let word = <Probe as Processor>::AtomicU32::new(6);
    Seen::fence(Ordering::AcqRel);
    Seen::fence_after_rmw();
    Seen::enter();
    Seen::prefer(2);
    Seen::leave();
    Seen::irq_off();
    Seen::irq_on();
    Seen::spin_until(|| false);
    assert!(Seen::spin_until_deadline(1, || true) && !Seen::spin_until_deadline(2, || false));
    Seen::park(&word, 8);
    Seen::park_until(&word, 8, 20);
    Seen::trace(Tracepoint::WorkBegins);
    let expected = [
        "fence AcqRel",
        "fence after rmw",
        "enter",
        "prefer 2",
        "leave",
        "irq off",
        "irq on",
        "spin until false",
        "spin until true or 1",
        "spin until false or 2",
        "park 6 8",
        "park 6 8 20",
        "trace WorkBegins",
    ];
    assert_eq!(asked(), expected);
    assert_eq!(
        (Seen::nr_cpus(), Seen::cpu(), Seen::try_cpu(), Seen::node(), Seen::current().bits()),
        (5, 3, None, 6, 9)
    );
    assert_eq!(
        (Seen::now(), Seen::watch_clock(), Seen::should_yield(), Seen::unpark(&raw const word, 1)),
        (11, 12, true, 2)
    );
    let answers = |ask: fn(ThreadToken) -> bool| [1, 2].map(|bits| ask(ThreadToken::from_bits(bits)));
    assert_eq!((answers(Seen::is_running), answers(Seen::is_known)), ([true, false], [false, true]));
}

#[test]
fn each_call_of_a_platform_reaches_the_one_beneath() {
    let mut targets = CpuSet::new();
    targets.insert(1);
    // SAFETY: nothing is translated here.
    assert!(unsafe { Seen::guest_enter() });
    // SAFETY: as above.
    unsafe { Seen::guest_exit() };
    Seen::shoot_down(&targets, |cpu| cpu == 7);
    // SAFETY: nothing calls it.
    unsafe { Seen::set_interrupt_handler(serve_all, somewhere().cast()) };
    // SAFETY: nothing is translated here.
    unsafe { Seen::clear_interrupt_handler(somewhere().cast()) };
    Seen::work(30);
    Seen::enter_kernel(KernelEntry::Call);
    Seen::touch(somewhere(), 8, TouchKind::Write);
    Seen::forbid(somewhere(), 16);
    Seen::permit(somewhere(), 24);
    // SAFETY: nobody writes there.
    unsafe { Seen::bulk(somewhere().cast_mut(), Bulk::Fill(5)) };
    let expected = [
        "guest enter",
        "guest exit",
        "shoot down [1] true",
        "handler 0x40",
        "no handler 0x40",
        "work 30",
        "Call",
        "touch 0x40 8 Write",
        "forbid 0x40 16",
        "permit 0x40 24",
        "bulk 0x40 Fill(5)",
    ];
    assert_eq!(asked(), expected);
    assert_eq!((Seen::owned_cpu(), Seen::is_idle(0), Seen::is_idle(1)), (Some(4), false, true));
}
