//! What a recorded program did, event by event.
//!
//! # Guarantee
//! A trace that was read without an error obeys I1..I9; a replay may rely on them.
//!
//! # Invariants
//! - I1 times never go back along the list: it is one total order over all CPUs, and for each thread the true one
//! - I2 thread and file indices lie inside the trace's tables
//! - I3 the list opens with thread 0's [`EventKind::Exec`], or the trace has a snapshot and its threads run from the
//!   beginning; every other thread is the child of exactly one [`EventKind::Clone`], which stands before the thread's
//!   own first event
//! - I4 calls do not nest: between a thread's [`EventKind::CallEnter`] and its [`EventKind::CallExit`] stands no other
//!   enter of that thread, and the exit names the same call; the first exit of a thread of the snapshot may lack its
//!   enter, which came before the recording
//! - I5 nothing of a thread follows its [`EventKind::Exit`]
//! - I6 arguments beyond [`Call::arity`](crate::Call::arity) are zero
//! - I7 without pace data every `on_cpu_ns` is zero, and no switch or wake is present
//! - I8 a fault's address is canonical (57 bits, the rest repeating the highest)
//! - I9 times are multiples of [`Header::time_unit_ns`](crate::Header::time_unit_ns())
//!
//! A trace with lost records (`header.lost > 0`) promises I1, I2 and I6 to I9 only.
//!
//! A call may lack its exit: its thread was killed inside it, or the recording was interrupted.
//! A thread may lack its exit record: the recording was interrupted, or the thread was ended by another one's `exec`.
//! A thread that runs `exec` while it is not its process's first goes on under the process's number; here it stays
//! the same thread.

use crate::call::Call;

/// The place of a thread in the trace's thread table; 0 is the recorded program's first thread.
pub type ThreadIndex = u32;

/// The place of a file in the trace's file table.
pub type FileIndex = u32;

/// One thing that happened, with who did it and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The thread that did it.
    pub thread: ThreadIndex,
    /// Monotonic time since the recording's first event.
    pub time_ns: u64,
    /// Time this thread spent on a CPU since its previous event of any kind; 0 without pace data.
    ///
    /// It contains the cost of the previous event itself (a fault has an entry record only) and of its tracing; both
    /// are in the header as [`Costs`](crate::Costs), for a replay to subtract.
    pub on_cpu_ns: u64,
    /// What it was.
    pub kind: EventKind,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// A page fault that the hardware raised for a user address.
    Fault(Fault),
    /// A thread entered one of the memory calls.
    CallEnter(CallEnter),
    /// The call returned.
    CallExit(CallExit),
    /// The kernel told of a mapping (perf's MMAP2 record).
    Mapped(Mapped),
    /// The thread made another thread or process.
    Clone(CloneTask),
    /// The thread's process replaced its program: its address space is new and empty, its other threads are gone.
    Exec,
    /// The thread ended.
    Exit,
    /// The thread left its CPU.
    SwitchOut(SwitchReason),
    /// The thread got a CPU.
    SwitchIn,
    /// The thread woke another recorded one, on its own behalf (never from an interrupt).
    ///
    /// What an ending thread wakes (who joins or waits for it) is not seen: Linux stops watching a thread just before.
    /// Its [`EventKind::Exit`] stands for those wakes.
    Wake {
        /// The thread that may run again.
        woken: ThreadIndex,
    },
}

/// A page fault on a user address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The address that was accessed, with its offset in the page.
    pub address: u64,
    /// The instruction that accessed it.
    pub ip: u64,
    /// The hardware's error code: bit 0 the page was present, bit 1 write, bit 2 from user mode, bit 4 fetch, bit 5 a
    /// protection key forbade it.
    pub error_code: u32,
    /// Which side of the kernel boundary the instruction stood on.
    pub side: Side,
}

impl Fault {
    /// The error code's bit for "the page was present, and the access was forbidden".
    pub const PRESENT: u32 = 1 << 0;
    /// The error code's bit for a store.
    pub const WRITE: u32 = 1 << 1;
    /// The error code's bit for an access from user mode.
    pub const USER: u32 = 1 << 2;
    /// The error code's bit for an instruction fetch.
    pub const FETCH: u32 = 1 << 4;

    /// The error code's bit for an access that the page's protection key forbade.
    pub const KEY: u32 = 1 << 5;

    /// Returns what the instruction wanted of the page.
    pub fn access(&self) -> Access {
        if self.error_code & Self::WRITE != 0 {
            Access::Write
        } else if self.error_code & Self::FETCH != 0 {
            Access::Fetch
        } else {
            Access::Read
        }
    }

    /// Returns whether a protection key forbade the access.
    pub fn is_by_key(&self) -> bool {
        self.error_code & Self::KEY != 0
    }

    /// Returns whether the page was present, so that the access was refused for its rights (a copy on write, say).
    ///
    /// Always false in a trace that lacks [`Missing::WriteBit`](crate::Missing::WriteBit).
    pub fn is_present(&self) -> bool {
        self.error_code & Self::PRESENT != 0
    }
}

/// What an access wants of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Access {
    /// A load.
    Read,
    /// A store.
    Write,
    /// An instruction fetch.
    Fetch,
}

/// Which code took a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// The program itself.
    User,
    /// The kernel, on the program's behalf: copying a system call's buffer, building a new program's stack.
    Kernel,
}

/// A thread enters a memory call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallEnter {
    /// Which one.
    pub call: Call,
    /// The raw argument registers; those beyond the call's arity are zero (I6).
    pub args: [u64; 6],
}

/// A memory call returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallExit {
    /// Which one.
    pub call: Call,
    /// What it returned: -4095..=-1 is a negated errno, anything else a value or an address.
    pub result: i64,
}

impl CallExit {
    /// Returns whether the call failed, and so changed nothing.
    pub fn is_error(&self) -> bool {
        (-4095..0).contains(&self.result)
    }
}

/// A mapping as the kernel told of it when it made or changed it.
///
/// Inside a call of the same thread it gives that call's file its identity, and may describe a larger, merged area.
/// Outside any call it is a mapping that no call made: exec's segments, the stack, the vdso.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapped {
    /// The first byte.
    pub start: u64,
    /// Its length.
    pub len_bytes: u64,
    /// The offset of the first byte in the file, in bytes.
    pub file_offset: u64,
    /// `PROT_READ`, `PROT_WRITE`, `PROT_EXEC`.
    pub prot: u32,
    /// `MAP_SHARED` or `MAP_PRIVATE`, `MAP_GROWSDOWN`, `MAP_DENYWRITE`, `MAP_EXECUTABLE`, `MAP_LOCKED`, `MAP_HUGETLB`.
    pub flags: u32,
    /// The file behind it; `None` for anonymous memory.
    pub file: Option<FileIndex>,
}

/// The making of a thread or process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CloneTask {
    /// The new thread.
    pub child: ThreadIndex,
    /// The flags of `clone(2)`, of which those below matter here.
    pub flags: u64,
}

impl CloneTask {
    /// `CLONE_VM`: the child shares the address space; otherwise it gets a copy.
    pub const VM: u64 = 0x100;
    /// `CLONE_PIDFD`: the kernel stores the number of a descriptor for the child into the parent's memory.
    pub const PIDFD: u64 = 0x1000;
    /// `CLONE_VFORK`: the parent sleeps until the child calls exec or ends.
    pub const VFORK: u64 = 0x4000;
    /// `CLONE_THREAD`: the child is a thread of the same process.
    pub const THREAD: u64 = 0x1_0000;

    /// Returns whether parent and child use one address space.
    pub fn shares_memory(&self) -> bool {
        self.flags & Self::VM != 0
    }

    /// Returns whether the parent waits for the child's exec or exit.
    pub fn is_vfork(&self) -> bool {
        self.flags & Self::VFORK != 0
    }
}

/// Why a thread left its CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SwitchReason {
    /// It waits for something.
    Blocked,
    /// It could have gone on.
    Preempted,
}
