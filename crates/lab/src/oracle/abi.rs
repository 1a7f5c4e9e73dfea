//! Raw numbers into the VM's calls: what a kernel's system-call layer does before and after its memory calls.
//!
//! # Guarantee
//! Arguments are checked in Linux's order, so that of several errors the same one is answered. What belongs to
//! descriptors, pipes and the processor, and not to memory, is answered here.

use faultless_linux::oracle::{Call, File, Op, Outcome, PAGE, PIPE_BYTES, Seen, USER_END, byte, fold, sum_of};
use faultless_platform::Platform;
use faultless_vm::design::Design;
use faultless_vm::{
    AccessError, Advice, AreaFlags, Backing, CallError, MapRequest, PageLock, PageRange, Placement, Populate,
    RemapPlacement, RemapRequest, page_ceil, page_floor,
};

use super::world::{self, Process};

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
    let (signo, code, address) = match *error {
        // The processor refuses such an address before it translates it, and does not tell it.
        AccessError::NotMapped { address } if !is_canonical(address) => (libc::SIGSEGV, 128, 0),
        AccessError::NotMapped { address } => (libc::SIGSEGV, 1, address),
        AccessError::Forbidden { address } => (libc::SIGSEGV, 2, address),
        AccessError::NoPage { address } => (libc::SIGBUS, 2, address),
        AccessError::TooManyReferences | AccessError::OutOfFrames(_) => (libc::SIGKILL, 0, 0),
    };
    Seen { signo, code, address }
}

/// As [`seen`], as an outcome.
pub(super) fn signal(error: &AccessError) -> Outcome {
    Outcome::Signal(seen(error))
}

/// Says whether the processor takes the address: four levels of tables.
fn is_canonical(address: u64) -> bool {
    let top = address.cast_signed() >> 47;
    top == 0 || top == -1
}

/// Runs a call.
pub(super) fn call<P: Platform, D: Design<P>>(process: &Process<'_, '_, P, D>, op: &Op) -> Answer {
    let space = process.guest.space();
    let [a, b, c, d, ..] = op.args;
    match op.call {
        Call::Mmap => mmap(process, op),
        Call::Munmap => done(space.munmap(a, b)),
        Call::Mprotect => mprotect(process, a, b, c),
        Call::Mremap => mremap(process, op),
        Call::Madvise => madvise(process, a, b, c),
        Call::Mlock => done(space.mlock(a, b, PageLock::Lock)),
        Call::Munlock => done(space.mlock(a, b, PageLock::Unlock)),
        Call::Brk => Ok(space.brk(a)),
        Call::Output => output(process, a, b),
        Call::Input => input(process, a, b, c),
        Call::Discard => discard(a, b),
        Call::Truncate => truncate(process, File::from_argument(a), b),
        Call::Mincore | Call::Msync | Call::Mlock2 | Call::Mlockall | Call::Munlockall => Err(libc::ENOSYS),
        _ => {
            let _ = d;
            Err(libc::ENOSYS)
        }
    }
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
    rights
}

/// mmap(2): descriptor, length, place, locks, then what the file and the type allow.
fn mmap<P: Platform, D: Design<P>>(process: &Process<'_, '_, P, D>, op: &Op) -> Answer {
    let [start, len, prot, flags, file, offset] = op.args;
    let file = File::from_argument(file);
    let is_anonymous = has(flags, libc::MAP_ANONYMOUS);
    if !offset.is_multiple_of(PAGE) {
        return Err(libc::EINVAL);
    }
    if !is_anonymous && matches!(file, File::None | File::Closed) {
        return Err(libc::EBADF);
    }
    let len = match page_ceil(len) {
        _ if len == 0 => return Err(libc::EINVAL),
        None | Some(0) => return Err(libc::ENOMEM),
        Some(len) => len,
    };
    if (offset / PAGE).checked_add(len / PAGE).is_none() {
        return Err(libc::EOVERFLOW);
    }
    let placement = place(process, start, len, flags)?;
    let file = if is_anonymous { File::None } else { file };
    let area = area_flags(file, len, prot, flags, offset)?;
    map(process, MapArgs { placement, len, area, file, offset, flags })
}

/// What is left of a call when the flags are understood.
struct MapArgs {
    placement: Placement,
    len: u64,
    area: AreaFlags,
    file: File,
    offset: u64,
    flags: u64,
}

/// Checks the place as Linux does before it looks at the file.
fn place<P: Platform, D: Design<P>>(
    process: &Process<'_, '_, P, D>,
    start: u64,
    len: u64,
    flags: u64,
) -> Result<Placement, i32> {
    let space = process.guest.space();
    let is_new = has(flags, libc::MAP_FIXED_NOREPLACE);
    if len > USER_END {
        return Err(libc::ENOMEM);
    }
    if !is_new && !has(flags, libc::MAP_FIXED) {
        return if start == 0 { Ok(Placement::Anywhere) } else { Ok(Placement::Hint(start)) };
    }
    if start > USER_END - len {
        return Err(libc::ENOMEM);
    }
    if !start.is_multiple_of(PAGE) {
        return Err(libc::EINVAL);
    }
    if start < space.limits().mmap_min_addr && !process.is_root {
        return Err(libc::EPERM);
    }
    if !is_new {
        return Ok(Placement::Fixed(start));
    }
    let mut is_taken = false;
    space.for_each_area(|line| is_taken |= line.start < start + len && start < line.end);
    if is_taken { Err(libc::EEXIST) } else { Ok(Placement::FixedNoReplace(start)) }
}

/// Checks type, descriptor and flags in Linux's order; returns what the area shall be.
fn area_flags(file: File, len: u64, prot: u64, flags: u64, offset: u64) -> Result<AreaFlags, i32> {
    let mut area = rights(prot);
    area.set(AreaFlags::GROWSDOWN, has(flags, libc::MAP_GROWSDOWN));
    area.set(AreaFlags::NORESERVE, has(flags, libc::MAP_NORESERVE));
    area.set(AreaFlags::LOCKED, has(flags, libc::MAP_LOCKED));
    let kind = (flags & MAP_TYPE) as i32;
    if file == File::None {
        return match kind {
            libc::MAP_SHARED if area.contains(AreaFlags::GROWSDOWN) => Err(libc::EINVAL),
            libc::MAP_SHARED => Ok(area | AreaFlags::SHARED),
            libc::MAP_PRIVATE => Ok(area),
            _ => Err(libc::EINVAL),
        };
    }
    if file != File::Pipe && offset.checked_add(len).is_none_or(|end| end > i64::MAX as u64) {
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
    | 0x8000_0000_u32 as i32) as u32 as u64
    | 0x3f << 26;

fn map<P: Platform, D: Design<P>>(process: &Process<'_, '_, P, D>, args: MapArgs) -> Answer {
    let space = process.guest.space();
    let shared;
    let backing = match args.file {
        File::ReadWrite | File::ReadOnly | File::WriteOnly => Backing::Object(&process.files.read_write, args.offset),
        File::Empty => Backing::Object(&process.files.empty, args.offset),
        _ if args.area.contains(AreaFlags::SHARED) => {
            shared = world::shared_memory(process.vm, args.len).map_err(|_| libc::ENOMEM)?;
            Backing::Object(&shared, 0)
        }
        _ => Backing::Anonymous,
    };
    let is_now = has(args.flags, libc::MAP_POPULATE) && !has(args.flags, libc::MAP_NONBLOCK);
    let populate = if is_now { Populate::Now } else { Populate::OnFault };
    let request = MapRequest { placement: args.placement, len_bytes: args.len, flags: args.area, backing, populate };
    space.mmap(&request).map_err(errno)
}

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
    done(process.guest.space().mprotect(start, len, rights(prot)))
}

/// mremap(2): flags and lengths first.
fn mremap<P: Platform, D: Design<P>>(process: &Process<'_, '_, P, D>, op: &Op) -> Answer {
    let [old_start, old_len, new_len, flags, new, _] = op.args;
    let known = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP) as u64;
    let (moves, is_fixed) = (has(flags, libc::MREMAP_MAYMOVE), has(flags, libc::MREMAP_FIXED));
    let keeps_source = has(flags, libc::MREMAP_DONTUNMAP);
    if flags & !known != 0 || !moves && (is_fixed || keeps_source) {
        return Err(libc::EINVAL);
    }
    let placement = match () {
        () if is_fixed => RemapPlacement::Fixed(new),
        () if moves => RemapPlacement::MayMove,
        () => RemapPlacement::InPlace,
    };
    let request = RemapRequest { old_start, old_len_bytes: old_len, new_len_bytes: new_len, placement, keeps_source };
    process.guest.space().mremap(&request).map_err(errno)
}

fn madvise<P: Platform, D: Design<P>>(process: &Process<'_, '_, P, D>, start: u64, len: u64, advice: u64) -> Answer {
    let advice = match advice {
        4 => Advice::DontNeed,
        8 => Advice::Free,
        10 => Advice::DontFork,
        11 => Advice::DoFork,
        18 => Advice::WipeOnFork,
        19 => Advice::KeepOnFork,
        22 => Advice::PopulateRead,
        23 => Advice::PopulateWrite,
        24 => Advice::DontNeedLocked,
        3 | 20 | 21 => Advice::Ignored,
        _ => return Err(libc::EINVAL),
    };
    done(process.guest.space().madvise(start, len, advice))
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
    let bytes: Vec<u8> = (0..len).map(|place| byte((number + place / 64) as u8)).collect();
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
    match file {
        File::None | File::Closed => Err(libc::EBADF),
        File::ReadOnly | File::Pipe => Err(libc::EINVAL),
        File::ReadWrite | File::WriteOnly => {
            process.files.read_write.set_size_bytes(len);
            Ok(0)
        }
        File::Empty => {
            process.files.empty.set_size_bytes(len);
            Ok(0)
        }
    }
}

#[allow(dead_code, reason = "for the calls that follow")]
fn fold_bits(bits: &[u8]) -> u64 {
    let _ = (page_floor(0), PageRange::new(0, 1));
    fold(bits.iter().copied())
}
