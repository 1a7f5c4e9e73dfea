//! The calls: raw registers in, the result register out.
//!
//! # Guarantee
//! Parameters that are `int` in the kernel lose their upper half first, as they do there.

use crate::advice::advice_of;
use crate::errno::Errno;
use crate::file::File;
use crate::flags::{MapFlags, page_lock_of};
use crate::map::map_request;
use crate::protect::ProtectRequest;
use crate::remap::remap_request;
use core::ops::ControlFlow;
use faultless_vm::design::{DefaultDesign, Design};
use faultless_vm::{
    AddressRange, CallError, LockAll, PAGE, PageLock, Populate, Space, SyncFlags, System, USER_END, VirtAddr,
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
        Ok(self.space.mmap(&map_request(arguments, file)?)?.get())
    }

    /// munmap(2).
    pub fn munmap(&self, start: u64, len: u64) -> Answer {
        done(self.space.munmap(range(start, len)))
    }

    /// mprotect(2).
    pub fn mprotect(&self, start: u64, len: u64, prot: u64) -> Answer {
        done(ProtectRequest::decode(start, len, prot)?.apply(self.space))
    }

    /// mremap(2): old address, old length, new length, flags, new address.
    pub fn mremap(&self, registers: [u64; 5]) -> Answer {
        Ok(self.space.mremap(&remap_request(registers)?)?.get())
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
        let lock = page_lock_of(int(flags)).ok_or(Errno::EINVAL)?;
        done(self.space.mlock(range(start, len), lock))
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
pub(crate) const fn range(start: u64, len: u64) -> AddressRange {
    AddressRange::new(VirtAddr::new(start), len)
}

/// Says whether a range lies in user memory (`access_ok`).
fn is_user_range(start: u64, len: u64) -> bool {
    start.checked_add(len).is_some_and(|end| end <= USER_END)
}
