//! Why a request could not be met, in words that name the value and the limit.

use std::fmt;

/// Why pages could not be patterned, or a call not be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The pattern has no bytes.
    EmptyPattern,
    /// A mapping of no bytes was asked for.
    EmptyMapping,
    /// The length, or what rounding to pages makes of it, exceeds the address space.
    TooLarge {
        /// The length that was asked for.
        len: usize,
    },
    /// The alignment is not a power of two.
    BadAlignment {
        /// The alignment that was asked for.
        align: usize,
    },
    /// The range does not lie inside the mapping.
    OutOfRange {
        /// The end of the range.
        end: usize,
        /// The mapping's length.
        len: usize,
    },
    /// The address was not returned by a map call, or has been unmapped.
    NotAMapping {
        /// The address.
        address: usize,
    },
    /// There is no memory, or no address space, for the request.
    OutOfMemory {
        /// The length that did not fit.
        len: usize,
    },
    /// The process has as many areas (`/proc/self/maps`) as it may have.
    Areas {
        /// `vm.max_map_count`.
        limit: usize,
    },
    /// The process, or the system, has as many open descriptors as it may have.
    Descriptors {
        /// The process's soft limit (`ulimit -n`).
        limit: u64,
    },
    /// The tile is longer than a file may be in this process.
    FileSize {
        /// The soft limit (`ulimit -f`), in bytes.
        limit: u64,
    },
    /// The pattern and the page meet only after this many bytes, too far for a tile.
    LongPeriod {
        /// The least common multiple of the pattern's length and the page's.
        period: usize,
    },
    /// The kernel refuses a call that tiles need.
    Unsupported {
        /// The call.
        call: &'static str,
        /// Its errno.
        errno: i32,
    },
    /// The program closes or replaces our descriptor as fast as it is made.
    DescriptorStolen,
    /// The options of the C interface have another size, or flags that this version does not know.
    BadOptions,
    /// A descriptor to attach to is not a memfd that is sealed against writing and resizing.
    NotSealed,
    /// A descriptor to attach to holds another pattern, or a length that does not tile.
    OtherContent,
}

impl Error {
    /// Returns the errno that the C interface reports for this.
    pub fn errno(&self) -> i32 {
        match self {
            Error::EmptyPattern
            | Error::EmptyMapping
            | Error::BadAlignment { .. }
            | Error::NotAMapping { .. }
            | Error::BadOptions
            | Error::NotSealed => libc::EINVAL,
            Error::OutOfRange { .. } => libc::ERANGE,
            Error::OtherContent => libc::EBADMSG,
            Error::TooLarge { .. } | Error::OutOfMemory { .. } => libc::ENOMEM,
            Error::Areas { .. } => libc::ENOSPC,
            Error::Descriptors { .. } => libc::EMFILE,
            Error::FileSize { .. } => libc::EFBIG,
            Error::LongPeriod { .. } => libc::EDOM,
            Error::Unsupported { errno, .. } => *errno,
            Error::DescriptorStolen => libc::EBADF,
        }
    }

    /// Returns a sentence without the values, for an errno of this library.
    pub fn text_of(errno: i32) -> &'static std::ffi::CStr {
        match errno {
            libc::EINVAL => c"empty pattern or mapping, alignment no power of two, unknown options, or not a mapping",
            libc::ERANGE => c"the range does not lie inside the mapping",
            libc::EBADMSG => c"the descriptor holds another pattern",
            libc::ENOMEM => c"no memory, or no address space, for the request",
            libc::ENOSPC => c"vm.max_map_count is reached",
            libc::EMFILE => c"no descriptor is left for the pattern's memfd (ulimit -n)",
            libc::EFBIG => c"the file-size limit (ulimit -f) is below the tile's length",
            libc::EDOM => c"the pattern and the page meet too late for a tile",
            libc::EBADF => c"the program closes the pattern's descriptor as fast as it is made",
            _ => c"the kernel refuses a call that tiles need (memfd_create, fcntl or mmap)",
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::EmptyPattern => write!(f, "the pattern is empty; give it at least one byte"),
            Error::EmptyMapping => write!(f, "a mapping of 0 bytes was asked for"),
            Error::TooLarge { len } => write!(f, "{len} bytes exceed the address space"),
            Error::BadAlignment { align } => write!(f, "alignment {align} is not a power of two"),
            Error::OutOfRange { end, len } => {
                write!(f, "the range ends at {end}, the mapping at {len}")
            }
            Error::NotAMapping { address } => {
                write!(f, "{address:#x} is not the start of a mapping")
            }
            Error::OutOfMemory { len } => write!(f, "no memory or address space for {len} bytes"),
            Error::Areas { limit } => write!(
                f,
                "the process has no area left (vm.max_map_count is {limit}); raise it, or choose larger tiles"
            ),
            Error::Descriptors { limit } => {
                write!(f, "no descriptor is left for the pattern's memfd (ulimit -n is {limit})")
            }
            Error::FileSize { limit } => {
                write!(f, "the file-size limit (ulimit -f) of {limit} bytes is below the tile's length")
            }
            Error::LongPeriod { period } => {
                write!(f, "pattern and page meet only every {period} bytes, too far for a tile")
            }
            Error::Unsupported { call, errno } => {
                write!(f, "the kernel refuses {call} (errno {errno})")
            }
            Error::DescriptorStolen => write!(f, "the program closes the pattern's descriptor as fast as it is made"),
            Error::BadOptions => {
                write!(f, "the options have another size or flags that this version does not know")
            }
            Error::NotSealed => {
                write!(f, "the descriptor is not a memfd sealed against writing, growing and shrinking")
            }
            Error::OtherContent => {
                write!(f, "the descriptor holds another pattern, or a length that does not tile")
            }
        }
    }
}

impl std::error::Error for Error {}
