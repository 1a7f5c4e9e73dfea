//! The page of `replay`: time per design, how long faults take, what was checked, and what the program did.

use faultless_results::verdict::{cpus, group_rankings, groups, headline as said, is_faithful, rankings};
use faultless_results::{ResultSet, grouped};
use serde_json::Value;

use super::bench::{machine, write_runs, write_waits};
use crate::arms::names;
use crate::latency::{self, Of};
use crate::markup::Markup;
use crate::table::{self, Cell};
use crate::{space, timeline, verdict};

/// The key of the recorded program's outline.
const OUTLINE: &str = "outline";

const TIME: &str = "elapsed_ns";

/// What plots of the recorded program say of their figures.
const RECORDED: &str = "the machine that recorded the program";

/// Says who wins, and whether the replay is the recorded program.
pub fn headline(set: &ResultSet) -> String {
    let faith = if is_faithful(set) { "" } else { "; the replay is not the recorded program" };
    format!("{}{faith}", said(&rankings(set)))
}

/// Writes the plots.
pub fn write(out: &mut Markup, set: &ResultSet) {
    let (names, machine) = (names(set), machine(set));
    for group in groups(set, TIME) {
        out.line("h2", &[], &format!("{}: which design is fastest", group.name));
        let (cpus, ranked) = (cpus(&group), group_rankings(set, &group));
        for (&cpus, ranking) in cpus.iter().zip(&ranked) {
            if ranked.len() > 1 {
                verdict::write_places(out, ranking);
            }
            write_runs(out, set, &group, cpus, &names, &machine);
        }
        let most = cpus.last().copied().unwrap_or(1);
        if let Some(last) = ranked.last() {
            verdict::write_why(out, last, &machine);
        }
        write_waits(out, set, &group.name, most, &names, &machine);
        latency::write(out, set, &group, most, Of { prefix: "fault", many: "faults" }, &names, &machine);
    }
    write_checks(out, set);
}

/// Writes the recorded program itself, behind all that the replay found out.
pub fn write_recorded(out: &mut Markup, set: &ResultSet) {
    let Some(outline) = set.more.get(OUTLINE) else { return };
    out.within("section", &[("class", "recorded")], |out| {
        out.line("h2", &[("class", "part")], "The recorded program");
        out.line("p", &[], PARTS);
        timeline::write(out, outline, RECORDED);
        space::write(out, outline, RECORDED);
    });
}

/// Where the replay ends, and what begins.
const PARTS: &str = "All above is about the replay. All below is the program as it ran when it was recorded, under the kernel of \
                     that machine: no design of the table above had a part in it.";

/// Checks in words.
const CHECKS: [(&str, &str); 12] = [
    ("events", "events of the recording"),
    ("faults_recorded", "page faults recorded, and compared"),
    ("faults_replayed", "page faults that the replay took"),
    ("strict", "page faults that had to come out exactly as recorded"),
    ("mismatches", "mismatches: what came out otherwise than recorded"),
    ("classified", "page faults that what Linux did meanwhile explains"),
    ("imposed", "results taken from the recording"),
    ("skipped", "calls that could not be replayed"),
    ("applied", "events before the memory's contents were read"),
    ("faults_applied", "page faults among these, which are not compared"),
    ("faults_compared_share", "share of all page faults that were compared"),
    ("lost", "records that the recording lost"),
];

fn words(name: &str) -> String {
    CHECKS.iter().find(|(known, _)| *known == name).map_or_else(|| name.replace('_', " "), |(_, words)| (*words).into())
}

/// Writes what was checked.
fn write_checks(out: &mut Markup, set: &ResultSet) {
    let mut rows = Vec::new();
    for (name, value) in &set.checks {
        match value {
            Value::Object(inner) => {
                let row = |(key, value): (&String, &Value)| {
                    check(&format!("{}: {}", words(name), key.replace('_', " ")), value)
                };
                rows.extend(inner.iter().map(row))
            }
            value => rows.push(check(&words(name), value)),
        }
    }
    out.line("h2", &[], "What was checked");
    out.line("p", &[], "Each recorded fault and call was made again, and had to come out as it was recorded.");
    let (told, never): (Vec<_>, Vec<_>) =
        rows.into_iter().partition(|row| row[1].as_text() != "0" || row[0].as_text().starts_with("mismatches"));
    table::write(out, "What each pass was compared with, and what came of all passes", &["what", "count"], &told);
    if !never.is_empty() {
        let names: Vec<&str> = never.iter().map(|row| row[0].as_text()).collect();
        out.within("details", &[], |out| {
            out.line("summary", &[], "What never happened");
            out.within("ul", &[], |out| names.iter().for_each(|name| out.line("li", &[], name)));
        });
    }
}

fn check(name: &str, value: &Value) -> Vec<Cell> {
    let figure = match (value.as_u64(), value.as_f64()) {
        (Some(count), _) => Cell::figure(count as f64, grouped(count)),
        (None, Some(figure)) => Cell::figure(figure, value.to_string()),
        _ => Cell::text(value.to_string()),
    };
    vec![Cell::text(name), figure]
}
