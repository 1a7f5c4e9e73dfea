//! What the host's kernel counts: software events of a process, and the counters of `/proc/vmstat`.
//!
//! # Guarantee
//! An event counts the calling thread from its opening on, and all threads and processes made by it since, by
//! inheritance. What the kernel refuses or does not have is an error or absent, never 0.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use perf_event_open_sys::bindings as sys;

/// A software event that the kernel counts for a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Software {
    /// Page faults.
    PageFaults,
    /// Page faults that needed no input or output.
    MinorFaults,
    /// Page faults that did.
    MajorFaults,
    /// Context switches.
    ContextSwitches,
    /// Moves from CPU to CPU.
    Migrations,
}

impl Software {
    fn config(self) -> u64 {
        u64::from(match self {
            Self::PageFaults => sys::PERF_COUNT_SW_PAGE_FAULTS,
            Self::MinorFaults => sys::PERF_COUNT_SW_PAGE_FAULTS_MIN,
            Self::MajorFaults => sys::PERF_COUNT_SW_PAGE_FAULTS_MAJ,
            Self::ContextSwitches => sys::PERF_COUNT_SW_CONTEXT_SWITCHES,
            Self::Migrations => sys::PERF_COUNT_SW_CPU_MIGRATIONS,
        })
    }
}

/// A counter of this thread and its offspring.
#[derive(Debug)]
pub struct Counter(OwnedFd);

impl Counter {
    /// Begins to count; in user code alone if the kernel allows no more.
    pub fn open(event: Software) -> io::Result<Self> {
        match open(event, 0) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => open(event, 1),
            result => result,
        }
    }

    /// Returns the count of those who ended and of this thread, up to now.
    pub fn read(&self) -> io::Result<u64> {
        let mut count = 0u64;
        // SAFETY: the buffer has the size that is passed.
        let got = unsafe { libc::read(self.0.as_raw_fd(), (&raw mut count).cast(), size_of::<u64>()) };
        if got == size_of::<u64>() as isize { Ok(count) } else { Err(io::Error::last_os_error()) }
    }
}

fn open(event: Software, exclude_kernel: u64) -> io::Result<Counter> {
    let mut attr = sys::perf_event_attr::default();
    attr.size = size_of::<sys::perf_event_attr>() as u32;
    attr.type_ = sys::PERF_TYPE_SOFTWARE;
    attr.config = event.config();
    attr.set_inherit(1);
    attr.set_exclude_kernel(exclude_kernel);
    attr.set_exclude_hv(exclude_kernel);
    // SAFETY: `attr` is a whole attribute structure that tells its own size.
    let fd =
        unsafe { perf_event_open_sys::perf_event_open(&raw mut attr, 0, -1, -1, u64::from(sys::PERF_FLAG_FD_CLOEXEC)) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor for us; nobody else owns it.
    Ok(Counter(unsafe { OwnedFd::from_raw_fd(fd) }))
}

/// Returns the counters of `/proc/vmstat`, of the whole system.
pub fn vmstat() -> io::Result<BTreeMap<String, u64>> {
    Ok(parse(&fs::read_to_string("/proc/vmstat")?))
}

fn parse(text: &str) -> BTreeMap<String, u64> {
    let pair = |line: &str| {
        let (name, value) = line.split_once(' ')?;
        Some((name.to_owned(), value.trim().parse().ok()?))
    };
    text.lines().filter_map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_sees_the_faults_of_threads_made_since() {
        let Ok(counter) = Counter::open(Software::PageFaults) else {
            return println!("skipped: perf events are refused");
        };
        let before = counter.read().expect("readable");
        let touch = || {
            let mut pages = vec![0u8; 64 * 4096];
            pages.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
            std::hint::black_box(pages);
        };
        std::thread::spawn(touch).join().expect("it ends");
        let after = counter.read().expect("readable");
        assert!(after >= before + 64, "{before} {after}");
    }

    #[test]
    fn vmstat_lines_are_names_and_numbers() {
        let parsed = parse("pgfault 12\nnr_free_pages 3\nodd\nworse x\n");
        assert_eq!(parsed, [("nr_free_pages".to_owned(), 3), ("pgfault".to_owned(), 12)].into());
        assert!(vmstat().expect("readable").contains_key("pgfault"));
    }
}
