//! The published tables beside what a simulation of their machines says.
//!
//! # Guarantee
//! A simulated figure comes from the machine's file, the workload and the design alone. The published figures are read
//! by the printer in [`write()`] and by nothing else.
//!
//! # Rooms
//! `tables` is what was published, and what to run for it; `drawn` what machines as a guess may have them say;
//! `levels` the rates themselves; `own` a change on a patched kernel beside that kernel; `overheads` what two changes
//! from one base are to each other; [`kmap`] has the thread about kernel maps, whose figures are not rates of two
//! designs.

mod drawn;
pub mod kmap;
mod levels;
mod overheads;
mod own;
mod row;
mod tables;

use faultless_linux::space::has_interrupt;
use std::io::{self, Write};

use faultless_sim::Spec;
use faultless_workloads::{Spec as Workload, renderer_cpu_ns};
use serde_json::{Value, json};

use crate::measure::{
    Job, Length, MeasureError, Mode, PlacementPolicy, Run, SETTLED_AT_MOST_NS, once_simulated, shrunk,
};
use faultless_machine::simulated::in_parallel;
use faultless_pass::Replayer;
use faultless_results::{NOT_CONVERGED, columns};

pub use drawn::{Drawn, write_sensitivity};
pub use row::Row;
use row::sides;
pub use tables::{Case, Figure, TABLES, Table};

/// How long a run is, unless the case says.
const UNTIL_SETTLED: Length = Length::Settled { at_most_ns: SETTLED_AT_MOST_NS };

/// Before or after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Base,
    Head,
    /// The base's workload on the head's kernel.
    Own,
}

impl Side {
    /// Returns the workload, the design and its semaphore.
    fn of(self, case: &Case) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Base => (case.workload, case.base, case.base_semaphore),
            Self::Head => (case.head_workload.unwrap_or(case.workload), case.head, case.head_semaphore),
            Self::Own => (case.own_workload().unwrap_or(case.workload), case.head, case.head_semaphore),
        }
    }

    /// Returns the sides that a case has.
    fn all(case: &Case) -> &'static [Self] {
        if case.own_workload().is_some() { &[Self::Base, Self::Head, Self::Own] } else { &[Self::Base, Self::Head] }
    }
}

/// What stands above the fields of a row.
pub const HEADINGS: [&str; 24] = [
    "table",
    "workload",
    "cpus",
    "mode",
    "machine",
    "base",
    "head",
    "base_semaphore",
    "head_semaphore",
    "figure",
    "published_percent",
    "published_deviation",
    "ours_percent",
    "least_percent",
    "most_percent",
    "seeds",
    "ratio_of_changes",
    "sign_agrees",
    "interval_low_percent",
    "interval_high_percent",
    "draws",
    "reproduced",
    "own_kernel_published_percent",
    "own_kernel_percent",
];

/// Returns the tables whose names begin so.
pub fn matching(prefix: &str) -> Vec<&'static Table> {
    TABLES.iter().filter(|table| table.name.starts_with(prefix)).collect()
}

/// Runs a table: every case under both designs and all seeds, so many at once, each on the machine of its seed. An
/// interrupt ends it with the seeds that both designs have run under; cases without any are left out. One seed's runs
/// come before the next one's, so that an interrupt takes seeds from all cases alike. Recordings are replayed by
/// `replayer`.
pub fn run(
    table: &'static Table,
    replayer: &'static dyn Replayer,
    machine: impl Fn(&str, u64) -> Spec + Sync,
    seeds: std::ops::Range<u64>,
    jobs: usize,
    ended: impl FnMut(usize),
) -> Result<Vec<Row>, MeasureError> {
    let tasks = tasks(table, seeds);
    let mut ended = ended;
    let run = |&(case, side, seed): &Task| {
        let result = once_simulated(&machine(case.machine, seed), &job(case, side, replayer), seed, &has_interrupt);
        // A run that an interrupt cut short is shorter than the others.
        (!has_interrupt()).then_some(result)
    };
    let runs = in_parallel(jobs, &tasks, has_interrupt, run, |done, _| ended(done));
    let runs = runs.into_iter().map(|run| run.flatten().transpose());
    let runs: Vec<Option<Simulated>> = runs.collect::<Result<_, MeasureError>>()?;
    let mut place = 0;
    let rows = table.cases.iter().map(|case| {
        let sides = place..place + Side::all(case).len();
        place = sides.end;
        row(case, &runs.chunks(nr_runs(table)).map(|of_seed| &of_seed[sides.clone()]).collect::<Vec<_>>())
    });
    Ok(rows.filter(|row| !row.base.is_empty()).collect())
}

type Simulated = (Run, faultless_sim::Figures);

/// A case, on which side, under which seed.
type Task = (&'static Case, Side, u64);

/// Returns what a table has to run: all of one seed, and then all of the next.
fn tasks(table: &'static Table, seeds: std::ops::Range<u64>) -> Vec<Task> {
    let of_case = |case: &'static Case, seed| Side::all(case).iter().map(move |&side| (case, side, seed));
    seeds.flat_map(|seed| table.cases.iter().flat_map(move |case| of_case(case, seed))).collect()
}

/// Returns how many runs a table needs for each seed.
pub fn nr_runs(table: &Table) -> usize {
    table.cases.iter().map(|case| Side::all(case).len()).sum()
}

/// Returns the row of a case, from its runs on all its sides under each seed.
fn row(case: &'static Case, seeds: &[&[Option<Simulated>]]) -> Row {
    let complete: Vec<Vec<&Simulated>> =
        seeds.iter().filter_map(|sides| sides.iter().map(Option::as_ref).collect()).collect();
    let side = |side: usize| complete.iter().filter_map(|sides| sides.get(side).copied()).collect::<Vec<_>>();
    let [base, head, own] = [0, 1, 2].map(side);
    let of = |runs: &[&Simulated]| runs.iter().map(|(run, figures)| figure(case, run, figures)).collect();
    let has_converged = base.iter().chain(&head).chain(&own).all(|(run, _)| run.has_converged());
    let events = events(head.iter().map(|(run, _)| run));
    Row { case, base: of(&base), head: of(&head), own: of(&own), events, has_converged, drawn: None }
}

fn figure(case: &Case, run: &Run, figures: &faultless_sim::Figures) -> f64 {
    match case.figure {
        Figure::Rate => run.ops_per_s,
        Figure::Sleeps => figures.sleeps as f64 / run.ops.max(1) as f64,
        Figure::RendererSeconds => renderer_cpu_ns() as f64 / 1e9 + 1.0 / run.ops_per_s,
        Figure::ResidentKib => run.peak_rss_bytes.map_or(f64::NAN, |bytes| bytes as f64 / 1024.0),
    }
}

fn job(case: &Case, side: Side, replayer: &'static dyn Replayer) -> Job {
    let (workload, design, semaphore) = side.of(case);
    Job {
        spec: shrunk(Workload::parse(workload).expect("the tables name workloads")),
        design: design.to_owned(),
        semaphore: semaphore.to_owned(),
        cpus: case.cpus,
        mode: if case.processes { Mode::Processes } else { Mode::Threads },
        length: case.duration_ns.map_or(UNTIL_SETTLED, Length::Fixed),
        memory_bytes: None,
        placement: PlacementPolicy::Linux,
        replayer: Some(replayer),
    }
}

/// Returns how often each event of speculation happened, for a hundred faults.
fn events<'a>(runs: impl Iterator<Item = &'a Run> + Clone) -> Vec<(&'static str, f64)> {
    let count = |name: &str| -> u64 {
        let all = runs.clone().flat_map(|run| &run.counters);
        all.filter(|(known, _)| *known == name).map(|(_, count)| count).sum()
    };
    let faults = count("faults").max(1) as f64;
    let names = runs.clone().next().map_or(Vec::new(), |run| run.counters.iter().map(|(name, _)| *name).collect());
    let wanted = names.into_iter().filter(|name| *name == "spf" || name.starts_with("pagefault:"));
    wanted.map(|name| (name, count(name) as f64 * 100.0 / faults)).collect()
}

impl Row {
    fn cells(&self) -> Vec<String> {
        let case = self.case;
        let mode = if case.processes { "processes" } else { "threads" };
        let unknown = || "-".to_owned();
        let workload = case.workload;
        vec![
            case.head_workload.map_or_else(|| workload.to_owned(), |head| format!("{workload} > {head}")),
            format!("{} {mode}", case.cpus),
            case.machine.to_owned(),
            sides(case),
            case.figure.name().to_owned(),
            match case.published_deviation {
                Some(deviation) => format!("{:+.1} ± {deviation:.1} %", case.published_percent),
                None => format!("{:+.1} %", case.published_percent),
            },
            self.change().map_or_else(unknown, |change| format!("{change:+.1} %")),
            self.range().map_or_else(unknown, |(least, most)| format!("[{least:+.1}, {most:+.1}]")),
            self.ratio().map_or_else(unknown, |ratio| format!("{ratio:.2}")),
            match self.sign_agrees() {
                Some(agrees) => if agrees { "yes" } else { "NO" }.to_owned(),
                None if !self.has_converged => NOT_CONVERGED.to_owned(),
                None => unknown(),
            },
        ]
    }

    /// Returns the row under [`HEADINGS`], in plain numbers.
    pub fn fields(&self, table: &Table) -> Vec<String> {
        let case = self.case;
        let number = |figure: Option<f64>| figure.map_or_else(String::new, |figure| figure.to_string());
        let (least, most) = self.range().unzip();
        vec![
            table.name.to_owned(),
            case.workload.to_owned(),
            case.cpus.to_string(),
            if case.processes { "processes" } else { "threads" }.to_owned(),
            case.machine.to_owned(),
            case.base.to_owned(),
            case.head.to_owned(),
            case.base_semaphore.to_owned(),
            case.head_semaphore.to_owned(),
            case.figure.name().to_owned(),
            case.published_percent.to_string(),
            number(case.published_deviation),
            number(self.change()),
            number(least),
            number(most),
            self.base.len().to_string(),
            number(self.ratio()),
            self.sign_agrees().map_or_else(String::new, |agrees| if agrees { "yes" } else { "no" }.to_owned()),
        ]
        .into_iter()
        .chain(Drawn::fields(self.drawn.as_ref()))
        .chain([own::published(case), self.own_change()].map(number))
        .collect()
    }

    /// Returns the row for the machine-readable report.
    pub fn json(&self) -> Value {
        let case = self.case;
        let mut value = json!({
            "workload": case.workload, "cpus": case.cpus, "mode": if case.processes { "processes" } else { "threads" },
            "machine": case.machine, "base": case.base, "head": case.head,
            "head_workload": case.head_workload, "base_semaphore": case.base_semaphore, "head_semaphore": case.head_semaphore,
            "published_deviation": case.published_deviation, "figure": case.figure.name(),
            "published_percent": case.published_percent, "published_as": case.published_as,
            "ours_percent": self.change(), "ratio_of_changes": self.ratio(), "sign_agrees": self.sign_agrees(),
            "converged": self.has_converged,
            "base_samples": self.base, "head_samples": self.head,
            "events_per_100_faults": self.events.iter().map(|&(name, share)| (name, share)).collect::<std::collections::BTreeMap<_, _>>(),
        });
        self.drawn.iter().for_each(|drawn| drawn.add_to(&mut value));
        value["levels"] = levels::json(self).unwrap_or_default();
        value["own_kernel"] = own::json(self).unwrap_or_default();
        value
    }
}

/// Writes a table for people.
pub fn write(table: &Table, rows: &[Row], out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    writeln!(out, "{}: {}\nsource    {}\n", table.name, table.about, table.source)?;
    if rows.iter().any(|row| row.drawn.is_some()) {
        drawn::write(rows, out)?;
        levels::write(rows, out)?;
        own::write(rows, out)?;
        overheads::write(rows, out)?;
        return table.left_out.iter().try_for_each(|left_out| writeln!(out, "\nleft out: {left_out}"));
    }
    let headings =
        ["workload", "CPUs", "machine (simulated)", "designs", "figure", "published", "ours", "seeds", "ratio", "sign"];
    let mut cells = vec![headings.map(String::from).to_vec()];
    cells.extend(rows.iter().map(Row::cells));
    columns::write(&cells, out)?;
    levels::write(rows, out)?;
    own::write(rows, out)?;
    overheads::write(rows, out)?;
    for row in rows.iter().filter(|row| !row.case.published_events.is_empty()) {
        writeln!(
            out,
            "\nevents of {} on {} in a hundred faults: published / ours",
            row.case.workload, row.case.machine
        )?;
        for (name, share) in row.case.published_events {
            let ours = row.events.iter().find(|(known, _)| known == name).map_or(0.0, |&(_, share)| share);
            writeln!(out, "  {name:<28} {share:>7.2} / {ours:>7.2}")?;
        }
    }
    table.left_out.iter().try_for_each(|left_out| writeln!(out, "\nleft out: {left_out}"))?;
    writeln!(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultless_machine::designs::{DESIGNS, SEMAPHORES};

    #[test]
    fn an_interrupt_takes_seeds_from_all_cases_alike() {
        for table in TABLES.iter().filter(|table| !table.cases.is_empty()) {
            let tasks = tasks(table, 5..8);
            let places: Vec<Vec<(*const Case, Side)>> = tasks
                .chunks(nr_runs(table))
                .map(|of_seed| of_seed.iter().map(|&(case, side, _)| (std::ptr::from_ref(case), side)).collect())
                .collect();
            assert!(places.len() == 3 && places.iter().all(|seed| *seed == places[0]), "{}", table.name);
            let seeds: Vec<u64> = tasks.iter().map(|task| task.2).collect();
            assert!(seeds.is_sorted() && seeds[0] == 5 && seeds.ends_with(&[7]), "{}: {seeds:?}", table.name);
        }
    }

    #[test]
    fn the_tables_name_machines_workloads_and_designs_that_there_are() {
        for case in TABLES.iter().flat_map(|table| table.cases) {
            let machine = Spec::preset(case.machine).expect("a preset");
            assert!(case.cpus <= machine.nr_cpus(), "{}", case.workload);
            assert!(Workload::parse(case.workload).is_ok(), "{}", case.workload);
            assert!(case.head_workload.is_none_or(|text| Workload::parse(text).is_ok()), "{}", case.workload);
            assert!(DESIGNS.contains(&case.base) && DESIGNS.contains(&case.head), "{}", case.head);
            assert!([case.base_semaphore, case.head_semaphore].iter().all(|name| SEMAPHORES.contains(name)));
        }
        assert_eq!(matching("spf").len() + matching("refpage").len() + matching("rwsem-2013").len(), TABLES.len());
        let lines = matching("rwsem-2013").iter().map(|table| table.cases.len()).collect::<Vec<_>>();
        assert_eq!(lines, [5 * 3, 8 * 2, 8 * 2, 8 * 3]);
        assert_eq!(matching("spf-2018-l").len(), 1);
        assert!(matching("nothing").is_empty());
    }

    #[test]
    fn changes_are_compared_by_their_factors_and_their_signs() {
        let case = &TABLES[0].cases[0];
        let published = 1.0 + case.published_percent / 100.0;
        let row = |head: f64| Row {
            case,
            base: vec![1.0; 3],
            head: vec![head; 3],
            own: Vec::new(),
            events: Vec::new(),
            has_converged: true,
            drawn: None,
        };
        assert!((row(published).ratio().expect("a ratio") - 1.0).abs() < 1e-9);
        assert_eq!(row(published).sign_agrees(), Some(true));
        assert_eq!(row(1.0 / published).sign_agrees(), Some(false));
        assert_eq!(row(1.001).sign_agrees(), Some(false), "less than a percent is no change");
        let moving = Row { has_converged: false, ..row(published) };
        assert_eq!((moving.sign_agrees(), moving.cells().last().map(String::as_str)), (None, Some(NOT_CONVERGED)));
    }
}
