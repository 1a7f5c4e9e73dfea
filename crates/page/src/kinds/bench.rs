//! The page of `bench`: throughput against CPUs, how long steps take, what waits.

use faultless_results::designs::Style;
use faultless_results::set::ABOUT;
use faultless_results::verdict::{Group, arm_name, group_rankings, groups, headline as said, rankings, upper};
use faultless_results::{Measured, ResultSet, Unit};
use serde_json::Value;

use crate::arms::{ends_are, middle, names, shown};
use crate::latency::Of;
use crate::markup::Markup;
use crate::plot::{About, Axis, fitting};
use crate::rows::{Marks, Row, Rows};
use crate::scale::Kind;
use crate::{curve, latency, rows, verdict};

const RATE: &str = "ops_per_s";

/// Says who wins.
pub fn headline(set: &ResultSet) -> String {
    said(&rankings(set))
}

/// Writes the plots.
pub fn write(out: &mut Markup, set: &ResultSet) {
    let (names, machine) = (names(set), machine(set));
    let has_many = rankings(set).len() > 1;
    for group in groups(set, RATE) {
        out.line("h2", &[], &group.name);
        let ranked = group_rankings(set, &group);
        write_about(out, set, &group.name);
        let Some(last) = ranked.last() else { continue };
        if has_many {
            out.line("p", &[], &format!("{}.", upper(&last.sentence())));
            verdict::write_places(out, last);
        }
        match ranked.as_slice() {
            [one] => write_runs(out, set, &group, one.cpus, &names, &machine),
            _ => curve::write(out, set, &group, &names, &machine),
        }
        verdict::write_why(out, last, &machine);
        let of = Of { prefix: "op", many: "operations" };
        latency::write(out, set, &group, last.cpus, of, &names, &machine);
    }
}

/// Says what a workload does.
fn write_about(out: &mut Markup, set: &ResultSet, workload: &str) {
    let about = set.more.get(ABOUT).and_then(|all| all.get(workload));
    let text = |key: &str| about.and_then(|about| about.get(key)).and_then(Value::as_str);
    if let (Some(does), Some(operation)) = (text("does"), text("operation")) {
        let bytes = about.and_then(|about| about.get("region_bytes")).and_then(Value::as_f64);
        let here = bytes.map_or(String::new(), |bytes| format!(" (here {} at a time)", Unit::Bytes.show(bytes)));
        out.line("p", &[("class", "method")], &format!("Each worker {does}{here}. An operation is {operation}."));
    }
}

/// Returns what plots call the machine.
pub fn machine(set: &ResultSet) -> String {
    format!("{}, {} CPUs", set.machine.name, set.machine.cpus)
}

/// Writes each run of each design as a mark.
pub fn write_runs(out: &mut Markup, set: &ResultSet, group: &Group<'_>, cpus: usize, names: &[String], machine: &str) {
    let arms = group.arms.iter().filter(|arm| arm.cpus == cpus).copied().collect::<Vec<_>>();
    let Some(first) = arms.first() else { return };
    let is_time = first.unit == "ns";
    let kind = fitting(arms.iter().flat_map(|arm| arm.samples.iter().copied()), 20.0);
    let (what, better) =
        if is_time { ("time", "further left is better") } else { ("throughput", "further right is better") };
    let axis = match (is_time, kind) {
        (true, Kind::Linear) => Axis { title: "time of a run (ns, us, ms, s), from 0", unit: "ns" },
        (true, Kind::Log) => Axis { title: "time of a run (ns, us, ms, s), logarithmic", unit: "ns" },
        (false, Kind::Linear) => Axis { title: "operations in a second, all workers, from 0", unit: "ops/s" },
        (false, Kind::Log) => Axis { title: "operations in a second, all workers, logarithmic", unit: "ops/s" },
    };
    let about = About {
        title: format!("{}: {what} of each design on {}", group.name, verdict::cpus(cpus)),
        told: arms
            .iter()
            .map(|arm| format!("{}: {}.", arm_name(set, arm), shown(&arm.unit, &arm.samples)))
            .collect::<Vec<_>>()
            .join(" "),
        caption: format!(
            "Each mark is a run, the upright line the median; {}; {better}.{}",
            ends_are(arms.iter().map(|arm| &arm.samples)),
            if arms.iter().all(|arm| arm.has_converged()) { "" } else { " Hollow marks: the rates had not converged." }
        ),
        machine,
        is_simulated: set.machine.simulated,
    };
    let rows: Vec<Row> = arms.iter().map(|arm| row(set, arm, names)).collect();
    let shared = Rows { axis, kind, reference: None, has_zero: kind == Kind::Linear };
    rows::write(out, &about, &shared, &rows, |_| ());
}

fn row(set: &ResultSet, arm: &Measured, names: &[String]) -> Row {
    let name = arm_name(set, arm);
    Row {
        figure: shown(&arm.unit, &arm.samples),
        marks: vec![Marks {
            style: Style::of(&name, names),
            samples: arm.samples.clone(),
            middle: middle(&arm.samples).map(|middle| (middle.low, middle.median, middle.high)),
            is_hollow: !arm.has_converged(),
            name: name.clone(),
        }],
        label: name,
    }
}

/// Writes what share of their time threads waited for the address-space lock.
pub fn write_waits(out: &mut Markup, set: &ResultSet, workload: &str, cpus: usize, names: &[String], machine: &str) {
    let groups = groups(set, "lock_wait_share");
    let Some(group) = groups.iter().find(|group| group.name == workload) else { return };
    let arms: Vec<_> = group.arms.iter().filter(|arm| arm.cpus == cpus).collect();
    let highest = arms.iter().flat_map(|arm| &arm.samples).copied().fold(0.0, f64::max);
    if arms.len() < 2 || highest < 0.01 {
        return;
    }
    let told = arms.iter().map(|arm| format!("{}: {}.", arm_name(set, arm), shown(&arm.unit, &arm.samples)));
    let about = About {
        title: format!("{workload}: waiting for the address-space lock on {}", verdict::cpus(cpus)),
        told: told.collect::<Vec<_>>().join(" "),
        caption:
            "Of the time that threads spend in faults and map calls, the share that they wait for the lock of the \
                  address space; less is better. Each mark is a run, the upright line the median."
                .into(),
        machine,
        is_simulated: set.machine.simulated,
    };
    let rows: Vec<Row> = arms.iter().map(|arm| row(set, arm, names)).collect();
    let axis = Axis { title: "share of time spent waiting (%), from 0", unit: "share" };
    let shared = Rows { axis, kind: Kind::Linear, reference: None, has_zero: true };
    rows::write(out, &about, &shared, &rows, |_| ());
}
