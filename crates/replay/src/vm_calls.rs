//! The calls of a virtual memory, as the plan names them.
//!
//! # Guarantee
//! The result is the raw system call's: an address, 0, or a negated error number; only a lack of frames is told apart.

use faultless_abi::{Errno, File, FileMode, MapFlags, Prot, ProtectRequest, map_request, remap_request};
use faultless_phys::OutOfFrames;
use faultless_platform::{Platform, Usual};
use faultless_vm::design::Design;
use faultless_vm::{
    AccessError, AddressRange, Advice, CallError, Guest, PageLock, Protection, RemapPlacement, Space, SyncFlags,
    VirtAddr,
};

use super::objects::Objects;

use faultless_pass::patterned::Way;
use faultless_plan::memory_calls::{Mapping, MemoryCall, Place};
use faultless_plan::regions::{self, PAGE, page_ceil};

/// What a call returns, or that no frame was left.
pub(super) type Answer = Result<i64, OutOfFrames>;

/// A space and the objects that can be mapped into it.
pub(super) struct VmCaller<'a, 'vm, P: Platform<Embedding = Usual>, D: Design<P>> {
    pub(super) guest: &'a Guest<'vm, P, D>,
    pub(super) space: &'a Space<P, D>,
    pub(super) objects: &'a Objects<'vm, P, D>,
}

impl<P: Platform<Embedding = Usual>, D: Design<P>> VmCaller<'_, '_, P, D> {
    /// Does a memory call.
    pub(super) fn perform(&self, memory_call: &MemoryCall) -> Answer {
        match *memory_call {
            MemoryCall::Map(ref mapping) => self.map(mapping),
            MemoryCall::Unmap { start, len } => {
                raw(self.space.munmap(AddressRange::new(VirtAddr::new(start), len)).map(|()| 0))
            }
            MemoryCall::Protect { start, len, prot } => self.protect(start, len, prot),
            MemoryCall::Remap { old, old_len, new_len, flags, target } => {
                self.remap([old, old_len, new_len, flags.bits(), target])
            }
            MemoryCall::Advise { start, len, advice } => {
                raw(self.space.madvise(AddressRange::new(VirtAddr::new(start), len), advice_of(advice)).map(|()| 0))
            }
            MemoryCall::Break { requested, before, is_first } => {
                if is_first {
                    self.space.set_heap_start(VirtAddr::new(before));
                }
                Ok(self.space.brk(VirtAddr::new(requested)).get() as i64)
            }
            MemoryCall::Lock { start, len, lock } => {
                raw(self.space.mlock(AddressRange::new(VirtAddr::new(start), len), lock).map(|()| 0))
            }
            MemoryCall::LockAll { lock } => self.lock_all(lock),
            MemoryCall::Ask { start, len } => {
                raw(self.space.madvise(AddressRange::new(VirtAddr::new(start), len), Advice::Ignored).map(|()| 0))
            }
            MemoryCall::WriteBack { start, len } => {
                raw(self.space.msync(AddressRange::new(VirtAddr::new(start), len), SyncFlags::SYNC).map(|()| 0))
            }
            MemoryCall::Nothing => Ok(0),
        }
    }

    fn map(&self, mapping: &Mapping) -> Answer {
        if let Place::Searched { .. } = mapping.place {
            self.search(mapping.len);
        }
        let (object, offset) = match mapping.backing {
            regions::Backing::Anonymous => (None, 0),
            regions::Backing::Object { object, offset, .. } => (Some(self.objects.get(object)?), offset),
        };
        let file = object.as_ref().map(|object| File::new(object.handle(), FileMode::READ | FileMode::WRITE));
        let mut request = match map_request(registers(mapping, offset), file) {
            Ok(request) => request,
            Err(errno) => return Ok(errno.raw()),
        };
        request.protection = without_keys(request.protection);
        let filling = self.objects.filling().filter(|filling| filling.covers(mapping));
        if filling.is_some() {
            request.backing = self.objects.untouched(filling, placed(mapping));
        }
        let answer = raw(self.space.mmap(&request).map(|start| start.get() as i64))?;
        if mapping.is_locked_on_fault && answer > 0 {
            let range = AddressRange::new(VirtAddr::new(answer as u64), page_ceil(mapping.len));
            raw(self.space.mlock(range, PageLock::LockOnFault).map(|()| 0))?;
        }
        match filling.filter(|filling| filling.way == Way::Memset && answer > 0) {
            Some(filling) => self.fill(answer as u64, page_ceil(mapping.len), filling.word()).map(|()| answer),
            None => Ok(answer),
        }
    }

    /// Stores a word everywhere, as an allocator does that fills its blocks.
    fn fill(&self, start: u64, len: u64, word: u64) -> Result<(), OutOfFrames> {
        let words = [word; PAGE as usize / 8];
        for page in (start..start + len).step_by(PAGE as usize) {
            // Any other error: another thread unmaps it already.
            if let Err(AccessError::OutOfFrames(cause)) = self.guest.store_words(VirtAddr::new(page), &words) {
                return Err(cause);
            }
        }
        Ok(())
    }

    /// Looks for room as the space's own mmap would, for what that costs.
    fn search(&self, len: u64) {
        std::hint::black_box(self.space.search_unlocked(len));
    }

    fn protect(&self, start: u64, len: u64, prot: Prot) -> Answer {
        let request = match ProtectRequest::decode(start, len, prot.bits()) {
            Ok(ProtectRequest::Range(range, rights)) => ProtectRequest::Range(range, without_keys(rights)),
            Ok(ProtectRequest::Stack(range, rights)) => ProtectRequest::Stack(range, without_keys(rights)),
            Ok(request) => request,
            Err(errno) => return Ok(errno.raw()),
        };
        raw(request.apply(self.space).map(|()| 0))
    }

    fn remap(&self, [old, old_len, new_len, flags, target]: [u64; 5]) -> Answer {
        let mut request = match remap_request([old, old_len, new_len, flags, target]) {
            Ok(request) => request,
            Err(errno) => return Ok(errno.raw()),
        };
        // The registers name no target here: it is where Linux moved the mapping.
        if request.placement == RemapPlacement::MayMove && target != 0 && target != old {
            self.search(new_len);
            request.placement = RemapPlacement::MoveTo(VirtAddr::new(target));
        }
        raw(self.space.mremap(&request).map(|start| start.get() as i64))
    }

    fn lock_all(&self, lock: PageLock) -> Answer {
        let mut areas = Vec::new();
        self.space.for_each_area(|area| areas.push(area.range));
        for range in areas {
            raw(self.space.mlock(range.into(), lock).map(|()| 0))?;
        }
        Ok(0)
    }
}

/// Returns a call's raw result.
fn raw(result: Result<i64, CallError>) -> Answer {
    match result {
        Ok(value) => Ok(value),
        Err(CallError::OutOfFrames(cause)) => Err(cause),
        Err(error) => Ok(Errno::from(error).raw()),
    }
}

/// Drops the key that makes memory with `PROT_EXEC` alone unreadable: a recording does not tell whether its machine had
/// protection keys.
fn without_keys(protection: Protection) -> Protection {
    protection - Protection::EXECUTE_ONLY
}

/// Returns mmap's registers, with the place that Linux found as one to take.
fn registers(mapping: &Mapping, offset: u64) -> [u64; 6] {
    const FIXED: MapFlags = MapFlags::FIXED.union(MapFlags::FIXED_NOREPLACE);
    let (start, fixed) = match mapping.place {
        Place::Fixed(start) => (start, MapFlags::FIXED),
        // A search finds what is free.
        Place::FixedIfFree(start) | Place::Searched { placed: start, .. } => (start, MapFlags::FIXED_NOREPLACE),
        Place::Refused { hint } => (hint, mapping.flags & FIXED),
    };
    // Huge pages are ordinary ones here, as many of them as it takes.
    let flags = mapping.flags & !(FIXED | MapFlags::HUGETLB) | fixed;
    let is_refused = matches!(mapping.place, Place::Refused { .. });
    let is_validated = flags & MapFlags::TYPE == MapFlags::SHARED_VALIDATE && !flags.contains(MapFlags::ANONYMOUS);
    let flags = match mapping.backing {
        // Linux asked the file whether it knows the flags, and it did.
        regions::Backing::Object { .. } if is_validated && !is_refused => {
            flags & !(MapFlags::TYPE | MapFlags::ANONYMOUS | MapFlags::SYNC) | MapFlags::SHARED
        }
        // Shared anonymous memory is an object that outlives this call.
        regions::Backing::Object { .. } if !mapping.is_refused_without_file() => flags & !MapFlags::ANONYMOUS,
        regions::Backing::Object { .. } => flags,
        // The file of a private mapping was not told.
        regions::Backing::Anonymous if !flags.contains(MapFlags::ANONYMOUS) => {
            flags & !MapFlags::TYPE | MapFlags::PRIVATE | MapFlags::ANONYMOUS
        }
        regions::Backing::Anonymous => flags,
    };
    [start, mapping.len, mapping.prot.bits(), flags.bits(), 0, offset]
}

/// Returns where a mapping goes, if that is known beforehand.
fn placed(mapping: &Mapping) -> u64 {
    match mapping.place {
        Place::Fixed(start) | Place::Searched { placed: start, .. } | Place::FixedIfFree(start) => start / PAGE * PAGE,
        Place::Refused { .. } => 0,
    }
}

/// Returns what a replay does for advice. Left out is what changes neither entries nor areas, or is the host's affair.
fn advice_of(advice: u64) -> Advice {
    match faultless_abi::advice_of(advice as u32) {
        Some(
            advice @ (Advice::DontNeed
            | Advice::DontNeedLocked
            | Advice::Free
            | Advice::DontFork
            | Advice::DoFork
            | Advice::WipeOnFork
            | Advice::KeepOnFork
            | Advice::PopulateRead
            | Advice::PopulateWrite
            | Advice::GuardInstall
            | Advice::GuardRemove
            | Advice::Normal
            | Advice::Random
            | Advice::Sequential
            | Advice::HugePage
            | Advice::NoHugePage
            | Advice::DontDump
            | Advice::DoDump
            | Advice::Mergeable
            | Advice::Unmergeable),
        ) => advice,
        _ => Advice::Ignored,
    }
}
