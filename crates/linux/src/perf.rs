//! One perf event: what to watch, opened for one process, or for all, on one CPU.
//!
//! # Guarantee
//! An event follows the process and, by inheritance, all that it forks; every happening gives one record, stamped with
//! the monotonic clock.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use faultless_trace::Pace;
use faultless_trace::stacks::StackMethod;
use perf_event_open_sys::bindings as sys;
use perf_event_open_sys::ioctls;

use crate::stacks::StackOptions;

/// What an event watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watch {
    /// Nothing itself; it owns the ring and carries mappings, names, forks, exits and, with `switches`, the scheduler.
    Leader(Switches),
    /// Nothing at all: it owns a ring into which others are redirected.
    Nothing,
    /// What programs in the kernel write to wake their reader.
    Outlet,
    /// A tracepoint.
    Tracepoint(u16),
    /// Page faults, as the software event that needs no privilege.
    SoftwareFault,
    /// The call chains of a tracepoint, each time.
    ChainOfCalls(u16, StackOptions),
    /// The call chains of a tracepoint, or of the software event, each so manieth time.
    ChainOfFaults(Option<u16>, StackOptions),
}

/// Whether the leader also records context switches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Switches {
    /// It does.
    Recorded,
    /// It does not.
    Unrecorded,
}

impl Switches {
    /// Returns whether such a pace needs them.
    pub(crate) fn of(pace: Pace) -> Self {
        match pace {
            Pace::Stored => Self::Recorded,
            Pace::Absent => Self::Unrecorded,
        }
    }
}

/// Whether events may look into the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Everywhere.
    Everything,
    /// User code only, as an unprivileged user must ask for.
    UserOnly,
}

/// When events begin to record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begin {
    /// When the process runs its next program.
    AtExec,
    /// When [`Event::enable`] is called.
    WhenEnabled,
    /// When [`Event::enable`] is called, in a process that runs already; each record carries its event's number.
    Joining,
}

/// An open event.
#[derive(Debug)]
pub(crate) struct Event {
    fd: OwnedFd,
    counts_lost: CountsLost,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CountsLost {
    Yes,
    /// The kernel is older than 6.0.
    No,
}

impl Event {
    /// Opens an event for `pid` on `cpu`; its ring, if it leads, wakes its reader after `wakeup_bytes`.
    pub(crate) fn open(
        watch: Watch,
        pid: i32,
        cpu: i32,
        reach: Reach,
        begin: Begin,
        wakeup_bytes: u32,
    ) -> io::Result<Self> {
        let mut attr = attributes(watch, reach, begin, wakeup_bytes);
        attr.read_format = u64::from(sys::PERF_FORMAT_LOST);
        let refused = match open(&mut attr, pid, cpu) {
            Ok(fd) => return Ok(Self { fd, counts_lost: CountsLost::Yes }),
            Err(error) => error,
        };
        if refused.raw_os_error() != Some(libc::EINVAL) {
            return Err(refused);
        }
        attr.read_format = 0;
        Ok(Self { fd: open(&mut attr, pid, cpu)?, counts_lost: CountsLost::No })
    }

    /// Sends the event's records into `leader`'s ring.
    pub(crate) fn redirect(&self, leader: &Event) -> io::Result<()> {
        // SAFETY: both descriptors are open; the call takes integers only.
        check(unsafe { ioctls::SET_OUTPUT(self.raw(), leader.raw()) })
    }

    /// Lets the kernel drop what the expression does not match.
    pub(crate) fn set_filter(&self, expression: &str) -> io::Result<()> {
        let expression = CString::new(expression).map_err(io::Error::other)?;
        // SAFETY: the kernel copies the C string and writes nothing.
        check(unsafe { ioctls::SET_FILTER(self.raw(), expression.as_ptr().cast_mut()) })
    }

    /// Begins to record.
    pub(crate) fn enable(&self) -> io::Result<()> {
        // SAFETY: the call takes integers only.
        check(unsafe { ioctls::ENABLE(self.raw(), 0) })
    }

    /// Stops to record, in all processes that inherited the event.
    pub(crate) fn disable(&self) -> io::Result<()> {
        // SAFETY: the call takes integers only.
        check(unsafe { ioctls::DISABLE(self.raw(), 0) })
    }

    /// Returns how many of the event's records found no room; 0 where the kernel cannot tell.
    pub(crate) fn lost(&self) -> u64 {
        let mut counts = [0u64; 2];
        if self.counts_lost == CountsLost::No {
            return 0;
        }
        // SAFETY: the buffer has the size that is passed.
        let got = unsafe { libc::read(self.raw(), counts.as_mut_ptr().cast(), size_of_val(&counts)) };
        if got == size_of_val(&counts) as isize { counts[1] } else { 0 }
    }

    /// Returns the number that the records carry of this event and of those that children inherit from it.
    pub(crate) fn id(&self) -> io::Result<u64> {
        let mut id = 0;
        // SAFETY: the kernel writes the number into the integer.
        check(unsafe { ioctls::ID(self.raw(), &mut id) })?;
        Ok(id)
    }

    /// Returns another descriptor of the event.
    pub(crate) fn descriptor(&self) -> io::Result<OwnedFd> {
        self.fd.try_clone()
    }

    /// Returns the descriptor's number.
    pub(crate) fn raw(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

fn attributes(watch: Watch, reach: Reach, begin: Begin, wakeup_bytes: u32) -> sys::perf_event_attr {
    let mut attr = sys::perf_event_attr::default();
    attr.size = size_of::<sys::perf_event_attr>() as u32;
    attr.set_disabled(1);
    attr.set_inherit(1);
    attr.set_sample_id_all(1);
    attr.set_use_clockid(1);
    attr.clockid = libc::CLOCK_MONOTONIC;
    attr.set_enable_on_exec(u64::from(begin == Begin::AtExec));
    attr.set_exclude_kernel(u64::from(reach == Reach::UserOnly));
    attr.set_exclude_hv(u64::from(reach == Reach::UserOnly));
    attr.sample_type = u64::from(sys::PERF_SAMPLE_TID | sys::PERF_SAMPLE_TIME);
    attr.__bindgen_anon_1.sample_period = 1;
    if begin == Begin::Joining {
        attr.sample_type |= u64::from(sys::PERF_SAMPLE_IDENTIFIER);
    }
    match watch {
        Watch::Nothing => own_ring(&mut attr, wakeup_bytes),
        Watch::Outlet => {
            attr.type_ = sys::PERF_TYPE_SOFTWARE;
            attr.config = u64::from(sys::PERF_COUNT_SW_BPF_OUTPUT);
            attr.sample_type |= u64::from(sys::PERF_SAMPLE_RAW);
            // A program may not write to an event that tasks inherit. Each record wakes the reader.
            attr.set_inherit(0);
            attr.__bindgen_anon_2.wakeup_events = 1;
        }
        Watch::Leader(switches) => lead(&mut attr, switches, wakeup_bytes),
        Watch::Tracepoint(id) => {
            attr.type_ = sys::PERF_TYPE_TRACEPOINT;
            attr.config = u64::from(id);
            attr.sample_type |= u64::from(sys::PERF_SAMPLE_RAW);
        }
        Watch::SoftwareFault => watch_faults(&mut attr),
        Watch::ChainOfCalls(id, stacks) => chain(&mut attr, Some(id), 1, stacks),
        Watch::ChainOfFaults(id, stacks) => chain(&mut attr, id, stacks.fault_period, stacks),
    }
    attr
}

fn watch_faults(attr: &mut sys::perf_event_attr) {
    attr.type_ = sys::PERF_TYPE_SOFTWARE;
    attr.config = u64::from(sys::PERF_COUNT_SW_PAGE_FAULTS);
    attr.sample_type |= u64::from(sys::PERF_SAMPLE_IP | sys::PERF_SAMPLE_ADDR);
}

/// The registers that unwinding needs, by their numbers in the kernel's list: the frame pointer, the stack pointer, the
/// instruction.
const REGISTERS: u64 = 1 << 6 | 1 << 7 | 1 << 8;

fn chain(attr: &mut sys::perf_event_attr, tracepoint: Option<u16>, period: u64, stacks: StackOptions) {
    match tracepoint {
        Some(id) => {
            attr.type_ = sys::PERF_TYPE_TRACEPOINT;
            attr.config = u64::from(id);
            attr.sample_type |= u64::from(sys::PERF_SAMPLE_RAW);
        }
        None => watch_faults(attr),
    }
    attr.__bindgen_anon_1.sample_period = period;
    match stacks.method {
        StackMethod::FramePointers => {
            attr.sample_type |= u64::from(sys::PERF_SAMPLE_CALLCHAIN);
            attr.set_exclude_callchain_kernel(1);
        }
        StackMethod::Dwarf => {
            attr.sample_type |= u64::from(sys::PERF_SAMPLE_REGS_USER | sys::PERF_SAMPLE_STACK_USER);
            attr.sample_regs_user = REGISTERS;
            attr.sample_stack_user = stacks.copied_bytes;
        }
    }
}

fn own_ring(attr: &mut sys::perf_event_attr, wakeup_bytes: u32) {
    attr.type_ = sys::PERF_TYPE_SOFTWARE;
    attr.config = u64::from(sys::PERF_COUNT_SW_DUMMY);
    attr.set_watermark(1);
    attr.__bindgen_anon_2.wakeup_watermark = wakeup_bytes;
}

fn lead(attr: &mut sys::perf_event_attr, switches: Switches, wakeup_bytes: u32) {
    own_ring(attr, wakeup_bytes);
    attr.set_mmap(1);
    attr.set_mmap_data(1);
    attr.set_mmap2(1);
    attr.set_comm(1);
    attr.set_comm_exec(1);
    attr.set_task(1);
    attr.set_context_switch(u64::from(switches == Switches::Recorded));
}

fn open(attr: &mut sys::perf_event_attr, pid: i32, cpu: i32) -> io::Result<OwnedFd> {
    let flags = u64::from(sys::PERF_FLAG_FD_CLOEXEC);
    // SAFETY: `attr` is a whole attribute structure that tells its own size.
    let fd = unsafe { perf_event_open_sys::perf_event_open(attr, pid, cpu, -1, flags) };
    check(fd.min(0))?;
    // SAFETY: the kernel has just made this descriptor for us; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Turns a failed call's result into its error.
pub(crate) fn check(result: i32) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
