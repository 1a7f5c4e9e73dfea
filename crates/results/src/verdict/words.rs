//! Verdicts in words: for headlines, for tables, for a terminal.

use super::{Doubt, Finding, Place, Ranking, Samples, Standing, faith, rankings};
use crate::compare::LEAST_SAMPLES;
use crate::screen::{Tone, toned};
use crate::stats::{Interval, LEAST_PAIRS, within};
use crate::{NOT_CONVERGED, ResultSet, Unit};

/// How the factors and intervals of verdicts are computed.
pub const METHOD: &str = "\"Times as fast\" is the ratio of the medians. Its 95 % interval holds the factors that the \
                          Mann-Whitney test does not refute; two designs are told apart if it leaves out 1.";

/// The limit that is said to hold or not, once there are enough runs to say so.
const NARROW: f64 = 0.02;

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
}

impl Place {
    /// Says where it stands, for a table.
    pub fn reading(&self, ranking: &Ranking) -> String {
        match (self.standing, ranking.finding) {
            (Standing::Wins, _) => "wins".into(),
            (Standing::Slower, _) => "slower".into(),
            (Standing::Level, _) => format!("not told from {}", ranking.best()),
            (Standing::Best, Finding::Level(_)) => "best median, no winner".into(),
            (_, Finding::Alone) => "nothing to compare".into(),
            (standing, _) => {
                let first = if standing == Standing::Best { "ahead, undecided" } else { "undecided" };
                let doubts = self.doubts();
                if doubts.is_empty() { first.into() } else { format!("{first}: {}", doubts.join(", ")) }
            }
        }
    }

    /// Says what is wrong with its own samples.
    fn doubts(&self) -> Vec<String> {
        let few = (self.runs.len() < LEAST_SAMPLES).then(|| format!("{} of {LEAST_SAMPLES} runs", self.runs.len()));
        let moving = (!self.has_converged).then(|| NOT_CONVERGED.to_owned());
        let level = (self.standing == Standing::Open && self.is_level()).then(|| "runs overlap".to_owned());
        [moving, level, few].into_iter().flatten().collect()
    }

    /// Says how far it is behind the best: the factor with its interval, and a mark if that is not to be relied on.
    fn behind(&self) -> Option<String> {
        let lead = self.lead.as_ref()?;
        let mark = if self.has_converged { "" } else { ", not converged" };
        let time = Interval { low: 1.0 / lead.high, middle: 1.0 / lead.middle, high: 1.0 / lead.low, n: lead.n };
        let near = match within(&time, NARROW) {
            _ if lead.n < LEAST_PAIRS => String::new(),
            verdict => format!("; within 2 %: {}", verdict.name()),
        };
        Some(format!("{} as {} ({}{mark}{near})", factor(lead.middle), self.name, interval(lead)))
    }
}

impl Doubt {
    /// Says whom it is about, and why nothing is known.
    fn against(&self) -> String {
        match self {
            Self::TooFew(least) => format!("all others of {least} runs"),
            Self::NotConverged(moving) => format!("{}, whose rates had not converged", listed(moving)),
            Self::Overlap(level) => format!("{}, where the interval has 1 in it", listed(level)),
        }
    }

    /// Says it in a clause.
    fn clause(&self, ranking: &Ranking) -> String {
        let listed = |names: &[String]| match names.len() {
            many if many > 2 && many == ranking.places.len() => format!("all {many} designs"),
            _ => listed(names),
        };
        match self {
            Self::TooFew(least) => {
                format!(
                    "{} are too few to tell a winner ({LEAST_SAMPLES} are the fewest)",
                    ranking.samples.each(*least)
                )
            }
            Self::NotConverged(names) => format!("the rates of {} had not converged", listed(names)),
            Self::Overlap(names) => format!("its lead over {} may be none (the interval has 1 in it)", listed(names)),
        }
    }
}

impl Ranking {
    /// Says it in a sentence.
    pub fn sentence(&self) -> String {
        self.said(true)
    }

    /// Says it, and that there are too few samples unless that has been said.
    fn said(&self, names_few: bool) -> String {
        let place = format!("{} on {}", self.workload, on(self.cpus));
        let best = self.best();
        match self.finding {
            Finding::Wins => format!("{best} wins {place}{}", self.lead()),
            Finding::Level(many) if many == self.places.len() => self.no_winner(&place),
            Finding::Level(_) if self.is_near() => {
                format!("{} share the first place in {place}{}", listed(&self.leaders()), self.level())
            }
            Finding::Level(_) => {
                let others = listed(&self.leaders()[1..]);
                format!("{best} is ahead in {place}, but the runs do not tell it from {others}{}", self.level())
            }
            Finding::Alone => format!("{place} ran under {best} alone: {}", self.best_figure()),
            Finding::Undecided if self.has_known_lead() => {
                let known: Vec<&str> = self.known_leads().collect();
                let ahead = format!("{best} is ahead of {} for sure in {place}{}", listed(&known), self.factor(", "));
                let open = self.doubts.iter().map(Doubt::against).collect::<Vec<_>>().join("; ");
                format!("{ahead}; undecided against {open}")
            }
            Finding::Undecided => {
                format!("undecided in {place}: {best} is ahead{}{}", self.factor(", "), self.because(names_few))
            }
        }
    }

    /// Says of whom the best is told apart, and every reason why nobody wins, in a few words.
    pub fn doubts_in_short(&self) -> String {
        let short = |doubt: &Doubt| match doubt {
            Doubt::TooFew(least) => format!("{least} of {LEAST_SAMPLES} runs"),
            Doubt::NotConverged(names) => format!("{} {NOT_CONVERGED}", listed(names)),
            Doubt::Overlap(names) => format!("not told from {}", listed(names)),
        };
        let known: Vec<&str> = self.known_leads().collect();
        let known = if known.is_empty() { String::new() } else { format!("from {} yes; ", listed(&known)) };
        format!("{known}undecided: {}", self.doubts.iter().map(short).collect::<Vec<_>>().join("; "))
    }

    /// Says every reason why nobody wins.
    fn because(&self, names_few: bool) -> String {
        let doubts = self.doubts.iter().filter(|doubt| names_few || !matches!(doubt, Doubt::TooFew(_)));
        let said: Vec<String> = doubts.map(|doubt| doubt.clause(self)).collect();
        if said.is_empty() { String::new() } else { format!("; but {}", said.join("; ")) }
    }

    /// Returns the designs that the best is not known to be ahead of.
    fn undecided(&self) -> String {
        let open = self.places.iter().skip(1).filter(|place| place.standing != Standing::Slower);
        listed(&open.map(|place| &*place.name).collect::<Vec<_>>())
    }

    /// Returns the designs that the best is ahead of for sure, whatever is in doubt beside that.
    fn known_leads(&self) -> impl Iterator<Item = &str> {
        self.places.iter().filter(|place| place.standing == Standing::Slower).map(|place| &*place.name)
    }

    fn has_known_lead(&self) -> bool {
        self.known_leads().next().is_some()
    }

    /// Says by how much a winner is ahead, behind its name.
    fn lead(&self) -> String {
        self.factor(": ")
    }

    /// Says how many times as fast as the next the best one is, behind `before`; nothing where that is not known.
    fn factor(&self, before: &str) -> String {
        let Some(Place { name, lead: Some(lead), .. }) = self.places.get(1) else { return String::new() };
        let next = if self.places.len() > 2 { ", the next" } else { "" };
        format!("{before}{} times as fast as {name}{next} ({})", factor(lead.middle), self.known(lead))
    }

    /// Says how sure a factor is: its interval and the number of samples.
    fn known(&self, lead: &Interval) -> String {
        format!("{} {}, {}", self.interval(), interval(lead), self.samples.each(lead.n))
    }

    /// Returns what the intervals of its factors are called.
    pub fn interval(&self) -> &'static str {
        match self.samples {
            Samples::Draws => "of 90 % of the machines",
            _ => "95 % interval",
        }
    }

    /// Says how many times as fast as each of the others the best is, if there are several.
    fn beside_each(&self) -> Option<String> {
        let said: Vec<String> = self.places.iter().skip(1).filter_map(Place::behind).collect();
        let has_more = said.len() > 1 || self.places.iter().any(|place| place.runs.len() >= LEAST_PAIRS);
        (has_more && !said.is_empty())
            .then(|| format!("{} is so many times as fast ({}): {}", self.best(), self.interval(), said.join(", ")))
    }

    /// Says what an interval is made of.
    fn sureness(&self, lead: &Interval) -> String {
        format!("{}, {}", self.interval(), self.samples.each(lead.n))
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
            _ => {
                let told = format!("no winner in {place}: the runs do not tell the {many} designs apart");
                let lead = self.factor(", ");
                if lead.is_empty() { told } else { format!("{told}; {} has the best median{lead}", self.best()) }
            }
        }
    }

    /// Says it in a few words, behind the number of CPUs.
    fn brief(&self) -> String {
        let (workload, best) = (&self.workload, self.best());
        match self.finding {
            Finding::Wins => format!("{best} wins {workload}{}", self.lead_in_short()),
            Finding::Level(many) if many == self.places.len() => format!("{workload} has no winner"),
            Finding::Level(_) if self.is_near() => format!("{} share the first place in {workload}", self.sharers()),
            Finding::Level(_) => format!("{workload} is undecided between {}", self.sharers()),
            Finding::Alone => format!("{workload} ran under {best} alone"),
            Finding::Undecided if self.has_known_lead() => {
                format!("{best} is ahead in {workload}, undecided against {}", self.undecided())
            }
            Finding::Undecided => format!("{workload} is undecided, {best} ahead"),
        }
    }

    /// Says it in a headline's few words.
    fn brief_alone(&self) -> String {
        let (best, place) = (self.best(), format!("{} on {}", self.workload, on(self.cpus)));
        match self.finding {
            Finding::Wins => format!("{best} wins {place}{}", self.lead_in_short()),
            Finding::Level(many) if many == self.places.len() => format!("no winner in {place}"),
            Finding::Level(_) if self.is_near() => format!("{} share the first place in {place}", self.sharers()),
            Finding::Level(_) => format!("undecided between {} in {place}", self.sharers()),
            Finding::Alone => format!("{place} ran under {best} alone: {}", self.best_figure()),
            Finding::Undecided if self.has_known_lead() => {
                format!("{best} is ahead in {place}, undecided against {}", self.undecided())
            }
            Finding::Undecided => format!("undecided in {place}: {best} is ahead"),
        }
    }

    /// Says how many times as fast as the next the best one is, if that is known.
    fn lead_in_short(&self) -> String {
        let Some(Place { name, lead: Some(lead), .. }) = self.places.get(1) else { return String::new() };
        format!(", {} times as fast as {name}", factor(lead.middle))
    }

    fn best_figure(&self) -> String {
        self.places.first().map_or(String::new(), |place| Unit::show_named(&self.unit, place.median))
    }

    /// Says who is first, in a few words.
    pub fn first(&self) -> String {
        match self.finding {
            Finding::Wins => self.best().to_owned(),
            Finding::Level(many) if many == self.places.len() => "no winner".into(),
            Finding::Level(_) if self.is_near() => self.sharers(),
            Finding::Level(_) => format!("undecided between {}", self.sharers()),
            Finding::Alone => format!("{} alone", self.best()),
            Finding::Undecided if self.has_known_lead() => format!("{} ahead", self.best()),
            Finding::Undecided => format!("undecided, {} ahead", self.best()),
        }
    }
}

/// Returns a few words about all workloads, each on its largest number of CPUs; how sure that is stands in
/// [`Ranking::sentence`].
pub fn headline(rankings: &[Ranking]) -> String {
    let last = largest(rankings);
    match last.as_slice() {
        [] => "Nothing was measured".into(),
        [one] => upper(&one.brief_alone()),
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
    let open = count(|finding| finding == Finding::Undecided);
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
/// why; of a replay, whether it is the recorded program.
pub fn lines(set: &ResultSet) -> Vec<String> {
    let all = rankings(set);
    let last = largest(&all);
    let faith = (set.command == "replay").then(|| faith(set));
    if last.is_empty() || last.iter().all(|one| one.finding == Finding::Alone) {
        let alone = (!last.is_empty()).then(|| "there is one design, so nothing to compare".to_owned());
        let said: Vec<String> = alone.into_iter().chain(faith).collect();
        return if said.is_empty() { said } else { vec![format!("Verdict: {}.", said.join("; "))] };
    }
    let is_few = last.iter().all(|one| one.is_few());
    let mut lines = vec![opening(set, is_few)];
    for one in last {
        let tone = if one.finding == Finding::Wins { Tone::Better } else { Tone::Undecided };
        lines.push(format!("* {}.", toned(tone, &one.said(!is_few))));
        lines.extend(one.beside_each().map(|said| format!("  {said}.")));
        lines.extend(fewer(&all, one));
        lines.extend(one.scattered().map(|said| format!("  Mind that {said}.")));
        lines.extend(one.why().map(|why| format!("  Why: {why}")));
    }
    lines.extend(faith.map(|faith| format!("* {faith}.")));
    lines
}

/// Says what all verdicts of a set share.
fn opening(set: &ResultSet, is_few: bool) -> String {
    let few = format!("undecided: it takes {LEAST_SAMPLES} runs to tell a winner (-r {LEAST_SAMPLES})");
    match set.machine.simulated {
        _ if is_few => format!("Verdict: {}.", toned(Tone::Undecided, &few)),
        true => "Verdict (a simulated machine: intervals are about seeds, not about the model):".into(),
        false => "Verdict:".into(),
    }
}

/// Says who is first on fewer CPUs.
fn fewer(all: &[Ranking], last: &Ranking) -> Option<String> {
    let fewer = all.iter().filter(|one| one.workload == last.workload && one.cpus < last.cpus);
    let said: Vec<String> = fewer.map(|one| format!("{} on {}", one.first(), one.cpus)).collect();
    (!said.is_empty()).then(|| format!("  First on fewer CPUs: {}.", said.join("; ")))
}

/// Returns a list in words.
pub fn listed(names: &[impl AsRef<str>]) -> String {
    let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    match names.as_slice() {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [rest @ .., last] => format!("{} and {last}", rest.join(", ")),
    }
}

/// Returns a sentence with its first letter large, unless it begins with a design's name.
pub fn upper(text: &str) -> String {
    let begins = ["undecided", "no winner"];
    match text.chars().next() {
        Some(first) if begins.iter().any(|word| text.starts_with(word)) => {
            first.to_uppercase().chain(text.chars().skip(1)).collect()
        }
        _ => text.to_owned(),
    }
}
