//! Host memory in which frames live.

use core::ptr::NonNull;

/// A page-aligned range of host memory, reserved; the host gives it pages as they are touched.
///
/// What a program on Linux gives to `phys::Memory` as its frames:
///
/// ```
/// use faultless_platform::native::{HostRegion, ReserveError};
///
/// let region = HostRegion::reserve(64 << 20)?;
/// assert_eq!((region.base().addr().get() % 4096, region.len_bytes()), (0, 64 << 20));
/// // SAFETY: the byte is the region's.
/// assert_eq!(unsafe { region.base().read() }, 0);
/// # Ok::<(), ReserveError>(())
/// ```
#[derive(Debug)]
pub struct HostRegion {
    base: NonNull<u8>,
    len_bytes: usize,
}

/// The host refused to reserve memory.
#[derive(Debug)]
pub struct ReserveError {
    /// What was asked for.
    pub len_bytes: usize,
    /// The host's answer.
    pub cause: std::io::Error,
}

impl core::fmt::Display for ReserveError {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(out, "the host did not reserve {} bytes of memory: {}; ask for less", self.len_bytes, self.cause)
    }
}

impl core::error::Error for ReserveError {}

// SAFETY: the region is plain memory; who may access what is its user's business.
unsafe impl Send for HostRegion {}
// SAFETY: as above.
unsafe impl Sync for HostRegion {}

/// Alignment of a region: a huge page, so that the host can back it with huge pages.
const ALIGN_BYTES: usize = 2 << 20;

impl HostRegion {
    /// Reserves `len_bytes`, rounded up to 2 MiB; reads as zero, costs no memory until touched.
    pub fn reserve(len_bytes: usize) -> Result<Self, ReserveError> {
        let refuse = |cause| ReserveError { len_bytes, cause };
        let len = Self::rounded(len_bytes);
        let padded = len.and_then(|len| len.checked_add(ALIGN_BYTES));
        let (Some(len), Some(padded)) = (len, padded) else {
            return Err(refuse(std::io::Error::from(std::io::ErrorKind::OutOfMemory)));
        };
        let base = host::reserve(len, padded).map_err(refuse)?;
        Ok(Self { base, len_bytes: len })
    }

    /// Returns how long a region is that so many bytes were asked for; nothing if there is no such length.
    pub fn rounded(len_bytes: usize) -> Option<usize> {
        len_bytes.max(1).checked_next_multiple_of(ALIGN_BYTES)
    }

    /// Returns the first byte's address.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Returns the length in bytes.
    pub fn len_bytes(&self) -> usize {
        self.len_bytes
    }
}

impl Drop for HostRegion {
    fn drop(&mut self) {
        // SAFETY: reserved with this length, and its users borrowed this value.
        unsafe { host::release(self.base, self.len_bytes) };
    }
}

/// Memory by the host's mmap.
#[cfg(not(miri))]
mod host {
    use super::ALIGN_BYTES;
    use core::ptr::NonNull;
    use std::io::{Error, ErrorKind};

    /// Reserves `len` aligned bytes, cut from a mapping of `padded`.
    pub(super) fn reserve(len: usize, padded: usize) -> Result<NonNull<u8>, Error> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at a place of the kernel's choice.
        let start =
            unsafe { libc::mmap(core::ptr::null_mut(), padded, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(Error::last_os_error());
        }
        trim(start.cast(), padded, len).ok_or_else(|| ErrorKind::OutOfMemory.into())
    }

    /// Keeps the aligned `len` bytes of a mapping and asks for huge pages there.
    fn trim(start: *mut u8, padded: usize, len: usize) -> Option<NonNull<u8>> {
        let head = start.align_offset(ALIGN_BYTES);
        // SAFETY: all three ranges lie in the mapping just made, which nobody else knows.
        unsafe {
            let base = start.add(head);
            if head != 0 {
                libc::munmap(start.cast(), head);
            }
            if padded - head > len {
                libc::munmap(base.add(len).cast(), padded - head - len);
            }
            libc::madvise(base.cast(), len, libc::MADV_HUGEPAGE);
            NonNull::new(base)
        }
    }

    /// Gives the bytes back.
    ///
    /// # Safety
    /// `reserve` returned them for this length, and nobody uses them.
    pub(super) unsafe fn release(base: NonNull<u8>, len: usize) {
        // SAFETY: the caller's promise.
        unsafe { libc::munmap(base.as_ptr().cast(), len) };
    }
}

/// Memory by the global allocator: Miri knows neither aligned mappings nor advice, and sees every access past an
/// allocation.
#[cfg(miri)]
mod host {
    use super::ALIGN_BYTES;
    use core::ptr::NonNull;
    use std::alloc::{Layout, alloc_zeroed, dealloc};
    use std::io::{Error, ErrorKind};

    /// The most that the interpreter is asked for: it keeps every byte's history.
    const MOST_BYTES: usize = 1 << 30;

    pub(super) fn reserve(len: usize, _padded: usize) -> Result<NonNull<u8>, Error> {
        let layout = Layout::from_size_align(len, ALIGN_BYTES).ok().filter(|_| len <= MOST_BYTES);
        // SAFETY: a region has at least `ALIGN_BYTES`.
        let base = layout.map(|layout| unsafe { alloc_zeroed(layout) });
        base.and_then(NonNull::new).ok_or_else(|| ErrorKind::OutOfMemory.into())
    }

    pub(super) unsafe fn release(base: NonNull<u8>, len: usize) {
        // SAFETY: allocated with this layout, as the caller promises.
        unsafe { dealloc(base.as_ptr(), Layout::from_size_align_unchecked(len, ALIGN_BYTES)) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_is_aligned_zeroed_and_absurd_sizes_are_refused() {
        let region = HostRegion::reserve(5000).expect("two MiB fit");
        assert_eq!(region.len_bytes(), ALIGN_BYTES);
        assert_eq!(region.base().as_ptr().align_offset(ALIGN_BYTES), 0);
        // SAFETY: inside the region.
        assert_eq!(unsafe { region.base().as_ptr().add(4999).read() }, 0);
        assert!(HostRegion::reserve(usize::MAX - 5).is_err());
        assert!(HostRegion::reserve(1 << 60).is_err());
    }

    #[test]
    fn regions_leave_their_neighbours_alone() {
        // The host puts one below the other, into what was cut off the one before, once its holes are full.
        let regions: std::vec::Vec<_> =
            (0..if cfg!(miri) { 3 } else { 60 }).map(|_| HostRegion::reserve(ALIGN_BYTES).expect("little")).collect();
        for (number, region) in regions.iter().enumerate() {
            for place in [0, region.len_bytes() / 2, region.len_bytes() - 1] {
                // SAFETY: inside the region, which nobody else has.
                unsafe {
                    let byte = region.base().as_ptr().add(place);
                    assert_eq!(byte.read(), 0);
                    byte.write(number as u8 + 1);
                    assert_eq!(byte.read(), number as u8 + 1);
                }
            }
        }
    }
}
