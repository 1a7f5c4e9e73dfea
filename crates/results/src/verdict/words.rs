//! Verdicts in words: for headlines, for tables, for a terminal.

use super::{Finding, Place, Ranking, Samples, Standing, rankings};
use crate::compare::LEAST_SAMPLES;
use crate::screen::{Tone, toned};
use crate::stats::Interval;
use crate::{ResultSet, Unit};

/// How the factors and intervals of verdicts are computed.
pub const METHOD: &str = "\"Times as fast\" is the ratio of the medians. Its 95 % interval holds the factors that the \
                          Mann-Whitney test does not refute; two designs are told apart if it leaves out 1.";

/// The most workloads that a headline names.
const NAMED: usize = 3;

/// Returns a factor with as many digits as tell it from 1.
pub fn factor(factor: f64) -> String {
    match factor {
        near if (near - 1.0).abs() < 0.095 => format!("{near:.3}"),
        small if small < 0.0995 => format!("{small:.3}"),
        large if large >= 99.5 => format!("{large:.0}"),
        large if large >= 9.995 => format!("{large:.1}"),
        other => format!("{other:.2}"),
    }
}

/// Returns the ends of an interval.
pub fn interval(interval: &Interval) -> String {
    format!("{} to {}", factor(interval.low), factor(interval.high))
}

/// Returns `CPUs` with their number.
fn on(cpus: usize) -> String {
    format!("{cpus} CPU{}", if cpus == 1 { "" } else { "s" })
}

impl Samples {
    /// Returns so many of them, for each design.
    pub fn each(self, n: usize) -> String {
        let (one, many) = match self {
            Samples::Runs => ("run", "runs"),
            Samples::Seeds => ("seed", "seeds"),
            Samples::Draws => ("drawn machine", "drawn machines"),
        };
        format!("{n} {} each", if n == 1 { one } else { many })
    }

    /// Returns what an interval of them is called.
    pub fn interval(self) -> &'static str {
        if self == Samples::Draws { "of 90 % of the machines" } else { "95 % interval" }
    }
}

/// Says how sure a factor is: its interval and the number of samples.
fn sureness(lead: &Interval, samples: Samples) -> String {
    format!("{} {}, {}", samples.interval(), interval(lead), samples.each(lead.n))
}

impl Place {
    /// Says where it stands, for a table.
    pub fn reading(&self, ranking: &Ranking) -> String {
        match (self.standing, ranking.finding) {
            (Standing::Wins, _) => "wins".into(),
            (Standing::Slower, _) => "slower".into(),
            (Standing::Level, _) => "not told apart".into(),
            (Standing::Best, Finding::Level(_)) => "best median, no winner".into(),
            (_, Finding::TooFew(least)) => format!("undecided: {least} of {LEAST_SAMPLES} runs"),
            (_, Finding::NotConverged) => "undecided: had not settled".into(),
            (_, Finding::Alone) => "nothing to compare".into(),
            (Standing::Best | Standing::Open, Finding::Wins | Finding::Level(_)) => "undecided".into(),
        }
    }
}

impl Ranking {
    /// Says it in a sentence.
    pub fn sentence(&self) -> String {
        let place = format!("{} on {}", self.workload, on(self.cpus));
        let best = self.best();
        match self.finding {
            Finding::Wins => format!("{best} wins {place}{}", self.lead()),
            Finding::Level(many) if many == self.places.len() => self.no_winner(&place),
            Finding::Level(_) => {
                format!("{} share the first place in {place}{}", listed(&self.leaders()), self.level())
            }
            Finding::Alone => format!("{place} ran under {best} alone: {}", self.best_figure()),
            Finding::TooFew(least) => format!(
                "undecided in {place}: {best} is ahead, but {} are too few to tell a winner; {LEAST_SAMPLES} are the \
                 fewest",
                self.samples.each(least)
            ),
            Finding::NotConverged => format!("undecided in {place}: {best} is ahead, but the rates had not settled"),
        }
    }

    fn lead(&self) -> String {
        let Some(Place { name, lead: Some(lead), .. }) = self.places.get(1) else { return String::new() };
        format!(": {} times as fast as {name}, the next ({})", factor(lead.middle), sureness(lead, self.samples))
    }

    /// Says what an interval is made of.
    fn sureness(&self, lead: &Interval) -> String {
        format!("{}, {}", self.samples.interval(), self.samples.each(lead.n))
    }

    /// Returns the design that the runs tell least from the best.
    fn widest(&self) -> Option<(&Place, &Interval)> {
        let level = self.places.iter().filter(|place| place.standing == Standing::Level);
        let with = level.filter_map(|place| Some((place, place.lead.as_ref()?)));
        with.max_by(|(_, one), (_, other)| one.high.total_cmp(&other.high))
    }

    /// Returns who shares the first place, by name if they are few.
    fn sharers(&self) -> String {
        match self.leaders().as_slice() {
            [best, rest @ ..] if rest.len() > 2 => format!("{best} and {} others", rest.len()),
            few => listed(few),
        }
    }

    fn level(&self) -> String {
        let widest = self.widest().map(|(place, lead)| {
            let (best, ends, sure) = (self.best(), interval(lead), self.sureness(lead));
            format!(": {best} may be {ends} times as fast as {} ({sure})", place.name)
        });
        widest.unwrap_or_default()
    }

    fn no_winner(&self, place: &str) -> String {
        let many = self.places.len();
        match self.widest() {
            Some((_, widest)) if self.is_near() => format!(
                "no winner in {place}: all {many} designs are within {:.1} % of {} ({})",
                (widest.high.max(1.0 / widest.low) - 1.0) * 100.0,
                self.best(),
                self.sureness(widest)
            ),
            Some((other, widest)) => format!(
                "no winner in {place}: the runs do not tell the {many} designs apart; {} has the best median, {} times \
                 as fast as {} ({})",
                self.best(),
                factor(widest.middle),
                other.name,
                sureness(widest, self.samples)
            ),
            None => format!("no winner in {place}: the runs do not tell the {many} designs apart"),
        }
    }

    /// Says it in a few words, behind the number of CPUs.
    fn brief(&self) -> String {
        let (workload, best) = (&self.workload, self.best());
        match self.finding {
            Finding::Wins => format!("{best} wins {workload}{}", self.lead()),
            Finding::Level(many) if many == self.places.len() => format!("{workload} has no winner"),
            Finding::Level(_) => format!("{} share the first place in {workload}", self.sharers()),
            Finding::Alone => format!("{workload} ran under {best} alone"),
            Finding::TooFew(_) | Finding::NotConverged => format!("{workload} is undecided, with {best} ahead"),
        }
    }

    fn best_figure(&self) -> String {
        self.places.first().map_or(String::new(), |place| Unit::show_named(&self.unit, place.median))
    }

    /// Says who is first, in a few words.
    pub fn first(&self) -> String {
        match self.finding {
            Finding::Wins => self.best().to_owned(),
            Finding::Level(many) if many == self.places.len() => "no winner".into(),
            Finding::Level(_) => self.sharers(),
            Finding::Alone => format!("{} alone", self.best()),
            Finding::TooFew(_) | Finding::NotConverged => format!("undecided, {} ahead", self.best()),
        }
    }
}

/// Returns one sentence about all workloads, each on its largest number of CPUs.
pub fn headline(rankings: &[Ranking]) -> String {
    let last = largest(rankings);
    match last.as_slice() {
        [] => "Nothing was measured".into(),
        [one] => upper(&one.sentence()),
        many => summed(many),
    }
}

/// Returns the ranking of each workload on its largest number of CPUs.
fn largest(rankings: &[Ranking]) -> Vec<&Ranking> {
    let is_last =
        |one: &&Ranking| !rankings.iter().any(|other| other.workload == one.workload && other.cpus > one.cpus);
    rankings.iter().filter(is_last).collect()
}

fn summed(last: &[&Ranking]) -> String {
    let is_alone = last.iter().all(|one| one.finding == Finding::Alone);
    let cpus = last.iter().map(|one| one.cpus).max().unwrap_or(0);
    if last.len() <= NAMED && !is_alone && last.iter().all(|one| one.cpus == cpus) {
        let said: Vec<String> = last.iter().map(|one| one.brief()).collect();
        return format!("On {} {}", on(cpus), said.join("; "));
    }
    let total = last.len();
    let mut wins: Vec<(&str, usize)> = Vec::new();
    for ranking in last.iter().filter(|one| one.finding == Finding::Wins) {
        match wins.iter_mut().find(|(name, _)| *name == ranking.best()) {
            Some((_, count)) => *count += 1,
            None => wins.push((ranking.best(), 1)),
        }
    }
    wins.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let count = |is: fn(Finding) -> bool| last.iter().filter(|one| is(one.finding)).count();
    let level = count(|finding| matches!(finding, Finding::Level(_)));
    let open = count(|finding| matches!(finding, Finding::TooFew(_) | Finding::NotConverged));
    let mut said: Vec<String> =
        wins.iter().map(|(name, count)| format!("{name} wins {count} of {total} workloads")).collect();
    let have = |many: usize, what: &str| {
        (many > 0).then(|| format!("{many} of {total} workloads {} {what}", if many == 1 { "has" } else { "have" }))
    };
    said.extend(have(level, "no winner"));
    said.extend(have(open, "too little to tell one"));
    if said.is_empty() {
        said.push(format!("{total} workloads ran under one design each"));
    }
    let place =
        if last.iter().all(|one| one.cpus == cpus) { on(cpus) } else { "the largest number of CPUs of each".into() };
    format!("On {place} {}", said.join("; "))
}

/// Returns what a terminal is told of a set: for each workload who wins on the most CPUs, who is first on fewer, and
/// why.
pub fn lines(set: &ResultSet) -> Vec<String> {
    let all = rankings(set);
    let last = largest(&all);
    let is = |wanted: fn(Finding) -> bool| !last.is_empty() && last.iter().all(|one| wanted(one.finding));
    match () {
        () if last.is_empty() => return Vec::new(),
        () if is(|finding| finding == Finding::Alone) => {
            return vec!["Verdict: there is one design, so nothing to compare.".into()];
        }
        () if is(|finding| matches!(finding, Finding::TooFew(_))) => {
            let few = format!("undecided: it takes {LEAST_SAMPLES} runs to tell a winner (-r {LEAST_SAMPLES})");
            return vec![format!("Verdict: {}.", toned(Tone::Undecided, &few))];
        }
        () => {}
    }
    let model = if set.machine.simulated {
        " (a simulated machine: intervals are about seeds, not about the model)"
    } else {
        ""
    };
    let mut lines = vec![format!("Verdict{model}:")];
    for one in last {
        let tone = if one.finding == Finding::Wins { Tone::Better } else { Tone::Undecided };
        lines.push(format!("* {}.", toned(tone, &one.sentence())));
        lines.extend(fewer(&all, one));
        lines.extend(one.why().map(|why| format!("  Why: {why}")));
    }
    lines
}

/// Says who is first on fewer CPUs.
fn fewer(all: &[Ranking], last: &Ranking) -> Option<String> {
    let fewer = all.iter().filter(|one| one.workload == last.workload && one.cpus < last.cpus);
    let said: Vec<String> = fewer.map(|one| format!("{} on {}", one.first(), one.cpus)).collect();
    (!said.is_empty()).then(|| format!("  First on fewer CPUs: {}.", said.join("; ")))
}

/// Returns a list in words.
pub fn listed(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [rest @ .., last] => format!("{} and {last}", rest.join(", ")),
    }
}

/// Returns a sentence with its first letter large, unless it begins with a design's name.
fn upper(text: &str) -> String {
    let begins = ["undecided", "no winner"];
    match text.chars().next() {
        Some(first) if begins.iter().any(|word| text.starts_with(word)) => {
            first.to_uppercase().chain(text.chars().skip(1)).collect()
        }
        _ => text.to_owned(),
    }
}
