//! Raw numbers into the VM's calls: what a kernel's system-call layer does before and after its memory calls.
//!
//! # Guarantee
//! Arguments are checked in Linux's order, so that of several errors the same one is answered. What belongs to
//! descriptors, pipes and the processor, and not to memory, is answered here.

use std::ops::ControlFlow;

use faultless_linux::oracle::{Call, File, Op, Outcome, PAGE, PIPE_BYTES, Seen, USER_END, byte, fold, sum_of};
use faultless_platform::Platform;
use faultless_vm::design::Design;
use faultless_vm::{
    AccessError, Advice, AreaFlags, Backing, CallError, LockAll, MapRequest, PageLock, Placement, Populate,
    RemapPlacement, RemapRequest, Signal, SyncFlags, page_ceil,
};

use super::world::Process;

/// What a call answers: a value or an error's number.
pub(super) type Answer = Result<u64, i32>;

fn errno(error: CallError) -> i32 {
    error.errno()
}

fn done<T>(result: Result<T, CallError>) -> Answer {
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

/// Runs a call.
pub(super) fn call<P: Platform, D: Design<P>>(process: &Process<'_, '_, P, D>, op: &Op) -> Answer {
    let space = process.guest.space();
    let [a, b, c, d, e, _] = op.args;
    // Where the kernel's parameter is an int, the upper half of the register is not looked at.
    let int = |arg: u64| arg as u32;
    match op.call {
        Call::Mmap => mmap(process, op),
        Call::Munmap => done(space.munmap(a, b)),
        Call::Mprotect => mprotect(process, a, b, c),
        Call::Mremap => mremap(process, op),
        Call::Madvise => madvise(process, a, b, c),
        Call::Mincore => mincore(process, op),
        Call::Msync => match SyncFlags::from_bits(int(c)) {
            Some(flags) => done(space.msync(a, b, flags)),
            None => Err(libc::EINVAL),
        },
        Call::Mlock => done(space.mlock(a, b, PageLock::Lock)),
        Call::Mlock2 => match int(c) {
            0 => done(space.mlock(a, b, PageLock::Lock)),
            1 => done(space.mlock(a, b, PageLock::LockOnFault)),
            _ => Err(libc::EINVAL),
        },
        Call::Munlock => done(space.mlock(a, b, PageLock::Unlock)),
        Call::Mlockall => match LockAll::from_bits(int(a)) {
            Some(flags) => done(space.mlock_all(flags)),
            None => Err(libc::EINVAL),
        },
        Call::Munlockall => {
            space.munlock_all();
            Ok(0)
        }
        Call::Brk => Ok(space.brk(a)),
        Call::RemapFilePages if c != 0 => Err(libc::EINVAL),
        Call::RemapFilePages => {
            let populate = if has(e, libc::MAP_NONBLOCK) { Populate::OnFault } else { Populate::Now };
            done(space.remap_file_pages(a, b, d, populate))
        }
        Call::Mseal if c != 0 => Err(libc::EINVAL),
        Call::Mseal => done(space.mseal(a, b)),
        Call::Output => output(process, a, b),
        Call::Input => input(process, a, b, c),
        Call::Discard => discard(a, b),
        Call::Truncate => truncate(process, File::from_argument(a), b),
        Call::Fork | Call::Vfork | Call::Snapshot => Err(libc::ENOSYS),
        Call::Load | Call::Store | Call::Fetch | Call::Fill | Call::Look => Err(libc::ENOSYS),
    }
}

/// mincore(2): the vector is folded into the answer, and may be one that can't be written.
fn mincore<P: Platform, D: Design<P>>(process: &Process<'_, '_, P, D>, op: &Op) -> Answer {
    let [start, len, is_bad, ..] = op.args;
    if !start.is_multiple_of(PAGE) {
        return Err(libc::EINVAL);
    }
    // As Linux: the range first, then the vector, then the pages.
    if !is_user_range(start, len) {
        return Err(libc::ENOMEM);
    }
    let pages = len.div_ceil(PAGE);
    if is_bad == 1 && !is_user_range(USER_END, pages) {
        return Err(libc::EFAULT);
    }
    let mut bits = Vec::new();
    let told = process.guest.space().mincore(start, len, &mut |is_resident| {
        bits.push(u8::from(is_resident));
        ControlFlow::Continue(())
    });
    told.map(|()| fold(bits.into_iter())).map_err(errno)
}

const MAP_TYPE: u64 = 0xf;

fn has(flags: u64, flag: i32) -> bool {
    flags & flag as u32 as u64 != 0
}

fn rights(prot: u64) -> AreaFlags {
    let mut rights = AreaFlags::empty();
    rights.set(AreaFlags::READ, has(prot, libc::PROT_READ));
    rights.set(AreaFlags::WRITE, has(prot, libc::PROT_WRITE));
    rights.set(AreaFlags::EXEC, has(prot, libc::PROT_EXEC));
    // As Linux, which compares the whole word: a bit that means nothing keeps the key away.
    rights.set(AreaFlags::EXECUTE_ONLY, prot == libc::PROT_EXEC as u64);
    rights
}

/// Stands for what the descriptor and the type forbid, until it is known that Linux would come so far.
const REFUSED: CallError = CallError::NoFile;

/// mmap(2): descriptor and offset first; what the file and the type allow is looked at late.
fn mmap<P: Platform, D: Design<P>>(process: &Process<'_, '_, P, D>, op: &Op) -> Answer {
    let [start, len, prot, flags, file, offset] = op.args;
    let is_anonymous = has(flags, libc::MAP_ANONYMOUS);
    let file = if is_anonymous { File::None } else { File::from_argument(file) };
    if !offset.is_multiple_of(PAGE) {
        return Err(libc::EINVAL);
    }
    if !is_anonymous && matches!(file, File::None | File::Closed) {
        return Err(libc::EBADF);
    }
    if let Some(errno) = misplaced(start, len, flags) {
        return Err(errno);
    }
    let verdict = area_flags(file, len, prot, flags, offset);
    // Locks are looked at before what the file allows.
    let locks = if has(flags, libc::MAP_LOCKED) { AreaFlags::LOCKED } else { AreaFlags::empty() };
    let area = verdict.unwrap_or(rights(prot) | locks);
    let backing = match process.files.get(file) {
        _ if verdict.is_err() => Backing::Anonymous,
        Some(handle) => Backing::Object(handle, offset),
        None if area.contains(AreaFlags::SHARED) => Backing::SharedZeros,
        None => Backing::Anonymous,
    };
    let is_now = has(flags, libc::MAP_POPULATE) && !has(flags, libc::MAP_NONBLOCK);
    let populate = if is_now { Populate::Now } else { Populate::OnFault };
    let request = MapRequest { placement: place(start, flags), len_bytes: len, flags: area, backing, populate };
    let mapped = process.guest.space().mmap_judged(&request, verdict.map(|_| ()).map_err(|_| REFUSED));
    mapped.map_err(|error| match (error, verdict) {
        (CallError::NoFile, Err(errno)) => errno,
        _ => error.errno(),
    })
}

/// Returns the error for a place that is none.
///
/// In Linux an address among the last 4095 can't be told from the error of that number. MAP_32BIT asks for addresses below
/// 2 GiB, which are all taken on both sides.
fn misplaced(start: u64, len: u64, flags: u64) -> Option<i32> {
    let is_fixed = has(flags, libc::MAP_FIXED) || has(flags, libc::MAP_FIXED_NOREPLACE);
    let len = page_ceil(len).filter(|&len| len != 0)?;
    match () {
        () if is_fixed && len > USER_END => Some(libc::ENOMEM),
        () if is_fixed && start > u64::MAX - 4095 => Some(start.wrapping_neg() as i32),
        () if !is_fixed && has(flags, libc::MAP_32BIT) => Some(libc::ENOMEM),
        () => None,
    }
}

fn place(start: u64, flags: u64) -> Placement {
    match () {
        () if has(flags, libc::MAP_FIXED_NOREPLACE) => Placement::FixedNoReplace(start),
        () if has(flags, libc::MAP_FIXED) => Placement::Fixed(start),
        () if start == 0 => Placement::Anywhere,
        () => Placement::Hint(start),
    }
}

/// Checks type, descriptor and flags in Linux's order; returns what the area shall be.
fn area_flags(file: File, len: u64, prot: u64, flags: u64, offset: u64) -> Result<AreaFlags, i32> {
    let mut area = rights(prot);
    area.set(AreaFlags::GROWSDOWN, has(flags, libc::MAP_GROWSDOWN));
    area.set(AreaFlags::NORESERVE, has(flags, libc::MAP_NORESERVE));
    area.set(AreaFlags::LOCKED, has(flags, libc::MAP_LOCKED));
    area.set(AreaFlags::NO_HUGE, has(flags, libc::MAP_STACK));
    area.set(AreaFlags::SYNC, has(flags, libc::MAP_SYNC));
    let kind = (flags & MAP_TYPE) as i32;
    if file == File::None {
        return match kind {
            libc::MAP_SHARED if area.contains(AreaFlags::GROWSDOWN) => Err(libc::EINVAL),
            libc::MAP_SHARED => Ok(area | AreaFlags::SHARED),
            libc::MAP_PRIVATE => Ok(area),
            _ => Err(libc::EINVAL),
        };
    }
    let most = if file == File::Pipe { u64::MAX } else { i64::MAX as u64 };
    let len = page_ceil(len).unwrap_or(u64::MAX);
    if len > most || offset / PAGE > (most - len) / PAGE {
        return Err(libc::EOVERFLOW);
    }
    let (reads, writes) = (file != File::WriteOnly, !matches!(file, File::ReadOnly | File::Pipe));
    match kind {
        libc::MAP_SHARED_VALIDATE if flags & !KNOWN_MAP_FLAGS != 0 => return Err(libc::EOPNOTSUPP),
        libc::MAP_SHARED | libc::MAP_SHARED_VALIDATE => {
            if area.contains(AreaFlags::WRITE) && !writes {
                return Err(libc::EACCES);
            }
            area |= AreaFlags::SHARED;
            area.set(AreaFlags::DENY_WRITE, !writes);
        }
        libc::MAP_PRIVATE => {}
        _ => return Err(libc::EINVAL),
    }
    match () {
        () if !reads => Err(libc::EACCES),
        // Pipes live where nothing may be executed.
        () if file == File::Pipe && area.contains(AreaFlags::EXEC) => Err(libc::EPERM),
        () if file == File::Pipe => Err(libc::ENODEV),
        () if area.contains(AreaFlags::GROWSDOWN) => Err(libc::EINVAL),
        () => Ok(area),
    }
}

/// The flags that MAP_SHARED_VALIDATE knows for any file.
const KNOWN_MAP_FLAGS: u64 = (libc::MAP_SHARED
    | libc::MAP_PRIVATE
    | libc::MAP_FIXED
    | libc::MAP_ANONYMOUS
    | libc::MAP_DENYWRITE
    | libc::MAP_EXECUTABLE
    | libc::MAP_GROWSDOWN
    | libc::MAP_LOCKED
    | libc::MAP_NORESERVE
    | libc::MAP_POPULATE
    | libc::MAP_NONBLOCK
    | libc::MAP_STACK
    | libc::MAP_HUGETLB
    | libc::MAP_32BIT
    | MAP_ABOVE4G
    | libc::MAP_HUGE_2MB
    | libc::MAP_HUGE_1GB) as u32 as u64;

const MAP_ABOVE4G: i32 = 0x80;

fn mprotect<P: Platform, D: Design<P>>(process: &Process<'_, '_, P, D>, start: u64, len: u64, prot: u64) -> Answer {
    let grows = prot & (libc::PROT_GROWSDOWN | libc::PROT_GROWSUP) as u64;
    let rest = prot & !grows;
    if grows == (libc::PROT_GROWSDOWN | libc::PROT_GROWSUP) as u64 || !start.is_multiple_of(PAGE) {
        return Err(libc::EINVAL);
    }
    if len == 0 {
        return Ok(0);
    }
    if page_ceil(len).and_then(|len| start.checked_add(len)).is_none_or(|end| end <= start) {
        return Err(libc::ENOMEM);
    }
    // PROT_SEM (8) is known and means nothing.
    if rest & !0xf != 0 {
        return Err(libc::EINVAL);
    }
    let space = process.guest.space();
    match grows {
        0 => done(space.mprotect(start, len, rights(rest))),
        _ if has(prot, libc::PROT_GROWSDOWN) => done(space.mprotect_stack(start, len, rights(rest))),
        // No area grows upwards on this architecture; that there is none at all is found out first.
        _ => {
            let mut is_mapped = false;
            space.for_each_area(|line| is_mapped |= (line.start..line.end).contains(&start));
            Err(if is_mapped { libc::EINVAL } else { libc::ENOMEM })
        }
    }
}

/// mremap(2): flags and lengths first.
fn mremap<P: Platform, D: Design<P>>(process: &Process<'_, '_, P, D>, op: &Op) -> Answer {
    let [old_start, old_len_bytes, new_len_bytes, flags, new, _] = op.args;
    let known = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP) as u64;
    let (moves, is_fixed) = (has(flags, libc::MREMAP_MAYMOVE), has(flags, libc::MREMAP_FIXED));
    let keeps_source = has(flags, libc::MREMAP_DONTUNMAP);
    if flags & !known != 0 || !moves && (is_fixed || keeps_source) {
        return Err(libc::EINVAL);
    }
    let placement = match () {
        () if is_fixed => RemapPlacement::Fixed(new),
        () if keeps_source => RemapPlacement::Hint(new),
        () if moves => RemapPlacement::MayMove,
        () => RemapPlacement::InPlace,
    };
    let request = RemapRequest { old_start, old_len_bytes, new_len_bytes, placement, keeps_source };
    process.guest.space().mremap(&request).map_err(errno)
}

/// Advice by Linux's numbers.
const ADVICE: &[(u64, Advice)] = &[
    (0, Advice::Normal),
    (1, Advice::Random),
    (2, Advice::Sequential),
    (3, Advice::WillNeed),
    (4, Advice::DontNeed),
    (8, Advice::Free),
    (9, Advice::Remove),
    (10, Advice::DontFork),
    (11, Advice::DoFork),
    (12, Advice::Mergeable),
    (13, Advice::Unmergeable),
    (14, Advice::HugePage),
    (15, Advice::NoHugePage),
    (16, Advice::DontDump),
    (17, Advice::DoDump),
    (18, Advice::WipeOnFork),
    (19, Advice::KeepOnFork),
    (20, Advice::Cold),
    (21, Advice::PageOut),
    (22, Advice::PopulateRead),
    (23, Advice::PopulateWrite),
    (24, Advice::DontNeedLocked),
    (25, Advice::Collapse),
    (102, Advice::GuardInstall),
    (103, Advice::GuardRemove),
];

fn madvise<P: Platform, D: Design<P>>(process: &Process<'_, '_, P, D>, start: u64, len: u64, advice: u64) -> Answer {
    // The kernel takes an int.
    let advice = advice & 0xffff_ffff;
    match ADVICE.iter().find(|(number, _)| *number == advice) {
        Some(&(_, advice)) => done(process.guest.space().madvise(start, len, advice)),
        None => Err(libc::EINVAL),
    }
}

/// Says whether the kernel takes a buffer: it looks at the range only.
fn is_user_range(start: u64, len: u64) -> bool {
    start.checked_add(len).is_some_and(|end| end <= USER_END)
}

/// write(2) to a pipe that has room: all or nothing, as it is a page at most.
fn output<P: Platform, D: Design<P>>(process: &Process<'_, '_, P, D>, start: u64, len: u64) -> Answer {
    let len = len.min(PIPE_BYTES);
    if !is_user_range(start, len) {
        return Err(libc::EFAULT);
    }
    let mut bytes = vec![0; len as usize];
    match process.guest.read_bytes(start, &mut bytes) {
        Ok(()) => Ok(len << 32 | u64::from(sum_of(&bytes))),
        Err(_) => Err(libc::EFAULT),
    }
}

/// read(2) from a pipe that holds enough; what lies before the first bad page is written.
fn input<P: Platform, D: Design<P>>(process: &Process<'_, '_, P, D>, start: u64, len: u64, number: u64) -> Answer {
    let len = len.min(PIPE_BYTES);
    if !is_user_range(start, len) {
        return Err(libc::EFAULT);
    }
    let bytes: Vec<u8> = (0..len).map(|place| byte(number.wrapping_add(place / 64) as u8)).collect();
    match process.guest.write_bytes(start, &bytes) {
        Ok(()) => Ok(len),
        Err(_) => Err(libc::EFAULT),
    }
}

/// write(2) to /dev/null, which counts without looking.
fn discard(start: u64, len: u64) -> Answer {
    const MOST: u64 = 0x7fff_f000;
    match () {
        () if !is_user_range(start, len) => Err(libc::EFAULT),
        () => Ok(len.min(MOST)),
    }
}

fn truncate<P: Platform, D: Design<P>>(process: &Process<'_, '_, P, D>, file: File, len: u64) -> Answer {
    if len > i64::MAX as u64 {
        return Err(libc::EINVAL);
    }
    match (file, process.files.get(file)) {
        (File::None | File::Closed, _) => Err(libc::EBADF),
        (File::ReadOnly | File::Pipe, _) | (_, None) => Err(libc::EINVAL),
        (_, Some(handle)) => done(process.vm.truncate(handle, len)),
    }
}
