//! From a recorded call to a memory call and a verdict.
//!
//! # Guarantee
//! Only the recording decides: the call, its arguments and result, what the kernel told of the mapping, and what was
//! mapped at that moment. Which error depends on what is written down here, error by error.

use std::ops::Range;

use faultless_abi::{Errno, MapFlags, Prot, RemapFlags, advice_of, page_lock_of};
use faultless_trace::{Call, CallEnter, Mapped};
use faultless_vm::{Advice, LockAll, PageLock, SyncFlags, USER_END};

use super::advice::refusing;
use super::ids::ObjectIndex;
use super::memory_calls::{Mapping, MemoryCall, Place, Reason, Verdict};
use super::regions::{Backing, PAGE, Region, Regions, Sharing, Traits, page_ceil};
use super::windows::{fills, span};

/// A call as recorded, with what surrounds it.
pub struct Recorded<'a> {
    /// The call and its arguments.
    pub enter: CallEnter,
    /// What it returned; `None` if it never did.
    pub result: Option<i64>,
    /// What the kernel told of the mapping.
    pub mapped: Option<Mapped>,
    /// The last mapping that the kernel told of during the call, whether or not the result is about it.
    pub told: Option<Mapped>,
    /// The object behind `mapped`, or a new one for shared memory that the kernel told nothing of.
    pub object: Option<ObjectIndex>,
    /// What is mapped before the call.
    pub regions: &'a Regions,
    /// Whether a refused call would have advised or locked a guarded page.
    pub meets_guard: bool,
    /// How new mappings are locked, if they are.
    pub future_lock: Option<PageLock>,
    /// The space's break, if it is known.
    pub program_break: Option<u64>,
    /// Whether it is the page boundary at or behind the true one.
    pub is_break_rounded: bool,
    /// The bytes that Linux lets a process lock, if they are limited.
    pub lock_bytes: Option<u64>,
    /// The areas that Linux allows a process.
    pub max_areas: u64,
    /// Whether all calls were seen, so that `regions` is all that is mapped and nothing else.
    pub is_whole: bool,
    /// Whether other threads may have changed the map during the call, so that it may have found another one.
    pub is_beside_others: bool,
}

/// A memory call and the verdict on its result.
pub type Decoded = (MemoryCall, Verdict);

const fn imposed(reason: Reason) -> Decoded {
    (MemoryCall::Nothing, Verdict::Imposed(reason))
}

impl Recorded<'_> {
    /// Decides what a replay does for the call.
    pub fn decode(&self) -> Decoded {
        let Some(result) = self.result else { return imposed(Reason::Signal) };
        if was_killed(self.enter.call, result) {
            return imposed(Reason::Signal);
        }
        match self.enter.call {
            Call::Mmap => self.mmap(result),
            Call::Munmap => self.munmap(result),
            Call::Mprotect | Call::PkeyMprotect => self.mprotect(result),
            Call::Mremap => self.mremap(result),
            Call::Madvise => self.madvise(result),
            Call::Brk => self.brk(result),
            Call::Msync | Call::Mincore => self.ask(result),
            _ => self.rare(result),
        }
    }

    fn rare(&self, result: i64) -> Decoded {
        let errno = Errno::of_result(result);
        let is_error = errno.is_some();
        match self.enter.call {
            Call::Mlock2 if !is_error && page_lock_of(self.enter.args[2] as u32).is_none() => {
                (MemoryCall::Nothing, Verdict::NotModelled(self.enter.call.name()))
            }
            Call::Mlock | Call::Mlock2 | Call::Munlock | Call::Mlockall | Call::Munlockall if !is_error => {
                self.lock(result)
            }
            Call::Mlock | Call::Mlock2 | Call::Munlock if errno == Some(Errno::ENOMEM) => self.refused_lock(result),
            Call::Mlock
            | Call::Mlock2
            | Call::Munlock
            | Call::Mlockall
            | Call::Munlockall
            | Call::Mseal
            | Call::Clone => imposed(Reason::Limit),
            Call::Ftruncate | Call::Fallocate | Call::Truncate | Call::Open | Call::Openat | Call::Creat => {
                imposed(Reason::Descriptor)
            }
            Call::Userfaultfd | Call::IoUringSetup | Call::Vmsplice => imposed(Reason::Descriptor),
            Call::Ptrace | Call::ProcessVmReadv | Call::ProcessVmWritev => imposed(Reason::Process),
            Call::Prctl if !is_error && !moves_heap(self.enter.args[1]) => imposed(Reason::Process),
            // It never lacks memory (ipc/shm.c, `ksys_shmdt`).
            Call::Shmdt if matches!(errno, None | Some(Errno::ENOMEM)) => self.detach(result),
            _ if is_error => imposed(Reason::Descriptor),
            Call::Shmat => self.attach(result),
            Call::IoSetup => self.ring(),
            Call::IoDestroy => self.detach(result),
            Call::MapShadowStack => self.shadow_stack(result),
            Call::RemapFilePages => self.remap_file_pages(result),
            // Of which process, and which pages of it, nobody knows.
            Call::ProcessMadvise => imposed(Reason::Process),
            call => (MemoryCall::Nothing, Verdict::NotModelled(call.name())),
        }
    }

    fn mmap(&self, result: i64) -> Decoded {
        let [hint, len, prot, flags, _, offset] = self.enter.args;
        let (prot, flags) = (Prot::from_bits_retain(prot), MapFlags::from_bits_retain(flags));
        let place = match result {
            _ if is_error(result) => Place::Refused { hint },
            _ if flags.contains(MapFlags::FIXED) => Place::Fixed(hint),
            _ if flags.contains(MapFlags::FIXED_NOREPLACE) => Place::FixedIfFree(hint),
            _ => self.found(hint, self.told_place(result as u64, len).unwrap_or(result as u64), len),
        };
        if let Some(reason) = Errno::of_result(result).and_then(|errno| mmap_refusal(errno, len, flags)) {
            return imposed(reason);
        }
        // The kernel looks at the offset first, also where it means nothing; here a length of 0 is refused in the same
        // way.
        let len = if offset.is_multiple_of(PAGE) { len } else { 0 };
        let backing = self.backing(flags, offset);
        // What may be dropped is never locked.
        let lock = self.future_lock.filter(|_| flags & MapFlags::TYPE != MapFlags::DROPPABLE);
        let flags = if lock == Some(PageLock::Lock) { flags | MapFlags::LOCKED } else { flags };
        let is_locked_on_fault = lock == Some(PageLock::LockOnFault) && !is_error(result);
        let mapping = Mapping { place, len, prot, flags, backing, is_locked_on_fault };
        (MemoryCall::Map(mapping), Verdict::Compared(result))
    }

    /// Returns where a new mapping can only be, if the kernel told of one that holds a part of it alone.
    fn told_place(&self, placed: u64, len: u64) -> Option<u64> {
        let (range, told) = (span(placed, len), self.mapped?);
        (end_of(&told) < range.end).then(|| end_of(&told).saturating_sub(range.end - range.start).max(told.start))
    }

    /// Returns where Linux's search put a mapping. What is there already is an unseen call's doing, if there was one.
    fn found(&self, hint: u64, placed: u64, len: u64) -> Place {
        match self.is_whole || self.regions.overlapping(span(placed, len)).next().is_none() {
            true => Place::Searched { hint, placed },
            false => Place::Fixed(placed),
        }
    }

    /// Returns what stands behind a new mapping.
    fn backing(&self, flags: MapFlags, offset: u64) -> Backing {
        let is_shared = flags.is_shared();
        let sharing = if is_shared { Sharing::Shared } else { Sharing::Private };
        match self.object {
            Some(object) if is_shared || !flags.contains(MapFlags::ANONYMOUS) => {
                Backing::Object { object, offset, sharing }
            }
            _ => Backing::Anonymous,
        }
    }

    fn munmap(&self, result: i64) -> Decoded {
        let [start, len, ..] = self.enter.args;
        match Errno::of_result(result) {
            Some(Errno::EPERM) => imposed(Reason::Limit),
            // Cutting an area in two needs one more.
            Some(Errno::ENOMEM) if self.is_crowded() => imposed(Reason::Limit),
            // An area that can't be cut there: huge pages, a driver's, the vdso (mm/vma.c, `may_split`).
            Some(Errno::EINVAL) if self.may_be_uncuttable(start, len) => imposed(Reason::Device),
            _ => (MemoryCall::Unmap { start, len }, Verdict::Compared(result)),
        }
    }

    fn mprotect(&self, result: i64) -> Decoded {
        let [start, len, prot, ..] = self.enter.args;
        let prot = Prot::from_bits_retain(prot);
        match Errno::of_result(result) {
            Some(Errno::EACCES) => self.refused_rights(prot, self.told.map(|told| end_of(&told)), Reason::Descriptor),
            Some(Errno::EPERM) => self.refused_rights(prot, self.first_sealed(start, len), Reason::Limit),
            Some(Errno::ENOMEM) if !self.has_hole(start, len) && self.may_refuse_rights(start, len, prot) => {
                imposed(Reason::Limit)
            }
            Some(Errno::EINVAL) if self.enter.call == Call::PkeyMprotect || self.may_be_uncuttable(start, len) => {
                imposed(Reason::Device)
            }
            _ => (MemoryCall::Protect { start, len, prot }, Verdict::Compared(result)),
        }
    }

    /// Rights are changed up to the first area that refuses them. It begins at `end`, or there is memory before it that
    /// had the rights already.
    fn refused_rights(&self, prot: Prot, end: Option<u64>, reason: Reason) -> Decoded {
        let [start, len, ..] = self.enter.args;
        let asked = span(start, len);
        match end.map(|end| end.min(asked.end)).filter(|&end| end > start) {
            Some(end) => (MemoryCall::Protect { start, len: end - start, prot }, Verdict::Compared(0)),
            None => imposed(reason),
        }
    }

    fn first_sealed(&self, start: u64, len: u64) -> Option<u64> {
        let mut areas = self.regions.overlapping(span(start, len));
        areas.find(|region| region.traits.contains(Traits::SEALED)).map(|region| region.start)
    }

    /// Returns whether a range that is well-formed holds memory that Linux may refuse to cut.
    fn may_be_uncuttable(&self, start: u64, len: u64) -> bool {
        let is_odd = |region: &Region| {
            region.traits.intersects(Traits::HUGE | Traits::SPECIAL) || region.backing != Backing::Anonymous
        };
        is_well_formed(start, len) && self.regions.overlapping(span(start, len)).any(is_odd)
    }

    /// Returns whether rights may be refused for want of areas, or of memory where a store becomes allowed
    /// (mm/mprotect.c, `mprotect_fixup`). What the kernel tells of, it has done.
    fn may_refuse_rights(&self, start: u64, len: u64, prot: Prot) -> bool {
        let range = span(start, len);
        let lacks_right = |region: &Region| !region.prot.contains(Prot::WRITE);
        let adds_right = prot.contains(Prot::WRITE) && self.regions.overlapping(range.clone()).any(lacks_right);
        let is_done = self.told.is_some_and(|told| told.start <= range.start && range.end <= end_of(&told));
        !is_done && (self.is_crowded() || adds_right || self.is_beside_others)
    }

    /// Returns whether the process may have as many areas as it is allowed. Linux merges fewer of them than the plan:
    /// those with names, with pages of different parents.
    fn is_crowded(&self) -> bool {
        const AREAS_A_REGION: u64 = 4;
        self.regions.count() as u64 * AREAS_A_REGION >= self.max_areas
    }

    fn has_hole(&self, start: u64, len: u64) -> bool {
        self.regions.first_hole(span(start, len)).is_some()
    }

    fn mremap(&self, result: i64) -> Decoded {
        let [old, old_len, new_len, flags, requested] = [0, 1, 2, 3, 4].map(|place: usize| self.enter.args[place]);
        let flags = RemapFlags::from_bits_retain(flags);
        let target = match result {
            _ if flags.contains(RemapFlags::FIXED) => requested,
            _ if is_error(result) && flags.contains(RemapFlags::DONTUNMAP) => requested,
            _ if is_error(result) => 0,
            _ => result as u64,
        };
        match Errno::of_result(result) {
            Some(Errno::ENOMEM) if flags.contains(RemapFlags::MAYMOVE) || !self.is_blocked(old, old_len, new_len) => {
                imposed(Reason::Limit)
            }
            Some(Errno::EAGAIN | Errno::EPERM) => imposed(Reason::Limit),
            _ => (MemoryCall::Remap { old, old_len, new_len, flags, target }, Verdict::Compared(result)),
        }
    }

    /// Returns whether something is mapped where a mapping would have to grow.
    fn is_blocked(&self, old: u64, old_len: u64, new_len: u64) -> bool {
        let (old, new) = (span(old, old_len), span(old, new_len));
        new.end > USER_END || self.regions.overlapping(old.end..new.end.max(old.end)).next().is_some()
    }

    fn madvise(&self, result: i64) -> Decoded {
        let [start, len, advice, ..] = self.enter.args;
        match Errno::of_result(result) {
            Some(Errno::ENOMEM) if !self.has_hole(start, len) && self.may_lack_memory(advice) => imposed(Reason::Limit),
            Some(Errno::ENOMEM) | None => (self.advise(len), Verdict::Compared(result)),
            Some(Errno::EINVAL) if !is_well_formed(start, len) => (self.advise(len), Verdict::Compared(result)),
            Some(_) => self.refused_advice(),
        }
    }

    /// A replay takes the advice about what lies before the area that refused it.
    fn refused_advice(&self) -> Decoded {
        let [start, len, advice, ..] = self.enter.args;
        let is_for_seals = self.result == Some(Errno::EPERM.raw());
        let refusing =
            advice_of(advice as u32).and_then(|kind| refusing(self.regions, span(start, len), kind, is_for_seals));
        if self.result == Some(Errno::EFAULT.raw()) && self.meets_guard {
            return (self.advise(len), Verdict::Compared(Errno::EFAULT.raw()));
        }
        // Filled up to the end of some file, wherever that is.
        let is_cut_short = self.result == Some(Errno::EFAULT.raw()) && fills(advice);
        let refusing = if is_cut_short { self.first_object(&span(start, len)) } else { refusing };
        let Some(end) = refusing.filter(|&end| end > start) else { return imposed(Reason::Device) };
        let result = if self.has_hole(start, end - start) { Errno::ENOMEM.raw() } else { 0 };
        (self.advise(end - start), Verdict::Compared(result))
    }

    fn first_object(&self, range: &Range<u64>) -> Option<u64> {
        let mut areas = self.regions.overlapping(range.clone());
        areas.find(|region| region.backing != Backing::Anonymous).map(|region| region.start.max(range.start))
    }

    /// What advice removes from a file stays in a replay's, which holds what is expected of it.
    fn advise(&self, len: u64) -> MemoryCall {
        let [start, _, advice, ..] = self.enter.args;
        let is_remove = advice_of(advice as u32) == Some(Advice::Remove);
        if is_remove {
            MemoryCall::advise(start, len, Advice::DontNeed)
        } else {
            MemoryCall::Advise { start, len, advice }
        }
    }

    /// Returns whether advice may be refused for want of memory though all of the range is mapped. Where an area can't
    /// be cut in two, Linux says EAGAIN instead (mm/madvise.c, `madvise_vma_behavior`).
    fn may_lack_memory(&self, advice: u64) -> bool {
        use Advice::{Collapse, GuardInstall, PopulateRead, PopulateWrite, Remove};
        let allocates = |advice| matches!(advice, Collapse | GuardInstall | PopulateRead | PopulateWrite | Remove);
        self.is_beside_others || advice_of(advice as u32).is_none_or(allocates)
    }

    /// A refused growth is the limit's doing, unless something is in the way; the break stays where it was then.
    fn brk(&self, result: i64) -> Decoded {
        let [requested, ..] = self.enter.args;
        let before = self.program_break.unwrap_or(result as u64);
        // The first call tells where inside its last page the heap ends.
        let is_told = self.is_break_rounded && page_ceil(result as u64) == before;
        let requested = if is_told { result as u64 } else { requested };
        let is_refused = requested > before && result as u64 != requested;
        let grown = page_ceil(before)..page_ceil(requested).max(page_ceil(before));
        let is_kept = result as u64 == before || self.is_break_rounded && page_ceil(result as u64) == before;
        if is_refused && is_kept && self.regions.overlapping(grown).next().is_none() {
            return imposed(Reason::Limit);
        }
        (MemoryCall::Break { requested, before, is_first: self.program_break.is_none() }, Verdict::Compared(result))
    }

    fn ask(&self, result: i64) -> Decoded {
        let [start, len, ..] = self.enter.args;
        match Errno::of_result(result) {
            None if self.writes_back() => (MemoryCall::WriteBack { start, len }, Verdict::Compared(result)),
            // madvise, which a replay asks with, takes a range that wraps around for invalid.
            // Nor does it see that mincore looks at addresses beyond user memory first.
            Some(Errno::ENOMEM) if goes_round(start, len) || start >= USER_END => imposed(Reason::Device),
            None | Some(Errno::ENOMEM) => (MemoryCall::Ask { start, len }, Verdict::Compared(result)),
            Some(Errno::EINVAL) if !start.is_multiple_of(PAGE) => {
                (MemoryCall::Ask { start, len }, Verdict::Compared(result))
            }
            _ => imposed(Reason::Descriptor),
        }
    }

    /// With `MS_SYNC` alone Linux waits until all is written back (mm/msync.c).
    fn writes_back(&self) -> bool {
        let flags = u32::try_from(self.enter.args[2]).unwrap_or(0);
        self.enter.call == Call::Msync && SyncFlags::from_bits_retain(flags).contains(SyncFlags::SYNC)
    }

    /// Where a hole refuses it, or pages to lock that nobody may access or that are guarded, what lies before is
    /// locked, or let go. A limit refuses all of it.
    fn refused_lock(&self, result: i64) -> Decoded {
        let [start, len, ..] = self.enter.args;
        let range = span(start, len);
        let is_unlock = self.enter.call == Call::Munlock;
        let is_barred = !is_unlock && (self.meets_guard || self.regions.first_barred(&range).is_some());
        let is_for_map = is_barred || self.regions.first_hole(range).is_some();
        // No limit forbids munlock, but cutting an area in two needs one more.
        let may_lack_areas = self.is_crowded() || self.is_beside_others;
        match self.lock(result) {
            (memory_call, _) if is_for_map && may_lack_areas => (memory_call, Verdict::Either(result)),
            decoded if is_for_map || is_unlock && !may_lack_areas => decoded,
            // What lies before that end is filled, nobody knows how much that is.
            _ if !is_unlock && self.ends_behind_a_file(start, len) => {
                (MemoryCall::Lock { start, len, lock: PageLock::LockOnFault }, Verdict::Either(result))
            }
            _ => imposed(Reason::Limit),
        }
    }

    /// Returns whether a lock that no hole and no limit explains was refused behind the end of a file: all of the range
    /// is locked then (mm/mlock.c, `do_mlock`).
    fn ends_behind_a_file(&self, start: u64, len: u64) -> bool {
        let range = span(start, len.saturating_add(start % PAGE));
        let has_file = self.regions.overlapping(range.clone()).any(|region| region.backing != Backing::Anonymous);
        let locked = self.regions.overlapping(0..u64::MAX).filter(|region| region.traits.contains(Traits::LOCKED));
        let locked_bytes: u64 = locked.map(|region| region.end - region.start).sum();
        let is_small = || self.lock_bytes.is_none_or(|most| locked_bytes + (range.end - range.start) <= most);
        has_file && is_small()
    }

    fn lock(&self, result: i64) -> Decoded {
        let [start, len, flags, ..] = self.enter.args;
        let on_fault = match self.enter.call {
            Call::Mlock2 => page_lock_of(flags as u32) == Some(PageLock::LockOnFault),
            Call::Mlockall => LockAll::from_bits_truncate(start as u32).contains(LockAll::ON_FAULT),
            _ => false,
        };
        let lock = match self.enter.call {
            Call::Munlock | Call::Munlockall => PageLock::Unlock,
            _ if on_fault => PageLock::LockOnFault,
            _ => PageLock::Lock,
        };
        let verdict = Verdict::Compared(result);
        match self.enter.call {
            Call::Mlockall if !LockAll::from_bits_truncate(start as u32).contains(LockAll::CURRENT) => {
                imposed(Reason::Limit)
            }
            Call::Mlockall | Call::Munlockall => (MemoryCall::LockAll { lock }, verdict),
            // As Linux rounds it: a length that wraps around is none.
            _ if is_wrapped(start, len) => (MemoryCall::Nothing, verdict),
            _ => (MemoryCall::Lock { start, len, lock }, verdict),
        }
    }

    fn attach(&self, result: i64) -> Decoded {
        const SHM_RDONLY: u64 = 0o10000;
        const SHM_REMAP: u64 = 0o40000;
        const SHM_EXEC: u64 = 0o100000;
        let flags = self.enter.args[2];
        let write = if flags & SHM_RDONLY == 0 { Prot::WRITE } else { Prot::empty() };
        let exec = if flags & SHM_EXEC != 0 { Prot::EXEC } else { Prot::empty() };
        let replaces = flags & SHM_REMAP != 0;
        self.told_mapping(Some(result as u64), Prot::READ | write | exec, replaces)
    }

    fn ring(&self) -> Decoded {
        self.told_mapping(None, Prot::READ | Prot::WRITE, false)
    }

    /// Maps shared memory of which only the kernel's own record tells the size.
    fn told_mapping(&self, result: Option<u64>, prot: Prot, replaces: bool) -> Decoded {
        let Some((mapped, object)) = self.mapped.zip(self.object) else {
            return (MemoryCall::Nothing, Verdict::NotModelled(self.enter.call.name()));
        };
        let placed = result.unwrap_or(mapped.start);
        let (place, backing) = (
            if replaces { Place::Fixed(placed) } else { self.found(0, placed, mapped.len_bytes) },
            Backing::Object { object, offset: mapped.file_offset, sharing: Sharing::Shared },
        );
        let mapping =
            Mapping { place, len: mapped.len_bytes, prot, flags: MapFlags::SHARED, backing, is_locked_on_fault: false };
        (MemoryCall::Map(mapping), Verdict::Compared(placed as i64))
    }

    /// Takes away what begins at the first argument, and what was cut off from it.
    fn detach(&self, result: i64) -> Decoded {
        let start = self.enter.args[0];
        let Some(first) = self.regions.find(start) else {
            return (MemoryCall::Nothing, Verdict::NotModelled(self.enter.call.name()));
        };
        let whole = first.backing;
        let is_part = |region: &&Region| region.backing == whole.advanced(region.start - first.start);
        let parts = self.regions.overlapping(start..u64::MAX).take_while(is_part);
        let end = parts.last().map_or(first.end, |region| region.end);
        (MemoryCall::Unmap { start, len: end - start }, Verdict::Compared(result))
    }

    fn shadow_stack(&self, result: i64) -> Decoded {
        let [hint, len, ..] = self.enter.args;
        let place = self.found(hint, result as u64, len);
        let flags = MapFlags::PRIVATE | MapFlags::ANONYMOUS;
        let mapping = Mapping {
            place,
            len,
            prot: Prot::READ | Prot::WRITE,
            flags,
            backing: Backing::Anonymous,
            is_locked_on_fault: false,
        };
        (MemoryCall::Map(mapping), Verdict::Compared(result))
    }

    /// A mapping anew, which is filled unless `MAP_NONBLOCK` is asked for (mm/mmap.c).
    fn remap_file_pages(&self, result: i64) -> Decoded {
        let [start, len, _, page_offset, asked, _] = self.enter.args;
        let Some(region) = self.regions.find(start) else { return imposed(Reason::Descriptor) };
        let Backing::Object { object, sharing, .. } = region.backing else { return imposed(Reason::Descriptor) };
        let backing = Backing::Object { object, offset: page_offset.wrapping_mul(PAGE), sharing };
        let asked = MapFlags::from_bits_retain(asked) & MapFlags::NONBLOCK;
        let flags = MapFlags::SHARED | MapFlags::FIXED | MapFlags::POPULATE | asked;
        let mapping =
            Mapping { place: Place::Fixed(start), len, prot: region.prot, flags, backing, is_locked_on_fault: false };
        (MemoryCall::Map(mapping), Verdict::Compared(if result == 0 { start as i64 } else { result }))
    }
}

fn end_of(mapped: &Mapped) -> u64 {
    mapped.start + mapped.len_bytes
}

/// Returns whether a call gave up waiting for the map's lock because its process is being killed, and did nothing
/// (`mmap_write_lock_killable`).
pub fn was_killed(call: Call, result: i64) -> bool {
    const INTERRUPTED: i64 = -4;
    let waits =
        matches!(call, Call::Mmap | Call::Munmap | Call::Mprotect | Call::PkeyMprotect | Call::Mremap | Call::Brk);
    waits && result == INTERRUPTED
}

/// Returns whether so many bytes from there go beyond the last address (mm/mprotect.c: ENOMEM before anything is done).
pub fn goes_round(start: u64, len: u64) -> bool {
    start.checked_add(len).and_then(|end| end.checked_next_multiple_of(PAGE)).is_none()
}

/// Returns why an mmap was refused, unless its arguments and the map alone tell.
fn mmap_refusal(errno: Errno, len: u64, flags: MapFlags) -> Option<Reason> {
    let is_anonymous = flags.contains(MapFlags::ANONYMOUS);
    match errno {
        // Which huge pages there are is the host's affair.
        Errno::EINVAL if flags.contains(MapFlags::HUGETLB) => Some(Reason::Device),
        Errno::EINVAL if is_anonymous => None,
        Errno::EEXIST => None,
        Errno::ENOMEM if len >= USER_END => None,
        Errno::ENOMEM | Errno::EPERM | Errno::EAGAIN => Some(Reason::Limit),
        Errno::EINVAL | Errno::ENODEV => Some(Reason::Device),
        Errno::EBADF | Errno::EACCES | Errno::EFAULT => Some(Reason::Descriptor),
        _ => Some(Reason::Descriptor),
    }
}

/// Returns whether a `PR_SET_MM` says anew where the heap is (kernel/sys.c, `prctl_set_mm`); others change what `/proc`
/// shows of the process.
fn moves_heap(what: u64) -> bool {
    const START_BRK: u64 = 6;
    const BRK: u64 = 7;
    const MAP: u64 = 14;
    matches!(what, START_BRK | BRK | MAP)
}

/// Returns whether the pages that a range touches are none, because their number wraps around.
fn is_wrapped(start: u64, len: u64) -> bool {
    len.wrapping_add(start % PAGE).wrapping_add(PAGE - 1) < PAGE
}

/// Returns whether `mlockall` with these flags makes the pages that are missing.
pub fn locks_now(flags: u64) -> bool {
    let flags = LockAll::from_bits_truncate(flags as u32);
    flags.contains(LockAll::CURRENT) && !flags.contains(LockAll::ON_FAULT)
}

/// Returns whether Linux looks at what is mapped there before it refuses advice.
pub fn is_well_formed(start: u64, len: u64) -> bool {
    start.is_multiple_of(PAGE) && start.checked_add(len).is_some()
}

/// Returns whether a call's result is an error.
pub fn is_error(result: i64) -> bool {
    Errno::of_result(result).is_some()
}
