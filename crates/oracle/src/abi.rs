//! A sequence's operations as calls of the VM.
//!
//! # Guarantee
//! `faultless-abi` decodes the memory calls. What belongs to descriptors, pipes and the processor is answered here.

use std::ops::ControlFlow;

use crate::kernel::{Call, File, Op, Outcome, PIPE_BYTES, Seen, USER_END, byte, fold, sum_of};
use faultless_abi::{Calls, Errno, FileMode};
use faultless_platform::{Platform, Usual};
use faultless_vm::design::Design;
use faultless_vm::{AccessError, CallError, Signal, VirtAddr};

use super::world::Process;

/// What a call answers: a value or an error's number.
pub(super) type CallResult = Result<u64, i32>;

fn errno(error: CallError) -> i32 {
    error.errno()
}

fn done<T>(result: Result<T, CallError>) -> CallResult {
    result.map(|_| 0).map_err(errno)
}

/// Returns the signal for an access that did not happen.
pub(super) fn seen(error: &AccessError) -> Seen {
    // What the machine ran out of is nothing that a sequence may come to.
    let (signo, code, address) = error.signal().map_or((libc::SIGKILL, 0, 0), Signal::parts);
    Seen { signo, code, address }
}

/// As [`seen`], as an outcome.
pub(super) fn signal(error: &AccessError) -> Outcome {
    Outcome::Signal(seen(error))
}

fn calls<'a, P: Platform<Embedding = Usual>, D: Design<P>>(process: &'a Process<'_, '_, P, D>) -> Calls<'a, P, D> {
    Calls::new(process.guest.space())
}

fn plain(answer: faultless_abi::Answer) -> CallResult {
    answer.map_err(Errno::number)
}

/// Runs a call.
pub(super) fn call<P: Platform<Embedding = Usual>, D: Design<P>>(
    process: &Process<'_, '_, P, D>,
    op: &Op,
) -> CallResult {
    let calls = calls(process);
    let [a, b, c, d, e, _] = op.args;
    plain(match op.call {
        Call::Mmap => return mmap(process, op),
        Call::Munmap => calls.munmap(a, b),
        Call::Mprotect => calls.mprotect(a, b, c),
        Call::Mremap => calls.mremap([a, b, c, d, e]),
        Call::Madvise => calls.madvise(a, b, c),
        Call::Mincore => return mincore(process, op),
        Call::Msync => calls.msync(a, b, c),
        Call::Mlock => calls.mlock(a, b),
        Call::Mlock2 => calls.mlock2(a, b, c),
        Call::Munlock => calls.munlock(a, b),
        Call::Mlockall => calls.mlockall(a),
        Call::Munlockall => calls.munlockall(),
        Call::Brk => calls.brk(a),
        Call::RemapFilePages => calls.remap_file_pages([a, b, c, d, e]),
        Call::Mseal => calls.mseal(a, b, c),
        Call::Output => return output(process, a, b),
        Call::Input => return input(process, a, b, c),
        Call::Discard => return discard(a, b),
        Call::Truncate => return truncate(process, File::from_argument(a), b),
        Call::Fork | Call::Vfork | Call::Snapshot => Err(Errno::ENOSYS),
        Call::Load | Call::Store | Call::Fetch | Call::Fill | Call::Look | Call::Resident => Err(Errno::ENOSYS),
    })
}

/// mincore(2): the vector is folded into the answer, and may be one that can't be written.
fn mincore<P: Platform<Embedding = Usual>, D: Design<P>>(process: &Process<'_, '_, P, D>, op: &Op) -> CallResult {
    let [start, len, is_bad, ..] = op.args;
    let vector = if is_bad == 1 { USER_END } else { 0 };
    let mut bits = Vec::new();
    let told = calls(process).mincore(start, len, vector, &mut |is_resident| {
        bits.push(u8::from(is_resident));
        ControlFlow::Continue(())
    });
    plain(told.map(|_| fold(bits.into_iter())))
}

/// mmap(2), with the file that stands behind the descriptor.
fn mmap<P: Platform<Embedding = Usual>, D: Design<P>>(process: &Process<'_, '_, P, D>, op: &Op) -> CallResult {
    let file = File::from_argument(op.args[4]);
    plain(calls(process).mmap(op.args, open_file(process, file)))
}

fn open_file<'a, P: Platform<Embedding = Usual>, D: Design<P>>(
    process: &'a Process<'_, '_, P, D>,
    file: File,
) -> Option<faultless_abi::File<'a, P>> {
    let mode = match file {
        File::None | File::Closed => return None,
        File::Reference => return Some(process.files.reference()),
        // Pipes live where nothing may be executed.
        File::Pipe => return Some(faultless_abi::File::unmappable(FileMode::READ | FileMode::NO_EXEC)),
        File::ReadOnly => FileMode::READ,
        File::WriteOnly => FileMode::WRITE,
        File::ReadWrite | File::Empty => FileMode::READ | FileMode::WRITE,
    };
    process.files.get(file).map(|object| faultless_abi::File::new(object, mode))
}

/// Says whether the kernel takes a buffer: it looks at the range only.
fn is_user_range(start: u64, len: u64) -> bool {
    start.checked_add(len).is_some_and(|end| end <= USER_END)
}

/// write(2) to a pipe that has room: all or nothing, as it is a page at most.
fn output<P: Platform<Embedding = Usual>, D: Design<P>>(
    process: &Process<'_, '_, P, D>,
    start: u64,
    len: u64,
) -> CallResult {
    let len = len.min(PIPE_BYTES);
    if !is_user_range(start, len) {
        return Err(libc::EFAULT);
    }
    let mut bytes = vec![0; len as usize];
    match process.guest.read_bytes(VirtAddr::new(start), &mut bytes) {
        Ok(()) => Ok(len << 32 | u64::from(sum_of(&bytes))),
        Err(_) => Err(libc::EFAULT),
    }
}

/// read(2) from a pipe that holds enough; what lies before the first bad page is written.
fn input<P: Platform<Embedding = Usual>, D: Design<P>>(
    process: &Process<'_, '_, P, D>,
    start: u64,
    len: u64,
    number: u64,
) -> CallResult {
    let len = len.min(PIPE_BYTES);
    if !is_user_range(start, len) {
        return Err(libc::EFAULT);
    }
    let bytes: Vec<u8> = (0..len).map(|place| byte(number.wrapping_add(place / 64) as u8)).collect();
    match process.guest.write_bytes(VirtAddr::new(start), &bytes) {
        Ok(()) => Ok(len),
        Err(_) => Err(libc::EFAULT),
    }
}

/// write(2) to /dev/null, which counts without looking.
fn discard(start: u64, len: u64) -> CallResult {
    const MOST: u64 = 0x7fff_f000;
    match () {
        () if !is_user_range(start, len) => Err(libc::EFAULT),
        () => Ok(len.min(MOST)),
    }
}

fn truncate<P: Platform<Embedding = Usual>, D: Design<P>>(
    process: &Process<'_, '_, P, D>,
    file: File,
    len: u64,
) -> CallResult {
    if len > i64::MAX as u64 {
        return Err(libc::EINVAL);
    }
    match (file, process.files.get(file)) {
        (File::None | File::Closed, _) => Err(libc::EBADF),
        (File::ReadOnly | File::Pipe, _) | (_, None) => Err(libc::EINVAL),
        (_, Some(handle)) => done(process.vm.truncate(handle, len)),
    }
}
