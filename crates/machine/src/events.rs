//! The events that can be counted, by the names that users know.
//!
//! # Guarantee
//! A pattern means all events whose names match it; a name that means none is an error. What is an event of
//! the virtual memory stands in [`Event`], what the host alone counts in [`EXTRA`].

use faultless_platform::native::Native;
use faultless_vm::Event;
use faultless_vm::design::{Design, GenerationOf};
use faultless_vm::registry::{DesignVisitor, with_design};

use crate::designs::DEFAULT_SEMAPHORE;

/// Other names for events, as perf and vmstat have them.
pub const ALIASES: &[(&str, &str)] = &[
    ("speculative-faults", "spf"),
    ("speculative_pgfault", "spf"),
    ("page-faults", "faults"),
    ("pgfault", "faults"),
    ("cs", "context-switches"),
    ("migrations", "cpu-migrations"),
];

/// What the host counts, and the virtual memory does not.
pub const EXTRA: &[&str] = &[
    "rss",
    "minor-faults",
    "major-faults",
    "context-switches",
    "cpu-migrations",
    "vma_lock_success",
    "vma_lock_abort",
    "vma_lock_retry",
    "vma_lock_miss",
    "nr_tlb_remote_flush",
    "nr_tlb_remote_flush_received",
    "nr_tlb_local_flush_all",
    "nr_tlb_local_flush_one",
];

/// What is counted unless something else is asked for.
pub const DEFAULT: &str = "faults,spf,spf-failed,pagefault:*,cow,tlb_shootdown";

/// Returns whether a design of the virtual memory has an event at all: what it can never do is not 0, but not there.
pub fn is_counted(design: &str, event: &str) -> bool {
    with_design::<Native, _>(design, DEFAULT_SEMAPHORE, CountsEvent(event)).unwrap_or(event != BUSY)
}

/// The give-up of designs that don't wait for the page-table lock.
const BUSY: &str = "pagefault:spf_pte_lock";

/// Says whether a design has an event.
struct CountsEvent<'a>(&'a str);

impl DesignVisitor<Native> for CountsEvent<'_> {
    type Output = bool;

    fn visit<D: Design<Native>>(self, _: GenerationOf<Native, D>) -> bool {
        match self.0 {
            BUSY => D::GIVES_UP_WHEN_BUSY,
            "spf" | "spf-failed" => D::SPECULATES,
            event => D::SPECULATES || !event.starts_with("pagefault:"),
        }
    }
}

/// Returns the names of all events.
pub fn names() -> impl Iterator<Item = &'static str> + Clone {
    Event::ALL.iter().map(|event| event.name()).chain(EXTRA.iter().copied())
}

/// Returns all names that are understood.
pub fn known() -> impl Iterator<Item = &'static str> + Clone {
    names().chain(ALIASES.iter().map(|(alias, _)| *alias))
}

/// Returns the events that a list of names and patterns means, each once, in its order; otherwise the part that means
/// none.
pub fn choose(list: &str) -> Result<Vec<&'static str>, String> {
    let mut chosen: Vec<&'static str> = Vec::new();
    for part in list.split(',').map(str::trim) {
        let found = meant(part);
        if found.is_empty() {
            return Err(part.to_owned());
        }
        found.into_iter().for_each(|name| {
            if !chosen.contains(&name) {
                chosen.push(name)
            }
        });
    }
    Ok(chosen)
}

fn meant(part: &str) -> Vec<&'static str> {
    let alias = ALIASES.iter().find(|(alias, _)| *alias == part).map(|(_, name)| *name);
    let wanted = alias.unwrap_or(part);
    names().filter(|name| matches(wanted.as_bytes(), name.as_bytes())).collect()
}

/// Returns whether a name matches a pattern with `*` and `?`.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    match (pattern.split_first(), name.split_first()) {
        (None, None) => true,
        (Some((b'*', rest)), _) => {
            matches(rest, name) || name.split_first().is_some_and(|(_, name)| matches(pattern, name))
        }
        (Some((b'?', rest)), Some((_, name))) => matches(rest, name),
        (Some((letter, rest)), Some((other, name))) => letter == other && matches(rest, name),
        _ => false,
    }
}

/// Returns the name of a counter in `/proc/vmstat`'s words.
pub fn vmstat_name(event: &str) -> String {
    match event {
        "faults" => "pgfault".into(),
        "spf" => "speculative_pgfault".into(),
        "spf-failed" => "speculative_pgfault_failed".into(),
        "cow" => "pgcow".into(),
        "tlb_shootdown" => "nr_tlb_remote_flush".into(),
        other => other.strip_prefix("pagefault:").unwrap_or(other).replace('-', "_"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_aliases_and_patterns_mean_events() {
        let reasons: Vec<&str> = names().filter(|name| name.starts_with("pagefault:")).collect();
        assert!(reasons.len() >= 5, "{reasons:?}");
        assert_eq!(choose("pagefault:*"), Ok(reasons.clone()));
        assert_eq!(choose("speculative-faults,spf,page-faults"), Ok(vec!["spf", "faults"]));
        assert_eq!(choose("pagefault:spf_vma_n?*"), Ok(vec!["pagefault:spf_vma_noanon", "pagefault:spf_vma_notsup"]));
        assert_eq!(choose("*").map(|all| all.len()), Ok(names().count()));
        assert_eq!(choose(DEFAULT).map(|all| all.len()), Ok(5 + reasons.len()));
    }

    #[test]
    fn a_design_has_the_events_of_what_it_does() {
        let having = |event: &str| -> Vec<&str> {
            crate::designs::DESIGNS.iter().copied().filter(|design| is_counted(design, event)).collect()
        };
        assert_eq!(having("pagefault:spf_pte_lock"), ["spf-srcu", "spf-v9"]);
        assert!(
            ["spf", "spf-failed", "pagefault:spf_vma_changed"].iter().all(|event| !having(event).contains(&"mmap-sem"))
        );
        assert_eq!(having("spf").len(), crate::designs::DESIGNS.len() - 1);
        assert_eq!(having("faults"), crate::designs::DESIGNS);
        assert!(is_counted("unknown", "spf") && !is_counted("unknown", BUSY));
    }

    #[test]
    fn what_means_nothing_is_named() {
        assert_eq!(choose("faults,nonsense,spf"), Err("nonsense".into()));
        assert_eq!(choose("faults,"), Err(String::new()));
        assert_eq!(choose("pagefault:?"), Err("pagefault:?".into()));
    }

    #[test]
    fn vmstat_names_are_the_kernels_where_it_has_them() {
        assert_eq!(vmstat_name("faults"), "pgfault");
        assert_eq!(vmstat_name("spf"), "speculative_pgfault");
        assert_eq!(vmstat_name("pagefault:spf_vma_changed"), "spf_vma_changed");
        let all: Vec<String> = Event::ALL.iter().map(|event| vmstat_name(event.name())).collect();
        assert!(all.iter().all(|name| !name.contains(['-', ':', ' '])), "{all:?}");
    }
}
