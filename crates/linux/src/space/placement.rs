//! Where a thread runs, and how long it waited for a CPU.
//!
//! # Guarantee
//! What the kernel refuses or does not tell is left out, never guessed.

use std::fs;
use std::io;

/// The CPUs that the process may use, in order.
#[derive(Clone, Debug)]
pub struct Affinity {
    cpus: Vec<usize>,
}

impl Affinity {
    /// Returns those of the calling thread.
    pub fn of_this_thread() -> io::Result<Self> {
        // SAFETY: the kernel writes the set into our own variable, which is valid whatever its bits are.
        let set = unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            if libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) != 0 {
                return Err(io::Error::last_os_error());
            }
            set
        };
        let is_set = |&cpu: &usize| {
            // SAFETY: the index is below the set's size.
            unsafe { libc::CPU_ISSET(cpu, &set) }
        };
        Ok(Self { cpus: (0..libc::CPU_SETSIZE as usize).filter(is_set).collect() })
    }

    /// Returns how many there are.
    pub fn nr_cpus(&self) -> usize {
        self.cpus.len()
    }

    /// Keeps the calling thread on the CPU at a place of the list.
    pub fn pin(&self, place: usize) -> io::Result<()> {
        set(&self.cpus[place % self.cpus.len()..][..1])
    }

    /// Keeps the calling thread, and those that it makes, on the first `nr_cpus` CPUs of the list.
    pub fn keep_to(&self, nr_cpus: usize) -> io::Result<()> {
        set(&self.cpus[..nr_cpus.clamp(1, self.cpus.len())])
    }
}

fn set(cpus: &[usize]) -> io::Result<()> {
    // SAFETY: the set is our own, zero is an empty one, and the indices are below its size.
    let result = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        cpus.iter().for_each(|&cpu| libc::CPU_SET(cpu, &mut set));
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// A thread's waiting for a CPU, from a begin.
#[derive(Clone, Copy, Debug)]
pub struct RunDelay {
    before_ns: u64,
}

impl RunDelay {
    /// Begins to count for the calling thread; nothing if the kernel does not tell.
    pub fn begin() -> Option<Self> {
        Some(Self { before_ns: waited_ns()? })
    }

    /// Returns what the calling thread has waited since.
    pub fn since_begin_ns(self) -> Option<u64> {
        Some(waited_ns()?.saturating_sub(self.before_ns))
    }
}

/// Reads how long the calling thread has waited on a run queue in all.
fn waited_ns() -> Option<u64> {
    let text = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_whitespace().nth(1)?.parse().ok()
}

/// What the kernel counted for the calling thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Page faults.
    pub faults: u64,
    /// Times that it went to sleep.
    pub sleeps: u64,
    /// Times that it was taken off its CPU.
    pub preemptions: u64,
    /// Time on a CPU.
    pub cpu_ns: u64,
}

impl Usage {
    /// Returns what was counted so far.
    pub fn of_this_thread() -> Self {
        Self { cpu_ns: cpu_ns(), ..Self::of(libc::RUSAGE_THREAD) }
    }

    /// Returns what was counted of this process's children that have ended and were waited for.
    pub fn of_children() -> Self {
        Self::of(libc::RUSAGE_CHILDREN)
    }

    fn of(who: libc::c_int) -> Self {
        // SAFETY: the kernel writes the figures into our own variable, of which zero is a valid value.
        let usage = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            libc::getrusage(who, &raw mut usage);
            usage
        };
        let ns = |time: libc::timeval| (time.tv_sec * 1_000_000_000 + time.tv_usec * 1000).unsigned_abs();
        Self {
            faults: (usage.ru_minflt + usage.ru_majflt).unsigned_abs(),
            sleeps: usage.ru_nvcsw.unsigned_abs(),
            preemptions: usage.ru_nivcsw.unsigned_abs(),
            cpu_ns: ns(usage.ru_utime) + ns(usage.ru_stime),
        }
    }

    /// Returns both together.
    pub fn and(self, other: Self) -> Self {
        Self {
            faults: self.faults + other.faults,
            sleeps: self.sleeps + other.sleeps,
            preemptions: self.preemptions + other.preemptions,
            cpu_ns: self.cpu_ns + other.cpu_ns,
        }
    }

    /// Returns what was counted since `before`.
    pub fn since(self, before: Self) -> Self {
        Self {
            faults: self.faults - before.faults,
            sleeps: self.sleeps - before.sleeps,
            preemptions: self.preemptions - before.preemptions,
            cpu_ns: self.cpu_ns - before.cpu_ns,
        }
    }
}

fn cpu_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes the time into our own variable.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}
