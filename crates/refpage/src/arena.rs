//! Records of fixed size, without the process's allocator (I5).
//!
//! # Guarantee
//! A record is [`CELL`] bytes long, aligned to it, and stays mapped for the process's life; a
//! record that was freed is handed out again.

use crate::lock::Guard;
use crate::{Error, sys};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

/// The length of a record.
pub(crate) const CELL: usize = 128;

struct Cell {
    next: AtomicPtr<Cell>,
}

// Relaxed throughout: whoever reads or writes the list holds the lock. Each step leaves a list that
// a forked child can go on with (I6).
static FREE: AtomicPtr<Cell> = AtomicPtr::new(ptr::null_mut());

/// Returns a record whose content is undefined.
pub(crate) fn allocate<T>(guard: &Guard) -> Result<*mut T, Error> {
    const { assert!(size_of::<T>() <= CELL && align_of::<T>() <= CELL) };
    if FREE.load(Relaxed).is_null() {
        add_page(guard)?;
    }
    let cell = FREE.load(Relaxed);
    // SAFETY: a cell on the list is mapped, and the lock is held.
    FREE.store(unsafe { (*cell).next.load(Relaxed) }, Relaxed);
    Ok(cell.cast())
}

/// Takes a record back.
///
/// # Safety
/// It came from `allocate`, and nobody uses it any more.
pub(crate) unsafe fn free<T>(_guard: &Guard, record: *mut T) {
    let cell = record.cast::<Cell>();
    // SAFETY: the caller's promise; a record is long enough for a cell.
    unsafe { cell.write(Cell { next: AtomicPtr::new(FREE.load(Relaxed)) }) };
    FREE.store(cell, Relaxed);
}

#[cold]
fn add_page(guard: &Guard) -> Result<(), Error> {
    let len = sys::page_len();
    let page = sys::map_anonymous(len).map_err(|_| Error::OutOfMemory { len })?;
    for index in 0..len / CELL {
        // SAFETY: the cell lies inside the fresh page.
        unsafe { free(guard, page.add(index * CELL)) };
    }
    Ok(())
}
