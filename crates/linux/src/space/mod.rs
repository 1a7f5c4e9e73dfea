//! The host's own address space, by real system calls.
//!
//! # Guarantee
//! Each method is the system call of its name, or a plain access, in the calling process; an error is its number. The C
//! library's malloc is the host's malloc.
//!
//! # Who calls it
//! Processes that `family` made for one run and that end with it: a program's mappings, heap end and files are theirs
//! alone. Accesses outside what the program mapped end such a process, as they end any program.

mod family;
mod interrupt;
pub mod lineage;
mod placement;
pub mod probe;
mod progress;
mod raw;

pub use family::{ChildError, Family, Together};
pub use interrupt::{has_interrupt, limit_memory, on_interrupt, pass_on};
pub use placement::{Affinity, RunDelay, Usage};
pub use progress::{ProgressWatch, Stall};
pub use raw::RawCall;

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

/// A call's error number.
pub type Errno = i32;

/// What may be done with a mapping, as mmap's `prot`.
pub const READ: i32 = libc::PROT_READ;
/// Loads and stores.
pub const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;
/// Nothing.
pub const NOTHING: i32 = libc::PROT_NONE;

/// What stands behind a mapping.
#[derive(Clone, Copy, Debug)]
pub enum Behind {
    /// Zeros of its own.
    Nothing,
    /// A file, copied when it is stored to.
    Private(RawFd),
    /// A file, shared.
    Shared(RawFd),
}

fn last_errno() -> Errno {
    io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

fn check(result: i64) -> Result<u64, Errno> {
    u64::try_from(result).map_err(|_| last_errno())
}

/// Makes a mapping, at a fixed address in place of what is there, or anywhere.
pub fn mmap(fixed: Option<u64>, len_bytes: u64, prot: i32, behind: Behind) -> Result<u64, Errno> {
    let (kind, fd) = match behind {
        Behind::Nothing => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1),
        Behind::Private(fd) => (libc::MAP_PRIVATE, fd),
        Behind::Shared(fd) => (libc::MAP_SHARED, fd),
    };
    let flags = kind | fixed.map_or(0, |_| libc::MAP_FIXED);
    let address = ptr::without_provenance_mut(fixed.unwrap_or(0) as usize);
    // SAFETY: without an address, at a free place; with one, where the program has mapped before, in its own process.
    let start = unsafe { libc::mmap(address, len_bytes as usize, prot, flags, fd, 0) };
    if start == libc::MAP_FAILED { Err(last_errno()) } else { Ok(start.expose_provenance() as u64) }
}

fn start_of(range: &Range<u64>) -> (*mut libc::c_void, usize) {
    (ptr::with_exposed_provenance_mut(range.start as usize), (range.end - range.start) as usize)
}

/// Removes what is mapped in a range, which the program has mapped.
pub fn munmap(range: Range<u64>) -> Result<(), Errno> {
    let (start, len) = start_of(&range);
    // SAFETY: the range is the program's own; nobody else uses it.
    check(unsafe { libc::munmap(start, len) }.into()).map(drop)
}

/// Changes the rights of a range, which the program has mapped.
pub fn mprotect(range: Range<u64>, prot: i32) -> Result<(), Errno> {
    let (start, len) = start_of(&range);
    // SAFETY: the range is the program's own.
    check(unsafe { libc::mprotect(start, len, prot) }.into()).map(drop)
}

/// Drops the pages of a range, which the program has mapped.
pub fn discard(range: Range<u64>) -> Result<(), Errno> {
    let (start, len) = start_of(&range);
    // SAFETY: the range is the program's own.
    check(unsafe { libc::madvise(start, len, libc::MADV_DONTNEED) }.into()).map(drop)
}

/// Moves the heap's end, as the raw system call does; returns the end in force.
pub fn brk(end: u64) -> u64 {
    static OWN: Once = Once::new();
    OWN.call_once(keep_malloc_away);
    // SAFETY: malloc needs no more of the heap than it has.
    unsafe { libc::syscall(libc::SYS_brk, end) as u64 }
}

/// Gives malloc so much of the heap that it moves the heap's end no more: the program moves it.
fn keep_malloc_away() {
    const ENOUGH_BYTES: usize = 20 << 20;
    const MAPPED_BLOCKS_MOST: i32 = 65_536;
    // SAFETY: settings of this process's malloc; the block is freed at once.
    unsafe {
        libc::mallopt(libc::M_TRIM_THRESHOLD, i32::MAX);
        libc::mallopt(libc::M_MMAP_MAX, 0);
        libc::free(libc::malloc(ENOUGH_BYTES));
        libc::mallopt(libc::M_MMAP_MAX, MAPPED_BLOCKS_MOST);
    }
}

fn word<'a>(address: u64) -> &'a AtomicU64 {
    debug_assert!(address.is_multiple_of(8), "{address:#x} is no word's address");
    // SAFETY: the address is one that the program mapped, and all its threads access it atomically. One that is not
    // mapped ends the process by a signal, as it would any program.
    unsafe { AtomicU64::from_ptr(ptr::with_exposed_provenance_mut(address as usize)) }
}

/// Loads a word.
#[inline]
pub fn load(address: u64) -> u64 {
    // Relaxed: a program's plain load.
    word(address).load(Ordering::Relaxed)
}

/// Stores a word.
#[inline]
pub fn store(address: u64, value: u64) {
    // Relaxed: a program's plain store.
    word(address).store(value, Ordering::Relaxed);
}

/// Copies bytes from one mapping of the program to another.
pub fn copy(from: u64, to: u64, len_bytes: u64) {
    let source: *const u8 = ptr::with_exposed_provenance(from as usize);
    let target: *mut u8 = ptr::with_exposed_provenance_mut(to as usize);
    // SAFETY: both are the program's, and it lets no thread store to either meanwhile.
    unsafe { ptr::copy_nonoverlapping(source, target, len_bytes as usize) }
}

/// Allocates by the C library.
pub fn malloc(len_bytes: u64) -> Result<u64, Errno> {
    // SAFETY: any size may be asked for.
    let address = unsafe { libc::malloc(len_bytes as usize) };
    if address.is_null() { Err(libc::ENOMEM) } else { Ok(address.expose_provenance() as u64) }
}

/// Frees what [`malloc`] gave.
pub fn free(address: u64) {
    // SAFETY: the program frees what it allocated, once.
    unsafe { libc::free(ptr::with_exposed_provenance_mut(address as usize)) }
}

/// Makes malloc take all blocks from its arenas (`M_MMAP_MAX` 0).
pub fn never_map_blocks() {
    // SAFETY: a setting of the C library's.
    unsafe { libc::mallopt(libc::M_MMAP_MAX, 0) };
}

/// Makes a file that lives in the page cache only.
pub fn memory_file() -> Result<File, Errno> {
    // SAFETY: the name is a C string; the descriptor is new and ours.
    unsafe {
        let fd = check(libc::memfd_create(c"faultless workload".as_ptr(), libc::MFD_CLOEXEC).into())?;
        Ok(File::from_raw_fd(fd as RawFd))
    }
}

/// Returns the ranges that this process has mapped.
pub fn mapped() -> io::Result<Vec<Range<u64>>> {
    let text = std::fs::read_to_string("/proc/self/maps")?;
    let range = |line: &str| {
        let (start, end) = line.split_whitespace().next()?.split_once('-')?;
        Some(u64::from_str_radix(start, 16).ok()?..u64::from_str_radix(end, 16).ok()?)
    };
    Ok(text.lines().filter_map(range).collect())
}

/// Says whether this process may fetch instructions at an address, as its list of areas has it.
pub fn is_executable(address: u64) -> io::Result<bool> {
    let text = std::fs::read_to_string("/proc/self/maps")?;
    let holds = |line: &str| {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let range = u64::from_str_radix(start, 16).ok()?..u64::from_str_radix(end, 16).ok()?;
        Some(range.contains(&address) && rest.as_bytes().get(2) == Some(&b'x'))
    };
    Ok(text.lines().filter_map(holds).any(|holds| holds))
}

/// Opens a file anew, with a position of its own.
pub fn reopen(file: &File) -> Result<File, Errno> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let opened = std::fs::OpenOptions::new().read(true).write(true).open(path);
    opened.map_err(|error| error.raw_os_error().unwrap_or(libc::EIO))
}

/// Reads at the file's position.
pub fn read(fd: RawFd, into: u64, len_bytes: u64) -> Result<u64, Errno> {
    // SAFETY: the buffer is a mapping of the program's own.
    check(unsafe { libc::read(fd, ptr::with_exposed_provenance_mut(into as usize), len_bytes as usize) } as i64)
}

/// Sets a file's position to its begin.
pub fn rewind(fd: RawFd) -> Result<(), Errno> {
    // SAFETY: no memory is involved.
    check(unsafe { libc::lseek(fd, 0, libc::SEEK_SET) }).map(drop)
}

/// Makes a child that lives `life` and ends; waits for its end. The child's failure is its errno.
pub fn fork(life: impl FnOnce() -> Result<(), Errno>) -> Result<(), Errno> {
    // SAFETY: the child makes system calls and plain accesses only, then ends without running destructors.
    match unsafe { libc::fork() } {
        -1 => Err(last_errno()),
        0 => {
            let code = life().err().unwrap_or(0);
            // SAFETY: ends the child.
            unsafe { libc::_exit(code) }
        }
        child => wait_for(child),
    }
}

fn wait_for(child: libc::pid_t) -> Result<(), Errno> {
    let mut status = 0;
    loop {
        // SAFETY: the child is ours, and the status is written to our own variable.
        match unsafe { libc::waitpid(child, &raw mut status, 0) } {
            -1 if last_errno() == libc::EINTR => {}
            -1 => return Err(last_errno()),
            _ if libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0 => return Ok(()),
            _ if libc::WIFEXITED(status) => return Err(libc::WEXITSTATUS(status)),
            _ => return Err(libc::EFAULT),
        }
    }
}
