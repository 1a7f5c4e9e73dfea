//! Where a recording's records come from: the kernel's tracepoints, or the software fault event.
//!
//! # Guarantee
//! A trace that names what its sources cannot show ([`Sources::missing`]) claims nothing else.

use std::io;

use faultless_trace::stacks::StackMethod;
use faultless_trace::{Missing, Mode, Pace};

use crate::numbers;
use crate::perf::{Reach, Watch};
use crate::stacks::StackOptions;
use crate::tracefs::{Format, Tracefs};

/// An address below this is a user's: all page tables' user halves end there or earlier.
const USER_ONLY: &str = "address < 0x0100000000000000";

/// Where the records come from.
#[derive(Debug)]
pub(crate) enum Sources {
    /// The kernel's tracepoints.
    Tracepoints(Box<Tracepoints>),
    /// The software fault event.
    Software,
}

/// The tracepoints that are watched.
#[derive(Debug)]
pub(crate) struct Tracepoints {
    pub(crate) fault_user: Format,
    pub(crate) fault_kernel: Format,
    pub(crate) new_task: Format,
    pub(crate) sys_enter: Format,
    pub(crate) sys_exit: Format,
    pub(crate) waking: Format,
    /// Programs write it; perf has records of its own for switches.
    pub(crate) switch: Format,
}

impl Sources {
    /// Reads the tracepoints' descriptions.
    pub(crate) fn tracepoints() -> io::Result<Self> {
        let tracefs = Tracefs::find()?;
        Ok(Self::Tracepoints(Box::new(Tracepoints {
            fault_user: tracefs.format("exceptions/page_fault_user")?,
            fault_kernel: tracefs.format("exceptions/page_fault_kernel")?,
            new_task: tracefs.format("task/task_newtask")?,
            sys_enter: tracefs.format("raw_syscalls/sys_enter")?,
            sys_exit: tracefs.format("raw_syscalls/sys_exit")?,
            waking: tracefs.format("sched/sched_waking")?,
            switch: tracefs.format("sched/sched_switch")?,
        })))
    }

    /// Reads the tracepoints' descriptions as [`Sources::descriptions`] gave them.
    pub(crate) fn described(text: &str) -> io::Result<Self> {
        let format = |name: &str| Format::named(text, name);
        Ok(Self::Tracepoints(Box::new(Tracepoints {
            fault_user: format("page_fault_user")?,
            fault_kernel: format("page_fault_kernel")?,
            new_task: format("task_newtask")?,
            sys_enter: format("sys_enter")?,
            sys_exit: format("sys_exit")?,
            waking: format("sched_waking")?,
            // Earlier recorders did not describe it, nor have its records.
            switch: format("sched_switch").unwrap_or_default(),
        })))
    }

    /// Returns the kernel's descriptions of the tracepoints, one after the other.
    pub(crate) fn descriptions(&self) -> Option<String> {
        let Self::Tracepoints(points) = self else { return None };
        let Tracepoints { fault_user, fault_kernel, new_task, sys_enter, sys_exit, waking, switch } = &**points;
        let all = [fault_user, fault_kernel, new_task, sys_enter, sys_exit, waking, switch];
        Some(all.iter().map(|format| format.text.as_str()).collect())
    }

    /// Returns the mode that these sources give.
    pub(crate) fn mode(&self) -> Mode {
        match self {
            Self::Tracepoints(_) => Mode::Privileged,
            Self::Software => Mode::Unprivileged,
        }
    }

    /// Returns what these sources cannot show.
    pub(crate) fn missing(&self, pace: Pace) -> Vec<Missing> {
        match self {
            Self::Tracepoints(_) => Vec::new(),
            Self::Software => {
                let mut missing =
                    vec![Missing::WriteBit, Missing::KernelFaults, Missing::CloneFlags, Missing::MapCalls];
                missing.extend((pace == Pace::Stored).then_some(Missing::Wakes));
                missing
            }
        }
    }

    pub(crate) fn reach(&self) -> Reach {
        match self {
            Self::Tracepoints(_) => Reach::Everything,
            Self::Software => Reach::UserOnly,
        }
    }

    /// Returns what is watched beside the leader, with the kernel's filter.
    pub(crate) fn watches(&self, pace: Pace) -> Vec<(Watch, Option<String>)> {
        let Self::Tracepoints(points) = self else { return vec![(Watch::SoftwareFault, None)] };
        let calls = Some(numbers::filter());
        let mut watches = vec![
            (Watch::Tracepoint(points.fault_user.id), None),
            (Watch::Tracepoint(points.fault_kernel.id), Some(USER_ONLY.to_owned())),
            (Watch::Tracepoint(points.new_task.id), None),
            (Watch::Tracepoint(points.sys_enter.id), calls.clone()),
            (Watch::Tracepoint(points.sys_exit.id), calls),
        ];
        watches.extend((pace == Pace::Stored).then_some((Watch::Tracepoint(points.waking.id), None)));
        watches
    }
}

/// What is watched, with the kernel's filter.
pub(crate) type FilteredWatch = (Watch, Option<String>);

impl Sources {
    /// Returns what is watched for call chains.
    pub(crate) fn stack_watches(&self, stacks: StackOptions) -> Vec<FilteredWatch> {
        let faults = |id| (stacks.fault_period > 0).then_some((Watch::ChainOfFaults(id, stacks), None));
        match self {
            Self::Tracepoints(points) => {
                let calls = (Watch::ChainOfCalls(points.sys_enter.id, stacks), Some(numbers::memory_filter()));
                std::iter::once(calls).chain(faults(Some(points.fault_user.id))).collect()
            }
            Self::Software => faults(None).into_iter().collect(),
        }
    }

    /// Returns the size of a ring for call chains beside one of so many bytes, on a machine of so many CPUs.
    pub(crate) fn stack_ring_bytes(&self, stacks: StackOptions, ring_bytes: usize, nr_cpus: usize) -> usize {
        const LARGEST: usize = 32 << 20;
        const ALL_MOST: usize = 1 << 30;
        // Locked memory without privilege is little, and the events need it more.
        const UNPRIVILEGED: usize = 64 << 10;
        match (self, stacks.method) {
            (Self::Software, _) => UNPRIVILEGED,
            (Self::Tracepoints(_), StackMethod::FramePointers) => ring_bytes,
            (Self::Tracepoints(_), StackMethod::Dwarf) => {
                let share = (ALL_MOST / nr_cpus.max(1)).min(LARGEST);
                // The largest power of two that is no larger.
                ((share + 1).next_power_of_two() / 2).max(ring_bytes)
            }
        }
    }
}
