//! What memory calls and accesses answer when they don't succeed.

use crate::addr::VirtAddr;
use faultless_phys::OutOfFrames;

/// A memory call failed; nothing was changed unless the variant or the call says so.
///
/// ```
/// use faultless_vm::{CallError, VirtAddr};
///
/// let error = CallError::Unmapped { address: VirtAddr::new(0x1000) };
/// assert_eq!(error.errno(), 12, "ENOMEM");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallError {
    /// An argument is outside what the call takes (EINVAL); the text says which.
    Invalid(&'static str),
    /// Part of the range is not mapped (ENOMEM); what the manual says is applied to the mapped part was applied.
    Unmapped {
        /// The first address without a mapping.
        address: VirtAddr,
    },
    /// The source of a remapping is not mapped, or spans areas that can't move together (EFAULT).
    BadSource {
        /// The address in question.
        address: VirtAddr,
    },
    /// The call's own memory can't be read or written there (EFAULT).
    BadBuffer {
        /// The first address that can't.
        address: VirtAddr,
    },
    /// The page can't be made: it is behind the object's end, or guarded (EFAULT).
    NoPage {
        /// The page's address.
        address: VirtAddr,
    },
    /// No free range is large enough (ENOMEM).
    NoRoom {
        /// What was asked for.
        len_bytes: u64,
    },
    /// The space has as many areas as its limit allows (ENOMEM).
    TooManyAreas {
        /// The limit.
        limit: u64,
    },
    /// As [`CallError::TooManyAreas`], where the call says "try again" (EAGAIN, madvise).
    TooManyAreasNow {
        /// The limit.
        limit: u64,
    },
    /// A size would exceed the space's limit (ENOMEM).
    OverLimit {
        /// The limit in bytes.
        limit_bytes: u64,
    },
    /// More memory would be promised than there is (ENOMEM).
    OverCommit {
        /// All of memory, in bytes.
        limit_bytes: u64,
    },
    /// More bytes would be locked than the limit allows (ENOMEM, mlock).
    OverLockLimit {
        /// The limit in bytes.
        limit_bytes: u64,
    },
    /// As [`CallError::OverLockLimit`], of calls that say "try again" (EAGAIN; mmap, mremap).
    OverLockLimitNow {
        /// The limit in bytes.
        limit_bytes: u64,
    },
    /// The owner may not lock any page (EPERM).
    MayNotLock,
    /// The area is sealed (EPERM).
    Sealed {
        /// The area's address.
        address: VirtAddr,
    },
    /// The pages are locked, so that they can't be invalidated (EBUSY).
    Locked {
        /// The area's address.
        address: VirtAddr,
    },
    /// The range is taken (EEXIST).
    Exists {
        /// An address that is mapped.
        address: VirtAddr,
    },
    /// The mapping's file or limit forbids it (EACCES).
    Denied,
    /// The address is below the lowest that may be mapped (EPERM).
    TooLow {
        /// The limit.
        lowest: u64,
    },
    /// A file is needed (EBADF).
    NoFile,
    /// The file lies where nothing may be executed (EPERM).
    NoExec,
    /// The file has no pages that could be mapped, as a pipe (ENODEV).
    NotMappable,
    /// The offset and length exceed what an offset can hold (EOVERFLOW).
    OffsetOverflow,
    /// The range ends behind where a file can end (EFBIG).
    BehindLongestFile,
    /// A flag that is not supported for this file (EOPNOTSUPP).
    Unsupported(&'static str),
    /// No frame is free (ENOMEM).
    OutOfFrames(OutOfFrames),
    /// Pages that were to be locked could not be had (EAGAIN, mlock).
    OutOfFramesNow(OutOfFrames),
    /// The object could not give a page (EIO).
    Fetch,
    /// A page is mapped, pinned or read as often as its frame's count can hold (ENOMEM); a file's is not counted by
    /// mappings.
    TooManyReferences,
}

impl CallError {
    /// Returns Linux's number for the error.
    pub const fn errno(self) -> i32 {
        match self {
            Self::TooLow { .. } | Self::MayNotLock | Self::NoExec | Self::Sealed { .. } => 1,
            Self::Fetch => 5,
            Self::NoFile => 9,
            Self::TooManyAreasNow { .. } | Self::OverLockLimitNow { .. } | Self::OutOfFramesNow(_) => 11,
            Self::Unmapped { .. }
            | Self::NoRoom { .. }
            | Self::TooManyAreas { .. }
            | Self::OverLimit { .. }
            | Self::OverCommit { .. }
            | Self::OverLockLimit { .. }
            | Self::TooManyReferences
            | Self::OutOfFrames(_) => 12,
            Self::Denied => 13,
            Self::BadSource { .. } | Self::BadBuffer { .. } | Self::NoPage { .. } => 14,
            Self::Locked { .. } => 16,
            Self::Exists { .. } => 17,
            Self::NotMappable => 19,
            Self::Invalid(_) => 22,
            Self::BehindLongestFile => 27,
            Self::OffsetOverflow => 75,
            Self::Unsupported(_) => 95,
        }
    }
}

/// An error that may say that no frame was free.
pub(crate) trait Shortage {
    /// Returns what the frame source said, if that is the error.
    fn shortage(&self) -> Option<&OutOfFrames>;
}

impl Shortage for OutOfFrames {
    fn shortage(&self) -> Option<&OutOfFrames> {
        Some(self)
    }
}

impl Shortage for CallError {
    fn shortage(&self) -> Option<&OutOfFrames> {
        if let Self::OutOfFrames(cause) = self { Some(cause) } else { None }
    }
}

impl From<OutOfFrames> for CallError {
    fn from(cause: OutOfFrames) -> Self {
        Self::OutOfFrames(cause)
    }
}

impl core::fmt::Display for CallError {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Invalid(what) => write!(out, "invalid argument: {what}"),
            Self::Unmapped { address } => write!(out, "nothing is mapped at {address:#x}"),
            Self::BadSource { address } => write!(out, "the mapping at {address:#x} can't be remapped so"),
            Self::BadBuffer { address } => write!(out, "the call's buffer at {address:#x} can't be used"),
            Self::NoPage { address } => write!(out, "there is no page to be had at {address:#x}"),
            Self::NoRoom { len_bytes } => write!(out, "no free range of {len_bytes} bytes"),
            Self::TooManyAreas { limit } | Self::TooManyAreasNow { limit } => {
                write!(out, "the limit of {limit} areas is reached")
            }
            Self::OverLimit { limit_bytes } => write!(out, "the limit of {limit_bytes} bytes is reached"),
            Self::OverCommit { limit_bytes } => write!(out, "more than all {limit_bytes} bytes of memory"),
            Self::OverLockLimit { limit_bytes } | Self::OverLockLimitNow { limit_bytes } => {
                write!(out, "the limit of {limit_bytes} locked bytes is reached")
            }
            Self::MayNotLock => write!(out, "no page may be locked"),
            Self::Sealed { address } => write!(out, "the mapping at {address:#x} is sealed"),
            Self::Locked { address } => write!(out, "the pages at {address:#x} are locked"),
            Self::Exists { address } => write!(out, "{address:#x} is mapped already"),
            Self::Denied => write!(out, "the mapping's object does not allow this access"),
            Self::TooLow { lowest } => write!(out, "addresses below {lowest:#x} can't be mapped"),
            Self::NoFile => write!(out, "not a file that can be mapped"),
            Self::NoExec => write!(out, "the file lies where nothing may be executed"),
            Self::NotMappable => write!(out, "the file has no pages that could be mapped"),
            Self::OffsetOverflow => write!(out, "offset and length are too large together"),
            Self::BehindLongestFile => write!(out, "the range ends behind byte 2^63 - 1, where the longest file ends"),
            Self::Unsupported(what) => write!(out, "not supported for this file: {what}"),
            Self::OutOfFrames(cause) | Self::OutOfFramesNow(cause) => write!(out, "{cause}"),
            Self::TooManyReferences => write!(out, "a page is mapped as often as its frame can count"),
            Self::Fetch => write!(out, "the memory object could not give the page"),
        }
    }
}

impl core::error::Error for CallError {}

/// The signal that a bad access gives, as a handler sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGSEGV, SEGV_MAPERR: nothing is mapped there.
    SegvMapErr {
        /// `si_addr`.
        address: VirtAddr,
    },
    /// SIGSEGV, SEGV_ACCERR: the mapping's rights forbid it.
    SegvAccErr {
        /// `si_addr`.
        address: VirtAddr,
    },
    /// SIGSEGV, SEGV_PKUERR: a protection key forbids it.
    SegvPkuErr {
        /// `si_addr`.
        address: VirtAddr,
    },
    /// SIGSEGV, SI_KERNEL, without an address: no address at all (not canonical).
    SegvKernel,
    /// SIGBUS, BUS_ADRERR: the mapping has no page there.
    BusAdrErr {
        /// `si_addr`.
        address: VirtAddr,
    },
}

impl Signal {
    /// Returns the signal's number, `si_code` and `si_addr`.
    pub const fn parts(self) -> (i32, i32, u64) {
        match self {
            Self::SegvMapErr { address } => (11, 1, address.get()),
            Self::SegvAccErr { address } => (11, 2, address.get()),
            Self::SegvPkuErr { address } => (11, 4, address.get()),
            Self::SegvKernel => (11, 0x80, 0),
            Self::BusAdrErr { address } => (7, 2, address.get()),
        }
    }
}

/// Why an access to memory did not happen.
///
/// ```
/// use faultless_vm::{AccessError, Signal, VirtAddr};
///
/// let address = VirtAddr::new(0x1000);
/// let signal = AccessError::Forbidden { address }.signal().expect("one for the program");
/// assert_eq!(signal, Signal::SegvAccErr { address });
/// // SIGSEGV, SEGV_ACCERR, si_addr
/// assert_eq!(signal.parts(), (11, 2, 0x1000));
/// // No signal: the kernel must find memory.
/// assert_eq!(AccessError::TooManyReferences.signal(), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessError {
    /// SIGSEGV, code MAPERR: nothing is mapped there.
    NotMapped {
        /// The address.
        address: VirtAddr,
    },
    /// SIGSEGV, code ACCERR: the area's rights forbid it.
    Forbidden {
        /// The address.
        address: VirtAddr,
    },
    /// SIGSEGV, code PKUERR: the area's protection key forbids it.
    ForbiddenByKey {
        /// The address.
        address: VirtAddr,
    },
    /// SIGBUS, code ADRERR: behind the object's end, or its page could not be had.
    NoPage {
        /// The address.
        address: VirtAddr,
    },
    /// SIGSEGV, code SI_KERNEL: between the halves of the address space, where no address is.
    NotCanonical {
        /// The address.
        address: VirtAddr,
    },
    /// The page is mapped, or pinned, as often as its frame's count can hold.
    TooManyReferences,
    /// No frame is free.
    OutOfFrames(OutOfFrames),
}

impl AccessError {
    /// Returns the signal that a program gets; none if the machine ran out of something.
    pub const fn signal(self) -> Option<Signal> {
        match self {
            Self::NotMapped { address } => Some(Signal::SegvMapErr { address }),
            Self::Forbidden { address } => Some(Signal::SegvAccErr { address }),
            Self::ForbiddenByKey { address } => Some(Signal::SegvPkuErr { address }),
            Self::NoPage { address } => Some(Signal::BusAdrErr { address }),
            Self::NotCanonical { .. } => Some(Signal::SegvKernel),
            Self::TooManyReferences | Self::OutOfFrames(_) => None,
        }
    }
}

impl From<OutOfFrames> for AccessError {
    fn from(cause: OutOfFrames) -> Self {
        Self::OutOfFrames(cause)
    }
}

impl core::fmt::Display for AccessError {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::NotMapped { address } => write!(out, "SIGSEGV (MAPERR) at {address:#x}"),
            Self::Forbidden { address } => write!(out, "SIGSEGV (ACCERR) at {address:#x}"),
            Self::ForbiddenByKey { address } => write!(out, "SIGSEGV (PKUERR) at {address:#x}"),
            Self::NoPage { address } => write!(out, "SIGBUS (ADRERR) at {address:#x}"),
            Self::NotCanonical { address } => write!(out, "SIGSEGV (SI_KERNEL) for {address:#x}"),
            Self::TooManyReferences => write!(out, "the page is mapped as often as its frame can count"),
            Self::OutOfFrames(cause) => write!(out, "{cause}"),
        }
    }
}

impl core::error::Error for AccessError {}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: VirtAddr = VirtAddr::new(0x1000);

    /// Linux's numbers, from `include/uapi/asm-generic/errno-base.h` and `errno.h`.
    #[test]
    fn errors_have_linuxs_numbers() {
        let (limit, limit_bytes, none) = (3, 5, OutOfFrames::new(4, 0, faultless_phys::Cause::Exhausted));
        let numbers = [
            (1, CallError::TooLow { lowest: 1 }),
            (1, CallError::MayNotLock),
            (1, CallError::NoExec),
            (1, CallError::Sealed { address: AT }),
            (5, CallError::Fetch),
            (9, CallError::NoFile),
            (11, CallError::TooManyAreasNow { limit }),
            (11, CallError::OverLockLimitNow { limit_bytes }),
            (11, CallError::OutOfFramesNow(none)),
            (12, CallError::Unmapped { address: AT }),
            (12, CallError::NoRoom { len_bytes: 1 }),
            (12, CallError::TooManyAreas { limit }),
            (12, CallError::OverLimit { limit_bytes }),
            (12, CallError::OverCommit { limit_bytes }),
            (12, CallError::OverLockLimit { limit_bytes }),
            (12, CallError::TooManyReferences),
            (12, none.into()),
            (13, CallError::Denied),
            (14, CallError::BadSource { address: AT }),
            (14, CallError::BadBuffer { address: AT }),
            (14, CallError::NoPage { address: AT }),
            (16, CallError::Locked { address: AT }),
            (17, CallError::Exists { address: AT }),
            (19, CallError::NotMappable),
            (22, CallError::Invalid("")),
            (27, CallError::BehindLongestFile),
            (75, CallError::OffsetOverflow),
            (95, CallError::Unsupported("")),
        ];
        for (number, error) in numbers {
            assert_eq!(error.errno(), number, "{error}");
            assert!(!alloc::format!("{error}").is_empty());
        }
        assert_eq!(CallError::from(none).shortage(), Some(&none));
        assert_eq!(CallError::OutOfFramesNow(none).shortage(), None);
    }

    #[test]
    fn bad_accesses_give_linuxs_signals() {
        let parts = |error: AccessError| error.signal().map(Signal::parts);
        assert_eq!(parts(AccessError::NotMapped { address: AT }), Some((11, 1, 0x1000)));
        assert_eq!(parts(AccessError::Forbidden { address: AT }), Some((11, 2, 0x1000)));
        assert_eq!(parts(AccessError::ForbiddenByKey { address: AT }), Some((11, 4, 0x1000)));
        assert_eq!(parts(AccessError::NotCanonical { address: AT }), Some((11, 0x80, 0)));
        assert_eq!(parts(AccessError::NoPage { address: AT }), Some((7, 2, 0x1000)));
        assert_eq!(parts(AccessError::TooManyReferences), None);
        assert_eq!(alloc::format!("{}", AccessError::NoPage { address: AT }), "SIGBUS (ADRERR) at 0x1000");
    }
}
