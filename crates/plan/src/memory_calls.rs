//! What a replay does for a recorded call, and what it does with the recorded result.
//!
//! # Guarantee
//! Every recorded call gets exactly one [`Verdict`]: its result is compared, or taken from the recording for a named
//! reason, or the call is not modelled and its name says so.

use super::regions::Backing;
use faultless_abi::{MapFlags, Prot, RemapFlags, number_of};
use faultless_vm::{Advice, PageLock};

/// What a replay does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryCall {
    /// Maps memory.
    Map(Mapping),
    /// Takes a range away.
    Unmap {
        /// As it was asked for.
        start: u64,
        /// As it was asked for.
        len: u64,
    },
    /// Changes rights.
    Protect {
        /// As it was asked for.
        start: u64,
        /// As it was asked for.
        len: u64,
        /// As it was asked for.
        prot: Prot,
    },
    /// Changes a mapping's size or place.
    Remap {
        /// The old start.
        old: u64,
        /// The old length.
        old_len: u64,
        /// The new length.
        new_len: u64,
        /// `MREMAP_*`.
        flags: RemapFlags,
        /// The place asked for with `MREMAP_FIXED`; otherwise the one that Linux chose. A failed call has the hint of
        /// `MREMAP_DONTUNMAP`, or 0.
        target: u64,
    },
    /// Gives advice.
    Advise {
        /// As it was asked for.
        start: u64,
        /// As it was asked for.
        len: u64,
        /// `MADV_*`, as it was asked for.
        advice: u64,
    },
    /// Moves the break.
    Break {
        /// The break asked for.
        requested: u64,
        /// The space's break before it.
        before: u64,
        /// Whether no earlier call told the break, so that the heap begins at `before`.
        is_first: bool,
    },
    /// Locks a range in memory, or lets it go.
    Lock {
        /// As it was asked for.
        start: u64,
        /// As it was asked for.
        len: u64,
        /// Which.
        lock: PageLock,
    },
    /// Locks all that is mapped, or lets it go.
    LockAll {
        /// Which.
        lock: PageLock,
    },
    /// Asks about a range, changing nothing: only that it is mapped decides.
    Ask {
        /// As it was asked for.
        start: u64,
        /// As it was asked for.
        len: u64,
    },
    /// Writes back what was stored into shared files, so that the next stores fault again.
    WriteBack {
        /// As it was asked for.
        start: u64,
        /// As it was asked for.
        len: u64,
    },
    /// Nothing: the result is imposed, and the map stays as it is.
    Nothing,
}

impl MemoryCall {
    /// Returns the call that gives advice which has a number.
    pub fn advise(start: u64, len: u64, advice: Advice) -> Self {
        Self::Advise { start, len, advice: number_of(advice).map_or(0, u64::from) }
    }
}

/// A mapping to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Where.
    pub place: Place,
    /// How long, as it was asked for.
    pub len: u64,
    /// `PROT_*`.
    pub prot: Prot,
    /// `MAP_*`.
    pub flags: MapFlags,
    /// What stands behind it.
    pub backing: Backing,
    /// Whether its pages are locked when they come, as `mlockall` wants it of later mappings.
    pub is_locked_on_fault: bool,
}

impl Mapping {
    /// Returns whether Linux refuses such flags for anonymous memory: `MAP_SHARED_VALIDATE`, and types that there are
    /// not. A replay may have a file in its place, for which it would take them.
    pub fn is_refused_without_file(&self) -> bool {
        let kind = self.flags & MapFlags::TYPE;
        let is_known = matches!(kind, MapFlags::SHARED | MapFlags::PRIVATE | MapFlags::DROPPABLE);
        self.flags.contains(MapFlags::ANONYMOUS) && !is_known
    }
}

/// Where a mapping goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// To this address, over whatever is there.
    Fixed(u64),
    /// To this address, if it is free.
    FixedIfFree(u64),
    /// Where the space's own search would put it; then, for the sake of its neighbours, where Linux put it.
    Searched {
        /// The address asked for.
        hint: u64,
        /// Where Linux put it.
        placed: u64,
    },
    /// Nowhere: Linux refused, and so must the replay.
    Refused {
        /// The address asked for.
        hint: u64,
    },
}

/// What happens to a call's recorded result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It depends on the map alone: the replay's must equal it.
    Compared(i64),
    /// As [`Verdict::Compared`], but another thread changed that memory at the same time, and it is not known which
    /// came first: another result is counted as ambiguous.
    Either(i64),
    /// It depends on something that a replay does not have.
    Imposed(Reason),
    /// The call is not modelled.
    NotModelled(&'static str),
}

impl Verdict {
    /// Returns the result that a replay's is compared with, and whether another one is a mismatch.
    pub const fn compared(self) -> Option<(i64, bool)> {
        match self {
            Self::Compared(expected) => Some((expected, true)),
            Self::Either(expected) => Some((expected, false)),
            Self::Imposed(_) | Self::NotModelled(_) => None,
        }
    }
}

/// What an imposed result depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Reason {
    /// A descriptor and what stands behind it.
    Descriptor,
    /// A limit or a privilege.
    Limit,
    /// A device or the kernel's configuration.
    Device,
    /// A signal: the thread was killed inside the call.
    Signal,
    /// Another process: who may trace it.
    Process,
    /// What nobody saw: the call had been entered when the recording joined its process, or had not ended when the
    /// recording did.
    InFlight,
}

impl Reason {
    /// All of them, in the order of reports.
    pub const ALL: [Reason; 6] =
        [Reason::Descriptor, Reason::Limit, Reason::Device, Reason::Signal, Reason::Process, Reason::InFlight];

    /// Returns the name used in reports and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Reason::Descriptor => "descriptor",
            Reason::Limit => "limit",
            Reason::Device => "device",
            Reason::Signal => "signal",
            Reason::Process => "process",
            Reason::InFlight => "in_flight",
        }
    }
}
