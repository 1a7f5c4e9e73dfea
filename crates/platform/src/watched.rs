//! Any machine, with somebody who is told what happens on it.
//!
//! # Guarantee
//! * Code on [`Watched`]`<P>` does what it does on `P`; each [`Event`] goes to the machine's [`Sink`], if it has one,
//!   by the thread that it happened to. On `P` itself events compile to nothing, so whoever wants none pays for none.
//! * Watching makes no access of the machine's and reads no clock but [`Processor::watch_clock`]: where that takes no
//!   time, as on a simulated machine, a watched run is the unwatched one to the last nanosecond.

use crate::{
    Access, Bulk, CpuSet, Entry, Event, InterruptHandler, Nodes, Ordering, Platform, Processor, StartError,
    ThreadToken, Threads,
};
use core::marker::PhantomData;
use std::cell::RefCell;
use std::sync::Arc;

/// What happened, and where.
#[derive(Clone, Copy, Debug)]
pub struct Happening {
    /// What.
    pub event: Event,
    /// On which slot.
    pub cpu: usize,
    /// To whom.
    pub thread: ThreadToken,
    /// Reads the machine's clock; see [`Processor::watch_clock`].
    pub now: fn() -> u64,
}

/// Somebody who is told; takes none of the machine's own locks, and does not wait for its threads.
pub trait Sink: Send + Sync {
    /// Takes note.
    fn note(&self, happening: &Happening);
}

/// The platform `P`, watched.
#[derive(Debug)]
pub enum Watched<P> {
    #[doc(hidden)]
    Never(core::convert::Infallible, PhantomData<P>),
}

/// A machine of `P`, and who is told, if anybody is.
pub struct Machine<P: Threads> {
    machine: P::Machine,
    sink: Option<Arc<dyn Sink>>,
}

impl<P: Threads> Machine<P> {
    /// Lets `sink` be told what happens on `machine`.
    pub fn new(machine: P::Machine, sink: Arc<dyn Sink>) -> Self {
        Self { machine, sink: Some(sink) }
    }

    /// Lets nobody be told.
    pub fn unwatched(machine: P::Machine) -> Self {
        Self { machine, sink: None }
    }

    /// Returns the machine itself.
    pub fn inner(&self) -> &P::Machine {
        &self.machine
    }
}

std::thread_local! {
    static SINK: RefCell<Option<Arc<dyn Sink>>> = const { RefCell::new(None) };
}

/// Lets the calling thread's events go to `sink` from now on.
fn tell(sink: Option<Arc<dyn Sink>>) {
    SINK.with(|current| *current.borrow_mut() = sink);
}

impl<P: Processor> Processor for Watched<P> {
    type AtomicBool = P::AtomicBool;
    type AtomicU8 = P::AtomicU8;
    type AtomicU16 = P::AtomicU16;
    type AtomicU32 = P::AtomicU32;
    type AtomicU64 = P::AtomicU64;
    type AtomicUsize = P::AtomicUsize;
    type AtomicPtr<T> = P::AtomicPtr<T>;
    const WATCHED: bool = true;

    #[inline]
    // ORDER: the caller's; it names the pair.
    fn fence(order: Ordering) {
        P::fence(order);
    }
    fn nr_cpus() -> usize {
        P::nr_cpus()
    }
    #[inline]
    fn cpu() -> usize {
        P::cpu()
    }
    fn try_cpu() -> Option<usize> {
        P::try_cpu()
    }
    fn enter() {
        P::enter();
    }
    fn leave() {
        P::leave();
    }
    #[inline]
    fn irq_off() {
        P::irq_off();
    }
    #[inline]
    fn irq_on() {
        P::irq_on();
    }
    fn current() -> ThreadToken {
        P::current()
    }
    fn is_running(thread: ThreadToken) -> bool {
        P::is_running(thread)
    }
    fn is_known(thread: ThreadToken) -> bool {
        P::is_known(thread)
    }
    fn should_yield() -> bool {
        P::should_yield()
    }
    fn now() -> u64 {
        P::now()
    }
    fn watch_clock() -> u64 {
        P::watch_clock()
    }
    fn spin_until(condition: impl FnMut() -> bool) {
        P::spin_until(condition);
    }
    fn spin_until_deadline(deadline_ns: u64, condition: impl FnMut() -> bool) -> bool {
        P::spin_until_deadline(deadline_ns, condition)
    }
    fn park(word: &Self::AtomicU32, expected: u32) {
        P::park(word, expected);
    }
    fn park_until(word: &Self::AtomicU32, expected: u32, deadline_ns: u64) {
        P::park_until(word, expected, deadline_ns);
    }
    fn unpark(word: *const Self::AtomicU32, threads: usize) -> usize {
        P::unpark(word, threads)
    }

    fn trace(event: Event) {
        P::trace(event);
        // Nobody is told of what happens to a thread whose locals are being taken down.
        let _ = SINK.try_with(|sink| {
            if let Some(sink) = &*sink.borrow() {
                sink.note(&Happening { event, cpu: P::cpu(), thread: P::current(), now: P::watch_clock });
            }
        });
    }
}

// SAFETY: all promises are those of `P`.
unsafe impl<P: Platform> Platform for Watched<P> {
    fn guest_enter() -> bool {
        P::guest_enter()
    }
    fn guest_exit() {
        P::guest_exit();
    }
    fn owned_cpu() -> Option<usize> {
        P::owned_cpu()
    }
    fn is_idle(cpu: usize) -> bool {
        P::is_idle(cpu)
    }
    fn shoot_down(targets: &CpuSet, is_drained: impl FnMut(usize) -> bool) {
        P::shoot_down(targets, is_drained);
    }
    unsafe fn set_interrupt_handler(handler: InterruptHandler, context: *const ()) {
        // SAFETY: passed on as promised.
        unsafe { P::set_interrupt_handler(handler, context) };
    }
    fn clear_interrupt_handler() {
        P::clear_interrupt_handler();
    }
    fn work(ns: u64) {
        P::work(ns);
    }
    fn enter_kernel(entry: Entry) {
        P::enter_kernel(entry);
    }
    fn forbid(address: *const u8, len_bytes: usize) {
        P::forbid(address, len_bytes);
    }
    fn permit(address: *const u8, len_bytes: usize) {
        P::permit(address, len_bytes);
    }
    fn touch(address: *const u8, len_bytes: usize, access: Access) {
        P::touch(address, len_bytes, access);
    }
    unsafe fn bulk(frame: *mut u8, kind: Bulk) {
        // SAFETY: passed on as promised.
        unsafe { P::bulk(frame, kind) };
    }
}

impl<P: Threads> Threads for Watched<P>
where
    P::Machine: Send,
{
    type Machine = Machine<P>;

    fn run(machine: &Self::Machine, first: usize, body: &(dyn Fn(usize) + Sync)) {
        P::run(&machine.machine, first, &|thread| {
            tell(machine.sink.clone());
            body(thread);
        });
        // A simulated machine's threads all run on the calling one.
        tell(None);
    }

    fn nodes(machine: &Self::Machine) -> Nodes {
        P::nodes(&machine.machine)
    }

    fn place(machine: &Self::Machine, node: usize, address: *const u8, len_bytes: usize) {
        P::place(&machine.machine, node, address, len_bytes);
    }

    fn start(thread: usize) -> Result<(), StartError> {
        P::start(thread)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::native::{self, Native};
    use std::sync::Mutex;
    use std::vec::Vec;

    #[derive(Default)]
    struct Heard(Mutex<Vec<(u64, usize)>>);

    impl Sink for Heard {
        fn note(&self, happening: &Happening) {
            let Event::Point { value, .. } = happening.event else { return };
            assert!((happening.now)() > 0 && happening.thread != ThreadToken::NONE);
            self.0.lock().expect("no panic").push((value, happening.cpu));
        }
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
                        Watched::<Native>::trace(Event::Point { name: "here", value: offset + thread as u64 });
                        if thread < 3 {
                            Watched::<Native>::start(thread + 1).expect("the host starts a thread");
                        }
                        Watched::<Native>::leave();
                    });
                    Watched::<Native>::trace(Event::Point { name: "after", value: 99 });
                });
            }
        });
        for (offset, heard) in [0, 100].into_iter().zip(&heard) {
            let mut values: Vec<u64> = heard.0.lock().expect("no panic").iter().map(|(value, _)| *value).collect();
            values.sort_unstable();
            assert_eq!(values, (0..4).map(|thread| offset + thread).collect::<Vec<_>>());
        }
    }
}
