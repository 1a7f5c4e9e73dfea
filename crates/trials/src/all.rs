//! Every judge in turn, for as long as asked: oracle, schedules, soak, fuzz, and again.
//!
//! # Guarantee
//! Each batch has a seed of its own, so that no round repeats another. What is found is kept as a line that replays it,
//! as soon as it is found; nothing ends the run but its time, an interrupt, or a judge that can't be started.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use faultless_linux::space::has_interrupt;
use serde_json::Value;

use super::Found;
use super::child::{End, Trial, millis, words};

/// The most time that a judge gets at once.
const SLICE: Duration = Duration::from_secs(60);
/// The least.
const LEAST_SLICE: Duration = Duration::from_secs(1);
/// A batch that has CPUs for longer than its slice by so much hangs.
const PATIENCE: Duration = Duration::from_secs(300);

/// A judge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judge {
    /// Sequences of memory calls, on the kernel and on the library.
    Oracle,
    /// Interleavings of small programs.
    Schedules,
    /// Threads that use one instance at random.
    Soak,
    /// Bad and random inputs.
    Fuzz,
}

impl Judge {
    /// All of them, in turn.
    pub const ALL: [Self; 4] = [Self::Oracle, Self::Schedules, Self::Soak, Self::Fuzz];

    /// Returns the name, which is the subcommand's.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Oracle => "oracle",
            Self::Schedules => "schedules",
            Self::Soak => "soak",
            Self::Fuzz => "fuzz",
        }
    }

    /// Returns what one trial of it is called.
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Oracle => "sequences",
            Self::Schedules => "schedules",
            Self::Soak => "operations",
            Self::Fuzz => "inputs",
        }
    }

    /// Returns the arguments of a batch, and how many units it has where time does not end it.
    fn batch(self, setup: &AllSetup, seed: u64, pace: f64, slice: Duration) -> Vec<String> {
        let units = ((pace * slice.as_secs_f64()) as u64).max(1);
        let shared = |parts: usize| millis(slice / parts.max(1) as u32);
        let (name, value) = match self {
            Self::Oracle => ("--sequences", units.to_string()),
            Self::Schedules => ("--runs", (units / setup.designs.len().max(1) as u64).max(1).to_string()),
            Self::Soak => ("--duration", shared(setup.designs.len())),
            Self::Fuzz => ("--duration", shared(super::fuzz::Target::ALL.len())),
        };
        let options = [("--seed", seed.to_string()), (name, value), ("--format", "json".to_owned())];
        let mut words = words(self.name(), options);
        if self != Self::Fuzz {
            words.extend(["--design".to_owned(), setup.designs.join(",")]);
        }
        words
    }

    /// Returns how many units a batch did.
    fn units(self, report: &Value) -> u64 {
        let at = |pointer: &str| report.pointer(pointer).and_then(Value::as_u64).unwrap_or(0);
        let sum = |runs: &str, pointer: &str| -> u64 {
            let runs = report.pointer(runs).and_then(Value::as_array).into_iter().flatten();
            runs.filter_map(|run| run.pointer(pointer).and_then(Value::as_u64)).sum()
        };
        match self {
            Self::Oracle => at("/checks/sequences"),
            Self::Schedules => at("/checks/schedules/runs"),
            Self::Soak => sum("/checks/soak/runs", "/report/operations"),
            Self::Fuzz => sum("/checks/fuzz/runs", "/inputs"),
        }
    }

    /// Returns what a batch found.
    fn found(self, report: &Value) -> Vec<Found> {
        let list = |pointer: &str| report.pointer(pointer).and_then(Value::as_array).cloned().unwrap_or_default();
        let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let made = |value: &Value, what: String, line: String| {
            let subject = text(value, "design");
            Found { judge: self.name().into(), subject, what, line }
        };
        match self {
            Self::Oracle => list("/checks/found")
                .iter()
                .map(|value| {
                    let line = format!("faultless check oracle --replay '{}'", text(value, "sequence"));
                    made(value, text(value, "finding"), line)
                })
                .collect(),
            Self::Schedules => list("/checks/schedules/failures")
                .iter()
                .map(|value| {
                    let line = format!("faultless check schedules --replay {}", text(value, "shortest_line"));
                    made(value, text(value, "what"), line)
                })
                .collect(),
            Self::Soak | Self::Fuzz => list(&format!("/checks/{}/findings", self.name()))
                .into_iter()
                .filter_map(|value| serde_json::from_value(value).ok())
                .collect(),
        }
    }
}

/// What is to be run.
#[derive(Clone, Debug)]
pub struct AllSetup {
    /// Designs by name.
    pub designs: Vec<String>,
    /// How long all judges run together.
    pub duration: Duration,
    /// Draws the seeds of the batches.
    pub seed: u64,
    /// Where findings are kept.
    pub keep: Option<PathBuf>,
}

/// What a judge did.
#[derive(Clone, Copy, Debug)]
pub struct JudgeRow {
    /// The judge.
    pub judge: Judge,
    /// Batches that ended with a report.
    pub batches: u64,
    /// Sequences, schedules, operations or inputs.
    pub units: u64,
    /// How long it ran.
    pub elapsed: Duration,
}

/// What came of all of it.
#[derive(Clone, Debug, Default)]
pub struct AllOutcome {
    /// Judge by judge.
    pub rows: Vec<JudgeRow>,
    /// What must not be.
    pub found: Vec<Found>,
    /// Whether an interrupt ended it.
    pub was_interrupted: bool,
}

/// Runs every judge in turn until the time is over, and each at least once; `told` hears what runs, and how much of the
/// time is over.
///
/// # Errors
/// If a judge can't be started, or findings can't be kept.
pub fn run(setup: &AllSetup, told: &dyn Fn(&str, Duration)) -> io::Result<AllOutcome> {
    let begun = Instant::now();
    let mut keeper = setup.keep.as_deref().map(Keeper::new).transpose()?;
    let mut outcome = AllOutcome::default();
    let blank = |judge| JudgeRow { judge, batches: 0, units: 0, elapsed: Duration::ZERO };
    outcome.rows = Judge::ALL.map(blank).to_vec();
    let slice = (setup.duration / 8).clamp(LEAST_SLICE, SLICE);
    for batch in 0_u64.. {
        let left = setup.duration.saturating_sub(begun.elapsed());
        let is_over = left.is_zero() && batch >= Judge::ALL.len() as u64;
        if is_over || has_interrupt() {
            break;
        }
        let row = &mut outcome.rows[batch as usize % Judge::ALL.len()];
        told(row.judge.name(), begun.elapsed());
        let found = run_batch(setup, row, setup.seed.wrapping_add(batch), slice.min(left.max(LEAST_SLICE)))?;
        if let Some(keeper) = &mut keeper {
            found.iter().try_for_each(|found| keeper.keep(found))?;
        }
        outcome.found.extend(found);
    }
    outcome.was_interrupted = has_interrupt();
    Ok(outcome)
}

/// How many units a second a judge does before it was ever timed; few, so that the first batch ends soon.
const FIRST_PACE: f64 = 20.0;

fn run_batch(setup: &AllSetup, row: &mut JudgeRow, seed: u64, slice: Duration) -> io::Result<Vec<Found>> {
    let pace = if row.batches > 0 { row.units as f64 / row.elapsed.as_secs_f64() } else { FIRST_PACE };
    let arguments = row.judge.batch(setup, seed, pace, slice);
    let line = format!("faultless {}", arguments.join(" "));
    let begun = Instant::now();
    let end = Trial { arguments, patience: slice + PATIENCE }.run()?;
    row.elapsed += begun.elapsed();
    let report = match &end {
        End::Done(report) | End::Failed { report: Some(report), .. } => report,
        End::Interrupted => return Ok(Vec::new()),
        _ => {
            let judge = row.judge.name().to_owned();
            return Ok(vec![Found { subject: judge.clone(), judge, what: end.to_string(), line }]);
        }
    };
    row.batches += 1;
    row.units += row.judge.units(report);
    let mut found = row.judge.found(report);
    if let (End::Failed { words, .. }, true) = (&end, found.is_empty() && !has_interrupt()) {
        found.push(Found { judge: row.judge.name().into(), subject: "all".into(), what: words.clone(), line });
    }
    Ok(found)
}

/// Where findings are kept, a comment and a line each.
struct Keeper(File);

impl Keeper {
    fn new(folder: &Path) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        Ok(Self(File::options().create(true).append(true).open(folder.join("found.sh"))?))
    }

    fn keep(&mut self, found: &Found) -> io::Result<()> {
        let what = found.what.replace('\n', " ");
        writeln!(self.0, "# {} of {}: {what}\n{}", found.judge, found.subject, found.line)?;
        self.0.flush()
    }
}

/// Returns what a user of the library may believe after a run, and on what evidence.
pub fn verdict(setup: &AllSetup, outcome: &AllOutcome) -> String {
    let done: Vec<String> =
        outcome.rows.iter().map(|row| format!("{} {} ({})", row.units, row.judge.unit(), row.judge.name())).collect();
    let evidence = format!("{} under {}, seed {}", done.join(", "), setup.designs.join(", "), setup.seed);
    if !outcome.found.is_empty() {
        return format!(
            "Do not rely on this build: {} of its trials came out wrong ({evidence}). The lines above show them again.",
            outcome.found.len()
        );
    }
    let bounds: Vec<String> = outcome
        .rows
        .iter()
        .filter(|row| row.units >= 3)
        .map(|row| format!("one in {} {}", row.units / 3, row.judge.unit()))
        .collect();
    format!(
        "What you may believe: drawn as they are here, memory calls answer as this machine's Linux does, every interleaving of the \
         small worlds is explained by some order of its operations, threads at work keep every invariant and lose no frame, also when \
         frames run out, and bad input is refused. Evidence: {evidence}; none came out wrong, so with 95 % confidence fewer than {} would \
         (three divided by the number tried). What this does not show: programs unlike those drawn, orders that only a weaker memory \
         model allows (the loom models of sync and phys look for those), and hardware page tables.",
        bounds.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_judges_report_is_understood() {
        let report = json!({ "checks": { "schedules": { "runs": 12, "failures": [
            { "design": "spf-v9", "what": "lost", "line": "long", "shortest_line": "short" }] } } });
        assert_eq!(Judge::Schedules.units(&report), 12);
        let found = Judge::Schedules.found(&report);
        assert_eq!(found[0].line, "faultless check schedules --replay short");
        assert_eq!((found[0].subject.as_str(), found[0].what.as_str()), ("spf-v9", "lost"));
    }

    #[test]
    fn a_finding_is_not_believed_away() {
        let setup = AllSetup { designs: vec!["vma-lock".into()], duration: SLICE, seed: 7, keep: None };
        let row = |judge| JudgeRow { judge, batches: 1, units: 300, elapsed: SLICE };
        let mut outcome = AllOutcome { rows: Judge::ALL.map(row).to_vec(), ..AllOutcome::default() };
        assert!(verdict(&setup, &outcome).contains("one in 100 schedules"));
        outcome.found.push(Found { judge: "soak".into(), subject: "x".into(), what: "y".into(), line: "z".into() });
        assert!(verdict(&setup, &outcome).starts_with("Do not rely"));
    }
}
