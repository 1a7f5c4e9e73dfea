//! Recording processes that run already, from joining them to the trace.
//!
//! # Guarantee
//! As for a program that the recorder starts: a whole trace stands at the output, or an error says why not. The
//! processes are left as they were: nothing in them is changed, and no signal is sent to them unless they are to stand
//! still for the snapshot.
//!
//! # Steps
//! Open the output; find out what may be watched; measure what watching costs; open events for every thread; look at
//! what stands in memory; wait; stop watching; convert. The recording ends when its time is over, when its raw records
//! have grown too large, when the processes have ended, or at an interrupt.

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use faultless_trace::{Area, Ending, Header, HugePages, Mode};

use crate::bounds::Bounded;
use crate::bpf::Programs;
use crate::cgroup;
use crate::child::{Child, Launch};
use crate::company::Company;
use crate::convert::{Material, convert};
use crate::costs::{self, Measured, now_ns};
use crate::drain::{Drain, Drained};
use crate::error::RecordError;
use crate::freeze::Frozen;
use crate::host;
use crate::joining::{self, Scope};
use crate::late::{self, Newcomers};
use crate::output::Output;
use crate::perf::{Begin, Event, Reach, Watch};
use crate::raw::RawFolder;
use crate::record::{Chosen, Descendants, Options, Recording, choose, describe, open_output};
use crate::session::{Ends, Session, Setup, online_cpus};
use crate::signals::{BEGIN, END, Signals, Word};
use crate::snapshot::{self, Seen};
use crate::sources::Sources;
use crate::spool::Rings;
use crate::stacks::StackOptions;
use crate::target::{self, Kin, Target, Unjoinable, add_descendants};
use crate::trace_builder::Setting;
use crate::wire::{Decoder, Numbers};

/// Whom to join, and for how long.
#[derive(Clone, Debug, Default)]
pub struct Joining {
    /// Whom.
    pub who: Who,
    /// When the recording begins.
    pub beginning: Beginning,
    /// Whether running descendants are joined too.
    pub kin: Kin,
    /// How memory is looked at.
    pub snapshot: SnapshotMode,
    /// Who writes the records.
    pub means: Means,
    /// A command to run beside the processes; the recording ends with it.
    pub command: Vec<OsString>,
}

/// The processes to join.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Who {
    /// These.
    Processes(Vec<i32>),
    /// All that run.
    Everyone,
    /// Those of a control group and of the groups below: a path below `/sys/fs/cgroup`, or a whole one.
    Cgroup(PathBuf),
}

impl Default for Who {
    fn default() -> Self {
        Self::Processes(Vec::new())
    }
}

/// Who writes the records of running processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Means {
    /// Programs in the kernel where it takes them, perf's events elsewhere.
    #[default]
    Best,
    /// Perf's events.
    Events,
}

/// When a recording of running processes begins and ends.
#[derive(Clone, Copy, Debug, Default)]
pub enum Beginning {
    /// At once.
    #[default]
    AtOnce,
    /// When SIGUSR1 comes; it ends with SIGUSR2. The function is called as soon as the signals are waited for.
    OnSignal(fn()),
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
    let further: &[i32] = if let Beginning::OnSignal(_) = joining.beginning { &[BEGIN, END] } else { &[] };
    // Until the trace is whole: an impatient second interrupt must not destroy what the first one saved.
    let signals = Signals::block(further)?;
    find(&joining.who)?;
    await_beginning(joining.beginning, &signals)?;
    let output = open_output(options)?;
    let Chosen { sources, measured, refusal } = choose(options)?;
    let mut raw = RawFolder::create(&output.sibling()).map_err(RecordError::Spool)?;
    let watched = watch(options, joining, (&sources, measured), &signals, &mut raw);
    let written = watched.and_then(|watched| {
        let recording = write(options, &sources, watched, &output, progress)?;
        output.complete().map_err(output_error)?;
        Ok(recording)
    });
    let recording = written.map_err(|error| raw.explain(error))?;
    raw.discard();
    Ok(Recording { refusal: refusal.map(|error| error.to_string()), ..recording })
}

/// Makes the trace of what was watched.
fn write(
    options: &Options,
    sources: &Sources,
    watched: AttachedRun,
    output: &Output,
    progress: &dyn Fn(u64),
) -> Result<Recording, RecordError> {
    let AttachedRun { company, drained, end, frozen, mut header } = watched;
    let End { interrupted_by, beside, newcomers, awaited_ns, .. } = end;
    header.is_interrupted = interrupted_by.is_some();
    let Drained { mut spool, lost, chains_lost: stacks_lost, ended_ns: until_ns, .. } = drained;
    let stacks = options.stacks;
    let decoder = Decoder::new(sources, Numbers::Carried, stacks)?;
    let setting = Setting { root: 0, mode: sources.mode(), pace: options.pace, time_unit_ns: header.time_unit_ns() };
    let company = Some(&company);
    let (spool, decoder) = (&mut spool, &decoder);
    let mut material =
        Material { spool, decoder, stacks, stacks_lost, setting, company, lost, until_ns, awaited_ns, progress };
    let converted = convert(&mut material, header, output.file())?;
    // Whom joined processes made the trace knows, but for the last moments.
    let is_known = |pid: &u32| converted.pids.contains(pid) || newcomers.contains_key(pid);
    let are_new = newcomers.iter().filter(|(pid, parent)| !converted.pids.contains(pid) && !is_known(parent));
    let newcomers = are_new.map(|(&pid, _)| pid).collect();
    Ok(Recording { interrupted_by, frozen, beside, newcomers, ..converted.into() })
}

/// Waits for the signal that begins the recording.
fn await_beginning(beginning: Beginning, signals: &Signals) -> Result<(), RecordError> {
    let Beginning::OnSignal(is_waiting) = beginning else { return Ok(()) };
    is_waiting();
    loop {
        match signals.next_word(None) {
            Some(Word::Begin) => return Ok(()),
            Some(Word::End | Word::Stop(_)) => return Err(RecordError::NotBegun),
            None => {}
        }
    }
}

fn find(who: &Who) -> Result<Vec<Target>, RecordError> {
    match who {
        Who::Processes(pids) => {
            let mut pids = pids.clone();
            pids.sort_unstable();
            pids.dedup();
            let find = |pid| Target::find(pid).map_err(|why| RecordError::Target { pid, why });
            pids.into_iter().map(find).collect()
        }
        Who::Everyone => Ok(target::processes().filter_map(|pid| Target::find(pid).ok()).collect()),
        Who::Cgroup(path) => find_members(path),
    }
}

fn find_members(path: &Path) -> Result<Vec<Target>, RecordError> {
    let pids = cgroup::members(path);
    let targets = pids.map(|pids| pids.into_iter().filter_map(|pid| Target::find(pid).ok()).collect::<Vec<_>>());
    match targets {
        Ok(targets) if targets.is_empty() => {
            let error = io::Error::new(io::ErrorKind::NotFound, "no process is in it");
            Err(RecordError::Cgroup { path: path.to_owned(), error })
        }
        Ok(targets) => Ok(targets),
        Err(error) => Err(RecordError::Cgroup { path: path.to_owned(), error }),
    }
}

/// Adds the processes that were not there when they were looked for first, or were not to be joined then; returns how
/// many.
fn add_more(joining: &Joining, targets: &mut Vec<Target>) -> usize {
    let nr_before = targets.len();
    if joining.kin == Kin::Running {
        add_descendants(targets);
    }
    let pids = match &joining.who {
        Who::Processes(_) => Vec::new(),
        Who::Everyone => target::processes().collect(),
        Who::Cgroup(path) => cgroup::members(path).unwrap_or_default(),
    };
    let known: HashSet<i32> = targets.iter().map(|target| target.pid).collect();
    let unknown = pids.into_iter().filter(|pid| !known.contains(pid));
    targets.extend(unknown.filter_map(|pid| Target::find(pid).ok()));
    targets.len() - nr_before
}

impl Scope {
    /// Returns how so many can be watched: by programs, else one by one while there are descriptors enough. Only root
    /// may watch whole CPUs.
    fn of(
        joining: &Joining,
        targets: &[Target],
        sources: &Sources,
        stacks: Option<StackOptions>,
        programs: Option<&Programs>,
    ) -> Self {
        let nr_threads: usize = targets.iter().map(|target| target.threads().len()).sum();
        let nr_cpus = online_cpus().map_or(1, |cpus| cpus.len());
        let nr_needed = joining::nr_descriptors(nr_threads, nr_cpus, sources, stacks);
        let is_scarce = host::open_files().is_some_and(|most| nr_needed as u64 > most);
        // Who comes to a group later can be joined only so.
        let is_open = matches!(joining.who, Who::Everyone | Who::Cgroup(_));
        let is_many = is_scarce || programs.is_some() || is_open;
        if is_many && sources.mode() == Mode::Privileged { Self::Cpus } else { Self::Threads }
    }
}

/// What watching gave.
struct AttachedRun {
    company: Company,
    drained: Drained,
    end: End,
    /// For how long they stood.
    frozen: Option<Duration>,
    /// What is known of the recording besides its records.
    header: Header,
}

/// Watches the processes; the session of `measured` is closed once its tracepoints are in use again.
fn watch(
    options: &Options,
    joining: &Joining,
    (sources, measured): (&Sources, Measured),
    signals: &Signals,
    raw: &mut RawFolder,
) -> Result<AttachedRun, RecordError> {
    let mut beside = beside(joining, signals)?;
    let mut targets = find(&joining.who)?;
    let open_files = host::raise_open_files();
    let Options { pace, ring_bytes, stacks, .. } = *options;
    let setup = Setup { pid: 0, pace, begin: Begin::Joining, ring_bytes, stacks };
    let cpus = online_cpus()?;
    let programs = programs(joining, sources, &setup, &cpus);
    let scope = Scope::of(joining, &targets, sources, stacks, programs.as_ref());
    let more = &|targets: &mut Vec<Target>| add_more(joining, targets);
    let mut kinds = vec![Rings::Events; cpus.len()];
    kinds.extend(vec![Rings::Events; programs.as_ref().map_or(0, Programs::nr_rings)]);
    kinds.extend(vec![Rings::Stacks; if options.stacks.is_some() { cpus.len() } else { 0 }]);
    let mut spool = raw.spool(&kinds).map_err(RecordError::Spool)?;
    let by_programs = programs.as_ref().map(|programs| costs::measure_programs(&measured, programs)).transpose()?;
    let (session, mut joined) =
        joining::join(sources, &setup, &mut targets, more, (scope, programs), &mut spool).map_err(unjoinable)?;
    let Measured { costs, session: trial, .. } = measured;
    let costs = by_programs.unwrap_or(costs);
    drop(trial);
    let ends = match options.descendants {
        Descendants::Left => None,
        Descendants::Awaited => Some(ends_of(joining, &session, scope, &targets, beside.as_ref())?),
    };
    let means = late_means(scope, &session);
    let drain = Drain::start(session, spool)?;
    let mut begin = || {
        let Looked { seen, frozen } = look(joining, &mut targets)?;
        joined.members.retain(|member| seen.iter().any(|seen| seen.pid == member.pid));
        let described = targets.first().map(|target| describe_target(target, &seen)).unwrap_or_default();
        let Header { command, limits, huge_pages, .. } = described;
        let header = Header { limits, huge_pages, ..describe(options, command, sources, costs) };
        let company = Company { joined: joined.clone(), seen, late: Vec::new() };
        raw.describe_joined(&header, &company, sources, options.stacks)?;
        Ok::<_, RecordError>((company, header, frozen))
    };
    let begun = begin();
    let end = match &begun {
        Ok((_, header, _)) => {
            let keep = &|company: &Company, number| raw.describe_late(header, company, number);
            let bounded = options.bounds.begin(drain.raw_bytes());
            wait(joining, &mut targets, (beside.as_mut(), ends.as_ref()), (means, keep), signals, &bounded)
        }
        Err(_) => Ok(End::default()),
    };
    let drained = drain.stop()?;
    open_files.iter().for_each(host::set_open_files);
    let ((company, header, frozen), mut end) = (begun?, end?);
    let company = Company { late: std::mem::take(&mut end.late), ..company };
    let frozen = frozen.map(|frozen| frozen + end.frozen);
    Ok(AttachedRun { company, drained, end, frozen, header })
}

/// Returns how who comes to a group later is watched.
fn late_means(scope: Scope, session: &Session) -> late::WatchMeans {
    match (scope, session.programs()) {
        (Scope::Threads, _) => late::WatchMeans::Threads,
        (Scope::Cpus, None) => late::WatchMeans::Cpus,
        (Scope::Cpus, Some(programs)) => late::WatchMeans::Programs(programs.watcher()),
    }
}

/// Returns programs that watch, where the kernel takes them. They write no call chains; and everyone can be watched
/// without asking who it is.
fn programs(joining: &Joining, sources: &Sources, setup: &Setup, cpus: &[i32]) -> Option<Programs> {
    let Sources::Tracepoints(points) = sources else { return None };
    let is_fit = joining.means == Means::Best && setup.stacks.is_none() && joining.who != Who::Everyone;
    is_fit.then(|| Programs::attach(points, setup.pace, setup.ring_bytes, cpus).ok()).flatten()
}

/// Returns the ends of all who are to be awaited: with `-a` the command and all that it makes, otherwise the processes
/// and all that they make.
fn ends_of(
    joining: &Joining,
    session: &Session,
    scope: Scope,
    targets: &[Target],
    beside: Option<&Child>,
) -> io::Result<Ends> {
    let (cpu, ring) = (*online_cpus()?.first().unwrap_or(&0), session.leaders().first());
    // An event tells of an end only if it has a ring.
    let watch = |tid: i32| {
        let event = Event::open(Watch::Nothing, tid, cpu, Reach::UserOnly, Begin::Joining, 0)?;
        ring.map_or(Ok(()), |ring| event.redirect(ring)).map(|()| event)
    };
    match (&joining.who, scope) {
        (Who::Everyone, _) => {
            let command = beside.map(|child| watch(child.pid())).transpose()?;
            Ends::of(&command)
        }
        (_, Scope::Threads) => Ends::of(session.others()),
        (_, Scope::Cpus) => {
            let mut events = Vec::new();
            let mut kin: Vec<Target> = targets.iter().filter_map(|target| Target::find(target.pid).ok()).collect();
            let mut nr_watched = 0;
            // Whoever was made before its maker was watched is found among the descendants.
            while nr_watched < kin.len() {
                let threads = kin[nr_watched..].iter().flat_map(Target::threads).collect::<Vec<_>>();
                nr_watched = kin.len();
                for tid in threads {
                    match watch(tid as i32) {
                        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                        event => events.push(event?),
                    }
                }
                add_descendants(&mut kin);
            }
            Ends::of(&events)
        }
    }
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

/// Looks at the memory of all; of those that were not named, one may have ended meanwhile.
fn look(joining: &Joining, targets: &mut Vec<Target>) -> Result<Looked, RecordError> {
    let is_named = |target: &Target| matches!(&joining.who, Who::Processes(pids) if pids.contains(&target.pid));
    targets.retain(|target| is_named(target) || !target.has_ended());
    let mut frozen = (joining.snapshot == SnapshotMode::Frozen).then(Frozen::new);
    frozen.iter_mut().try_for_each(|frozen| frozen.freeze(targets)).map_err(unjoinable)?;
    let mut seen = Vec::with_capacity(targets.len());
    for target in &*targets {
        match snapshot::look(target) {
            Ok(looked) => seen.push(looked),
            Err(_) if !is_named(target) => {}
            Err(why) => return Err(unjoinable((target.pid, why))),
        }
    }
    targets.retain(|target| seen.iter().any(|seen| seen.pid == target.pid as u32));
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
#[derive(Clone, Debug, Default)]
struct End {
    /// The signal that asked for it.
    interrupted_by: Option<i32>,
    /// When all who were awaited had ended; 0 if they had not.
    awaited_ns: u64,
    /// How the command beside the processes ended.
    beside: Option<Ending>,
    /// Who was seen in the control group and was not joined, and the parent of each.
    newcomers: BTreeMap<u32, u32>,
    /// Who was joined later.
    late: Vec<Company>,
    /// For how long those stood still.
    frozen: Duration,
}

/// Keeps what must be known of the processes that are joined later, by their number.
type Keep<'a> = &'a dyn Fn(&Company, usize) -> Result<(), RecordError>;

/// Lets the command run, if there is one, and waits until the recording shall end.
fn wait(
    joining: &Joining,
    targets: &mut Vec<Target>,
    (mut beside, ends): (Option<&mut Child>, Option<&Ends>),
    (means, keep): (late::WatchMeans, Keep<'_>),
    signals: &Signals,
    bounded: &Bounded<'_>,
) -> Result<End, RecordError> {
    if let Some((child, name)) = beside.as_mut().zip(joining.command.first()) {
        child.release().map_err(not_run(name))?;
    }
    let are_all = || ends.is_none_or(Ends::are_all);
    let mut newcomers = newcomers(joining, means, targets);
    // With all of the system it is the command's descendants that are awaited.
    let awaits_command = joining.who == Who::Everyone && ends.is_some();
    let mut end = End::default();
    while !(bounded.is_reached() || targets.iter().all(Target::has_ended) && are_all()) {
        if end.beside.is_none()
            && let Some(child) = beside.as_mut()
        {
            end.beside = child.try_wait()?;
        }
        if end.beside.is_some() && (!awaits_command || are_all()) {
            end.awaited_ns = now_ns();
            break;
        }
        for (target, company) in newcomers.iter_mut().flat_map(Newcomers::join) {
            keep(&company, end.late.len())?;
            targets.push(target);
            end.late.push(company);
        }
        match signals.next_word(bounded.deadline) {
            Some(Word::Stop(signal)) => {
                end.interrupted_by = Some(signal);
                break;
            }
            Some(Word::End) => break,
            Some(Word::Begin) | None => {}
        }
    }
    if targets.iter().all(Target::has_ended) && ends.is_some_and(Ends::are_all) {
        end.awaited_ns = u64::MAX;
    }
    if let Some(Newcomers { unjoined, frozen, .. }) = newcomers {
        (end.newcomers, end.frozen) = (unjoined, frozen);
    }
    Ok(end)
}

/// Returns the watch over the control group, if there is one.
fn newcomers<'a>(joining: &'a Joining, means: late::WatchMeans, targets: &[Target]) -> Option<Newcomers<'a>> {
    let Who::Cgroup(path) = &joining.who else { return None };
    let look = match joining.snapshot {
        SnapshotMode::Live => late::Look::Live,
        SnapshotMode::Frozen => late::Look::Frozen,
    };
    Some(Newcomers::new(path, means, look, targets))
}
