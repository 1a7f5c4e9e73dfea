//! Any machine, with somebody who is told what happens on it.
//!
//! # Guarantee
//! * Code on [`Watched`]`<P>` does what it does on `P`; each [`Tracepoint`] goes to the machine's [`Sink`], if it has
//!   one, by the thread that passes it. On `P` itself tracepoints compile to nothing, so whoever wants none pays
//!   for none.
//! * Watching makes no access of the machine's and reads no clock but [`Processor::watch_clock`]: where that takes no
//!   time, as on a simulated machine, a watched run is the unwatched one to the last nanosecond.

mod registered;

use crate::native::NativeOf;
use crate::{
    Bulk, CpuSet, HighZone, Holds, InterruptHandler, KernelEntry, Nodes, Ordering, Platform, Processor, StartError,
    ThreadToken, Threads, TouchKind, Tracepoint,
};
use core::marker::PhantomData;
use registered::Handlers;
use std::cell::RefCell;
use std::sync::Arc;

/// What happened, and where: a [`Sink`] is given it.
#[derive(Clone, Copy, Debug)]
pub struct Happening {
    /// What.
    pub event: Tracepoint,
    /// On which slot.
    pub cpu: usize,
    /// To whom.
    pub thread: ThreadToken,
    /// Reads the machine's clock; see [`Processor::watch_clock`].
    pub now: fn() -> u64,
}

/// Somebody who is told: the machines of experiments call it at each event of a lock. Takes none of the machine's own
/// locks, and does not wait for its threads.
pub trait Sink: Send + Sync {
    /// Takes note; called by the thread to which it happened, before it goes on.
    fn note(&self, happening: &Happening);
}

/// What gives frames addresses for a moment: `vm` calls it by [`Platform::map_frame`] around each use of a frame, on a
/// machine whose memory has none of its own.
///
/// # Safety
/// A frame's address may be used while the frame is mapped, and always if [`HighMemory::lacks_address`] says no. What
/// [`HighMemory::in_hardware`] returns leads to the same bytes, and may be used all the time.
pub unsafe trait HighMemory: Send + Sync {
    /// Maps a frame, for the calling thread. Called by [`Platform::map_frame`].
    fn map(&self, frame: *const u8, holds: Holds);
    /// Unmaps what the calling thread mapped last, which is this. Called by [`Platform::unmap_frame`].
    fn unmap(&self, frame: *const u8, holds: Holds);
    /// As [`HighMemory::map`], for somebody who does not sleep before he unmaps the frame. Called by
    /// [`Platform::map_briefly`].
    fn map_briefly(&self, frame: *const u8, holds: Holds) {
        self.map(frame, holds);
    }
    /// Unmaps what was mapped briefly. Called by [`Platform::unmap_briefly`].
    fn unmap_briefly(&self, frame: *const u8, holds: Holds) {
        self.unmap(frame, holds);
    }
    /// Says whether a map may be kept over a sleep. Called by [`Platform::maps_outlast_sleep`].
    fn outlasts_sleep(&self) -> bool {
        false
    }
    /// Says which frames of those at these addresses have no address of their own. Called by
    /// [`Threads::high_zone`]; all that asks for a map, if nothing
    /// is said.
    fn zone(&self, _address: *const u8, _len_bytes: usize) -> Option<HighZone> {
        None
    }
    /// Says whether a frame that holds such a thing has no address but while it is mapped. Called by
    /// [`Platform::lacks_address`].
    fn lacks_address(&self, _frame: *const u8, _holds: Holds) -> bool {
        false
    }
    /// Returns where the CPU itself finds a frame's bytes: at the frame's usual address, unless that is taken away
    /// while nobody maps the frame. Called by [`Platform::in_hardware`].
    fn in_hardware(&self, frame: *mut u8) -> *mut u8 {
        frame
    }
    /// Called before the calling thread gives its CPU up to sleep: not every map may be kept so long.
    fn suspend(&self) {}
    /// Called when the calling thread, which slept, has a CPU again.
    fn resume(&self) {}
}

/// High memory of a machine, and who serves its interrupts: the maps and the virtual memory, both.
struct High {
    maps: Arc<dyn HighMemory>,
    handlers: Handlers,
}

/// Serves all that was published for a CPU of a machine with high memory.
///
/// # Safety
/// `context` is the [`High`] of the machine; otherwise as of a handler.
unsafe fn serve_all(context: *const (), cpu: usize) {
    // SAFETY: the caller's promise.
    unsafe { (*context.cast::<High>()).handlers.serve(cpu) };
}

/// The platform `P`, watched.
///
/// ```
/// use faultless_platform::native::{self, Native};
/// use faultless_platform::watched::{Happening, Machine, Sink, Watched};
/// use faultless_platform::{Tracepoint, Processor, Threads};
/// use std::sync::{Arc, Mutex};
///
/// #[derive(Default)]
/// struct Points(Mutex<Vec<&'static str>>);
/// impl Sink for Points {
///     fn note(&self, happening: &Happening) {
///         if let Tracepoint::Point { name, .. } = happening.event {
///             self.0.lock().unwrap().push(name);
///         }
///     }
/// }
/// let points = Arc::new(Points::default());
/// let machine = Machine::<Native>::new(native::Machine::new(2), Arc::clone(&points) as Arc<dyn Sink>);
/// Watched::<Native>::run(&machine, 1, &|_| {
///     Watched::<Native>::enter();
///     Watched::<Native>::trace(Tracepoint::Point { name: "pagefault:spf_vma_changed", value: 0x1000 });
///     Watched::<Native>::leave();
/// });
/// assert_eq!(*points.0.lock().unwrap(), ["pagefault:spf_vma_changed"]);
/// // Nobody is told anything of this one.
/// let _quiet = Machine::<Native>::unwatched(native::Machine::new(2));
/// ```
#[derive(Debug)]
pub enum Watched<P> {
    #[doc(hidden)]
    Never(core::convert::Infallible, PhantomData<P>),
}

/// A machine of `P`, and who is told, if anybody is.
pub struct Machine<P: Threads> {
    machine: P::Machine,
    sink: Option<Arc<dyn Sink>>,
    high: Option<Arc<High>>,
}

impl<P: Threads> Machine<P> {
    /// Lets `sink` be told what happens on `machine`.
    pub fn new(machine: P::Machine, sink: Arc<dyn Sink>) -> Self {
        Self { machine, sink: Some(sink), high: None }
    }

    /// Lets nobody be told.
    pub fn unwatched(machine: P::Machine) -> Self {
        Self { machine, sink: None, high: None }
    }

    /// Lets `maps` give addresses to frames that have none; for whoever sets up a machine with high memory.
    #[must_use]
    pub fn with_high_memory(self, maps: Arc<dyn HighMemory>) -> Self {
        Self { high: Some(Arc::new(High { maps, handlers: Handlers::default() })), ..self }
    }

    /// Returns the machine itself. Reports call it, for figures that only `P`'s machines have.
    pub fn inner(&self) -> &P::Machine {
        &self.machine
    }
}

impl<E: 'static> Machine<NativeOf<E>> {
    /// Runs `body` on the calling thread, on a slot of this machine.
    pub fn attach<R>(&self, body: impl FnOnce() -> R) -> R {
        let _restore = Told::set(self.sink.clone(), self.high.clone());
        self.machine.attach(body)
    }
}

/// What the calling thread was told before; told again when this is dropped.
struct Told(Option<Arc<dyn Sink>>, Option<Arc<High>>);

impl Told {
    fn set(sink: Option<Arc<dyn Sink>>, high: Option<Arc<High>>) -> Self {
        Self(SINK.with(|current| current.replace(sink)), HIGH.with(|current| current.replace(high)))
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        // Not told again is a thread whose locals are being taken down.
        let _ = SINK.try_with(|current| current.replace(self.0.take()));
        let _ = HIGH.try_with(|current| current.replace(self.1.take()));
    }
}

std::thread_local! {
    static SINK: RefCell<Option<Arc<dyn Sink>>> = const { RefCell::new(None) };
    static HIGH: RefCell<Option<Arc<High>>> = const { RefCell::new(None) };
}

/// Returns the high memory of the machine that the calling thread runs on.
#[inline]
fn high() -> Option<Arc<High>> {
    HIGH.try_with(|high| high.borrow().clone()).ok().flatten()
}

/// Does what gives the calling thread's CPU up for a while; its maps of high memory are told.
fn off_its_cpu(sleep: impl FnOnce()) {
    let Some(high) = high() else { return sleep() };
    high.maps.suspend();
    sleep();
    high.maps.resume();
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
    #[inline]
    #[track_caller]
    fn fence_after_rmw() {
        P::fence_after_rmw();
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
    fn prefer(cpu: usize) {
        P::prefer(cpu);
    }
    fn leave() {
        P::leave();
    }
    fn node() -> usize {
        P::node()
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
        off_its_cpu(|| P::park(word, expected));
    }
    fn park_until(word: &Self::AtomicU32, expected: u32, deadline_ns: u64) {
        off_its_cpu(|| P::park_until(word, expected, deadline_ns));
    }
    fn unpark(word: *const Self::AtomicU32, threads: usize) -> usize {
        P::unpark(word, threads)
    }

    fn trace(event: Tracepoint) {
        P::trace(event);
        // A thread whose locals are being destroyed is not reported.
        let _ = SINK.try_with(|sink| {
            if let Some(sink) = &*sink.borrow() {
                sink.note(&Happening { event, cpu: P::cpu(), thread: P::current(), now: P::watch_clock });
            }
        });
    }
}

// SAFETY: all promises are those of `P`.
unsafe impl<P: Platform> Platform for Watched<P> {
    type Embedding = P::Embedding;

    unsafe fn guest_enter() -> bool {
        // SAFETY: passed on as promised.
        let is_pending = unsafe { P::guest_enter() };
        if is_pending && let Some(high) = high() {
            // SAFETY: the thread owns its CPU, and has not begun to use translations.
            unsafe { high.handlers.serve(P::cpu()) };
        }
        is_pending
    }
    unsafe fn guest_exit() {
        // SAFETY: passed on as promised.
        unsafe { P::guest_exit() };
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
        let Some(high) = high() else {
            // SAFETY: passed on as promised.
            return unsafe { P::set_interrupt_handler(handler, context) };
        };
        registered::add(&high, (handler, context), || {
            // SAFETY: taken away with the last handler, whose list keeps the high memory.
            unsafe { P::set_interrupt_handler(serve_all, Arc::as_ptr(&high).cast()) };
        });
    }
    unsafe fn clear_interrupt_handler(context: *const ()) {
        let of_high = registered::remove::<P>(context, |high| {
            // SAFETY: registered above; who was served by it has been taken away by its owner.
            unsafe { P::clear_interrupt_handler(high.cast()) };
        });
        if !of_high {
            // SAFETY: passed on as promised.
            unsafe { P::clear_interrupt_handler(context) };
        }
    }
    const HAS_HIGH_MEMORY: bool = true;
    fn map_frame(frame: *const u8, holds: Holds) {
        if let Some(high) = high() {
            high.maps.map(frame, holds);
        }
    }
    fn unmap_frame(frame: *const u8, holds: Holds) {
        if let Some(high) = high() {
            high.maps.unmap(frame, holds);
        }
    }
    fn map_briefly(frame: *const u8, holds: Holds) {
        if let Some(high) = high() {
            high.maps.map_briefly(frame, holds);
        }
    }
    fn unmap_briefly(frame: *const u8, holds: Holds) {
        if let Some(high) = high() {
            high.maps.unmap_briefly(frame, holds);
        }
    }
    fn maps_outlast_sleep() -> bool {
        high().is_some_and(|high| high.maps.outlasts_sleep())
    }
    fn lacks_address(frame: *const u8, holds: Holds) -> bool {
        high().is_some_and(|high| high.maps.lacks_address(frame, holds))
    }
    fn in_hardware(frame: *mut u8) -> *mut u8 {
        high().map_or(frame, |high| high.maps.in_hardware(frame))
    }
    fn work(ns: u64) {
        P::work(ns);
    }
    fn enter_kernel(entry: KernelEntry) {
        P::enter_kernel(entry);
    }
    fn forbid(address: *const u8, len_bytes: usize) {
        P::forbid(address, len_bytes);
    }
    fn permit(address: *const u8, len_bytes: usize) {
        P::permit(address, len_bytes);
    }
    fn touch(address: *const u8, len_bytes: usize, access: TouchKind) {
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
            HIGH.with(|high| high.borrow_mut().clone_from(&machine.high));
            body(thread);
        });
        // A simulated machine's threads all run on the calling one.
        tell(None);
        HIGH.with(|high| high.borrow_mut().take());
    }

    fn nodes(machine: &Self::Machine) -> Nodes {
        P::nodes(&machine.machine)
    }

    fn place(machine: &Self::Machine, node: usize, address: *const u8, len_bytes: usize) {
        P::place(&machine.machine, node, address, len_bytes);
    }

    fn high_zone(machine: &Self::Machine, address: *const u8, len_bytes: usize) -> Option<HighZone> {
        machine.high.as_ref()?.maps.zone(address, len_bytes)
    }

    fn start(thread: usize) -> Result<(), StartError> {
        P::start(thread)
    }
}

#[cfg(test)]
mod tests;
