//! Which figures of several sets belong together.

use std::collections::HashSet;
use std::fmt;

use super::{Change, CompareError, ComparedGroup, Figures, Row, Source, direction};
use crate::{Measured, Mode, ResultSet};

/// The metric that is shown for each worker.
const THROUGHPUT: &str = "ops_per_s";

/// What may tell sets apart as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dimension {
    /// The design.
    Design,
    /// The semaphore.
    Semaphore,
    /// The number of CPUs.
    Cpus,
}

impl Dimension {
    const ALL: [Self; 3] = [Self::Design, Self::Semaphore, Self::Cpus];

    fn of(self, result: &Measured) -> String {
        match self {
            Self::Design => result.design.clone(),
            Self::Semaphore => result.semaphore_name().to_owned(),
            Self::Cpus => result.cpus.to_string(),
        }
    }
}

impl fmt::Display for Dimension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Design => "design",
            Self::Semaphore => "semaphore",
            Self::Cpus => "cpus",
        })
    }
}

/// A workload and how it ran; what the sets are about is left out.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// The workload.
    pub workload: String,
    /// How its workers share memory.
    pub mode: Mode,
    /// The design.
    pub design: Option<String>,
    /// The semaphore.
    pub semaphore: Option<String>,
    /// The number of CPUs.
    pub cpus: Option<String>,
    /// The number of workers, where it is not one for each CPU.
    pub workers: Option<usize>,
}

impl Key {
    fn of(result: &Measured, ignored: &[Dimension]) -> Self {
        let known = |dimension: Dimension| (!ignored.contains(&dimension)).then(|| dimension.of(result));
        Self {
            workload: result.workload.clone(),
            mode: result.mode,
            design: known(Dimension::Design),
            semaphore: known(Dimension::Semaphore),
            cpus: known(Dimension::Cpus),
            // Of a program with so many workers for each CPU, their number is what the CPUs' number is.
            workers: result.workers.filter(|_| !ignored.contains(&Dimension::Cpus)),
        }
    }

    /// Returns the names of the key's parts.
    pub fn names(&self) -> String {
        let parts = [("design", &self.design), ("semaphore", &self.semaphore), ("cpus", &self.cpus)];
        let known = parts.into_iter().filter(|(_, part)| part.is_some()).map(|(name, _)| name);
        let workers = self.workers.map(|_| "workers");
        ["testcase", "mode"].into_iter().chain(known).chain(workers).collect::<Vec<_>>().join("/")
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.workload, self.mode)?;
        let known = [&self.design, &self.semaphore, &self.cpus].into_iter().flatten();
        known.into_iter().try_for_each(|part| write!(f, "/{part}"))?;
        self.workers.map_or(Ok(()), |workers| write!(f, "/{workers}"))
    }
}

/// A set's figures, with what they belong to.
pub(super) type Table = Vec<(Key, Figured)>;

/// A metric of a set.
pub(super) struct Figured {
    metric: String,
    unit: String,
    figures: Figures,
}

/// Returns the dimensions of which every set has one value, but not all the same.
pub(super) fn differing(sources: &[Source]) -> Vec<(Dimension, Vec<String>)> {
    let values = |dimension: Dimension| -> Option<Vec<String>> {
        sources.iter().map(|source| only_value(&source.set, dimension)).collect()
    };
    let found = Dimension::ALL.into_iter().filter_map(|dimension| Some((dimension, values(dimension)?)));
    found.filter(|(_, values)| values.iter().any(|value| *value != values[0])).collect()
}

fn only_value(set: &ResultSet, dimension: Dimension) -> Option<String> {
    let mut values = set.results.iter().map(|result| dimension.of(result));
    let first = values.next()?;
    values.all(|value| value == first).then_some(first)
}

/// Returns a set's figures; throughput as that of each worker.
pub(super) fn table(set: &ResultSet, ignored: &[Dimension]) -> Table {
    let rows = set.results.iter().filter_map(|result| Some((Key::of(result, ignored), figured(result)?)));
    rows.collect()
}

fn figured(result: &Measured) -> Option<Figured> {
    let (metric, divisor) = match (result.metric.as_str(), result.mode) {
        (THROUGHPUT, Mode::Threads) => ("per_thread_ops", result.nr_workers() as f64),
        (THROUGHPUT, Mode::Processes) => ("per_process_ops", result.nr_workers() as f64),
        (other, _) => (other, 1.0),
    };
    let samples = result.samples.iter().map(|sample| sample / divisor).collect();
    Some(Figured {
        metric: metric.into(),
        unit: result.unit.clone(),
        figures: Figures::new(samples, result.has_converged())?,
    })
}

fn find<'a>(table: &'a Table, key: &Key, wanted: &Figured) -> Option<&'a Figures> {
    let is_same =
        |(its, figured): &&(Key, Figured)| its == key && figured.metric == wanted.metric && figured.unit == wanted.unit;
    table.iter().find(is_same).map(|(_, figured)| &figured.figures)
}

/// Refuses sets that share nothing with the base.
pub(super) fn check(sources: &[Source], tables: &[Table]) -> Result<(), CompareError> {
    for (source, table) in sources.iter().zip(tables).skip(1) {
        if !tables[0].iter().any(|(key, figured)| find(table, key, figured).is_some()) {
            return Err(CompareError::NothingInCommon {
                base: sources[0].label.clone(),
                base_has: described(&tables[0]),
                head: source.label.clone(),
                head_has: described(table),
            });
        }
    }
    Ok(())
}

fn described(table: &Table) -> Vec<String> {
    distinct(table.iter().map(|(key, figured)| format!("{key} {}", figured.metric)))
}

fn distinct<T: Clone + Eq + std::hash::Hash>(values: impl Iterator<Item = T>) -> Vec<T> {
    let mut seen = HashSet::new();
    values.filter(|value| seen.insert(value.clone())).collect()
}

/// Brings together what the base has in common with any other set, in the base's order.
pub(super) fn groups(tables: &[Table]) -> Vec<ComparedGroup> {
    let keys = distinct(tables[0].iter().map(|(key, _)| key.clone()));
    let rows = |key: &Key| {
        let base = tables[0].iter().filter(|(its, _)| its == key).map(|(_, figured)| figured);
        base.filter_map(|figured| row(key, figured, &tables[1..])).collect::<Vec<Row>>()
    };
    let groups = keys.into_iter().map(|key| ComparedGroup { rows: rows(&key), key });
    groups.filter(|group| !group.rows.is_empty()).collect()
}

fn row(key: &Key, base: &Figured, others: &[Table]) -> Option<Row> {
    let change = |table: &Table| find(table, key, base).map(|head| Change::new(&base.figures, head.clone()));
    let heads: Vec<Option<Change>> = others.iter().map(change).collect();
    heads.iter().any(Option::is_some).then(|| Row {
        metric: base.metric.clone(),
        unit: base.unit.clone(),
        direction: direction(&base.metric, &base.unit),
        base: base.figures.clone(),
        heads,
    })
}

/// Returns for each table what it shares with no other: of the base, with none; of the others, with the base.
pub(super) fn alone(tables: &[Table]) -> Vec<Vec<String>> {
    let is_alone = |place: usize, key: &Key, figured: &Figured| {
        let others = if place == 0 { &tables[1..] } else { &tables[..1] };
        others.iter().all(|other| find(other, key, figured).is_none())
    };
    let missing = |place: usize| {
        let lonely = tables[place].iter().filter(|(key, figured)| is_alone(place, key, figured));
        distinct(lonely.map(|(key, figured)| format!("{key} {}", figured.metric)))
    };
    (0..tables.len()).map(missing).collect()
}
