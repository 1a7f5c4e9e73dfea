//! Recording a program, from the command to the trace.
//!
//! # Guarantee
//! Either a whole trace stands at the output, or an error says why not and the output is as it was before. Once the
//! program has run, its raw records outlast a failure and the recorder's own death; [`recover`](crate::recover()) makes
//! a trace of them.
//!
//! # Steps
//! Open the output; find out what may be watched; measure what watching costs; start the program, held back; watch it;
//! let it go; put its records aside until it ends; convert them.
//!
//! The recording ends with the program's first process, or with its last descendant if that is asked for. Children that
//! outlive it are left alone; the trace has no exit for them. Where its time or the room for raw records ends before,
//! the program runs on unrecorded. An interrupt (SIGINT, SIGTERM, SIGHUP, SIGQUIT) ends the
//! recording too: the program gets the signal, from the terminal or passed on, and has a second to end; then, or at the
//! next interrupt, it is left running. Once the program is no longer watched, interrupts are ignored until the trace is
//! written.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use faultless_trace::{Costs, Ending, Header, HugePages, Missing, Mode, Pace};

use crate::bounds::Bounds;
use crate::child::{Child, Launch};
use crate::convert::{Converted, Material, convert};
use crate::costs::{self, Measured};
use crate::drain::{Drain, Drained};
use crate::error::RecordError;
use crate::host;
use crate::output::Output;
use crate::perf::Begin;
use crate::raw::RawFolder;
use crate::session::{Ends, Session, Setup};
use crate::signals::{Outcome, Signals};
use crate::sources::Sources;
use crate::stacks::StackOptions;
use crate::tally::{ChainTally, Tally};
use crate::trace_builder::Setting;
use crate::wire::{Decoder, Numbers};

/// Two CPUs' clocks agreed within this where it was measured.
const CLOCK_ERROR_NS: u64 = 10_000;

/// The output that is no file's name.
const STANDARD_OUTPUT: &str = "-";

/// How to record.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where the trace goes; `-` is standard output.
    pub output: PathBuf,
    /// Whether the program may get huge pages.
    pub huge_pages: HugePages,
    /// Whether to store what a replay at the recorded pace needs.
    pub pace: Pace,
    /// The size of each CPU's ring, a power of two of at least a page.
    pub ring_bytes: usize,
    /// What to watch with.
    pub mode: ModeChoice,
    /// What is kept of the command.
    pub arguments: Arguments,
    /// Whether the recording goes on until the last descendant has ended.
    pub descendants: Descendants,
    /// When the recording ends though the program goes on.
    pub bounds: Bounds,
    /// How call chains are recorded, if they are.
    pub stacks: Option<StackOptions>,
}

/// What becomes of descendants that outlive their parents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Descendants {
    /// The recording ends without them.
    #[default]
    Left,
    /// The recording ends with the last of them.
    Awaited,
}

/// What a trace keeps of the command that it is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arguments {
    /// The program's name and its arguments.
    Kept,
    /// The program's name.
    LeftOut,
}

/// What to watch with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModeChoice {
    /// Tracepoints if they are permitted, software events otherwise.
    BestPermitted,
    /// This, or an error.
    Only(Mode),
}

/// A finished recording.
#[derive(Clone, Debug)]
pub struct Recording {
    /// The trace's header.
    pub header: Header,
    /// What was caught.
    pub tally: Tally,
    /// The size of the trace.
    pub bytes: u64,
    /// The signal that ended the recording before the program had ended by itself.
    pub interrupted_by: Option<i32>,
    /// Threads that still ran when the recording ended.
    pub still_running: usize,
    /// Why tracepoints were not watched although they were wanted.
    pub refusal: Option<String>,
    /// For how long joined processes stood still, if they were stopped.
    pub frozen: Option<Duration>,
    /// How the command ended that ran beside joined processes.
    pub beside: Option<Ending>,
    /// The call chains, if they were recorded.
    pub chains: Option<ChainTally>,
    /// Processes that were moved into the control group while it was recorded, and are not in the trace.
    pub newcomers: Vec<u32>,
}

impl Recording {
    /// Returns the exit code that a shell gives for the program: its own, or 128 and the signal that ended it or its
    /// recording. A program that goes on beyond the recording's bounds has succeeded so far.
    pub fn exit_code(&self) -> u8 {
        let interrupted = self.interrupted_by.map(|signal| 128 | signal as u8);
        code_of(self.header.ending).or(interrupted).unwrap_or(0)
    }

    /// Returns the exit code of a recording of joined processes: that of the command beside them, or success.
    pub fn exit_code_joined(&self) -> u8 {
        self.beside.and_then(code_of).unwrap_or(0)
    }
}

/// What a trace says of itself; that of joined processes, or of one that was interrupted, says more.
impl From<Converted> for Recording {
    fn from(converted: Converted) -> Self {
        let Converted { header, tally, bytes, still_running, chains, .. } = converted;
        let (interrupted_by, refusal, frozen, beside, newcomers) = (None, None, None, None, Vec::new());
        Self { header, tally, bytes, interrupted_by, still_running, refusal, frozen, beside, chains, newcomers }
    }
}

/// Returns the code that a shell gives for an ending.
fn code_of(ending: Ending) -> Option<u8> {
    match ending {
        Ending::Exited(code) => Some(code),
        Ending::Killed(signal) => Some(128 | signal),
        Ending::Unknown => None,
    }
}

/// Runs the program and records it. `progress` is told, in thousandths, how much of the work after the program's end is
/// done.
pub fn record(options: &Options, argv: &[OsString], progress: &dyn Fn(u64)) -> Result<Recording, RecordError> {
    let output_error = |error| RecordError::Output { path: options.output.clone(), error };
    // Until the trace is whole: an impatient second interrupt must not destroy what the first one saved.
    let signals = Signals::block(&[])?;
    let output = open_output(options)?;
    let Chosen { sources, measured, refusal } = choose(options)?;
    let command = argv.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let header = describe(options, command, &sources, measured.costs);
    let mut raw = RawFolder::create(&output.sibling()).map_err(RecordError::Spool)?;
    let watched = watch(options, argv, &sources, (&header, &mut raw), (&signals, measured.session));
    let written = watched.and_then(|watched| {
        let recording = write(options, &sources, header, watched, &output, progress)?;
        output.complete().map_err(output_error)?;
        Ok(recording)
    });
    let recording = written.map_err(|error| raw.explain(error))?;
    raw.discard();
    Ok(Recording { refusal: refusal.map(|error| error.to_string()), ..recording })
}

/// Opens the place where the trace goes.
pub(crate) fn open_output(options: &Options) -> Result<Output, RecordError> {
    let output = match options.output.as_os_str() == STANDARD_OUTPUT {
        true => Output::standard(),
        false => Output::create(&options.output),
    };
    output.map_err(|error| RecordError::Output { path: options.output.clone(), error })
}

/// Makes the trace of what was watched.
fn write(
    options: &Options,
    sources: &Sources,
    mut header: Header,
    watched: RecordedRun,
    output: &Output,
    progress: &dyn Fn(u64),
) -> Result<Recording, RecordError> {
    let RecordedRun {
        pid,
        outcome,
        drained: Drained { mut spool, lost, chains_lost: stacks_lost, ended_ns: until_ns, .. },
    } = watched;
    header.ending = outcome.ending;
    header.is_interrupted = outcome.interrupted_by.is_some() || outcome.ending == Ending::Unknown;
    let stacks = options.stacks;
    let decoder = Decoder::new(sources, Numbers::Absent, stacks)?;
    let time_unit_ns = header.time_unit_ns();
    let setting = Setting { root: pid as u32, mode: sources.mode(), pace: options.pace, time_unit_ns };
    let company = None;
    let (spool, decoder) = (&mut spool, &decoder);
    let awaited_ns = if header.is_interrupted { 0 } else { u64::MAX };
    let mut material =
        Material { spool, decoder, stacks, stacks_lost, setting, company, lost, until_ns, awaited_ns, progress };
    let converted = convert(&mut material, header, output.file())?;
    Ok(Recording { interrupted_by: outcome.interrupted_by, ..converted.into() })
}

/// Returns the header as far as it is known before the program runs.
pub(crate) fn describe(options: &Options, mut command: Vec<String>, sources: &Sources, costs: Costs) -> Header {
    let nr_kept = if options.arguments == Arguments::Kept { command.len() } else { 1 };
    let mut missing = sources.missing(options.pace);
    missing.extend((nr_kept < command.len()).then_some(Missing::Arguments));
    command.truncate(nr_kept);
    Header {
        command,
        machine: host::machine(),
        mode: sources.mode(),
        missing,
        huge_pages: options.huge_pages,
        pace: options.pace,
        time_unit_ns: time_unit_ns(options.pace),
        clock_error_ns: CLOCK_ERROR_NS,
        costs,
        limits: host::limits(),
        ..Header::default()
    }
}

/// Returns the fineness of the times in a trace. The clock's own steps are about ten nanoseconds; order needs less.
fn time_unit_ns(pace: Pace) -> u64 {
    match pace {
        Pace::Stored => 10,
        Pace::Absent => 100,
    }
}

/// What to watch with, and what that costs.
pub(crate) struct Chosen {
    pub(crate) sources: Sources,
    pub(crate) measured: Measured,
    /// Why these are not the best sources.
    pub(crate) refusal: Option<io::Error>,
}

/// Returns the best sources that the options and the kernel permit. Measuring opens all events, so it is the trial.
pub(crate) fn choose(options: &Options) -> Result<Chosen, RecordError> {
    let privileged = || Chosen::try_out(Sources::tracepoints()?, options);
    let unprivileged =
        || Chosen::try_out(Sources::Software, options).map_err(|error| refused("watching page faults", error));
    let watching_tracepoints = |error| refused("watching tracepoints", error);
    match options.mode {
        ModeChoice::Only(Mode::Privileged) => privileged().map_err(watching_tracepoints),
        ModeChoice::Only(Mode::Unprivileged) => unprivileged(),
        ModeChoice::BestPermitted => match privileged() {
            Err(error) if is_refusal(&error) => Ok(Chosen { refusal: Some(error), ..unprivileged()? }),
            result => result.map_err(watching_tracepoints),
        },
    }
}

impl Chosen {
    fn try_out(sources: Sources, options: &Options) -> io::Result<Self> {
        let measured = costs::measure(&sources, options.pace, options.stacks)?;
        Ok(Self { sources, measured, refusal: None })
    }
}

fn is_refusal(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::NotFound | io::ErrorKind::Unsupported)
}

fn refused(what: &'static str, error: io::Error) -> RecordError {
    if is_refusal(&error) {
        RecordError::NoPermission { what, error, paranoid: host::paranoid() }
    } else {
        RecordError::System { what, error }
    }
}

/// What watching gave.
struct RecordedRun {
    pid: i32,
    outcome: Outcome,
    drained: Drained,
}

/// Runs the program under watch until it ends; `trial` is closed once its tracepoints are in use again.
fn watch(
    options: &Options,
    argv: &[OsString],
    sources: &Sources,
    (header, raw): (&Header, &mut RawFolder),
    (signals, trial): (&Signals, Session),
) -> Result<RecordedRun, RecordError> {
    let program = |error| RecordError::Program { name: argv[0].to_string_lossy().into_owned(), error };
    let launch = Launch { argv, huge_pages: options.huge_pages, mask: signals.mask_before() };
    let mut child = Child::spawn(&launch).map_err(program)?;
    let open_files = host::raise_open_files();
    let Options { pace, ring_bytes, stacks, .. } = *options;
    let setup = Setup { pid: child.pid(), pace, begin: Begin::AtExec, ring_bytes, stacks };
    let session = Session::open(sources, &setup)?;
    drop(trial);
    let is_awaited = options.descendants == Descendants::Awaited;
    let ends = is_awaited.then(|| Ends::of(session.leaders().first())).transpose()?;
    let spool = raw.spool(&session.kinds()).map_err(RecordError::Spool)?;
    raw.describe(header, child.pid() as u32, sources, options.stacks)?;
    let drain = Drain::start(session, spool)?;
    if let Err(error) = child.release() {
        raw.discard();
        drain.stop()?;
        return Err(program(error));
    }
    let bounded = options.bounds.begin(drain.raw_bytes());
    let mut outcome = signals.wait(&mut child, &bounded)?;
    if let Some(ends) = ends.filter(|_| outcome.interrupted_by.is_none()) {
        outcome.interrupted_by = signals.await_ends(&ends, &bounded);
    }
    let drained = drain.stop()?;
    open_files.iter().for_each(host::set_open_files);
    Ok(RecordedRun { pid: child.pid(), outcome, drained })
}
