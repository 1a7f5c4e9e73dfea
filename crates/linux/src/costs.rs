//! What a fault and a call cost here, with and without being watched.
//!
//! # Guarantee
//! The figures are the best of several rounds of a real process on this machine, watched by the same events as the
//! program that is recorded afterwards; where measuring failed they are zero.
//!
//! # Protocol
//! A forked child runs its rounds unwatched and reports, waits until it is watched, runs them again and reports.

use std::io;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use faultless_trace::{Costs, Pace};

use crate::bpf::Programs;
use crate::perf::Begin;
use crate::session::{Session, Setup};
use crate::sources::Sources;
use crate::stacks::StackOptions;

const ROUNDS: usize = 7;
const PAGES: usize = 512;
const PAGE_BYTES: usize = 4096;
const CALLS: usize = 300;
/// Room for every record of the watched rounds.
const RING_BYTES: usize = 2 << 20;

/// Nanoseconds for one fault and one call.
type Figures = [u64; 2];

/// The costs, and the session that watched while they were measured.
///
/// Closing the last event of a tracepoint takes the kernel tens of milliseconds, opening a further one none: so this
/// session is closed only when another one is open.
#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) costs: Costs,
    /// Nanoseconds for one fault and one call that nobody watches.
    plain: Figures,
    pub(crate) session: Session,
}

/// Measures the costs.
pub(crate) fn measure(sources: &Sources, pace: Pace, stacks: Option<StackOptions>) -> io::Result<Measured> {
    let begin = Begin::WhenEnabled;
    let (plain, watched, session) = compare(|pid| {
        let session = Session::open(sources, &Setup { pid, pace, begin, ring_bytes: RING_BYTES, stacks })?;
        session.enable()?;
        Ok(session)
    })?;
    Ok(Measured { costs: costs_of(plain, watched), plain, session })
}

/// Measures the costs once more, where programs watch.
pub(crate) fn measure_programs(before: &Measured, programs: &Programs) -> io::Result<Costs> {
    let (_, watched, ()) = compare(|pid| {
        programs.watch(pid);
        Ok(())
    })?;
    programs.forget();
    Ok(costs_of(before.plain, watched))
}

fn costs_of(plain: Figures, watched: Figures) -> Costs {
    Costs {
        fault_ns: plain[0],
        fault_tracing_ns: watched[0].saturating_sub(plain[0]),
        call_tracing_ns: watched[1].saturating_sub(plain[1]),
    }
}

/// Returns what a fault and a call cost a child before and after it is watched, and what watches it.
fn compare<T>(watch: impl FnOnce(i32) -> io::Result<T>) -> io::Result<(Figures, Figures, T)> {
    let (ours, theirs) = UnixStream::pair()?;
    // SAFETY: the child calls only functions that are safe after a fork, on memory that was made ready before.
    let pid = unsafe { libc::fork() };
    match pid {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            drop(ours);
            serve(theirs)
        }
        _ => {
            drop(theirs);
            let measured = ask(ours, || watch(pid));
            // SAFETY: the child is ours and not yet waited for.
            unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
            measured
        }
    }
}

fn ask<T>(mut child: UnixStream, watch: impl FnOnce() -> io::Result<T>) -> io::Result<(Figures, Figures, T)> {
    let plain = receive(&mut child)?;
    let watching = watch()?;
    child.write_all(&[1])?;
    let watched = receive(&mut child)?;
    Ok((plain, watched, watching))
}

fn receive(child: &mut UnixStream) -> io::Result<Figures> {
    let mut bytes = [0; size_of::<Figures>()];
    child.read_exact(&mut bytes)?;
    let (fault, call) = bytes.split_at(size_of::<u64>());
    Ok([fault, call].map(|bytes| bytes.try_into().map_or(0, u64::from_ne_bytes)))
}

/// The child's side. Never returns.
fn serve(mut parent: UnixStream) -> ! {
    let _ = answer(&mut parent);
    // SAFETY: ends the child at once, without running what belongs to the parent.
    unsafe { libc::_exit(0) }
}

fn answer(parent: &mut UnixStream) -> io::Result<()> {
    send(parent, figures()?)?;
    parent.read_exact(&mut [0])?;
    send(parent, figures()?)
}

fn send(parent: &mut UnixStream, figures: Figures) -> io::Result<()> {
    figures.iter().try_for_each(|figure| parent.write_all(&figure.to_ne_bytes()))
}

fn figures() -> io::Result<Figures> {
    let mut faults = [0; ROUNDS];
    let mut calls = [0; ROUNDS];
    for round in 0..ROUNDS {
        faults[round] = time_faults()? / PAGES as u64;
        calls[round] = time_calls() / CALLS as u64;
    }
    // The least disturbed round: other programs only ever add.
    Ok([faults, calls].map(|rounds| rounds.into_iter().min().unwrap_or(0)))
}

/// Touches fresh small pages one by one; returns how long that took.
fn time_faults() -> io::Result<u64> {
    let len = PAGES * PAGE_BYTES;
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping of our own, touched within its bounds and unmapped before anyone else knows of it.
    unsafe {
        let base = libc::mmap(std::ptr::null_mut(), len, protection, flags, -1, 0);
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        libc::madvise(base, len, libc::MADV_NOHUGEPAGE);
        let start = now_ns();
        for page in 0..PAGES {
            base.cast::<u8>().add(page * PAGE_BYTES).write_volatile(1);
        }
        let elapsed = now_ns() - start;
        libc::munmap(base, len);
        Ok(elapsed)
    }
}

/// Makes the cheapest memory call over and over; returns how long that took.
fn time_calls() -> u64 {
    let start = now_ns();
    for _ in 0..CALLS {
        // SAFETY: a break of zero asks where it is and changes nothing.
        unsafe { libc::syscall(libc::SYS_brk, 0) };
    }
    now_ns() - start
}

/// Returns the monotonic clock's time, which all records have.
pub(crate) fn now_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure is ours; this clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
