//! The C interface: the functions of `include/faultless_refpage.h`.
//!
//! # Guarantee
//! No function here unwinds, allocates by malloc, or exports a name of libc. A failing function
//! sets errno (see `refpage_strerror`), a succeeding one leaves it alone.
//!
//! # Invariants
//! A pointer from `refpage_map` is in [`MAPPINGS`] until `refpage_unmap`, so that a wrong pointer,
//! or one that was unmapped already, is refused instead of followed.

use crate::options::Notice;
use crate::sys::{keeping_errno, set_errno};
use crate::{Error, Fallback, HugePages, Options, RefPage, Registry, TileLen, arena, lock};
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::os::fd::{BorrowedFd, IntoRawFd};
use std::ptr;

static MAPPINGS: Registry = Registry::new();

const FAIL_INSTEAD_OF_FILL: c_uint = 1;
const HUGE_PAGES: c_uint = 2;

/// `struct refpage_options` of the header.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CRefPageOptions {
    struct_size: usize,
    tile_len: usize,
    flags: c_uint,
    on_fallback: Option<extern "C" fn(c_int, *mut c_void)>,
    argument: *mut c_void,
}

/// Creates a pattern: `refpage_create` of the header.
///
/// # Safety
/// `content` points to `len` readable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn refpage_create(content: *const c_void, len: usize) -> *mut RefPage {
    // SAFETY: the caller's promise.
    unsafe { refpage_create_with(content, len, ptr::null()) }
}

/// Creates a pattern with choices: `refpage_create_with` of the header.
///
/// # Safety
/// `content` points to `len` readable bytes, `options` is null or points to options.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn refpage_create_with(
    content: *const c_void,
    len: usize,
    options: *const CRefPageOptions,
) -> *mut RefPage {
    // SAFETY: the caller's promise.
    let (options, content) = unsafe { (read_options(options), bytes(content, len)) };
    hand_out(|| options?.create(content))
}

/// Creates a pattern from another process's tile: `refpage_attach` of the header.
///
/// # Safety
/// `content` points to `len` readable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn refpage_attach(content: *const c_void, len: usize, fd: c_int) -> *mut RefPage {
    if fd < 0 {
        return fail(Error::NotSealed, ptr::null_mut());
    }
    // SAFETY: the descriptor is only looked at and duplicated; a closed one is refused.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    // SAFETY: the caller's promise.
    let content = unsafe { bytes(content, len) };
    hand_out(|| RefPage::attach(content, fd))
}

/// Returns a descriptor for `refpage_attach`: `refpage_share` of the header.
///
/// # Safety
/// `pages` is alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn refpage_share(pages: *const RefPage) -> c_int {
    // SAFETY: the caller's promise.
    answer(-1, || unsafe { alive(pages) }?.share().map(IntoRawFd::into_raw_fd))
}

/// Destroys a pattern; its mappings stay: `refpage_destroy` of the header.
///
/// # Safety
/// `pages` is null, or alive and not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn refpage_destroy(pages: *mut RefPage) {
    if pages.is_null() {
        return;
    }
    // SAFETY: the caller's promise; the record is read once and then freed.
    drop(unsafe { pages.read() });
    if let Ok(guard) = lock::lock() {
        // SAFETY: it came from `hand_out`.
        unsafe { arena::free(&guard, pages) };
    }
}

/// Maps fresh memory: `refpage_map` of the header.
///
/// # Safety
/// `pages` is alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn refpage_map(pages: *const RefPage, len: usize) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { refpage_map_aligned(pages, len, 1) }
}

/// Maps fresh memory at a multiple of `align`: `refpage_map_aligned` of the header.
///
/// # Safety
/// `pages` is alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn refpage_map_aligned(pages: *const RefPage, len: usize, align: usize) -> *mut c_void {
    // SAFETY: the caller's promise.
    answer(ptr::null_mut(), || map_registered(unsafe { alive(pages) }?, len, align))
}

fn map_registered(pages: &RefPage, len: usize, align: usize) -> Result<*mut c_void, Error> {
    let raw = pages.map_raw(len, align)?;
    match MAPPINGS.insert(&raw) {
        Ok(()) => Ok(raw.address().cast()),
        Err(error) => {
            // SAFETY: nobody else knows the mapping.
            unsafe { pages.unmap_raw(raw) };
            Err(error)
        }
    }
}

/// Returns a range of a mapping to its pattern: `refpage_reset` of the header.
///
/// # Safety
/// `pages` is alive and made the mapping, and nobody uses the range meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn refpage_reset(
    pages: *const RefPage,
    mapping: *mut c_void,
    offset: usize,
    len: usize,
) -> c_int {
    answer(-1, || {
        let raw = MAPPINGS.find(mapping.cast()).ok_or(not_a_mapping(mapping))?;
        let too_far = Error::OutOfRange { end: usize::MAX, len: raw.len() };
        let end = offset.checked_add(len).ok_or(too_far)?;
        // SAFETY: the caller's promise.
        unsafe { alive(pages)?.reset_raw(&raw, offset..end) }.map(|()| 0)
    })
}

/// Unmaps what `refpage_map` returned: `refpage_unmap` of the header.
///
/// # Safety
/// `pages` is alive and made the mapping, which nobody uses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn refpage_unmap(pages: *const RefPage, mapping: *mut c_void) -> c_int {
    answer(-1, || {
        // SAFETY: the caller's promise.
        let pages = unsafe { alive(pages) }?;
        let raw = MAPPINGS.remove(mapping.cast()).ok_or(not_a_mapping(mapping))?;
        // SAFETY: the caller's promise; `remove` gives a mapping out once.
        unsafe { pages.unmap_raw(raw) };
        Ok(0)
    })
}

/// Returns the length of a mapping, in whole pages, or 0: `refpage_size` of the header.
#[unsafe(no_mangle)]
pub extern "C" fn refpage_size(mapping: *const c_void) -> usize {
    MAPPINGS.find(mapping.cast_mut().cast()).map_or(0, |raw| raw.len())
}

/// Returns 1 for a mapping from tiles, 2 for a filled one, 3 for zero, 0 for another's:
/// `refpage_kind` of the header.
#[unsafe(no_mangle)]
pub extern "C" fn refpage_kind(mapping: *const c_void) -> c_int {
    let kind = MAPPINGS.find(mapping.cast_mut().cast()).map(|raw| raw.kind());
    kind.map_or(0, |kind| kind as c_int + 1)
}

/// Returns words for an errno of this library: `refpage_strerror` of the header.
#[unsafe(no_mangle)]
pub extern "C" fn refpage_strerror(errno: c_int) -> *const c_char {
    Error::text_of(errno).as_ptr()
}

/// Moves a pattern into a record of its own, without malloc (I5).
fn hand_out(make: impl FnOnce() -> Result<RefPage, Error>) -> *mut RefPage {
    answer(ptr::null_mut(), || {
        let pages = make()?;
        let record = arena::allocate::<RefPage>(&lock::lock()?)?;
        // SAFETY: the record is ours and long enough.
        unsafe { record.write(pages) };
        Ok(record)
    })
}

/// # Safety
/// `options` is null or points to options.
unsafe fn read_options(options: *const CRefPageOptions) -> Result<Options, Error> {
    // SAFETY: the caller's promise.
    let Some(given) = (unsafe { options.as_ref() }) else { return Ok(Options::new()) };
    let known = FAIL_INSTEAD_OF_FILL | HUGE_PAGES;
    if given.struct_size != size_of::<CRefPageOptions>() || given.flags & !known != 0 {
        return Err(Error::BadOptions);
    }
    let fails = given.flags & FAIL_INSTEAD_OF_FILL != 0;
    let has_huge_pages = given.flags & HUGE_PAGES != 0;
    Ok(Options {
        tile_len: if given.tile_len == 0 { TileLen::Auto } else { TileLen::AtLeast(given.tile_len) },
        fallback: if fails { Fallback::Fail } else { Fallback::Fill },
        huge_pages: if has_huge_pages { HugePages::System } else { HugePages::Off },
        notice: given.on_fallback.map_or(Notice::Nobody, |call| Notice::C(call, given.argument)),
    })
}

/// # Safety
/// `content` is null, or points to `len` bytes that stay readable during the call.
unsafe fn bytes<'a>(content: *const c_void, len: usize) -> &'a [u8] {
    if content.is_null() {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(content.cast(), len) }
}

/// # Safety
/// `pages` is null or alive.
unsafe fn alive<'a>(pages: *const RefPage) -> Result<&'a RefPage, Error> {
    // SAFETY: the caller's promise.
    unsafe { pages.as_ref() }.ok_or(Error::NotAMapping { address: 0 })
}

fn not_a_mapping(mapping: *mut c_void) -> Error {
    Error::NotAMapping { address: mapping.addr() }
}

/// Runs a call; errno stays as it was if it succeeds, and says why if it fails.
fn answer<T>(failed: T, call: impl FnOnce() -> Result<T, Error>) -> T {
    keeping_errno(call).unwrap_or_else(|error| fail(error, failed))
}

fn fail<T>(error: Error, answer: T) -> T {
    set_errno(error.errno());
    answer
}
