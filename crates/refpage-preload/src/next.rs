//! The allocator behind this one: libc's, or another preload's.
//!
//! # Guarantee
//! [`next`] returns its functions; before they are known, and while they are looked up, nothing.
//!
//! # State word
//! `UNKNOWN` -> `LOOKING` (one thread, in `dlsym`, which may call malloc) -> `KNOWN`.

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_int, c_void};
use std::mem::transmute;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

const UNKNOWN: u8 = 0;
const LOOKING: u8 = 1;
const KNOWN: u8 = 2;

type Allocate = unsafe extern "C" fn(usize) -> *mut c_void;
type AllocateTwo = unsafe extern "C" fn(usize, usize) -> *mut c_void;
type Reallocate = unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void;
type PosixMemalign = unsafe extern "C" fn(*mut *mut c_void, usize, usize) -> c_int;
type Free = unsafe extern "C" fn(*mut c_void);
type UsableSize = unsafe extern "C" fn(*mut c_void) -> usize;

/// The next allocator's functions.
pub(crate) struct Next {
    pub(crate) malloc: Allocate,
    pub(crate) calloc: AllocateTwo,
    pub(crate) realloc: Reallocate,
    pub(crate) aligned_alloc: AllocateTwo,
    pub(crate) posix_memalign: PosixMemalign,
    pub(crate) free: Free,
    pub(crate) usable_size: UsableSize,
}

struct Found(UnsafeCell<Option<Next>>);

// SAFETY: written by the one thread that moves STATE to LOOKING, read by others once it is KNOWN.
unsafe impl Sync for Found {}

static FOUND: Found = Found(UnsafeCell::new(None));
static STATE: AtomicU8 = AtomicU8::new(UNKNOWN);

/// The next allocator's malloc, once it is known: one load less on the way of every small
/// allocation.
static MALLOC: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// Calls the next allocator's malloc.
///
/// # Safety
/// [`next`] has returned something, and the caller knows it by an acquire.
#[inline]
pub(crate) unsafe fn malloc_of_known(len: usize) -> *mut c_void {
    // Relaxed: the caller's acquire.
    let malloc = MALLOC.load(Ordering::Relaxed);
    // SAFETY: `look_up` stored a function of this type.
    unsafe { transmute::<*mut c_void, Allocate>(malloc)(len) }
}

/// The next allocator's free; before it is known, nothing that it could free was handed out.
static FREE: AtomicPtr<c_void> = AtomicPtr::new(free_nothing as *mut c_void);

unsafe extern "C" fn free_nothing(_pointer: *mut c_void) {}

/// Calls the next allocator's free.
///
/// # Safety
/// The pointer is the next allocator's, or null.
#[inline]
pub(crate) unsafe fn free(pointer: *mut c_void) {
    // Relaxed: whoever has such a pointer got it after the function was stored.
    let free = FREE.load(Ordering::Relaxed);
    // SAFETY: a function of this type, here or by `look_up`.
    unsafe { transmute::<*mut c_void, Free>(free)(pointer) }
}

/// Returns the next allocator's functions, unless they are being looked up.
#[inline]
pub(crate) fn next() -> Option<&'static Next> {
    // ORDER: Acquire pairs with the Release in `look_up`.
    match STATE.load(Ordering::Acquire) {
        // SAFETY: KNOWN: nobody writes it any more.
        KNOWN => unsafe { (*FOUND.0.get()).as_ref() },
        _ => faultless_refpage::keeping_errno(look_up),
    }
}

#[cold]
fn look_up() -> Option<&'static Next> {
    // ORDER: Acquire, Relaxed on failure: a thread that does not look reads nothing.
    STATE.compare_exchange(UNKNOWN, LOOKING, Ordering::Acquire, Ordering::Relaxed).ok()?;
    // SAFETY: the exchange makes this the only thread here.
    unsafe { *FOUND.0.get() = Some(find_all()) };
    // Relaxed: published by STATE.
    MALLOC.store(find(c"malloc"), Ordering::Relaxed);
    FREE.store(find(c"free"), Ordering::Relaxed);
    // ORDER: Release pairs with the Acquire in `next`.
    STATE.store(KNOWN, Ordering::Release);
    next()
}

fn find_all() -> Next {
    // SAFETY: each symbol has the C standard's, POSIX's or glibc's type.
    unsafe {
        Next {
            malloc: transmute::<*mut c_void, Allocate>(find(c"malloc")),
            calloc: transmute::<*mut c_void, AllocateTwo>(find(c"calloc")),
            realloc: transmute::<*mut c_void, Reallocate>(find(c"realloc")),
            aligned_alloc: transmute::<*mut c_void, AllocateTwo>(find(c"aligned_alloc")),
            posix_memalign: transmute::<*mut c_void, PosixMemalign>(find(c"posix_memalign")),
            free: transmute::<*mut c_void, Free>(find(c"free")),
            usable_size: transmute::<*mut c_void, UsableSize>(find(c"malloc_usable_size")),
        }
    }
}

/// Returns the next library's symbol. Without it there is no way to go on.
fn find(name: &CStr) -> *mut c_void {
    // SAFETY: the name is a C string.
    let symbol = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    if symbol.is_null() {
        crate::lines::say(format_args!("no allocator behind this one has {name:?}"));
        // SAFETY: ends the process.
        unsafe { libc::abort() };
    }
    symbol
}
