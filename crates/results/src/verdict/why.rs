//! Why a design wins: where the time of its operations goes, beside that of another design.
//!
//! # Guarantee
//! A reason is one only by its size: how much of the time between two designs is waiting for the address-space lock. If
//! that explains less than a tenth of it, the text says so.

use serde_json::Value;

use super::groups::beside;
use crate::stats::median;
use crate::{Measured, ResultSet, Unit};

/// The host's kernel, whose counters are its own.
const HOST: &str = "linux";

/// Of the time between two designs, what explains it in part.
const PART: f64 = 0.1;

/// Of the time between two designs, what is nearly all of it.
const NEARLY_ALL: f64 = 0.9;

/// Where the time of a design's operations goes; nothing of what was not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// The mean time of an operation, of one worker: all its time over its operations.
    pub op_ns: Option<f64>,
    /// The median time of a step that was timed.
    pub step_ns: Option<f64>,
    /// What share of the time is waiting for the address-space lock.
    pub waiting: Option<f64>,
    /// What share of the faults did without that lock.
    pub lockless: Option<f64>,
    /// Requests to other CPUs to forget translations, for each operation.
    pub shootdowns: Option<f64>,
    /// The median time of a fault, where faults were timed.
    pub fault_ns: Option<f64>,
    /// The median time of a map call, where those were timed.
    pub call_ns: Option<f64>,
}

impl Cost {
    /// Returns where the time of a figure's runs goes.
    pub fn of(set: &ResultSet, arm: &Measured) -> Self {
        let middle = |metric: &str| median(&beside(set, arm, metric)?.samples);
        let rate = Some(arm).filter(|arm| arm.metric == "ops_per_s").and_then(|arm| median(&arm.samples));
        let ops: f64 =
            arm.more.get("ops").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_f64).sum();
        let shootdowns = arm.counters.get("tlb_shootdown").filter(|_| ops > 0.0);
        Self {
            op_ns: rate.filter(|rate| *rate > 0.0).map(|rate| arm.nr_workers() as f64 * 1e9 / rate),
            step_ns: middle("op_p50_ns"),
            waiting: middle("lock_wait_share"),
            lockless: lockless(arm),
            shootdowns: shootdowns.map(|count| *count as f64 / ops),
            fault_ns: middle("fault_p50_ns"),
            call_ns: middle("call_p50_ns"),
        }
    }

    /// Returns the part of an operation's time that is waiting for the address-space lock.
    pub fn wait_ns(&self) -> Option<f64> {
        Some(self.op_ns? * self.waiting?)
    }
}

/// A design that cannot do without the lock counts no such faults.
fn lockless(arm: &Measured) -> Option<f64> {
    let faults = *arm.counters.get("faults")?;
    let without = arm.counters.get("spf").copied().unwrap_or(0);
    (faults > 0 && arm.design != HOST).then(|| without as f64 / faults as f64)
}

/// A design with its cost.
#[derive(Clone, Copy, Debug)]
pub struct Named<'a> {
    /// Its name.
    pub name: &'a str,
    /// Which it is in the ranking, between commas; empty if that needs no words.
    pub which: &'static str,
    /// Where its time goes.
    pub cost: &'a Cost,
}

/// Says why the first design is faster than others, in sentences; nothing if nothing was counted that could tell.
pub fn faster(best: Named<'_>, others: &[Named<'_>]) -> Option<String> {
    let own =
        best.cost.op_ns.map(|ns| format!("An operation takes a worker {} on average under {}.", show(ns), best.name));
    let said: Vec<String> = others.iter().filter_map(|other| against(best, *other)).collect();
    (!said.is_empty()).then(|| own.into_iter().chain(said).collect::<Vec<_>>().join(" "))
}

fn against(best: Named<'_>, other: Named<'_>) -> Option<String> {
    let said: Vec<String> =
        [time(best, other), lock(best, other), flushes(best, other)].into_iter().flatten().collect();
    (!said.is_empty()).then(|| format!("{}.", said.join("; ")))
}

/// Says that there is little to win, if nobody waits for the lock.
pub fn little(most: Option<f64>) -> Option<String> {
    most.filter(|most| *most < 0.02).map(|most| {
        let waits = match most > 0.0 {
            true => format!("Waiting for the address-space lock takes at most {} of the time", Unit::Share.show(most)),
            false => "Nobody waits for the address-space lock".to_owned(),
        };
        format!("{waits} under any design, so there is little that a design could win.")
    })
}

fn show(ns: f64) -> String {
    Unit::Ns.show(ns)
}

fn time(best: Named<'_>, other: Named<'_>) -> Option<String> {
    let (Some(short), Some(long)) = (best.cost.op_ns, other.cost.op_ns) else { return waiting(best, other) };
    let between = long - short;
    let takes = format!("Under {}{} it takes {}", other.name, other.which, show(long));
    let (Some(own), Some(its)) = (best.cost.wait_ns(), other.cost.wait_ns()) else { return None };
    let waits = format!("{} under {}, {} under {}", show(its), other.name, show(own), best.name);
    let rest = "work and other waits (cache lines that CPUs pass on, other locks, shootdowns)";
    Some(match (its - own) / between {
        part if part >= NEARLY_ALL => {
            format!(
                "{takes}: nearly all of the {} between is waiting for the address-space lock ({waits})",
                show(between)
            )
        }
        part if part >= PART => format!(
            "{takes}: of the {} between {} is waiting for the address-space lock ({waits}), the rest is {rest}",
            show(between),
            Unit::Share.show(part)
        ),
        _ => format!("{takes}, which waiting for the address-space lock does not explain ({waits}): it is {rest}"),
    })
}

/// Says it by shares, where no operation was timed.
fn waiting(best: Named<'_>, other: Named<'_>) -> Option<String> {
    let (own, its) = (best.cost.waiting?, other.cost.waiting?);
    let share = |share: f64| Unit::Share.show(share);
    let waits = format!(
        "Under {}{} threads wait for the address-space lock {} of their time in faults and map calls, under {} {}",
        other.name,
        other.which,
        share(its),
        best.name,
        share(own)
    );
    Some(if its - own < 0.01 { format!("{waits}, which does not explain it") } else { waits })
}

fn lock(best: Named<'_>, other: Named<'_>) -> Option<String> {
    let (own, its) = (best.cost.lockless?, other.cost.lockless?);
    let share = |share: f64| if share == 0.0 { "none".to_owned() } else { Unit::Share.show(share) };
    let (name, best) = (other.name, best.name);
    ((own - its).abs() >= 0.01)
        .then(|| format!("{name} handles {} of its faults without that lock, {best} {}", share(its), share(own)))
}

fn flushes(best: Named<'_>, other: Named<'_>) -> Option<String> {
    let (own, its) = (best.cost.shootdowns?, other.cost.shootdowns?);
    let count = |count: f64| Unit::Count.show(count);
    let (name, best) = (other.name, best.name);
    ((own - its).abs() > 0.02 && its > own * 1.1).then(|| {
        format!("{name} makes other CPUs flush translations {} times an operation, {best} {}", count(its), count(own))
    })
}
