//! The ring that the kernel fills with records, seen from its reader's side.
//!
//! # Guarantee
//! Every byte that the kernel published is handed out once, in order, and only then given back for reuse.
//!
//! # Protocol
//! The kernel writes records, then publishes `data_head`; the reader reads `data_head`, then the records, then
//! publishes `data_tail`, up to which the kernel may overwrite. Both only grow; their low bits are places in the ring.

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use perf_event_open_sys::bindings::perf_event_mmap_page;

use crate::perf::Event;

const PAGE_BYTES: usize = 4096;

/// A mapped ring.
#[derive(Debug)]
pub(crate) struct Ring {
    base: NonNull<u8>,
    data_bytes: usize,
}

// SAFETY: the mapping belongs to this value alone and is not bound to a thread.
unsafe impl Send for Ring {}

impl Ring {
    /// Maps a ring of `data_bytes`, a power of two of at least a page, for the event.
    pub(crate) fn map(event: &Event, data_bytes: usize) -> io::Result<Self> {
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        let len = data_bytes + PAGE_BYTES;
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, event.raw(), 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mapped at null"))?;
        Ok(Self { base, data_bytes })
    }

    /// Returns how many bytes of records it holds at most.
    pub(crate) fn data_bytes(&self) -> usize {
        self.data_bytes
    }

    /// Hands all published bytes to `take`, as one or two slices, and gives them back to the kernel.
    pub(crate) fn drain<E>(&mut self, mut take: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        // ORDER: Acquire pairs with the kernel's barrier before it publishes data_head: the records are visible.
        let head = self.word(std::mem::offset_of!(perf_event_mmap_page, data_head)).load(Ordering::Acquire);
        let tail_word = self.word(std::mem::offset_of!(perf_event_mmap_page, data_tail));
        // Relaxed: only this reader writes the tail.
        let tail = tail_word.load(Ordering::Relaxed);
        let (first, second) = self.published(tail, head);
        let taken = take(first).and_then(|()| take(second));
        // ORDER: Release pairs with the kernel's control dependency on data_tail: our reads are over.
        tail_word.store(head, Ordering::Release);
        taken
    }

    /// Returns the bytes between two places, the second slice being what wrapped around.
    fn published(&self, tail: u64, head: u64) -> (&[u8], &[u8]) {
        let len = head.wrapping_sub(tail) as usize;
        let start = tail as usize & (self.data_bytes - 1);
        let first = len.min(self.data_bytes - start);
        // SAFETY: the kernel published these bytes and leaves them alone until the tail passes them; both ranges lie
        // in the mapping, because a ring never holds more than its size.
        unsafe {
            let data = self.base.as_ptr().add(PAGE_BYTES);
            let first_part = std::slice::from_raw_parts(data.add(start), first);
            (first_part, std::slice::from_raw_parts(data, len - first))
        }
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: the word lies in the mapping's first page, aligned, and is shared with the kernel as an atomic.
        unsafe { &*self.base.as_ptr().add(offset).cast::<AtomicU64>() }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no slice into it outlives this value.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.data_bytes + PAGE_BYTES) };
    }
}
