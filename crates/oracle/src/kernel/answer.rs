//! What came of an operation.

use super::zone::PAGE;

/// A signal as its handler saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Its number.
    pub signo: i32,
    /// Its code.
    pub code: i32,
    /// The address that came with it.
    pub address: u64,
}

impl Seen {
    /// Returns the name of signal and code.
    pub fn name(&self) -> String {
        match (self.signo, self.code) {
            (libc::SIGSEGV, 1) => "SEGV_MAPERR".into(),
            (libc::SIGSEGV, 2) => "SEGV_ACCERR".into(),
            (libc::SIGSEGV, 4) => "SEGV_PKUERR".into(),
            (libc::SIGSEGV, 128) => "SEGV_KERNEL".into(),
            (libc::SIGBUS, 2) => "BUS_ADRERR".into(),
            (signo, code) => format!("SIGNAL_{signo}_{code}"),
        }
    }
}

/// What stands behind an area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Behind {
    /// Nothing: private anonymous memory.
    Anonymous = 0,
    /// The file `rw`.
    ReadWrite = 1,
    /// The file `empty`.
    Empty = 2,
    /// Shared anonymous memory.
    Shared = 3,
    /// The file `ref`.
    Reference = 4,
}

/// A line of the area list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AreaSeen {
    /// First byte.
    pub start: u64,
    /// First byte behind.
    pub end: u64,
    /// `PROT_*`.
    pub rights: u64,
    /// Whether stores reach what is behind it.
    pub is_shared: bool,
    /// Offset in what is behind it; 0 for private anonymous memory.
    pub offset: u64,
    /// What is behind it.
    pub behind: Behind,
    /// Digests of its pages, summed so that splitting an area splits the sum; unreadable areas have 0.
    pub digest: u64,
}

impl AreaSeen {
    /// Says whether `next` goes on where this one ends, and is alike.
    pub fn is_continued_by(&self, next: &Self) -> bool {
        let offset = if self.behind == Behind::Anonymous { 0 } else { self.offset + (self.end - self.start) };
        let like = |area: &Self| (area.rights, area.is_shared, area.behind);
        self.end == next.start && like(self) == like(next) && offset == next.offset
    }

    /// Returns what a page adds to an area's digest.
    pub fn page_digest(address: u64, page: Result<u64, Seen>) -> u64 {
        let content = match page {
            Ok(digest) => digest,
            Err(seen) => 0x5bd1_e995 ^ (seen.signo as u64) << 8 ^ (seen.code as u64) << 16,
        };
        // The place counts: two pages that changed places are a difference.
        (content ^ (address / PAGE)).wrapping_mul(0xff51_afd7_ed55_8ccd).rotate_left(17)
    }
}

impl core::fmt::Display for AreaSeen {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let letter = |bit, letter| if self.rights & bit != 0 { letter } else { '-' };
        let (read, write, execute) = (letter(1, 'r'), letter(2, 'w'), letter(4, 'x'));
        let kind = if self.is_shared { 's' } else { 'p' };
        let Self { start, end, offset, behind, digest, .. } = self;
        write!(out, "{start:08x}-{end:08x} {read}{write}{execute}{kind} {offset:08x} {behind:?} digest {digest:016x}")
    }
}

/// What came of a sequence; reads as its outcomes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// What came of each operation.
    pub outcomes: Vec<Outcome>,
    /// When each operation of a thread ended, on a clock of its own; others have 0. A hint in which order they
    /// happened.
    pub ended: Vec<u64>,
}

impl core::ops::Deref for Answer {
    type Target = [Outcome];

    fn deref(&self) -> &[Outcome] {
        &self.outcomes
    }
}

/// What came of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It did not come to it: a fork before failed.
    NotRun,
    /// It succeeded; the number is what was returned or read.
    Value(u64),
    /// It failed with this error.
    Errno(i32),
    /// It was ended by a signal.
    Signal(Seen),
    /// The list that was asked for.
    List(Vec<AreaSeen>),
}

impl core::fmt::Display for Outcome {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::NotRun => write!(out, "not run"),
            Self::Value(value) => write!(out, "{value:#x}"),
            Self::Errno(errno) => write!(out, "{}", errno_name(*errno)),
            Self::Signal(seen) => write!(out, "{} at {:#x}", seen.name(), seen.address),
            Self::List(areas) => {
                write!(out, "{} areas", areas.len())?;
                areas.iter().try_for_each(|area| write!(out, "\n    {area}"))
            }
        }
    }
}

/// Returns the name of an error number.
pub fn errno_name(errno: i32) -> String {
    let name = match errno {
        libc::EPERM => "EPERM",
        libc::ENOENT => "ENOENT",
        libc::EINTR => "EINTR",
        libc::EIO => "EIO",
        libc::EBADF => "EBADF",
        libc::EAGAIN => "EAGAIN",
        libc::ENOMEM => "ENOMEM",
        libc::EACCES => "EACCES",
        libc::EFAULT => "EFAULT",
        libc::EBUSY => "EBUSY",
        libc::EEXIST => "EEXIST",
        libc::ENODEV => "ENODEV",
        libc::EINVAL => "EINVAL",
        libc::ETXTBSY => "ETXTBSY",
        libc::EFBIG => "EFBIG",
        libc::ENOSPC => "ENOSPC",
        libc::ENOSYS => "ENOSYS",
        libc::EOVERFLOW => "EOVERFLOW",
        libc::EOPNOTSUPP => "EOPNOTSUPP",
        libc::EHWPOISON => "EHWPOISON",
        other => return format!("errno {other}"),
    };
    name.to_owned()
}
