//! The system calls, each under a name that says what it is for here.
//!
//! # Guarantee
//! Only calls and flags of Linux 5.4 are *needed*. Of the two newer ones, `MFD_NOEXEC_SEAL` (6.3) is
//! dropped where the kernel does not know it, and without `MADV_POPULATE_WRITE` (5.14) pages are
//! copied by the stores. Nothing here allocates.

use std::io::Error as IoError;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The number that a failed call left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) i32);

/// Which file a descriptor leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) device: u64,
    pub(crate) inode: u64,
}

/// The seals that make a tile's content permanent (I1).
pub(crate) const TILE_SEALS: i32 = libc::F_SEAL_WRITE | libc::F_SEAL_GROW | libc::F_SEAL_SHRINK | libc::F_SEAL_SEAL;

/// Not executable, and sealed so: Linux 6.3 warns where neither this nor `MFD_EXEC` is given, and
/// refuses it under `vm.memfd_noexec=2`.
const MFD_NOEXEC_SEAL: u32 = 8;

/// Runs `call` and leaves errno as it was before.
pub fn keeping_errno<T>(call: impl FnOnce() -> T) -> T {
    // SAFETY: errno is this thread's.
    let before = unsafe { *libc::__errno_location() };
    let result = call();
    set_errno(before);
    result
}

/// Sets errno.
pub fn set_errno(errno: i32) {
    // SAFETY: errno is this thread's.
    unsafe { *libc::__errno_location() = errno };
}

fn last() -> Errno {
    Errno(IoError::last_os_error().raw_os_error().unwrap_or(0))
}

/// Returns the page's length.
pub(crate) fn page_len() -> usize {
    static PAGE: AtomicUsize = AtomicUsize::new(0);
    // Relaxed: the value is a constant that every thread would store alike.
    match PAGE.load(Relaxed) {
        0 => {
            // SAFETY: sysconf reads no memory of ours.
            let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
            PAGE.store(page, Relaxed);
            page
        }
        page => page,
    }
}

/// Rounds up to whole pages, unless that overflows.
pub fn round_to_pages(len: usize) -> Option<usize> {
    len.checked_next_multiple_of(page_len()).filter(|len| *len <= isize::MAX as usize)
}

fn checked(address: *mut libc::c_void) -> Result<*mut u8, Errno> {
    if address == libc::MAP_FAILED { Err(last()) } else { Ok(address.cast()) }
}

const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;
const PRIVATE: i32 = libc::MAP_PRIVATE | libc::MAP_NORESERVE;

/// Maps fresh anonymous memory, which reads as zero.
pub(crate) fn map_anonymous(len: usize) -> Result<*mut u8, Errno> {
    let flags = PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping at an address that the kernel chooses touches no memory of ours.
    checked(unsafe { libc::mmap(ptr::null_mut(), len, READ_WRITE, flags, -1, 0) })
}

/// Returns whether the process may have one more area: whether it gets a page that the kernel cannot
/// join with a neighbour, since shared memory is an object of its own.
pub(crate) fn has_area_left() -> bool {
    let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
    // SAFETY: as in `map_anonymous`.
    let page = checked(unsafe { libc::mmap(ptr::null_mut(), page_len(), libc::PROT_NONE, flags, -1, 0) });
    // SAFETY: nobody else knows the page.
    page.inspect(|page| unsafe { unmap(*page, page_len()) }).is_ok()
}

/// Reserves the address space at `address` if it is free.
pub(crate) fn reserve_at(address: *mut u8, len: usize) -> Result<(), Errno> {
    let flags = PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: NOREPLACE never replaces a mapping.
    let got = checked(unsafe { libc::mmap(address.cast(), len, libc::PROT_NONE, flags, -1, 0) })?;
    if got == address {
        return Ok(());
    }
    // SAFETY: a kernel that does not know the flag has put the fresh reservation elsewhere.
    unsafe { unmap(got, len) };
    Err(Errno(libc::EEXIST))
}

/// Maps a file privately at an address that the kernel chooses.
pub(crate) fn map_file(len: usize, fd: i32) -> Result<*mut u8, Errno> {
    // SAFETY: as in `map_anonymous`.
    checked(unsafe { libc::mmap(ptr::null_mut(), len, READ_WRITE, PRIVATE, fd, 0) })
}

/// Maps a file privately over a part of a reservation.
///
/// # Safety
/// The range belongs to the caller, who holds no reference into it.
pub(crate) unsafe fn map_file_at(address: *mut u8, len: usize, fd: i32, offset: usize) -> Result<(), Errno> {
    let flags = PRIVATE | libc::MAP_FIXED;
    // SAFETY: the caller's promise.
    let got = unsafe { libc::mmap(address.cast(), len, READ_WRITE, flags, fd, offset as libc::off_t) };
    checked(got).map(|_| ())
}

/// Unmaps a range.
///
/// # Safety
/// The range belongs to the caller, who holds no reference into it.
pub(crate) unsafe fn unmap(address: *mut u8, len: usize) {
    // SAFETY: the caller's promise. It fails only where it would split an area at the limit; then
    // the range stays mapped, which leaks address space and nothing else.
    unsafe { libc::munmap(address.cast(), len) };
}

/// Moves one area, with its pages, onto a range that is mapped already.
///
/// # Safety
/// Both ranges belong to the caller, who holds no reference into them.
pub(crate) unsafe fn move_onto(from: *mut u8, to: *mut u8, len: usize) -> Result<(), Errno> {
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    let target = to.cast::<libc::c_void>();
    // SAFETY: the caller's promise.
    checked(unsafe { libc::mremap(from.cast(), len, len, flags, target) }).map(|_| ())
}

/// Gives advice on a range.
///
/// # Safety
/// The range belongs to the caller, who expects what the advice does to its content.
pub(crate) unsafe fn advise(address: *mut u8, len: usize, advice: i32) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    match unsafe { libc::madvise(address.cast(), len, advice) } {
        0 => Ok(()),
        _ => Err(last()),
    }
}

/// Makes a range read-only.
///
/// # Safety
/// The range belongs to the caller, who no longer writes to it.
pub(crate) unsafe fn make_read_only(address: *mut u8, len: usize) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    match unsafe { libc::mprotect(address.cast(), len, libc::PROT_READ) } {
        0 => Ok(()),
        _ => Err(last()),
    }
}

/// Creates an empty memfd that can be sealed.
pub(crate) fn create_memfd() -> Result<i32, Errno> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    match memfd(flags | MFD_NOEXEC_SEAL) {
        Err(Errno(libc::EINVAL)) => memfd(flags),
        done => done,
    }
}

fn memfd(flags: u32) -> Result<i32, Errno> {
    let name = c"faultless-refpage";
    // SAFETY: the name is a C string. By number, since C libraries of 5.4's time may lack the wrapper.
    let fd = unsafe { libc::syscall(libc::SYS_memfd_create, name.as_ptr(), flags) };
    if fd < 0 { Err(last()) } else { Ok(fd as i32) }
}

/// Writes all of `pieces`, again and again, until the file is `len` bytes long.
pub(crate) fn write_repeated(fd: i32, block: &[u8], len: usize) -> Result<(), Errno> {
    const PIECES: usize = 64;
    let piece = libc::iovec { iov_base: block.as_ptr() as *mut _, iov_len: block.len() };
    let mut done = 0;
    while done < len {
        let phase = done % block.len();
        let mut pieces = [piece; PIECES];
        pieces[0].iov_base = block[phase..].as_ptr() as *mut _;
        pieces[0].iov_len = block.len() - phase;
        let count = trim(&mut pieces, len - done);
        // SAFETY: each piece lies inside `block`, which the call only reads.
        let wrote = unsafe { libc::pwritev(fd, pieces.as_ptr(), count as i32, done as i64) };
        match wrote {
            wrote if wrote > 0 => done += wrote as usize,
            0 => return Err(Errno(libc::ENOSPC)),
            _ if last() == Errno(libc::EINTR) => {}
            _ => return Err(last()),
        }
    }
    Ok(())
}

/// Cuts the pieces to `len` bytes in all and returns how many are left.
fn trim(pieces: &mut [libc::iovec], mut len: usize) -> usize {
    for (index, piece) in pieces.iter_mut().enumerate() {
        piece.iov_len = piece.iov_len.min(len);
        len -= piece.iov_len;
        if len == 0 {
            return index + 1;
        }
    }
    pieces.len()
}

/// Adds the seals of a tile.
pub(crate) fn seal(fd: i32) -> Result<(), Errno> {
    // SAFETY: no memory is involved.
    match unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, TILE_SEALS) } {
        0 => Ok(()),
        _ => Err(last()),
    }
}

/// Returns the seals of a descriptor.
pub(crate) fn seals(fd: i32) -> Result<i32, Errno> {
    // SAFETY: no memory is involved.
    match unsafe { libc::fcntl(fd, libc::F_GET_SEALS) } {
        -1 => Err(last()),
        seals => Ok(seals),
    }
}

/// Descriptors are moved up to here, out of the way of programs that count on the lowest numbers,
/// but below 64, where the kernel would have to grow the process's table.
pub(crate) const LOWEST_FD: i32 = 48;

/// Moves a descriptor out of the program's way, if a number is left there.
pub(crate) fn moved_up(fd: i32) -> i32 {
    if fd >= LOWEST_FD {
        return fd;
    }
    match duplicate(fd, LOWEST_FD) {
        Ok(higher) => {
            close(fd);
            higher
        }
        Err(_) => fd,
    }
}

/// Duplicates a descriptor to the lowest number from `lowest` on, closed on exec.
pub(crate) fn duplicate(fd: i32, lowest: i32) -> Result<i32, Errno> {
    // SAFETY: no memory is involved.
    match unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, lowest) } {
        -1 => Err(last()),
        fd => Ok(fd),
    }
}

/// Closes a descriptor that is ours.
pub(crate) fn close(fd: i32) {
    // SAFETY: no memory is involved.
    unsafe { libc::close(fd) };
}

/// Returns which file a descriptor leads to, and how long it is.
pub(crate) fn identify(fd: i32) -> Result<(Identity, u64), Errno> {
    // SAFETY: all bytes zero is a `stat`.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: `stat` is writable and as long as the call expects.
    match unsafe { libc::fstat(fd, &mut stat) } {
        0 => Ok((Identity { device: stat.st_dev, inode: stat.st_ino }, stat.st_size as u64)),
        _ => Err(last()),
    }
}

/// Returns a soft limit of the process (`u64::MAX` is none).
pub(crate) fn soft_limit(resource: libc::__rlimit_resource_t) -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is writable.
    match unsafe { libc::getrlimit(resource, &mut limit) } {
        0 => limit.rlim_cur,
        _ => u64::MAX,
    }
}

/// Sleeps while `word` holds `expected`.
pub(crate) fn futex_wait(word: *const u32, expected: u32) {
    let nobody = ptr::null::<libc::timespec>();
    let call = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: `word` is mapped for the process's life.
    unsafe { libc::syscall(libc::SYS_futex, word, call, expected, nobody) };
}

/// Wakes one sleeper on `word`.
pub(crate) fn futex_wake(word: *const u32) {
    let call = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: `word` is mapped for the process's life.
    unsafe { libc::syscall(libc::SYS_futex, word, call, 1) };
}

/// Opens a file for reading.
pub(crate) fn open(path: &std::ffi::CStr) -> Result<i32, Errno> {
    // SAFETY: the path is a C string.
    match unsafe { libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) } {
        -1 => Err(last()),
        fd => Ok(fd),
    }
}

/// Reads words at an offset; returns how many.
pub(crate) fn read_words(fd: i32, words: &mut [u64], offset: usize) -> Result<usize, Errno> {
    let (start, len) = (words.as_mut_ptr().cast(), size_of_val(words));
    // SAFETY: the words are writable, and any bits are a word.
    match unsafe { libc::pread(fd, start, len, offset as libc::off_t) } {
        ..0 => Err(last()),
        got => Ok(got as usize / size_of::<u64>()),
    }
}

/// Reads the start of a small file of /proc into `buffer`.
pub(crate) fn read_small<'a>(path: &std::ffi::CStr, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
    let fd = open(path).ok()?;
    // SAFETY: the buffer is writable for its length.
    let got = unsafe { libc::read(fd, buffer.as_mut_ptr().cast(), buffer.len()) };
    close(fd);
    (got > 0).then(|| &buffer[..got as usize])
}
