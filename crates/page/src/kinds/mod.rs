//! What the page of each command shows: its headline, its plots, its tables.

mod bench;
pub mod compare;
mod replay;
mod reproduce;
mod stat;

use faultless_results::compare::Source;
use faultless_results::{MachineInfo, Measured, ResultSet};
use serde_json::Value;

use crate::arms::{arm_name, nr_samples, shown};
use crate::markup::Markup;
use crate::table::{self, Cell};
use crate::verdict::{Finding, Ranking, factor};

/// Writes the page of one result set.
pub fn write_alone(out: &mut Markup, source: &Source) {
    out.within("header", &[], |out| {
        out.line("p", &[("class", "kind")], &format!("faultless {}: {}", source.set.command, source.label));
        out.line("h1", &[], &headline(&source.set));
        write_circumstances(out, &source.set);
    });
    write_set(out, &source.set);
}

/// Writes the page of several result sets.
pub fn write_several(out: &mut Markup, sources: &[Source]) {
    out.within("header", &[], |out| {
        out.line("p", &[("class", "kind")], "faultless report");
        out.line("h1", &[], &format!("{} results", sources.len()));
    });
    for source in sources {
        out.within("section", &[], |out| {
            out.line("h2", &[], &format!("{}: {}", source.label, headline(&source.set)));
            write_circumstances(out, &source.set);
            write_set(out, &source.set);
        });
    }
}

fn headline(set: &ResultSet) -> String {
    match &*set.command {
        "replay" => replay::headline(set),
        "stat" => stat::headline(set),
        "reproduce" => reproduce::headline(set),
        _ => bench::headline(set),
    }
}

fn write_set(out: &mut Markup, set: &ResultSet) {
    match &*set.command {
        "replay" => replay::write(out, set),
        "stat" => stat::write(out, set),
        "reproduce" => reproduce::write(out, set),
        _ => bench::write(out, set),
    }
    write_figures(out, set);
}

/// Writes where, when and how often was measured.
fn write_circumstances(out: &mut Markup, set: &ResultSet) {
    out.within("p", &[], |out| {
        let badge = if set.machine.simulated { "SIMULATED" } else { "measured" };
        out.line("span", &[("class", "badge")], badge);
        let told = match set.machine.simulated {
            true => " No figure of ours was measured: a model of the machine computed them.",
            false => " On the machine itself, by its own clock.",
        };
        out.text(told);
    });
    out.within("dl", &[], |out| {
        let mut pairs = vec![("machine", set.machine.to_string()), ("seed", set.seed.to_string())];
        if !set.results.is_empty() {
            pairs.push(("samples of each figure", nr_samples(set.results.iter())));
        }
        pairs.push(("command", format!("faultless {}, built from {}", set.command, set.commit)));
        if let Some(partial) = set.partial() {
            pairs.push(("partial", partial.to_owned()));
        }
        if set.is_interrupted() && set.partial().is_none() {
            pairs.push(("partial", "interrupted: what was measured until then".to_owned()));
        }
        let disturbed = set.nr_disturbed();
        if disturbed > 0 {
            pairs.push(("disturbed", format!("{disturbed} runs, whose threads waited for CPUs")));
        }
        for (title, text) in pairs {
            out.line("dt", &[], title);
            out.line("dd", &[], &text);
        }
    });
    write_parameters(out, &set.machine);
}

/// Writes what a simulated machine's figures rest on.
fn write_parameters(out: &mut Markup, machine: &MachineInfo) {
    if machine.more.is_empty() {
        return;
    }
    out.within("details", &[], |out| {
        out.line("summary", &[], "What the machine's model rests on");
        let rows: Vec<Vec<Cell>> = machine.more.iter().flat_map(|(name, value)| parameters(name, value)).collect();
        table::write(out, "Parameters of the machine", &["parameter", "value"], &rows);
    });
}

fn parameters(name: &str, value: &Value) -> Vec<Vec<Cell>> {
    let row = |name: &str, value: &Value| {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        vec![Cell::text(name), Cell::text(text)]
    };
    match value {
        Value::Object(inner) => {
            inner.iter().flat_map(|(key, value)| parameters(&format!("{name}.{key}"), value)).collect()
        }
        value => vec![row(name, value)],
    }
}

/// Writes who is first on each number of CPUs.
fn write_rankings(out: &mut Markup, rankings: &[Ranking]) {
    if rankings.iter().all(|ranking| ranking.finding == Finding::Alone) {
        return;
    }
    let row = |ranking: &Ranking| {
        let first = match ranking.leaders().as_slice() {
            [] => format!("{} is ahead", ranking.best()),
            leaders => leaders.join(", "),
        };
        let next = match &ranking.finding {
            Finding::Wins { .. } => ranking.designs.get(1).map_or(String::new(), |(name, _)| name.clone()),
            _ => "-".to_owned(),
        };
        let lead = match &ranking.finding {
            Finding::Wins { lead, .. } => Cell::figure(
                lead.middle,
                format!("{} [{}, {}]", factor(lead.middle), factor(lead.low), factor(lead.high)),
            ),
            _ => Cell::text("-"),
        };
        let certainty = Cell::text(ranking.certainty());
        vec![
            Cell::text(&*ranking.workload),
            Cell::number(ranking.cpus),
            Cell::text(first),
            lead,
            Cell::text(next),
            certainty,
        ]
    };
    let headings = ["workload", "CPUs", "first", "times as fast", "as the next", "how sure"];
    let caption =
        "Who is first, by how much, and how sure that is (95 % interval of the ratio of paired runs; rank test)";
    table::write(out, caption, &headings, &rankings.iter().map(row).collect::<Vec<_>>());
}

/// Writes every figure of the set.
fn write_figures(out: &mut Markup, set: &ResultSet) {
    if set.results.is_empty() {
        return;
    }
    let row = |result: &Measured| {
        let middle = faultless_results::stats::median(&result.samples).unwrap_or(0.0);
        vec![
            Cell::text(&*result.workload),
            Cell::text(arm_name(set, result)),
            Cell::number(result.cpus),
            Cell::text(&*result.metric),
            Cell::figure(middle, shown(&result.unit, &result.samples)),
            Cell::number(result.samples.len()),
        ]
    };
    let headings = ["workload", "design", "CPUs", "metric", "median [ends]", "n"];
    let caption =
        "Median of the runs, with the 95 % interval of the median, or the least and the most of fewer than six runs";
    out.within("details", &[], |out| {
        out.line("summary", &[], &format!("All {} figures", set.results.len()));
        table::write(out, caption, &headings, &set.results.iter().map(row).collect::<Vec<_>>());
    });
}
