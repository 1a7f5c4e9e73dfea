//! Why a program could not be recorded.
//!
//! # Guarantee
//! Each message names what was refused and what the user can set or change.

use std::fmt;
use std::io;
use std::path::PathBuf;

use faultless_trace::WriteError;

use crate::target::Unjoinable;

/// Why a program could not be recorded.
#[derive(Debug)]
pub enum RecordError {
    /// The program could not be started.
    Program {
        /// As it was named.
        name: String,
        /// What the kernel said.
        error: io::Error,
    },
    /// The kernel lets this user see nothing of the program, not even page faults.
    NoPermission {
        /// What was asked for.
        what: &'static str,
        /// What the kernel said.
        error: io::Error,
        /// `kernel.perf_event_paranoid`, if it can be read.
        paranoid: Option<i64>,
    },
    /// The output cannot be written.
    Output {
        /// Where it should go.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// The raw records could not be put aside.
    Spool(io::Error),
    /// The program ran, and its raw records are there, but did not become a trace.
    Unconverted {
        /// Why.
        error: Box<RecordError>,
        /// Where the raw records are.
        folder: PathBuf,
    },
    /// What should be recovered is no folder of raw records.
    NotRaw {
        /// As it was named.
        folder: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// What should be recovered is still being recorded.
    StillRecording {
        /// As it was named.
        folder: PathBuf,
    },
    /// A step of setting up failed for another reason than permission.
    System {
        /// What was tried.
        what: &'static str,
        /// What the kernel said.
        error: io::Error,
    },
    /// A running process could not be joined.
    Target {
        /// Which.
        pid: i32,
        /// Why.
        why: Unjoinable,
    },
    /// The processes of a control group can't be found.
    Cgroup {
        /// Where it was looked for.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// The recording was ended before it began.
    NotBegun,
    /// The trace could not be written.
    Write(WriteError),
    /// The program was never seen to start.
    NothingSeen,
}

impl RecordError {
    /// Returns the exit code that a shell gives for this: 127 for a missing program, 126 for one that may not run.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Program { error, .. } if error.kind() == io::ErrorKind::NotFound => 127,
            Self::Program { .. } => 126,
            _ => 1,
        }
    }
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Program { name, error } => write!(f, "cannot run '{name}': {error}"),
            Self::NoPermission { what, error, paranoid } => {
                write!(f, "{what} is not permitted ({error}); {}", advice(*paranoid))
            }
            Self::Output { path, error } => {
                write!(f, "cannot write '{}': {error}; name another place with -o", path.display())
            }
            Self::Spool(error) => write!(
                f,
                "cannot put raw records aside: {error}; the output's folder needs about 64 bytes for each fault"
            ),
            Self::Unconverted { error, folder } => {
                let folder = folder.display();
                write!(
                    f,
                    "{error}; what was recorded is in '{folder}': `faultless trace recover {folder}` makes a trace of it"
                )
            }
            Self::NotRaw { folder, what } => write!(
                f,
                "'{}' is no folder of raw records ({what}); a recorder that was killed leaves one as NAME.PID.raw beside \
                 its output NAME",
                folder.display()
            ),
            Self::StillRecording { folder } => write!(
                f,
                "'{}' is still being recorded; end its recorder with an interrupt, which writes the trace",
                folder.display()
            ),
            Self::System { what, error } => write!(f, "{what} failed: {error}"),
            Self::Target { pid, why } => write!(f, "cannot record process {pid}: {why}"),
            Self::Cgroup { path, error } => {
                write!(
                    f,
                    "cannot record the control group '{}': {error}; `cat /proc/PID/cgroup` names a process's own",
                    path.display()
                )
            }
            Self::NotBegun => write!(f, "ended before SIGUSR1 began the recording; nothing was recorded"),
            Self::Write(error) => write!(f, "{error}"),
            Self::NothingSeen => write!(f, "the kernel showed nothing of the program; is it a 64-bit x86 Linux?"),
        }
    }
}

/// Returns what to set so that recording is permitted.
fn advice(paranoid: Option<i64>) -> String {
    match paranoid {
        Some(level) if level > 2 => format!(
            "kernel.perf_event_paranoid is {level}: run as root, or allow the reduced recording with \
             `sysctl kernel.perf_event_paranoid=2`"
        ),
        Some(level) => format!(
            "run as root or with CAP_PERFMON; in a container, allow the system call perf_event_open \
             (kernel.perf_event_paranoid is {level}, which is low enough for the reduced recording)"
        ),
        None => "run as root or with CAP_PERFMON; in a container, allow the system call perf_event_open".into(),
    }
}

impl std::error::Error for RecordError {}

impl From<WriteError> for RecordError {
    fn from(error: WriteError) -> Self {
        Self::Write(error)
    }
}
