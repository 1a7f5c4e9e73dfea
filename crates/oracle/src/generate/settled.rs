//! What no sequence may hold, because the kernel itself answers it now so and now so, or the two sides can't mean the same.
//!
//! # Guarantee
//! * An instruction that is fetched lies in one page: it has up to 15 bytes, so addresses are multiples of 16.
//! * No MADV_PAGEOUT follows an MADV_FREE: which of the pages given up it takes, with their contents, depends on lists
//!   that the kernel fills in batches. MADV_COLD takes its place.

use faultless_linux::oracle::{Call, Op};

/// An instruction's longest form, rounded up.
const INSTRUCTION_BYTES: u64 = 16;

/// Changes the operations to which the module objects.
pub(super) fn settle(ops: &mut [Op]) {
    for op in ops.iter_mut().filter(|op| op.call == Call::Fetch) {
        op.args[0] -= op.args[0] % INSTRUCTION_BYTES;
    }
    let given_up = ops.iter().position(|op| op.advises(libc::MADV_FREE));
    // Threads run in any order.
    let given_up = if ops.iter().any(|op| op.thread != 0) { given_up.map(|_| 0) } else { given_up };
    for op in ops.iter_mut().skip(given_up.unwrap_or(usize::MAX)).filter(|op| op.advises(libc::MADV_PAGEOUT)) {
        op.args[2] = libc::MADV_COLD as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultless_linux::oracle::Sequence;

    fn settled(line: &str) -> String {
        let mut sequence: Sequence = line.parse().expect("a sequence");
        settle(&mut sequence.ops);
        sequence.to_string()
    }

    #[test]
    fn a_fetch_stays_in_its_page() {
        assert_eq!(settled("root; fetch w+0xfff; fetch 0x20"), "root; fetch w+0xff0; fetch 0x20");
    }

    #[test]
    fn only_a_pageout_that_may_follow_a_free_becomes_cold() {
        let (free, pageout, cold) =
            ("madvise w+0x0 0x1000 free", "madvise w+0x0 0x1000 pageout", "madvise w+0x0 0x1000 cold");
        assert_eq!(settled(&format!("root; {pageout}; {free}; {pageout}")), format!("root; {pageout}; {free}; {cold}"));
        assert_eq!(
            settled(&format!("root; {pageout}; t1 {free}; t2 look")),
            format!("root; {cold}; t1 {free}; t2 look")
        );
        assert_eq!(settled(&format!("root; {pageout}; look")), format!("root; {pageout}; look"));
    }
}
