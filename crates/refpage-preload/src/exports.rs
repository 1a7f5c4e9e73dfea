//! The functions that the program calls instead of libc's.
//!
//! # Guarantee
//! Each behaves as its manual page says; errno is set on failure and left alone otherwise (P4).

use crate::large;
use crate::next::{self, Next, malloc_of_known, next};
use crate::settings::{Settings, Treatment, passes, settings};
use crate::{boot, pool, report};
use faultless_refpage::{RawMapping, keeping_errno, set_errno};
use std::ffi::{c_int, c_void};
use std::ptr;

/// malloc(3).
///
/// # Safety
/// As malloc(3).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn malloc(len: usize) -> *mut c_void {
    if passes(len) {
        // SAFETY: something passes only once the next allocator is known.
        let memory = unsafe { malloc_of_known(len) };
        return if memory.is_null() { retry(len) } else { memory };
    }
    match next() {
        Some(next) => allocate(next, len, 1).cast(),
        None => boot::allocate(len).cast(),
    }
}

/// calloc(3): always zero, so always the next allocator's.
///
/// # Safety
/// As calloc(3).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn calloc(count: usize, len: usize) -> *mut c_void {
    let total = count.saturating_mul(len);
    match next() {
        Some(next) => {
            if let Some(settings) = asked(total) {
                report::count(settings, total);
            }
            // SAFETY: calloc takes any numbers.
            unsafe { (next.calloc)(count, len) }
        }
        None => boot::allocate(total).cast(),
    }
}

/// realloc(3).
///
/// # Safety
/// As realloc(3).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn realloc(pointer: *mut c_void, len: usize) -> *mut c_void {
    // SAFETY: the caller's promise, in each.
    unsafe {
        if let (true, true, Some(next)) = (is_theirs(pointer), passes(len), next()) {
            return (next.realloc)(pointer, len);
        }
        reallocate(pointer, len)
    }
}

/// # Safety
/// As realloc(3).
#[inline(never)]
unsafe fn reallocate(pointer: *mut c_void, len: usize) -> *mut c_void {
    // SAFETY: the caller's promise, in each.
    unsafe {
        if pointer.is_null() {
            return malloc(len);
        }
        if let Some(room) = boot::room_behind(pointer.cast()) {
            return move_to_new(pointer, room, len, malloc(len));
        }
        // Only a mapping of ours was ever handed out before the next allocator was known.
        let Some(next) = next() else { return ptr::null_mut() };
        match large::find(pointer.cast()) {
            Some(_) => reallocate_ours(next, pointer, len),
            None => reallocate_theirs(next, pointer, len),
        }
    }
}

/// aligned_alloc(3).
///
/// # Safety
/// As aligned_alloc(3).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn aligned_alloc(align: usize, len: usize) -> *mut c_void {
    match next() {
        Some(next) if passes(len) || !align.is_power_of_two() => {
            // SAFETY: aligned_alloc refuses what it does not like.
            unsafe { (next.aligned_alloc)(align, len) }
        }
        Some(next) => allocate(next, len, align.max(2)).cast(),
        None => ptr::null_mut(),
    }
}

/// posix_memalign(3).
///
/// # Safety
/// As posix_memalign(3).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn posix_memalign(result: *mut *mut c_void, align: usize, len: usize) -> c_int {
    let Some(next) = next() else { return libc::ENOMEM };
    let is_valid = align.is_power_of_two() && align.is_multiple_of(size_of::<*mut c_void>());
    if passes(len) || !is_valid {
        // SAFETY: the caller's promise.
        return unsafe { (next.posix_memalign)(result, align, len) };
    }
    let pointer = keeping_errno(|| allocate(next, len, align));
    if pointer.is_null() {
        return libc::ENOMEM;
    }
    // SAFETY: the caller's promise.
    unsafe { *result = pointer.cast() };
    0
}

/// free(3).
///
/// # Safety
/// As free(3).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn free(pointer: *mut c_void) {
    if is_theirs(pointer) {
        // SAFETY: the caller's promise: it is the next allocator's.
        return unsafe { next::free(pointer) };
    }
    free_if_ours(pointer);
}

/// `extern`, so that the two ways of `free` are two jumps.
#[cold]
#[inline(never)]
extern "C" fn free_if_ours(pointer: *mut c_void) {
    match large::take(pointer.cast()) {
        // SAFETY: the program gave the mapping up.
        Some(raw) => keeping_errno(|| unsafe { free_ours(raw) }),
        None if pointer.is_null() || boot::room_behind(pointer.cast()).is_some() => {}
        // SAFETY: the program's promise: it is the next allocator's.
        None => unsafe { next::free(pointer) },
    }
}

/// Returns whether a look at the pointer shows that it is the next allocator's.
#[inline]
fn is_theirs(pointer: *mut c_void) -> bool {
    !large::can_be_ours(pointer.cast())
}

/// malloc_usable_size(3).
///
/// # Safety
/// As malloc_usable_size(3).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn malloc_usable_size(pointer: *mut c_void) -> usize {
    if let Some(raw) = large::find(pointer.cast()) {
        return raw.len();
    }
    match (boot::room_behind(pointer.cast()), next()) {
        (None, Some(next)) => {
            // SAFETY: the caller's promise: it is the next allocator's, or null.
            unsafe { (next.usable_size)(pointer) }
        }
        _ => 0,
    }
}

/// Tries once more after the address space of empty pools was given back.
#[cold]
fn retry(len: usize) -> *mut c_void {
    match settings() {
        // SAFETY: as in `malloc`.
        Some(settings) if pool::retire_empty(&settings.pages) => unsafe { malloc_of_known(len) },
        _ => ptr::null_mut(),
    }
}

/// Returns the settings, if an allocation of this length needs them.
fn asked(len: usize) -> Option<&'static Settings> {
    if passes(len) { None } else { settings() }
}

/// Allocates as the settings say; `align` is 1 for malloc's own.
fn allocate(next: &Next, len: usize, align: usize) -> *mut u8 {
    let Some(settings) = settings() else { return plain(next, len, align) };
    report::count(settings, len);
    match settings.treatment(len) {
        Treatment::Map => fail_if_null(keeping_errno(|| large::allocate(settings, next, len, align))),
        Treatment::Pass => plain(next, len, align),
        Treatment::Fill => {
            let memory = plain(next, len, align);
            // SAFETY: the next allocator's fresh memory, or null.
            unsafe { fill_from(settings, next, memory, 0) };
            memory
        }
    }
}

fn plain(next: &Next, len: usize, align: usize) -> *mut u8 {
    // SAFETY: both take any length; an alignment other than 1 was checked by the caller.
    unsafe {
        match align {
            1 => (next.malloc)(len).cast(),
            align => (next.aligned_alloc)(align, len).cast(),
        }
    }
}

/// Fills memory of the next allocator from byte `start` on, to its end.
///
/// # Safety
/// `memory` is null or the next allocator's, and nobody uses those bytes.
unsafe fn fill_from(settings: &Settings, next: &Next, memory: *mut u8, start: usize) {
    if memory.is_null() {
        return;
    }
    // SAFETY: the caller's promise.
    unsafe {
        let len = (next.usable_size)(memory.cast());
        if start < len {
            settings.pages.fill(memory.add(start), len - start, start);
            report::count_filled(settings, len - start);
        }
    }
}

/// # Safety
/// The pointer is the start of a mapping of ours, which the program gives up.
unsafe fn reallocate_ours(next: &Next, pointer: *mut c_void, len: usize) -> *mut c_void {
    let Some(settings) = settings() else { return ptr::null_mut() };
    // SAFETY: the caller's promise.
    unsafe {
        if len > 0 && len < settings.threshold {
            let room = malloc_usable_size(pointer);
            let moved = move_to_new(pointer, room, len, malloc(len));
            if !moved.is_null() {
                free(pointer);
            }
            return moved;
        }
        let Some(raw) = large::take(pointer.cast()) else { return ptr::null_mut() };
        if len == 0 {
            keeping_errno(|| free_ours(raw));
            return ptr::null_mut();
        }
        report::count(settings, len.saturating_sub(raw.len()));
        let moved = keeping_errno(|| large::reallocate(settings, next, raw, len));
        fail_if_null(moved).cast()
    }
}

/// # Safety
/// The pointer is the next allocator's.
unsafe fn reallocate_theirs(next: &Next, pointer: *mut c_void, len: usize) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe {
        let Some(settings) = asked(len) else { return (next.realloc)(pointer, len) };
        let room = (next.usable_size)(pointer);
        report::count(settings, len.saturating_sub(room));
        match settings.treatment(len) {
            Treatment::Map if len > room => {
                let fresh = keeping_errno(|| large::allocate_from(settings, next, len, 1, room));
                let moved = move_to_new(pointer, room, len, fail_if_null(fresh).cast());
                if !moved.is_null() {
                    (next.free)(pointer);
                }
                moved
            }
            Treatment::Fill => {
                let moved = (next.realloc)(pointer, len);
                fill_from(settings, next, moved.cast(), room);
                moved
            }
            _ => (next.realloc)(pointer, len),
        }
    }
}

/// Copies what fits to fresh memory, and returns that; null stays null.
///
/// # Safety
/// `room` bytes from `from` on are readable, and `len` bytes from `to` on writable.
unsafe fn move_to_new(from: *mut c_void, room: usize, len: usize, to: *mut c_void) -> *mut c_void {
    if !to.is_null() {
        // SAFETY: the caller's promise.
        unsafe { to.cast::<u8>().copy_from_nonoverlapping(from.cast(), room.min(len)) };
    }
    to
}

/// # Safety
/// The program gave the mapping up.
unsafe fn free_ours(raw: RawMapping) {
    if let (Some(settings), Some(next)) = (settings(), next()) {
        // SAFETY: the caller's promise.
        unsafe { large::release(settings, next, raw) };
    }
}

fn fail_if_null(pointer: *mut u8) -> *mut u8 {
    if pointer.is_null() {
        set_errno(libc::ENOMEM);
    }
    pointer
}
