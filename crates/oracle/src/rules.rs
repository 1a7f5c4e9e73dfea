//! What is not compared, and why: all exemptions of the oracle.
//!
//! # Guarantee
//! An outcome that differs is a difference unless a rule here names it; each use of a rule is counted and printed.

use std::ops::Range;

use crate::kernel::{AreaSeen, Call, File, Op, Outcome, PAGE, Sequence, WINDOW, WINDOW_BYTES};

/// A named exemption.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// Equal neighbours stand apart on one side and are one area on the other; all else is equal.
    AreaHistory,
    /// Clean pages of objects that MADV_PAGEOUT dropped.
    DroppedClean,
    /// A thread saw the kernel's munmap between its two steps.
    UnmappedInTwoSteps,
    /// A reference area is anonymous memory where the file that stands for it on the kernel's side is not.
    ReferenceIsAnonymous,
    /// Anonymous memory in place of a reference area has gone another way before.
    TwinParted,
}

impl Rule {
    /// All rules.
    pub const ALL: [Self; 5] =
        [Self::AreaHistory, Self::DroppedClean, Self::UnmappedInTwoSteps, Self::ReferenceIsAnonymous, Self::TwinParted];

    /// Returns the name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AreaHistory => "area_history",
            Self::DroppedClean => "dropped_clean",
            Self::UnmappedInTwoSteps => "unmapped_in_two_steps",
            Self::ReferenceIsAnonymous => "reference_is_anonymous",
            Self::TwinParted => "twin_parted",
        }
    }

    /// Returns the reason.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::DroppedClean => {
                "mincore after MADV_PAGEOUT: the kernel drops zeros of shared memory and files that nobody stored to, and the \
                 library keeps them"
            }
            Self::UnmappedInTwoSteps => {
                "threads: the kernel takes areas off its list first and their translations away later, so that meanwhile a page \
                 that was never touched is gone and one that was still takes an access"
            }
            Self::ReferenceIsAnonymous => {
                "mincore, MADV_FREE: the kernel's judge of a reference area is a private mapping of a sealed file, whose pages are all in \
                 memory and are not given up; what these calls answer is judged by the kernel's own untouched anonymous memory"
            }
            Self::TwinParted => {
                "mincore, MADV_FREE: anonymous memory in place of two reference areas was joined where the file's offsets forbid it, so that a \
                 call before had another answer there, and nothing is left to judge by, or a fork copied more of it"
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

/// As [`compare`], of all outcomes up to the last operation; `twin` is what the kernel made of them where anonymous
/// memory stands in place of reference areas.
pub fn compare_with_twin(ops: &[Op], kernel: &[Outcome], twin: Option<&[Outcome]>, vm: &Outcome) -> Verdict {
    let Some(((last, before), kernel_last)) = ops.split_last().zip(kernel.last()) else { return Verdict::Different };
    let verdict = compare(ops, kernel_last, vm);
    match twin {
        Some(twin) if verdict == Verdict::Different && is_judged_by_twin(last) => match twin.last() {
            _ if has_parted(before, kernel, twin) => Verdict::Exempt(Rule::TwinParted),
            Some(twin) => match compare(ops, twin, vm) {
                Verdict::Same => Verdict::Exempt(Rule::ReferenceIsAnonymous),
                Verdict::Different if is_copied_whole(last, before, twin, vm) => Verdict::Exempt(Rule::TwinParted),
                // Of the same answer, other pages may be told for another reason.
                other => other,
            },
            None => verdict,
        },
        _ => verdict,
    }
}

/// Says whether anonymous memory, not the file, judges an operation on a reference area.
fn is_judged_by_twin(op: &Op) -> bool {
    op.call == Call::Mincore || op.advises(libc::MADV_FREE)
}

/// Says whether the twin has gone another way: a call failed on one side alone, or put memory elsewhere.
fn has_parted(ops: &[Op], kernel: &[Outcome], twin: &[Outcome]) -> bool {
    let places = |op: &Op| matches!(op.call, Call::Mmap | Call::Mremap | Call::Brk);
    let differ = |(op, (kernel, twin)): (&Op, (&Outcome, &Outcome))| match (kernel, twin) {
        _ if is_judged_by_twin(op) => false,
        (Outcome::Value(kernel), Outcome::Value(twin)) => places(op) && kernel != twin,
        _ => std::mem::discriminant(kernel) != std::mem::discriminant(twin),
    };
    ops.iter().zip(kernel.iter().zip(twin)).any(differ)
}

/// Says whether a child may have got more pages in the twin: what stands there for two reference areas, or for parts of
/// one that were moved together, may be one area, and a fork copies all that such an area shows once a page of it was
/// written.
fn is_copied_whole(last: &Op, before: &[Op], twin: &Outcome, vm: &Outcome) -> bool {
    let (&Outcome::Value(twin), &Outcome::Value(vm)) = (twin, vm) else { return false };
    let has_bits = last.call == Call::Mincore && last.args[1] <= NR_BITS * PAGE;
    let has_forked = before.iter().any(|op| op.call == Call::Fork);
    has_bits && vm & !twin == 0 && has_forked && may_have_joined(before)
}

/// Says whether unaccounted areas may have met that a file's offsets keep apart.
fn may_have_joined(ops: &[Op]) -> bool {
    let is_unaccounted = |op: &Op| {
        let is_asked_for = op.call == Call::Mmap && op.args[3] & libc::MAP_NORESERVE as u64 != 0;
        is_asked_for || is_private_reference(op)
    };
    ops.iter().filter(|op| is_unaccounted(op) || op.call == Call::Mremap).count() > 1
}

/// Returns a sequence with private anonymous memory in place of reference areas; nothing if it has none.
pub(super) fn twin_of(sequence: &Sequence) -> Option<Sequence> {
    let mut twin = sequence.clone();
    let mut has_one = false;
    for op in twin.ops.iter_mut().filter(|op| is_private_reference(op)) {
        // Unaccounted memory joins no other.
        op.args[3] |= (libc::MAP_ANONYMOUS | libc::MAP_NORESERVE) as u64;
        op.args[4] = File::None as u64;
        has_one = true;
    }
    has_one.then_some(twin)
}

/// Says whether an operation makes a private reference area, if anything; what the file refuses is left to it.
fn is_private_reference(op: &Op) -> bool {
    const REFUSED: i32 = libc::MAP_ANONYMOUS | libc::MAP_GROWSDOWN;
    op.call == Call::Mmap
        && File::from_argument(op.args[4]) == File::Reference
        && op.args[3] & 0xf == libc::MAP_PRIVATE as u64
        && op.args[3] & REFUSED as u64 == 0
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

/// So many pages have a bit of their own in mincore's answer.
const NR_BITS: u64 = 48;

/// Says whether a mincore may tell fewer pages of objects on the kernel's side, which dropped them.
fn is_dropped_clean(ops: &[Op], kernel: u64, vm: u64) -> bool {
    let Some((last, before)) = ops.split_last().filter(|(last, _)| last.call == Call::Mincore) else { return false };
    let Some(last_pageout) = before.iter().rposition(|op| op.advises(libc::MADV_PAGEOUT)) else { return false };
    let before = &before[..last_pageout];
    let has_object = before.iter().any(|op| op.call == Call::Mmap && (op.args[3] & 1 != 0 || op.names_file()));
    let is_short = last.args[1] <= NR_BITS * PAGE;
    has_object && (!is_short || kernel & !vm == 0)
}

/// Returns the addresses that an operation unmaps in two steps.
///
/// Not what a mapping replaces, or a move leaves: faults wait until those are over.
pub(super) fn unmapped_in_two_steps(op: &Op) -> Option<Range<u64>> {
    let [start, len, new_len, flags, ..] = op.args;
    let stays = flags & (libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP) as u64 == 0;
    let end = start.saturating_add(len.checked_next_multiple_of(PAGE)?);
    match op.call {
        Call::Munmap => Some(start..end),
        Call::Mremap if stays && new_len < len => Some(start.saturating_add(new_len.next_multiple_of(PAGE))..end),
        // Where the heap ended before, the operation does not say.
        Call::Brk => Some(start.checked_next_multiple_of(PAGE)?..WINDOW + WINDOW_BYTES),
        _ => None,
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

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn a_reference_area_is_anonymous_where_its_file_is_not_and_nowhere_else() {
        let map = "user; mmap w+0x0 0x4000 rw private|fixed ref 0x0";
        let sequence: Sequence = format!("{map}; mincore w+0x0 0x4000 0x0").parse().expect("a sequence");
        let twin = twin_of(&sequence).expect("it has a reference area").to_string();
        assert!(twin.contains("mmap w+0x0 0x4000 rw private|anon|fixed|noreserve - 0x0"), "{twin}");
        let [kernel, vm] =
            [[Outcome::Value(WINDOW), Outcome::Value(0b1111)], [Outcome::Value(WINDOW), Outcome::Value(0)]];
        let exempt = Verdict::Exempt(Rule::ReferenceIsAnonymous);
        assert_eq!(compare_with_twin(&sequence.ops, &kernel, Some(&vm), &vm[1]), exempt);
        assert_eq!(compare_with_twin(&sequence.ops, &kernel, Some(&kernel), &vm[1]), Verdict::Different);
        assert_eq!(compare_with_twin(&sequence.ops, &kernel, None, &vm[1]), Verdict::Different);
        for parted in [Outcome::Errno(libc::EFAULT), Outcome::Value(WINDOW + PAGE)] {
            let twin = [parted, kernel[1].clone()];
            let verdict = compare_with_twin(&sequence.ops, &kernel, Some(&twin), &vm[1]);
            assert_eq!(verdict, Verdict::Exempt(Rule::TwinParted), "what came before differs");
        }
        // A fork copies all of an area of which a page was written: of two that are one in the twin.
        let judged = |between: &str, twin, vm| {
            let line = format!("{map}; {between}; fork 0x1; mincore w+0x0 0x4000 0x0");
            let sequence: Sequence = line.parse().expect("a sequence");
            let ran = |bits| [WINDOW, WINDOW, 0, bits].map(Outcome::Value);
            compare_with_twin(&sequence.ops, &ran(0b1111), Some(&ran(twin)), &Outcome::Value(vm))
        };
        let (second, own) =
            ("mmap w+0x4000 0x4000 rw private|fixed ref 0x0", "mmap w+0x4000 0x4000 rw private|anon|fixed - 0x0");
        assert_eq!(judged(second, 0b0110, 0b0100), Verdict::Exempt(Rule::TwinParted));
        assert_eq!(judged(second, 0b0110, 0b1100), Verdict::Different, "a page that is not even there");
        assert_eq!(judged(own, 0b0110, 0b0100), Verdict::Different, "memory that is accounted for stays apart");
        assert_eq!(compare_with_twin(&sequence.ops, &kernel, Some(&kernel), &vm[1]), Verdict::Different, "no fork");
        let load: Sequence = format!("{map}; load w+0x0").parse().expect("a sequence");
        assert_eq!(compare_with_twin(&load.ops, &kernel, Some(&vm), &vm[1]), Verdict::Different);
        let plain: Sequence = "user; mmap w+0x0 0x4000 rw private|anon|fixed - 0x0".parse().expect("a sequence");
        assert_eq!(twin_of(&plain), None);
    }

    #[test]
    fn only_what_shrinks_in_place_unmaps_in_two_steps() {
        let unmapped = |line: &str| {
            let sequence: Sequence = format!("user; {line}").parse().expect("a sequence");
            let range = unmapped_in_two_steps(&sequence.ops[0])?;
            Some((range.start - WINDOW, range.end - WINDOW))
        };
        assert_eq!(unmapped("munmap w+0x1000 0x1001"), Some((0x1000, 0x3000)));
        assert_eq!(unmapped("mremap w+0x1000 0x5000 0x1fff maymove 0x0"), Some((0x3000, 0x6000)));
        assert_eq!(unmapped("mremap w+0x1000 0x5000 0x5000 maymove 0x0"), None);
        assert_eq!(unmapped("mremap w+0x1000 0x5000 0x2000 maymove|fixed w+0x8000"), None);
        assert_eq!(unmapped("brk w+0x1001"), Some((0x2000, WINDOW_BYTES)));
        assert_eq!(unmapped("mmap w+0x1000 0x1000 rw private|anon|fixed - 0x0"), None);
    }
}
