//! Soak: threads that use one instance at random for as long as asked, a process for each design.

use std::io;
use std::time::Duration;

use faultless_linux::space::has_interrupt;
use faultless_soak::{Report, Settings, Shortages, run_named};
use faultless_vm::registry::Unknown;
use serde_json::{Value, json};

use super::Found;
use super::child::{End, Trial, millis, words};

/// A run that has CPUs for longer than it was asked for by so much hangs.
const PATIENCE: Duration = Duration::from_secs(120);

/// What is to be run.
#[derive(Clone, Debug)]
pub struct SoakSetup {
    /// Designs by name.
    pub designs: Vec<String>,
    /// The semaphore beneath them.
    pub semaphore: String,
    /// With failing allocations, without, or one after the other.
    pub shortages: Vec<Shortages>,
    /// How long each run takes: each design, with and without shortages.
    pub duration: Duration,
    /// Draws each thread's choices.
    pub seed: u64,
    /// Threads.
    pub nr_threads: usize,
    /// CPU slots.
    pub nr_cpus: usize,
    /// Memory of the instance.
    pub memory_bytes: usize,
}

/// A run that is over.
#[derive(Clone, Debug)]
pub struct SoakRow {
    /// The design.
    pub design: String,
    /// Whether allocations failed.
    pub shortages: Shortages,
    /// What it did, unless it found something or was interrupted before its first round was over.
    pub report: Option<Value>,
}

/// What came of all runs.
#[derive(Clone, Debug, Default)]
pub struct SoakOutcome {
    /// The runs, in turn.
    pub rows: Vec<SoakRow>,
    /// What must not be.
    pub found: Vec<Found>,
    /// Whether an interrupt left something out.
    pub was_interrupted: bool,
}

/// Returns the name of a choice.
pub fn shortages_name(shortages: Shortages) -> &'static str {
    match shortages {
        Shortages::None => "none",
        Shortages::Injected => "injected",
    }
}

/// Runs each design in a process of its own; `begun` hears of each.
///
/// # Errors
/// If a process can't be started.
pub fn run(setup: &SoakSetup, begun: &dyn Fn(&str)) -> io::Result<SoakOutcome> {
    let mut outcome = SoakOutcome::default();
    for design in &setup.designs {
        for &shortages in &setup.shortages {
            if has_interrupt() {
                break;
            }
            begun(&format!("{design}, shortages {}", shortages_name(shortages)));
            run_one(setup, design, shortages, &mut outcome)?;
        }
    }
    outcome.was_interrupted = has_interrupt();
    Ok(outcome)
}

fn run_one(setup: &SoakSetup, design: &str, shortages: Shortages, outcome: &mut SoakOutcome) -> io::Result<()> {
    let trial = setup.trial(design, shortages);
    let end = trial.run()?;
    let report = if let End::Done(report) = &end { Some(report.clone()) } else { None };
    outcome.rows.push(SoakRow { design: design.to_owned(), shortages, report });
    if !matches!(end, End::Done(_) | End::Interrupted) {
        let line = setup.line(design, shortages);
        outcome.found.push(Found { judge: "soak".into(), subject: design.into(), what: end.to_string(), line });
    }
    Ok(())
}

impl SoakSetup {
    fn words(&self, design: &str, shortages: Shortages) -> Vec<String> {
        let options = [
            ("--design", design.to_owned()),
            ("--semaphore", self.semaphore.clone()),
            ("--shortages", shortages_name(shortages).to_owned()),
            ("--duration", millis(self.duration)),
            ("--seed", self.seed.to_string()),
            ("--threads", self.nr_threads.to_string()),
            ("--cpus", self.nr_cpus.to_string()),
            ("--memory", self.memory_bytes.to_string()),
        ];
        words("soak", options)
    }

    fn line(&self, design: &str, shortages: Shortages) -> String {
        format!("faultless {}", self.words(design, shortages).join(" "))
    }

    fn trial(&self, design: &str, shortages: Shortages) -> Trial {
        let mut arguments = self.words(design, shortages);
        arguments.push("--in-process".into());
        Trial { arguments, patience: self.duration + PATIENCE }
    }

    /// Runs the first design in this process; an interrupt ends it after the round.
    ///
    /// # Errors
    /// If there is no such design or semaphore.
    ///
    /// # Panics
    /// With what was seen, if a promise is broken.
    pub fn run_here(&self) -> Result<Value, Unknown> {
        let settings = Settings {
            seed: self.seed,
            duration: self.duration,
            nr_threads: self.nr_threads,
            nr_cpus: self.nr_cpus,
            memory_bytes: self.memory_bytes,
            shortages: self.shortages.first().copied().unwrap_or(Shortages::None),
            is_stopped: &has_interrupt,
        };
        let design = self.designs.first().ok_or(Unknown::Design)?;
        run_named(design, &self.semaphore, &settings).map(|report| value(&report))
    }
}

fn value(report: &Report) -> Value {
    let events: serde_json::Map<String, Value> =
        report.events.iter().map(|&(name, count)| (name.to_owned(), count.into())).collect();
    json!({
        "rounds": report.rounds,
        "operations": report.operations,
        "shortages": report.shortages,
        "events": events,
    })
}
