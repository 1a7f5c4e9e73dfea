//! The oracle's run: sequences drawn, run by the kernel once, and by the VM under each design.
//!
//! # Guarantee
//! Each sequence is drawn from the seed and its number, so a run is the same whatever the number of jobs. A sequence
//! counts as compared only if every design was compared; whatever was not counts as a difference. An interrupt ends the
//! run with the operation under way, and what was not judged by then counts as nothing.
//!
//! # Who runs
//! ```text
//! each job: draws a batch -> a process on the kernel (one for each user) -> a thread for each design -> counts, findings
//! ```

use std::collections::VecDeque;
use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::kernel::{Answer, Bounds, Host, HostError, Outcome, PAGE, Room, Sequence, User};
use faultless_linux::space::has_interrupt;

use super::batch::{Batch, Checking};
use super::finding::Finding;
use super::generate::{self, Profile};
use super::rules;
use super::subject::{Report, Side, Subject};
use super::tally::Tally;
use super::world::Conditions;

/// Sequences of a batch.
const BATCH: u64 = 48;

/// A side hangs that has CPUs for so long, or sleeps for so long, and says nothing.
const PATIENCE: Duration = Duration::from_secs(60);

/// Differences that are kept; more are counted.
const KEPT: usize = 200;

/// What is to be run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Designs, from the registry.
    pub designs: Vec<&'static str>,
    /// As whom.
    pub users: Vec<User>,
    /// What kinds of sequences, each as often as it stands here.
    pub profiles: Vec<Profile>,
    /// How many.
    pub sequences: u64,
    /// Operations of each.
    pub nr_ops: usize,
    /// Draws them.
    pub seed: u64,
    /// Threads that draw and judge.
    pub jobs: usize,
    /// When the VM's invariants are checked.
    pub checking: Checking,
    /// The scheme of kernel maps if the designs' memory has no addresses of its own.
    pub high: Option<&'static str>,
}

impl Settings {
    /// Returns each design, with its memory.
    pub fn sides(&self) -> impl Iterator<Item = Side> {
        self.designs.iter().map(|&design| Side { design, high: self.high })
    }
}

/// A sequence that came out differently.
#[derive(Clone, Debug)]
pub struct Difference {
    /// The design.
    pub design: &'static str,
    /// The sequence.
    pub sequence: Sequence,
    /// What differs.
    pub finding: Finding,
    /// Its number in the run.
    pub number: u64,
}

/// What came out of a run.
#[derive(Clone, Debug, Default)]
pub struct Outcomes {
    /// Sequences compared under every design.
    pub sequences: u64,
    /// Sequences that differ, or could not be compared, counted once for each design.
    pub differences: u64,
    /// The first of them.
    pub kept: Vec<Difference>,
    /// What the sequences held.
    pub tally: Tally,
    /// How long it took.
    pub elapsed: Duration,
    /// Whether an interrupt ended it.
    pub was_interrupted: bool,
}

/// Runs the oracle; `progress` hears how many sequences are done.
pub fn run(settings: &Settings, progress: &(dyn Fn(u64) + Sync)) -> Result<Outcomes, HostError> {
    let begun = Instant::now();
    let shared = Shared {
        settings,
        next: AtomicU64::new(0),
        done: AtomicU64::new(0),
        is_over: AtomicBool::new(false),
        sum: Mutex::default(),
    };
    let results: Vec<_> = thread::scope(|scope| {
        let jobs: Vec<_> = (0..settings.jobs.max(1)).map(|_| scope.spawn(|| Job::run(&shared, progress))).collect();
        jobs.into_iter().map(|job| job.join()).collect()
    });
    for result in results {
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    }
    let mut outcomes = shared.sum.into_inner().unwrap_or_else(PoisonError::into_inner);
    outcomes.kept.sort_by_key(|difference| (difference.number, difference.design));
    outcomes.elapsed = begun.elapsed();
    outcomes.was_interrupted = has_interrupt() && outcomes.sequences < settings.sequences;
    Ok(outcomes)
}

/// What the jobs share.
struct Shared<'a> {
    settings: &'a Settings,
    next: AtomicU64,
    done: AtomicU64,
    is_over: AtomicBool,
    sum: Mutex<Outcomes>,
}

/// Batches under way: the first number, and the batch.
type UnderWay = VecDeque<(u64, Arc<Batch>)>;

/// A thread that draws and judges.
struct Job<'a> {
    shared: &'a Shared<'a>,
    subjects: Vec<Subject>,
    hosts: Vec<Host>,
    under_way: UnderWay,
}

impl<'a> Job<'a> {
    fn run(shared: &'a Shared<'a>, progress: &(dyn Fn(u64) + Sync)) -> Result<(), HostError> {
        let settings = shared.settings;
        let hosts = settings.users.iter().map(|&user| Host::start(user, Room::default(), PATIENCE));
        let hosts = hosts.collect::<Result<Vec<_>, _>>()?;
        let subjects = settings.sides().map(Subject::start).collect();
        let mut job = Self { shared, subjects, hosts, under_way: VecDeque::new() };
        // Relaxed: numbers are handed out, nothing else is read on their strength.
        while !shared.is_over.load(Ordering::Relaxed) && !has_interrupt() {
            let first = shared.next.fetch_add(BATCH, Ordering::Relaxed);
            if first >= settings.sequences {
                break;
            }
            job.begin(first, BATCH.min(settings.sequences - first))?;
            if job.under_way.len() > 2 {
                job.finish_one(progress);
            }
        }
        while !job.under_way.is_empty() {
            job.finish_one(progress);
        }
        Ok(())
    }

    /// Draws a batch, lets the kernel run it, and sends it to the designs.
    fn begin(&mut self, first: u64, count: u64) -> Result<(), HostError> {
        let settings = self.shared.settings;
        let turn = first / BATCH;
        let nr_users = self.hosts.len() as u64;
        let host = &mut self.hosts[(turn % nr_users) as usize];
        let profile = settings.profiles[(turn / nr_users) as usize % settings.profiles.len()];
        let draw = |number| generate::sequence(settings.seed, profile, host.user(), number, settings.nr_ops);
        let sequences: Vec<_> = (first..first + count).map(draw).collect();
        let batch = ask(host, sequences, settings.checking, has_interrupt)?;
        self.subjects.iter().for_each(|subject| subject.send(&batch));
        self.under_way.push_back((first, batch));
        Ok(())
    }

    /// Awaits the designs' reports on the oldest batch.
    fn finish_one(&mut self, progress: &(dyn Fn(u64) + Sync)) {
        let Some((first, batch)) = self.under_way.pop_front() else { return };
        let reports: Vec<_> = self.subjects.iter().map(|subject| subject.receive(PATIENCE)).collect();
        let mut sum = self.shared.sum.lock().unwrap_or_else(PoisonError::into_inner);
        // After an interrupt a report ends early.
        let nr_judged = reports.iter().flatten().map(Vec::len).min().unwrap_or(batch.sequences.len());
        for (sequence, answer) in batch.sequences.iter().zip(&batch.answers).take(nr_judged) {
            if let Ok(outcomes) = answer {
                sum.tally.note(sequence, outcomes);
            }
        }
        let mut is_compared = vec![true; batch.sequences.len()];
        for (subject, report) in self.subjects.iter().zip(&reports) {
            match report {
                Some(report) => sum.note(first, &batch, subject.design(), report, &mut is_compared),
                None => {
                    is_compared.fill(false);
                    sum.note_hang(first, &batch, subject.design());
                }
            }
        }
        sum.sequences += is_compared.iter().filter(|&&compared| compared).count() as u64;
        drop(sum);
        let nr_judged = nr_judged as u64;
        progress(self.shared.done.fetch_add(nr_judged, Ordering::Relaxed) + nr_judged);
        if reports.iter().any(Option::is_none) {
            self.give_up(&reports);
        }
    }

    /// Leaves subjects that hang to themselves, and ends the run.
    fn give_up(&mut self, reports: &[Option<Report>]) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        self.under_way.clear();
        for (subject, report) in self.subjects.drain(..).zip(reports) {
            match report {
                None => subject.abandon(),
                Some(_) => drop(subject),
            }
        }
    }
}

/// Lets the kernel run sequences; once `is_over` says yes, the designs leave out what is left of them.
pub(super) fn ask(
    host: &mut Host,
    sequences: Vec<Sequence>,
    checking: Checking,
    is_over: fn() -> bool,
) -> Result<Arc<Batch>, HostError> {
    let answers = host.run(&sequences)?;
    let twins = twins(host, &sequences)?;
    Ok(Arc::new(Batch { sequences, answers, twins, conditions: conditions(host), checking, is_over }))
}

/// What is over only once all is judged.
fn never() -> bool {
    false
}

/// Lets the kernel run the twins of those sequences that have one; a twin that has no answer judges nothing.
fn twins(host: &mut Host, sequences: &[Sequence]) -> Result<Vec<Option<Answer>>, HostError> {
    let twins: Vec<Option<Sequence>> = sequences.iter().map(rules::twin_of).collect();
    let asked: Vec<Sequence> = twins.iter().flatten().cloned().collect();
    let mut answers = if asked.is_empty() { Vec::new() } else { host.run(&asked)? }.into_iter();
    let next = |twin: Option<Sequence>| twin.and_then(|_| answers.next()?.ok());
    Ok(twins.into_iter().map(next).collect())
}

/// Returns what heuristic overcommit takes for all memory there is.
fn commit_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let kib = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    Some((kib("MemTotal:")? + kib("SwapTotal:")?) * 1024)
}

fn conditions(host: &Host) -> Conditions {
    let number = |path| fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok());
    Conditions {
        mmap_min_addr: number("/proc/sys/vm/mmap_min_addr").unwrap_or(65536),
        max_map_count: number("/proc/sys/vm/max_map_count").unwrap_or(65530),
        usual: usual_bounds(),
        data_bytes: host.baseline().data * PAGE,
        commit_bytes: commit_bytes().unwrap_or(u64::MAX),
        has_protection_keys: crate::kernel::has_protection_keys(),
    }
}

/// Returns the limits that a sequence has unless it sets others: this process's own.
fn usual_bounds() -> Bounds {
    let [locked, stack] = crate::kernel::usual_limits();
    Bounds { locked, stack, ..Bounds::default() }
}

impl Outcomes {
    fn note(&mut self, first: u64, batch: &Batch, design: &'static str, report: &Report, is_compared: &mut [bool]) {
        is_compared[report.len()..].fill(false);
        for (place, result) in report.iter().enumerate() {
            match result {
                Ok(verdicts) => self.tally.note_verdicts(design, verdicts),
                Err(finding) => {
                    is_compared[place] = !matches!(finding, Finding::NotCompared(_) | Finding::Hang);
                    self.differ(first, batch, place, design, finding.clone());
                }
            }
        }
    }

    fn note_hang(&mut self, first: u64, batch: &Batch, design: &'static str) {
        self.differ(first, batch, 0, design, Finding::Hang);
    }

    fn differ(&mut self, first: u64, batch: &Batch, place: usize, design: &'static str, finding: Finding) {
        self.differences += 1;
        if self.kept.len() < KEPT {
            let sequence = batch.sequences[place].clone();
            self.kept.push(Difference { design, sequence, finding, number: first + place as u64 });
        }
    }
}

/// The kernel, as each user that there may be, and designs, for single sequences.
pub struct Jury {
    hosts: Vec<Host>,
    subjects: Vec<Subject>,
    checking: Checking,
}

impl Jury {
    /// Starts all.
    pub fn start(
        sides: &[impl Copy + Into<Side>],
        users: &[User],
        checking: Checking,
        nr_ops: usize,
    ) -> Result<Self, HostError> {
        let room = Room { ops: nr_ops.max(Room::default().ops), ..Room::default() };
        let hosts = users.iter().map(|&user| Host::start(user, room, PATIENCE));
        let hosts = hosts.collect::<Result<Vec<_>, _>>()?;
        Ok(Self { hosts, subjects: sides.iter().map(|&side| Subject::start(side.into())).collect(), checking })
    }

    /// Compares one sequence under each design; returns what the kernel made of it, too. A sequence of a user that is
    /// not here runs as the first that is.
    pub fn compare(&mut self, sequence: &Sequence) -> Result<(Vec<Outcome>, Vec<DesignVerdict>), HostError> {
        let place = self.hosts.iter().position(|host| host.user() == sequence.user).unwrap_or(0);
        let sequence = Sequence { user: self.hosts[place].user(), ..sequence.clone() };
        let batch = ask(&mut self.hosts[place], vec![sequence], self.checking, never)?;
        self.subjects.iter().for_each(|subject| subject.send(&batch));
        let verdicts = self.subjects.iter_mut().map(verdict).collect();
        Ok((batch.answers[0].clone().unwrap_or_default().outcomes, verdicts))
    }
}

/// A design's name, and what it differs in.
pub type DesignVerdict = (&'static str, Result<(), Finding>);

/// Awaits a design's verdict; one that hangs is left to itself, and started anew.
fn verdict(subject: &mut Subject) -> DesignVerdict {
    let report = subject.receive(PATIENCE);
    let finding = match report.as_ref().and_then(|report| report.first()) {
        None => Err(Finding::Hang),
        Some(Ok(_)) => Ok(()),
        Some(Err(finding)) => Err(finding.clone()),
    };
    if report.is_none() {
        let fresh = Subject::start(subject.side());
        std::mem::replace(subject, fresh).abandon();
    }
    (subject.design(), finding)
}

/// A kernel and a design, for single sequences.
pub struct Bench(Jury);

impl Bench {
    /// Starts both.
    pub fn start(side: impl Into<Side>, user: User, checking: Checking, nr_ops: usize) -> Result<Self, HostError> {
        Jury::start(&[side.into()], &[user], checking, nr_ops).map(Self)
    }

    /// Compares one sequence; returns what the kernel made of it, too.
    pub fn compare(&mut self, sequence: &Sequence) -> Result<(Vec<Outcome>, Result<(), Finding>), HostError> {
        let (outcomes, mut verdicts) = self.0.compare(sequence)?;
        Ok((outcomes, verdicts.pop().map_or(Ok(()), |(_, finding)| finding)))
    }
}

/// Runs given sequences, each under every design of the settings; users are those that the sequences name.
pub fn replay(settings: &Settings, sequences: &[Sequence]) -> Result<Outcomes, HostError> {
    let begun = Instant::now();
    let mut outcomes = Outcomes::default();
    let subjects: Vec<_> = settings.sides().map(Subject::start).collect();
    for user in [User::Root, User::Nobody] {
        let own: Vec<_> = sequences.iter().filter(|sequence| sequence.user == user).cloned().collect();
        let Some(longest) = own.iter().map(|sequence| sequence.ops.len()).max() else { continue };
        let room = Room { ops: longest.max(Room::default().ops), ..Room::default() };
        let batch = ask(&mut Host::start(user, room, PATIENCE)?, own, settings.checking, never)?;
        for (sequence, answer) in batch.sequences.iter().zip(&batch.answers) {
            if let Ok(answer) = answer {
                outcomes.tally.note(sequence, answer);
            }
        }
        let mut is_compared = vec![true; batch.sequences.len()];
        for subject in &subjects {
            subject.send(&batch);
            match subject.receive(PATIENCE) {
                Some(report) => outcomes.note(0, &batch, subject.design(), &report, &mut is_compared),
                None => {
                    is_compared.fill(false);
                    outcomes.note_hang(0, &batch, subject.design());
                }
            }
        }
        outcomes.sequences += is_compared.iter().filter(|&&compared| compared).count() as u64;
    }
    outcomes.elapsed = begun.elapsed();
    Ok(outcomes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    static NR_ASKED: AtomicUsize = AtomicUsize::new(0);

    fn is_fifth_time() -> bool {
        // Relaxed: one thread asks.
        NR_ASKED.fetch_add(1, Ordering::Relaxed) >= 4
    }

    #[test]
    fn what_was_not_judged_when_the_run_ended_counts_as_nothing() {
        for second in ["brk 0x0; brk 0x0", "t1 brk 0x0; t2 brk 0x0"] {
            // Asked after both operations of the first sequence, and when it is judged: the second ends early.
            NR_ASKED.store(0, Ordering::Relaxed);
            let lines = ["user; brk 0x0; look", &format!("user; {second}; look"), "user; look"];
            let sequences = lines.map(|line| line.parse::<Sequence>().expect("a sequence")).to_vec();
            let mut host = Host::start(User::Nobody, Room::default(), PATIENCE).expect("a host");
            let batch = ask(&mut host, sequences, Checking::EachBatch, is_fifth_time).expect("a host");
            let subject = Subject::start_plainest();
            subject.send(&batch);
            let report = subject.receive(PATIENCE).expect("a report");
            let (mut outcomes, mut is_compared) = (Outcomes::default(), vec![true; 3]);
            outcomes.note(0, &batch, subject.design(), &report, &mut is_compared);
            assert_eq!((is_compared, outcomes.differences), (vec![true, false, false], 0), "{second}");
        }
    }
}
