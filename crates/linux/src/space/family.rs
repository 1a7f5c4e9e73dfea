//! Processes made for one run, which start together and tell what they measured.
//!
//! # Guarantee
//! Each child runs its life in a copy of this process, without huge pages, and ends; none outlives the run, the run's
//! process, or a failure of a sibling. What a child returns reaches the parent whole or is an error.
//!
//! # Protocol
//! The children share one page with the parent:
//! ```text
//! child                                       parent
//! arrive: nr_ready += 1; the last one         poll the pipes; an end without a message, or an interrupt:
//!   sets the time to start                      stop := 1
//! wait for the time or for stop
//! ```

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use super::interrupt::has_interrupt;

/// How long the parent sleeps between two looks at an interrupt.
const LOOK_MS: i32 = 50;

/// How long a child sleeps between two looks at whether all have arrived.
const NAP: Duration = Duration::from_micros(50);

/// What all members of a family see.
#[derive(Debug, Default)]
pub struct Together {
    nr_ready: AtomicU32,
    start_ns: AtomicU64,
    stop: AtomicU32,
}

impl Together {
    /// Waits until `nr_members` have arrived; returns the time to start at, which the last one asks `start_ns` for.
    /// Nothing if the family is to stop.
    pub fn arrive(&self, nr_members: usize, start_ns: impl FnOnce() -> u64) -> Option<u64> {
        // ORDER: AcqRel makes those who arrive a chain; the last one's start time is published below.
        if self.nr_ready.fetch_add(1, Ordering::AcqRel) as usize + 1 == nr_members {
            // ORDER: Release pairs with the Acquire below.
            self.start_ns.store(start_ns(), Ordering::Release);
        }
        loop {
            // ORDER: Acquire pairs with the Release above.
            match self.start_ns.load(Ordering::Acquire) {
                _ if self.has_stopped() => return None,
                0 => thread::sleep(NAP),
                start_ns => return Some(start_ns),
            }
        }
    }

    /// Asks all members to stop.
    pub fn stop(&self) {
        // Relaxed: nothing is read on the strength of the flag.
        self.stop.store(1, Ordering::Relaxed);
    }

    /// Returns whether the members are to stop.
    pub fn has_stopped(&self) -> bool {
        // Relaxed: see `stop`.
        self.stop.load(Ordering::Relaxed) != 0 || has_interrupt()
    }
}

/// Why a family came to no result.
#[derive(Debug)]
pub enum ChildError {
    /// The system gave no child, no pipe or no memory.
    System {
        /// What was tried.
        what: &'static str,
        /// What the kernel said.
        error: io::Error,
    },
    /// A child ended by a signal.
    Signal(i32),
    /// A child ended with an exit code of failure, or said nothing.
    Code(i32),
}

impl fmt::Display for ChildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System { what, error } => write!(f, "{what}: {error}"),
            Self::Signal(signal) => write!(f, "the measuring process was ended by signal {signal}"),
            Self::Code(code) => write!(f, "the measuring process ended with code {code}"),
        }
    }
}

impl std::error::Error for ChildError {}

/// A page that is shared with children.
struct SharedPage(NonNull<Together>);

impl SharedPage {
    fn new() -> Result<Self, ChildError> {
        let (rights, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping at a free place.
        let page = unsafe { libc::mmap(std::ptr::null_mut(), size_of::<Together>(), rights, flags, -1, 0) };
        if page == libc::MAP_FAILED {
            return Err(system("cannot share memory with the measuring process"));
        }
        NonNull::new(page.cast::<Together>()).map(Self).ok_or_else(|| system("cannot share memory"))
    }

    fn get(&self) -> &Together {
        // SAFETY: the mapping is ours until `drop`, and zeros are a valid `Together`.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for SharedPage {
    fn drop(&mut self) {
        // SAFETY: made in `new`, used through borrows of `self` only.
        unsafe { libc::munmap(self.0.as_ptr().cast(), size_of::<Together>()) };
    }
}

fn system(what: &'static str) -> ChildError {
    ChildError::System { what, error: io::Error::last_os_error() }
}

/// One child, as its parent knows it.
struct ForkedChild {
    pid: libc::pid_t,
    pipe: File,
    message: Vec<u8>,
    is_open: bool,
}

impl Drop for ForkedChild {
    /// Ends a child that still runs: only after a failure of another.
    fn drop(&mut self) {
        if self.pid > 0 {
            // SAFETY: the child is ours and was not waited for yet.
            unsafe {
                libc::kill(self.pid, libc::SIGKILL);
                libc::waitpid(self.pid, std::ptr::null_mut(), 0);
            }
        }
    }
}

/// Processes that run at the same time.
pub struct Family {
    page: SharedPage,
    children: Vec<ForkedChild>,
}

impl Family {
    /// Makes `nr_children` children, which live `life` with their number; returns what each of them returned.
    pub fn run(nr_children: usize, life: &dyn Fn(usize, &Together) -> Vec<u8>) -> Result<Vec<Vec<u8>>, ChildError> {
        let mut family = Self { page: SharedPage::new()?, children: Vec::with_capacity(nr_children) };
        for number in 0..nr_children {
            let child = family.make(number, life)?;
            family.children.push(child);
        }
        family.listen()?;
        family.children.iter_mut().map(ForkedChild::end).collect()
    }

    fn make(&self, number: usize, life: &dyn Fn(usize, &Together) -> Vec<u8>) -> Result<ForkedChild, ChildError> {
        let (read_end, write_end) = pipe()?;
        // SAFETY: getpid has no preconditions.
        let parent = unsafe { libc::getpid() };
        // SAFETY: the child runs code of this process that takes no lock which another thread may have held at the fork
        // but malloc's, which the C library hands over; it ends without running destructors of the parent's values.
        match unsafe { libc::fork() } {
            -1 => Err(system("cannot make a measuring process")),
            0 => {
                drop(read_end);
                be_child(parent, write_end, || life(number, self.page.get()))
            }
            pid => Ok(ForkedChild { pid, pipe: read_end, message: Vec::new(), is_open: true }),
        }
    }

    /// Gathers what the children say until all have said all.
    fn listen(&mut self) -> Result<(), ChildError> {
        while self.children.iter().any(|child| child.is_open) {
            if has_interrupt() {
                self.page.get().stop();
            }
            let mut polled: Vec<libc::pollfd> = self.children.iter().map(ForkedChild::polled).collect();
            // SAFETY: the list is our own.
            let found = unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, LOOK_MS) };
            if found < 0 && io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
                return Err(system("cannot listen to the measuring process"));
            }
            let ready = polled.iter().map(|entry| found > 0 && entry.revents != 0);
            for (child, is_ready) in self.children.iter_mut().zip(ready) {
                if is_ready && !child.hear()? {
                    self.page.get().stop();
                }
            }
        }
        Ok(())
    }
}

impl ForkedChild {
    fn polled(&self) -> libc::pollfd {
        let fd: RawFd = if self.is_open { self.pipe.as_raw_fd() } else { -1 };
        libc::pollfd { fd, events: libc::POLLIN, revents: 0 }
    }

    /// Reads what the child says; false if it ended without a word.
    fn hear(&mut self) -> Result<bool, ChildError> {
        let mut part = [0; 4096];
        match self.pipe.read(&mut part) {
            Ok(0) => self.is_open = false,
            Ok(len) => self.message.extend_from_slice(&part[..len]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(ChildError::System { what: "cannot hear the measuring process", error }),
        }
        Ok(self.is_open || !self.message.is_empty())
    }

    /// Waits for the child's end; returns what it said.
    fn end(&mut self) -> Result<Vec<u8>, ChildError> {
        let mut status = 0;
        // SAFETY: the child is ours, and the status is our own variable.
        while unsafe { libc::waitpid(self.pid, &raw mut status, 0) } < 0 {
            if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
                return Err(system("cannot wait for the measuring process"));
            }
        }
        self.pid = 0;
        match () {
            () if libc::WIFSIGNALED(status) => Err(ChildError::Signal(libc::WTERMSIG(status))),
            () if libc::WEXITSTATUS(status) != 0 || self.message.is_empty() => {
                Err(ChildError::Code(libc::WEXITSTATUS(status)))
            }
            () => Ok(std::mem::take(&mut self.message)),
        }
    }
}

fn pipe() -> Result<(File, File), ChildError> {
    let mut ends = [0; 2];
    // SAFETY: the kernel writes two new descriptors, which are ours, into our own array.
    unsafe {
        if libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) != 0 {
            return Err(system("cannot make a pipe"));
        }
        Ok((File::from_raw_fd(ends[0]), File::from_raw_fd(ends[1])))
    }
}

/// A child's whole life.
fn be_child(parent: libc::pid_t, mut pipe: File, life: impl FnOnce() -> Vec<u8>) -> ! {
    settle(parent);
    let said = catch_unwind(AssertUnwindSafe(life)).ok();
    let code = match said.map(|message| pipe.write_all(&message)) {
        Some(Ok(())) => 0,
        Some(Err(_)) | None => 101,
    };
    // SAFETY: ends the child without running what the parent will run.
    unsafe { libc::_exit(code) }
}

/// Makes the process what a plain measuring program is: small pages, and gone with its parent.
fn settle(parent: libc::pid_t) {
    // SAFETY: settings of this process alone.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0);
        if libc::getppid() != parent {
            libc::_exit(101);
        }
        libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0);
    }
}
