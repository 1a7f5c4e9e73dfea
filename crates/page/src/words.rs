//! What the words of a page mean, folded, where the reader is before they first stand.
//!
//! # Guarantee
//! Each word of the list that the page has is explained once, in a list that opens by keyboard and needs no pointer; no
//! other is.

use crate::markup::Markup;

/// Where the list stands in a page that is being written.
pub const PLACE: &str = "<!--words-->";

/// A word as pages have it, and what it means.
const WORDS: [(&str, &str); 19] = [
    (
        "address-space lock",
        "the lock of a process's memory map (mmap_lock in Linux). Calls that change the map take it under every design; \
         the designs differ in what page faults take.",
    ),
    ("mmap_sem", "the address-space lock: page faults take it to read, calls that change the map to write."),
    ("rwsem", "a lock that many may read under and one may write under; the name says which of Linux's it is."),
    ("page fault", "a thread touches memory that has no page yet, or that it may not write, and gets a page."),
    ("map call", "mmap, munmap, mprotect, mremap, madvise, brk: a system call that changes what is mapped where."),
    ("anonymous memory", "memory that belongs to no file: heaps of allocators, stacks of threads."),
    (
        "cache line",
        "64 bytes, the piece in which CPUs hand memory to each other. CPUs that write the same line wait for each other.",
    ),
    ("TLB shootdown", "a CPU makes others forget addresses that it unmapped, and waits until they have."),
    ("grace period", "the time until all CPUs have left the faults that they were inside of when it began (RCU)."),
    ("memory bus", "the way to memory that all CPUs of a socket share: so many bytes a second, and no more."),
    ("median", "the run in the middle: as many were faster as slower. Of times, the one in the middle of all."),
    (
        "95 % interval",
        "the range that the true figure lies in, as far as the runs tell: it is missed in one of twenty experiments.",
    ),
    ("Mann-Whitney test", "says whether two lists of runs differ more than chance makes lists differ."),
    ("seed", "the number that chance is drawn from: the same seed gives the same run."),
    ("converged", "both halves of a run had the same rate, within some per cent. If not, the rate was still changing."),
    ("throughput", "operations in a second, of all workers together."),
    ("timed step", "the part of an operation whose time is taken, without what prepares it; only some are timed."),
    ("shared lines", "cache lines that more than one CPU writes."),
    ("mismatch", "a fault or call of the replay that came out otherwise than it was recorded."),
];

/// Puts the list of a page's words where the page left a place for it.
pub fn explain(page: &str) -> String {
    let Some((before, after)) = page.split_once(PLACE) else { return page.to_owned() };
    let text = page.to_lowercase();
    let used: Vec<&(&str, &str)> = WORDS.iter().filter(|(word, _)| text.contains(&word.to_lowercase())).collect();
    let mut list = Markup::default();
    if !used.is_empty() {
        list.within("details", &[("class", "words")], |out| {
            let names: Vec<&str> = used.iter().map(|(word, _)| *word).collect();
            out.line("summary", &[], &format!("Words of this page: {}", names.join(", ")));
            out.within("dl", &[], |out| {
                for (word, meaning) in used {
                    out.line("dt", &[], word);
                    out.line("dd", &[], meaning);
                }
            });
        });
    }
    [before, &list.into_text(), after].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_a_page_are_explained_and_no_others() {
        let page = explain(&format!("<h1>a</h1>{PLACE}<p>Median of the seeds</p>"));
        assert!(page.starts_with("<h1>a</h1><details"), "{page}");
        assert!(page.contains("Words of this page: median, seed</summary>"), "{page}");
        assert_eq!(page.matches("<dd>").count(), 2, "{page}");
        assert_eq!(explain(&format!("a{PLACE}b")), "ab");
        assert_eq!(explain("a"), "a");
    }
}
