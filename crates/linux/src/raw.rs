//! The raw records of a recording under way, in a folder of their own.
//!
//! # Guarantee
//! From the program's first instruction on, whatever ends the recorder, the folder holds what [`Left::open`] needs for
//! a trace of everything up to the last look at the rings. The folder goes when the trace is whole, or when the program
//! never ran.
//!
//! The folder `NAME.PID.raw` lies beside the output NAME, or, where that is a pipe or a device, as `faultless.PID.raw`
//! in the folder for temporary files. Its files:
//!
//! | file | holds |
//! |---|---|
//! | `head` | a trace without events: the header as it was known before the program ran, and the program's first thread; locked by the recorder |
//! | `tracepoints` | the kernel's descriptions of the tracepoints, if any were watched |
//! | `cpu-N` | the records of the N-th ring, as the kernel wrote them |
//! | `joined` | of processes that were joined: when, and who each event was opened for; `head` holds what stood in their memory |
//! | `late-N`, `late-N-joined` | as `head` and `joined`, of the N-th process that was joined after the recording's begin |
//! | `stacks` | how call chains were recorded, if they were: `dwarf,8192,101` |
//! | `stacks-N` | the records of the N-th ring of call chains, with copies of stacks' tops |
//! | `mark` | two words: until when (CLOCK_MONOTONIC) all records are in these files, and how many were lost by then |

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use faultless_trace::{Header, Mode, Thread, Trace, Writer};

use crate::company::Company;
use crate::error::RecordError;
use crate::sources::Sources;
use crate::spool::{Rings, Spool};
use crate::stacks::StackOptions;

const HEAD: &str = "head";
const TRACEPOINTS: &str = "tracepoints";
const MARK: &str = "mark";
const STACKS: &str = "stacks";
const JOINED: &str = "joined";

/// Folders of one recorder's number that may be left before a name is refused.
const MOST_LEFT: u32 = 1000;

/// The folder of a recording under way.
#[derive(Debug)]
pub(crate) struct RawFolder {
    path: PathBuf,
    /// Keeps the lock.
    head: File,
    fate: Fate,
}

/// What becomes of the folder when its recorder lets go of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Removed,
    Kept,
}

impl RawFolder {
    /// Makes the folder `NAME.raw` of a name that no other folder has.
    pub(crate) fn create(name: &Path) -> io::Result<Self> {
        let path = make_folder(name)?;
        let head = private(&path.join(HEAD)).and_then(|head| head.try_lock().map(|()| head).map_err(io::Error::from));
        match head {
            Ok(head) => Ok(Self { path, head, fate: Fate::Removed }),
            Err(error) => {
                let _ = fs::remove_dir_all(&path);
                Err(error)
            }
        }
    }

    /// Makes a spool of such rings in it.
    pub(crate) fn spool(&self, kinds: &[Rings]) -> io::Result<Spool> {
        let name = |(place, &rings): (usize, &Rings)| {
            let nr_before = kinds[..place].iter().filter(|&&before| before == rings).count();
            Ok((rings, private(&self.path.join(ring_name(rings, nr_before)))?))
        };
        let files = kinds.iter().enumerate().map(name).collect::<io::Result<_>>()?;
        Ok(Spool::new(files, private(&self.path.join(MARK))?))
    }

    /// Writes what must be known besides the records; from now on the folder outlives its recorder.
    pub(crate) fn describe(
        &mut self,
        header: &Header,
        root: u32,
        sources: &Sources,
        stacks: Option<StackOptions>,
    ) -> Result<(), RecordError> {
        let thread = Thread { pid: root, tid: root, name: String::new() };
        Writer::new(&self.head, header, &[thread], &[])?.finish()?;
        self.describe_sources(sources, stacks)
    }

    /// As [`describe`](Self::describe), of processes that were joined.
    pub(crate) fn describe_joined(
        &mut self,
        header: &Header,
        company: &Company,
        sources: &Sources,
        stacks: Option<StackOptions>,
    ) -> Result<(), RecordError> {
        company.head(header).write(&self.head)?;
        fs::write(self.path.join(JOINED), company.notes()).map_err(RecordError::Spool)?;
        self.describe_sources(sources, stacks)
    }

    /// Writes what must be known of processes that are joined later. The notes come last: a recorder that is killed in
    /// between has not joined them.
    pub(crate) fn describe_late(&self, header: &Header, company: &Company, number: usize) -> Result<(), RecordError> {
        let (head, notes) = late_names(number);
        let head = private(&self.path.join(head)).map_err(RecordError::Spool)?;
        company.head(header).write(&head)?;
        fs::write(self.path.join(notes), company.notes()).map_err(RecordError::Spool)
    }

    fn describe_sources(&mut self, sources: &Sources, stacks: Option<StackOptions>) -> Result<(), RecordError> {
        if let Some(text) = sources.descriptions() {
            fs::write(self.path.join(TRACEPOINTS), text).map_err(RecordError::Spool)?;
        }
        if let Some(stacks) = stacks {
            fs::write(self.path.join(STACKS), stacks.to_string()).map_err(RecordError::Spool)?;
        }
        self.fate = Fate::Kept;
        Ok(())
    }

    /// Returns the error with the way to the records, if the program has run and there are any.
    pub(crate) fn explain(&mut self, error: RecordError) -> RecordError {
        match (self.fate, error) {
            (Fate::Removed, error) => error,
            (Fate::Kept, RecordError::NothingSeen) => {
                self.discard();
                RecordError::NothingSeen
            }
            (Fate::Kept, error) => RecordError::Unconverted { error: Box::new(error), folder: self.path.clone() },
        }
    }

    /// Lets the folder go with this value: its records are in a trace, or worth nothing.
    pub(crate) fn discard(&mut self) {
        self.fate = Fate::Removed;
    }
}

impl Drop for RawFolder {
    fn drop(&mut self) {
        if self.fate == Fate::Removed {
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// What a recorder that was killed left.
#[derive(Debug)]
pub(crate) struct Left {
    pub(crate) header: Header,
    /// Who was joined, if anybody.
    pub(crate) company: Option<Company>,
    /// The program's first process.
    pub(crate) root: u32,
    pub(crate) sources: Sources,
    /// How call chains were recorded, if they were.
    pub(crate) stacks: Option<StackOptions>,
    pub(crate) spool: Spool,
    /// Until when all records are there.
    pub(crate) until_ns: u64,
    /// Records that had been lost by then.
    pub(crate) lost: u64,
}

impl Left {
    /// Reads a folder of raw records, unless its recorder still runs.
    pub(crate) fn open(folder: &Path) -> Result<Self, RecordError> {
        let foreign = |what: String| RecordError::NotRaw { folder: folder.to_owned(), what };
        let missing = |name: &str, error: &io::Error| foreign(format!("its file '{name}': {error}"));
        let head = File::open(folder.join(HEAD)).map_err(|error| missing(HEAD, &error))?;
        match head.try_lock_shared() {
            Err(TryLockError::WouldBlock) => return Err(RecordError::StillRecording { folder: folder.to_owned() }),
            Err(TryLockError::Error(error)) => return Err(missing(HEAD, &error)),
            Ok(()) => {}
        }
        let trace = Trace::read(&head).map_err(|error| foreign(format!("'{HEAD}': {error}")))?;
        let company = match fs::read_to_string(folder.join(JOINED)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(missing(JOINED, &error)),
            Ok(notes) => {
                let recalled = Company::recalled(&trace, &notes);
                let company = recalled.ok_or_else(|| foreign(format!("'{JOINED}' can't be understood")))?;
                Some(Company { late: read_late(folder), ..company })
            }
        };
        let Trace { header, threads, .. } = trace;
        let root = threads.first().ok_or_else(|| foreign(format!("'{HEAD}' names no process")))?.pid;
        let sources = match header.mode {
            Mode::Unprivileged => Sources::Software,
            Mode::Privileged => fs::read_to_string(folder.join(TRACEPOINTS))
                .and_then(|text| Sources::described(&text))
                .map_err(|error| missing(TRACEPOINTS, &error))?,
        };
        let (until_ns, lost) = read_mark(&folder.join(MARK)).map_err(|error| missing(MARK, &error))?;
        let stacks = match fs::read_to_string(folder.join(STACKS)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(missing(STACKS, &error)),
            Ok(text) => Some(text.parse().map_err(|()| foreign(format!("'{STACKS}' says '{text}'")))?),
        };
        let mut rings = open_rings(folder, Rings::Events).map_err(RecordError::Spool)?;
        rings.extend(open_rings(folder, Rings::Stacks).map_err(RecordError::Spool)?);
        let spool = Spool::reopened(rings).map_err(RecordError::Spool)?;
        Ok(Self { header, company, root, sources, stacks, spool, until_ns, lost })
    }
}

/// Makes a folder that only its owner may enter; its name gets a number where a killed recorder left one of that name.
fn make_folder(name: &Path) -> io::Result<PathBuf> {
    for number in 0..MOST_LEFT {
        let mut path = name.to_owned().into_os_string();
        path.push(if number == 0 { ".raw".to_owned() } else { format!(".{number}.raw") });
        match DirBuilder::new().mode(0o700).create(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            result => return result.map(|()| path.into()),
        }
    }
    Err(io::Error::new(io::ErrorKind::AlreadyExists, format!("{}.raw and {MOST_LEFT} more are there", name.display())))
}

fn private(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)
}

fn ring_name(rings: Rings, ring: usize) -> String {
    match rings {
        Rings::Events => format!("cpu-{ring}"),
        Rings::Stacks => format!("stacks-{ring}"),
    }
}

/// Opens such rings' files, in the order of the rings.
fn open_rings(folder: &Path, rings: Rings) -> io::Result<Vec<(Rings, File)>> {
    let mut files = Vec::new();
    loop {
        match File::open(folder.join(ring_name(rings, files.len()))) {
            Ok(file) => files.push((rings, file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(files),
            Err(error) => return Err(error),
        }
    }
}

fn late_names(number: usize) -> (String, String) {
    (format!("late-{number}"), format!("late-{number}-joined"))
}

/// Reads who was joined later, up to the first one of whom not all was written.
fn read_late(folder: &Path) -> Vec<Company> {
    let read = |number: usize| {
        let (head, notes) = late_names(number);
        let notes = fs::read_to_string(folder.join(notes)).ok()?;
        Company::recalled(&Trace::read(File::open(folder.join(head)).ok()?).ok()?, &notes)
    };
    (0..).map_while(read).collect()
}

/// Returns until when all records are there, and how many were lost; nothing was looked at yet if the file is empty.
fn read_mark(path: &Path) -> io::Result<(u64, u64)> {
    let mut words = [[0; 8]; 2];
    match File::open(path)?.read_exact_at(words.as_flattened_mut(), 0) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok((0, 0)),
        result => result.map(|()| (u64::from_ne_bytes(words[0]), u64::from_ne_bytes(words[1]))),
    }
}
