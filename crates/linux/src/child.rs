//! The recorded program: started, held back until it is watched, then let go.
//!
//! # Guarantee
//! The program runs no instruction before [`Child::release`]; if the recorder gives up or dies before, it never runs.
//! It inherits nothing of the recorder's: descriptors close on exec, signal mask and dispositions are as they were.
//!
//! # Protocol
//! `spawn`: fork; the child waits for a byte. `release`: the byte; the child execs and so closes a second pipe, or
//! writes there why it could not. End of file on the first pipe tells the child that nobody wants it.

use std::ffi::{CString, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::ptr;

use faultless_trace::{Ending, HugePages};

/// What the child needs to know.
pub(crate) struct Launch<'a> {
    /// The command and its arguments.
    pub(crate) argv: &'a [OsString],
    /// Whether it may get huge pages.
    pub(crate) huge_pages: HugePages,
    /// The signal mask that it shall have.
    pub(crate) mask: libc::sigset_t,
}

/// A started child.
#[derive(Debug)]
pub(crate) struct Child {
    pid: libc::pid_t,
    go: Option<File>,
    failure: File,
    ending: Option<Ending>,
}

impl Child {
    /// Starts a child that waits.
    pub(crate) fn spawn(launch: &Launch<'_>) -> io::Result<Self> {
        let argv = c_strings(launch.argv)?;
        let mut pointers: Vec<_> = argv.iter().map(|word| word.as_ptr()).collect();
        pointers.push(ptr::null());
        let (wait, go) = pipe()?;
        let (failure, report) = pipe()?;
        // SAFETY: the child calls only functions that are safe after a fork, on memory that was made ready before.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            // SAFETY: this is the child of the fork, and `pointers` are C strings ended by a null pointer.
            0 => unsafe { become_program(&wait, &go, &report, launch, &pointers) },
            pid => Ok(Self { pid, go: Some(go.into()), failure: failure.into(), ending: None }),
        }
    }

    /// Returns its process number.
    pub(crate) fn pid(&self) -> libc::pid_t {
        self.pid
    }

    /// Lets the program begin; returns why if it could not be started.
    pub(crate) fn release(&mut self) -> io::Result<()> {
        if let Some(mut go) = self.go.take() {
            go.write_all(b"g")?;
        }
        let mut code = [0; 4];
        match self.failure.read_exact(&mut code) {
            Ok(()) => Err(io::Error::from_raw_os_error(i32::from_ne_bytes(code))),
            Err(_) => Ok(()),
        }
    }

    /// Returns how it ended, if it has.
    pub(crate) fn try_wait(&mut self) -> io::Result<Option<Ending>> {
        if self.ending.is_none() {
            self.ending = wait(self.pid, libc::WNOHANG)?;
        }
        Ok(self.ending)
    }

    /// Passes a signal on.
    pub(crate) fn signal(&self, signal: i32) {
        // SAFETY: the call takes integers only; the child was not waited for, so the number is still its own.
        unsafe { libc::kill(self.pid, signal) };
    }
}

impl Drop for Child {
    /// Ends and reaps a child that was never released; one that runs is left alone.
    fn drop(&mut self) {
        if self.go.take().is_some() {
            let _ = wait(self.pid, 0);
        }
    }
}

fn wait(pid: libc::pid_t, options: i32) -> io::Result<Option<Ending>> {
    let mut status = 0;
    loop {
        // SAFETY: the status is a plain integer of ours.
        match unsafe { libc::waitpid(pid, &mut status, options) } {
            0 => return Ok(None),
            -1 if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            -1 => return Err(io::Error::last_os_error()),
            _ => return Ok(Some(ending_of(status))),
        }
    }
}

fn ending_of(status: i32) -> Ending {
    if libc::WIFSIGNALED(status) {
        Ending::Killed(libc::WTERMSIG(status) as u8)
    } else {
        Ending::Exited(libc::WEXITSTATUS(status) as u8)
    }
}

fn c_strings(argv: &[OsString]) -> io::Result<Vec<CString>> {
    let invalid = |_| io::Error::new(io::ErrorKind::InvalidInput, "an argument holds a zero byte");
    argv.iter().map(|word| CString::new(word.as_bytes()).map_err(invalid)).collect()
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: the array has room for both ends.
    crate::perf::check(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) })?;
    // SAFETY: the kernel has just made these descriptors for us; nobody else owns them.
    Ok(unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) })
}

/// Waits for the byte, then becomes the program. Never returns.
///
/// # Safety
/// Must run in a fresh child of fork; `argv` must be C strings ended by a null pointer.
unsafe fn become_program(
    wait: &OwnedFd,
    go: &OwnedFd,
    report: &OwnedFd,
    launch: &Launch<'_>,
    argv: &[*const libc::c_char],
) -> ! {
    // SAFETY: only calls that are safe after a fork, on memory that the caller vouches for.
    unsafe {
        libc::close(go.as_raw_fd());
        let mut byte = 0u8;
        if libc::read(wait.as_raw_fd(), ptr::from_mut(&mut byte).cast(), 1) != 1 {
            libc::_exit(1);
        }
        if launch.huge_pages == HugePages::Off {
            libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0);
        }
        // Rust programs ignore SIGPIPE, and what is ignored stays so across exec.
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        libc::sigprocmask(libc::SIG_SETMASK, &launch.mask, ptr::null_mut());
        libc::execvp(argv[0], argv.as_ptr());
        let code = *libc::__errno_location();
        libc::write(report.as_raw_fd(), ptr::from_ref(&code).cast(), 4);
        libc::_exit(127)
    }
}
