//! Frames in a file of memory, and addresses that lead to one of them at a time.
//!
//! # Guarantee
//! A window leads to the frame that it was mapped to last, in every thread, until it is unmapped; an access through one
//! that is not mapped gets `SIGSEGV`. No other memory of the process is touched.

use crate::PAGE_BYTES;
use core::ptr::{self, NonNull};
use std::io::Error;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Frames, and windows to them: what kernel maps are measured on, where a window is an address for a moment.
///
/// ```
/// use faultless_platform::native::HostWindows;
///
/// let windows = HostWindows::new(4, 2)?;
/// windows.map(0, 3)?;
/// windows.map(1, 3)?;
/// // SAFETY: both windows lead to frame 3.
/// unsafe {
///     windows.address(0).write(7);
///     assert_eq!(windows.address(1).read(), 7);
/// }
/// windows.unmap(0)?;
/// // SAFETY: there is a frame 3, and nobody else writes it.
/// assert_eq!(unsafe { windows.frame(3).read() }, 7);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct HostWindows {
    frames: OwnedFd,
    nr_frames: u32,
    base: NonNull<u8>,
    nr_windows: u32,
    /// All frames in a row.
    whole: NonNull<u8>,
}

// SAFETY: windows are mapped by calls that any thread may make; who may access what is their users' business.
unsafe impl Send for HostWindows {}
// SAFETY: as above.
unsafe impl Sync for HostWindows {}

const RIGHTS: i32 = libc::PROT_READ | libc::PROT_WRITE;

/// What keeps addresses without any memory behind them.
const EMPTY: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;

impl HostWindows {
    /// Returns frames filled with zeros, and windows that lead nowhere.
    pub fn new(nr_frames: u32, nr_windows: u32) -> Result<Self, Error> {
        // SAFETY: a new file; its name is a string of C.
        let file = unsafe { libc::memfd_create(c"faultless frames".as_ptr(), libc::MFD_CLOEXEC) };
        if file < 0 {
            return Err(Error::last_os_error());
        }
        // SAFETY: just made, and nobody else's.
        let frames = unsafe { OwnedFd::from_raw_fd(file) };
        // SAFETY: a call on a file of ours.
        if unsafe { libc::ftruncate(frames.as_raw_fd(), i64::from(nr_frames) * PAGE_BYTES as i64) } != 0 {
            return Err(Error::last_os_error());
        }
        let base = mapping(nr_windows, libc::PROT_NONE, EMPTY, -1)?;
        let file = frames.as_raw_fd();
        let whole = mapping(nr_frames, RIGHTS, libc::MAP_SHARED, file).inspect_err(|_| unmapping(base, nr_windows))?;
        Ok(Self { frames, nr_frames, base, nr_windows, whole })
    }

    /// Returns where a frame is found without any window: what the machine itself sees.
    ///
    /// # Panics
    /// If there is no such frame.
    pub fn frame(&self, frame: u32) -> NonNull<u8> {
        assert!(frame < self.nr_frames, "frame {frame} of {}", self.nr_frames);
        // SAFETY: it lies in the mapping.
        unsafe { self.whole.add(frame as usize * PAGE_BYTES) }
    }

    /// Returns a window's address.
    ///
    /// # Panics
    /// If there is no such window.
    pub fn address(&self, window: u32) -> NonNull<u8> {
        assert!(window < self.nr_windows, "window {window} of {}", self.nr_windows);
        // SAFETY: it lies in the mapping.
        unsafe { self.base.add(window as usize * PAGE_BYTES) }
    }

    /// Lets a window lead to a frame.
    ///
    /// # Panics
    /// If there is no such window or frame.
    pub fn map(&self, window: u32, frame: u32) -> Result<(), Error> {
        self.map_row(window, frame, 1)
    }

    /// Lets windows in a row lead to as many frames in a row: for whoever has memory of which a part always has
    /// addresses.
    ///
    /// # Panics
    /// If there are no such windows or frames, or these are none.
    pub fn map_row(&self, window: u32, frame: u32, nr_frames: u32) -> Result<(), Error> {
        let last = frame.checked_add(nr_frames).and_then(|end| end.checked_sub(1));
        let are_there = nr_frames > 0 && last.is_some_and(|last| last < self.nr_frames);
        assert!(are_there, "{nr_frames} frames from {frame} of {}", self.nr_frames);
        let (file, offset) = (self.frames.as_raw_fd(), i64::from(frame) * PAGE_BYTES as i64);
        self.replace(window, nr_frames, (RIGHTS, libc::MAP_SHARED), file, offset)
    }

    /// Lets a window lead nowhere.
    ///
    /// # Panics
    /// If there is no such window.
    pub fn unmap(&self, window: u32) -> Result<(), Error> {
        self.replace(window, 1, (libc::PROT_NONE, EMPTY), -1, 0)
    }

    fn replace(
        &self,
        window: u32,
        nr_windows: u32,
        (rights, kind): (i32, i32),
        file: i32,
        offset: i64,
    ) -> Result<(), Error> {
        let (address, len_bytes) = (self.address(window).as_ptr().cast(), nr_windows as usize * PAGE_BYTES);
        self.address(window.saturating_add(nr_windows - 1));
        // SAFETY: the windows are ours, and what was mapped there is given up.
        let mapped = unsafe { libc::mmap(address, len_bytes, rights, kind | libc::MAP_FIXED, file, offset) };
        if mapped == address { Ok(()) } else { Err(Error::last_os_error()) }
    }
}

/// Maps as many pages, at a place of the kernel's choice.
fn mapping(nr_pages: u32, rights: i32, kind: i32, file: i32) -> Result<NonNull<u8>, Error> {
    let len_bytes = nr_pages.max(1) as usize * PAGE_BYTES;
    // SAFETY: a new mapping.
    let base = unsafe { libc::mmap(ptr::null_mut(), len_bytes, rights, kind, file, 0) };
    NonNull::new(base.cast()).filter(|_| base != libc::MAP_FAILED).ok_or_else(Error::last_os_error)
}

/// Ends a mapping of as many pages, which nobody uses any more.
fn unmapping(base: NonNull<u8>, nr_pages: u32) {
    // SAFETY: mapped with this length, and its users borrowed what has it.
    unsafe { libc::munmap(base.as_ptr().cast(), nr_pages.max(1) as usize * PAGE_BYTES) };
}

impl Drop for HostWindows {
    fn drop(&mut self) {
        unmapping(self.base, self.nr_windows);
        unmapping(self.whole, self.nr_frames);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;
    use std::string::ToString;

    /// Returns how many pages of a file are mapped in this process.
    fn nr_mapped(inode: &str) -> usize {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("Linux has it");
        let of_file = maps.lines().filter(|line| line.split_whitespace().nth(4) == Some(inode));
        of_file.filter(|line| line.contains("faultless frames")).count()
    }

    #[test]
    fn windows_that_are_dropped_are_unmapped() {
        let windows = HostWindows::new(3, 3).expect("the host has room");
        let file = std::fs::File::from(windows.frames.try_clone().expect("another descriptor"));
        let inode = file.metadata().expect("it is open").ino().to_string();
        // Mappings of their own, because no two lead to frames in a row.
        for window in 0..3 {
            windows.map(window, 2 - window).expect("there are both");
        }
        // And one of all frames.
        assert_eq!(nr_mapped(&inode), 3 + 1);
        windows.unmap(1).expect("there is one");
        assert_eq!(nr_mapped(&inode), 2 + 1);
        drop(windows);
        assert_eq!(nr_mapped(&inode), 0);
    }
}
