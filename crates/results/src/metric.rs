//! Metrics in words.
//!
//! # Guarantee
//! A metric that nobody has words for is called by its name.

/// Names and words.
const WORDS: [(&str, &str); 23] = [
    ("ops_per_s", "throughput"),
    ("per_thread_ops", "throughput of a thread"),
    ("per_process_ops", "throughput of a process"),
    ("elapsed_ns", "time of a run"),
    ("op_p50_ns", "time of an operation, median"),
    ("op_p99_ns", "time of an operation, slowest 1 %"),
    ("op_p999_ns", "time of an operation, slowest 0.1 %"),
    ("fault_p50_ns", "time of a page fault, median"),
    ("fault_p99_ns", "time of a page fault, slowest 1 %"),
    ("fault_p999_ns", "time of a page fault, slowest 0.1 %"),
    ("call_p50_ns", "time of a map call, median"),
    ("call_p99_ns", "time of a map call, slowest 1 %"),
    ("lock_wait_share", "waiting for the address-space lock"),
    ("run_delay_share", "waiting for a CPU"),
    ("peak_rss_bytes", "peak memory"),
    ("resident_kib", "resident size"),
    ("faults_per_s", "page faults a second"),
    ("faults", "page faults"),
    ("spf", "faults without the address-space lock"),
    ("spf-failed", "faults that tried without it and took it"),
    ("cow", "pages copied on write"),
    ("tlb_shootdown", "TLB shootdowns"),
    ("tlb_miss", "TLB misses"),
];

/// Returns the words for a metric.
pub fn title(metric: &str) -> &str {
    WORDS.iter().find(|(name, _)| *name == metric).map_or(metric, |(_, words)| words)
}
