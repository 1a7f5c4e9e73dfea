//! The calls: raw registers in, the result register out.
//!
//! # Guarantee
//! Parameters that are `int` in the kernel lose their upper half first, as they do there.

use crate::advice::advice_of;
use crate::errno::Errno;
use crate::file::File;
use crate::flags::{MapFlags, Prot, RemapFlags};
use core::ops::ControlFlow;
use faultless_vm::design::{DefaultDesign, Design};
use faultless_vm::{
    AddressRange, CallError, LockAll, PAGE, PageLock, Populate, RemapPlacement, RemapRequest, Space, SyncFlags, System,
    USER_END, VirtAddr, page_ceil,
};

/// What a call returns: a value, mostly 0, or an error.
pub type Answer = Result<u64, Errno>;

/// The memory calls of one space.
pub struct Calls<'a, P: System, D: Design<P> = DefaultDesign<P>> {
    space: &'a Space<P, D>,
}

fn done(result: Result<(), CallError>) -> Answer {
    Ok(result.map(|()| 0)?)
}

/// Returns what the kernel sees of an `int`.
const fn int(register: u64) -> u32 {
    register as u32
}

impl<'a, P: System, D: Design<P>> Calls<'a, P, D> {
    /// Returns the calls of `space`.
    pub fn new(space: &'a Space<P, D>) -> Self {
        Self { space }
    }

    /// mmap(2). `file` is what stands behind the fifth argument, nothing if no file is open under that number.
    pub fn mmap(&self, arguments: [u64; 6], file: Option<File<'_, P>>) -> Answer {
        crate::map::mmap(self.space, arguments, file)
    }

    /// munmap(2).
    pub fn munmap(&self, start: u64, len: u64) -> Answer {
        done(self.space.munmap(range(start, len)))
    }

    /// mprotect(2).
    pub fn mprotect(&self, start: u64, len: u64, prot: u64) -> Answer {
        const GROWS: Prot = Prot::GROWSDOWN.union(Prot::GROWSUP);
        const KNOWN: Prot = Prot::READ.union(Prot::WRITE).union(Prot::EXEC).union(Prot::SEM);
        let prot = Prot::from_bits_retain(prot);
        let (grows, rest) = (prot & GROWS, prot & !GROWS);
        if grows == GROWS || !start.is_multiple_of(PAGE) {
            return Err(Errno::EINVAL);
        }
        if len == 0 {
            return Ok(0);
        }
        if page_ceil(len).and_then(|len| start.checked_add(len)).is_none_or(|end| end <= start) {
            return Err(Errno::ENOMEM);
        }
        if !KNOWN.contains(rest) {
            return Err(Errno::EINVAL);
        }
        match () {
            () if grows.is_empty() => done(self.space.mprotect(range(start, len), rest.protection())),
            () if grows == Prot::GROWSDOWN => done(self.space.mprotect_stack(range(start, len), rest.protection())),
            // No area grows up on x86-64; Linux first finds out whether there is one at all.
            () if self.is_mapped(start) => Err(Errno::EINVAL),
            () => Err(Errno::ENOMEM),
        }
    }

    fn is_mapped(&self, address: u64) -> bool {
        let mut is_mapped = false;
        self.space.for_each_area(|line| is_mapped |= line.range.contains(VirtAddr::new(address)));
        is_mapped
    }

    /// mremap(2): old address, old length, new length, flags, new address.
    pub fn mremap(&self, [old_start, old_len_bytes, new_len_bytes, flags, new]: [u64; 5]) -> Answer {
        let flags = RemapFlags::from_bits(flags).ok_or(Errno::EINVAL)?;
        let keeps_source = flags.contains(RemapFlags::DONTUNMAP);
        let placement = match () {
            () if !flags.contains(RemapFlags::MAYMOVE) && !flags.is_empty() => return Err(Errno::EINVAL),
            () if flags.contains(RemapFlags::FIXED) => RemapPlacement::Fixed(VirtAddr::new(new)),
            () if keeps_source => RemapPlacement::Hint(VirtAddr::new(new)),
            () if flags.contains(RemapFlags::MAYMOVE) => RemapPlacement::MayMove,
            () => RemapPlacement::InPlace,
        };
        let old = range(old_start, old_len_bytes);
        Ok(self.space.mremap(&RemapRequest { old, new_len_bytes, placement, keeps_source })?.get())
    }

    /// madvise(2).
    pub fn madvise(&self, start: u64, len: u64, advice: u64) -> Answer {
        let advice = advice_of(int(advice)).ok_or(Errno::EINVAL)?;
        done(self.space.madvise(range(start, len), advice))
    }

    /// mlock(2).
    pub fn mlock(&self, start: u64, len: u64) -> Answer {
        done(self.space.mlock(range(start, len), PageLock::Lock))
    }

    /// mlock2(2).
    pub fn mlock2(&self, start: u64, len: u64, flags: u64) -> Answer {
        match int(flags) {
            0 => done(self.space.mlock(range(start, len), PageLock::Lock)),
            1 => done(self.space.mlock(range(start, len), PageLock::LockOnFault)),
            _ => Err(Errno::EINVAL),
        }
    }

    /// munlock(2).
    pub fn munlock(&self, start: u64, len: u64) -> Answer {
        done(self.space.mlock(range(start, len), PageLock::Unlock))
    }

    /// mlockall(2).
    pub fn mlockall(&self, flags: u64) -> Answer {
        done(self.space.mlock_all(LockAll::from_bits(int(flags)).ok_or(Errno::EINVAL)?))
    }

    /// munlockall(2).
    pub fn munlockall(&self) -> Answer {
        self.space.munlock_all();
        Ok(0)
    }

    /// msync(2).
    pub fn msync(&self, start: u64, len: u64, flags: u64) -> Answer {
        done(self.space.msync(range(start, len), SyncFlags::from_bits(int(flags)).ok_or(Errno::EINVAL)?))
    }

    /// mincore(2): calls `tell` for each page, ascending; `tell` ends the call where the vector can't be written.
    ///
    /// `vector` is the vector's address: Linux looks at its range before it looks at any page.
    pub fn mincore(&self, start: u64, len: u64, vector: u64, tell: &mut dyn FnMut(bool) -> ControlFlow<()>) -> Answer {
        if !start.is_multiple_of(PAGE) {
            return Err(Errno::EINVAL);
        }
        if !is_user_range(start, len) {
            return Err(Errno::ENOMEM);
        }
        if !is_user_range(vector, len.div_ceil(PAGE)) {
            return Err(Errno::EFAULT);
        }
        done(self.space.mincore(range(start, len), tell))
    }

    /// brk(2): returns the break, whether it moved or not.
    pub fn brk(&self, address: u64) -> Answer {
        Ok(self.space.brk(VirtAddr::new(address)).get())
    }

    /// mseal(2).
    pub fn mseal(&self, start: u64, len: u64, flags: u64) -> Answer {
        if flags != 0 { Err(Errno::EINVAL) } else { done(self.space.mseal(range(start, len))) }
    }

    /// remap_file_pages(2): address, size, protection (must be 0), page offset, flags.
    pub fn remap_file_pages(&self, [start, len, prot, page_offset, flags]: [u64; 5]) -> Answer {
        if prot != 0 {
            return Err(Errno::EINVAL);
        }
        let is_lazy = MapFlags::from_bits_retain(flags).contains(MapFlags::NONBLOCK);
        let populate = if is_lazy { Populate::OnFault } else { Populate::Now };
        done(self.space.remap_file_pages(range(start, len), page_offset, populate))
    }
}

/// Returns the bytes that two registers name.
const fn range(start: u64, len: u64) -> AddressRange {
    AddressRange::new(VirtAddr::new(start), len)
}

/// Says whether a range lies in user memory (`access_ok`).
fn is_user_range(start: u64, len: u64) -> bool {
    start.checked_add(len).is_some_and(|end| end <= USER_END)
}
