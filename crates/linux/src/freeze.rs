//! Processes that stand still while their memory is read.
//!
//! # Guarantee
//! From [`Frozen::freeze`] until the [`Frozen`] is dropped no thread of the processes runs; then those run again that
//! did before. A process that was stopped already is left so.
//!
//! A stop and a continuation are signals that a parent may see (a shell says "Stopped"), and a handler for SIGCONT
//! runs. Who must not notice records with a live snapshot.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use crate::target::{Stat, Target, Unjoinable};

/// A thread in the middle of a disk access stops when that is over.
const PATIENCE: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_micros(200);

/// Processes that were stopped.
pub(crate) struct Frozen {
    stopped: Vec<OwnedFd>,
    since: Instant,
}

impl Frozen {
    /// Begins with nothing stopped.
    pub(crate) fn new() -> Self {
        Self { stopped: Vec::new(), since: Instant::now() }
    }

    /// Stops those of the processes that run, and waits until all their threads stand.
    pub(crate) fn freeze(&mut self, targets: &[Target]) -> Result<(), (i32, Unjoinable)> {
        for target in targets {
            if stands(target) {
                continue;
            }
            let failed = |error| (target.pid, Unjoinable::of(target.pid, "stopping it", error));
            let handle = target.handle().try_clone().map_err(failed)?;
            send(&handle, libc::SIGSTOP).map_err(failed)?;
            self.stopped.push(handle);
        }
        targets.iter().try_for_each(|target| self.await_stop(target))
    }

    fn await_stop(&self, target: &Target) -> Result<(), (i32, Unjoinable)> {
        while !stands(target) {
            if self.since.elapsed() > PATIENCE {
                let error = io::Error::other("a thread of it has not stopped for 5 seconds; use --snapshot live");
                return Err((target.pid, Unjoinable::Failed { what: "stopping it", error }));
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Returns for how long they have stood.
    pub(crate) fn elapsed(&self) -> Duration {
        self.since.elapsed()
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        for handle in &self.stopped {
            // A process that has ended meanwhile needs no continuation.
            let _ = send(handle, libc::SIGCONT);
        }
    }
}

/// Returns whether no thread of the process runs.
fn stands(target: &Target) -> bool {
    let stat = |tid: u32| Stat::read(&format!("/proc/{}/task/{tid}/stat", target.pid));
    target.threads().into_iter().filter_map(stat).all(|stat| matches!(stat.state(), 'T' | 't' | 'Z' | 'X'))
}

fn send(handle: &OwnedFd, signal: i32) -> io::Result<()> {
    let (handle, no_info) = (handle.as_raw_fd(), std::ptr::null::<libc::siginfo_t>());
    // SAFETY: the descriptor is open; without information the kernel reads no memory of ours.
    let sent = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, handle, signal, no_info, 0) };
    crate::perf::check(sent as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state_of(pid: i32) -> char {
        Stat::read(&format!("/proc/{pid}/stat")).map_or('?', |stat| stat.state())
    }

    #[test]
    fn a_process_stands_while_frozen_and_is_then_as_it_was() {
        for was_stopped in [false, true] {
            let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("sleep exists");
            let target = Target::find(child.id() as i32).expect("it is ours");
            if was_stopped {
                send(target.handle(), libc::SIGSTOP).expect("it is ours");
                while !stands(&target) {
                    std::thread::sleep(LOOK);
                }
            }
            let targets = [target];
            let mut frozen = Frozen::new();
            frozen.freeze(&targets).expect("it can be stopped");
            assert_eq!(state_of(targets[0].pid), 'T');
            drop(frozen);
            let begun = Instant::now();
            while !was_stopped && state_of(targets[0].pid) == 'T' && begun.elapsed() < PATIENCE {
                std::thread::sleep(LOOK);
            }
            assert_eq!(state_of(targets[0].pid) == 'T', was_stopped);
            child.kill().expect("it runs");
            child.wait().expect("it is ours");
        }
    }
}
