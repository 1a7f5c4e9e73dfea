//! What the table means: first one plain sentence (which designs tie, which win, whether the replay is faithful), then
//! the figures behind it.
//!
//! # Guarantee
//! No difference is claimed without five samples a side, or when the interval that is printed beside it includes 1:
//! that of the rank test, as `faultless_results::verdict` has it. Whatever makes the result less than it seems is named
//! in the same breath.

use super::Report;
use crate::Checking;
use crate::experiment::ArmResult;
use faultless_machine::designs::HOST_DESIGN;
use faultless_plan::Pace;
use faultless_plan::classes::Class;
use faultless_results::compare::{CHANCE, LEAST_SAMPLES};
use faultless_results::screen::{Tone, toned};
use faultless_results::stats::{Interval, LEAST_PAIRS, p_value, rank_ratio, within};
use faultless_results::verdict::{factor, interval as ends};

/// The limit that is said to hold or not, once there are enough pairs to say so.
const NARROW: f64 = 0.02;

/// Of a class's share, what the verdict mentions.
const NOTED_SHARE: f64 = 0.01;

/// Where the rules stand.
const RULES: &str = "docs/judging.md says how a replay is judged.";

/// Returns the verdict.
pub(super) fn text(report: &Report<'_>) -> String {
    let pairs = pairs(report);
    let mut details: Vec<String> = pairs.iter().filter_map(|pair| pair.details(report)).collect();
    details.extend(caveats(report));
    let winners = winners(report, &pairs);
    let details = if details.is_empty() { String::new() } else { format!("In detail: {}. ", details.join("; ")) };
    format!("Verdict: {winners}, and {}. {details}{RULES}", faith(report))
}

/// Returns what makes the result less than it seems.
pub(super) fn caveats(report: &Report<'_>) -> Vec<String> {
    let is_bound = report.setup.pace == Pace::None && report.outcome.has_shared_spaces;
    let bound = is_bound.then(|| "contention is an upper bound, blocking not replayed".to_owned());
    shares(report).into_iter().chain(bound).collect()
}

/// Returns the designs that are compared with no other.
pub(super) fn uncompared<'a>(report: &'a Report<'_>) -> Vec<&'a str> {
    let is_host = |arm: &&ArmResult| report.setup.checking == Checking::EachStep && arm.arm.design == HOST_DESIGN;
    report.outcome.arms.iter().filter(is_host).map(|arm| arm.arm.design.as_str()).collect()
}

/// A design beside the one that it is compared with.
struct Pair<'a> {
    base: &'a ArmResult,
    head: &'a ArmResult,
    side: Side,
    /// How many times as fast it is, if there are enough runs to tell.
    interval: Option<Interval>,
    p: f64,
}

/// What a comparison says of the second design.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Faster,
    Slower,
    Ties,
    /// Too few runs.
    Unknown,
}

/// Pairs each arm with the first one that has its semaphore and CPUs.
fn pairs<'a>(report: &'a Report<'_>) -> Vec<Pair<'a>> {
    let arms = &report.outcome.arms;
    let base_of = |arm: &ArmResult| {
        arms.iter().find(|base| {
            // The host's kernel, which has its own semaphore, is compared with whatever comes first.
            let has_same = base.arm.semaphore == arm.arm.semaphore || arm.arm.semaphore.is_empty();
            has_same && base.arm.cpus == arm.arm.cpus
        })
    };
    // Checked after each operation, the virtual memory is slow; the host's kernel is not checked.
    let is_unlike = |one: &ArmResult, other: &ArmResult| {
        let is_host = |arm: &ArmResult| arm.arm.design == HOST_DESIGN;
        report.setup.checking == Checking::EachStep && is_host(one) != is_host(other)
    };
    let pairs =
        arms.iter().filter_map(|head| base_of(head).filter(|base| base.arm != head.arm).map(|base| (base, head)));
    let pairs = pairs.filter(|(base, head)| !is_unlike(base, head));
    let mut pairs: Vec<_> = pairs.map(|(base, head)| Pair::of(base, head)).collect();
    pairs.sort_by_key(|pair| arms.iter().position(|arm| arm.arm == pair.base.arm));
    pairs
}

impl<'a> Pair<'a> {
    fn of(base: &'a ArmResult, head: &'a ArmResult) -> Self {
        let times = |arm: &ArmResult| arm.passes.iter().map(|pass| pass.elapsed_ns as f64).collect::<Vec<f64>>();
        let has_enough = head.passes.len() >= LEAST_SAMPLES;
        let interval = has_enough.then(|| rank_ratio(&times(head), &times(base))).flatten();
        let p = p_value(&times(base), &times(head));
        let side = interval.as_ref().map_or(Side::Unknown, |interval| side(interval, p));
        Self { base, head, side, interval, p }
    }

    fn name(&self) -> &'a str {
        &self.head.arm.design
    }

    /// Returns the figures, if there are enough runs for any.
    fn details(&self, report: &Report<'_>) -> Option<String> {
        let interval = self.interval.as_ref()?;
        let where_ = if report.outcome.arms.len() > 2 {
            format!(" ({}, {} CPUs)", self.head.arm.semaphore, self.head.arm.cpus)
        } else {
            String::new()
        };
        Some(format!("{} {}{where_}", self.name(), said(interval, self.p, &self.base.arm.design)))
    }
}

/// Says which designs tie and which win, for each semaphore and number of CPUs.
fn winners(report: &Report<'_>, pairs: &[Pair<'_>]) -> String {
    if pairs.is_empty() {
        let is_alone = report.outcome.arms.len() < 2;
        let alone = "there is one design, so nothing to compare";
        let unlike = "the host's kernel is not checked after each operation, so it is not compared";
        return if is_alone { alone } else { unlike }.into();
    }
    let groups: Vec<&[Pair<'_>]> = pairs.chunk_by(|one, other| one.base.arm == other.base.arm).collect();
    let said = groups.iter().map(|group| match groups.len() {
        1 => rank(group),
        _ => format!("with {} on {} CPUs {}", group[0].base.arm.semaphore, group[0].base.arm.cpus, rank(group)),
    });
    said.collect::<Vec<_>>().join("; ")
}

/// Says where the designs of a group stand beside the one that they are compared with.
fn rank(group: &[Pair<'_>]) -> String {
    let base = &group[0].base.arm.design;
    let on = |side: Side| group.iter().filter(|pair| pair.side == side).map(Pair::name).collect::<Vec<_>>();
    let (ties, unknown) = (on(Side::Ties), on(Side::Unknown));
    if ties.len() == group.len() && group.len() > 1 {
        return format!("the runs do not tell the {} designs apart", group.len() + 1);
    }
    let of = |names: Vec<&str>, one: &str, many: &str| match names.as_slice() {
        [] => None,
        [name] => Some(format!("{name} {one} {base}")),
        names => Some(format!("{} {many} {base}", listed(names))),
    };
    let said = [
        of(on(Side::Faster), "is faster than", "are faster than").map(|said| toned(Tone::Better, &said)),
        of(on(Side::Slower), "is slower than", "are slower than").map(|said| toned(Tone::Worse, &said)),
        of(ties, "ties with", "tie with"),
        (!unknown.is_empty()).then(|| toned(Tone::Undecided, &too_few())),
    ];
    said.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn listed(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [name] => (*name).into(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

fn said(interval: &Interval, p: f64, base: &str) -> String {
    let Interval { low, middle, high, n } = *interval;
    let word = match side(interval, p) {
        Side::Faster => "is faster:",
        Side::Slower => "is slower:",
        Side::Ties | Side::Unknown => "shows no difference: ~",
    };
    let numbers = format!("{} times as fast as {base}, 95 % interval {}, n {n}", factor(middle), ends(interval));
    let time = Interval { low: 1.0 / high, middle: 1.0 / middle, high: 1.0 / low, n };
    let numbers = match within(&time, NARROW) {
        _ if interval.n < LEAST_PAIRS => numbers,
        verdict => format!("{numbers}; within 2 %: {}", verdict.name()),
    };
    format!("{word} {numbers}")
}

/// Returns what the interval says of the second side; the interval and the test differ at most where runs are equal.
fn side(interval: &Interval, p: f64) -> Side {
    match () {
        () if p < CHANCE && interval.low > 1.0 => Side::Faster,
        () if p < CHANCE && interval.high < 1.0 => Side::Slower,
        () => Side::Ties,
    }
}

/// Says whether the replay is the recorded program.
fn faith(report: &Report<'_>) -> String {
    let checks = &report.outcome.checks;
    let mut doubts = Vec::new();
    if checks.mismatches > 0 {
        doubts.push(format!("{} mismatches", checks.mismatches));
    }
    if !checks.skipped.is_empty() {
        let kinds: Vec<&str> = checks.skipped.iter().map(|(kind, _)| *kind).collect();
        doubts.push(format!("not replayed: {}", kinds.join(", ")));
    }
    if checks.faults_recorded == 0 {
        doubts.push("the trace holds no fault, so nothing was checked".into());
    }
    if checks.lost > 0 {
        doubts.push(format!("{} records are missing from the recording", checks.lost));
    }
    match doubts.as_slice() {
        [] if report.outcome.was_interrupted => "the replay is faithful as far as it went: 0 mismatches".into(),
        [] => "the replay is faithful: 0 mismatches".into(),
        doubts => format!("the replay is not the recorded program: {}", doubts.join(", ")),
    }
}

/// Returns what is said where there are fewer samples.
fn too_few() -> String {
    format!("undecided: it takes {LEAST_SAMPLES} runs to tell a winner (-r {LEAST_SAMPLES})")
}

fn shares(report: &Report<'_>) -> Vec<String> {
    let checks = &report.outcome.checks;
    // Pages that --pattern makes earlier than the program did are what was asked for.
    let is_asked_for = |class| class == Class::Populated && report.setup.pattern.is_some();
    let noted = Class::ALL.into_iter().filter(|&class| checks.share(class) > NOTED_SHARE && !is_asked_for(class));
    noted
        .map(|class| {
            let (name, percent) = (class.name(), checks.share(class) * 100.0);
            format!("{name} explains {percent:.1} % of the faults, above 1 %: {}", class.advice())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Arm;

    fn interval(low: f64, high: f64) -> Interval {
        Interval { low, middle: f64::midpoint(low, high), high, n: 9 }
    }

    #[test]
    fn an_interval_that_includes_1_shows_no_difference_whatever_the_ranks_say() {
        for (low, high) in [(0.99, 1.2), (0.8, 1.01), (1.0, 1.3), (0.7, 1.0)] {
            assert_eq!(side(&interval(low, high), 0.001), Side::Ties);
        }
    }

    #[test]
    fn an_interval_beside_1_says_on_which_side_unless_the_ranks_may_be_chance() {
        assert_eq!(side(&interval(1.01, 1.2), 0.04), Side::Faster);
        assert_eq!(side(&interval(0.8, 0.99), 0.04), Side::Slower);
        assert_eq!(side(&interval(1.01, 1.2), 0.05), Side::Ties);
    }

    #[test]
    fn the_figures_name_the_direction_and_the_interval() {
        let said = said(&interval(1.1, 1.3), 0.01, "mmap-sem");
        assert_eq!(said, "is faster: 1.20 times as fast as mmap-sem, 95 % interval 1.10 to 1.30, n 9");
    }

    fn arm(design: &str) -> ArmResult {
        let arm = Arm { design: design.into(), semaphore: "rwsem-v8".into(), cpus: 2 };
        ArmResult { arm, passes: Vec::new() }
    }

    fn ranked(sides: &[(&str, Side)]) -> String {
        let base = arm("mmap-sem");
        let heads: Vec<(ArmResult, Side)> = sides.iter().map(|&(name, side)| (arm(name), side)).collect();
        let pair = |(head, side)| Pair { base: &base, head, side, interval: None, p: 1.0 };
        rank(&heads.iter().map(|(head, side)| pair((head, *side))).collect::<Vec<_>>())
    }

    #[test]
    fn the_first_sentence_says_who_wins_and_who_ties() {
        assert_eq!(
            ranked(&[("spf-v11", Side::Ties), ("vma-lock", Side::Ties)]),
            "the runs do not tell the 3 designs apart"
        );
        assert_eq!(ranked(&[("vma-lock", Side::Ties)]), "vma-lock ties with mmap-sem");
        let mixed =
            [("spf-v9", Side::Ties), ("spf-v11", Side::Faster), ("vma-lock", Side::Faster), ("linux", Side::Slower)];
        let said =
            "spf-v11 and vma-lock are faster than mmap-sem, linux is slower than mmap-sem, spf-v9 ties with mmap-sem";
        assert_eq!(ranked(&mixed), said);
        assert_eq!(ranked(&[("linux", Side::Unknown)]), "undecided: it takes 5 runs to tell a winner (-r 5)");
    }
}
