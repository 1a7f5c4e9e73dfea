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
use crate::range::range;
use crate::remap::remap_request;
use core::ops::ControlFlow;
use faultless_vm::design::{DefaultDesign, Design};
use faultless_vm::{CallError, LockAll, PAGE, PageLock, Populate, Space, SyncFlags, System, USER_END, VirtAddr};

/// What a call returns: a value, mostly 0, or an error.
pub type Answer = Result<u64, Errno>;

/// The memory calls of one space.
///
/// ```
/// use faultless_abi::{Answer, Calls, Errno};
/// use faultless_vm::{System, design::Design};
///
/// /// What a kernel's system-call entry does with the numbers of x86-64 (`asm/unistd_64.h`).
/// fn memory_call<P: System, D: Design<P>>(calls: &Calls<'_, P, D>, number: u64, r: [u64; 6]) -> Answer {
///     match number {
///         // No descriptor is open here.
///         9 => calls.mmap(r, None),
///         10 => calls.mprotect(r[0], r[1], r[2]),
///         11 => calls.munmap(r[0], r[1]),
///         12 => calls.brk(r[0]),
///         25 => calls.mremap([r[0], r[1], r[2], r[3], r[4]]),
///         26 => calls.msync(r[0], r[1], r[2]),
///         27 => calls.mincore(r[0], r[1], r[2], &mut |_is_resident| {
///             // Here the kernel writes a byte of the vector at r[2].
///             std::ops::ControlFlow::Continue(())
///         }),
///         28 => calls.madvise(r[0], r[1], r[2]),
///         149 => calls.mlock(r[0], r[1]),
///         150 => calls.munlock(r[0], r[1]),
///         151 => calls.mlockall(r[0]),
///         152 => calls.munlockall(),
///         216 => calls.remap_file_pages([r[0], r[1], r[2], r[3], r[4]]),
///         325 => calls.mlock2(r[0], r[1], r[2]),
///         329 => calls.pkey_mprotect(r[0], r[1], r[2], r[3]),
///         330 => calls.pkey_alloc(r[0], r[1]),
///         331 => calls.pkey_free(r[0]),
///         462 => calls.mseal(r[0], r[1], r[2]),
///         _ => Err(Errno::ENOSYS),
///     }
/// }
/// # use faultless_phys::{Memory, Options};
/// # use faultless_platform::native::{HostRegion, Machine, Native};
/// # use faultless_vm::{Limits, Vm};
/// # let region = HostRegion::reserve(64 << 20)?;
/// # Machine::new(1).attach(|| {
/// #     // SAFETY: the region is zeroed, ours alone, and outlives the instance.
/// #     let memory = unsafe { Memory::<Native>::new(region.base(), region.len_bytes(), 1, Options::default()) }?;
/// #     let vm = Vm::<Native>::new(memory)?;
/// #     let space = vm.create_space(Limits::default())?;
/// #     let calls = Calls::new(&space);
/// let start = memory_call(&calls, 9, [0, 8192, 3, 0x22, u64::MAX, 0])?;
/// assert_eq!(memory_call(&calls, 149, [start, 8192, 0, 0, 0, 0]), Ok(0));
/// // mlock2 knows one flag, and there is no call 1000.
/// assert_eq!(memory_call(&calls, 325, [start, 8192, 2, 0, 0, 0]), Err(Errno::EINVAL));
/// assert_eq!(memory_call(&calls, 1000, [0; 6]), Err(Errno::ENOSYS));
/// #     Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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

    /// pkey_mprotect(2), on a machine without protection keys: any but -1, which is none, is one that nobody has.
    pub fn pkey_mprotect(&self, start: u64, len: u64, prot: u64, key: u64) -> Answer {
        const NO_KEY: u32 = u32::MAX;
        match ProtectRequest::decode(start, len, prot)? {
            ProtectRequest::Nothing => Ok(0),
            request if int(key) == NO_KEY => done(request.apply(self.space)),
            _ => Err(Errno::EINVAL),
        }
    }

    /// pkey_alloc(2), on a machine without protection keys: Linux gives none, and says EINVAL whatever is asked for.
    pub fn pkey_alloc(&self, _flags: u64, _rights: u64) -> Answer {
        Err(Errno::EINVAL)
    }

    /// pkey_free(2), on a machine without protection keys: nobody has any.
    pub fn pkey_free(&self, _key: u64) -> Answer {
        Err(Errno::EINVAL)
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

/// Says whether a range lies in user memory (`access_ok`).
fn is_user_range(start: u64, len: u64) -> bool {
    start.checked_add(len).is_some_and(|end| end <= USER_END)
}
