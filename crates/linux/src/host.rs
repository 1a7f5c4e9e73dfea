//! What the trace tells of the machine and its limits.
//!
//! # Guarantee
//! What the system does not tell is left empty or `None`, never guessed.

use std::fs;
use std::mem::MaybeUninit;

use faultless_trace::{Limits, Machine};

/// Returns the machine's description.
pub(crate) fn machine() -> Machine {
    Machine {
        cpus: crate::session::online_cpus().map_or(0, |cpus| cpus.len() as u32),
        model: model().unwrap_or_default(),
        kernel: line("/proc/sys/kernel/osrelease").unwrap_or_default(),
        page_size_bytes: page_size_bytes(),
    }
}

/// Returns the limits that a program started now runs under.
pub(crate) fn limits() -> Limits {
    Limits {
        overcommit: number("/proc/sys/vm/overcommit_memory"),
        mmap_min_addr: number("/proc/sys/vm/mmap_min_addr"),
        max_map_count: number("/proc/sys/vm/max_map_count"),
        stack_bytes: limit(libc::RLIMIT_STACK),
        address_space_bytes: limit(libc::RLIMIT_AS),
        data_bytes: limit(libc::RLIMIT_DATA),
        memlock_bytes: limit(libc::RLIMIT_MEMLOCK),
    }
}

/// Returns whether programs get huge pages where they ask for them.
pub(crate) fn advises_huge_pages() -> bool {
    huge_pages().is_some_and(|setting| !setting.contains("[never]"))
}

/// Returns whether programs get huge pages without asking.
pub(crate) fn gives_huge_pages() -> bool {
    huge_pages().is_some_and(|setting| setting.contains("[always]"))
}

fn huge_pages() -> Option<String> {
    line("/sys/kernel/mm/transparent_hugepage/enabled")
}

/// Returns `kernel.perf_event_paranoid`.
pub(crate) fn paranoid() -> Option<i64> {
    line("/proc/sys/kernel/perf_event_paranoid")?.parse().ok()
}

/// Lets this process open as many files as it ever may: each CPU takes seven. Returns what was allowed before.
pub(crate) fn raise_open_files() -> Option<libc::rlimit> {
    let before = rlimit(libc::RLIMIT_NOFILE)?;
    set_open_files(&libc::rlimit { rlim_cur: before.rlim_max, ..before });
    Some(before)
}

/// Returns how many files this process may open.
pub(crate) fn open_files() -> Option<u64> {
    rlimit(libc::RLIMIT_NOFILE).map(|limit| limit.rlim_cur)
}

/// Sets how many files this process may open; a refusal does no harm.
pub(crate) fn set_open_files(limit: &libc::rlimit) {
    // SAFETY: the structure is whole.
    unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, limit) };
}

fn model() -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn line(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

fn number(path: &str) -> Option<u64> {
    line(path)?.parse().ok()
}

fn limit(which: libc::__rlimit_resource_t) -> Option<u64> {
    let limit = rlimit(which)?.rlim_cur;
    (limit != libc::RLIM_INFINITY).then_some(limit)
}

fn rlimit(which: libc::__rlimit_resource_t) -> Option<libc::rlimit> {
    let mut limit = MaybeUninit::uninit();
    // SAFETY: the call writes the whole structure when it succeeds.
    unsafe { (libc::getrlimit(which, limit.as_mut_ptr()) == 0).then(|| limit.assume_init()) }
}

fn page_size_bytes() -> u64 {
    // SAFETY: the call takes an integer only.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as u64 }
}
