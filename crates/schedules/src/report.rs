//! What was explored, for people and for machines.

use std::io::{self, Write};

use serde_json::{Map, Value, json};

use super::explore::{CellOutcome, ExploreSetup, Shortened};
use super::mutants::{Entry, KNOWN_BUGS, Noticed, Row, Table, WEAK_ORDERS, WeakOrder};
use super::search::Failed;
use super::worlds::NR_CPUS;
use faultless_linux::space::has_interrupt;
use faultless_results::{MachineInfo, ResultSet, columns};

/// Returns the machine that schedules run on, as results name it.
fn machine() -> MachineInfo {
    MachineInfo { name: "explore".into(), simulated: true, cpus: NR_CPUS, ..MachineInfo::default() }
}

/// Returns what was explored as a result set: all of it stands under `checks`.
pub fn schedules_set(setup: &ExploreSetup, cells: &[CellOutcome], first: Option<&Shortened>) -> ResultSet {
    let mut set = ResultSet::new("check schedules", setup.seed, machine());
    let failures: Vec<Value> = cells.iter().filter_map(|cell| failure(cell, first)).collect();
    let outcome = json!({
        "runs": cells.iter().map(|cell| cell.runs).sum::<u64>(),
        "designs": setup.designs,
        "semaphores": setup.semaphores,
        "worlds": setup.worlds.iter().map(|world| world.name).collect::<Vec<_>>(),
        "failures": failures,
    });
    set.checks.insert("schedules".into(), outcome);
    if has_interrupt() {
        let (done, asked) = (cells.iter().map(|cell| cell.runs).sum::<u64>(), setup.runs * setup.designs.len() as u64);
        set.mark_interrupted(format_args!("interrupted after {done} of {asked} schedules"));
    }
    set
}

fn failure(cell: &CellOutcome, first: Option<&Shortened>) -> Option<Value> {
    let (number, failed) = cell.failed.as_ref()?;
    let is_first = first.filter(|first| first.failed.line.to_string() == failed.line.to_string());
    let shortest = is_first.map_or(failed, |first| &first.shortest);
    Some(json!({
        "design": cell.design,
        "world": cell.world.name,
        "schedule": number,
        "steps": failed.nr_steps,
        "switches": failed.line.switches.len(),
        "what": failed.failure.to_string(),
        "line": failed.line.to_string(),
        "shortest_steps": shortest.nr_steps,
        "shortest_switches": shortest.line.switches.len(),
        "shortest_line": shortest.line.to_string(),
    }))
}

/// Returns the mutants' table as a result set.
pub fn mutants_set(setup: &ExploreSetup, table: &Table) -> ResultSet {
    let mut set = ResultSet::new("check mutants", setup.seed, machine());
    let rows: Vec<Value> = table.rows.iter().map(row_value).collect();
    set.checks.insert("mutants".into(), rows.into());
    let unbroken = table.unbroken.as_ref().map(|row| {
        json!({
            "survived": row.survived,
            "killed": row.nr_killed,
            "example": row.example.as_ref().map(|failed| failed.line.to_string()),
        })
    });
    set.checks.insert("unbroken".into(), unbroken.into());
    set.checks.insert("orderings".into(), WEAK_ORDERS.iter().map(order_value).collect());
    let designs = json!({ "runs": table.runs, "seeds": table.seeds, "designs": setup.designs });
    set.checks.insert("schedules".into(), designs);
    if !table.is_whole {
        let all = KNOWN_BUGS.len() + 1;
        let done = table.rows.len() + table.unbroken.iter().len();
        set.mark_interrupted(format_args!("interrupted after {done} of {all} rows"));
    }
    set
}

fn row_value(row: &Row) -> Value {
    let mut value = Map::new();
    value.insert("number".into(), row.bug.number.into());
    value.insert("bug".into(), row.bug.name.into());
    match row.bug.entry {
        Entry::Excluded(why) => {
            value.insert("excluded".into(), why.into());
        }
        Entry::PutBack(mutant, place) => {
            value.insert("mutant".into(), mutant.name().into());
            value.insert("place".into(), place.into());
            value.insert("survived".into(), row.survived.clone().into());
            value.insert("median".into(), row.median().into());
            value.insert("worst".into(), row.worst().into());
            value.insert("killed".into(), row.nr_killed.into());
            value.insert("example".into(), row.example.as_ref().map(|failed| failed.failure.to_string()).into());
        }
    }
    value.into()
}

fn order_value(order: &WeakOrder) -> Value {
    match order.noticed {
        Noticed::By(model) => json!({ "place": order.place, "model": model }),
        Noticed::Beyond(why) => json!({ "place": order.place, "beyond": why }),
    }
}

/// Writes what was explored, for people.
pub fn write_schedules(
    setup: &ExploreSetup,
    cells: &[CellOutcome],
    first: Option<&Shortened>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let total: u64 = cells.iter().map(|cell| cell.runs).sum();
    writeln!(out, "Schedules of small worlds, seed {}: {total} explored", setup.seed)?;
    writeln!(out)?;
    columns::write(&grid(setup, cells), out)?;
    writeln!(out)?;
    match first {
        None => writeln!(
            out,
            "Every answer is explained by an order of the operations, and every invariant holds. Values are sequentially \
             consistent here: what only a weaker memory order shows is the model tests' business (docs/schedules.md)."
        ),
        Some(first) => write_failure(setup, cells, first, out),
    }
}

/// A row for each design, a column for each world: how many schedules ran, or which failed.
fn grid(setup: &ExploreSetup, cells: &[CellOutcome]) -> Vec<Vec<String>> {
    let head = std::iter::once("design".to_owned()).chain(setup.worlds.iter().map(|world| world.name.to_owned()));
    let row = |design: &String| {
        let own = cells.iter().filter(|cell| cell.design == *design).map(|cell| match &cell.failed {
            None => cell.runs.to_string(),
            Some((number, _)) => format!("FAILED at {number}"),
        });
        std::iter::once(design.clone()).chain(own).collect()
    };
    std::iter::once(head.collect()).chain(setup.designs.iter().map(row)).collect()
}

fn write_failure(
    setup: &ExploreSetup,
    cells: &[CellOutcome],
    first: &Shortened,
    out: &mut dyn Write,
) -> io::Result<()> {
    let nr_failed = cells.iter().filter(|cell| cell.failed.is_some()).count();
    writeln!(out, "{nr_failed} of {} cells failed; the first:", cells.len())?;
    writeln!(out, "  {}", first.failed.failure.to_string().replace('\n', "\n  "))?;
    writeln!(out, "seed      {}", setup.seed)?;
    writeln!(out, "length    {}", length(&first.failed))?;
    writeln!(out, "shortest  {}", length(&first.shortest))?;
    writeln!(out, "  {}", first.shortest.failure.to_string().replace('\n', "\n  "))?;
    writeln!(out, "replay    faultless check schedules --replay {}", first.shortest.line)?;
    writeln!(out, "in full   faultless check schedules --replay {}", first.failed.line)
}

fn length(failed: &Failed) -> String {
    let nr_ops: usize = failed.line.program.parts.iter().map(|part| part.ops.len()).sum();
    format!("{} steps, {} switches, {nr_ops} operations", failed.nr_steps, failed.line.switches.len())
}

/// Writes what a replay showed, for people.
pub fn write_replay(failed: Option<&Failed>, out: &mut dyn Write) -> io::Result<()> {
    match failed {
        None => writeln!(out, "The schedule passes: every answer is explained, and every invariant holds."),
        Some(failed) => {
            writeln!(out, "{}", failed.failure)?;
            writeln!(out, "length    {}", length(failed))?;
            writeln!(out, "replay    faultless check schedules --replay {}", failed.line)
        }
    }
}

/// The headings of the mutants' table.
pub const MUTANT_HEADINGS: [&str; 7] =
    ["bug", "what it was", "mutant", "median", "worst", "found", "where, or why not"];

/// Returns the mutants' table row by row.
pub fn mutant_rows(table: &Table) -> Vec<Vec<String>> {
    let seeds = table.seeds.len();
    let figure = |figure: Option<u64>, is_killed: bool| match figure {
        Some(figure) if is_killed => figure.to_string(),
        Some(figure) => format!(">= {figure}"),
        None => "-".to_owned(),
    };
    let row = |row: &Row, name: &str| {
        let (mutant, place) = match row.bug.entry {
            Entry::PutBack(mutant, place) => (mutant.name(), place),
            Entry::Excluded(why) => ("-", why),
        };
        let found = if row.survived.is_empty() { "excluded".into() } else { format!("{}/{seeds}", row.nr_killed) };
        let is_settled = row.is_settled();
        let median = figure(row.median(), row.nr_killed * 2 > row.survived.len());
        [name, row.bug.name, mutant, &median, &figure(row.worst(), is_settled), &found, place]
            .map(String::from)
            .to_vec()
    };
    let number = |row: &Row| row.bug.number.map_or("+".to_owned(), |number| number.to_string());
    let mut rows: Vec<Vec<String>> = table.rows.iter().map(|bug| row(bug, &number(bug))).collect();
    rows.extend(table.unbroken.iter().map(|unbroken| row(unbroken, "-")));
    rows.extend(WEAK_ORDERS.iter().map(order_row));
    rows
}

/// An ordering's row: the model that finds it stands where a bug's place does.
fn order_row(order: &WeakOrder) -> Vec<String> {
    let (found, who) = match order.noticed {
        Noticed::By(model) => ("loom", model),
        Noticed::Beyond(why) => ("beyond", why),
    };
    ["w", "weaker memory order", order.place, "-", "-", found, who].map(String::from).to_vec()
}

/// Says how a row came out, on one line.
pub fn mutant_line(row: &Row) -> String {
    let seeds = row.survived.len();
    let figure = |figure: Option<u64>| figure.map_or("-".to_owned(), |figure| figure.to_string());
    let (median, worst) = (figure(row.median()), figure(row.worst()));
    match (row.bug.entry, row.is_settled()) {
        (Entry::Excluded(_), _) if seeds == 0 => format!("{}: excluded", row.bug.name),
        (Entry::Excluded(_), _) => format!("{}: fails under {} of {seeds} seeds", row.bug.name, row.nr_killed),
        (_, true) => format!("{}: found under all {seeds} seeds, median {median}, worst {worst}", row.bug.name),
        (_, false) => format!("{}: found under {} of {seeds} seeds", row.bug.name, row.nr_killed),
    }
}

/// Writes the mutants' table, for people.
pub fn write_mutants(setup: &ExploreSetup, table: &Table, out: &mut dyn Write) -> io::Result<()> {
    let (runs, seeds) = (table.runs, table.seeds.len());
    writeln!(
        out,
        "Known bugs, put back one at a time: schedules that each survived, of {runs} under each of {seeds} seeds from {}",
        setup.seed
    )?;
    writeln!(out)?;
    let headings = MUTANT_HEADINGS.map(String::from).to_vec();
    let rows: Vec<Vec<String>> = std::iter::once(headings).chain(mutant_rows(table)).collect();
    write_left(&rows, out)?;
    writeln!(out)?;
    match table.is_clean() {
        true if !table.is_whole => writeln!(out, "Every mutant above was found under every seed.")?,
        true => writeln!(out, "Every mutant was found under every seed; the code without mutants survived all.")?,
        false => writeln!(out, "{}", complaint(table))?,
    }
    writeln!(
        out,
        "Rows marked w: one ordering taken away, which no schedule shows. The model test named finds it under loom: \
         cargo test --release -p faultless-sync -p faultless-phys orders"
    )
}

fn complaint(table: &Table) -> String {
    if let Some(failed) = table.unbroken.as_ref().and_then(|row| row.example.as_ref()) {
        return format!("The code without mutants fails: replay with --replay {}", failed.line);
    }
    let names: Vec<&str> = table.rows.iter().filter(|row| !row.is_settled()).map(|row| row.bug.name).collect();
    format!("Not found under every seed: {}", names.join("; "))
}

/// Writes rows with all columns to the left but the figures.
fn write_left(rows: &[Vec<String>], out: &mut dyn Write) -> io::Result<()> {
    let widest = |column: usize| rows.iter().map(|row| columns::width(&row[column])).max().unwrap_or(0);
    for row in rows {
        let cells = row.iter().enumerate().map(|(column, cell)| match column {
            3..=5 => columns::right(cell, widest(column)),
            _ => columns::left(cell, widest(column)),
        });
        writeln!(out, "{}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
    }
    Ok(())
}
