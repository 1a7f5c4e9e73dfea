//! Patterned memory by userfaultfd: a thread copies the pattern into each page that faults.
//!
//! The alternative that the proposal's thread named and did not measure.

use crate::child::{self, Memory};
use std::io::Error as IoError;

const PAGE: usize = 4096;
const UFFD_USER_MODE_ONLY: i32 = 1;
const UFFD_API: u64 = 0xAA;
const UFFDIO_API: u64 = 0xC018_AA3F;
const UFFDIO_REGISTER: u64 = 0xC020_AA00;
const UFFDIO_COPY: u64 = 0xC028_AA03;
const MODE_MISSING: u64 = 1;
const EVENT_PAGEFAULT: u8 = 0x12;

/// Memory whose faults a thread serves, until the process ends.
pub(crate) struct Served {
    start: *mut u8,
    len: usize,
}

impl Served {
    /// Returns the memory.
    pub fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: mapped by `serve`, for as long as the process lives.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len) }
    }
}

/// Maps memory that a thread of its own patterns.
pub(crate) fn serve(len: usize, content: &[u8]) -> Result<Served, String> {
    let Memory::Anonymous(start, len) = child::map_anonymous(len)? else {
        return Err("no anonymous memory".into());
    };
    let fd = open()?;
    control(fd, UFFDIO_API, &mut [UFFD_API, 0, 0])?;
    control(fd, UFFDIO_REGISTER, &mut [start.addr() as u64, len as u64, MODE_MISSING, 0])?;
    // One period, so that each page finds its phase.
    let pages = (1..).find(|pages| (pages * PAGE).is_multiple_of(content.len())).unwrap_or(1);
    let mut source = vec![0; pages * PAGE];
    child::fill(&mut source, content);
    let first = start.addr();
    std::thread::spawn(move || serve_faults(fd, first, &source));
    Ok(Served { start, len })
}

fn open() -> Result<i32, String> {
    let call = |flags: i32| {
        // SAFETY: makes a descriptor.
        unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | flags) as i32 }
    };
    // Without privileges a newer kernel serves faults of user mode alone, which is all of them here.
    match call(0) {
        -1 => match call(UFFD_USER_MODE_ONLY) {
            -1 => Err(format!("userfaultfd: {}", IoError::last_os_error())),
            fd => Ok(fd),
        },
        fd => Ok(fd),
    }
}

fn control(fd: i32, request: u64, words: &mut [u64]) -> Result<(), String> {
    // SAFETY: each request's structure is as many words as its number says.
    match unsafe { libc::ioctl(fd, request, words.as_mut_ptr()) } {
        -1 => Err(format!("userfaultfd ioctl: {}", IoError::last_os_error())),
        _ => Ok(()),
    }
}

fn serve_faults(fd: i32, first: usize, source: &[u8]) {
    let mut message = [0_u64; 4];
    loop {
        // SAFETY: a message is 32 bytes.
        let got = unsafe { libc::read(fd, message.as_mut_ptr().cast(), 32) };
        if got != 32 || message[0] as u8 != EVENT_PAGEFAULT {
            return;
        }
        let page = message[2] as usize / PAGE * PAGE;
        let from = &source[(page - first) % source.len()];
        let mut copy = [page as u64, std::ptr::from_ref(from).addr() as u64, PAGE as u64, 0, 0];
        // It fails only where another thread's fault has brought the page already.
        let _ = control(fd, UFFDIO_COPY, &mut copy);
    }
}
