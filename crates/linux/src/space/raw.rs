//! The memory calls as the raw system calls that they are: any arguments, and the kernel's own answer.

use std::io;

/// A call and its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RawCall {
    /// mmap.
    Map {
        /// The address.
        address: u64,
        /// The length.
        len: u64,
        /// `PROT_*`.
        prot: u64,
        /// `MAP_*`.
        flags: u64,
        /// The file, or -1.
        fd: i32,
        /// The offset.
        offset: u64,
    },
    /// munmap.
    Unmap {
        /// The address.
        address: u64,
        /// The length.
        len: u64,
    },
    /// mprotect.
    Protect {
        /// The address.
        address: u64,
        /// The length.
        len: u64,
        /// `PROT_*`.
        prot: u64,
    },
    /// mremap.
    Remap {
        /// The old address.
        old: u64,
        /// The old length.
        old_len: u64,
        /// The new length.
        new_len: u64,
        /// `MREMAP_*`.
        flags: u64,
        /// The new address.
        new: u64,
    },
    /// madvise.
    Advise {
        /// The address.
        address: u64,
        /// The length.
        len: u64,
        /// `MADV_*`.
        advice: u64,
    },
    /// mlock2.
    Lock {
        /// The address.
        address: u64,
        /// The length.
        len: u64,
        /// Whether pages are locked when they come, and not made (`MLOCK_ONFAULT`).
        on_fault: bool,
    },
    /// munlock.
    Unlock {
        /// The address.
        address: u64,
        /// The length.
        len: u64,
    },
}

impl RawCall {
    /// Makes the call; returns its result, or the negated error number.
    ///
    /// Whoever makes it owns all memory that the range holds: it is for processes that replay a program in a part of
    /// their address space that nothing else uses.
    pub fn make(self) -> i64 {
        let (number, arguments) = self.words();
        let [one, two, three, four, five, six] = arguments;
        // SAFETY: the caller owns the memory that the call is about.
        let result = unsafe { libc::syscall(number, one, two, three, four, five, six) };
        if result != -1 {
            return result;
        }
        -i64::from(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
    }

    fn words(self) -> (i64, [u64; 6]) {
        match self {
            Self::Map { address, len, prot, flags, fd, offset } => {
                (libc::SYS_mmap, [address, len, prot, flags, i64::from(fd).cast_unsigned(), offset])
            }
            Self::Unmap { address, len } => (libc::SYS_munmap, [address, len, 0, 0, 0, 0]),
            Self::Protect { address, len, prot } => (libc::SYS_mprotect, [address, len, prot, 0, 0, 0]),
            Self::Remap { old, old_len, new_len, flags, new } => {
                (libc::SYS_mremap, [old, old_len, new_len, flags, new, 0])
            }
            Self::Advise { address, len, advice } => (libc::SYS_madvise, [address, len, advice, 0, 0, 0]),
            Self::Lock { address, len, on_fault } => (libc::SYS_mlock2, [address, len, on_fault.into(), 0, 0, 0]),
            Self::Unlock { address, len } => (libc::SYS_munlock, [address, len, 0, 0, 0, 0]),
        }
    }
}
