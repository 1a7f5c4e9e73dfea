//! The page of `stat`: how often events happened, and what each lock costs.

use faultless_results::verdict::{arm_name, groups};
use faultless_results::{Measured, ResultSet, grouped};
use serde_json::Value;

use super::bench::machine;
use crate::arms::shown;
use crate::bars::{self, Bars, Layout};
use crate::markup::Markup;
use crate::plot::{About, Axis};
use crate::table::{self, Cell};

/// The most locks of a plot.
const SHOWN: usize = 12;

/// Says what was counted, and which lock is waited for most.
pub fn headline(set: &ResultSet) -> String {
    let waited = tables(set).into_iter().filter_map(|table| {
        let worst = table.rows.iter().max_by(|one, other| one.lengths[0].total_cmp(&other.lengths[0]))?;
        Some((table.name, worst.clone()))
    });
    let worst = waited.max_by(|(_, one), (_, other)| one.lengths[0].total_cmp(&other.lengths[0]));
    match worst {
        Some((name, lock)) if lock.lengths[0] > 0.0 => {
            let share = faultless_results::Unit::Share.show(lock.lengths[0]);
            format!("Under {name}, {} costs most: waiting for it takes {share} of the time of all CPUs", lock.label)
        }
        Some(_) => "Nobody waited for a lock under any design".into(),
        None => counted(set),
    }
}

fn counted(set: &ResultSet) -> String {
    let faults = groups(set, "faults");
    let Some(group) = faults.first() else { return "Events of a workload".into() };
    let said = group.arms.iter().map(|arm| format!("{} under {}", shown(&arm.unit, &arm.samples), arm_name(set, arm)));
    format!("{}: page faults in a run, {}", group.name, said.collect::<Vec<_>>().join(", "))
}

/// The locks of a design.
struct LockTable {
    name: String,
    rows: Vec<Bars>,
    cells: Vec<Vec<Cell>>,
}

fn tables(set: &ResultSet) -> Vec<LockTable> {
    let arms = set.more.get("locks").and_then(Value::as_array);
    arms.into_iter().flatten().map(lock_table).collect()
}

fn lock_table(arm: &Value) -> LockTable {
    let text = |key: &str| arm.get(key).and_then(Value::as_str).unwrap_or("-");
    let name =
        format!("{} over {} on {} CPUs", text("design"), text("semaphore"), arm.get("cpus").unwrap_or(&Value::Null));
    let locks: Vec<&Value> = arm.get("locks").and_then(Value::as_array).into_iter().flatten().collect();
    let of = |lock: &Value, key: &str| lock.get(key).and_then(Value::as_f64).unwrap_or(0.0);
    let lock_name = |lock: &Value| lock.get("lock").and_then(Value::as_str).unwrap_or("?").to_owned();
    let whole = locks.iter().filter(|lock| lock.get("caller").is_none_or(Value::is_null));
    let mut rows: Vec<Bars> = whole
        .map(|lock| Bars { label: lock_name(lock), lengths: vec![of(lock, "cpu_share"), of(lock, "utilisation")] })
        .collect();
    rows.sort_by(|one, other| {
        let key = |bars: &Bars| (bars.lengths[0], bars.lengths[1]);
        key(other).partial_cmp(&key(one)).unwrap_or(std::cmp::Ordering::Equal)
    });
    let cells = locks.iter().map(|lock| {
        let caller = lock.get("caller").and_then(Value::as_str).map_or_else(|| "all callers".to_owned(), inside);
        let ns = |key: &str| Cell::figure(of(lock, key), crate::plot::short("ns", of(lock, key)));
        let share = |key: &str| Cell::figure(of(lock, key), crate::plot::short("share", of(lock, key)));
        let total = of(lock, "total");
        vec![
            Cell::text(lock_name(lock)),
            Cell::text(caller),
            share("utilisation"),
            share("contention"),
            ns("hold_mean_ns"),
            ns("wait_mean_ns"),
            ns("wait_max_ns"),
            share("cpu_share"),
            Cell::figure(total, grouped(total as u64)),
        ]
    });
    LockTable { cells: cells.collect(), name, rows }
}

/// Returns a place in the source as it is called inside its crate, with the crate's name: no reader has our folders.
fn inside(caller: &str) -> String {
    let (_, own) = caller.rsplit_once("crates/").unwrap_or(("", caller));
    own.replacen("/src/", ": ", 1)
}

/// Writes the plots.
pub fn write(out: &mut Markup, set: &ResultSet) {
    let machine = machine(set);
    for table in tables(set) {
        out.line("h2", &[], &format!("Locks under {}", table.name));
        let left_out = table.rows.len().saturating_sub(SHOWN);
        let rest = if left_out > 0 {
            format!(" {left_out} locks that cost less are in the table below.")
        } else {
            String::new()
        };
        let worst = table.rows.first();
        let about = About {
            title: format!("What each lock costs under {}", table.name),
            told: worst.map_or(String::new(), |lock| {
                format!(
                    "{} is waited for {} of all CPUs' time.",
                    lock.label,
                    crate::plot::short("share", lock.lengths[0])
                )
            }),
            caption: format!(
                "Waited for: the share of all CPUs' time that goes by spinning or asleep. Held: the share of the run, \
                 summed over locks of one name and over readers, so that it can be more than 100 %. Watching makes both \
                 somewhat larger.{rest}"
            ),
            machine: &machine,
            is_simulated: set.machine.simulated,
        };
        let axis = Axis { title: "share of time (%), from 0", unit: "share" };
        let shown = &table.rows[..table.rows.len().min(SHOWN)];
        bars::write(out, &about, axis, Layout::Beside, &[(bars::WAITED, "waited for"), (bars::REST, "held")], shown);
        let headings = [
            "lock",
            "caller",
            "held",
            "found taken",
            "hold mean",
            "wait mean",
            "wait max",
            "waiting of all CPUs",
            "attempts",
        ];
        out.within("details", &[], |out| {
            out.line("summary", &[], &format!("Each lock and each caller under {}", table.name));
            table::write(out, "Each lock and each caller", &headings, &table.cells);
        });
    }
    write_events(out, set);
}

/// What stands for an event that a design does not count.
const NOT_SUPPORTED: &str = "<not supported>";

/// Writes how often each event happened, a column for each design.
fn write_events(out: &mut Markup, set: &ResultSet) {
    let events: Vec<&Measured> =
        set.results.iter().filter(|result| result.unit == "count" && !result.metric.starts_with("locks.")).collect();
    let column = |result: &Measured| format!("{}, {} CPUs", arm_name(set, result), result.cpus);
    let mut columns: Vec<String> = Vec::new();
    let mut metrics: Vec<&str> = Vec::new();
    for event in &events {
        if !columns.contains(&column(event)) {
            columns.push(column(event));
        }
        if !metrics.contains(&&*event.metric) {
            metrics.push(&event.metric);
        }
    }
    let cell = |metric: &str, name: &str| {
        let found = events.iter().find(|event| event.metric == metric && column(event) == name);
        found.map_or_else(
            || Cell::text(NOT_SUPPORTED),
            |event| {
                let middle = faultless_results::stats::median(&event.samples).unwrap_or(0.0);
                Cell::figure(middle, shown(&event.unit, &event.samples))
            },
        )
    };
    let row = |metric: &&str| {
        let cells = columns.iter().map(|name| cell(metric, name));
        std::iter::once(Cell::text(super::words(metric))).chain(cells).collect()
    };
    let rows: Vec<Vec<Cell>> = metrics.iter().map(row).collect();
    let headings: Vec<&str> = std::iter::once("event").chain(columns.iter().map(String::as_str)).collect();
    out.line("h2", &[], "Events");
    let is_nothing = |cell: &Cell| matches!(cell.as_text(), "0" | NOT_SUPPORTED);
    let (never, told): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| row[1..].iter().all(is_nothing));
    table::write(out, "How often each event happened in a run", &headings, &told);
    if !never.is_empty() {
        out.within("details", &[], |out| {
            out.line("summary", &[], &format!("{} events that never happened", never.len()));
            table::write(out, "Events that never happened", &headings, &never);
        });
    }
}
