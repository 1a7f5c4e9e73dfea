//! What a trace says about itself: how, where and of what it was recorded, and what it lacks.
//!
//! # Guarantee
//! whoever holds a [`Header`] can tell a complete trace from one that lost or never had something

use crate::text::shell_line;

/// All that is known about a recording besides its events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// The recorded command and its arguments; bytes that are not UTF-8 are replaced.
    pub command: Vec<String>,
    /// Where it was recorded.
    pub machine: Machine,
    /// With or without privilege.
    pub mode: Mode,
    /// What this way of recording cannot see.
    pub missing: Vec<Missing>,
    /// Whether huge pages were switched off in the program.
    pub huge_pages: HugePages,
    /// Whether on-CPU times, switches and wakes are stored.
    pub pace: Pace,
    /// All times are multiples of this; 0 means 1.
    pub time_unit_ns: u64,
    /// How many records were lost. A trace that lost any is not the program's whole story, and never becomes it.
    pub lost: u64,
    /// How the recorded program ended.
    pub ending: Ending,
    /// Whether the recording was interrupted, or ended before the program, as it was told to: the events are then what
    /// came until that moment.
    pub is_interrupted: bool,
    /// Two CPUs' clocks agree within this.
    pub clock_error_ns: u64,
    /// What events cost while being recorded; measured on the machine just before the program started.
    pub costs: Costs,
    /// The system's settings that decide which calls succeed.
    pub limits: Limits,
}

impl Header {
    /// Returns the command as one line, quoted for a shell; nothing in it steers a terminal.
    pub fn command_line(&self) -> String {
        let line = shell_line(&self.command);
        if self.missing.contains(&Missing::Arguments) { line + " (arguments left out)" } else { line }
    }

    /// Returns what all times are multiples of.
    pub fn time_unit_ns(&self) -> u64 {
        self.time_unit_ns.max(1)
    }
}

/// The machine of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// CPUs that were online.
    pub cpus: u32,
    /// The processor's name.
    pub model: String,
    /// The kernel's release.
    pub kernel: String,
    /// Bytes in a page.
    pub page_size_bytes: u64,
}

/// How much the recorder was allowed to see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Tracepoints: everything.
    #[default]
    Privileged,
    /// Software events only; [`Header::missing`] says what that lacks.
    Unprivileged,
}

/// Something that a recording could not see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Missing {
    /// Whether a fault was a read, a write or a fetch, and whether the page was present: guessed from the map.
    WriteBit,
    /// Faults that the kernel took on user pages.
    KernelFaults,
    /// The flags of clone: guessed from the process numbers.
    CloneFlags,
    /// The memory calls: only the mappings that they made are seen.
    MapCalls,
    /// Which thread woke which.
    Wakes,
    /// Programs running with system-call tables other than the 64-bit one: their memory calls.
    ForeignCalls,
    /// Programs with other rights than the recorder's (setuid, setgid, file capabilities, or a file that it may not
    /// read): Linux ends watching at their exec, so all that they and their children did.
    ElevatedPrograms,
    /// The last moments, and how the program ended: the recorder was killed, and its raw records were salvaged.
    LastMoments,
    /// The command's arguments: left out on request.
    Arguments,
}

impl Missing {
    /// Every kind, in the order of the format's codes.
    pub const ALL: &'static [Missing] = &[
        Missing::WriteBit,
        Missing::KernelFaults,
        Missing::CloneFlags,
        Missing::MapCalls,
        Missing::Wakes,
        Missing::ForeignCalls,
        Missing::ElevatedPrograms,
        Missing::LastMoments,
        Missing::Arguments,
    ];

    /// Returns the name used in listings and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Missing::WriteBit => "write-bit",
            Missing::KernelFaults => "kernel-faults",
            Missing::CloneFlags => "clone-flags",
            Missing::MapCalls => "map-calls",
            Missing::Wakes => "wakes",
            Missing::ForeignCalls => "foreign-calls",
            Missing::ElevatedPrograms => "elevated-programs",
            Missing::LastMoments => "last-moments",
            Missing::Arguments => "arguments",
        }
    }

    /// Returns what a reader of the trace should know about it.
    pub fn meaning(self) -> &'static str {
        match self {
            Missing::WriteBit => "read, write or fetch is guessed from the map's rights; the present bit is unknown",
            Missing::KernelFaults => "faults that the kernel took on user pages are not seen",
            Missing::CloneFlags => "clone's flags are guessed from the process numbers",
            Missing::MapCalls => "calls are not seen, only the mappings that some of them made",
            Missing::Wakes => "which thread woke which is not seen",
            Missing::ForeignCalls => "a 32-bit program ran: its memory calls are not seen",
            Missing::ElevatedPrograms => {
                "watching ended at the exec of a program with other rights than the recorder's (setuid, setgid, file \
                 capabilities, or a file that the recorder may not read): record as the user that it becomes"
            }
            Missing::LastMoments => "the recorder was killed: what came after its last look is not in the trace",
            Missing::Arguments => "the command's arguments were left out on request",
        }
    }

    /// Returns whether the kernel's sources did not show it, so that more rights would.
    pub fn is_of_sources(self) -> bool {
        self.is_of_faults() || self == Missing::Wakes
    }

    /// Returns whether recorded faults are less certain without it. Otherwise what was recorded is exact.
    pub fn is_of_faults(self) -> bool {
        match self {
            Missing::WriteBit
            | Missing::KernelFaults
            | Missing::CloneFlags
            | Missing::MapCalls
            | Missing::ForeignCalls => true,
            Missing::Wakes | Missing::ElevatedPrograms | Missing::LastMoments | Missing::Arguments => false,
        }
    }
}

/// Whether the recorded program could get huge pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HugePages {
    /// Switched off for the program.
    #[default]
    Off,
    /// As the system had them.
    AsSystem,
}

/// Whether a trace holds what a replay at the recorded pace needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pace {
    /// It does not.
    #[default]
    Absent,
    /// On-CPU times, switches and wakes are stored.
    Stored,
}

/// How the recorded program's first process ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ending {
    /// It ran on when the recording was interrupted.
    #[default]
    Unknown,
    /// By itself, with this exit code.
    Exited(u8),
    /// By this signal.
    Killed(u8),
}

/// What an event costs, in nanoseconds; all zero where it was not measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    /// A page fault of the host, unrecorded.
    pub fault_ns: u64,
    /// What recording adds to it.
    pub fault_tracing_ns: u64,
    /// What recording adds to a memory call (its enter and exit together).
    pub call_tracing_ns: u64,
}

/// The settings and limits under which the program ran; `None` is unlimited or unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// `vm.overcommit_memory`.
    pub overcommit: Option<u64>,
    /// `vm.mmap_min_addr`.
    pub mmap_min_addr: Option<u64>,
    /// `vm.max_map_count`.
    pub max_map_count: Option<u64>,
    /// `RLIMIT_STACK`.
    pub stack_bytes: Option<u64>,
    /// `RLIMIT_AS`.
    pub address_space_bytes: Option<u64>,
    /// `RLIMIT_DATA`.
    pub data_bytes: Option<u64>,
    /// `RLIMIT_MEMLOCK`.
    pub memlock_bytes: Option<u64>,
}

/// One recorded thread. A number that the system used twice gives two of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Thread {
    /// The process (thread group) it began in.
    pub pid: u32,
    /// The thread's own number when it began.
    pub tid: u32,
    /// The last name it had.
    pub name: String,
}

/// A file as the recorder could identify it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct File {
    /// Device, major number.
    pub major: u32,
    /// Device, minor number.
    pub minor: u32,
    /// Inode.
    pub inode: u64,
    /// The inode's generation.
    pub generation: u64,
    /// Its size when the recording ended, for knowing where a mapping ends in a bus error; `None` if it was gone.
    pub size_bytes: Option<u64>,
    /// Its name, for humans; bytes that are not UTF-8 are replaced.
    pub path: String,
}
