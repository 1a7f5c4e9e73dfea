//! mmap(2): descriptor and offset first, then the place; what the file and the type allow comes last.

use crate::errno::Errno;
use crate::file::{File, FileMode, Pages};
use crate::flags::{MapFlags, Prot};
use faultless_vm::{
    Backing, CallError, MapOptions, MapRequest, PAGE, Placement, Populate, System, USER_END, VirtAddr, page_ceil,
};

/// Returns what mmap's registers ask of the library; `file` is what stands behind the descriptor, nothing if no file is
/// open under that number.
///
/// [`Calls::mmap`](crate::Calls::mmap) goes this way. Whoever has reasons to map elsewhere, as a replay that knows where
/// Linux put a mapping, changes the request before it passes it on.
pub fn map_request<'a, P: System>(
    [start, len, prot, flags, _, offset]: [u64; 6],
    file: Option<File<'a, P>>,
) -> Result<MapRequest<'a, P>, Errno> {
    let (prot, flags) = (Prot::from_bits_retain(prot), MapFlags::from_bits_retain(flags));
    let is_anonymous = flags.contains(MapFlags::ANONYMOUS);
    let file = file.filter(|_| !is_anonymous);
    if !offset.is_multiple_of(PAGE) {
        return Err(Errno::EINVAL);
    }
    if !is_anonymous && file.is_none() {
        return Err(Errno::EBADF);
    }
    if flags.contains(MapFlags::HUGETLB) {
        return Err(without_huge_pages(start, len, flags, file.is_some()));
    }
    if let Some(errno) = misplaced(start, len, flags) {
        return Err(errno);
    }
    let kind = match &file {
        None => anonymous(flags),
        Some(file) => of_file(file, len, prot, flags, offset),
    };
    Ok(MapRequest {
        placement: placement(start, flags),
        len_bytes: len,
        protection: prot.protection(),
        options: kind.unwrap_or(wanted(flags)),
        backing: backing(kind, file, offset),
        populate: if flags.populates() { Populate::Now } else { Populate::OnFault },
    })
}

/// Returns the error of a mapping of huge pages where there are none. A file of huge pages would allow it.
fn without_huge_pages(start: u64, len: u64, flags: MapFlags, has_file: bool) -> Errno {
    const USUAL_BITS: u64 = 21;
    // `MAP_HUGE_SHIFT`, `MAP_HUGE_MASK`.
    let asked = flags.bits() >> 26 & 0x3f;
    let bits = if asked == 0 { USUAL_BITS } else { asked };
    let is_size = matches!(bits, USUAL_BITS | 30);
    let is_aligned = |size: u64| !flags.is_fixed() || start.is_multiple_of(size);
    // As behind any file.
    let is_stack = flags.contains(MapFlags::GROWSDOWN);
    match () {
        () if is_stack || has_file || !is_size || len == 0 || !is_aligned(1 << bits) || anonymous(flags).is_err() => {
            Errno::EINVAL
        }
        () => Errno::ENOMEM,
    }
}

/// Returns the error of an address that can't be one.
fn misplaced(start: u64, len: u64, flags: MapFlags) -> Option<Errno> {
    let len = page_ceil(len).filter(|&len| len != 0)?;
    match () {
        () if flags.is_fixed() && len > USER_END => Some(Errno::ENOMEM),
        // In Linux an address among the last 4095 can't be told from the error of that number.
        () if flags.is_fixed() && start > u64::MAX - 4095 => Some(Errno::new(start.wrapping_neg() as i32)),
        () => None,
    }
}

fn placement(start: u64, flags: MapFlags) -> Placement {
    match () {
        () if flags.contains(MapFlags::FIXED_NOREPLACE) => Placement::FixedNoReplace(VirtAddr::new(start)),
        () if flags.contains(MapFlags::FIXED) => Placement::Fixed(VirtAddr::new(start)),
        () if flags.contains(MapFlags::LOW_2G) => Placement::Low2G { hint: VirtAddr::new(start) },
        () if start == 0 => Placement::Anywhere,
        () => Placement::Hint(VirtAddr::new(start)),
    }
}

fn backing<'a, P: System>(
    kind: Result<MapOptions, CallError>,
    file: Option<File<'a, P>>,
    offset: u64,
) -> Backing<'a, P> {
    match (kind, file.and_then(|file| file.pages)) {
        (Err(refusal), _) => Backing::Refused(refusal),
        (Ok(_), Some(Pages::Object(object))) => Backing::Object(object, offset),
        (Ok(_), Some(Pages::Reference(handle))) => Backing::Reference(handle, offset),
        (Ok(flags), None) if flags.contains(MapOptions::SHARED) => Backing::SharedZeros,
        (Ok(_), None) => Backing::Anonymous,
    }
}

/// Returns what the flags ask of the area, whatever stands behind it.
fn wanted(flags: MapFlags) -> MapOptions {
    let mut area = MapOptions::empty();
    area.set(MapOptions::GROWSDOWN, flags.contains(MapFlags::GROWSDOWN));
    area.set(MapOptions::NORESERVE, flags.contains(MapFlags::NORESERVE));
    area.set(MapOptions::LOCKED, flags.contains(MapFlags::LOCKED));
    area.set(MapOptions::NO_HUGE, flags.contains(MapFlags::STACK));
    area.set(MapOptions::SYNC, flags.contains(MapFlags::SYNC));
    area
}

const TYPE: CallError = CallError::Invalid("the mapping is neither shared nor private, or both");
const GROWS: CallError = CallError::Invalid("only private anonymous memory grows downwards");

fn anonymous(flags: MapFlags) -> Result<MapOptions, CallError> {
    let area = wanted(flags);
    match flags & MapFlags::TYPE {
        MapFlags::SHARED if area.contains(MapOptions::GROWSDOWN) => Err(GROWS),
        MapFlags::SHARED => Ok(area | MapOptions::SHARED),
        MapFlags::PRIVATE => Ok(area),
        MapFlags::DROPPABLE if flags.intersects(UNDROPPABLE) => Err(DROPPED),
        MapFlags::DROPPABLE => Ok(area | DROPPABLE),
        _ => Err(TYPE),
    }
}

/// What `MAP_DROPPABLE` brings: such memory is not promised, a child gets it empty, and a core dump leaves it out.
const DROPPABLE: MapOptions =
    MapOptions::DROPPABLE.union(MapOptions::NORESERVE).union(MapOptions::WIPEONFORK).union(MapOptions::NO_DUMP);
/// What such memory can't be.
const UNDROPPABLE: MapFlags = MapFlags::LOCKED.union(MapFlags::HUGETLB).union(MapFlags::GROWSDOWN);
const DROPPED: CallError = CallError::Invalid("memory that may be dropped can't be locked, huge or a stack");

/// Checks offset, type and descriptor in Linux's order.
fn of_file<P: System>(
    file: &File<'_, P>,
    len: u64,
    prot: Prot,
    flags: MapFlags,
    offset: u64,
) -> Result<MapOptions, CallError> {
    let area = wanted(flags);
    check_offset(len, offset, file.max_bytes)?;
    let area = match flags & MapFlags::TYPE {
        MapFlags::SHARED_VALIDATE if !MapFlags::VALIDATED.contains(flags) => {
            return Err(CallError::Unsupported("a flag that MAP_SHARED_VALIDATE refuses"));
        }
        MapFlags::SHARED | MapFlags::SHARED_VALIDATE => shared(file.mode, prot, area)?,
        MapFlags::PRIVATE => area,
        _ => return Err(TYPE),
    };
    let is_no_exec = file.mode.contains(FileMode::NO_EXEC);
    let area = if is_no_exec { area | MapOptions::DENY_EXEC } else { area };
    match () {
        () if !file.mode.contains(FileMode::READ) => Err(CallError::Denied),
        () if is_no_exec && prot.contains(Prot::EXEC) => Err(CallError::NoExec),
        () if file.pages.is_none() => Err(CallError::NotMappable),
        () if area.contains(MapOptions::GROWSDOWN) => Err(GROWS),
        () => Ok(area),
    }
}

fn check_offset(len: u64, offset: u64, max_bytes: u64) -> Result<(), CallError> {
    let len = page_ceil(len).unwrap_or(u64::MAX);
    let fits = max_bytes.checked_sub(len).is_some_and(|last| offset / PAGE <= last / PAGE);
    if fits { Ok(()) } else { Err(CallError::OffsetOverflow) }
}

/// Returns the flags of a shared mapping: without a descriptor for writing, mprotect can't make it writable later.
fn shared(mode: FileMode, prot: Prot, area: MapOptions) -> Result<MapOptions, CallError> {
    let writes = mode.contains(FileMode::WRITE);
    match prot.contains(Prot::WRITE) && !writes {
        true => Err(CallError::Denied),
        false if writes => Ok(area | MapOptions::SHARED),
        false => Ok(area | MapOptions::SHARED | MapOptions::DENY_WRITE),
    }
}
