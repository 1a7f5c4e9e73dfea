//! Recording processes that run already, from joining them to the trace.
//!
//! # Guarantee
//! As for a program that the recorder starts: a whole trace stands at the output, or an error says why not. The processes
//! are left as they were: nothing in them is changed, and no signal is sent to them unless they are to stand still for the
//! snapshot.
//!
//! # Steps
//! Open the output; find out what may be watched; measure what watching costs; open events for every thread; look at what
//! stands in memory; wait; stop watching; convert. The recording ends when its time is over, when its raw records have
//! grown too large, when the processes have ended, or at an interrupt.

use std::ffi::OsString;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use faultless_trace::{Area, Ending, Header, HugePages};

use crate::child::{Child, Launch};
use crate::company::Company;
use crate::convert::{Material, convert};
use crate::drain::{Drain, Drained};
use crate::error::RecordError;
use crate::freeze::Frozen;
use crate::host;
use crate::joining;
use crate::perf::Begin;
use crate::raw::RawFolder;
use crate::record::{Chosen, Options, Recording, choose, describe, open_output};
use crate::session::{Session, Setup, Sources};
use crate::signals::Signals;
use crate::snapshot::{self, Seen};
use crate::story::Scene;
use crate::target::{Kin, Target, Unjoinable};
use crate::wire::{Decoder, Numbers};

/// Whom to join, and for how long.
#[derive(Clone, Debug, Default)]
pub struct Joining {
    /// The processes.
    pub pids: Vec<i32>,
    /// How long to record; without end if nothing.
    pub duration: Option<Duration>,
    /// How large the raw records may grow.
    pub raw_bytes_most: Option<u64>,
    /// Whether running descendants are joined too.
    pub kin: Kin,
    /// How memory is looked at.
    pub snapshot: SnapshotMode,
    /// A command to run beside the processes; the recording ends with it.
    pub command: Vec<OsString>,
}

/// How memory is looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SnapshotMode {
    /// While the processes run.
    #[default]
    Live,
    /// While they stand still.
    Frozen,
}

/// Joins the processes and records them. `progress` is told, in thousandths, how much of the work after the recording's
/// end is done.
pub fn attach(options: &Options, joining: &Joining, progress: &dyn Fn(u64)) -> Result<Recording, RecordError> {
    let output_error = |error| RecordError::Output { path: options.output.clone(), error };
    let mut targets = find(&joining.pids)?;
    // Until the trace is whole: an impatient second interrupt must not destroy what the first one saved.
    let signals = Signals::block()?;
    let output = open_output(options)?;
    let Chosen { sources, measured, refusal } = choose(options)?;
    let raw = RawFolder::create(&output.sibling()).map_err(RecordError::Spool)?;
    let place = Place { signals: &signals, raw: &raw };
    let watched = watch(options, joining, &mut targets, (&sources, measured.session), &place)?;
    let Watched { company, drained, end: End { interrupted_by, beside }, frozen, .. } = watched;
    let mut header = describe(options, watched.described.command, &sources, measured.costs);
    header.limits = watched.described.limits;
    header.huge_pages = watched.described.huge_pages;
    header.is_interrupted = interrupted_by.is_some();
    let Drained { mut spool, lost, ended_ns: until_ns, .. } = drained;
    let decoder = Decoder::new(&sources, Numbers::Carried)?;
    let scene = Scene { root: 0, mode: sources.mode(), pace: options.pace, time_unit_ns: header.time_unit_ns() };
    let company = Some(&company);
    let mut material = Material { spool: &mut spool, decoder: &decoder, scene, company, lost, until_ns, progress };
    let converted = convert(&mut material, header, output.file())?;
    output.complete().map_err(output_error)?;
    let refusal = refusal.map(|error| error.to_string());
    Ok(Recording { interrupted_by, refusal, frozen, beside, ..converted.into() })
}

fn find(pids: &[i32]) -> Result<Vec<Target>, RecordError> {
    let mut pids = pids.to_vec();
    pids.sort_unstable();
    pids.dedup();
    let find = |pid| Target::find(pid).map_err(|why| RecordError::Target { pid, why });
    pids.into_iter().map(find).collect()
}

/// What watching gave.
struct Watched {
    company: Company,
    drained: Drained,
    end: End,
    /// For how long they stood.
    frozen: Option<Duration>,
    /// What the first process says of itself.
    described: Header,
}

/// What a recording stands on while it runs.
struct Place<'a> {
    signals: &'a Signals,
    /// Where raw records are put aside.
    raw: &'a RawFolder,
}

/// Watches the processes; `trial` is closed once its tracepoints are in use again.
fn watch(
    options: &Options,
    joining: &Joining,
    targets: &mut Vec<Target>,
    (sources, trial): (&Sources, Session),
    place: &Place<'_>,
) -> Result<Watched, RecordError> {
    let mut beside = beside(joining, place.signals)?;
    let open_files = host::raise_open_files();
    let setup = Setup { pid: 0, pace: options.pace, begin: Begin::Joining, ring_bytes: options.ring_bytes };
    let (mut session, joined) = joining::join(sources, &setup, targets, joining.kin).map_err(unjoinable)?;
    drop(trial);
    let spool = place.raw.spool(session.rings_mut().len()).map_err(RecordError::Spool)?;
    let drain = Drain::start(session, spool)?;
    let looked = look(joining, targets);
    let seen = looked.as_ref().map_or(&[][..], |looked| &looked.seen);
    let described = targets.first().map(|target| describe_target(target, seen)).unwrap_or_default();
    let end = match &looked {
        Ok(_) => wait(joining, targets, beside.as_mut(), place.signals, &drain),
        Err(_) => Ok(End::default()),
    };
    let drained = drain.stop()?;
    open_files.iter().for_each(host::set_open_files);
    let Looked { seen, frozen } = looked?;
    Ok(Watched { company: Company { joined, seen }, drained, end: end?, frozen, described })
}

fn unjoinable((pid, why): (i32, Unjoinable)) -> RecordError {
    RecordError::Target { pid, why }
}

/// Starts the command that runs beside the processes, held back.
fn beside(joining: &Joining, signals: &Signals) -> Result<Option<Child>, RecordError> {
    let Some(name) = joining.command.first() else { return Ok(None) };
    let launch = Launch { argv: &joining.command, huge_pages: HugePages::AsSystem, mask: signals.mask_before() };
    Child::spawn(&launch).map(Some).map_err(not_run(name))
}

fn not_run(name: &OsString) -> impl Fn(std::io::Error) -> RecordError {
    move |error| RecordError::Program { name: name.to_string_lossy().into_owned(), error }
}

/// What stood in memory, and for how long the processes stood still while it was read.
struct Looked {
    seen: Vec<Seen>,
    frozen: Option<Duration>,
}

fn look(joining: &Joining, targets: &[Target]) -> Result<Looked, RecordError> {
    let mut frozen = (joining.snapshot == SnapshotMode::Frozen).then(Frozen::new);
    frozen.iter_mut().try_for_each(|frozen| frozen.freeze(targets)).map_err(unjoinable)?;
    let look = |target: &Target| snapshot::look(target).map_err(|why| unjoinable((target.pid, why)));
    let seen = targets.iter().map(look).collect::<Result<_, _>>()?;
    Ok(Looked { seen, frozen: frozen.map(|frozen| frozen.elapsed()) })
}

/// Returns what the header says of a process that was not started for it.
fn describe_target(target: &Target, seen: &[Seen]) -> Header {
    let mut areas = seen.iter().flat_map(|seen| &seen.areas);
    let has_asked = areas.any(|area| area.listed.flags & Area::HUGE != 0);
    let gets_some = host::gives_huge_pages() || host::advises_huge_pages() && has_asked;
    let may_have = target.may_use_huge_pages().unwrap_or(true);
    let huge_pages = if may_have && gets_some { HugePages::AsSystem } else { HugePages::Off };
    Header { command: target.command(), limits: target.limits(), huge_pages, ..Header::default() }
}

/// How a recording came to its end.
#[derive(Clone, Copy, Debug, Default)]
struct End {
    /// The signal that asked for it.
    interrupted_by: Option<i32>,
    /// How the command beside the processes ended.
    beside: Option<Ending>,
}

/// Lets the command run, if there is one, and waits until the recording shall end.
fn wait(
    joining: &Joining,
    targets: &[Target],
    mut beside: Option<&mut Child>,
    signals: &Signals,
    drain: &Drain,
) -> Result<End, RecordError> {
    if let Some((child, name)) = beside.as_mut().zip(joining.command.first()) {
        child.release().map_err(not_run(name))?;
    }
    let deadline = joining.duration.map(|duration| Instant::now() + duration);
    let is_over = || deadline.is_some_and(|deadline| Instant::now() >= deadline);
    // Relaxed: the figure only says when to stop, and nothing is read through it.
    let is_full = || joining.raw_bytes_most.is_some_and(|most| drain.raw_bytes().load(Ordering::Relaxed) >= most);
    while !is_over() && !is_full() && !targets.iter().all(Target::has_ended) {
        if let Some(child) = beside.as_mut()
            && let Some(ending) = child.try_wait()?
        {
            return Ok(End { beside: Some(ending), ..End::default() });
        }
        if let Some(signal) = signals.next_stop(deadline) {
            return Ok(End { interrupted_by: Some(signal), ..End::default() });
        }
    }
    Ok(End::default())
}
