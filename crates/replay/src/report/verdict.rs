//! What the table means: which designs tie, which win, whether the replay is faithful, and what makes the result less
//! than it seems.
//!
//! # Guarantee
//! The text is made of the result set alone, by `faultless_results::verdict`, which pages and `bench` use too: whoever
//! reads the page reads the same.

use super::Report;
use crate::Checking;
use crate::experiment::{Checks, ReplayArmResult};
use faultless_machine::designs::HOST_DESIGN;
use faultless_plan::Pace;
use faultless_plan::classes::Class;
use faultless_results::ResultSet;
use faultless_results::set::UNCOMPARED;
use faultless_results::verdict;
use serde_json::Value;

/// Of a class's share, what the verdict mentions.
const NOTED_SHARE: f64 = 0.01;

/// Where the rules stand.
const RULES: &str = "docs/judging.md says how a replay is judged.";

/// Returns the verdict on a replay's results.
pub(super) fn text(set: &ResultSet) -> String {
    let words = |key: &str| -> Vec<&str> {
        set.more.get(key).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
    };
    let unlike = words(UNCOMPARED)
        .into_iter()
        .map(|name| format!("{name} is not checked after each operation, so it is not compared"));
    let caveats: Vec<String> = words(CAVEATS).into_iter().map(str::to_owned).chain(unlike).collect();
    let mut lines = verdict::lines(set);
    lines.extend((!caveats.is_empty()).then(|| format!("  Keep in mind: {}.", caveats.join("; "))));
    lines.push(format!("  {RULES}"));
    lines.join("\n")
}

/// The key of what makes the result less than it seems.
pub(super) const CAVEATS: &str = "caveats";

/// Returns what makes the result less than it seems.
pub(super) fn caveats(report: &Report<'_>) -> Vec<String> {
    let is_bound = report.setup.pace == Pace::None && report.outcome.has_shared_spaces;
    let bound = is_bound.then(|| {
        "the program's own pauses are not replayed, so threads wait for locks more than it did: an upper bound"
            .to_owned()
    });
    shares(report).into_iter().chain(applied(&report.outcome.checks)).chain(bound).collect()
}

/// Says what share of the faults was compared, if not all were.
fn applied(checks: &Checks) -> Option<String> {
    let percent = checks.compared_share() * 100.0;
    (checks.faults_applied > 0).then(|| {
        format!("{percent:.1} % of the faults were compared: the others came before what stood in memory had been read")
    })
}

/// Returns the designs that are compared with no other.
pub(super) fn uncompared<'a>(report: &'a Report<'_>) -> Vec<&'a str> {
    let is_host = |arm: &&ReplayArmResult| report.setup.checking == Checking::EachStep && arm.arm.design == HOST_DESIGN;
    report.outcome.arms.iter().filter(is_host).map(|arm| arm.arm.design.as_str()).collect()
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
