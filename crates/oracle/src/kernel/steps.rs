//! Operations, one after the other or beside each other, as the kernel does them.

use core::ops::Range;
use core::sync::atomic::{AtomicU32, Ordering};

use super::attempt::{AccessKind, Slot};
use super::block::{RawOutcome, kind, state};
use super::child::{Child, NR_SLOTS};
use super::look;
use super::op::{Call, File, Op, byte};
use super::processes::{self, EXIT_BROKEN};
use super::resident;
use super::sys::{SyscallResult, exit, raw, spawn};
use super::zone::PAGE;

/// Runs operations on the slot of so many parents that share our memory; returns the sequence's state.
pub(super) fn run(child: &mut Child, range: Range<usize>, depth: usize) -> u64 {
    let mut place = range.start;
    while place < range.end {
        let op = child.start.block.op(place).op();
        if op.thread != 0 {
            let end = beside_each_other(child, place..range.end);
            place = end;
            continue;
        }
        let (next, result) = step(child, place, &op, range.end, depth);
        if result != state::DONE {
            return result;
        }
        place = next;
    }
    state::DONE
}

/// Runs one operation; returns the place of the next one, and the state.
fn step(child: &mut Child, place: usize, op: &Op, end: usize, depth: usize) -> (usize, u64) {
    let slot = child.slot(depth);
    match op.call {
        _ if op.call.makes_process() => {
            let inner = place + 1..end.min((place + 1).saturating_add(op.args[0] as usize));
            (inner.end, processes::make(child, place, op.call, inner, depth))
        }
        Call::Look => (place + 1, look(child, place, slot)),
        _ => {
            let outcome = single(child, op, slot);
            child.start.block.set_outcome(place, outcome);
            (place + 1, state::DONE)
        }
    }
}

/// Notes the area list and the bytes of the calling process; returns the state.
pub(super) fn look(child: &Child, place: usize, slot: Slot) -> u64 {
    let first = child.start.block.nr_words();
    let Some(number) = look::list(&child.start.block, child.fds.maps, child.inodes, slot) else {
        return state::NO_ROOM;
    };
    child.start.block.set_outcome(place, RawOutcome::new(kind::LIST, 0, first, number));
    state::DONE
}

pub(super) fn value(value: u64) -> RawOutcome {
    RawOutcome::new(kind::VALUE, 0, value, 0)
}

pub(super) fn answered(answer: SyscallResult) -> RawOutcome {
    answer.map_or_else(|errno| RawOutcome::new(kind::ERRNO, errno, 0, 0), value)
}

/// Runs an operation that is no fork and no list.
fn single(child: &Child, op: &Op, slot: Slot) -> RawOutcome {
    let [first, second, third, ..] = op.args;
    let tried = match op.call {
        Call::Load => slot.attempt(AccessKind::Load, first, 0),
        Call::Store => slot.attempt(AccessKind::Store, first, byte(second as u8).into()),
        Call::Fetch => slot.attempt(AccessKind::Fetch, first, 0),
        Call::Fill => fill(slot, first, second, third),
        Call::Mincore => return answered(mincore(child, op)),
        Call::Resident => return answered(resident::private_pages(child)),
        Call::Output => return answered(output(child, first, second)),
        Call::Input => return answered(input(child, first, second, third)),
        _ => return answered(call(child, op)),
    };
    tried.map_or_else(|seen| RawOutcome::new(kind::SIGNAL, seen.code, seen.address, seen.signo as u64), value)
}

fn fill(slot: Slot, start: u64, pages: u64, number: u64) -> Result<u64, super::Seen> {
    for page in 0..pages {
        let stored = byte(number.wrapping_add(page) as u8).into();
        slot.attempt(AccessKind::Store, start.wrapping_add(page.wrapping_mul(PAGE)), stored)?;
    }
    Ok(pages)
}

/// Runs a system call whose answer is a number.
fn call(child: &Child, op: &Op) -> SyscallResult {
    let [a, b, c, d, e, f] = op.args;
    let fd = |file| descriptor(child, File::from_argument(file));
    let (number, args) = match op.call {
        Call::Mmap => (libc::SYS_mmap, [a, b, c, d, fd(e), f]),
        Call::Munmap => (libc::SYS_munmap, op.args),
        Call::Mprotect => (libc::SYS_mprotect, op.args),
        Call::Mremap => (libc::SYS_mremap, op.args),
        Call::Madvise => (libc::SYS_madvise, op.args),
        Call::Msync => (libc::SYS_msync, op.args),
        Call::Mlock => (libc::SYS_mlock, op.args),
        Call::Mlock2 => (libc::SYS_mlock2, op.args),
        Call::Munlock => (libc::SYS_munlock, op.args),
        Call::Mlockall => (libc::SYS_mlockall, op.args),
        Call::Munlockall => (libc::SYS_munlockall, op.args),
        Call::Brk => (libc::SYS_brk, op.args),
        Call::RemapFilePages => (libc::SYS_remap_file_pages, op.args),
        Call::Mseal => (SYS_MSEAL, op.args),
        Call::Discard => (libc::SYS_write, [fd_of(child.fds.null), a, b, 0, 0, 0]),
        Call::Truncate => (libc::SYS_ftruncate, [fd(a), b, 0, 0, 0, 0]),
        _ => return Err(libc::ENOSYS),
    };
    // SAFETY: the keeper runs no sequence that could reach beyond its zones (`Op::harm`).
    unsafe { super::sys::call(number, args) }
}

/// mseal(2) has the same number everywhere.
const SYS_MSEAL: i64 = 462;

fn fd_of(fd: i32) -> u64 {
    i64::from(fd) as u64
}

fn descriptor(child: &Child, file: File) -> u64 {
    let fds = &child.fds;
    fd_of(match file {
        File::None => -1,
        File::ReadWrite => fds.read_write,
        File::ReadOnly => fds.read_only,
        File::WriteOnly => fds.write_only,
        File::Empty => fds.empty,
        File::Pipe => fds.pipe_in,
        File::Closed => 999_999,
        File::Reference => fds.reference,
    })
}

/// mincore(2); the vector is folded into the answer.
fn mincore(child: &Child, op: &Op) -> SyscallResult {
    let [start, len, is_bad, ..] = op.args;
    let pages = len.div_ceil(PAGE);
    let vector = if is_bad == 1 { super::zone::USER_END } else { child.scratch };
    // SAFETY: the kernel writes a byte for each page. The scratch memory holds as many as a zone has; longer ranges
    // leave user memory (`Op::harm`), and are refused before anything is written.
    unsafe {
        raw!(libc::SYS_mincore, start, len, vector)?;
        let bytes = core::slice::from_raw_parts(child.scratch as *const u8, pages as usize);
        Ok(fold(bytes.iter().map(|byte| byte & 1)))
    }
}

/// Returns a number for a vector of bits; the first 48 of them can be read off it.
pub fn fold(bits: impl Iterator<Item = u8>) -> u64 {
    bits.enumerate().fold(0, |sum, (place, bit)| {
        let rest = (u64::from(bit) * (place as u64 / 48)) << 48;
        sum ^ (u64::from(bit) << (place % 48)) ^ rest
    })
}

/// Most bytes that go through a pipe at once, so that the answer is all or nothing.
pub const PIPE_BYTES: u64 = 4096;

/// write(2) to a pipe; what arrived is folded into the answer.
fn output(child: &Child, start: u64, len: u64) -> SyscallResult {
    // SAFETY: the kernel reads the sequence's memory, and writes the scratch memory.
    unsafe {
        let count = raw!(libc::SYS_write, child.fds.pipe_out, start, len.min(PIPE_BYTES))?;
        let got = raw!(libc::SYS_read, child.fds.pipe_in, child.scratch, PIPE_BYTES).unwrap_or(0);
        let bytes = core::slice::from_raw_parts(child.scratch as *const u8, got as usize);
        Ok(count << 32 | u64::from(sum_of(bytes)))
    }
}

/// Returns a number for bytes that went through a pipe.
pub fn sum_of(bytes: &[u8]) -> u32 {
    bytes.iter().fold(1, |sum: u32, &byte| (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// read(2) from a pipe that holds enough.
fn input(child: &Child, start: u64, len: u64, number: u64) -> SyscallResult {
    let len = len.min(PIPE_BYTES);
    // SAFETY: the kernel reads the scratch memory, and writes the sequence's.
    unsafe {
        let bytes = core::slice::from_raw_parts_mut(child.scratch as *mut u8, PIPE_BYTES as usize);
        for (place, stored) in bytes.iter_mut().enumerate() {
            *stored = byte((number as usize).wrapping_add(place / 64) as u8);
        }
        raw!(libc::SYS_write, child.fds.pipe_out, child.scratch, PIPE_BYTES)?;
        let answer = raw!(libc::SYS_read, child.fds.pipe_in, start, len);
        while raw!(libc::SYS_read, child.fds.pipe_in, child.scratch, PIPE_BYTES).is_ok_and(|count| count > 0) {}
        answer
    }
}

/// How long a thread waits for the others before it gives the processor to them.
const SPINS: u32 = 500;

/// A thread's share of a section.
struct Share {
    child: *const Child,
    range: Range<usize>,
    thread: u8,
    /// Set when all may begin.
    gate: *const AtomicU32,
    tid: AtomicU32,
}

/// Runs the operations of other threads from `range.start` on, beside each other; returns the place behind them.
fn beside_each_other(child: &Child, range: Range<usize>) -> usize {
    let op = |place| child.start.block.op(place).op();
    let end = range.clone().find(|&place| op(place).thread == 0).unwrap_or(range.end);
    let gate = AtomicU32::new(0);
    let mut shares: [Share; NR_SLOTS - 1] = core::array::from_fn(|place| Share {
        child,
        range: range.start..end,
        thread: place as u8 + 1,
        gate: &gate,
        tid: AtomicU32::new(0),
    });
    for share in &mut shares {
        if (range.start..end).any(|place| op(place).thread == share.thread) {
            start_thread(child, share);
        }
    }
    // ORDER: Release pairs with the Acquire in `run_share`.
    gate.store(1, Ordering::Release);
    for share in &shares {
        loop {
            // ORDER: Acquire pairs with the kernel's store at the thread's end: all it did is seen.
            let tid = share.tid.load(Ordering::Acquire);
            if tid == 0 {
                break;
            }
            // SAFETY: waits until the word changes, no more; the kernel wakes at the thread's end.
            let _ = unsafe { raw!(libc::SYS_futex, share.tid.as_ptr(), libc::FUTEX_WAIT, tid, 0) };
        }
    }
    end
}

fn start_thread(child: &Child, share: &mut Share) {
    const FLAGS: i32 = libc::CLONE_VM
        | libc::CLONE_FS
        | libc::CLONE_FILES
        | libc::CLONE_SIGHAND
        | libc::CLONE_THREAD
        | libc::CLONE_SYSVSEM
        | libc::CLONE_CHILD_CLEARTID;
    let top = child.slot(usize::from(share.thread)).stack_top();
    // Relaxed: the thread does not exist yet.
    share.tid.store(1, Ordering::Relaxed);
    // SAFETY: the slot is the thread's alone; we wait until the kernel has cleared `tid` at its end.
    let tid = unsafe { spawn(FLAGS as u64, top, share.tid.as_ptr(), run_share, core::ptr::from_mut(share) as u64) };
    if tid < 0 {
        exit(EXIT_BROKEN);
    }
}

unsafe extern "C" fn run_share(share: u64) {
    // SAFETY: the starter waits for our end, and shares stay as they are meanwhile.
    let (share, child) = unsafe {
        let share = &*(share as *const Share);
        (share, &*share.child)
    };
    let slot = child.slot(usize::from(share.thread));
    slot.adopt();
    // ORDER: Acquire pairs with the Release in `beside_each_other`.
    // SAFETY: the gate is on the starter's stack, who waits.
    let gate = unsafe { &*share.gate };
    // ORDER: as above.
    for _ in (0..SPINS).take_while(|_| gate.load(Ordering::Acquire) == 0) {
        core::hint::spin_loop();
    }
    // ORDER: as above.
    while gate.load(Ordering::Acquire) == 0 {
        // SAFETY: gives the processor away, no more.
        let _ = unsafe { raw!(libc::SYS_sched_yield) };
    }
    for place in share.range.clone() {
        let op = child.start.block.op(place).op();
        if op.thread == share.thread {
            let outcome = single(child, &op, slot);
            child.start.block.set_outcome(place, RawOutcome { ended: clock(), ..outcome });
        }
    }
}

/// Returns the processor's clock.
fn clock() -> u64 {
    // SAFETY: every x86-64 processor has it, and reading it changes nothing.
    unsafe { core::arch::x86_64::_rdtsc() }
}
