//! Who wins, by how much, how sure that is, and why.
//!
//! # Guarantee
//! * I1 one method: the factor between two designs is that of their medians, with the 95 % interval of the rank test
//!   (`stats::rank_ratio`). Over machines that were drawn it is the median over the draws, with what holds 90 % of them
//! * I2 a winner is named only if each design has five samples, all rates had converged, and the interval of its lead
//!   over every other design leaves out 1; everything else is level or undecided, with what is known: each factor, and
//!   every reason against it by the designs that it is about ([`Doubt`])
//! * I3 an interval is about chance between runs; that a simulated machine is a model is said beside it
//!
//! # Rooms
//! `groups` sorts figures by workload and design, `scatter` tells whose runs are far apart, `why` knows where time
//! goes, `spent` what a simulated machine's books say of it, `words` says it, and `faith` whether a replay is the
//! recorded program.

mod faith;
mod groups;
mod scatter;
mod spent;
mod why;
mod words;

use crate::compare::{CHANCE, Direction, LEAST_SAMPLES, direction};
use crate::set::UNCOMPARED;
use crate::stats::{Interval, median, p_value, rank_ratio};
use crate::{Measured, ResultSet};

pub use faith::{faith, is_faithful};
pub use groups::{Group, arm_name, beside, cpus, groups};
pub use spent::{Ceiling, Kind, Part};
pub use why::Cost;
pub use words::{METHOD, factor, headline, interval, lines, listed, upper};

/// The key of a figure whose samples are of machines that were drawn.
const DRAWN: &str = "sensitivity";

/// Of the draws, what lies below an interval.
const TAIL: f64 = 0.05;

/// What tells two designs apart although neither wins: none is further from the best than this.
const NEAR: f64 = 1.05;

/// What the samples of a figure are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Samples {
    /// Runs by the machine's own clock.
    Runs,
    /// Runs of a simulated machine, each of its own seed.
    Seeds,
    /// Simulated machines, each with other guesses.
    Draws,
}

/// What may be said of a workload on a number of CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// One design is ahead for sure.
    Wins,
    /// So many designs can't be told from the best, with it.
    Level(usize),
    /// There is one design.
    Alone,
    /// Nobody can tell: there are too few runs, or rates had not converged.
    Undecided,
}

/// A reason why no winner is named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// There are so few samples of a design.
    TooFew(usize),
    /// The rates of these designs had not converged.
    NotConverged(Vec<String>),
    /// The samples of these designs do not tell them from the best: the interval of its lead has 1.
    Overlap(Vec<String>),
}

/// Where a design stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Ahead of all others for sure.
    Wins,
    /// It has the best median.
    Best,
    /// Not told from the best.
    Level,
    /// Slower than the best for sure.
    Slower,
    /// Nobody can tell.
    Open,
}

/// A design in a ranking.
#[derive(Clone, Debug)]
pub struct Place {
    /// Its name.
    pub name: String,
    /// The median of its runs.
    pub median: f64,
    /// All of them.
    pub runs: Vec<f64>,
    /// Whether its rates had converged.
    pub has_converged: bool,
    /// How many times as fast as it the best one is; nothing for the best itself, and of rates of 0.
    pub lead: Option<Interval>,
    /// Where it stands.
    pub standing: Standing,
    /// Where its time goes.
    pub cost: Cost,
}

/// The designs of a workload on a number of CPUs.
#[derive(Clone, Debug)]
pub struct Ranking {
    /// The workload.
    pub workload: String,
    /// How many CPUs.
    pub cpus: usize,
    /// The metric that they are ranked by.
    pub metric: String,
    /// The unit of the medians.
    pub unit: String,
    /// What the samples are.
    pub samples: Samples,
    /// The designs, the best median first.
    pub places: Vec<Place>,
    /// What may be said.
    pub finding: Finding,
    /// Why no winner is named; nothing if one is.
    pub doubts: Vec<Doubt>,
}

/// Returns the metric that a set's designs are ranked by.
pub fn metric(set: &ResultSet) -> &'static str {
    if set.command == "replay" { "elapsed_ns" } else { "ops_per_s" }
}

/// Ranks the designs of each workload on each number of CPUs.
pub fn rankings(set: &ResultSet) -> Vec<Ranking> {
    groups(set, metric(set)).iter().flat_map(|group| group_rankings(set, group)).collect()
}

/// Ranks the designs of a group on each number of CPUs.
pub fn group_rankings(set: &ResultSet, group: &Group<'_>) -> Vec<Ranking> {
    cpus(group).into_iter().map(|cpus| ranking(set, group, cpus)).collect()
}

fn ranking(set: &ResultSet, group: &Group<'_>, cpus: usize) -> Ranking {
    let uncompared = set.more.get(UNCOMPARED).and_then(serde_json::Value::as_array);
    let is_compared = |arm: &&&Measured| uncompared.is_none_or(|list| list.iter().all(|name| name != &*arm.design));
    let of_cpus = group.arms.iter().filter(|arm| arm.cpus == cpus);
    let mut arms: Vec<&Measured> = of_cpus.filter(is_compared).copied().collect();
    let (metric, unit) = arms.first().map_or(("", ""), |arm| (&arm.metric, &arm.unit));
    let (metric, unit, better) = (metric.to_owned(), unit.to_owned(), direction(metric, unit));
    let middle = |arm: &Measured| median(&arm.samples).unwrap_or(0.0);
    arms.sort_by(|one, other| match better {
        Direction::Lower => middle(one).total_cmp(&middle(other)),
        _ => middle(other).total_cmp(&middle(one)),
    });
    let samples = samples(set, &arms);
    let is_open = is_undecided(&arms);
    let mut places: Vec<Place> = arms.iter().map(|arm| place(set, &arms, arm, better, samples)).collect();
    let is_lead_known = places.first().is_some_and(Place::can_be_judged);
    let is_known = |place: &Place| is_lead_known && place.can_be_judged() && place.standing == Standing::Slower;
    places.iter_mut().filter(|place| is_open && !is_known(place)).for_each(|place| place.standing = Standing::Open);
    let nr_level = places.iter().filter(|place| place.standing == Standing::Level).count();
    let finding = match () {
        () if arms.len() < 2 => Finding::Alone,
        () if is_open => Finding::Undecided,
        () if nr_level == 0 => Finding::Wins,
        () => Finding::Level(nr_level + 1),
    };
    if let Some(best) = places.first_mut() {
        best.standing = if finding == Finding::Wins { Standing::Wins } else { Standing::Best };
    }
    let doubts = if finding == Finding::Alone { Vec::new() } else { doubts(&places) };
    Ranking { workload: group.name.clone(), cpus, metric, unit, samples, places, finding, doubts }
}

/// Returns where a design stands beside the best, which is the first of all.
fn place(set: &ResultSet, arms: &[&Measured], arm: &Measured, better: Direction, samples: Samples) -> Place {
    let (lead, standing) = match arms.first() {
        Some(best) if !std::ptr::eq(*best, arm) => beaten(best, arm, better, samples),
        _ => (None, Standing::Best),
    };
    Place {
        name: arm_name(set, arm),
        median: median(&arm.samples).unwrap_or(0.0),
        runs: arm.samples.clone(),
        has_converged: arm.has_converged(),
        lead,
        standing,
        cost: Cost::of(set, arm),
    }
}

fn samples(set: &ResultSet, arms: &[&Measured]) -> Samples {
    match set.machine.simulated {
        true if arms.iter().any(|arm| arm.more.contains_key(DRAWN)) => Samples::Draws,
        true => Samples::Seeds,
        false => Samples::Runs,
    }
}

/// Returns whether nothing may be said of designs (I2).
fn is_undecided(arms: &[&Measured]) -> bool {
    arms.iter().any(|arm| arm.samples.len() < LEAST_SAMPLES || !arm.has_converged())
}

/// Returns every reason why no winner may be named (I2).
fn doubts(places: &[Place]) -> Vec<Doubt> {
    let names = |is: &dyn Fn(&Place) -> bool| -> Vec<String> {
        places.iter().filter(|place| is(place)).map(|place| place.name.clone()).collect()
    };
    let least = places.iter().map(|place| place.runs.len()).min().unwrap_or(0);
    let moving = names(&|place| !place.has_converged);
    let level = names(&|place| place.is_level());
    let few = (least < LEAST_SAMPLES).then_some(Doubt::TooFew(least));
    let moving = (!moving.is_empty()).then_some(Doubt::NotConverged(moving));
    let level = (!level.is_empty()).then_some(Doubt::Overlap(level));
    few.into_iter().chain(moving).chain(level).collect()
}

/// Returns how many times as fast as a design the best one is, and what that says.
fn beaten(best: &Measured, arm: &Measured, better: Direction, samples: Samples) -> (Option<Interval>, Standing) {
    let (base, head) = match better {
        Direction::Lower => (&best.samples, &arm.samples),
        _ => (&arm.samples, &best.samples),
    };
    let lead = match samples {
        Samples::Draws => drawn(base, head),
        _ => times(base, head),
    };
    let is_sure = |lead: &Interval| lead.low > 1.0 && (samples == Samples::Draws || p_value(base, head) < CHANCE);
    let standing = match &lead {
        Some(lead) if is_sure(lead) => Standing::Slower,
        Some(_) => Standing::Level,
        // Of rates of 0 there is no factor; the test still tells them apart.
        None if p_value(base, head) < CHANCE => Standing::Slower,
        None => Standing::Level,
    };
    (lead, standing)
}

/// Returns how many times as large as `base` the samples `head` are, as verdicts have it (I1); nothing for so few that
/// they say nothing of a difference.
pub fn times(base: &[f64], head: &[f64]) -> Option<Interval> {
    let is_few = base.len().min(head.len()) < LEAST_SAMPLES;
    if is_few { None } else { rank_ratio(base, head) }
}

/// Returns the factor over machines that were drawn, each of which both designs ran on (I1).
fn drawn(base: &[f64], head: &[f64]) -> Option<Interval> {
    let mut ratios: Vec<f64> = base.iter().zip(head).map(|(base, head)| head / base).collect();
    let middle = median(&ratios).filter(|_| ratios.iter().all(|ratio| ratio.is_finite()))?;
    ratios.sort_by(f64::total_cmp);
    let at = |share: f64| ratios[((ratios.len() - 1) as f64 * share).round() as usize];
    Some(Interval { low: at(TAIL), middle, high: at(1.0 - TAIL), n: ratios.len() })
}

impl Place {
    /// Returns whether it has the samples that a verdict takes (I2).
    fn can_be_judged(&self) -> bool {
        self.has_converged && self.runs.len() >= LEAST_SAMPLES
    }

    /// Returns the least and the most of its runs.
    fn ends(&self) -> (f64, f64) {
        self.runs.iter().fold((f64::MAX, f64::MIN), |(low, high), run| (low.min(*run), high.max(*run)))
    }

    /// Returns whether its samples do not tell it from the best.
    fn is_level(&self) -> bool {
        match self.standing {
            Standing::Level => true,
            Standing::Open => self.lead.is_some_and(|lead| lead.low <= 1.0),
            Standing::Wins | Standing::Best | Standing::Slower => false,
        }
    }
}

impl Ranking {
    /// Returns the design with the best median.
    pub fn best(&self) -> &str {
        self.places.first().map_or("", |place| &place.name)
    }

    /// Returns the designs that share the first place.
    pub fn leaders(&self) -> Vec<&str> {
        let is_leader = |place: &&Place| matches!(place.standing, Standing::Wins | Standing::Best | Standing::Level);
        self.places.iter().filter(is_leader).map(|place| &*place.name).collect()
    }

    /// Returns whether the designs that share the first place are within a few per cent, as far as is known.
    fn is_near(&self) -> bool {
        let level = self.places.iter().filter(|place| place.standing == Standing::Level);
        level.map(|place| place.lead).all(|lead| lead.is_some_and(|lead| lead.high.max(1.0 / lead.low) <= NEAR))
    }

    /// Returns whether there are too few samples for the test.
    fn is_few(&self) -> bool {
        self.doubts.iter().any(|doubt| matches!(doubt, Doubt::TooFew(_)))
    }

    /// Says why, as far as was counted, in sentences.
    pub fn why(&self) -> Option<String> {
        let named = |place: usize, which: &'static str| why::Named {
            name: &self.places[place].name,
            which,
            is_sure: self.places[place].standing == Standing::Slower,
            cost: &self.places[place].cost,
        };
        let last = self.places.len().saturating_sub(1);
        // The last of which is known where its time goes; the host's kernel does not tell.
        let slowest = (1..=last).rev().find(|&place| self.places[place].cost.waiting.is_some());
        let behind = |which: &'static str| slowest.map(|place| named(place, if place == last { which } else { "" }));
        match self.finding {
            Finding::Level(many) if many > last => {
                let waiting = self.places.iter().filter_map(|place| place.cost.waiting).reduce(f64::max);
                let own = self.places.first().filter(|place| !place.cost.parts.is_empty());
                let own = own.and_then(|_| why::own(named(0, "")));
                let said: Vec<String> = [self.noise(), why::little(waiting), own].into_iter().flatten().collect();
                (!said.is_empty()).then(|| said.join(" "))
            }
            Finding::Alone => None,
            _ if last == 1 => why::faster(named(0, ""), &[named(1, "")]),
            // The next is the rival that matters, whether or not the runs tell it apart.
            _ => {
                let next = std::iter::once(named(1, ", the next,"));
                let others: Vec<_> = next.chain(behind(", the last,").filter(|_| slowest != Some(1))).collect();
                why::faster(named(0, ""), &others)
            }
        }
    }

    /// Says how much the runs of one design vary, if that is more than the designs differ.
    fn noise(&self) -> Option<String> {
        let vary = |place: &Place| place.ends().1 / place.ends().0;
        let worst = self.places.iter().filter(|place| place.ends().0 > 0.0);
        let worst = worst.max_by(|one, other| vary(one).total_cmp(&vary(other)))?;
        let (first, last) = (self.places.first()?.median, self.places.last()?.median);
        let apart = (first / last).max(last / first);
        let show = |figure: f64| crate::Unit::show_named(&self.unit, figure);
        (vary(worst) > apart).then(|| {
            format!(
                "Runs of one design vary more than the designs do: those of {} from {} to {}, the medians of all designs \
                 from {} to {}.",
                worst.name,
                show(worst.ends().0),
                show(worst.ends().1),
                show(first.min(last)),
                show(first.max(last))
            )
        })
    }
}

#[cfg(test)]
mod tests;
