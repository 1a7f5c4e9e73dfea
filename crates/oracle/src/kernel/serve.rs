//! The judged process at work: it makes itself ready, then runs batches for as long as there is a judge.
//!
//! # Guarantee
//! A sequence begins in a process that holds nothing of those before it, or is reported as not run.

use std::ops::Range;

use super::attempt;
use super::block::{Head, state};
use super::child::{Child, EXIT_SETUP, Start};
use super::op::{Call, Op};
use super::processes;
use super::steps;
use super::sys::{self, exit, raw};

/// Makes the process ready; runs in a fresh child of fork, and never returns.
pub(super) fn begin(start: Start) -> ! {
    // SAFETY: the process is fresh and single-threaded; the calls take numbers, or memory of ours.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0);
        if libc::getppid() != start.keeper {
            exit(EXIT_SETUP);
        }
        libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0);
        // An interrupt from the terminal is the judge's: it ends this process when it has heard the last answer.
        let mut interrupts: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut interrupts);
        libc::sigaddset(&mut interrupts, libc::SIGINT);
        libc::sigaddset(&mut interrupts, libc::SIGTERM);
        libc::sigprocmask(libc::SIG_SETMASK, &interrupts, std::ptr::null_mut());
    }
    attempt::install_handler();
    let child = Child::new(start).unwrap_or_else(|| exit(EXIT_SETUP));
    let top = child.slot(0).stack_top();
    // SAFETY: the slot's stack is fresh; the child stays in its arena.
    unsafe { sys::continue_on(top, serve, std::ptr::from_mut(child) as u64) }
}

extern "C" fn serve(child: u64) -> ! {
    // SAFETY: `begin` hands over the child that it made, and nobody else has it.
    let child = unsafe { &mut *(child as *mut Child) };
    child.slot(0).adopt();
    child.settle().unwrap_or_else(|_| exit(EXIT_SETUP));
    loop {
        child.report();
        child.await_command();
        child.run_batch();
    }
}

impl Child {
    fn report(&self) {
        // SAFETY: one byte of ours.
        if unsafe { raw!(libc::SYS_write, self.start.reports, self.scratch, 1) } != Ok(1) {
            exit(0);
        }
    }

    fn await_command(&self) {
        // SAFETY: one byte of ours.
        if unsafe { raw!(libc::SYS_read, self.start.commands, self.scratch, 1) } != Ok(1) {
            exit(0);
        }
    }

    fn run_batch(&mut self) {
        let block = self.start.block;
        // SAFETY: a plain number; the keeper waits.
        let nr_sequences = unsafe { (*block.control()).nr_sequences } as usize;
        for place in 0..nr_sequences {
            let mut head = block.head(place);
            head.state = state::RUNNING;
            block.set_head(place, head);
            head.state = self.run_one(&head);
            block.set_head(place, head);
            if head.state == state::NOT_CLEAN {
                return;
            }
        }
    }

    fn run_one(&mut self, head: &Head) -> u64 {
        let range = head.first_op as usize..(head.first_op + head.nr_ops) as usize;
        let has = |call: Call| range.clone().any(|place| self.start.block.op(place).call == call as u8);
        let (has_locked_all, has_sealed) = (has(Call::Mlockall), has(Call::Mseal) || self.loses_locks(range.clone()));
        if self.clean().is_err() || self.set_bounds(&head.bounds).is_err() {
            return state::NOT_CLEAN;
        }
        // What it pages out waits on lists of the CPU that made the pages.
        let affinity = self.pages_out(range.clone()).then(Affinity::narrow);
        self.has_used_files = range.clone().any(|place| self.start.block.op(place).op().names_file());
        // What is sealed stays until its process ends.
        let result = if has_sealed { processes::in_child(self, range) } else { steps::run(self, range, 0) };
        if has_locked_all {
            // SAFETY: no memory changes.
            let _ = unsafe { raw!(libc::SYS_munlockall) };
        }
        affinity.inspect(Affinity::restore);
        self.unset_bounds();
        result
    }

    fn pages_out(&self, mut range: Range<usize>) -> bool {
        range.any(|place| self.start.block.op(place).op().advises(libc::MADV_PAGEOUT))
    }

    /// Says whether locked memory may be moved with its source kept: Linux goes on counting the source as locked.
    fn loses_locks(&self, mut range: Range<usize>) -> bool {
        let block = self.start.block;
        let keeps = |op: &Op| op.call == Call::Mremap && op.args[3] & libc::MREMAP_DONTUNMAP as u64 != 0;
        let locks = |op: &Op| match op.call {
            Call::Mlock | Call::Mlock2 | Call::Mlockall => true,
            Call::Mmap => op.args[3] & libc::MAP_LOCKED as u64 != 0,
            _ => false,
        };
        range.clone().any(|place| keeps(&block.op(place).op())) && range.any(|place| locks(&block.op(place).op()))
    }
}

/// The CPUs that the process may run on, as Linux's bits.
struct Affinity([u64; Self::WORDS]);

impl Affinity {
    const WORDS: usize = 128;
    const BYTES: usize = Self::WORDS * size_of::<u64>();

    /// Keeps the process on the CPU that it is on; returns where it might be before.
    fn narrow() -> Self {
        let (mut before, mut cpu) = (Self([0; Self::WORDS]), 0_u32);
        let mut only = Self([0; Self::WORDS]);
        // SAFETY: the calls write so many bytes of ours.
        unsafe {
            let _ = raw!(libc::SYS_sched_getaffinity, 0, Self::BYTES, before.0.as_mut_ptr());
            let _ = raw!(libc::SYS_getcpu, &raw mut cpu, 0, 0);
        }
        only.0[cpu as usize / 64 % Self::WORDS] = 1 << (cpu % 64);
        only.restore();
        before
    }

    /// Lets the process run there; what the kernel refuses stays as it is.
    fn restore(&self) {
        // SAFETY: the call reads so many bytes of ours.
        let _ = unsafe { raw!(libc::SYS_sched_setaffinity, 0, Self::BYTES, self.0.as_ptr()) };
    }
}
