//! Keeping host addresses out of the results.
//!
//! # Guarantee
//! Under [`isolate`], with [`LineAllocator`] as the program's global allocator, two simulations of the same machine,
//! program and seed see the same objects on the same lines: in another process, with address randomisation on, beside
//! other simulations.
//!
//! # How
//! * What lies on the heap begins on a line of its own, so that which objects share a line is decided by their types
//!   alone.
//! * What lies on a stack lies on a stack that begins on a page: the threads' own, and one for the caller of `isolate`.
//! * Memory that is freed is forgotten by the line directory: what comes there next is as if it had never been touched,
//!   so that it makes no difference whether the host's allocator gives the same memory out again, which depends on all
//!   that the process did before.

use crate::engine::{self, Failure, Quiet};
use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult};
use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

/// The stack of what runs a simulation; memory only as it is used.
const STACK_BYTES: usize = 8 << 20;
const LINE_BYTES: usize = 64;

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// While it lives, allocations of this OS thread begin on lines of their own.
struct OwnLines;

impl OwnLines {
    fn new() -> Self {
        DEPTH.set(DEPTH.get() + 1);
        Self
    }
}

impl Drop for OwnLines {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}

/// Runs `body`, which makes a machine and all that is simulated on it, where no address of the host matters.
///
/// A simulation that panics or deadlocks is an error, with its story; so is a panic of `body` itself.
///
/// ```
/// let result = faultless_sim::isolate(|| 7);
/// assert_eq!(result, Ok(7));
/// ```
pub fn isolate<R>(body: impl FnOnce() -> R) -> Result<R, Failure> {
    let stack = DefaultStack::new(STACK_BYTES).map_err(|error| Failure {
        message: format!("the host has no room for a simulation's stack of {STACK_BYTES} bytes: {error}"),
    })?;
    let mut result = None;
    let place = &mut result;
    let (_quiet, _lines) = (Quiet::new(), OwnLines::new());
    let run = || *place = Some(catch_unwind(AssertUnwindSafe(body)));
    run_on(stack, run);
    let told = |payload: Box<dyn std::any::Any + Send>| Failure { message: engine::words_of(payload.as_ref()) };
    result.expect("the body ran to its end").map_err(told)
}

/// Runs `body` on a stack of its own, to its end.
fn run_on(stack: DefaultStack, body: impl FnOnce()) {
    let mut body = Some(body);
    let mut call = || {
        if let Some(body) = body.take() {
            body();
        }
    };
    let call: &mut dyn FnMut() = &mut call;
    // SAFETY: only the lifetime changes; the coroutine never suspends, so that it is over when `resume` returns.
    let call: &'static mut dyn FnMut() = unsafe { std::mem::transmute(call) };
    let mut fiber: Coroutine<(), (), (), DefaultStack> = Coroutine::with_stack(stack, move |_, ()| call());
    let ended = fiber.resume(());
    debug_assert!(matches!(ended, CoroutineResult::Return(())), "nothing suspends it");
}

/// The host's allocator; under [`isolate`] each object begins on a line of its own.
///
/// ```
/// #[global_allocator]
/// static ALLOCATOR: faultless_sim::LineAllocator = faultless_sim::LineAllocator;
/// ```
#[derive(Debug)]
pub struct LineAllocator;

/// The alignment that the host's `malloc` gives everything.
const MALLOC_ALIGN: usize = 16;

/// Returns the alignment that a request gets here and now.
fn alignment(layout: Layout) -> usize {
    if DEPTH.get() == 0 { layout.align() } else { layout.align().max(LINE_BYTES) }
}

/// Allocates at an alignment that is more than `malloc`'s.
fn allocate_aligned(len_bytes: usize, align: usize) -> *mut u8 {
    let mut pointer = ptr::null_mut();
    // SAFETY: the place for the result is ours; the alignment is a power of two of at least a pointer's size.
    match unsafe { libc::posix_memalign(&raw mut pointer, align, len_bytes) } {
        0 => pointer.cast(),
        _ => ptr::null_mut(),
    }
}

// SAFETY: all memory comes from the host's `malloc` and `posix_memalign`, both of which `free` takes back, whatever the
// alignment was.
unsafe impl GlobalAlloc for LineAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match alignment(layout) {
            // SAFETY: any size may be asked for.
            align if align <= MALLOC_ALIGN => unsafe { libc::malloc(layout.size()).cast() },
            align => allocate_aligned(layout.size(), align),
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if alignment(layout) <= MALLOC_ALIGN {
            // SAFETY: any size may be asked for.
            return unsafe { libc::calloc(1, layout.size()).cast() };
        }
        let pointer = allocate_aligned(layout.size(), alignment(layout));
        if !pointer.is_null() {
            // SAFETY: just allocated, with that size.
            unsafe { pointer.write_bytes(0, layout.size()) };
        }
        pointer
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        if DEPTH.get() != 0 {
            engine::forget(pointer.addr(), layout.size());
        }
        // SAFETY: the caller's promise; it came from `malloc` or `posix_memalign`.
        unsafe { libc::free(pointer.cast()) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_len_bytes: usize) -> *mut u8 {
        if alignment(layout) <= MALLOC_ALIGN {
            // SAFETY: the caller's promise; the alignment is one that `realloc` keeps.
            return unsafe { libc::realloc(pointer.cast(), new_len_bytes).cast() };
        }
        let larger = allocate_aligned(new_len_bytes, alignment(layout));
        if !larger.is_null() {
            // SAFETY: both are valid for the smaller size, and the new one is nobody else's; the old one is the
            // caller's to give up.
            unsafe {
                ptr::copy_nonoverlapping(pointer, larger, layout.size().min(new_len_bytes));
                self.dealloc(pointer, layout);
            }
        }
        larger
    }
}
