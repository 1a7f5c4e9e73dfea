//! The plan's calls as real ones, at the addresses where the recorded memory lies here.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering};

use faultless_abi::{MapFlags, Prot, RemapFlags};
use faultless_linux::space::{self, RawCall};

use super::host::room_of;
use super::relocation::Relocation;
use faultless_plan::memory_calls::{Mapping, MemoryCall, Place};
use faultless_plan::regions::{Backing, page_ceil};
use faultless_vm::PageLock;

/// Who makes a process's calls.
pub(super) struct Caller<'a> {
    pub(super) relocation: &'a Relocation,
    pub(super) files: &'a [File],
    pub(super) heap_end: &'a AtomicU64,
}

impl Caller<'_> {
    /// Makes a call; returns its result, in recorded addresses.
    pub(super) fn perform(&self, memory_call: &MemoryCall) -> i64 {
        let at = |address| self.relocation.place(address);
        let call = match *memory_call {
            MemoryCall::Map(ref mapping) => return self.map(mapping),
            MemoryCall::Unmap { start, len } => RawCall::Unmap { address: at(start), len },
            MemoryCall::Protect { start, len, prot } => RawCall::Protect { address: at(start), len, prot: prot.bits() },
            MemoryCall::Remap { old, old_len, new_len, flags, target } => {
                return self.remap(old, old_len, new_len, flags, target);
            }
            MemoryCall::Advise { start, len, advice } => RawCall::Advise { address: at(start), len, advice },
            MemoryCall::Break { requested, before, is_first } => return self.set_break(requested, before, is_first),
            MemoryCall::Lock { start, len, lock: PageLock::Unlock } => RawCall::Unlock { address: at(start), len },
            MemoryCall::Lock { start, len, lock } => {
                RawCall::Lock { address: at(start), len, on_fault: lock == PageLock::LockOnFault }
            }
            MemoryCall::Ask { start, len } | MemoryCall::WriteBack { start, len } => {
                RawCall::Advise { address: at(start), len, advice: 0 }
            }
            MemoryCall::LockAll { lock } => return self.lock_all(lock),
            MemoryCall::Nothing => return 0,
        };
        call.make()
    }

    /// Locks all that is mapped of the program, or lets it go, area by area: the process's own memory is left out. What
    /// can't be filled is locked all the same.
    fn lock_all(&self, lock: PageLock) -> i64 {
        let Ok(areas) = space::mapped() else { return 0 };
        for window in self.relocation.windows() {
            for area in areas.iter().filter(|area| area.start < window.end && window.start < area.end) {
                let (address, end) = (area.start.max(window.start), area.end.min(window.end));
                let len = end - address;
                let call = match lock {
                    PageLock::Unlock => RawCall::Unlock { address, len },
                    _ => RawCall::Lock { address, len, on_fault: lock == PageLock::LockOnFault },
                };
                call.make();
            }
        }
        0
    }

    fn map(&self, mapping: &Mapping) -> i64 {
        const FIXED: MapFlags = MapFlags::FIXED.union(MapFlags::FIXED_NOREPLACE);
        let (address, fixed) = match mapping.place {
            Place::Fixed(start) | Place::Searched { placed: start, .. } => (start, MapFlags::FIXED),
            Place::FixedIfFree(start) => (start, MapFlags::FIXED_NOREPLACE),
            Place::Refused { hint } => (hint, mapping.flags & FIXED),
        };
        let (kind, fd, offset) = match mapping.backing {
            // Shared anonymous memory is a file here, for which Linux would take the flags.
            Backing::Object { .. } if mapping.is_refused_without_file() => (MapFlags::ANONYMOUS, -1, 0),
            Backing::Anonymous => (MapFlags::ANONYMOUS, -1, 0),
            Backing::Object { object, offset, .. } => {
                let (file, base) = room_of(object);
                (MapFlags::empty(), self.files[file].as_raw_fd(), base.wrapping_add(offset))
            }
        };
        let flags = mapping.flags & !(FIXED | MapFlags::ANONYMOUS) | fixed | kind;
        let (prot, flags) = (mapping.prot.bits(), flags.bits());
        let address = self.relocation.place(address);
        let found = RawCall::Map { address, len: mapping.len, prot, flags, fd, offset }.make();
        if mapping.is_locked_on_fault && found >= 0 {
            RawCall::Lock { address: found.cast_unsigned(), len: mapping.len, on_fault: true }.make();
        }
        if matches!(mapping.place, Place::Refused { .. }) && found >= 0 {
            // It should not be: let nothing of it stay.
            RawCall::Unmap { address: found.cast_unsigned(), len: mapping.len }.make();
        }
        self.relocation.recorded(found)
    }

    fn remap(&self, old: u64, old_len: u64, new_len: u64, flags: RemapFlags, target: u64) -> i64 {
        let moves = target != 0 && target != old && flags == RemapFlags::MAYMOVE;
        // Where Linux put it then, it must go now. A kept source takes the place as a hint, as it did then.
        let flags = if moves { flags | RemapFlags::FIXED } else { flags }.bits();
        let (old, new) = (self.relocation.place(old), self.relocation.place(target));
        self.relocation.recorded(RawCall::Remap { old, old_len, new_len, flags, new }.make())
    }

    /// The heap lies where it lay, not where this process's own does.
    fn set_break(&self, requested: u64, before: u64, is_first: bool) -> i64 {
        // Relaxed, here and below: the plan orders the calls of a space that must be in order.
        if is_first {
            self.heap_end.store(before, Ordering::Relaxed);
        }
        let end = self.heap_end.load(Ordering::Relaxed);
        if requested == 0 || requested == end {
            return end.cast_signed();
        }
        let (old, new) = (page_ceil(end), page_ceil(requested));
        let place = |address| self.relocation.place(address);
        let result = if new > old {
            let flags = (MapFlags::PRIVATE | MapFlags::ANONYMOUS | MapFlags::FIXED_NOREPLACE).bits();
            let prot = (Prot::READ | Prot::WRITE).bits();
            RawCall::Map { address: place(old), len: new - old, prot, flags, fd: -1, offset: 0 }.make()
        } else if new < old {
            RawCall::Unmap { address: place(new), len: old - new }.make()
        } else {
            0
        };
        if result < 0 {
            return end.cast_signed();
        }
        self.heap_end.store(requested, Ordering::Relaxed);
        requested.cast_signed()
    }
}
