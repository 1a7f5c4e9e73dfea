//! Why a design wins: where the time of its operations goes, beside that of another design.
//!
//! # Guarantee
//! * I1 a reason is one only by its size: how much of the time between two designs it takes. Where nobody kept books
//!   but of the address-space lock, and that explains less than a tenth, the text says so
//! * I2 where a simulated machine kept books (`spent`), each part that is a tenth of the time between is named: lines
//!   with how often they moved, locks, the memory bus. Nothing is said that was not measured
//! * I3 a reason is what the faster design pays less of. What it pays more of is no reason; where that is a tenth of
//!   the time between, it is told as a sum, so that the figures add up

use serde_json::Value;

use super::groups::beside;
use super::spent::{Ceiling, Kind, Part, parts};
use crate::stats::median;
use crate::{Measured, ResultSet, Unit};

/// The host's kernel, whose counters are its own.
const HOST: &str = "linux";

/// Of the time between two designs, what explains it in part.
const PART: f64 = 0.1;

/// The most parts of it that are named.
const REASONS: usize = 4;

/// Of an operation's time, what is no reason if it is less.
const SEEN: f64 = 0.01;

/// Of an operation's time, how far apart two designs that the runs do not tell apart are to have a reason.
const APART: f64 = 0.02;

/// Of the time between two designs, what is nearly all of it.
const NEARLY_ALL: f64 = 0.9;

/// Where the time of a design's operations goes; nothing of what was not counted.
#[derive(Clone, Debug, Default, PartialEq)]
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
    /// What an operation's time is spent on, the longest first; nothing where no books were kept.
    pub parts: Vec<Part>,
    /// The most that the machine can do, if that was measured.
    pub ceiling: Option<Ceiling>,
    /// How many CPUs there were.
    pub cpus: usize,
}

impl Cost {
    /// Returns where the time of a figure's runs goes.
    pub fn of(set: &ResultSet, arm: &Measured) -> Self {
        let middle = |metric: &str| median(&beside(set, arm, metric)?.samples);
        let rate = Some(arm).filter(|arm| arm.metric == "ops_per_s").and_then(|arm| median(&arm.samples));
        let ops: f64 =
            arm.more.get("ops").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_f64).sum();
        let shootdowns = arm.counters.get("tlb_shootdown").filter(|_| ops > 0.0);
        let op_ns = rate.filter(|rate| *rate > 0.0).map(|rate| arm.nr_workers() as f64 * 1e9 / rate);
        let waiting = middle("lock_wait_share");
        Self {
            op_ns,
            step_ns: middle_time(set, arm, "op_p50_ns"),
            waiting,
            lockless: lockless(arm),
            shootdowns: shootdowns.map(|count| *count as f64 / ops),
            fault_ns: middle_time(set, arm, "fault_p50_ns"),
            call_ns: middle_time(set, arm, "call_p50_ns"),
            parts: parts(arm, op_ns, waiting),
            ceiling: Ceiling::of(arm),
            cpus: arm.cpus,
        }
    }

    /// Returns the time of all parts of a kind; nothing where no books were kept.
    pub fn spent(&self, kind: Kind) -> Option<f64> {
        let parts = self.parts.iter().filter(|part| part.kind == kind);
        (!self.parts.is_empty()).then(|| parts.map(|part| part.ns).sum())
    }

    /// Returns what share of an operation's time goes to parts of a kind; nothing where no books were kept.
    pub fn spent_share(&self, kind: Kind) -> Option<f64> {
        Some(self.spent(kind)? / self.op_ns?)
    }

    /// Returns how often lines move for each operation; nothing where no books were kept.
    pub fn transfers(&self) -> Option<f64> {
        (!self.parts.is_empty()).then(|| self.parts.iter().map(|part| part.transfers).sum())
    }

    /// Returns the time of the part that is like another design's.
    fn like(&self, part: &Part) -> f64 {
        self.parts.iter().find(|own| own.is_like(part)).map_or(0.0, |own| own.ns)
    }

    /// Returns the part of an operation's time that is waiting for the address-space lock.
    pub fn wait_ns(&self) -> Option<f64> {
        Some(self.op_ns? * self.waiting?)
    }
}

/// Returns what stands for a figure beside this one.
fn middle_time(set: &ResultSet, arm: &Measured, metric: &str) -> Option<f64> {
    set.middle(beside(set, arm, metric)?)
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
    /// Whether the runs tell it from the best.
    pub is_sure: bool,
    /// Where its time goes.
    pub cost: &'a Cost,
}

/// Says why the first design is faster than others, in sentences; nothing if nothing was counted that could tell.
pub fn faster(best: Named<'_>, others: &[Named<'_>]) -> Option<String> {
    let said: Vec<String> = others.iter().filter_map(|other| against(best, *other)).collect();
    (!said.is_empty()).then(|| own(best).into_iter().chain(said).collect::<Vec<_>>().join(" "))
}

/// Says what an operation's time is under a design, and what it is spent on.
pub fn own(best: Named<'_>) -> Option<String> {
    let cost = best.cost;
    let takes = format!("An operation takes a worker {} on average under {}", show(cost.op_ns?), best.name);
    let share = |part: &Part| part.ns / cost.op_ns.unwrap_or(1.0);
    let large = cost.parts.iter().filter(|part| share(part) >= PART);
    let spent: Vec<String> = large
        .map(|part| format!("{} {}{}", Unit::Share.show(share(part)), part.told(cost.cpus), part.moved()))
        .collect();
    let waits = cost.waiting.filter(|share| cost.parts.is_empty() && *share >= PART);
    let waits = waits.map(|share| format!(", {} of it waiting for the address-space lock", Unit::Share.show(share)));
    let spent = if spent.is_empty() { waits.unwrap_or_default() } else { format!(": {}", spent.join("; ")) };
    let ceiling = cost.ceiling.as_ref().map_or(String::new(), |ceiling| format!(" {}.", ceiling.told(best.name)));
    Some(format!("{takes}{spent}.{ceiling}"))
}

fn against(best: Named<'_>, other: Named<'_>) -> Option<String> {
    let has_books = !best.cost.parts.is_empty() && !other.cost.parts.is_empty();
    let reasons = match has_books {
        _ if !other.is_sure && is_near(best, other) => [near(best, other), None, None],
        true => [by_parts(best, other), lock(best, other), None],
        false => [time(best, other), lock(best, other), flushes(best, other)],
    };
    let said: Vec<String> = reasons.into_iter().flatten().collect();
    (!said.is_empty()).then(|| format!("{}.", said.join("; ")))
}

/// Returns whether two designs that the runs do not tell apart are too near each other to have a reason.
fn is_near(best: Named<'_>, other: Named<'_>) -> bool {
    let times = best.cost.op_ns.zip(other.cost.op_ns);
    times.is_some_and(|(short, long)| (long - short).abs() < long * APART)
}

fn near(best: Named<'_>, other: Named<'_>) -> Option<String> {
    let (short, long) = (best.cost.op_ns?, other.cost.op_ns?);
    let takes = format!("Under {}{} it takes {}", other.name, other.which, show(long));
    Some(format!("{takes}, {} longer: too little to ask why", show((long - short).max(0.0))))
}

/// Says it by the parts of the time that are longer (I2, I3).
fn by_parts(best: Named<'_>, other: Named<'_>) -> Option<String> {
    let between = other.cost.op_ns? - best.cost.op_ns?;
    let least = (between.abs() * PART).max(other.cost.op_ns? * SEEN);
    let mut more: Vec<(&Part, f64)> = other
        .cost
        .parts
        .iter()
        .map(|part| (part, part.ns - best.cost.like(part)))
        .filter(|(_, more)| *more > 0.0)
        .collect();
    more.sort_by(|(_, one), (_, other)| other.total_cmp(one));
    let reason = |(part, more): &(&Part, f64)| {
        let moved = if part.kind == Kind::Lines { part.moved() } else { String::new() };
        format!("{} more {}{moved}", show(*more), part.told(other.cost.cpus))
    };
    more.retain(|(_, more)| *more >= least);
    more.truncate(REASONS);
    let rest = between - more.iter().map(|(_, more)| more).sum::<f64>();
    let mut said: Vec<String> = more.iter().map(reason).collect();
    if said.is_empty() {
        said.push("many small parts".to_owned());
    }
    if -rest >= least {
        said.push(format!("all else takes {} less", show(-rest)));
    }
    let (takes, size) = (show(other.cost.op_ns?), show(between));
    Some(format!("Under {}{} it takes {takes}, {size} longer: {}", other.name, other.which, said.join("; ")))
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
    if !other.is_sure && its <= own {
        // Nobody asks why of a difference that the runs do not show.
        return None;
    }
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
    // Who does without the lock more often has a reason; the other way round it is none (I3).
    (own - its >= 0.01)
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
