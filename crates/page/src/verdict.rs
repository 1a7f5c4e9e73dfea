//! Who wins, by how much, how sure that is, and why.
//!
//! # Guarantee
//! A winner is named only if it has five samples, its rates had settled, and a rank test gives its lead over the next
//! design a probability below 5 % by chance with an interval of the ratio that leaves out 1; everything else is a tie
//! or undecided, with the reason.

use faultless_results::compare::{CHANCE, Direction, LEAST_SAMPLES, direction};
use faultless_results::stats::{Interval, median, median_ratio, p_value};
use faultless_results::{Measured, ResultSet, Unit};

use crate::arms::{Group, arm_name, cpus};

/// What may be said of a workload on a number of CPUs.
#[derive(Clone, Debug, PartialEq)]
pub enum Finding {
    /// One design is ahead for sure.
    Wins {
        /// By what factor it is ahead of the next.
        lead: Interval,
        /// How probable such a lead is by chance.
        p: f64,
    },
    /// The first designs can't be told apart: so many.
    Ties(usize),
    /// There is one design.
    Alone,
    /// There are too few runs.
    TooFew(usize),
    /// Rates had not settled.
    NotConverged,
}

/// The designs of a workload on a number of CPUs, the best first.
#[derive(Clone, Debug)]
pub struct Ranking {
    /// The workload.
    pub workload: String,
    /// How many CPUs.
    pub cpus: usize,
    /// The designs, with their medians.
    pub designs: Vec<(String, f64)>,
    /// The unit of the medians.
    pub unit: String,
    /// Of the time of the best and of the last, how much is waiting for the address-space lock.
    pub waiting: [Option<f64>; 2],
    /// What may be said.
    pub finding: Finding,
}

/// Ranks the designs of a group on each number of CPUs.
pub fn rankings(set: &ResultSet, group: &Group<'_>) -> Vec<Ranking> {
    cpus(group).into_iter().map(|cpus| ranking(set, group, cpus)).collect()
}

fn ranking(set: &ResultSet, group: &Group<'_>, cpus: usize) -> Ranking {
    let mut arms: Vec<(&Measured, f64)> =
        group.arms.iter().filter(|arm| arm.cpus == cpus).map(|arm| (*arm, middle(arm))).collect();
    let (metric, unit) = arms.first().map_or(("", ""), |(arm, _)| (&arm.metric, &arm.unit));
    let is_lower_better = direction(metric, unit) == Direction::Lower;
    arms.sort_by(|(_, one), (_, other)| if is_lower_better { one.total_cmp(other) } else { other.total_cmp(one) });
    let sorted: Vec<&Measured> = arms.iter().map(|(arm, _)| *arm).collect();
    Ranking {
        workload: group.name.clone(),
        cpus,
        unit: unit.to_owned(),
        finding: finding(&sorted, is_lower_better, set.seed),
        waiting: [sorted.first(), sorted.last()].map(|arm| waiting(set, arm?)),
        designs: arms.iter().map(|(arm, middle)| (arm_name(set, arm), *middle)).collect(),
    }
}

fn middle(arm: &Measured) -> f64 {
    median(&arm.samples).unwrap_or(0.0)
}

/// Returns what share of an arm's time is waiting for the address-space lock.
fn waiting(set: &ResultSet, arm: &Measured) -> Option<f64> {
    let is_same = |other: &&Measured| {
        other.metric == "lock_wait_share"
            && (&other.workload, other.mode, &other.design, &other.semaphore, other.cpus)
                == (&arm.workload, arm.mode, &arm.design, &arm.semaphore, arm.cpus)
    };
    median(&set.results.iter().find(is_same)?.samples)
}

/// Says what may be said of designs, the best first.
fn finding(arms: &[&Measured], is_lower_better: bool, seed: u64) -> Finding {
    let [best, rest @ ..] = arms else { return Finding::Alone };
    let Some(next) = rest.first() else { return Finding::Alone };
    if arms.iter().any(|arm| !arm.has_converged()) {
        return Finding::NotConverged;
    }
    let least = arms.iter().map(|arm| arm.samples.len()).min().unwrap_or(0);
    if least < LEAST_SAMPLES {
        return Finding::TooFew(least);
    }
    let lead = |other: &Measured| match is_lower_better {
        true => median_ratio(&best.samples, &other.samples, seed),
        false => median_ratio(&other.samples, &best.samples, seed),
    };
    let p = |other: &Measured| p_value(&best.samples, &other.samples);
    let is_ahead = |other: &Measured| lead(other).filter(|lead| lead.low > 1.0 && p(other) < CHANCE);
    match is_ahead(next) {
        Some(lead) => Finding::Wins { lead, p: p(next) },
        None => Finding::Ties(1 + rest.iter().filter(|arm| is_ahead(arm).is_none()).count()),
    }
}

impl Ranking {
    /// Returns the best design.
    pub fn best(&self) -> &str {
        self.designs.first().map_or("", |(name, _)| name)
    }

    /// Returns the designs that share the first place.
    pub fn leaders(&self) -> Vec<&str> {
        let many = match self.finding {
            Finding::Wins { .. } | Finding::Alone => 1,
            Finding::Ties(many) => many,
            Finding::TooFew(_) | Finding::NotConverged => 0,
        };
        self.designs.iter().take(many).map(|(name, _)| &**name).collect()
    }

    /// Says it in a sentence.
    pub fn sentence(&self) -> String {
        let place = format!("{} on {} CPU{}", self.workload, self.cpus, if self.cpus == 1 { "" } else { "s" });
        match &self.finding {
            Finding::Wins { lead, .. } => {
                let next = self.designs.get(1).map_or("", |(name, _)| name);
                format!(
                    "{} wins {place}: {} times as fast as {next}, the next (95 % interval {} to {}, n {}){}",
                    self.best(),
                    factor(lead.middle),
                    factor(lead.low),
                    factor(lead.high),
                    lead.n,
                    self.why()
                )
            }
            Finding::Ties(many) if *many == self.designs.len() => {
                format!("all {many} designs tie in {place}: the runs show no difference")
            }
            Finding::Ties(_) => {
                format!(
                    "{} tie in {place}: the runs show no difference between them{}",
                    listed(&self.leaders()),
                    self.why()
                )
            }
            Finding::Alone => format!("{place} ran under {} alone: {}", self.best(), self.best_figure()),
            Finding::TooFew(least) => {
                let runs = if *least == 1 { "1 run".to_owned() } else { format!("{least} runs") };
                format!(
                    "undecided in {place}: {} is ahead, but {runs} a design can't tell a winner; five are the fewest",
                    self.best()
                )
            }
            Finding::NotConverged => {
                format!("undecided in {place}: {} is ahead, but the rates had not settled", self.best())
            }
        }
    }

    /// Says it in a few words, behind the number of CPUs.
    fn brief(&self) -> String {
        let workload = &self.workload;
        match &self.finding {
            Finding::Wins { lead, .. } => {
                let next = self.designs.get(1).map_or("", |(name, _)| name);
                format!("{} wins {workload}, {} times as fast as {next}", self.best(), factor(lead.middle))
            }
            Finding::Ties(many) if *many == self.designs.len() => format!("all {many} designs tie in {workload}"),
            Finding::Ties(_) => format!("{} tie in {workload}", listed(&self.leaders())),
            Finding::Alone => format!("{workload} ran under {} alone", self.best()),
            Finding::TooFew(_) | Finding::NotConverged => {
                format!("{workload} is undecided, with {} ahead", self.best())
            }
        }
    }

    fn best_figure(&self) -> String {
        self.designs.first().map_or(String::new(), |(_, figure)| Unit::show_named(&self.unit, *figure))
    }

    /// Says why, if waiting for the lock tells.
    fn why(&self) -> String {
        match self.waiting {
            [Some(best), Some(last)] if last > best + 0.05 => {
                let worst = self.designs.last().map_or("", |(name, _)| name);
                let show = |share: f64| Unit::Share.show(share);
                format!(
                    ". Why: {worst} waits for the address-space lock {} of its time, {} {}",
                    show(last),
                    self.best(),
                    show(best)
                )
            }
            _ => String::new(),
        }
    }

    /// Says how sure it is, in a few words.
    pub fn certainty(&self) -> String {
        match &self.finding {
            Finding::Wins { p, .. } if *p < 0.001 => "certain (p < 0.001)".into(),
            Finding::Wins { p, .. } => format!("certain (p = {p:.3})"),
            Finding::Ties(many) => format!("a tie of {many}"),
            Finding::Alone => "nothing to compare".into(),
            Finding::TooFew(least) => format!("undecided: {least} of five runs"),
            Finding::NotConverged => "undecided: not converged".into(),
        }
    }
}

/// Returns one sentence about all workloads, each on its largest number of CPUs.
pub fn headline(rankings: &[Ranking]) -> String {
    let last = |one: &&Ranking| !rankings.iter().any(|other| other.workload == one.workload && other.cpus > one.cpus);
    let last: Vec<&Ranking> = rankings.iter().filter(last).collect();
    match last.as_slice() {
        [] => "Nothing was measured".into(),
        [one] => upper(&one.sentence()),
        many => summed(many),
    }
}

/// The most workloads that the headline names.
const NAMED: usize = 3;

/// Returns a factor with as many digits as tell it from 1.
pub fn factor(factor: f64) -> String {
    if (factor - 1.0).abs() < 0.095 { format!("{factor:.3}") } else { format!("{factor:.2}") }
}

fn summed(last: &[&Ranking]) -> String {
    let is_alone = last.iter().all(|one| matches!(one.finding, Finding::Alone));
    let cpus = last.iter().map(|one| one.cpus).max().unwrap_or(0);
    if last.len() <= NAMED && !is_alone && last.iter().all(|one| one.cpus == cpus) {
        let said: Vec<String> = last.iter().map(|one| one.brief()).collect();
        let plural = if cpus == 1 { "" } else { "s" };
        return format!("On {cpus} CPU{plural} {}", said.join("; "));
    }
    let total = last.len();
    let mut wins: Vec<(&str, usize)> = Vec::new();
    for ranking in last.iter().filter(|one| matches!(one.finding, Finding::Wins { .. })) {
        match wins.iter_mut().find(|(name, _)| *name == ranking.best()) {
            Some((_, count)) => *count += 1,
            None => wins.push((ranking.best(), 1)),
        }
    }
    wins.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let count = |is: fn(&Finding) -> bool| last.iter().filter(|one| is(&one.finding)).count();
    let ties = count(|finding| matches!(finding, Finding::Ties(_)));
    let open = count(|finding| matches!(finding, Finding::TooFew(_) | Finding::NotConverged));
    let mut said: Vec<String> =
        wins.iter().map(|(name, count)| format!("{name} wins {count} of {total} workloads")).collect();
    if ties > 0 {
        said.push(format!("{ties} of {total} workloads {} a tie", if ties == 1 { "is" } else { "are each" }));
    }
    if open > 0 {
        said.push(format!("{open} of {total} workloads {} undecided", if open == 1 { "is" } else { "are" }));
    }
    if said.is_empty() {
        return format!("{total} workloads ran under one design: there is nothing to compare");
    }
    upper(&format!("on {cpus} CPUs {}", listed(&said)))
}

/// Returns a list as a sentence has it.
pub fn listed(names: &[impl AsRef<str>]) -> String {
    match names {
        [] => String::new(),
        [name] => name.as_ref().into(),
        [first @ .., last] => {
            let first: Vec<&str> = first.iter().map(AsRef::as_ref).collect();
            format!("{} and {}", first.join(", "), last.as_ref())
        }
    }
}

fn upper(text: &str) -> String {
    // A design's name keeps its letters; a word of ours begins the sentence.
    let is_ours = ["all ", "on ", "undecided "].iter().any(|word| text.starts_with(word));
    let mut letters = text.chars();
    match letters.next().filter(|_| is_ours) {
        Some(first) => first.to_uppercase().chain(letters).collect(),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arms::groups;
    use faultless_results::{MachineInfo, Mode};

    fn set(arms: &[(&str, &[f64])]) -> ResultSet {
        let mut set = ResultSet::new("bench", 1, MachineInfo::default());
        set.results = arms.iter().map(|(design, samples)| arm(design, samples)).collect();
        set
    }

    fn arm(design: &str, samples: &[f64]) -> Measured {
        Measured {
            workload: "malloc1".into(),
            mode: Mode::Threads,
            design: design.into(),
            semaphore: None,
            cpus: 2,
            workers: None,
            metric: "ops_per_s".into(),
            unit: "ops/s".into(),
            samples: samples.to_vec(),
            counters: Default::default(),
            more: Default::default(),
        }
    }

    fn said(set: &ResultSet) -> String {
        headline(&rankings(set, &groups(set, "ops_per_s")[0]))
    }

    const SLOW: [f64; 6] = [10.0, 11.0, 10.5, 10.2, 10.8, 10.1];
    const FAST: [f64; 6] = [20.0, 21.0, 20.5, 20.2, 20.8, 20.1];

    #[test]
    fn a_lead_that_is_sure_is_named_with_its_interval() {
        let said = said(&set(&[("mmap-sem", &SLOW), ("faultless", &FAST)]));
        assert!(said.starts_with("faultless wins malloc1 on 2 CPUs: 1.9"), "{said}");
        assert!(said.contains("95 % interval") && said.contains("n 6"), "{said}");
    }

    #[test]
    fn what_the_runs_do_not_tell_is_not_claimed() {
        let near: Vec<f64> = SLOW.iter().rev().copied().collect();
        assert!(said(&set(&[("a", &SLOW), ("b", &near)])).starts_with("All 2 designs tie"));
        assert!(said(&set(&[("a", &SLOW), ("b", &near), ("c", &[1.0; 6])])).contains("a and b tie"));
        let few = said(&set(&[("a", &SLOW[..1]), ("b", &FAST)]));
        assert!(few.contains("b is ahead, but 1 run a design can't tell"), "{few}");
        let mut moving = set(&[("a", &SLOW), ("b", &FAST)]);
        moving.results[0].more.insert("converged".into(), serde_json::json!([true, false]));
        assert!(said(&moving).contains("had not settled"));
    }

    #[test]
    fn less_time_wins() {
        let mut set = set(&[("slow", &FAST), ("quick", &SLOW)]);
        set.results.iter_mut().for_each(|result| (result.metric, result.unit) = ("elapsed_ns".into(), "ns".into()));
        let groups = groups(&set, "elapsed_ns");
        assert!(headline(&rankings(&set, &groups[0])).starts_with("quick wins"));
    }

    #[test]
    fn several_workloads_are_counted() {
        let mut two = set(&[("mmap-sem", &SLOW), ("faultless", &FAST)]);
        let other = two.results.clone().into_iter().map(|result| Measured { workload: "mmap1".into(), ..result });
        two.results.extend(other.collect::<Vec<_>>());
        let all: Vec<Ranking> = groups(&two, "ops_per_s").iter().flat_map(|group| rankings(&two, group)).collect();
        let said = headline(&all);
        assert!(
            said.starts_with("On 2 CPUs faultless wins malloc1, 1.9") && said.contains("; faultless wins mmap1, 1.9")
        );
        let many = |place: usize| {
            two.results[..2].iter().map(move |one| Measured { workload: format!("w{place}"), ..one.clone() })
        };
        let four = ResultSet { results: (0..4).flat_map(many).collect(), ..set(&[]) };
        let all: Vec<Ranking> = groups(&four, "ops_per_s").iter().flat_map(|group| rankings(&four, group)).collect();
        assert_eq!(headline(&all), "On 2 CPUs faultless wins 4 of 4 workloads");
    }
}
