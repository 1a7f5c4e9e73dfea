//! Programs at the kernel's tracepoints that write the records of the processes that are watched, and of no others.
//!
//! # Guarantee
//! From [`Programs::attach`] on, each process that [`Programs::watch`] was called for, and each that such a one makes
//! later, is recorded on every CPU: its faults, its memory calls, the tasks that it makes and, if asked for, its
//! switches and wakes. A process that ended may give its number to another, which is recorded too.
//! The records are those that perf writes for these tracepoints, field by field; a field that nobody reads may hold
//! anything.
//!
//! # Why
//! An event that perf opens for a thread costs that thread half a microsecond whenever it gets or leaves a CPU, and
//! another sixth for each tracepoint; its filters cost each system call a tenth each; and each record a third.
//! Programs cost nothing when threads change, a system call that is not about memory one test of a bit, and a record
//! a tenth of a microsecond (docs/log/2026-11-24-attach-cost.md).
//!
//! # Who is watched
//! One bit for each process number, which programs test and set. So numbers must be those of the outermost namespace.

mod assembly;
mod kernel;
mod programs;
mod slots;
mod types;

use std::fs;
use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use faultless_trace::Pace;

use crate::numbers;
use crate::sources::Tracepoints;
use kernel::{Attached, Outlets, Words};
use programs::Writer;
use slots::Slots;
use types::Types;

/// System calls have smaller numbers.
const NR_CALLS: usize = 512;
/// Processes have smaller numbers: the largest `pid_max`.
const NR_PROCESSES: usize = 1 << 22;

/// The word of the shared array where the bits of calls begin, and those of processes.
const CALLS: usize = 0;
const PROCESSES: usize = CALLS + NR_CALLS / WORD_BITS;
const NR_WORDS: usize = PROCESSES + NR_PROCESSES / WORD_BITS;

const WORD_BITS: usize = u64::BITS as usize;

/// The programs, attached as long as this lives.
#[derive(Debug)]
pub(crate) struct Programs {
    outlets: Outlets,
    shared: Arc<Words>,
    slots: Slots,
    cpus: Vec<i32>,
    #[expect(dead_code, reason = "they are held, and end when this is dropped")]
    attached: Vec<Attached>,
}

impl Programs {
    /// Attaches all programs; nobody is watched yet. An error where the kernel has not what they need.
    pub(crate) fn attach(points: &Tracepoints, pace: Pace, ring_bytes: usize, cpus: &[i32]) -> io::Result<Self> {
        if !is_outermost() {
            return Err(io::Error::other("process numbers are not those of the outermost namespace"));
        }
        let types = Types::read()?;
        let nr_cpus = cpus.iter().max().map_or(0, |&last| last as usize + 1);
        let (outlets, shared) = (Outlets::new(nr_cpus)?, Words::one(NR_WORDS)?);
        let slots = Slots::new(ring_bytes, nr_cpus)?;
        for number in numbers::watched() {
            set(&shared, CALLS, number as usize);
        }
        let writer = Writer::new(&types, outlets.fd(), shared.fd(), &slots)?;
        let mut programs = vec![
            ("page_fault_user", writer.fault(&points.fault_user, programs::Kind::Anywhere)?),
            ("page_fault_kernel", writer.fault(&points.fault_kernel, programs::Kind::OfUsers)?),
            ("task_newtask", writer.new_task(&points.new_task)?),
            ("sys_enter", writer.enter(&points.sys_enter)?),
            ("sys_exit", writer.exit(&points.sys_exit)?),
        ];
        if pace == Pace::Stored {
            programs.push(("sched_waking", writer.waking(&points.waking)?));
            programs.push(("sched_switch", writer.switch(&points.switch)?));
        }
        let load = |(point, code): &(&str, Vec<_>)| Attached::load(code, types.tracepoint(point)?);
        let attached = programs.iter().map(load).collect::<io::Result<_>>()?;
        Ok(Self { outlets, shared: Arc::new(shared), slots, cpus: cpus.to_vec(), attached })
    }

    /// Returns what lets a process be recorded while somebody else has the programs.
    pub(crate) fn watcher(&self) -> Watcher {
        Watcher(Arc::clone(&self.shared))
    }

    /// Lets an event of a CPU wake its reader when records are to be read.
    pub(crate) fn send_to(&self, cpu: i32, event: RawFd) -> io::Result<()> {
        self.outlets.set(cpu as u32, event)
    }

    /// Begins to record a process.
    pub(crate) fn watch(&self, pid: i32) {
        set(&self.shared, PROCESSES, pid as usize);
    }

    /// Returns how many rings there are, one for each CPU.
    pub(crate) fn nr_rings(&self) -> usize {
        self.cpus.len()
    }

    /// Hands all records of a ring to `take`.
    pub(crate) fn drain<E>(&self, ring: usize, take: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        self.slots.drain(self.cpus[ring] as usize, take)
    }

    /// Stops to record whomever.
    pub(crate) fn stop(&self) {
        // Relaxed: a program sees the change a little later at most.
        self.shared.value(0)[PROCESSES..].iter().for_each(|word| word.store(0, Ordering::Relaxed));
    }

    /// Returns how many records found no room.
    pub(crate) fn lost(&self) -> u64 {
        self.slots.lost()
    }

    /// Forgets all that was written of a process that has ended.
    pub(crate) fn forget(&self) {
        self.slots.forget();
    }
}

/// Lets processes be recorded.
#[derive(Clone, Debug)]
pub(crate) struct Watcher(Arc<Words>);

impl Watcher {
    /// Begins to record a process: whatever it does after the return.
    pub(crate) fn watch(&self, pid: i32) {
        set(&self.0, PROCESSES, pid as usize);
    }
}

fn set(shared: &Words, first: usize, bit: usize) {
    // Relaxed: a program sees the bit from then on or a little later; the recording begins after a pass that found
    // nobody new, and a system call lies between.
    shared.value(0)[first + bit / WORD_BITS].fetch_or(1 << (bit % WORD_BITS), Ordering::Relaxed);
}

/// Returns whether this process is of the outermost namespace of process numbers.
fn is_outermost() -> bool {
    const OUTERMOST: &str = "pid:[4026531836]";
    fs::read_link("/proc/self/ns/pid").is_ok_and(|link| link.as_os_str() == OUTERMOST)
}
