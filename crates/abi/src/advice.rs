//! `MADV_*` by number (`asm-generic/mman-common.h`).

use faultless_vm::Advice;

/// Advice that is the same under both names.
const ADVICE: [(u32, Advice); 25] = [
    (0, Advice::Normal),
    (1, Advice::Random),
    (2, Advice::Sequential),
    (3, Advice::WillNeed),
    (4, Advice::DontNeed),
    (8, Advice::Free),
    (9, Advice::Remove),
    (10, Advice::DontFork),
    (11, Advice::DoFork),
    (12, Advice::Mergeable),
    (13, Advice::Unmergeable),
    (14, Advice::HugePage),
    (15, Advice::NoHugePage),
    (16, Advice::DontDump),
    (17, Advice::DoDump),
    (18, Advice::WipeOnFork),
    (19, Advice::KeepOnFork),
    (20, Advice::Cold),
    (21, Advice::PageOut),
    (22, Advice::PopulateRead),
    (23, Advice::PopulateWrite),
    (24, Advice::DontNeedLocked),
    (25, Advice::Collapse),
    (102, Advice::GuardInstall),
    (103, Advice::GuardRemove),
];

/// Returns the advice of a number; nothing if Linux answers EINVAL to it.
///
/// ```
/// use faultless_abi::{advice_of, number_of};
/// use faultless_vm::Advice;
///
/// assert_eq!((advice_of(4), number_of(Advice::DontNeed)), (Some(Advice::DontNeed), Some(4)));
/// // MADV_SOFT_OFFLINE is not for programs; some numbers mean nothing.
/// assert_eq!((advice_of(101), advice_of(5)), (None, None));
/// ```
pub fn advice_of(number: u32) -> Option<Advice> {
    ADVICE.iter().find(|(known, _)| *known == number).map(|(_, advice)| *advice)
}

/// Returns the number of an advice; nothing for [`Advice::Ignored`], which stands for many.
pub fn number_of(advice: Advice) -> Option<u32> {
    ADVICE.iter().find(|(_, known)| *known == advice).map(|(number, _)| *number)
}

#[cfg(test)]
mod tests {
    use super::{ADVICE, advice_of, number_of};
    use faultless_vm::Advice;

    #[test]
    fn numbers_and_advice_are_each_others_inverse() {
        for (number, advice) in ADVICE {
            assert_eq!(advice_of(number), Some(advice));
            assert_eq!(number_of(advice), Some(number));
        }
        assert_eq!((advice_of(5), number_of(Advice::Ignored)), (None, None));
    }
}
