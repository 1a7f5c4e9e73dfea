//! A result set: what a command that measures found out, in the schema `faultless/1`.
//!
//! # Guarantee
//! Every sample is kept, in base units (ns, bytes, operations per second). What another version of the program wrote
//! beside the fields named here stays in `more`, and is written back.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::stats::Histogram;

/// The schema of result sets, as their first key names it.
pub const SCHEMA: &str = "faultless/1";

/// The key that says whether an interrupt came before all was measured.
const INTERRUPTED: &str = "interrupted";

/// The key of what workloads do, by their names: `does`, what an `operation` is, and `region_bytes` if that is not as
/// `does` says.
pub const ABOUT: &str = "about";

/// The key that says of each run whether its rates had converged; not there where so much time was asked for.
pub const CONVERGED: &str = "converged";

/// The key of a latency metric's whole distribution, all runs together: pairs of nanoseconds and how often they were
/// counted.
pub const DISTRIBUTION: &str = "distribution_ns";

/// The key of where the workers' time went, of all runs of a simulated machine together.
pub const PROFILE: &str = "profile";

/// The key of the designs that no verdict compares with others, because they did not do the same work.
pub const UNCOMPARED: &str = "uncompared";

/// The key that says how much is there then.
const PARTIAL: &str = "partial";

/// What a command found out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResultSet {
    /// [`SCHEMA`].
    pub schema: String,
    /// The subcommand that measured.
    pub command: String,
    /// The commit that the program was built from.
    pub commit: String,
    /// What drew the order of runs, or a simulated machine's first seed.
    pub seed: u64,
    /// Where it was measured.
    pub machine: MachineInfo,
    /// What else a command says about the whole.
    #[serde(flatten)]
    pub more: Map<String, Value>,
    /// The figures.
    pub results: Vec<Measured>,
    /// What was checked meanwhile.
    #[serde(default)]
    pub checks: Map<String, Value>,
}

/// A machine, as results name it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MachineInfo {
    /// `native`, or the name of a simulated machine.
    pub name: String,
    /// Whether the figures are a simulation's.
    pub simulated: bool,
    /// How many CPUs it has.
    pub cpus: usize,
    /// The processor's name; empty if unknown.
    #[serde(default)]
    pub model: String,
    /// The host kernel's release; empty if unknown.
    #[serde(default)]
    pub kernel: String,
    /// What else is known of it: a simulated machine's parameters.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// How workers share memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Threads of one address space.
    Threads,
    /// One address space each.
    Processes,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mode::Threads => "threads",
            Mode::Processes => "processes",
        })
    }
}

/// The samples of one metric of one workload under one design.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The workload, or the trace.
    pub workload: String,
    /// How its workers share memory.
    pub mode: Mode,
    /// The design.
    pub design: String,
    /// The semaphore beneath it; the host's kernel has its own.
    #[serde(default)]
    pub semaphore: Option<String>,
    /// How many CPUs it ran on.
    pub cpus: usize,
    /// How many threads or processes ran, where it is not one for each CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers: Option<usize>,
    /// What was measured.
    pub metric: String,
    /// In which unit.
    pub unit: String,
    /// A figure for each run.
    pub samples: Vec<f64>,
    /// Events of all runs together.
    #[serde(default)]
    pub counters: BTreeMap<String, u64>,
    /// What else is known, such as which runs were disturbed.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// What a result's flags stand under in [`Measured::more`].
pub const PARAMS: &str = "params";

/// Returns the flags of a workload, as they were typed, by name; one without a value is `true`.
pub fn params(workload: &str) -> Map<String, Value> {
    let mut words = workload.split_whitespace().skip(1).peekable();
    let mut params = Map::new();
    while let Some(flag) = words.next() {
        let value = words.next_if(|word| !word.starts_with('-'));
        let number = value.and_then(|value| Some(Value::from(value.parse::<u64>().ok()?)));
        let value = number.or_else(|| value.map(Value::from)).unwrap_or(Value::Bool(true));
        params.insert(flag.trim_start_matches('-').into(), value);
    }
    params
}

impl Measured {
    /// Returns whether the rates of all runs had settled, where they were to.
    pub fn has_converged(&self) -> bool {
        let runs = self.more.get(CONVERGED).and_then(Value::as_array);
        runs.is_none_or(|runs| runs.iter().all(|run| run != &Value::Bool(false)))
    }

    /// Returns the whole distribution of what a latency is of, all runs together; nothing if the set does not hold it.
    pub fn distribution(&self) -> Option<Histogram> {
        let pair = |pair: &Value| Some((pair.get(0)?.as_u64()?, pair.get(1)?.as_u64()?));
        let histogram = Histogram::from_pairs(self.more.get(DISTRIBUTION)?.as_array()?.iter().filter_map(pair));
        (histogram.total() > 0).then_some(histogram)
    }
}

impl ResultSet {
    /// Returns a set without results, of this build.
    pub fn new(command: &str, seed: u64, machine: MachineInfo) -> Self {
        Self {
            schema: SCHEMA.into(),
            command: command.into(),
            commit: commit().into(),
            seed,
            machine,
            more: Map::new(),
            results: Vec::new(),
            checks: Map::new(),
        }
    }

    /// Marks the set as what was there when an interrupt came; `what` says how much that is.
    pub fn mark_interrupted(&mut self, what: impl fmt::Display) {
        self.more.insert(INTERRUPTED.into(), true.into());
        self.more.insert(PARTIAL.into(), what.to_string().into());
    }

    /// Returns whether an interrupt came before all was measured.
    pub fn is_interrupted(&self) -> bool {
        self.more.get(INTERRUPTED) == Some(&true.into())
    }

    /// Returns how much of what was asked for is there, if an interrupt left some of it out and the report does not say
    /// so.
    pub fn partial(&self) -> Option<&str> {
        self.more.get(PARTIAL).and_then(Value::as_str)
    }

    /// Returns how many runs are marked as disturbed; each counts once, however many metrics it has.
    pub fn nr_disturbed(&self) -> usize {
        let mut runs: BTreeMap<[String; 5], usize> = BTreeMap::new();
        for result in &self.results {
            let marks = result.more.get("disturbed").and_then(Value::as_array).into_iter().flatten();
            let nr_marks = marks.filter(|mark| **mark == Value::Bool(true)).count();
            let Measured { workload, mode, design, cpus, .. } = result;
            let semaphore = result.semaphore_name().to_owned();
            runs.insert([workload.clone(), mode.to_string(), design.clone(), semaphore, cpus.to_string()], nr_marks);
        }
        runs.values().sum()
    }
}

impl fmt::Display for MachineInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.simulated { " (simulated)" } else { "" };
        write!(f, "{}{kind}, {} CPUs", self.name, self.cpus)?;
        for (title, part) in [("", &self.model), ("Linux ", &self.kernel)] {
            if !part.is_empty() {
                write!(f, ", {title}{part}")?;
            }
        }
        Ok(())
    }
}

impl Measured {
    /// Returns how many workers ran.
    pub fn nr_workers(&self) -> usize {
        self.workers.unwrap_or(self.cpus).max(1)
    }

    /// Returns the semaphore's name, or what stands for none.
    pub fn semaphore_name(&self) -> &str {
        self.semaphore.as_deref().unwrap_or("-")
    }
}

/// Returns the commit that this was built from.
pub fn commit() -> &'static str {
    env!("FAULTLESS_COMMIT")
}
