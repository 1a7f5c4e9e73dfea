//! The `bpf` system call: arrays that the kernel shares with this process, and programs that it runs.
//!
//! # Guarantee
//! What is made here ends with its descriptor: a program is detached when its [`Attached`] is dropped.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use super::assembly::Instruction;

const MAP_CREATE: libc::c_int = 0;
const MAP_UPDATE: libc::c_int = 2;
const PROGRAM_LOAD: libc::c_int = 5;
const RAW_TRACEPOINT_OPEN: libc::c_int = 17;

const MAP_ARRAY: u32 = 2;
const MAP_PERF_EVENTS: u32 = 4;
/// The array can be mapped into a process.
const MAPPABLE: u32 = 1 << 10;

const PROGRAM_TRACING: u32 = 26;
const ATTACH_TRACEPOINT: u32 = 23;

/// The helpers that a program calls are open to programs of such a license alone.
const LICENSE: &CStr = c"Dual MIT/GPL";

/// So much of what the verifier says of a program that it refuses is kept.
const LOG_BYTES: usize = 64 << 10;

/// Arrays of words, seen by programs and by this process.
#[derive(Debug)]
pub(super) struct Words {
    fd: OwnedFd,
    place: NonNull<AtomicU64>,
    nr_values: usize,
    /// The words of one.
    nr_words: usize,
}

// SAFETY: the words are atomic, and the mapping belongs to nobody else.
unsafe impl Send for Words {}
// SAFETY: as above.
unsafe impl Sync for Words {}

impl Words {
    /// Makes an array of zeros.
    pub(super) fn one(nr_words: usize) -> io::Result<Self> {
        Self::array(1, nr_words)
    }

    /// Makes so many arrays of zeros.
    pub(super) fn array(nr_values: usize, nr_words: usize) -> io::Result<Self> {
        let value_bytes = nr_words * size_of::<u64>();
        let fd = create(MAP_ARRAY, value_bytes as u32, nr_values as u32, MAPPABLE)?;
        let len = nr_values * value_bytes;
        let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a new mapping of a descriptor of ours, at a place that the kernel chooses.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len, prot, flags, fd.as_raw_fd(), 0) };
        match NonNull::new(base.cast()) {
            Some(place) if base != libc::MAP_FAILED => Ok(Self { fd, place, nr_values, nr_words }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Returns the words of one.
    pub(super) fn value(&self, number: usize) -> &[AtomicU64] {
        assert!(number < self.nr_values, "array {number} of {}", self.nr_values);
        // SAFETY: the mapping is as long, stays until the drop, and holds valid integers whatever is written there.
        unsafe { std::slice::from_raw_parts(self.place.as_ptr().add(number * self.nr_words), self.nr_words) }
    }

    pub(super) fn nr_values(&self) -> usize {
        self.nr_values
    }

    pub(super) fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new`, and no reference to it outlives `self`.
        unsafe { libc::munmap(self.place.as_ptr().cast(), self.nr_values * self.nr_words * size_of::<u64>()) };
    }
}

/// Perf events, one a CPU, into which programs write records.
#[derive(Debug)]
pub(super) struct Outlets(OwnedFd);

impl Outlets {
    pub(super) fn new(nr_cpus: usize) -> io::Result<Self> {
        create(MAP_PERF_EVENTS, size_of::<u32>() as u32, nr_cpus as u32, 0).map(Self)
    }

    /// Lets what is written on a CPU go into this event.
    pub(super) fn set(&self, cpu: u32, event: RawFd) -> io::Result<()> {
        let attributes = Update {
            map: self.0.as_raw_fd() as u64,
            key: std::ptr::from_ref(&cpu) as u64,
            value: std::ptr::from_ref(&event) as u64,
            flags: 0,
        };
        // SAFETY: the kernel reads an integer each from the two places, which outlive the call.
        unsafe { bpf(MAP_UPDATE, &attributes) }.map(drop)
    }

    pub(super) fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// A program at a tracepoint.
#[derive(Debug)]
pub(super) struct Attached(#[expect(dead_code, reason = "it is held, and detaches when it is closed")] OwnedFd);

impl Attached {
    /// Loads a program for the tracepoint whose type has this number, and attaches it.
    pub(super) fn load(code: &[Instruction], type_id: u32) -> io::Result<Self> {
        let mut log = vec![0u8; LOG_BYTES];
        let attributes = Load {
            program_type: PROGRAM_TRACING,
            nr_instructions: code.len() as u32,
            instructions: code.as_ptr() as u64,
            license: LICENSE.as_ptr() as u64,
            attach_type: ATTACH_TRACEPOINT,
            attach_to: type_id,
            log_level: 1,
            log_bytes: log.len() as u32,
            log: log.as_mut_ptr() as u64,
            ..Load::default()
        };
        // SAFETY: the kernel reads the instructions and the license, and writes the log within its size.
        let program = unsafe { bpf(PROGRAM_LOAD, &attributes) }.map_err(|error| explained(error, &log))?;
        let program = owned(program);
        let attributes = Open { program: program.as_raw_fd() as u64, ..Open::default() };
        // SAFETY: the call takes integers only, and no name.
        unsafe { bpf(RAW_TRACEPOINT_OPEN, &attributes) }.map(owned).map(Self)
    }
}

/// Adds the verifier's last words to an error.
fn explained(error: io::Error, log: &[u8]) -> io::Error {
    let end = log.iter().position(|&byte| byte == 0).unwrap_or(log.len());
    let text = String::from_utf8_lossy(&log[..end]);
    let last: Vec<&str> = text.lines().rev().take(4).collect();
    let words = last.into_iter().rev().collect::<Vec<_>>().join("; ");
    if words.is_empty() { error } else { io::Error::new(error.kind(), format!("{error}: {words}")) }
}

fn create(kind: u32, value_bytes: u32, nr_entries: u32, flags: u32) -> io::Result<OwnedFd> {
    let attributes = Create { kind, key_bytes: size_of::<u32>() as u32, value_bytes, nr_entries, flags };
    // SAFETY: the call takes integers only.
    unsafe { bpf(MAP_CREATE, &attributes) }.map(owned)
}

fn owned(fd: RawFd) -> OwnedFd {
    // SAFETY: the kernel has just made this descriptor for us; nobody else owns it.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// Makes a call. The attributes are a prefix of the kernel's `union bpf_attr`.
///
/// # Safety
///
/// What the attributes point to must be as large as they say and outlive the call.
unsafe fn bpf<T>(command: libc::c_int, attributes: &T) -> io::Result<RawFd> {
    // SAFETY: the attributes are a structure of integers, as large as is said; the rest is the caller's duty.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attributes), size_of::<T>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as RawFd) }
}

#[repr(C)]
struct Create {
    kind: u32,
    key_bytes: u32,
    value_bytes: u32,
    nr_entries: u32,
    flags: u32,
}

#[repr(C)]
struct Update {
    map: u64,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
#[derive(Default)]
struct Open {
    name: u64,
    program: u64,
}

#[repr(C)]
#[derive(Default)]
struct Load {
    program_type: u32,
    nr_instructions: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_bytes: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    attach_type: u32,
    types: u32,
    function_bytes: u32,
    functions: u64,
    nr_functions: u32,
    line_bytes: u32,
    lines: u64,
    nr_lines: u32,
    attach_to: u32,
}
