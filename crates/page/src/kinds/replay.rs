//! The page of `replay`: time per design, how long faults take, what was checked, and what the program did.

use faultless_results::ResultSet;
use serde_json::Value;

use super::bench::{machine, write_runs, write_waits};
use super::write_rankings;
use crate::arms::{cpus, groups, names};
use crate::latency::{self, Of};
use crate::markup::Markup;
use crate::table::{self, Cell};
use crate::verdict::{self, Ranking, rankings};
use crate::{space, timeline};

/// The key of the recorded program's outline.
const OUTLINE: &str = "outline";

const TIME: &str = "elapsed_ns";

/// Says who wins, and whether the replay is the recorded program.
pub fn headline(set: &ResultSet) -> String {
    format!("{}, and {}", verdict::headline(&all_rankings(set)), faith(set))
}

fn all_rankings(set: &ResultSet) -> Vec<Ranking> {
    groups(set, TIME).iter().flat_map(|group| rankings(set, group)).collect()
}

fn faith(set: &ResultSet) -> String {
    let count = |name: &str| set.checks.get(name).and_then(Value::as_u64).unwrap_or(0);
    let skipped = set.checks.get("skipped").and_then(Value::as_object).is_some_and(|kinds| !kinds.is_empty());
    match () {
        () if count("faults_recorded") == 0 => "no fault was recorded, so nothing was checked".into(),
        () if count("mismatches") > 0 || skipped || count("lost") > 0 => {
            format!("the replay is not the recorded program: {} mismatches, see what was checked", count("mismatches"))
        }
        () => format!("the replay is faithful: 0 mismatches in {} events", count("events")),
    }
}

/// Writes the plots.
pub fn write(out: &mut Markup, set: &ResultSet) {
    if let Some(text) = set.more.get("verdict").and_then(Value::as_str) {
        out.line("p", &[], text);
    }
    let rankings = all_rankings(set);
    write_rankings(out, &rankings);
    let (names, machine) = (names(set), machine(set));
    for group in groups(set, TIME) {
        let cpus = cpus(&group);
        for &cpus in &cpus {
            write_runs(out, set, &group, cpus, &names, &machine);
        }
        let most = cpus.last().copied().unwrap_or(1);
        write_waits(out, set, &group.name, most, &names, &machine);
        latency::write(out, set, &group, most, Of { prefix: "fault", many: "faults" }, &names, &machine);
    }
    if let Some(outline) = set.more.get(OUTLINE) {
        timeline::write(out, outline, "the recorded machine");
        space::write(out, outline, "the recorded machine");
    }
    write_checks(out, set);
}

/// Writes what was checked.
fn write_checks(out: &mut Markup, set: &ResultSet) {
    let mut rows = Vec::new();
    for (name, value) in &set.checks {
        match value {
            Value::Object(inner) => {
                rows.extend(inner.iter().map(|(key, value)| check(&format!("{name}: {key}"), value)))
            }
            value => rows.push(check(name, value)),
        }
    }
    out.line("h2", &[], "What was checked");
    out.line(
        "p",
        &[],
        "Each recorded fault and call was made again, and had to come out as it was recorded; \
                        docs/judging.md says what each line means.",
    );
    let (told, never): (Vec<_>, Vec<_>) =
        rows.into_iter().partition(|row| row[1].as_text() != "0" || row[0].as_text() == "mismatches");
    table::write(out, "Checks of all passes", &["what", "count"], &told);
    if !never.is_empty() {
        let names: Vec<&str> = never.iter().map(|row| row[0].as_text()).collect();
        out.line("p", &[("class", "caption")], &format!("0 of: {}", names.join(", ")));
    }
}

fn check(name: &str, value: &Value) -> Vec<Cell> {
    let figure =
        value.as_f64().map_or_else(|| Cell::text(value.to_string()), |figure| Cell::figure(figure, value.to_string()));
    vec![Cell::text(name.replace('_', " ")), figure]
}
