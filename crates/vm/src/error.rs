//! What memory calls and accesses answer when they don't succeed.

use faultless_phys::OutOfFrames;

/// A memory call failed; nothing was changed unless the variant says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallError {
    /// An argument is outside what the call takes (EINVAL); the text says which.
    Invalid(&'static str),
    /// Part of the range is not mapped (ENOMEM); what the manual says is applied to the mapped part was applied.
    Unmapped {
        /// The first address without a mapping.
        address: u64,
    },
    /// The source of a remapping is not mapped, or spans areas that can't move together (EFAULT).
    BadSource {
        /// The address in question.
        address: u64,
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
    /// The total size would exceed the space's limit (ENOMEM).
    OverLimit {
        /// The limit in bytes.
        limit_bytes: u64,
    },
    /// The range is taken (EEXIST).
    Exists {
        /// An address that is mapped.
        address: u64,
    },
    /// The mapping's file or limit forbids it (EACCES).
    Denied,
    /// The address is below the lowest that may be mapped (EPERM).
    TooLow {
        /// The limit.
        lowest: u64,
    },
    /// No frame is free (ENOMEM).
    OutOfFrames(OutOfFrames),
    /// The object could not give a page (EIO).
    Fetch,
    /// A page is mapped as often as its frame's count can hold (ENOMEM).
    TooManyReferences,
}

impl CallError {
    /// Returns Linux's number for the error.
    pub const fn errno(self) -> i32 {
        match self {
            Self::TooLow { .. } => 1,
            Self::Fetch => 5,
            Self::Unmapped { .. }
            | Self::NoRoom { .. }
            | Self::TooManyAreas { .. }
            | Self::OverLimit { .. }
            | Self::TooManyReferences
            | Self::OutOfFrames(_) => 12,
            Self::Denied => 13,
            Self::BadSource { .. } => 14,
            Self::Exists { .. } => 17,
            Self::Invalid(_) => 22,
        }
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
            Self::NoRoom { len_bytes } => write!(out, "no free range of {len_bytes} bytes"),
            Self::TooManyAreas { limit } => write!(out, "the limit of {limit} areas is reached"),
            Self::OverLimit { limit_bytes } => write!(out, "the limit of {limit_bytes} bytes is reached"),
            Self::Exists { address } => write!(out, "{address:#x} is mapped already"),
            Self::Denied => write!(out, "the mapping's object does not allow this access"),
            Self::TooLow { lowest } => write!(out, "addresses below {lowest:#x} can't be mapped"),
            Self::OutOfFrames(cause) => write!(out, "{cause}"),
            Self::TooManyReferences => write!(out, "a page is mapped as often as its frame can count"),
            Self::Fetch => write!(out, "the memory object could not give the page"),
        }
    }
}

impl core::error::Error for CallError {}

/// Why an access to memory did not happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessError {
    /// SIGSEGV, code MAPERR: nothing is mapped there.
    NotMapped {
        /// The address.
        address: u64,
    },
    /// SIGSEGV, code ACCERR: the area's rights forbid it.
    Forbidden {
        /// The address.
        address: u64,
    },
    /// SIGBUS, code ADRERR: behind the object's end, or its page could not be had.
    NoPage {
        /// The address.
        address: u64,
    },
    /// The page is mapped as often as its frame's count can hold.
    TooManyReferences,
    /// No frame is free.
    OutOfFrames(OutOfFrames),
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
            Self::NoPage { address } => write!(out, "SIGBUS (ADRERR) at {address:#x}"),
            Self::TooManyReferences => write!(out, "the page is mapped as often as its frame can count"),
            Self::OutOfFrames(cause) => write!(out, "{cause}"),
        }
    }
}

impl core::error::Error for AccessError {}
