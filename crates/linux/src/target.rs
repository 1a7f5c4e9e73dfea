//! The processes that a recording joins: whether they can be joined, who their threads are, what the system says of
//! them.
//!
//! # Guarantee
//! A [`Target`] was a running program when it was made, and is never taken for a later process of the same number.
//! Nothing here changes the process.

use std::collections::HashSet;
use std::fmt;
use std::fs;
use std::io::{self, ErrorKind};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

use faultless_trace::Limits;

use crate::host;
use crate::numbers;

/// Whether the processes that descend from those named are joined too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kin {
    /// Only those that are made after the recording has begun.
    #[default]
    Later,
    /// Those that run already, too.
    Running,
}

/// A process to join.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) pid: i32,
    /// Tells of the process's end.
    handle: OwnedFd,
}

/// Why a process can't be joined.
#[derive(Debug)]
pub enum Unjoinable {
    /// It does not exist.
    Absent,
    /// It has ended, and its parent has not asked how.
    Ended,
    /// It is this recorder.
    Ourselves,
    /// It belongs to the kernel.
    KernelThread {
        /// What it is called.
        name: String,
    },
    /// It is not a process but one of its threads.
    Thread {
        /// Whose.
        process: i32,
    },
    /// The system does not let this user look at it.
    Forbidden {
        /// Whose it is.
        owner: u32,
        /// What the kernel said.
        error: io::Error,
        /// What this process lacks.
        lack: Lack,
    },
    /// Something else went wrong.
    Failed {
        /// What was tried.
        what: &'static str,
        /// What the kernel said.
        error: io::Error,
    },
}

/// What a process lacks that may not look at another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// The rights of root.
    Root,
    /// Root's right to look at other processes.
    Capability,
    /// The rights of the system's root: it has those of a user namespace's.
    Namespace,
    /// Nothing: something forbids it to a process that has all rights.
    Nothing,
}

impl Lack {
    /// Says what this process lacks.
    fn of_this_process() -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        // SAFETY: the call only returns a number.
        let user = unsafe { libc::geteuid() };
        Self::of(user, &read("/proc/self/status"), &read("/proc/self/uid_map"))
    }

    fn of(user: u32, status: &str, uid_map: &str) -> Self {
        let capabilities = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap_or_default();
        let capabilities = u64::from_str_radix(capabilities.trim(), 16).unwrap_or(u64::MAX);
        let is_of_system = uid_map.is_empty() || uid_map.split_whitespace().eq(["0", "0", "4294967295"]);
        match user {
            0 if capabilities & CAP_SYS_PTRACE == 0 => Self::Capability,
            0 if !is_of_system => Self::Namespace,
            0 => Self::Nothing,
            _ => Self::Root,
        }
    }

    fn remedy(self) -> &'static str {
        match self {
            Self::Root => "run as root",
            Self::Capability => "this is root without CAP_SYS_PTRACE; give the container that capability",
            Self::Namespace => "this is root of a user namespace; run as root of the system",
            Self::Nothing => {
                "this is root with CAP_SYS_PTRACE, to whom a security module, such as Landlock, AppArmor or SELinux, \
                 forbids it; run outside of its sandbox, or change its policy"
            }
        }
    }
}

/// The right to look at other processes, among those in `/proc/PID/status`.
const CAP_SYS_PTRACE: u64 = 1 << 19;

impl fmt::Display for Unjoinable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent => write!(f, "there is no such process; `pgrep -a NAME` finds processes by name"),
            Self::Ended => write!(f, "it has ended and only waits for its parent to notice"),
            Self::Ourselves => {
                write!(f, "it is this recorder itself; to record a faultless command, start it with record -- CMD")
            }
            Self::KernelThread { name } => {
                write!(f, "it is the kernel thread '{name}', which has no memory of its own; name a program's process")
            }
            Self::Thread { process } => write!(f, "it is a thread of process {process}; use -p {process}"),
            Self::Forbidden { owner, error, lack } => {
                let remedy = lack.remedy();
                write!(f, "it belongs to user {owner}, and looking at it is not permitted ({error}); {remedy}")
            }
            Self::Failed { what, error } => write!(f, "{what} failed: {error}"),
        }
    }
}

/// `PF_KTHREAD` among the flags in `/proc/PID/stat`.
const KERNEL_THREAD: u64 = 0x0020_0000;

impl Target {
    /// Looks whether the process can be joined.
    pub(crate) fn find(pid: i32) -> Result<Self, Unjoinable> {
        if pid == std::process::id() as i32 {
            return Err(Unjoinable::Ourselves);
        }
        let stat = Stat::read(&format!("/proc/{pid}/stat")).ok_or(Unjoinable::Absent)?;
        if stat.number(FLAGS) & KERNEL_THREAD != 0 {
            return Err(Unjoinable::KernelThread { name: stat.name });
        }
        if stat.state() == 'Z' || stat.state() == 'X' {
            return Err(Unjoinable::Ended);
        }
        match process_of(pid) {
            Some(process) if process != pid => return Err(Unjoinable::Thread { process }),
            _ => {}
        }
        let handle = open_handle(pid).map_err(|error| Unjoinable::of(pid, "opening the process", error))?;
        fs::File::open(format!("/proc/{pid}/pagemap"))
            .map_err(|error| Unjoinable::of(pid, "opening its page map", error))?;
        Ok(Self { pid, handle })
    }

    /// Returns the descriptor that names the process.
    pub(crate) fn handle(&self) -> &OwnedFd {
        &self.handle
    }

    /// Returns whether the process has ended.
    pub(crate) fn has_ended(&self) -> bool {
        let mut poll = libc::pollfd { fd: self.handle.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one poll structure of ours.
        unsafe { libc::poll(&mut poll, 1, 0) == 1 }
    }

    /// Returns the numbers of its threads; those that end or begin meanwhile may be among them or not.
    pub(crate) fn threads(&self) -> Vec<u32> {
        let Ok(entries) = fs::read_dir(format!("/proc/{}/task", self.pid)) else { return Vec::new() };
        entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
    }

    /// Returns the name of one of its threads.
    pub(crate) fn thread_name(&self, tid: u32) -> String {
        let name = fs::read(format!("/proc/{}/task/{tid}/comm", self.pid)).unwrap_or_default();
        String::from_utf8_lossy(&name).trim_end_matches('\n').to_owned()
    }

    /// Returns the command line that it was started with, or its name if it has overwritten that.
    pub(crate) fn command(&self) -> Vec<String> {
        let bytes = fs::read(format!("/proc/{}/cmdline", self.pid)).unwrap_or_default();
        let words = bytes.split(|&byte| byte == 0).map(|word| String::from_utf8_lossy(word).into_owned());
        let mut words: Vec<String> = words.collect();
        while words.last().is_some_and(String::is_empty) {
            words.pop();
        }
        if words.is_empty() { vec![self.thread_name(self.pid as u32)] } else { words }
    }

    /// Returns where its heap begins, if the kernel tells.
    pub(crate) fn heap_start(&self) -> Option<u64> {
        let stat = Stat::read(&format!("/proc/{}/stat", self.pid))?;
        Some(stat.number(HEAP_START)).filter(|&start| start != 0)
    }

    /// Returns whether it was forbidden to use huge pages; `None` if the kernel does not tell.
    pub(crate) fn may_use_huge_pages(&self) -> Option<bool> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("THP_enabled:"))?;
        Some(line.trim() == "1")
    }

    /// Returns the limits that it runs under.
    pub(crate) fn limits(&self) -> Limits {
        let limit = |which| {
            let mut limit = MaybeUninit::<libc::rlimit>::uninit();
            // SAFETY: the call writes the whole structure when it succeeds, and sets nothing.
            let found = unsafe {
                let is_told = libc::prlimit(self.pid, which, std::ptr::null(), limit.as_mut_ptr()) == 0;
                is_told.then(|| limit.assume_init().rlim_cur)
            };
            found.filter(|&limit| limit != libc::RLIM_INFINITY)
        };
        Limits {
            stack_bytes: limit(libc::RLIMIT_STACK),
            address_space_bytes: limit(libc::RLIMIT_AS),
            data_bytes: limit(libc::RLIMIT_DATA),
            memlock_bytes: limit(libc::RLIMIT_MEMLOCK),
            ..host::limits()
        }
    }
}

impl Unjoinable {
    /// Returns what an error about a process means.
    pub(crate) fn of(pid: i32, what: &'static str, error: io::Error) -> Self {
        match error.kind() {
            ErrorKind::NotFound => Self::Absent,
            _ if error.raw_os_error() == Some(libc::ESRCH) => Self::Absent,
            ErrorKind::PermissionDenied => {
                Self::Forbidden { owner: owner_of(pid), error, lack: Lack::of_this_process() }
            }
            _ => Self::Failed { what, error },
        }
    }
}

/// A memory call: its number and its arguments.
pub(crate) type NumberedCall = (i64, [u64; 6]);

/// Where a thread was just seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whereabouts {
    /// Asleep in another call than those that are recorded, or ended.
    Outside,
    /// Asleep inside this memory call.
    Inside(NumberedCall),
    /// It ran, or makes a task.
    Unknown,
}

/// Looks where a thread is. Linux tells of one that sleeps, and makes sure that it slept all the while.
pub(crate) fn whereabouts(pid: u32, tid: u32) -> Whereabouts {
    match fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall")) {
        Ok(text) => whereabouts_of(&text),
        Err(error) if error.kind() == ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH) => {
            Whereabouts::Outside
        }
        Err(_) => Whereabouts::Unknown,
    }
}

/// The number, then six arguments, the stack pointer and the instruction; or a word.
fn whereabouts_of(text: &str) -> Whereabouts {
    let mut words = text.split_whitespace();
    let Some(number) = words.next().and_then(|word| word.parse::<i64>().ok()) else { return Whereabouts::Unknown };
    if numbers::makes_task(number) {
        return Whereabouts::Unknown;
    }
    if numbers::call_of(number).is_none() {
        return Whereabouts::Outside;
    }
    let arguments: Vec<u64> =
        words.map_while(|word| u64::from_str_radix(word.trim_start_matches("0x"), 16).ok()).take(6).collect();
    arguments.try_into().map_or(Whereabouts::Unknown, |arguments| Whereabouts::Inside((number, arguments)))
}

/// Adds the processes that descend from these and are not among them; returns how many.
pub(crate) fn add_descendants(targets: &mut Vec<Target>) -> usize {
    let nr_before = targets.len();
    let mut known: HashSet<i32> = targets.iter().map(|target| target.pid).collect();
    let parents: Vec<(i32, i32)> = processes().filter_map(|pid| Some((pid, parent_of(pid)?))).collect();
    loop {
        let is_new = |&&(pid, parent): &&(i32, i32)| known.contains(&parent) && !known.contains(&pid);
        let found: Vec<i32> = parents.iter().filter(is_new).map(|&(pid, _)| pid).collect();
        if found.is_empty() {
            return targets.len() - nr_before;
        }
        known.extend(&found);
        targets.extend(found.into_iter().filter_map(|pid| Target::find(pid).ok()));
    }
}

/// Returns the numbers of all processes.
pub(crate) fn processes() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Returns the process that made this one, or that took it over.
pub(crate) fn parent_of(pid: i32) -> Option<i32> {
    Some(Stat::read(&format!("/proc/{pid}/stat"))?.number(PARENT) as i32)
}

/// Returns the monotonic time when a process was made, or up to a hundredth of a second before.
pub(crate) fn made_ns(pid: i32) -> Option<u64> {
    let ticks = Stat::read(&format!("/proc/{pid}/stat"))?.number(MADE);
    let since_boot_ns = u128::from(ticks) * 1_000_000_000 / u128::from(ticks_a_second()?);
    // The field counts the time asleep, which the monotonic clock does not.
    let asleep_ns = clock_ns(libc::CLOCK_BOOTTIME).saturating_sub(clock_ns(libc::CLOCK_MONOTONIC));
    Some((since_boot_ns as u64).saturating_sub(asleep_ns))
}

/// Returns the unit of times in `/proc`.
pub(crate) fn ticks_a_second() -> Option<u64> {
    // SAFETY: the call takes an integer only.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_CLK_TCK) }).ok().filter(|&ticks| ticks > 0)
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes one structure of ours.
    unsafe { libc::clock_gettime(clock, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn owner_of(pid: i32) -> u32 {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(Path::new("/proc").join(pid.to_string())).map_or(0, |found| found.uid())
}

/// Returns the process that a thread belongs to.
fn process_of(tid: i32) -> Option<i32> {
    let status = fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()
}

fn open_handle(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: the call takes integers only.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) } as i32;
    crate::perf::check(fd)?;
    // SAFETY: the kernel has just made this descriptor for us; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A line of `/proc/PID/stat`. Fields are numbered as in `proc_pid_stat(5)`.
pub(crate) struct Stat {
    name: String,
    /// From the third field on.
    fields: Vec<String>,
}

const PARENT: usize = 4;
const FLAGS: usize = 9;
/// User and system time, of the process itself and of its children that were waited for.
const TIMES: std::ops::RangeInclusive<usize> = 14..=17;
const MADE: usize = 22;
const HEAP_START: usize = 47;

impl Stat {
    /// Reads and splits the line; a name may hold spaces and brackets, so the last bracket ends it.
    pub(crate) fn read(path: &str) -> Option<Self> {
        Self::parse(&String::from_utf8_lossy(&fs::read(path).ok()?))
    }

    fn parse(line: &str) -> Option<Self> {
        let (head, rest) = line.rsplit_once(')')?;
        let (_, name) = head.split_once('(')?;
        Some(Self { name: name.to_owned(), fields: rest.split_whitespace().map(str::to_owned).collect() })
    }

    /// Returns the letter of the state.
    pub(crate) fn state(&self) -> char {
        self.fields.first().and_then(|field| field.chars().next()).unwrap_or('?')
    }

    /// Returns how long the process has been on CPUs, with its children that were waited for.
    pub(crate) fn ticks_on_cpu(&self) -> u64 {
        TIMES.map(|field| self.number(field)).sum()
    }

    fn number(&self, field: usize) -> u64 {
        self.fields.get(field - 3).and_then(|field| field.parse().ok()).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_does_not_shift_the_fields() {
        let stat = Stat::parse("7 (a) b (c)) T 1 2 3 4 5 2097152 0").expect("it is well formed");
        assert_eq!((stat.name.as_str(), stat.state()), ("a) b (c)", 'T'));
        assert_eq!(stat.number(FLAGS), KERNEL_THREAD);
        assert_eq!(stat.number(HEAP_START), 0);
    }

    #[test]
    fn a_thread_that_sleeps_in_a_memory_call_tells_its_arguments() {
        let at = |text| whereabouts_of(text);
        assert_eq!(at("running\n"), Whereabouts::Unknown);
        assert_eq!(at("0 0x3 0x7ff 0x100 0x0 0x0 0x0 0x7ffc 0x7f12\n"), Whereabouts::Outside);
        assert_eq!(at("-1 0x7ffc 0x7f12\n"), Whereabouts::Outside, "it is blocked, and not in a call");
        assert_eq!(at("56 0x3 0x0 0x0 0x0 0x0 0x0 0x7ffc 0x7f12\n"), Whereabouts::Unknown);
        let call = "28 0x7f0000001000 0x4000 0x17 0x0 0x0 0x0 0x7ffc 0x7f12\n";
        assert_eq!(at(call), Whereabouts::Inside((28, [0x7f00_0000_1000, 0x4000, 0x17, 0, 0, 0])));
    }

    #[test]
    fn each_process_that_can_not_be_joined_says_why() {
        let why = |pid| Target::find(pid).expect_err("it can't be joined").to_string();
        assert!(why(std::process::id() as i32).contains("this recorder"));
        assert!(why(i32::MAX).contains("no such process"));
    }

    #[test]
    fn who_may_not_look_at_a_process_is_told_what_it_lacks() {
        let (all, bare) = ("Name:\tfaultless\nCapEff:\t000001fffeffffff\n", "CapEff:\t00000000a80425fb\n");
        let (whole, mapped) = ("         0          0 4294967295\n", "         0       1000          1\n");
        assert_eq!(Lack::of(1000, "CapEff:\t0000000000000000\n", whole), Lack::Root);
        assert_eq!(Lack::of(0, bare, whole), Lack::Capability, "as in a container");
        assert_eq!(Lack::of(0, all, mapped), Lack::Namespace);
        assert_eq!(Lack::of(0, all, whole), Lack::Nothing);
        let error = io::Error::from_raw_os_error(libc::EACCES);
        let told = Unjoinable::Forbidden { owner: 0, error, lack: Lack::Nothing }.to_string();
        assert!(told.contains("a security module") && !told.contains("run as root"), "{told}");
    }

    #[test]
    fn a_child_tells_its_command_its_threads_and_its_end() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("sleep exists");
        let target = Target::find(child.id() as i32).expect("it is ours");
        assert_eq!(target.threads(), [child.id()]);
        assert!(!target.has_ended());
        child.kill().expect("it runs");
        child.wait().expect("it is ours");
        assert!(target.has_ended());
    }
}
