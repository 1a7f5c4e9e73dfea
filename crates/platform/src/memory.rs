//! A CPU with memory: what `phys` and `vm` need beyond a [`Processor`].
//!
//! # Guest state and shootdown, side by side
//! ```text
//! CPU T (runs a program)                 CPU S (takes a translation away)
//! guest_enter: state = guest             clear the entry
//!              fence                     publish the request to T's queue
//!              read queue, drain it      shoot_down: mark T pending, fence
//! look up, access                                    read state of T
//! guest_exit:  state = kernel                        guest: wait until T drained or left guest
//! ```
//! Either S sees T in guest, and waits, or T sees the request before it uses a translation (store, fence, load on
//! both sides). A T that is not in guest uses no translation until it drained its queue, so S need not wait for it.

use crate::{CpuSet, InPlace, Processor};

/// Bytes of a page and of a frame.
pub const PAGE_BYTES: usize = 4096;

/// What [`Platform::bulk`] does to a frame.
///
/// `vm` fills a new page with `Zero` or a pattern's word, and copies the page that a store parts from others:
///
/// ```
/// # #[cfg(feature = "std")] {
/// use faultless_platform::{Bulk, PAGE_BYTES, Platform, native::{HostRegion, Native}};
///
/// let region = HostRegion::reserve(2 * PAGE_BYTES)?;
/// let frame = region.base().as_ptr();
/// // SAFETY: both frames lie in the region, which is ours alone.
/// unsafe {
///     Native::bulk(frame, Bulk::Fill(0xaaaa));
///     Native::bulk(frame.add(PAGE_BYTES), Bulk::CopyFrom(frame));
///     assert_eq!(frame.add(PAGE_BYTES).cast::<u64>().read(), 0xaaaa);
/// }
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub enum Bulk {
    /// Fills it with zeros.
    Zero,
    /// Fills it with this word, as stored natively, again and again.
    Fill(u64),
    /// Copies the frame at this address over it.
    CopyFrom(*const u8),
}

/// What a frame holds that may have no address of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// A leaf table of an address space.
    Table,
    /// A table above the leaves of an address space.
    UpperTable,
    /// A page of a file or of shared memory.
    FilePage,
    /// A page of a program's own.
    AnonymousPage,
}

/// Which frames have no address of their own, and what may lie in them.
///
/// ```
/// use faultless_platform::{HighZone, Holds};
///
/// // As on 32-bit Linux: pages of programs may lie high, their tables not.
/// let zone = HighZone { begin: 896 << 20, may_hold: Holds::ALL.map(|holds| matches!(holds, Holds::FilePage | Holds::AnonymousPage)) };
/// assert!(zone.may_hold(Holds::AnonymousPage) && !zone.may_hold(Holds::Table));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HighZone {
    /// The first address, in whatever window the frames are numbered by, of a frame without an address of its own;
    /// those above have none either.
    pub begin: usize,
    /// What may lie there; everything else lies below.
    pub may_hold: [bool; Holds::ALL.len()],
}

impl Holds {
    /// All of them, in the order of [`HighZone::may_hold`].
    pub const ALL: [Self; 4] = [Self::Table, Self::UpperTable, Self::FilePage, Self::AnonymousPage];
}

impl HighZone {
    /// Says whether such a thing may lie in high memory.
    pub fn may_hold(&self, holds: Holds) -> bool {
        self.may_hold[holds as usize]
    }
}

/// Whether a plain access reads or writes.
/// Kernels do not use it: [`Platform::touch`] takes it, for machines that charge for accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TouchKind {
    /// Reads.
    Read,
    /// Writes.
    Write,
}

/// How a program comes into the kernel.
/// [`Platform::enter_kernel`] takes it, since a call and a fault cost different times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelEntry {
    /// By a fault.
    Exception,
    /// By a call.
    Call,
}

/// Names the frames and page tables that come with this library: `phys`' memory and x86-64's tables.
///
/// See [`Platform::Embedding`].
///
/// ```
/// # #[cfg(feature = "std")] {
/// use faultless_platform::{Platform, Usual, native::Native};
///
/// fn is_usual<P: Platform<Embedding = Usual>>() {}
/// is_usual::<Native>();
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usual;

/// Called on a CPU to serve what was published for it; the arguments are the registered context and the CPU.
/// A platform calls it in each wait with interrupts on, for the CPU that waits.
pub type InterruptHandler = unsafe fn(context: *const (), cpu: usize);

/// A processor whose memory holds page tables and frames.
///
/// # Safety
/// `shoot_down` keeps the promise of the module's table, and `bulk` writes the whole frame.
///
/// # Who calls what
/// | callers | functions |
/// |---|---|
/// | `vm::Guest` and `vm::Space::activate`, around what a program does with translations | `guest_enter`, `guest_exit`, `enter_kernel` |
/// | a shootdown, after it has filled the targets' inboxes; kernel maps | `shoot_down`, `is_idle` |
/// | an instance, when it is made and dropped | `set_interrupt_handler`, `clear_interrupt_handler` |
/// | what a thread leaves behind when it ends: guests, spaces, pools | `owned_cpu` |
/// | the frame source and faults, which fill and copy pages | `bulk` |
/// | tables and pages in memory that may have no address | `map_frame`, `unmap_frame`, `map_briefly`, `unmap_briefly`, `maps_outlast_sleep`, `lacks_address`, where `HAS_HIGH_MEMORY` holds |
/// | guests, which stand for the CPU, and poison | `in_hardware` |
/// | walks of index nodes, for what they cost on a simulated machine | `touch` |
/// | frames and areas that are freed and given out again | `forbid`, `permit` |
/// | workloads and replays, for the time between two calls | `work` |
pub unsafe trait Platform:
    Processor<AtomicU8: InPlace, AtomicU16: InPlace, AtomicU32: InPlace, AtomicU64: InPlace, AtomicUsize: InPlace>
{
    /// Names what address spaces on this platform are made of: where their frames come from and which tables the
    /// hardware walks. `faultless_vm::Embedding` says what a name means; [`Usual`] is the one that needs nothing else.
    type Embedding: 'static;

    /// Lets this CPU use translations; says whether something waits in its queue.
    ///
    /// # Safety
    /// If something waits, the caller drains the queue before anybody uses a translation on this CPU: nobody is told of
    /// it again.
    #[must_use = "a pending request must be drained before a translation is used"]
    unsafe fn guest_enter() -> bool;
    /// Ends the use of translations on this CPU.
    ///
    /// # Safety
    /// Nobody uses a translation on this CPU before it enters again: what it reached may be freed at once.
    unsafe fn guest_exit();

    /// Returns the CPU that the calling thread owns; nothing for one that has given its slot up, as one that ends by a
    /// panic may have.
    fn owned_cpu() -> Option<usize>;
    /// Says whether a CPU has no owner: all its threads sleep, compute or have ended. A hint: one may take it at any
    /// time.
    fn is_idle(cpu: usize) -> bool;

    /// Waits until no CPU of `targets` can still use a translation that its published request takes away.
    ///
    /// Called after the requests are in the targets' queues. `is_drained(cpu)` says whether that CPU has served its
    /// queue since; CPUs that are not in guest are not waited for. The calling CPU is skipped: it serves itself.
    fn shoot_down(targets: &CpuSet, is_drained: impl FnMut(usize) -> bool);

    /// Registers what serves a CPU's queue during waits; once for each machine.
    ///
    /// # Safety
    /// `context` is valid until [`Platform::clear_interrupt_handler`], and `handler` may run on any CPU in any wait
    /// with interrupts on.
    unsafe fn set_interrupt_handler(handler: InterruptHandler, context: *const ());
    /// Takes the handler with that context away, if there is one: no CPU runs it after the return. On any thread: one
    /// of another machine, or of none, where threads can be that.
    ///
    /// # Safety
    /// The caller has registered it, and nobody uses a translation any more whose end it would have told a CPU of.
    unsafe fn clear_interrupt_handler(context: *const ());

    /// Computes for `ns`, outside guest and kernel.
    fn work(ns: u64);
    /// Charges what the hardware and the kernel's entry code take to come in and to go back; nothing where they do it
    /// themselves.
    #[inline]
    fn enter_kernel(_entry: KernelEntry) {}
    /// Charges for a hot plain access; no effect on memory.
    #[inline]
    fn touch(_address: *const u8, _len_bytes: usize, _access: TouchKind) {}
    /// Whether frames may lack an address of their own on this platform. Where not, zones and maps compile to nothing.
    const HAS_HIGH_MEMORY: bool = false;
    /// Gives a frame an address until [`Platform::unmap_frame`], on a machine where it has none of its own; nothing
    /// elsewhere. May sleep; what is mapped last is unmapped first.
    #[inline]
    fn map_frame(_frame: *const u8, _holds: Holds) {}
    /// Takes the address of a frame away.
    #[inline]
    fn unmap_frame(_frame: *const u8, _holds: Holds) {}
    /// As [`Platform::map_frame`], for whoever does not sleep before [`Platform::unmap_briefly`].
    #[inline]
    #[doc(alias = "kmap_atomic")]
    fn map_briefly(frame: *const u8, holds: Holds) {
        Self::map_frame(frame, holds);
    }
    /// Takes the address of a frame away that was mapped briefly.
    #[inline]
    fn unmap_briefly(frame: *const u8, holds: Holds) {
        Self::unmap_frame(frame, holds);
    }
    /// Says whether a map may be kept over a sleep: one does for a whole fault then.
    #[inline]
    fn maps_outlast_sleep() -> bool {
        false
    }
    /// Says whether a frame that holds such a thing has no address but between [`Platform::map_frame`] and
    /// [`Platform::unmap_frame`]. Whoever sleeps while he uses a frame asks, because not every map may be kept so long.
    #[inline]
    fn lacks_address(_frame: *const u8, _holds: Holds) -> bool {
        false
    }
    /// Returns where the CPU's own walks and accesses find a frame's bytes, whether or not the frame has an address:
    /// for guests, which stand for the CPU, and for the pattern in freed frames.
    #[inline]
    fn in_hardware(frame: *mut u8) -> *mut u8 {
        frame
    }
    /// Says that nobody accesses this memory until [`Platform::permit`]: it was freed. Called where frees are poisoned,
    /// for platforms that watch accesses.
    #[inline]
    fn forbid(_address: *const u8, _len_bytes: usize) {}
    /// Says that this memory is given out again.
    #[inline]
    fn permit(_address: *const u8, _len_bytes: usize) {}
    /// Fills or copies a frame of [`PAGE_BYTES`].
    ///
    /// # Safety
    /// `frame` is valid for writes of a page, page-aligned, and nobody else accesses it. A copy's source is valid for
    /// reads of a page, page-aligned, and another one; programs may store to it meanwhile, by atomic accesses.
    #[inline]
    unsafe fn bulk(frame: *mut u8, kind: Bulk) {
        match kind {
            // SAFETY: the caller owns the frame.
            Bulk::Zero => unsafe { core::ptr::write_bytes(frame, 0, PAGE_BYTES) },
            // SAFETY: the caller owns the frame, which is aligned to its size.
            Bulk::Fill(word) => unsafe { fill(frame, word) },
            // SAFETY: the caller owns the frame and vouches for the source.
            Bulk::CopyFrom(source) => unsafe { copy(frame, source) },
        }
    }
}

/// Copies a frame as by relaxed loads: a page that several programs have mapped may be stored to while it is copied,
/// and what a copy then holds of such a store is old or new. A plain copy would be a data race.
///
/// # Safety
/// As [`Platform::bulk`] has it.
unsafe fn copy(frame: *mut u8, source: *const u8) {
    // SAFETY: both frames are valid and apart; the direction flag is clear, as the ABI has it. What one string
    // instruction reads is what relaxed loads may read.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    unsafe {
        core::arch::asm!(
            "rep movsq",
            inout("rcx") PAGE_BYTES / 8 => _,
            inout("rsi") source => _,
            inout("rdi") frame => _,
            options(nostack, preserves_flags)
        );
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    for place in 0..PAGE_BYTES / 8 {
        // SAFETY: the caller's promise, and the word lies inside both frames.
        unsafe {
            let word = &*source.cast::<core::sync::atomic::AtomicU64>().add(place);
            frame.cast::<u64>().add(place).write(word.load(core::sync::atomic::Ordering::Relaxed));
        }
    }
}

/// Fills a frame with a word; one repeated byte as fast as zeros.
///
/// # Safety
/// The frame is the caller's.
unsafe fn fill(frame: *mut u8, word: u64) {
    let byte = word as u8;
    if word == u64::from_ne_bytes([byte; 8]) {
        // SAFETY: the caller's promise.
        unsafe { core::ptr::write_bytes(frame, byte, PAGE_BYTES) };
        return;
    }
    for place in 0..PAGE_BYTES / 8 {
        // SAFETY: the caller's promise, and the word lies inside the frame.
        unsafe { frame.cast::<u64>().add(place).write(word) };
    }
}
