//! Patterned allocations.
//!
//! # Guarantee
//! A pointer that `allocate` or `reallocate` returns begins a mapping of ours, or, where tiles are
//! impossible, memory of the next allocator that was filled. Where filling would take too much
//! memory, it is the next allocator's memory as it is: no allocation fails that would succeed
//! without this library.

use crate::boot::PAGE;
use crate::next::Next;
use crate::settings::Settings;
use crate::{pool, report};
use faultless_refpage::{Error, RawMapping, Registry, fits_in_memory, round_to_pages};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The mappings whose pointers the program holds (P2).
pub(crate) static MAPPINGS: Registry = Registry::new();

/// glibc learns from no longer block than this.
const LONGEST_TAUGHT: usize = 32 << 20;

/// Returns whether a pointer may begin a mapping (P1), or be null.
#[inline]
pub(crate) fn can_be_ours(pointer: *mut u8) -> bool {
    pointer.addr().is_multiple_of(PAGE)
}

/// Returns the mapping that begins at a pointer.
#[inline]
pub(crate) fn find(pointer: *mut u8) -> Option<RawMapping> {
    if can_be_ours(pointer) { MAPPINGS.find(pointer) } else { None }
}

/// Removes and returns the mapping that begins at a pointer.
#[inline]
pub(crate) fn take(pointer: *mut u8) -> Option<RawMapping> {
    if can_be_ours(pointer) { MAPPINGS.remove(pointer) } else { None }
}

/// Returns patterned memory.
pub(crate) fn allocate(settings: &Settings, next: &Next, len: usize, align: usize) -> *mut u8 {
    allocate_from(settings, next, len, align, 0)
}

/// Returns memory that is patterned from byte `start` on; the caller writes what is before.
pub(crate) fn allocate_from(settings: &Settings, next: &Next, len: usize, align: usize, start: usize) -> *mut u8 {
    report::count_patterned(settings, len);
    if let Some(run) = from_pool(settings, len, align, start) {
        return run.address();
    }
    let first = map(settings, len, align);
    let mapped = match first {
        Err(_) if pool::retire_empty(&settings.pages) => map(settings, len, align),
        first => first,
    };
    match mapped {
        Ok(raw) => raw.address(),
        Err(why) => fill_instead(settings, next, len, align, &why),
    }
}

/// Returns a run of a pool that is the pattern from byte `start` on.
fn from_pool(settings: &Settings, len: usize, align: usize, start: usize) -> Option<RawMapping> {
    if align > PAGE {
        return None;
    }
    let run = pool::allocate(settings, len, start)?;
    if MAPPINGS.insert(&run).is_ok() {
        return Some(run);
    }
    pool::release(settings, &run, 0);
    None
}

/// Frees a mapping or a run.
///
/// # Safety
/// It was taken from [`MAPPINGS`] by the caller, and the program gave it up.
pub(crate) unsafe fn release(settings: &Settings, next: &Next, raw: RawMapping) {
    teach(next, raw.len());
    if !pool::release(settings, &raw, 0) {
        // SAFETY: the caller's promise.
        unsafe { settings.pages.unmap_raw(raw) };
    }
}

/// Lets the next allocator see that a block of this length was freed.
///
/// glibc's keeps the more free memory the longer the blocks are that it has seen freed. Since the
/// long ones come from here, it would see none, and give memory of small blocks back to the system
/// again and again which without this library it keeps.
fn teach(next: &Next, len: usize) {
    static LONGEST: AtomicUsize = AtomicUsize::new(0);
    // Relaxed, here and below: a number on its own.
    if len <= LONGEST.load(Ordering::Relaxed) || len > LONGEST_TAUGHT {
        return;
    }
    LONGEST.fetch_max(len, Ordering::Relaxed);
    // SAFETY: malloc takes any length, free what malloc returned.
    unsafe { (next.free)((next.malloc)(len)) };
}

fn map(settings: &Settings, len: usize, align: usize) -> Result<RawMapping, Error> {
    let raw = settings.pages.map_raw(len, align)?;
    match MAPPINGS.insert(&raw) {
        Ok(()) => Ok(raw),
        Err(error) => {
            // SAFETY: nobody else knows the mapping.
            unsafe { settings.pages.unmap_raw(raw) };
            Err(error)
        }
    }
}

#[cold]
fn fill_instead(settings: &Settings, next: &Next, len: usize, align: usize, why: &Error) -> *mut u8 {
    let fills = may_fill(len, why);
    if fills {
        settings.pages.notice(why);
    } else {
        report::warn_of_passing(settings, why);
    }
    // SAFETY: any length will do for malloc; the alignment was checked by the caller.
    let memory: *mut u8 = unsafe {
        match align {
            1 => (next.malloc)(len).cast(),
            align => (next.aligned_alloc)(align, len).cast(),
        }
    };
    match fills {
        _ if memory.is_null() => {}
        true => {
            // SAFETY: the next allocator's fresh memory.
            unsafe { settings.pages.fill(memory, len, 0) };
            report::count_filled(settings, len);
        }
        false => report::count_passed(settings, len),
    }
    memory
}

/// Says whether an allocation may be filled, which needs memory for every page.
///
/// A program that has used up its areas is likely to be one that reserves much and uses little of it.
/// Each of its allocations may be small beside the system's memory, and all of them more than there
/// is; so what is filled for want of areas is added up, and patterning stops at a sixteenth.
fn may_fill(len: usize, why: &Error) -> bool {
    static WITHOUT_AREAS: AtomicUsize = AtomicUsize::new(0);
    if !fits_in_memory(len, why) {
        return false;
    }
    if !matches!(why, Error::Areas { .. }) {
        return true;
    }
    // Relaxed: a sum on its own.
    let sum = WITHOUT_AREAS.fetch_add(len, Ordering::Relaxed).saturating_add(len);
    // The library's limit for want of areas is a 64th.
    let fits = fits_in_memory(sum / 4, why);
    if !fits {
        WITHOUT_AREAS.fetch_sub(len, Ordering::Relaxed);
    }
    fits
}

/// Makes a mapping longer or shorter; null, and the mapping as it was, where that is impossible.
///
/// # Safety
/// `raw` was taken from [`MAPPINGS`] by the caller, for a pointer that the program gave up.
pub(crate) unsafe fn reallocate(settings: &Settings, next: &Next, raw: RawMapping, len: usize) -> *mut u8 {
    if pool::has(&raw) {
        // SAFETY: the caller's promise.
        return unsafe { resize_run(settings, next, raw, len) };
    }
    // SAFETY: the caller's promise.
    let resized = unsafe { resize(settings, raw, len) };
    match resized {
        Ok(resized) => resized.address(),
        // SAFETY: as above; a resize that failed changed nothing.
        Err(why) => unsafe { copy_instead(settings, next, raw, len, &why) },
    }
}

/// # Safety
/// As for `reallocate`; `run` is a pool's.
unsafe fn resize_run(settings: &Settings, next: &Next, run: RawMapping, len: usize) -> *mut u8 {
    let in_place = match round_to_pages(len) {
        Some(whole) if whole <= run.len() => {
            pool::release(settings, &run, whole);
            let tile_len = run.tile_len().unwrap_or(whole);
            Some(RawMapping::from_parts(run.address(), whole, run.kind(), tile_len))
        }
        _ => pool::extend(settings, &run, len),
    };
    // The slot exists already, so this cannot fail.
    let _ = MAPPINGS.insert(&in_place.unwrap_or(run));
    if let Some(resized) = in_place {
        return resized.address();
    }
    let memory = allocate_from(settings, next, len, 1, run.len());
    if !memory.is_null() {
        // SAFETY: the caller's promise; the new one is longer.
        unsafe {
            memory.copy_from_nonoverlapping(run.address(), run.len());
            MAPPINGS.remove(run.address());
            release(settings, next, run);
        }
    }
    memory
}

/// # Safety
/// As for `reallocate`.
unsafe fn resize(settings: &Settings, raw: RawMapping, len: usize) -> Result<RawMapping, Error> {
    let pages = &settings.pages;
    let whole = round_to_pages(len).ok_or(Error::TooLarge { len })?;
    // SAFETY: the caller's promise.
    unsafe {
        let resized = match whole <= raw.len() {
            true => pages.resize_raw(raw, whole)?,
            false => match pages.grow_in_place(&raw, whole) {
                Some(grown) => grown,
                // The new place is in the registry before the old one goes, as that can fail.
                None => pages.move_into(raw, map(settings, whole, 1)?),
            },
        };
        // The slot exists already, so this cannot fail.
        MAPPINGS.insert(&resized)?;
        Ok(resized)
    }
}

/// # Safety
/// As for `reallocate`.
#[cold]
unsafe fn copy_instead(settings: &Settings, next: &Next, raw: RawMapping, len: usize, why: &Error) -> *mut u8 {
    let memory = fill_instead(settings, next, len, 1, why);
    // SAFETY: the caller's promise; both are at least as long as the shorter of the two.
    unsafe {
        if memory.is_null() {
            // The slot exists already, so this cannot fail.
            let _ = MAPPINGS.insert(&raw);
            return memory;
        }
        memory.copy_from_nonoverlapping(raw.address(), len.min(raw.len()));
        settings.pages.unmap_raw(raw);
    }
    memory
}
