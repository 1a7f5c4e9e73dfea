//! Whether a process that takes long gets on: what others keep from the CPUs does not hang.
//!
//! # Guarantee
//! A [`ProgressWatch`] reports a [`Stall`] in two cases alone: the process and its descendants have had CPUs for as
//! long as they may, or they have all been asleep for that long (two minutes at most) and had next to no CPU time
//! meanwhile. A process that waits for a CPU or a disk, or that was stopped, may take any time. A moment in which
//! several threads run counts once, so that the limit of a process does not depend on how many CPUs it uses.
//!
//! # What is counted
//! CPU time is what `/proc/PID/stat` tells, with threads that have ended and children that were waited for
//! (`proc_pid_stat(5)`). A kernel without `CONFIG_PROC_CHILDREN` does not list children: there they count once they
//! have ended.

use std::fmt;
use std::fs;
use std::time::{Duration, Instant};

use crate::target::{Stat, ticks_a_second};

/// The least time between two looks at a process.
const LOOK: Duration = Duration::from_secs(1);

/// The longest sleep that is not a stall.
const LONGEST_SLEEP: Duration = Duration::from_secs(120);

/// A process that has CPUs for less than this part of the time does nothing but look around: a thread of it polls, say.
const IDLE_PART: u32 = 32;

/// Why a process is thought to hang.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stall {
    /// It had CPUs for so long without coming to its end.
    Busy(Duration),
    /// All its threads slept for so long.
    Asleep(Duration),
}

impl fmt::Display for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy(time) => write!(f, "did not end within {} s on CPUs", time.as_secs()),
            Self::Asleep(time) => write!(f, "slept for {} s and did not end", time.as_secs()),
        }
    }
}

/// Looks at a process and its descendants now and then.
#[derive(Clone, Copy, Debug)]
pub struct ProgressWatch {
    pid: u32,
    limit: Duration,
    looked: Instant,
    seen: ProgressSample,
    busy: Duration,
    asleep: Duration,
}

impl ProgressWatch {
    /// Begins to watch a process, which may have CPUs for `limit` from now on.
    pub fn new(pid: u32, limit: Duration) -> Self {
        let seen = ProgressSample::of(pid);
        Self { pid, limit, looked: Instant::now(), seen, busy: Duration::ZERO, asleep: Duration::ZERO }
    }

    /// Begins to watch this process.
    pub fn of_this_process(limit: Duration) -> Self {
        Self::new(std::process::id(), limit)
    }

    /// Looks at the process, at most once a second; to be called at least so often.
    pub fn look(&mut self) -> Option<Stall> {
        let passed = self.looked.elapsed();
        if passed < LOOK {
            return None;
        }
        self.looked += passed;
        self.note(passed, ProgressSample::of(self.pid))
    }

    /// Waits for at most a look's time with `wait` until it answers; returns the answer, or why there will be none. A
    /// process that answers within the first is not looked at: whatever it did, that time counts against it.
    ///
    /// # Errors
    /// If the process hangs.
    pub fn until<T>(pid: u32, limit: Duration, mut wait: impl FnMut(Duration) -> Option<T>) -> Result<T, Stall> {
        if let Some(answer) = wait(LOOK) {
            return Ok(answer);
        }
        let mut watch = Self { busy: LOOK, asleep: LOOK, ..Self::new(pid, limit) };
        loop {
            if let Some(answer) = wait(LOOK) {
                return Ok(answer);
            }
            if let Some(stall) = watch.look() {
                return Err(stall);
            }
        }
    }

    fn note(&mut self, passed: Duration, sample: ProgressSample) -> Option<Stall> {
        let before = std::mem::replace(&mut self.seen, sample);
        let ran = sample.on_cpu.saturating_sub(before.on_cpu).min(passed);
        self.busy += ran;
        if ran > passed / IDLE_PART {
            self.asleep = Duration::ZERO;
        } else if sample.is_asleep {
            // Whoever looks late was kept from the CPUs or stopped, and what is watched may have been, too.
            self.asleep += passed.min(2 * LOOK);
        }
        if self.busy >= self.limit {
            return Some(Stall::Busy(self.busy));
        }
        (self.asleep >= self.limit.min(LONGEST_SLEEP)).then_some(Stall::Asleep(self.asleep))
    }
}

/// What a process and its descendants look like at a time.
#[derive(Clone, Copy, Debug)]
struct ProgressSample {
    /// How long they have been on CPUs.
    on_cpu: Duration,
    /// Whether each thread waits for something else than a CPU, a disk or a signal to go on.
    is_asleep: bool,
}

impl ProgressSample {
    fn of(pid: u32) -> Self {
        let mut sample = Self { on_cpu: Duration::ZERO, is_asleep: true };
        sample.add(pid);
        sample
    }

    fn add(&mut self, pid: u32) {
        let Some(stat) = Stat::read(&format!("/proc/{pid}/stat")) else { return };
        self.on_cpu += Duration::from_secs(stat.ticks_on_cpu()) / ticks_a_second().unwrap_or(100) as u32;
        let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        for thread in threads.map(|entry| entry.path()) {
            let state = Stat::read(&thread.join("stat").to_string_lossy()).map_or('?', |stat| stat.state());
            self.is_asleep &= !matches!(state, 'R' | 'D' | 'T' | 't');
            let children = fs::read_to_string(thread.join("children")).unwrap_or_default();
            children.split_whitespace().filter_map(|child| child.parse().ok()).for_each(|child| self.add(child));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::Shell;
    use std::mem::MaybeUninit;

    const SECOND: Duration = Duration::from_secs(1);

    /// Notes `count` seconds that each look the same; returns the first stall.
    fn lived(watch: &mut ProgressWatch, count: u32, on_cpu: Duration, is_asleep: bool) -> Option<Stall> {
        (0..count).find_map(|_| watch.note(SECOND, ProgressSample { on_cpu: watch.seen.on_cpu + on_cpu, is_asleep }))
    }

    fn watch(limit_s: u64) -> ProgressWatch {
        ProgressWatch::of_this_process(Duration::from_secs(limit_s))
    }

    #[test]
    fn who_waits_for_a_cpu_may_take_any_time() {
        let mut starved = watch(60);
        assert_eq!(lived(&mut starved, 100_000, Duration::ZERO, false), None);
        assert_eq!(lived(&mut starved, 590, SECOND / 10, false), None, "59 s on CPUs");
        assert_eq!(lived(&mut starved, 20, SECOND / 10, false), Some(Stall::Busy(60 * SECOND)));
    }

    #[test]
    fn threads_that_run_side_by_side_count_once() {
        assert_eq!(lived(&mut watch(60), 59, 8 * SECOND, false), None);
        assert_eq!(lived(&mut watch(60), 60, 8 * SECOND, false), Some(Stall::Busy(60 * SECOND)));
    }

    #[test]
    fn who_sleeps_and_only_looks_around_hangs_in_the_end() {
        assert_eq!(lived(&mut watch(60), 59, SECOND / 100, true), None);
        assert_eq!(lived(&mut watch(60), 60, SECOND / 100, true), Some(Stall::Asleep(60 * SECOND)));
        assert_eq!(lived(&mut watch(3600), 120, SECOND / 100, true), Some(Stall::Asleep(LONGEST_SLEEP)));
    }

    #[test]
    fn who_did_something_begins_its_sleep_anew() {
        let mut watch = watch(60);
        assert_eq!(lived(&mut watch, 59, Duration::ZERO, true), None);
        assert_eq!(lived(&mut watch, 1, SECOND / 10, true), None);
        assert_eq!(lived(&mut watch, 59, Duration::ZERO, true), None);
    }

    impl Shell {
        fn sample(&self) -> ProgressSample {
            ProgressSample::of(self.pid().cast_unsigned())
        }

        /// Waits until it looks so, for a minute at most.
        #[track_caller]
        fn until(&self, looks_so: impl Fn(ProgressSample) -> bool) -> ProgressSample {
            let found = (0..6000).find_map(|_| {
                std::thread::sleep(Duration::from_millis(10));
                Some(self.sample()).filter(|&sample| looks_so(sample))
            });
            found.unwrap_or_else(|| panic!("after a minute: {:?}", self.sample()))
        }
    }

    #[test]
    fn a_process_has_had_cpus_for_as_long_as_the_kernel_says() {
        let shell = Shell::new("while :; do :; done");
        shell.until(|sample| sample.on_cpu >= SECOND / 2);
        shell.tell(libc::SIGSTOP);
        let stat = format!("/proc/{}/stat", shell.pid());
        shell.until(|_| Stat::read(&stat).is_some_and(|stat| stat.state() == 'T'));
        let stopped = shell.sample();
        assert!(!stopped.is_asleep, "it was stopped");
        shell.tell(libc::SIGKILL);
        let mut used = MaybeUninit::<libc::rusage>::uninit();
        // SAFETY: the kernel writes into our own variable, of a child that nobody has waited for.
        let used = unsafe {
            libc::wait4(shell.pid(), std::ptr::null_mut(), 0, used.as_mut_ptr());
            used.assume_init()
        };
        let exact: Duration = [used.ru_utime, used.ru_stime]
            .map(|time| Duration::new(time.tv_sec.unsigned_abs(), time.tv_usec as u32 * 1000))
            .iter()
            .sum();
        // Four numbers of ticks, and its end.
        let difference = exact.saturating_sub(stopped.on_cpu);
        assert!(stopped.on_cpu <= exact && difference < SECOND / 10, "{:?}, exactly {exact:?}", stopped.on_cpu);
    }

    #[test]
    fn descendants_count_and_one_that_works_keeps_all_awake() {
        let shell = Shell::new("(while :; do :; done) & wait");
        assert!(!shell.until(|sample| sample.on_cpu >= SECOND / 4).is_asleep);
        Shell::new("sleep 600 & wait").until(|sample| sample.is_asleep);
    }

    #[test]
    fn a_wait_ends_with_the_answer_or_when_the_process_has_slept_too_long() {
        let shell = Shell::new("exec sleep 600");
        let (pid, mut nr_waits) = (shell.pid().cast_unsigned(), 0);
        let nothing = |time| -> Option<()> {
            std::thread::sleep(time);
            nr_waits += 1;
            assert!(nr_waits < 60, "nobody noticed");
            None
        };
        let slept = ProgressWatch::until(pid, 3 * SECOND, nothing).expect_err("it sleeps");
        // One look that comes late counts as two.
        assert!(matches!(slept, Stall::Asleep(time) if time >= 3 * SECOND && time < 6 * SECOND), "{slept}");
        let mut nr_waits = 0;
        let third = ProgressWatch::until(pid, 60 * SECOND, |_| {
            nr_waits += 1;
            (nr_waits == 3).then_some(7)
        });
        assert_eq!(third, Ok(7));
    }

    #[test]
    fn a_look_that_comes_late_counts_as_little_sleep() {
        let mut watch = watch(60);
        let sample = watch.seen;
        assert_eq!(watch.note(Duration::from_secs(3600), ProgressSample { is_asleep: true, ..sample }), None);
    }
}
