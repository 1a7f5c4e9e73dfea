//! The keeper of the judged process.
//!
//! # Guarantee
//! Every sequence gets an answer or a reason; a process that hangs or dies is replaced, and takes only the sequence
//! with it during which it did.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use faultless_linux::space::ProgressWatch;

use super::answer::Answer;
use super::block::{Block, Room, state};
use super::child::Start;
use super::sequence::{Sequence, User};
use super::serve;

/// The user and group without rights.
const NOBODY: u32 = 65534;

/// Why a sequence has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoAnswer {
    /// The process did not come to its end in time.
    Timeout,
    /// The process, or one that it started, ended in a way that none should.
    Crashed(String),
    /// More operations, or longer lists, than the host was made for.
    TooLarge,
    /// An operation could reach memory of the process itself.
    Harmful(String),
}

impl fmt::Display for NoAnswer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timeout => write!(out, "the kernel's side did not come to its end in time"),
            Self::Crashed(how) => write!(out, "the process on the kernel's side {how}"),
            Self::TooLarge => write!(out, "the sequence has more operations or areas than there is room for"),
            Self::Harmful(what) => write!(out, "`{what}` could reach memory of the process itself"),
        }
    }
}

/// What the empty process uses; limits are counted from there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Baseline {
    /// Pages mapped.
    pub pages: u64,
    /// Of those, pages that count as data (RLIMIT_DATA).
    pub data: u64,
}

/// Why there is no host.
#[derive(Debug)]
pub enum HostError {
    /// A system call failed.
    Io(io::Error),
    /// The process could not be made ready.
    NotReady(String),
}

impl fmt::Display for HostError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(out, "cannot start a process to judge by: {error}"),
            Self::NotReady(how) => write!(
                out,
                "the process to judge by {how} while it was made ready; it needs Linux 6.17 or newer, and /proc"
            ),
        }
    }
}

impl std::error::Error for HostError {}

impl From<io::Error> for HostError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// A process on the real kernel that runs sequences as one user; belongs to the thread that made it.
pub struct Host {
    user: User,
    block: Block,
    timeout: Duration,
    process: HostProcess,
}

/// The process at this time.
struct HostProcess {
    pid: libc::pid_t,
    commands: File,
    reports: File,
}

impl Host {
    /// Starts a process for sequences of `user`, which may have CPUs for `timeout` each time. It ends when the calling
    /// thread does.
    pub fn start(user: User, room: Room, timeout: Duration) -> Result<Self, HostError> {
        let block = Block::new(room)?;
        match HostProcess::start(block, user, timeout) {
            Ok(process) => Ok(Self { user, block, timeout, process }),
            Err(error) => {
                // SAFETY: the process is gone.
                unsafe { block.unmap() };
                Err(error)
            }
        }
    }

    /// Says whether this process may run sequences as `user`.
    pub fn can_be(user: User) -> bool {
        // SAFETY: the call only returns a number.
        !user.is_root() || unsafe { libc::geteuid() } == 0
    }

    /// Returns as whom sequences run.
    pub fn user(&self) -> User {
        self.user
    }

    /// Returns what the empty process uses.
    pub fn baseline(&self) -> Baseline {
        // SAFETY: the process waits for a command, so the numbers stay.
        unsafe {
            let control = &*self.block.control();
            Baseline { pages: control.baseline_pages, data: control.baseline_data }
        }
    }

    /// Says whether brk works on a heap in the window; that needs rights.
    pub fn has_heap(&self) -> bool {
        // SAFETY: as in `baseline`.
        unsafe { (*self.block.control()).has_heap != 0 }
    }

    /// Runs sequences, each from the same empty state; what each operation came to, or why that is not known.
    pub fn run(&mut self, sequences: &[Sequence]) -> Result<Vec<Result<Answer, NoAnswer>>, HostError> {
        let mut answers = Vec::with_capacity(sequences.len());
        while answers.len() < sequences.len() {
            let rest = &sequences[answers.len()..];
            match self.refuse(&rest[0]) {
                Some(why) => answers.push(Err(why)),
                None => {
                    let end = rest.iter().position(|sequence| self.refuse(sequence).is_some()).unwrap_or(rest.len());
                    self.run_batch(&rest[..end], &mut answers)?;
                }
            }
        }
        Ok(answers)
    }

    fn refuse(&self, sequence: &Sequence) -> Option<NoAnswer> {
        if let Some((place, _)) = sequence.harmful() {
            return Some(NoAnswer::Harmful(sequence.ops[place].to_string()));
        }
        (sequence.ops.len() > self.block.room().ops).then_some(NoAnswer::TooLarge)
    }

    /// Runs as many as fit, at least one.
    fn run_batch(
        &mut self,
        sequences: &[Sequence],
        answers: &mut Vec<Result<Answer, NoAnswer>>,
    ) -> Result<(), HostError> {
        let taken = self.block.load(sequences);
        let ending = self.process.command(self.timeout);
        for place in 0..taken {
            let answer = match self.block.head(place).state {
                state::DONE => Ok(self.block.answer(place)),
                state::NO_ROOM if place == 0 => Err(NoAnswer::TooLarge),
                state::BROKEN => Err(NoAnswer::Crashed("broke off in a child".into())),
                state::RUNNING | state::NOT_CLEAN => Err(ending.clone().unwrap_or(NoAnswer::Crashed(
                    "found what the sequence before left behind, or could not set the limits".into(),
                ))),
                // What was not run, or did not fit beside others, gets another turn.
                _ => break,
            };
            answers.push(answer);
        }
        let is_stuck =
            (0..taken).any(|place| matches!(self.block.head(place).state, state::RUNNING | state::NOT_CLEAN));
        if ending.is_some() || is_stuck {
            self.process = HostProcess::start(self.block, self.user, self.timeout)?;
        }
        Ok(())
    }
}

/// Returns RLIMIT_MEMLOCK and RLIMIT_STACK of this process; `None` is no limit.
pub fn usual_limits() -> [Option<u64>; 2] {
    [libc::RLIMIT_MEMLOCK, libc::RLIMIT_STACK].map(|resource| {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the kernel writes the structure.
        let result = unsafe { libc::getrlimit(resource, &mut limit) };
        (result == 0 && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
    })
}

/// Says whether this kernel gives memory that may only be fetched from a protection key: it uses them if the processor
/// has them (CPUID leaf 7, ECX bit 4, OSPKE).
pub fn has_protection_keys() -> bool {
    const FEATURES: u32 = 7;
    const OSPKE: u32 = 1 << 4;
    let [highest, features] = [0, FEATURES].map(|leaf| core::arch::x86_64::__cpuid_count(leaf, 0));
    highest.eax >= FEATURES && features.ecx & OSPKE != 0
}

impl Drop for Host {
    fn drop(&mut self) {
        self.process.end();
        // SAFETY: the process has ended, and nobody else has a copy.
        unsafe { self.block.unmap() };
    }
}

impl HostProcess {
    fn start(block: Block, user: User, timeout: Duration) -> Result<Self, HostError> {
        let (command_end, commands) = pipe()?;
        let (reports, report_end) = pipe()?;
        // SAFETY: the calls only return numbers.
        let (keeper, is_root) = unsafe { (libc::getpid(), libc::geteuid() == 0) };
        let becomes = (!user.is_root() && is_root).then_some(NOBODY);
        let start =
            Start { block, commands: command_end.as_raw_fd(), reports: report_end.as_raw_fd(), becomes, keeper };
        // SAFETY: the child calls only what is safe after a fork, and never returns.
        let pid = match unsafe { libc::fork() } {
            -1 => return Err(io::Error::last_os_error().into()),
            0 => {
                // Our ends of the pipes would keep it from seeing that we are gone.
                // SAFETY: these descriptors are the child's copies.
                unsafe {
                    libc::close(commands.as_raw_fd());
                    libc::close(reports.as_raw_fd());
                }
                serve::begin(start)
            }
            pid => pid,
        };
        drop((command_end, report_end));
        let mut process = Self { pid, commands: commands.into(), reports: reports.into() };
        match process.await_report(timeout) {
            None => Ok(process),
            Some(why) => Err(HostError::NotReady(match why {
                NoAnswer::Crashed(how) => how,
                other => other.to_string(),
            })),
        }
    }

    /// Lets the process run the batch in the block; returns what went wrong.
    fn command(&mut self, timeout: Duration) -> Option<NoAnswer> {
        if self.commands.write_all(b"g").is_err() {
            return Some(self.end());
        }
        self.await_report(timeout)
    }

    fn await_report(&mut self, timeout: Duration) -> Option<NoAnswer> {
        let ready = |time| is_readable(self.reports.as_raw_fd(), time).then_some(());
        match ProgressWatch::until(self.pid.unsigned_abs(), timeout, ready) {
            // A process that is gone reads as an end of file.
            Ok(()) if matches!(self.reports.read(&mut [0]), Ok(1)) => None,
            Ok(()) => Some(self.end()),
            Err(_) => {
                self.end();
                Some(NoAnswer::Timeout)
            }
        }
    }

    /// Ends the process and says how it ended.
    fn end(&mut self) -> NoAnswer {
        if self.pid == 0 {
            return NoAnswer::Crashed("is gone".into());
        }
        let mut status = 0;
        // SAFETY: our own child, not waited for yet; a moment's grace lets a dying one tell its own story.
        unsafe {
            let has_ended = (0..20).any(|_| {
                let done = libc::waitpid(self.pid, &mut status, libc::WNOHANG) == self.pid;
                if !done {
                    libc::usleep(500);
                }
                done
            });
            if !has_ended {
                libc::kill(self.pid, libc::SIGKILL);
                libc::waitpid(self.pid, &mut status, 0);
            }
        }
        self.pid = 0;
        NoAnswer::Crashed(match libc::WIFSIGNALED(status) {
            true => format!("was killed by signal {}", libc::WTERMSIG(status)),
            false => format!("exited with code {}", libc::WEXITSTATUS(status)),
        })
    }
}

impl Drop for HostProcess {
    fn drop(&mut self) {
        self.end();
    }
}

fn is_readable(fd: RawFd, timeout: Duration) -> bool {
    let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    loop {
        // SAFETY: one structure of ours.
        match unsafe { libc::poll(&mut poll, 1, timeout.as_millis().min(i32::MAX as u128) as i32) } {
            -1 if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            ready => return ready > 0,
        }
    }
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: the array has room for both ends.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made these descriptors for us.
    Ok(unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) })
}
