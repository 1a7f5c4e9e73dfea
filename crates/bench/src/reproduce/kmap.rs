//! The thread of March 2002 about `kmap_lock`, beside a simulated compile with page tables in high memory.
//!
//! # Guarantee
//! As of the other tables: a simulated figure comes from the machine's file and the workload alone, and nothing but the
//! printer reads the thread's. Both sides are compared by their changes from the first run, because the thread compiled
//! a kernel, and ours is a recorded build of eight small files, one on each CPU, with its computing as recorded on a
//! machine of 2026. As in a build of a kernel, compilers come and go all the time, so that slots are dealt out again:
//! one long compiler on each CPU keeps its tables and their slots to the end, and holds the lock as long with many
//! waiters as with few (docs/log/2026-11-26-kmap-2002.md). Builds begin one after the other: if nobody waited for the
//! lock, a third of the CPUs' time would be idle; 15 and 18 % are in the thread's profiles. The lock is metered as
//! lockmeter did it, because the thread's figures come from a kernel with lockmeter. Maps that nobody keeps over a
//! sleep are in slots of a CPU's own, beside the pool, as there (A. Arcangeli, linux-kernel, 16 January 2002,
//! pte-highmem-5): those of calls that empty or weaken entries, and of pages that a fault clears, fills or copies.

use std::io::{self, Write};
use std::ops::Range;

use faultless_kmap::Costs;
use faultless_machine::designs::DEFAULT_SEMAPHORE;
use faultless_machine::simulated::Spec;
use faultless_pass::Replayer;
use faultless_plan::Pace;
use faultless_results::columns;
use faultless_results::stats::median;
use faultless_workloads::Spec as Workload;
use serde_json::{Value, json};

use super::Drawn;
use crate::high::{self, Brief, DESIGN, HighArm, Lies, Made, Memory, Sources, Start};
use crate::measure::{MeasureError, Mode};
use crate::spread::{Draws, strongest};

/// The table's name.
pub const NAME: &str = "kmap-2002";
/// What it is about.
pub const ABOUT: &str = "a compile with page tables in high memory on 16 CPUs, a pool of kernel maps behind kmap_lock";
/// The machine.
pub const MACHINE: &str = "numaq-16";
/// Runs under each seed.
pub const RUNS: usize = SUBJECTS.len();

const SOURCE: &str = "linux-kernel, March 2002, \"Scalability problem (kmap_lock) with -aa kernels\" (M. J. Bligh)";
const CPUS: usize = 16;
const LOCK: &str = "kmap_lock";

/// What runs.
struct KmapSubject {
    name: &'static str,
    tables: bool,
    slots: usize,
}

const SUBJECTS: [KmapSubject; 4] = [
    KmapSubject { name: "tables high, 1024 slots", tables: true, slots: 1024 },
    KmapSubject { name: "tables high, 128 slots", tables: true, slots: 128 },
    KmapSubject { name: "tables normal, 128 slots", tables: false, slots: 128 },
    KmapSubject { name: "tables normal, 512 slots (mainline)", tables: false, slots: 512 },
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KmapFigure {
    Time,
    Maps,
    Utilisation,
    Hold,
    Wait,
    Contention,
}

impl KmapFigure {
    const fn name(self) -> &'static str {
        match self {
            Self::Time => "time of the compile, s",
            Self::Maps => "maps, thousands",
            Self::Utilisation => "kmap_lock held, %",
            Self::Hold => "kmap_lock hold, us",
            Self::Wait => "kmap_lock wait, us",
            Self::Contention => "kmap_lock found taken, %",
        }
    }

    fn of(self, made: &Made) -> f64 {
        let row = made.locks.locks.iter().find(|row| row.name == LOCK);
        let lock = row.map(|row| row.figures).unwrap_or_default();
        match self {
            Self::Time => made.run.elapsed_ns as f64 / 1e9,
            Self::Maps => made.counted.maps as f64 / 1e3,
            Self::Utilisation => made.locks.utilisation(&lock) * 100.0,
            Self::Hold => lock.mean_hold_ns() / 1e3,
            Self::Wait => lock.mean_wait_ns() / 1e3,
            Self::Contention => lock.contention() * 100.0,
        }
    }
}

/// A figure of the thread.
#[derive(Debug)]
struct KmapCase {
    /// The number of the run in `SUBJECTS`.
    subject: usize,
    figure: KmapFigure,
    published: f64,
    /// What the thread has for the first run, measured in the same way.
    published_base: f64,
    /// Whether the thread's two figures are of two kernels that differ in more than this.
    is_other_kernel: bool,
}

const fn case(subject: usize, figure: KmapFigure, published: f64, published_base: f64) -> KmapCase {
    // Mainline 2.4.18 against 2.4.19-pre1-aa1.
    KmapCase { subject, figure, published, published_base, is_other_kernel: subject == 3 }
}

const CASES: [KmapCase; 22] = [
    case(0, KmapFigure::Time, 40.0, 40.0),
    case(0, KmapFigure::Maps, 1275.907, 1275.907),
    case(0, KmapFigure::Utilisation, 33.4, 33.4),
    case(0, KmapFigure::Hold, 5.4, 5.4),
    case(0, KmapFigure::Wait, 155.0, 155.0),
    case(0, KmapFigure::Contention, 63.5, 63.5),
    case(1, KmapFigure::Time, 43.0, 40.0),
    case(1, KmapFigure::Maps, 1301.358, 1275.907),
    case(1, KmapFigure::Utilisation, 35.5, 33.4),
    case(1, KmapFigure::Hold, 6.0, 5.4),
    case(1, KmapFigure::Wait, 171.0, 155.0),
    case(1, KmapFigure::Contention, 67.9, 63.5),
    case(2, KmapFigure::Maps, 346.193, 1275.907),
    case(2, KmapFigure::Utilisation, 3.4, 33.4),
    case(2, KmapFigure::Hold, 1.4, 5.4),
    case(2, KmapFigure::Wait, 31.0, 155.0),
    case(2, KmapFigure::Contention, 4.1, 63.5),
    case(3, KmapFigure::Time, 26.5, 35.0),
    case(3, KmapFigure::Maps, 358.022, 1275.907),
    case(3, KmapFigure::Utilisation, 1.6, 33.4),
    case(3, KmapFigure::Hold, 0.5, 5.4),
    case(3, KmapFigure::Wait, 28.0, 155.0),
];

/// A case with what came out.
#[derive(Debug)]
pub struct KmapRow {
    case: &'static KmapCase,
    /// Ours under each seed.
    ours: Vec<f64>,
    /// Ours of the first run, under each seed.
    base: Vec<f64>,
    /// What drawn machines say of the change, if each seed had one of its own.
    drawn: Option<Drawn>,
}

/// Runs the table, so many runs at once. An interrupt ends it with the seeds under which all has run.
pub fn run(
    machine: &Spec,
    replayer: &'static dyn Replayer,
    seeds: Range<u64>,
    jobs: usize,
    ended: impl FnMut(usize),
) -> Result<Vec<KmapRow>, MeasureError> {
    let workload = Workload::parse("compile").map_err(|error| MeasureError::Message(error.to_string()))?;
    let arm = |subject: &KmapSubject| {
        let lies = Lies { tables: subject.tables, files: true, anonymous: true, ..Lies::default() };
        let high = Memory {
            lies,
            boundary_bytes: None,
            scheme: "pool".into(),
            slots: subject.slots,
            costs: Costs::default(),
            is_metered: true,
            brief: Brief::OwnSlot,
        };
        HighArm {
            workload: workload.clone(),
            duration_ns: 1,
            mode: Mode::Processes,
            high: Some(high),
            cpus: CPUS,
            pace: Pace::Recorded,
            start: Start::Spread,
            sources: Sources::Small,
            design: DESIGN.into(),
            semaphore: DEFAULT_SEMAPHORE.into(),
            replayer,
        }
    };
    let runs = high::run(machine, &SUBJECTS.each_ref().map(arm), seeds, jobs, ended)?;
    Ok(rows(&runs))
}

/// As [`run`], under each seed on a machine of its own draw.
pub fn run_drawn(
    draws: &Draws,
    replayer: &'static dyn Replayer,
    seeds: Range<u64>,
    jobs: usize,
    mut ended: impl FnMut(usize),
) -> Result<Vec<KmapRow>, MeasureError> {
    let mut all: Vec<KmapRow> = Vec::new();
    for (draw, seed) in seeds.enumerate() {
        let before = draw * RUNS;
        let rows = run(&draws.machine(draw), replayer, seed..seed + 1, jobs, |done| ended(before + done))?;
        match all.is_empty() {
            true => all = rows,
            false => all.iter_mut().zip(rows).for_each(|(row, more)| row.append(more)),
        }
    }
    all.iter_mut().for_each(|row| row.judge_by(draws));
    Ok(all)
}

fn rows(runs: &[Vec<Made>]) -> Vec<KmapRow> {
    let whole = runs.iter().map(Vec::len).min().unwrap_or(0);
    let of = |subject: usize, figure: KmapFigure| runs[subject][..whole].iter().map(|made| figure.of(made)).collect();
    let row = |case: &'static KmapCase| {
        let (ours, base) = (of(case.subject, case.figure), of(0, case.figure));
        KmapRow { case, ours, base, drawn: None }
    };
    if whole == 0 { Vec::new() } else { CASES.iter().map(row).collect() }
}

impl KmapRow {
    /// Returns how many seeds it has.
    pub fn nr_seeds(&self) -> usize {
        self.ours.len()
    }

    fn append(&mut self, more: Self) {
        self.ours.extend(more.ours);
        self.base.extend(more.base);
    }

    /// Takes each seed for a draw, in order; the first run has nothing to change from.
    fn judge_by(&mut self, draws: &Draws) {
        let factors: Vec<f64> = self.ours.iter().zip(&self.base).map(|(ours, base)| ours / base).collect();
        let published = self.case.published / self.case.published_base;
        self.drawn = if self.case.subject == 0 { None } else { Drawn::of(published, &factors, true, draws) };
    }

    /// Returns the published change from the first run, in percent; nothing for that one.
    fn published_change(&self) -> Option<f64> {
        (self.case.subject != 0).then(|| (self.case.published / self.case.published_base - 1.0) * 100.0)
    }

    /// Returns the median of our changes from the first run under the same seed, the least and the most.
    fn change(&self) -> Option<(f64, f64, f64)> {
        if self.case.subject == 0 {
            return None;
        }
        let changes: Vec<f64> =
            self.ours.iter().zip(&self.base).map(|(ours, base)| (ours / base - 1.0) * 100.0).collect();
        let least = changes.iter().copied().fold(f64::MAX, f64::min);
        let most = changes.iter().copied().fold(f64::MIN, f64::max);
        Some((median(&changes)?, least, most))
    }

    /// Says whether both changes go the same way; less than 1 % is no way.
    fn sign_agrees(&self) -> Option<bool> {
        let way = |percent: f64| if percent.abs() < 1.0 { 0 } else { percent.signum() as i32 };
        Some(way(self.published_change()?) == way(self.change()?.0))
    }

    fn cells(&self) -> Vec<String> {
        let case = self.case;
        let dash = || "-".to_owned();
        vec![
            SUBJECTS[case.subject].name.to_owned(),
            case.figure.name().to_owned(),
            format!("{:.1}", case.published),
            median(&self.ours).map_or_else(dash, |ours| format!("{ours:.2}")),
            self.published_change().map_or_else(dash, |change| format!("{change:+.1} %")),
            self.change().map_or_else(dash, |(change, ..)| format!("{change:+.1} %")),
            self.change().map_or_else(dash, |(_, least, most)| format!("[{least:+.1}, {most:+.1}]")),
            match self.sign_agrees() {
                None => dash(),
                Some(agrees) => {
                    let note = if case.is_other_kernel { " (two kernels)" } else { "" };
                    format!("{}{note}", if agrees { "yes" } else { "NO" })
                }
            },
        ]
        .into_iter()
        .chain(self.drawn.iter().flat_map(Drawn::cells))
        .collect()
    }

    /// Returns the row under [`super::HEADINGS`], in plain numbers.
    pub fn fields(&self) -> Vec<String> {
        let number = |figure: Option<f64>| figure.map_or_else(String::new, |figure| figure.to_string());
        let change = self.change();
        let ratio =
            change.zip(self.published_change()).map(|((ours, ..), published)| (100.0 + ours) / (100.0 + published));
        vec![
            NAME.to_owned(),
            "compile".to_owned(),
            CPUS.to_string(),
            "processes".to_owned(),
            MACHINE.to_owned(),
            SUBJECTS[0].name.to_owned(),
            SUBJECTS[self.case.subject].name.to_owned(),
            DEFAULT_SEMAPHORE.to_owned(),
            DEFAULT_SEMAPHORE.to_owned(),
            self.case.figure.name().to_owned(),
            number(self.published_change()),
            String::new(),
            number(change.map(|(change, ..)| change)),
            number(change.map(|(_, least, _)| least)),
            number(change.map(|(.., most)| most)),
            self.nr_seeds().to_string(),
            number(ratio),
            self.sign_agrees().map_or_else(String::new, |agrees| if agrees { "yes" } else { "no" }.to_owned()),
        ]
        .into_iter()
        .chain(Drawn::fields(self.drawn.as_ref()))
        .chain(<[String; 2]>::default())
        .collect()
    }

    /// Returns the row for the machine-readable report.
    pub fn json(&self) -> Value {
        let case = self.case;
        let mut value = json!({
            "run": SUBJECTS[case.subject].name, "figure": case.figure.name(), "machine": MACHINE, "cpus": CPUS,
            "published": case.published, "published_percent": self.published_change(), "two_kernels": case.is_other_kernel,
            "ours": median(&self.ours), "ours_percent": self.change().map(|(change, ..)| change),
            "sign_agrees": self.sign_agrees(), "samples": self.ours, "base_samples": self.base,
        });
        self.drawn.iter().for_each(|drawn| drawn.add_to(&mut value));
        value
    }
}

/// Writes the table for people.
pub fn write(rows: &[KmapRow], has_sensitivity: bool, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    writeln!(out, "{NAME}: {ABOUT}\nsource    {SOURCE}\nmachine   {MACHINE} (simulated), {CPUS} CPUs\n")?;
    let headings =
        ["run", "figure", "published", "ours", "change, published", "change, ours", "seeds", "sign"].map(String::from);
    let of_draws = if rows.iter().any(|row| row.drawn.is_some()) { &Drawn::headings()[..] } else { &[] };
    let headings = headings.into_iter().chain(of_draws.iter().cloned()).collect();
    let lines: Vec<Vec<String>> = std::iter::once(headings).chain(rows.iter().map(KmapRow::cells)).collect();
    columns::write(&lines, out)?;
    if has_sensitivity {
        writeln!(out, "\nwhich guessed number goes with each change (rank correlation over the draws):")?;
        for (row, drawn) in rows.iter().filter_map(|row| Some((row, row.drawn.as_ref()?))) {
            let (run, figure) = (SUBJECTS[row.case.subject].name, row.case.figure.name());
            writeln!(out, "  {run:<36} {figure:<24} {}", strongest(&drawn.sensitivity))?;
        }
    }
    writeln!(
        out,
        "\nchange: from the first run. The thread compiled a kernel, ours is a recorded build of eight small files on each CPU: sizes of
times and counts do not compare, changes do. The thread's maps with tables in normal memory are of file pages that calls read and
write, and of pages for the strings of each exec, and so are ours: those that strace saw the same program move. Builds begin one after the
other, and the lock is metered as by lockmeter. Mainline's figures are of another kernel than the other ones, and so are 35 against 26.5 s.\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_from_the_first_run_under_the_same_seed() {
        let row =
            |ours: &[f64]| KmapRow { case: &CASES[6], ours: ours.to_vec(), base: vec![2.0, 4.0, 4.0], drawn: None };
        let up = row(&[2.2, 4.4, 4.2]);
        assert_eq!(up.change().map(|(change, ..)| change.round()), Some(10.0));
        assert!(up.published_change().is_some_and(|change| (change - 7.5).abs() < 1e-9));
        assert_eq!(up.sign_agrees(), Some(true));
        assert_eq!(row(&[1.0, 2.0, 2.0]).sign_agrees(), Some(false));
        assert_eq!(row(&[2.001, 4.001, 4.001]).sign_agrees(), Some(false), "less than a percent is no change");
        assert_eq!(KmapRow { case: &CASES[0], ..up }.sign_agrees(), None, "the first run has nothing to change from");
    }

    #[test]
    fn drawn_machines_are_appended_and_judged_by_the_change() {
        let draws = Draws::new(&Spec::preset(MACHINE).expect("a preset"), 3, 1);
        let of =
            |case: usize, ours, base| KmapRow { case: &CASES[case], ours: vec![ours], base: vec![base], drawn: None };
        let mut row = of(6, 1.1, 1.0);
        row.append(of(6, 2.2, 2.0));
        row.append(of(6, 3.9, 3.0));
        row.judge_by(&draws);
        let told = row.json();
        assert_eq!(told["interval"]["draws"], 3);
        assert!(
            told["reproduced"].as_bool().is_some_and(|is| !is),
            "1.075 lies below all of them, and 1.28 is far off"
        );
        assert_eq!(
            (row.cells().len(), row.fields().len()),
            (8 + Drawn::headings().len(), super::super::HEADINGS.len())
        );
        let mut first = of(0, 1.0, 1.0);
        first.judge_by(&draws);
        assert!(first.json().get("interval").is_none(), "the first run has nothing to change from");
    }

    #[test]
    fn the_thread_s_own_ratios_come_out() {
        let of = |subject, figure| CASES.iter().find(|case| case.subject == subject && case.figure == figure);
        let mainline = of(3, KmapFigure::Maps).expect("a case");
        assert!((mainline.published_base / mainline.published - 3.56).abs() < 0.01, "3.5 times as many maps");
        assert!(CASES.iter().all(|case| case.is_other_kernel == (case.subject == 3)));
        assert_eq!(CASES.iter().filter(|case| case.subject == 0 && case.published == case.published_base).count(), 6);
    }
}
