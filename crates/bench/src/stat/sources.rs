//! Where the host counts what the virtual memory calls by its own names.
//!
//! # Guarantee
//! An event has one place on the host, or none: then its count is missing, never 0.

use faultless_linux::counters::Software;

/// Where the host has a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HostSource {
    /// A perf event.
    Perf(Software),
    /// The sum of counters of `/proc/vmstat`.
    Vmstat(&'static [&'static str]),
    /// Nowhere.
    Nowhere,
}

/// Returns where the host counts an event.
pub(super) fn host_source(name: &str) -> HostSource {
    use HostSource::{Nowhere, Perf, Vmstat};
    match name {
        "faults" => Perf(Software::PageFaults),
        "minor-faults" => Perf(Software::MinorFaults),
        "major-faults" => Perf(Software::MajorFaults),
        "context-switches" => Perf(Software::ContextSwitches),
        "cpu-migrations" => Perf(Software::Migrations),
        // Handled under the area's lock, without the address space's: what the 2018 series called speculative.
        "spf" => Vmstat(&["vma_lock_success"]),
        "spf-failed" => Vmstat(&["vma_lock_abort", "vma_lock_retry", "vma_lock_miss"]),
        "tlb_shootdown" => Vmstat(&["nr_tlb_remote_flush"]),
        "vma_lock_success" => Vmstat(&["vma_lock_success"]),
        "vma_lock_abort" => Vmstat(&["vma_lock_abort"]),
        "vma_lock_retry" => Vmstat(&["vma_lock_retry"]),
        "vma_lock_miss" => Vmstat(&["vma_lock_miss"]),
        "nr_tlb_remote_flush" => Vmstat(&["nr_tlb_remote_flush"]),
        "nr_tlb_remote_flush_received" => Vmstat(&["nr_tlb_remote_flush_received"]),
        "nr_tlb_local_flush_all" => Vmstat(&["nr_tlb_local_flush_all"]),
        "nr_tlb_local_flush_one" => Vmstat(&["nr_tlb_local_flush_one"]),
        _ => Nowhere,
    }
}
