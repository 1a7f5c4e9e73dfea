//! What is not compared, and why: all exemptions of the oracle.
//!
//! # Guarantee
//! An outcome that differs is a difference unless a rule here names it; each use of a rule is counted and printed.

use faultless_linux::oracle::{AreaSeen, Call, Op, Outcome, PAGE};

/// A named exemption.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// Equal neighbours stand apart on one side and are one area on the other; all else is equal.
    AreaHistory,
    /// Clean pages of objects that MADV_PAGEOUT dropped.
    DroppedClean,
}

impl Rule {
    /// All rules.
    pub const ALL: [Self; 2] = [Self::AreaHistory, Self::DroppedClean];

    /// Returns the name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AreaHistory => "area_history",
            Self::DroppedClean => "dropped_clean",
        }
    }

    /// Returns the reason.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::DroppedClean => {
                "mincore after MADV_PAGEOUT: the kernel drops zeros of shared memory and files that nobody stored to, and the \
                 library keeps them"
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
    match (kernel, vm) {
        _ if kernel == vm => Verdict::Same,
        (&Outcome::Value(kernel), &Outcome::Value(vm)) => {
            if is_dropped_clean(ops, kernel, vm) {
                Verdict::Exempt(Rule::DroppedClean)
            } else {
                Verdict::Different
            }
        }
        (Outcome::List(kernel), Outcome::List(vm)) if joined(kernel) == joined(vm) => {
            Verdict::Exempt(Rule::AreaHistory)
        }
        _ => Verdict::Different,
    }
}

/// Says whether a mincore may tell fewer pages of objects on the kernel's side, which dropped them.
fn is_dropped_clean(ops: &[Op], kernel: u64, vm: u64) -> bool {
    /// So many pages have a bit of their own in the answer.
    const NR_BITS: u64 = 48;
    let Some((last, before)) = ops.split_last().filter(|(last, _)| last.call == Call::Mincore) else { return false };
    let Some(last_pageout) = before.iter().rposition(|op| op.advises(libc::MADV_PAGEOUT)) else { return false };
    let before = &before[..last_pageout];
    let has_object = before.iter().any(|op| op.call == Call::Mmap && (op.args[3] & 1 != 0 || op.names_file()));
    let is_short = last.args[1] <= NR_BITS * PAGE;
    has_object && (!is_short || kernel & !vm == 0)
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

#[cfg(test)]
mod tests {
    use super::*;
    use faultless_linux::oracle::Sequence;

    fn compared(line: &str, kernel: u64, vm: u64) -> Verdict {
        let sequence: Sequence = line.parse().expect("a sequence");
        compare(&sequence.ops, &Outcome::Value(kernel), &Outcome::Value(vm))
    }

    #[test]
    fn pageout_excuses_what_it_may_drop_and_nothing_else() {
        let shared = "user; mmap w+0x0 0x4000 rw shared|anon|fixed - 0x0; madvise w+0x0 0x4000 pageout";
        let probe = "mincore w+0x0 0x4000 0x0";
        assert_eq!(compared(&format!("{shared}; {probe}"), 0b0101, 0b1111), Verdict::Exempt(Rule::DroppedClean));
        assert_eq!(compared(&format!("{shared}; {probe}"), 0b1111, 0b0101), Verdict::Different);
        assert_eq!(compared(&format!("{shared}; load w+0x0"), 1, 2), Verdict::Different);
        let private = "user; mmap w+0x0 0x4000 rw private|anon|fixed - 0x0";
        assert_eq!(compared(&format!("{private}; madvise w+0x0 0x4000 pageout; {probe}"), 0, 1), Verdict::Different);
    }
}
