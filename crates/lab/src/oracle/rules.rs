//! What is not compared, and why: all exemptions of the oracle.
//!
//! # Guarantee
//! An outcome that differs is a difference unless a rule here names it; each use of a rule is counted and printed.

use faultless_linux::oracle::{AreaSeen, Call, Op, Outcome};

/// A named exemption.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// Equal neighbours stand apart on one side and are one area on the other; all else is equal.
    AreaHistory,
    /// What is in memory after MADV_PAGEOUT.
    Reclaimed,
}

impl Rule {
    /// All rules.
    pub const ALL: [Self; 2] = [Self::AreaHistory, Self::Reclaimed];

    /// Returns the name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AreaHistory => "area_history",
            Self::Reclaimed => "reclaimed",
        }
    }

    /// Returns the reason.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Reclaimed => {
                "mincore after MADV_PAGEOUT: which pages the kernel reclaims depends on lists that it fills in batches"
            }
            Self::AreaHistory => {
                "whether equal neighbours are joined depends on what was faulted before they met, and programs can't tell"
            }
        }
    }
}

/// How two outcomes compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// They are the same.
    Same,
    /// They differ in what a rule names.
    Exempt(Rule),
    /// They differ.
    Different,
}

/// Compares what the kernel and the VM made of the last of some operations.
pub fn compare(ops: &[Op], kernel: &Outcome, vm: &Outcome) -> Verdict {
    const PAGEOUT: u64 = 21;
    let is_mincore = ops.last().is_some_and(|op| op.call == Call::Mincore);
    let paged_out = || ops.iter().any(|op| op.call == Call::Madvise && op.args[2] == PAGEOUT);
    match (kernel, vm) {
        _ if kernel == vm => Verdict::Same,
        (Outcome::Value(_), Outcome::Value(_)) if is_mincore && paged_out() => Verdict::Exempt(Rule::Reclaimed),
        (Outcome::List(kernel), Outcome::List(vm)) if joined(kernel) == joined(vm) => {
            Verdict::Exempt(Rule::AreaHistory)
        }
        _ => Verdict::Different,
    }
}

/// Returns a list with equal neighbours joined.
pub fn joined(areas: &[AreaSeen]) -> Vec<AreaSeen> {
    let mut result: Vec<AreaSeen> = Vec::with_capacity(areas.len());
    for area in areas {
        match result.last_mut() {
            Some(last) if last.is_continued_by(area) => {
                last.end = area.end;
                last.digest = last.digest.wrapping_add(area.digest);
            }
            _ => result.push(*area),
        }
    }
    result
}
