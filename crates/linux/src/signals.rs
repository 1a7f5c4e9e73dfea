//! Signals as something to wait for: the program's end, and the wish to stop.
//!
//! # Guarantee
//! While a [`Signals`] lives, an interrupt ends the recording in order instead of the recorder; afterwards signals act
//! as before. A signal that was ignored stays ignored.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;
use std::time::{Duration, Instant};

use faultless_trace::Ending;

use crate::bounds::Bounded;
use crate::child::Child;
use crate::session::Ends;

/// What asks the recorder to stop.
const STOPPING: [i32; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];

/// What begins a recording that waits.
pub(crate) const BEGIN: i32 = libc::SIGUSR1;

/// What ends a recording that waited.
pub(crate) const END: i32 = libc::SIGUSR2;

/// What a signal says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    Begin,
    End,
    /// An interrupt.
    Stop(i32),
}

/// How long an interrupted program may take to end before it is left running.
const GRACE: Duration = Duration::from_secs(1);

/// At the latest after this time the program is looked at, signalled or not.
pub(crate) const LOOK: Duration = Duration::from_millis(100);

/// Blocked signals, and a descriptor that tells of them.
pub(crate) struct Signals {
    fd: OwnedFd,
    before: libc::sigset_t,
}

/// How the wait for the program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// The program's end; unknown if it was left running.
    pub(crate) ending: Ending,
    /// The first signal that asked to stop.
    pub(crate) interrupted_by: Option<i32>,
}

impl Signals {
    /// Blocks the signals, and these further ones, and begins to gather them.
    pub(crate) fn block(further: &[i32]) -> io::Result<Self> {
        let mut before = MaybeUninit::uninit();
        // SAFETY: the sets are ours; the calls write `before` whole; the kernel makes the descriptor for us.
        unsafe {
            libc::signal(libc::SIGCHLD, libc::SIG_DFL);
            let wanted = wanted_set(further);
            crate::perf::check(libc::sigprocmask(libc::SIG_BLOCK, &wanted, before.as_mut_ptr()))?;
            let fd = libc::signalfd(-1, &wanted, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
            crate::perf::check(fd)?;
            Ok(Self { fd: OwnedFd::from_raw_fd(fd), before: before.assume_init() })
        }
    }

    /// Returns the mask that was in force before.
    pub(crate) fn mask_before(&self) -> libc::sigset_t {
        self.before
    }

    /// Waits until the program ends, or until it was interrupted and its time to end is over, or the recording's.
    pub(crate) fn wait(&self, child: &mut Child, bounded: &Bounded<'_>) -> io::Result<Outcome> {
        let mut interrupted_by = None;
        let mut deadline: Option<Instant> = None;
        loop {
            if let Some(ending) = child.try_wait()? {
                // A terminal's interrupt may have ended the program before we heard of it ourselves.
                let interrupted_by = interrupted_by.or_else(|| self.waiting_stop());
                return Ok(Outcome { ending, interrupted_by });
            }
            if bounded.is_reached() || deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(Outcome { ending: Ending::Unknown, interrupted_by });
            }
            let first = [deadline, bounded.deadline].into_iter().flatten().min();
            let Some(signal) = self.next(first) else { continue };
            if signal.ssi_signo as i32 == libc::SIGCHLD {
                continue;
            }
            pass_on(child, &signal);
            let allowed = if interrupted_by.is_none() { GRACE } else { Duration::ZERO };
            deadline = Some(Instant::now() + allowed);
            interrupted_by = interrupted_by.or(Some(signal.ssi_signo as i32));
        }
    }

    /// Returns the next signal that says something to a recorder of running processes, or `None` after a while, at the
    /// latest at the deadline.
    pub(crate) fn next_word(&self, deadline: Option<Instant>) -> Option<Word> {
        match self.next(deadline)?.ssi_signo as i32 {
            BEGIN => Some(Word::Begin),
            END => Some(Word::End),
            signal => STOPPING.contains(&signal).then_some(Word::Stop(signal)),
        }
    }

    /// Waits until everyone whom a session watched has ended, the recording has reached a bound, or a signal asks to
    /// stop, which it returns.
    pub(crate) fn await_ends(&self, ends: &Ends, bounded: &Bounded<'_>) -> Option<i32> {
        while !(ends.are_all() || bounded.is_reached()) {
            if let Some(Word::Stop(signal)) = self.next_word(bounded.deadline) {
                return Some(signal);
            }
        }
        None
    }

    /// Returns a stopping signal that has come and was not yet looked at.
    fn waiting_stop(&self) -> Option<i32> {
        let waiting = std::iter::from_fn(|| self.next(Some(Instant::now())));
        waiting.map(|signal| signal.ssi_signo as i32).find(|signal| STOPPING.contains(signal))
    }

    /// Returns the next signal, or `None` after a while, at the latest at the deadline.
    ///
    /// The while is for a process with other threads: one that does not block SIGCHLD may take it from us.
    fn next(&self, deadline: Option<Instant>) -> Option<libc::signalfd_siginfo> {
        let left = deadline.map_or(LOOK, |at| at.saturating_duration_since(Instant::now()).min(LOOK));
        let timeout = left.as_millis() as i32 + 1;
        let mut poll = libc::pollfd { fd: self.fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let mut info = MaybeUninit::<libc::signalfd_siginfo>::uninit();
        let size = size_of_val(&info);
        // SAFETY: one poll structure of ours; the read writes at most the buffer, and it is used only if written whole.
        unsafe {
            libc::poll(&mut poll, 1, timeout);
            let got = libc::read(self.fd.as_raw_fd(), info.as_mut_ptr().cast(), size);
            (got == size as isize).then(|| info.assume_init())
        }
    }
}

impl Drop for Signals {
    /// Takes what still waits, so that it does not strike once it is let through, and lets signals act again.
    fn drop(&mut self) {
        while self.next(Some(Instant::now())).is_some() {}
        // SAFETY: the mask is the one that was in force.
        unsafe { libc::sigprocmask(libc::SIG_SETMASK, &self.before, ptr::null_mut()) };
    }
}

/// Gives the program a signal that only the recorder got. A terminal sends its own to both.
fn pass_on(child: &Child, signal: &libc::signalfd_siginfo) {
    const SI_KERNEL: i32 = 0x80;
    if signal.ssi_code != SI_KERNEL {
        child.signal(signal.ssi_signo as i32);
    }
}

/// Returns the stopping signals that are not ignored, the one for children, and further ones.
///
/// # Safety
/// None beyond calling the C library with memory of our own.
unsafe fn wanted_set(further: &[i32]) -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: `sigemptyset` makes the set whole before anything reads it.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        let mut set = set.assume_init();
        for &signal in further.iter().chain(&[libc::SIGCHLD]) {
            libc::sigaddset(&mut set, signal);
        }
        for signal in STOPPING {
            let mut action = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
            libc::sigaction(signal, ptr::null(), &mut action);
            if action.sa_sigaction != libc::SIG_IGN {
                libc::sigaddset(&mut set, signal);
            }
        }
        set
    }
}
