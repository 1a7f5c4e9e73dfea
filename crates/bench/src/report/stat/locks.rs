//! The table of lockmeter, the kernel's lock meter of 2002: a line for each lock, and beneath it one for each caller.
//!
//! # Columns
//! UTIL the share of the run in which the lock was held (of several locks of one name, and of several readers, their
//! sum); CON the share of attempts that found it taken; HOLD and WAIT mean and longest, WAIT of those who waited; % CPU
//! the share of all CPUs' time that waiting took; TOTAL attempts, of which NOWAIT, WAIT and RJECT: had it at once,
//! waited, went away.

use std::collections::BTreeMap;
use std::io::{self, Write};

use crate::stat::StatArmResult;
use faultless_machine::watch::{Figures, LockTable};
use faultless_results::columns::{self, right, width};
use faultless_results::grouped;
use faultless_results::screen;
use faultless_results::stats::summarize;

const HEADINGS: [&str; 2] = [
    "   UTIL    CON      HOLD               WAIT",
    "                    MEAN(   MAX )      MEAN(   MAX )(% CPU)          TOTAL NOWAIT   WAIT  RJECT  NAME",
];

/// A lock or a caller, in all runs together.
pub(super) struct Line {
    /// The lock.
    pub(super) lock: String,
    /// The caller; nothing for all of them.
    pub(super) caller: Option<String>,
    /// The sums over all runs.
    pub(super) figures: Figures,
    /// Run by run: figures, and the run they are of.
    pub(super) runs: Vec<(Figures, usize)>,
}

/// Writes the table of an arm.
pub(super) fn write_locks(arm: &StatArmResult, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    let tables = tables(arm);
    let lines = lines(&tables);
    let total = LockTable {
        elapsed_ns: tables.iter().map(|table| table.elapsed_ns).sum(),
        cpus: arm.arm.cpus,
        locks: Vec::new(),
    };
    let shown: Vec<String> = lines.iter().map(|line| shown(&total, line, &tables)).collect();
    if shown.iter().any(|line| width(line) > screen::get().columns) {
        columns::write(&apart(&total, &lines), out)?;
    } else {
        HEADINGS.iter().try_for_each(|heading| writeln!(out, "{heading}"))?;
        shown.iter().try_for_each(|line| writeln!(out, "{line}"))?;
    }
    writeln!(
        out,
        "\nUTIL: share of the run held, summed over locks of one name and over readers; % CPU: waiting, spinning or asleep, as a \
         share of all CPUs' time; times include what watching takes"
    )
}

/// Returns the tables of an arm's runs.
pub(super) fn tables(arm: &StatArmResult) -> Vec<&LockTable> {
    arm.runs.iter().filter_map(|run| run.locks.as_ref()).collect()
}

/// Brings the same lock and caller of all runs together, the lock that is held longest first.
pub(super) fn lines(tables: &[&LockTable]) -> Vec<Line> {
    let mut found: BTreeMap<(String, Option<String>), Line> = BTreeMap::new();
    for (run, row) in tables.iter().enumerate().flat_map(|(run, table)| table.locks.iter().map(move |row| (run, row))) {
        let callers = row.callers.iter().map(|(caller, figures)| (Some(caller.clone()), *figures));
        for (caller, figures) in std::iter::once((None, row.figures)).chain(callers) {
            let line = found.entry((row.name.clone(), caller.clone())).or_insert_with(|| Line {
                lock: row.name.clone(),
                caller,
                figures: Figures::default(),
                runs: Vec::new(),
            });
            line.figures.add(&figures);
            line.runs.push((figures, run));
        }
    }
    let mut lines: Vec<Line> = found.into_values().collect();
    let held: BTreeMap<String, u64> = lines
        .iter()
        .filter(|line| line.caller.is_none())
        .map(|line| (line.lock.clone(), line.figures.hold_ns))
        .collect();
    // By lock, the whole before its callers, those before others that hold longer.
    lines.sort_by_cached_key(|line| {
        let own = if line.caller.is_none() { u64::MAX } else { line.figures.hold_ns };
        (std::cmp::Reverse(held[&line.lock]), line.lock.clone(), std::cmp::Reverse(own), line.caller.clone())
    });
    lines
}

/// Returns the same as a table that a narrow screen shows in parts, each with the lock's name in front.
fn apart(total: &LockTable, lines: &[Line]) -> Vec<Vec<String>> {
    let heads = ["NAME", "UTIL", "CON", "HOLD", "MAX", "WAIT", "MAX", "% CPU", "TOTAL", "NOWAIT", "WAITED", "RJECT"];
    let row = |line: &Line| {
        let figures = &line.figures;
        let of =
            |part: u64| percent(if figures.attempts() == 0 { 0.0 } else { part as f64 / figures.attempts() as f64 });
        vec![
            line.caller.as_ref().map_or(line.lock.clone(), |caller| format!("  {caller}")),
            percent(total.utilisation(figures)),
            percent(figures.contention()),
            time(figures.mean_hold_ns()),
            time(figures.longest_hold_ns as f64),
            if figures.waited == 0 { "0us".into() } else { time(figures.mean_wait_ns()) },
            time(figures.longest_wait_ns as f64),
            percent(total.cpu_share(figures)),
            grouped(figures.attempts()),
            of(figures.taken - figures.waited),
            of(figures.waited),
            of(figures.refused),
        ]
    };
    std::iter::once(heads.map(str::to_owned).to_vec()).chain(lines.iter().map(row)).collect()
}

fn shown(total: &LockTable, line: &Line, tables: &[&LockTable]) -> String {
    let figures = &line.figures;
    let of = |part: u64| percent(if figures.attempts() == 0 { 0.0 } else { part as f64 / figures.attempts() as f64 });
    let hold = format!("{}({})", time(figures.mean_hold_ns()), right(&time(figures.longest_hold_ns as f64), 6));
    let wait = if figures.waited == 0 {
        right("0us", 25)
    } else {
        let longest = right(&time(figures.longest_wait_ns as f64), 6);
        format!("{}({longest})({})", time(figures.mean_wait_ns()), right(&percent(total.cpu_share(figures)), 6))
    };
    let counts = [figures.taken - figures.waited, figures.waited, figures.refused].map(|part| right(&of(part), 6));
    let name = line.caller.as_ref().map_or(line.lock.clone(), |caller| format!("  {caller}"));
    format!(
        "{}{} {} {} {} {} {}  {name}{}",
        right(&percent(total.utilisation(figures)), 7),
        right(&percent(figures.contention()), 7),
        right(&hold, 16),
        right(&wait, 25),
        right(&grouped(figures.attempts()), 14),
        counts[0],
        format_args!("{} {}", counts[1], counts[2]),
        spread(line, tables)
    )
}

/// Returns the spread of the utilisation over runs, if there are several.
fn spread(line: &Line, tables: &[&LockTable]) -> String {
    if tables.len() < 2 || line.caller.is_some() {
        return String::new();
    }
    let of_run = |run: usize| {
        let own = line.runs.iter().find(|(_, its)| *its == run);
        own.map_or(0.0, |(figures, _)| tables[run].utilisation(figures) * 100.0)
    };
    let summary = summarize(&(0..tables.len()).map(of_run).collect::<Vec<f64>>());
    summary.and_then(|summary| Some(format!("  (UTIL +- {:.2} points)", summary.deviation?))).unwrap_or_default()
}

/// Returns a share with three digits at most.
fn percent(share: f64) -> String {
    let percent = share * 100.0;
    match percent {
        0.0 => "0%".into(),
        _ if percent < 0.995 => format!("{percent:.2}%"),
        _ => format!("{percent:.1}%"),
    }
}

/// Returns a time as lockmeter does: microseconds, or milliseconds from ten of them on.
fn time(ns: f64) -> String {
    match ns {
        0.0 => "0us".into(),
        _ if ns < 99.95 => format!("{:.2}us", ns / 1e3),
        _ if ns < 9_950.0 => format!("{:.1}us", ns / 1e3),
        _ if ns < 9_999_500.0 => format!("{:.0}us", ns / 1e3),
        _ => format!("{:.0}ms", ns / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultless_machine::watch::LockRow;

    fn table() -> LockTable {
        let figures = Figures {
            taken: 900,
            waited: 300,
            refused: 100,
            hold_ns: 250_000,
            longest_hold_ns: 7_893_000,
            wait_ns: 30_000_000,
            longest_wait_ns: 16_000_000,
        };
        let callers = vec![("vm/space/map.rs:9".to_owned(), figures)];
        let row = LockRow { name: "mmap_sem (write)".into(), figures, callers };
        LockTable { elapsed_ns: 1_000_000, cpus: 2, locks: vec![row] }
    }

    #[test]
    fn a_lock_s_line_has_lockmeter_s_columns() {
        let table = table();
        let (tables, total) = ([&table], LockTable { elapsed_ns: 1_000_000, cpus: 2, locks: vec![] });
        let lines: Vec<String> = lines(&tables).iter().map(|line| shown(&total, line, &tables)).collect();
        let figures = "  25.0%  40.0%    0.3us(7893us)    100us(  16ms)(1500.0%)          1,000  60.0%  30.0%  10.0%";
        assert_eq!(lines, [format!("{figures}  mmap_sem (write)"), format!("{figures}    vm/space/map.rs:9")]);
    }

    #[test]
    fn times_are_those_of_a_lock_meter() {
        let shown: Vec<String> = [0.0, 12.0, 540.0, 5400.0, 155_000.0, 7_893_000.0, 16e6].map(time).into();
        assert_eq!(shown, ["0us", "0.01us", "0.5us", "5.4us", "155us", "7893us", "16ms"]);
        assert_eq!([0.0, 0.0014, 0.334].map(percent), ["0%", "0.14%", "33.4%"]);
    }

    #[test]
    fn runs_add_up_and_have_a_spread() {
        let (one, mut other) = (table(), table());
        other.locks[0].figures.hold_ns = 350_000;
        let tables = [&one, &other];
        let lines = lines(&tables);
        assert_eq!((lines.len(), lines[0].figures.taken), (2, 1800));
        assert_eq!(spread(&lines[0], &tables), "  (UTIL +- 7.07 points)");
    }
}
