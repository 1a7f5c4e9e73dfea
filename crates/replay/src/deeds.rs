//! The calls of a virtual memory, as the plan names them.
//!
//! # Guarantee
//! The result is the raw system call's: an address, 0, or a negated error number; only a lack of frames is told apart.

use faultless_phys::OutOfFrames;
use faultless_platform::{Platform, Usual};
use faultless_vm::design::Design;
use faultless_vm::{
    AccessError, AddressRange, Advice, AreaFlags, Backing, CallError, Guest, MapRequest, PageLock, Placement, Populate,
    RemapPlacement, RemapRequest, Space, VirtAddr,
};

use super::objects::Objects;
use super::patterned::Way;

use faultless_plan::decode::flags;
use faultless_plan::deeds::{Deed, Mapping, Place};
use faultless_plan::regions::{self, PAGE, Prot, Sharing, page_ceil};

/// What a call returns, or that no frame was left.
pub(super) type Answer = Result<i64, OutOfFrames>;

/// A space and the objects that can be mapped into it.
pub(super) struct Hand<'a, 'vm, P: Platform<Embedding = Usual>, D: Design<P>> {
    pub(super) guest: &'a Guest<'vm, P, D>,
    pub(super) space: &'a Space<P, D>,
    pub(super) objects: &'a Objects<'vm, P, D>,
}

impl<P: Platform<Embedding = Usual>, D: Design<P>> Hand<'_, '_, P, D> {
    /// Does a deed.
    pub(super) fn perform(&self, deed: &Deed) -> Answer {
        match *deed {
            Deed::Map(ref mapping) => self.map(mapping),
            Deed::Unmap { start, len } => {
                raw(self.space.munmap(AddressRange::new(VirtAddr::new(start), len)).map(|()| 0))
            }
            Deed::Protect { start, len, prot } => self.protect(start, len, prot),
            Deed::Remap { old, old_len, new_len, flags, target } => self.remap(old, old_len, new_len, flags, target),
            Deed::Advise { start, len, advice } => {
                raw(self.space.madvise(AddressRange::new(VirtAddr::new(start), len), advice_of(advice)).map(|()| 0))
            }
            Deed::Break { requested, before, is_first } => {
                if is_first {
                    self.space.set_heap_start(VirtAddr::new(before));
                }
                Ok(self.space.brk(VirtAddr::new(requested)).get() as i64)
            }
            Deed::Lock { start, len, is_locked } => {
                raw(self.space.mlock(AddressRange::new(VirtAddr::new(start), len), lock_of(is_locked)).map(|()| 0))
            }
            Deed::LockAll { is_locked } => self.lock_all(is_locked),
            Deed::Ask { start, len } => {
                raw(self.space.madvise(AddressRange::new(VirtAddr::new(start), len), Advice::Ignored).map(|()| 0))
            }
            Deed::Nothing => Ok(0),
        }
    }

    fn map(&self, mapping: &Mapping) -> Answer {
        if let Place::Searched { .. } = mapping.place {
            self.search(mapping.len);
        }
        let Some(flags) = area_flags(mapping) else { return Ok(INVALID) };
        let object = match mapping.backing {
            regions::Backing::Anonymous => None,
            regions::Backing::Object { object, offset, .. } => Some((self.objects.get(object)?, offset)),
        };
        let filling = self.objects.filling().filter(|filling| filling.covers(mapping));
        let backing = match &object {
            None => self.objects.untouched(filling, placed(mapping)),
            Some((object, offset)) => Backing::Object(object.handle(), *offset),
        };
        // MAP_NONBLOCK takes MAP_POPULATE back.
        let is_populated = mapping.flags & (flags::MAP_POPULATE | flags::MAP_NONBLOCK) == flags::MAP_POPULATE;
        let request = MapRequest {
            placement: placement(mapping),
            len_bytes: mapping.len,
            protection: flags.protection(),
            options: flags.options(),
            backing,
            populate: if is_populated { Populate::Now } else { Populate::OnFault },
        };
        let answer = raw(self.space.mmap(&request).map(|start| start.get() as i64))?;
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

    /// Checks the rights in Linux's order; the space knows them as flags only.
    fn protect(&self, start: u64, len: u64, prot: u64) -> Answer {
        let grows = prot & PROT_GROWS;
        let is_aligned = start.is_multiple_of(PAGE) && grows != PROT_GROWS;
        if is_aligned && len == 0 {
            return Ok(0);
        }
        if !is_aligned || prot & !(PROT_KNOWN | PROT_GROWS) != 0 && start.checked_add(len).is_some() {
            return Ok(INVALID);
        }
        let first = match self.first_protected(start, len, grows) {
            Ok(first) => first,
            Err(error) => return Ok(error),
        };
        let bits = Prot::from_bits_truncate(prot as u8);
        raw(self
            .space
            .mprotect(
                AddressRange::new(VirtAddr::new(first), len.saturating_add(start - first)),
                rights(bits).protection(),
            )
            .map(|()| 0))
    }

    /// Returns where the change begins: with `PROT_GROWSDOWN` at the start of the stack that holds the address.
    fn first_protected(&self, start: u64, len: u64, grows: u64) -> Result<u64, i64> {
        if grows == 0 {
            return Ok(start);
        }
        let mut found = None;
        self.space.for_each_area(|area| found = found.or((area.range.end().get() > start).then_some(area)));
        match found {
            None => Err(NO_MEMORY),
            Some(area) if area.range.start().get() >= page_ceil(start.saturating_add(len)) => Err(NO_MEMORY),
            Some(area) if grows == PROT_GROWSUP && area.range.start().get() > start => Err(NO_MEMORY),
            // Nothing grows up on x86-64.
            Some(area) if grows == PROT_GROWSUP || !area.flags.contains(AreaFlags::GROWSDOWN) => Err(INVALID),
            Some(area) => Ok(area.range.start().get().min(start)),
        }
    }

    fn remap(&self, old: u64, old_len: u64, new_len: u64, flags: u64, target: u64) -> Answer {
        const KNOWN: u64 = flags::MREMAP_MAYMOVE | flags::MREMAP_FIXED | flags::MREMAP_DONTUNMAP;
        let may_move = flags & flags::MREMAP_MAYMOVE != 0;
        if flags & !KNOWN != 0 || flags & flags::MREMAP_FIXED != 0 && !may_move {
            return Ok(INVALID);
        }
        let keeps_source = flags & flags::MREMAP_DONTUNMAP != 0;
        let placement = match (flags & flags::MREMAP_FIXED != 0, may_move) {
            (true, _) => RemapPlacement::Fixed(VirtAddr::new(target)),
            // Linux checks the hint even where it can't follow it.
            (false, true) if keeps_source => RemapPlacement::Hint(VirtAddr::new(target)),
            (false, false) => RemapPlacement::InPlace,
            (false, true) if target == 0 || target == old => RemapPlacement::MayMove,
            (false, true) => {
                self.search(new_len);
                RemapPlacement::MoveTo(VirtAddr::new(target))
            }
        };
        let request = RemapRequest {
            old: AddressRange::new(VirtAddr::new(old), old_len),
            new_len_bytes: new_len,
            placement,
            keeps_source,
        };
        raw(self.space.mremap(&request).map(|start| start.get() as i64))
    }

    fn lock_all(&self, is_locked: bool) -> Answer {
        let mut areas = Vec::new();
        self.space.for_each_area(|area| areas.push(area.range));
        for range in areas {
            raw(self.space.mlock(range.into(), lock_of(is_locked)).map(|()| 0))?;
        }
        Ok(0)
    }
}

const INVALID: i64 = -22;
const NO_MEMORY: i64 = -12;

/// `PROT_READ`, `PROT_WRITE`, `PROT_EXEC`, `PROT_SEM`.
const PROT_KNOWN: u64 = 0xf;
const PROT_GROWSUP: u64 = 0x0200_0000;
/// `PROT_GROWSDOWN` and `PROT_GROWSUP`.
const PROT_GROWS: u64 = 0x0300_0000;

/// Returns a call's raw result.
fn raw(result: Result<i64, CallError>) -> Answer {
    match result {
        Ok(value) => Ok(value),
        Err(CallError::OutOfFrames(cause)) => Err(cause),
        Err(error) => Ok(-i64::from(error.errno())),
    }
}

fn rights(prot: Prot) -> AreaFlags {
    let table = [(Prot::READ, AreaFlags::READ), (Prot::WRITE, AreaFlags::WRITE), (Prot::EXEC, AreaFlags::EXEC)];
    table.iter().filter(|(bit, _)| prot.contains(*bit)).fold(AreaFlags::empty(), |all, (_, right)| all | *right)
}

/// Returns an area's flags; nothing if the mapping is neither shared nor private, or both.
fn area_flags(mapping: &Mapping) -> Option<AreaFlags> {
    let mut flags = rights(Prot::from_bits_truncate(mapping.prot as u8));
    flags.set(AreaFlags::GROWSDOWN, mapping.flags & flags::MAP_GROWSDOWN != 0);
    flags.set(AreaFlags::NORESERVE, mapping.flags & flags::MAP_NORESERVE != 0);
    flags.set(AreaFlags::LOCKED, mapping.flags & flags::MAP_LOCKED != 0);
    let is_anonymous = mapping.flags & flags::MAP_ANONYMOUS != 0;
    let is_shared = matches!(mapping.backing, regions::Backing::Object { sharing: Sharing::Shared, .. });
    flags.set(AreaFlags::SHARED, is_shared);
    match mapping.flags & flags::MAP_TYPE {
        flags::MAP_SHARED | flags::MAP_PRIVATE => Some(flags),
        flags::MAP_DROPPABLE if is_anonymous => Some(flags | AreaFlags::WIPEONFORK),
        SHARED_VALIDATE if !is_anonymous => Some(flags),
        _ => None,
    }
}

const SHARED_VALIDATE: u64 = 3;

fn placement(mapping: &Mapping) -> Placement {
    match mapping.place {
        Place::Fixed(start) => Placement::Fixed(VirtAddr::new(start)),
        // A search finds what is free.
        Place::FixedIfFree(start) | Place::Searched { placed: start, .. } => {
            Placement::FixedNoReplace(VirtAddr::new(start))
        }
        Place::Refused { hint } if mapping.flags & flags::MAP_FIXED_NOREPLACE != 0 => {
            Placement::FixedNoReplace(VirtAddr::new(hint))
        }
        Place::Refused { hint } if mapping.flags & flags::MAP_FIXED != 0 => Placement::Fixed(VirtAddr::new(hint)),
        Place::Refused { hint } if hint >= PAGE => Placement::Hint(VirtAddr::new(hint)),
        Place::Refused { .. } => Placement::Anywhere,
    }
}

/// Returns where a mapping goes, if that is known beforehand.
fn placed(mapping: &Mapping) -> u64 {
    match mapping.place {
        Place::Fixed(start) | Place::Searched { placed: start, .. } | Place::FixedIfFree(start) => start / PAGE * PAGE,
        Place::Refused { .. } => 0,
    }
}

fn lock_of(is_locked: bool) -> PageLock {
    if is_locked { PageLock::Lock } else { PageLock::Unlock }
}

fn advice_of(advice: u64) -> Advice {
    match advice {
        4 | 9 => Advice::DontNeed,
        24 => Advice::DontNeedLocked,
        8 => Advice::Free,
        10 => Advice::DontFork,
        11 => Advice::DoFork,
        18 => Advice::WipeOnFork,
        19 => Advice::KeepOnFork,
        22 => Advice::PopulateRead,
        23 => Advice::PopulateWrite,
        102 => Advice::GuardInstall,
        103 => Advice::GuardRemove,
        _ => Advice::Ignored,
    }
}
