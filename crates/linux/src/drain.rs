//! The thread that empties the rings while the program runs.
//!
//! # Guarantee
//! After [`Drain::stop`] every record of what happened until [`Drained::ended_ns`] is in the spool. While the program
//! runs, each look at the rings ends with a mark in the spool: of what happened before, all is there.
//!
//! The thread asks for a high priority, so that a program that keeps all CPUs busy does not starve it; it is woken when
//! a ring is a quarter full.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::bpf::Programs;
use crate::costs::now_ns;
use crate::error::RecordError;
use crate::perf::check;
use crate::session::Session;
use crate::spool::Spool;

/// At the latest after this time the rings are looked at, woken or not.
const LOOK_MS: i32 = 50;

/// A record's time may be so much older than the moment at which the reader finds it: its writer's virtual CPU may
/// stand still between the two.
const LATE_NS: u64 = 10_000_000;

/// The longest record. A ring with less room than this may have lost one.
const RECORD_BYTES: usize = 64 << 10;

/// A running drain.
pub(crate) struct Drain {
    stop: OwnedFd,
    raw_bytes: Arc<AtomicU64>,
    thread: JoinHandle<Drained>,
}

/// What a drain leaves behind.
pub(crate) struct Drained {
    pub(crate) spool: Spool,
    /// Records that found no room, by the events' own count.
    pub(crate) lost: u64,
    /// Call chains that found no room.
    pub(crate) chains_lost: u64,
    /// When the recording ended: all events were on until then.
    pub(crate) ended_ns: u64,
    /// The first failure to put records aside.
    failure: Option<io::Error>,
}

impl Drain {
    /// Starts the thread.
    pub(crate) fn start(session: Session, spool: Spool) -> io::Result<Self> {
        // SAFETY: the call takes integers only.
        let raw = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
        check(raw)?;
        // SAFETY: the kernel has just made this descriptor for us; nobody else owns it.
        let stop = unsafe { OwnedFd::from_raw_fd(raw) };
        let raw_bytes = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&raw_bytes);
        let thread = thread::Builder::new().name("drain".into()).spawn(move || run(session, spool, raw, &counted))?;
        Ok(Self { stop, raw_bytes, thread })
    }

    /// Returns how many bytes of records have been put aside.
    pub(crate) fn raw_bytes(&self) -> &AtomicU64 {
        &self.raw_bytes
    }

    /// Stops the recording and empties the rings for the last time.
    pub(crate) fn stop(self) -> Result<Drained, RecordError> {
        let one = 1u64;
        // SAFETY: an eventfd takes eight bytes.
        unsafe { libc::write(self.stop.as_raw_fd(), std::ptr::from_ref(&one).cast(), 8) };
        let mut drained = self.thread.join().map_err(|_| RecordError::Spool(io::Error::other("the thread died")))?;
        match drained.failure.take() {
            Some(error) => Err(RecordError::Spool(error)),
            None => Ok(drained),
        }
    }
}

fn run(mut session: Session, spool: Spool, stop: i32, raw_bytes: &AtomicU64) -> Drained {
    // SAFETY: the call takes integers only; it may be refused, which does no harm.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -15) };
    let mut drained = Drained { spool, lost: 0, chains_lost: 0, ended_ns: 0, failure: None };
    let mut polls = poll_set(&session, stop);
    while !is_stopped(&mut polls) {
        look(&mut session, &mut drained);
        // Relaxed: whoever looks at the figure reads nothing else through it.
        raw_bytes.store(drained.spool.bytes(), Ordering::Relaxed);
    }
    drained.ended_ns = now_ns();
    if let Err(error) = session.disable() {
        drained.failure.get_or_insert(error);
    }
    await_writers();
    empty(&mut session, &mut drained);
    drained.lost = session.lost();
    drained.chains_lost = session.chains_lost();
    if drained.failure.is_none() {
        drained.failure = drained.spool.mark(drained.ended_ns, drained.lost).err();
    }
    close_aside(session);
    drained
}

/// Waits until every record is published that was being written while its event was switched off: a writer keeps its
/// CPU until it has published.
fn await_writers() {
    const MEMBARRIER_CMD_GLOBAL: i32 = 1;
    // SAFETY: the call takes integers only. It waits until each CPU has passed through the scheduler.
    let waited = unsafe { libc::syscall(libc::SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0) };
    if waited != 0 {
        thread::sleep(Duration::from_nanos(LATE_NS));
    }
}

/// Closes the events without waiting: the kernel takes tens of milliseconds for each tracepoint.
fn close_aside(session: Session) {
    thread::spawn(move || drop(session));
}

/// Returns what to poll: the stop event first, then one event for each ring.
fn poll_set(session: &Session, stop: i32) -> Vec<libc::pollfd> {
    let fds = [stop].into_iter().chain(session.leaders().iter().map(|leader| leader.raw()));
    fds.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 }).collect()
}

/// Waits for records; returns whether the recording shall stop.
fn is_stopped(polls: &mut [libc::pollfd]) -> bool {
    // SAFETY: the slice is as long as its length says.
    unsafe { libc::poll(polls.as_mut_ptr(), polls.len() as libc::nfds_t, LOOK_MS) };
    for poll in polls.iter_mut().skip(1) {
        // An event whose task has ended would wake us for ever; negative numbers are passed over.
        if poll.revents & (libc::POLLHUP | libc::POLLERR) != 0 {
            poll.fd = -1;
        }
    }
    polls.first().is_some_and(|stop| stop.revents & libc::POLLIN != 0)
}

/// Empties all rings and marks until when the spool is whole.
fn look(session: &mut Session, drained: &mut Drained) {
    let until_ns = now_ns().saturating_sub(LATE_NS);
    if empty(session, drained) == Loss::Possible {
        drained.lost = session.lost();
    }
    if drained.failure.is_none() {
        drained.failure = drained.spool.mark(until_ns, drained.lost).err();
    }
}

/// Whether a ring may have had no room for a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    Possible,
    None,
}

/// Empties all rings; after a failure the bytes are dropped, so that the program is not held up.
fn empty(session: &mut Session, drained: &mut Drained) -> Loss {
    let mut loss = Loss::None;
    for (cpu, ring) in session.rings_mut().iter_mut().enumerate() {
        let mut room_bytes = ring.data_bytes();
        let result = ring.drain(|bytes| {
            room_bytes -= bytes.len();
            match drained.failure {
                None => drained.spool.append(cpu, bytes),
                Some(_) => Ok(()),
            }
        });
        if let Err(error) = result {
            drained.failure = Some(error);
        }
        if room_bytes < RECORD_BYTES {
            loss = Loss::Possible;
        }
    }
    let first = session.rings_mut().len();
    for place in 0..session.programs().map_or(0, Programs::nr_rings) {
        // What its programs lost a session can tell at any time.
        loss = Loss::Possible;
        if let Err(error) = empty_programs(session, drained, first, place) {
            drained.failure = Some(error);
        }
    }
    loss
}

/// Empties a ring of programs, whose place in the spool is behind the first ones.
fn empty_programs(session: &Session, drained: &mut Drained, first: usize, place: usize) -> io::Result<()> {
    let Some(programs) = session.programs() else { return Ok(()) };
    programs.drain(place, |bytes| match drained.failure {
        None => drained.spool.append(first + place, bytes),
        Some(_) => Ok(()),
    })
}
