//! Fuzz: inputs that are drawn, or made from good ones by damaging them, given to whatever reads or runs them.
//!
//! # Guarantee
//! An input is made from the seed, the target and its number alone. One that panics, crashes, hangs (a minute on
//! CPUs, or asleep) or, where files are read, takes more than [`MEMORY_BOUND`] of address space, is reported with the
//! line that makes it again; the run then goes on behind it. Threads are scheduled by the host: what the target `api`
//! finds may take several attempts to show itself again.
//!
//! # Rooms
//! [`Target`] says what there is to fuzz, and what is promised of it; `traces`, `machines`, `results`, `sequences` do
//! it, `damage` makes bad inputs out of good ones. `fuzz/` gives the same functions to a fuzzer that is guided by
//! coverage.

mod damage;
mod machines;
mod results;
mod sequences;
mod traces;

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use faultless_linux::space::{ProgressWatch, has_interrupt, limit_memory};
use serde_json::{Value, json};

use super::Found;
use super::child::{End, Trial, millis, words};

/// The most address space that a process has which reads damaged files.
pub const MEMORY_BOUND: u64 = 3 << 30;

/// An input that takes longer hangs.
const HANG: Duration = Duration::from_secs(60);

/// A run ends after so many findings.
const MOST_FOUND: usize = 10;

/// Tries one input, drawn from a generator; panics with what it shows.
pub type Attempt = Box<dyn FnMut(&mut Rng)>;

/// What is fuzzed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Sequences of memory calls, on the kernel and on the library: they must not differ.
    Sequences,
    /// Any arguments to the library's public functions, from several threads.
    Api,
    /// Damaged traces whose checksums are right: reading, planning and replaying them ends, without a panic, a broken
    /// invariant or a leak.
    Traces,
    /// Damaged machine files.
    Machines,
    /// Damaged result files: read, written in every format, compared.
    Results,
}

impl Target {
    /// Every target.
    pub const ALL: [Self; 5] = [Self::Sequences, Self::Api, Self::Traces, Self::Machines, Self::Results];

    /// Returns the name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sequences => "sequences",
            Self::Api => "api",
            Self::Traces => "traces",
            Self::Machines => "machines",
            Self::Results => "results",
        }
    }

    fn reads_files(self) -> bool {
        matches!(self, Self::Traces | Self::Machines | Self::Results)
    }

    /// Returns what tries one input, drawn from a generator.
    ///
    /// # Errors
    /// If the kernel's side of the sequences can't be started.
    pub fn start(self) -> Result<Attempt, String> {
        Ok(match self {
            Self::Sequences => Box::new(sequences::start()?),
            Self::Api => Box::new(|random| {
                let _ = faultless_soak::api::run(random.u64(..)).map_err(|error| panic!("{error:?}"));
            }),
            Self::Traces => Box::new(traces::start()),
            Self::Machines => Box::new(machines::try_one),
            Self::Results => Box::new(results::start()),
        })
    }
}

/// Tries bytes that a fuzzer made: the first says which kind of file they are, the others what is in it.
///
/// # Panics
/// With what they showed.
pub fn try_file(bytes: &[u8]) {
    let [kind, content @ ..] = bytes else { return };
    let text = String::from_utf8_lossy(content);
    match kind % 3 {
        0 => traces::try_payload(content),
        1 => machines::try_text(&text),
        _ => results::try_alone(&text),
    }
}

/// What is to be run.
#[derive(Clone, Debug)]
pub struct FuzzSetup {
    /// Targets.
    pub targets: Vec<Target>,
    /// Draws the inputs.
    pub seed: u64,
    /// The number of the first input.
    pub from: u64,
    /// How many inputs of each target; as many as there is time for unless said.
    pub inputs: Option<u64>,
    /// How long each target runs.
    pub duration: Duration,
}

/// What came of a target.
#[derive(Clone, Debug)]
pub struct TargetRow {
    /// The target.
    pub target: Target,
    /// How many inputs were tried.
    pub inputs: u64,
}

/// What came of all targets.
#[derive(Clone, Debug, Default)]
pub struct FuzzOutcome {
    /// Target by target.
    pub rows: Vec<TargetRow>,
    /// What must not be.
    pub found: Vec<Found>,
    /// Whether an interrupt left something out.
    pub was_interrupted: bool,
}

/// Runs each target in processes of its own; `begun` hears of each.
///
/// # Errors
/// If a process can't be started.
pub fn run(setup: &FuzzSetup, begun: &dyn Fn(&str)) -> io::Result<FuzzOutcome> {
    let mut outcome = FuzzOutcome::default();
    for &target in &setup.targets {
        if has_interrupt() {
            break;
        }
        begun(target.name());
        run_target(setup, target, &mut outcome)?;
    }
    outcome.was_interrupted = has_interrupt();
    Ok(outcome)
}

/// Runs a target until its time or its inputs are over; one that fails is reported, and the next process begins behind
/// it.
fn run_target(setup: &FuzzSetup, target: Target, outcome: &mut FuzzOutcome) -> io::Result<()> {
    let end = Instant::now() + setup.duration;
    let last = setup.inputs.map(|inputs| setup.from.saturating_add(inputs));
    let progress = Progress::new(target)?;
    let mut from = setup.from;
    for _ in 0..MOST_FOUND {
        let left = end.saturating_duration_since(Instant::now());
        let inputs = last.map(|last| last - from);
        if left.is_zero() || inputs == Some(0) || has_interrupt() {
            break;
        }
        let trial = setup.trial(target, from, inputs, left, &progress.0);
        let result = trial.run()?;
        if let End::Done(report) = &result {
            from += report.get("inputs").and_then(Value::as_u64).unwrap_or(0);
            break;
        }
        let number = progress.read()?;
        if result == End::Interrupted {
            from = number;
            break;
        }
        let line = setup.line(target, number);
        outcome.found.push(Found {
            judge: "fuzz".into(),
            subject: target.name().into(),
            what: result.to_string(),
            line,
        });
        from = number + 1;
    }
    outcome.rows.push(TargetRow { target, inputs: from - setup.from });
    Ok(())
}

/// A file that tells the number of the input under way.
struct Progress(PathBuf);

impl Progress {
    fn new(target: Target) -> io::Result<Self> {
        let name = format!("faultless-fuzz-{}-{}", std::process::id(), target.name());
        let path = std::env::temp_dir().join(name);
        fs::write(&path, [0; 8])?;
        Ok(Self(path))
    }

    fn read(&self) -> io::Result<u64> {
        let mut number = [0; 8];
        File::open(&self.0)?.read_exact_at(&mut number, 0)?;
        Ok(u64::from_le_bytes(number))
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        // What is left behind harms nobody.
        let _ = fs::remove_file(&self.0);
    }
}

impl FuzzSetup {
    fn words(&self, target: Target, from: u64) -> Vec<String> {
        let options =
            [("--target", target.name().to_owned()), ("--seed", self.seed.to_string()), ("--from", from.to_string())];
        words("fuzz", options)
    }

    fn line(&self, target: Target, number: u64) -> String {
        format!("faultless {} --inputs 1", self.words(target, number).join(" "))
    }

    fn trial(&self, target: Target, from: u64, inputs: Option<u64>, left: Duration, progress: &Path) -> Trial {
        let mut arguments = self.words(target, from);
        if let Some(inputs) = inputs {
            arguments.extend(["--inputs".to_owned(), inputs.to_string()]);
        }
        arguments.extend(["--duration".to_owned(), millis(left), "--in-process".to_owned()]);
        arguments.extend(["--progress".to_owned(), progress.display().to_string()]);
        Trial { arguments, patience: left + 2 * HANG }
    }

    /// Runs the first target in this process; tells `progress` the number of each input before it is tried.
    ///
    /// # Errors
    /// If the target can't be started, or the file can't be written.
    ///
    /// # Panics
    /// With what an input showed.
    pub fn run_here(&self, progress: Option<&Path>) -> Result<Value, String> {
        let target = *self.targets.first().ok_or("no target is named")?;
        let progress = progress.map(|path| File::options().write(true).open(path)).transpose();
        let progress = progress.map_err(|error| error.to_string())?;
        if target.reads_files() {
            limit_memory(MEMORY_BOUND).map_err(|error| error.to_string())?;
        }
        let mut attempt = target.start()?;
        let current: &'static AtomicU64 = Box::leak(Box::new(AtomicU64::new(0)));
        thread::spawn(|| watch(current));
        let end = Instant::now() + self.duration;
        let mut inputs = 0;
        while inputs < self.inputs.unwrap_or(u64::MAX) && Instant::now() < end && !has_interrupt() {
            let number = self.from + inputs;
            if let Some(file) = &progress {
                file.write_all_at(&number.to_le_bytes(), 0).map_err(|error| error.to_string())?;
            }
            attempt(&mut Rng::with_seed(mixed(self.seed, number)));
            inputs += 1;
            // Relaxed: the watcher wants to see it change, sooner or later.
            current.store(inputs, Ordering::Relaxed);
        }
        Ok(json!({ "inputs": inputs }))
    }
}

/// Ends the process if one input takes too long.
fn watch(current: &AtomicU64) {
    let mut last = (0, ProgressWatch::of_this_process(HANG));
    loop {
        thread::sleep(Duration::from_millis(500));
        // Relaxed: see `run_here`.
        let number = current.load(Ordering::Relaxed);
        if number != last.0 {
            last = (number, ProgressWatch::of_this_process(HANG));
        } else if let Some(stall) = last.1.look() {
            eprintln!("one input {stall}");
            std::process::abort();
        }
    }
}

/// Returns the seed of one input (the finaliser of SplitMix64).
fn mixed(seed: u64, number: u64) -> u64 {
    let mut z = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(number);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_survives_its_first_inputs() {
        for target in [Target::Api, Target::Traces, Target::Machines, Target::Results] {
            let setup = FuzzSetup {
                targets: vec![target],
                seed: 1,
                from: 0,
                inputs: Some(30),
                duration: Duration::from_secs(20),
            };
            let mut attempt = target.start().expect("a target");
            (0..30).for_each(|number| attempt(&mut Rng::with_seed(mixed(setup.seed, number))));
        }
    }
}
