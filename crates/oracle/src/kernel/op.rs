//! Operations: what a sequence is made of, as numbers that the kernel and the VM both take.
//!
//! # Guarantee
//! An operation is a call and six raw arguments; [`Call::arguments`] says what each of them means, and everything that
//! prints, reads, shrinks or draws operations goes by that table. Any number is a legal argument.

use super::zone::{Beyond, Harm, PAGE, Zone};

/// What an argument is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An address.
    Address,
    /// A length in bytes.
    Length,
    /// `PROT_*`.
    Rights,
    /// `MAP_*`.
    MapFlags,
    /// `MREMAP_*`.
    RemapFlags,
    /// `MADV_*`.
    Advice,
    /// `MS_*`.
    SyncFlags,
    /// `MLOCK_*`.
    LockFlags,
    /// `MCL_*`.
    LockAllFlags,
    /// A file of the sequence; see [`File`].
    File,
    /// A plain number.
    Number,
}

macro_rules! calls {
    ($($(#[$doc:meta])* $call:ident = $name:literal ($($argument:literal: $kind:ident),*)),+ $(,)?) => {
        /// What an operation does.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Call { $($(#[$doc])* $call),+ }

        impl Call {
            /// All calls, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$call),+];

            /// Returns the name.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$call => $name),+ }
            }

            /// Returns name and kind of each argument.
            pub const fn arguments(self) -> &'static [(&'static str, Kind)] {
                match self { $(Self::$call => &[$(($argument, Kind::$kind)),*]),+ }
            }
        }
    };
}

calls! {
    /// mmap(2).
    Mmap = "mmap"("addr": Address, "len": Length, "prot": Rights, "flags": MapFlags, "file": File, "offset": Length),
    /// munmap(2).
    Munmap = "munmap"("addr": Address, "len": Length),
    /// mprotect(2).
    Mprotect = "mprotect"("addr": Address, "len": Length, "prot": Rights),
    /// mremap(2).
    Mremap = "mremap"("old": Address, "old_len": Length, "new_len": Length, "flags": RemapFlags, "new": Address),
    /// madvise(2).
    Madvise = "madvise"("addr": Address, "len": Length, "advice": Advice),
    /// mincore(2); the last argument is 1 for a vector that can't be written.
    Mincore = "mincore"("addr": Address, "len": Length, "bad_vector": Number),
    /// msync(2).
    Msync = "msync"("addr": Address, "len": Length, "flags": SyncFlags),
    /// mlock(2).
    Mlock = "mlock"("addr": Address, "len": Length),
    /// mlock2(2).
    Mlock2 = "mlock2"("addr": Address, "len": Length, "flags": LockFlags),
    /// munlock(2).
    Munlock = "munlock"("addr": Address, "len": Length),
    /// mlockall(2).
    Mlockall = "mlockall"("flags": LockAllFlags),
    /// munlockall(2).
    Munlockall = "munlockall"(),
    /// The raw brk(2): answers the break in force.
    Brk = "brk"("addr": Address),
    /// remap_file_pages(2), emulated by today's kernels; flags as for mmap.
    RemapFilePages = "remap_file_pages"("addr": Address, "len": Length, "prot": Rights, "pgoff": Number, "flags": MapFlags),
    /// mseal(2).
    Mseal = "mseal"("addr": Address, "len": Length, "flags": Number),
    /// fork(2): the next so many operations happen in the child, which then exits; the parent waits and goes on after
    /// them.
    Fork = "fork"("ops": Number),
    /// As `Fork`, but the child shares the memory (vfork, or clone with CLONE_VM).
    Vfork = "vfork"("ops": Number),
    /// Loads a byte.
    Load = "load"("addr": Address),
    /// Stores a byte.
    Store = "store"("addr": Address, "value": Number),
    /// Executes an instruction.
    Fetch = "fetch"("addr": Address),
    /// Stores a byte into each of so many pages, each one more than the last; stops at the first signal.
    Fill = "fill"("addr": Address, "pages": Number, "value": Number),
    /// Writes memory to a pipe (write(2)), at most 4096 bytes.
    Output = "output"("addr": Address, "len": Length),
    /// Reads from a pipe into memory (read(2)), at most 4096 bytes: `value`, `value` + 1, ...
    Input = "input"("addr": Address, "len": Length, "value": Number),
    /// Writes memory to /dev/null, which never looks at it.
    Discard = "discard"("addr": Address, "len": Length),
    /// Sets a file's length (ftruncate(2)).
    Truncate = "truncate"("file": File, "len": Length),
    /// Compares everything: the area list, and the bytes of each readable page.
    Look = "look"(),
    /// fork(2) the other way round: the child waits while the parent runs the next so many operations, then compares
    /// everything, as `Look` does, and exits.
    Snapshot = "snapshot"("ops": Number),
    /// Counts the private pages of memory's own that the zones hold: what counts as resident besides pages of files.
    Resident = "resident"(),
}

impl Call {
    /// Returns the call of a name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|call| call.name() == name)
    }

    /// Says whether the call makes a process; its argument is how many of the next operations belong to it.
    pub const fn makes_process(self) -> bool {
        matches!(self, Self::Fork | Self::Vfork | Self::Snapshot)
    }

    /// Returns the call with a number, as in [`Call::ALL`].
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }
}

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Op {
    /// What is done.
    pub call: Call,
    /// 0 for the sequence's own thread; others run beside each other after all of its operations that stand before.
    pub thread: u8,
    /// The arguments; those that the call doesn't have are 0.
    pub args: [u64; 6],
}

impl Op {
    /// Returns an operation of the sequence's own thread.
    ///
    /// # Panics
    /// If there are more arguments than six.
    pub fn new(call: Call, given: &[u64]) -> Self {
        let mut args = [0; 6];
        args[..given.len()].copy_from_slice(given);
        Self { call, thread: 0, args }
    }

    /// Says whether the operation may use a file of the sequence.
    pub fn names_file(&self) -> bool {
        match self.call {
            Call::Mmap => File::from_argument(self.args[4]) != File::None,
            Call::Truncate => true,
            _ => false,
        }
    }

    /// Says whether the operation gives this advice.
    pub fn advises(&self, advice: i32) -> bool {
        // The call takes an int.
        self.call == Call::Madvise && self.args[2] as i32 == advice
    }

    /// Returns what the operation would do to memory that is not the sequence's.
    pub fn harm(&self) -> Harm {
        let [first, second, third, fourth, fifth, _] = self.args;
        let strict = |start, len| Zone::harm(start, len, Beyond::Refused);
        let partial = |start, len| Zone::harm(start, len, Beyond::Partial);
        let is_fixed = |flags: u64| flags & (libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE) as u64 != 0;
        match self.call {
            Call::Mmap if is_fixed(fourth) => strict(first, second),
            Call::Munmap => strict(first, second),
            Call::Mremap if fourth & libc::MREMAP_FIXED as u64 != 0 => strict(first, second).or(strict(fifth, third)),
            Call::Mremap => strict(first, second),
            Call::Mprotect | Call::Madvise => partial(first, second),
            Call::Mlock | Call::Mlock2 | Call::Munlock => {
                let (start, len) = in_whole_pages(first, second);
                if len == 0 { Harm::None } else { partial(start, len) }
            }
            Call::RemapFilePages | Call::Mseal | Call::Msync | Call::Mincore | Call::Input => partial(first, second),
            Call::Load | Call::Store | Call::Fetch => partial(first, 1),
            Call::Fill => partial(first, second.saturating_mul(PAGE)),
            _ => Harm::None,
        }
    }
}

/// Returns the pages around a range as mlock and munlock round it: a sum that wraps makes a short range of a long one.
fn in_whole_pages(start: u64, len_bytes: u64) -> (u64, u64) {
    let first = start & !(PAGE - 1);
    (first, len_bytes.wrapping_add(start - first).wrapping_add(PAGE - 1) & !(PAGE - 1))
}

/// A file, or what stands where a file is expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u64)]
pub enum File {
    /// No file: the descriptor -1.
    None = 0,
    /// Open for reading and writing; five pages and a half at first.
    ReadWrite = 1,
    /// The same file as `ReadWrite`, open for reading.
    ReadOnly = 2,
    /// The same file as `ReadWrite`, open for writing.
    WriteOnly = 3,
    /// Another file, open for reading and writing; empty at first.
    Empty = 4,
    /// A pipe.
    Pipe = 5,
    /// A descriptor that is not open.
    Closed = 6,
    /// What a reference page looks like: a sealed file of [`REFERENCE_BYTE`] as far as a sequence can see, open for
    /// reading.
    Reference = 7,
}

impl File {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 8] = [
        Self::None,
        Self::ReadWrite,
        Self::ReadOnly,
        Self::WriteOnly,
        Self::Empty,
        Self::Pipe,
        Self::Closed,
        Self::Reference,
    ];

    /// Returns the file of an argument; numbers beyond the table are descriptors that are not open.
    pub fn from_argument(number: u64) -> Self {
        Self::ALL.get(number as usize).copied().unwrap_or(Self::Closed)
    }

    /// Returns the name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "-",
            Self::ReadWrite => "rw",
            Self::ReadOnly => "ro",
            Self::WriteOnly => "wo",
            Self::Empty => "empty",
            Self::Pipe => "pipe",
            Self::Closed => "closed",
            Self::Reference => "ref",
        }
    }
}

/// The byte that the file `Reference` repeats: an instruction that does nothing.
pub const REFERENCE_BYTE: u8 = 0x90;

/// Pages at the begin of the file `Reference` that mappings begin in.
pub const REFERENCE_PAGES: u64 = 8;

/// Length of the file `Reference`: no mapping of the window, however moved or grown, leaves it.
pub const REFERENCE_BYTES: u64 = 2 * super::zone::WINDOW_BYTES + 2 * REFERENCE_PAGES * PAGE;

/// Length of the file `ReadWrite` at first.
pub const FILE_BYTES: u64 = 5 * 4096 + 2048;

/// Returns the byte of the file `ReadWrite` at an offset, as it is at first: harmless if executed.
pub const fn file_byte(offset: u64) -> u8 {
    byte((offset / 4096 * 11 + offset % 4096 / 512) as u8)
}

/// What the file `ReadWrite` holds at first: [`file_byte`] of each offset.
pub static FILE_CONTENT: [u8; FILE_BYTES as usize] = {
    let mut content = [0; FILE_BYTES as usize];
    let mut offset = 0;
    while offset < content.len() {
        content[offset] = file_byte(offset as u64);
        offset += 1;
    }
    content
};

/// Returns the stored byte for a number: zero, or the opcode of an instruction without memory operand, so that fetching
/// whatever sequences store is harmless.
pub const fn byte(number: u8) -> u8 {
    match number % 57 {
        0 => 0,
        place @ 1..=16 => 0x4f + place,
        place @ 17..=32 => 0x70 + (place - 17),
        place @ 33..=40 => 0x90 + (place - 33),
        place => 0xb0 + (place - 41),
    }
}
