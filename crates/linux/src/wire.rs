//! The kernel's records, from bytes to values.
//!
//! # Guarantee
//! Decoding reads only what lies in the record; one that is shorter than its kind needs is told apart as
//! [`Body::Unreadable`], never guessed at.
//!
//! # Source
//! `perf_event_open(2)`, "MMAP layout": each record is a head (type, misc, size), a body, and, since all our events ask
//! for it, at the end the process, thread and time of the one that caused it. Samples carry those in the body instead.

use std::io;

use perf_event_open_sys::bindings as sys;

use faultless_trace::stacks::StackMethod;

use crate::files::Identity;
use crate::numbers;
use crate::sources::{Sources, Tracepoints};
use crate::spool::Rings;
use crate::stacks::{Caught, Copied, Of, Stack, StackOptions};
use crate::tracefs::Format;

/// What stands before every record: type, misc, size.
pub(crate) const HEAD_BYTES: usize = 8;

/// Programs wake their reader by a record of no tracepoint.
const WAKING_THE_READER: u16 = 0;

/// What follows every record that is not a sample: pid, tid, time.
const TRAILER_BYTES: usize = 16;

/// A decoded record.
#[derive(Debug)]
pub(crate) struct Record {
    /// The number of the event that wrote it; 0 where records carry none.
    pub(crate) event: u64,
    /// The thread that caused it.
    pub(crate) tid: u32,
    pub(crate) time_ns: u64,
    /// Its size, head included.
    pub(crate) bytes: u64,
    pub(crate) body: Body,
}

/// What a record says.
#[derive(Debug)]
pub(crate) enum Body {
    Sample(Context, Sample),
    Stack(Box<Caught>),
    Mapped(Box<Mapping>),
    Named { tid: u32, is_exec: bool, name: String },
    Forked(Forked),
    Exited { tid: u32 },
    SwitchedIn,
    SwitchedOut { is_preempted: bool },
    Lost { records: u64 },
    Unreadable,
    Unused,
}

/// What every tracepoint tells.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Context {
    /// The thread's number in the system's outermost namespace; 0 where it is not known.
    pub(crate) outer_tid: u32,
    /// Whether it happened inside an interrupt, and so is not the thread's doing.
    pub(crate) is_interrupt: bool,
}

/// What a tracepoint or the software fault event tells.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sample {
    UserFault { address: u64, ip: u64, error_code: u32 },
    KernelFault { address: u64, ip: u64, error_code: u32 },
    SoftwareFault { address: u64, ip: u64 },
    NewTask { outer_tid: u32, flags: u64 },
    Enter { number: i64, args: [u64; 6] },
    Exit { number: i64, result: i64 },
    Waking { outer_tid: u32 },
}

/// A mapping as the kernel told of it.
#[derive(Debug)]
pub(crate) struct Mapping {
    pub(crate) start: u64,
    pub(crate) len_bytes: u64,
    pub(crate) file_offset: u64,
    pub(crate) prot: u32,
    pub(crate) flags: u32,
    pub(crate) identity: Identity,
    pub(crate) path: String,
}

/// A task made by another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Forked {
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    pub(crate) parent_pid: u32,
    pub(crate) parent_tid: u32,
}

/// Decodes records of one session.
#[derive(Debug)]
pub(crate) struct Decoder {
    samples: Samples,
    numbers: Numbers,
    method: Option<StackMethod>,
}

/// Whether records carry the number of the event that wrote them: first in a sample, last in any other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Numbers {
    Absent,
    Carried,
}

#[derive(Debug)]
enum Samples {
    Tracepoints(Box<TracepointLayout>),
    Software,
}

/// Where the fields of the tracepoints lie.
#[derive(Debug)]
struct TracepointLayout {
    flags: usize,
    outer_tid: usize,
    fault_user: FaultLayout,
    fault_kernel: FaultLayout,
    new_task: (u16, usize, usize),
    sys_enter: (u16, usize, usize),
    sys_exit: (u16, usize, usize),
    waking: (u16, usize),
    switch: Option<SwitchLayout>,
}

/// A switch as programs write it: of one task, the other's number is 0.
#[derive(Debug)]
struct SwitchLayout {
    id: u16,
    prev_pid: usize,
    prev_state: usize,
    next_pid: usize,
}

#[derive(Debug)]
struct FaultLayout {
    id: u16,
    address: usize,
    ip: usize,
    error_code: usize,
}

impl Decoder {
    /// Returns a decoder for what these sources give.
    pub(crate) fn new(sources: &Sources, numbers: Numbers, stacks: Option<StackOptions>) -> io::Result<Self> {
        let samples = match sources {
            Sources::Tracepoints(points) => Samples::Tracepoints(Box::new(TracepointLayout::new(points)?)),
            Sources::Software => Samples::Software,
        };
        Ok(Self { samples, numbers, method: stacks.map(|stacks| stacks.method) })
    }

    /// Decodes one record of such a ring: its type, its misc bits and what follows the head.
    pub(crate) fn decode(&self, rings: Rings, kind: u32, misc: u16, bytes: &[u8]) -> Record {
        let unreadable = Record { event: 0, tid: 0, time_ns: 0, bytes: 0, body: Body::Unreadable };
        let decoded = self.split(kind, bytes).and_then(|(event, rest)| {
            let record = match (kind, rings) {
                (sys::PERF_RECORD_SAMPLE, Rings::Events) => self.sample(rest),
                (sys::PERF_RECORD_SAMPLE, Rings::Stacks) => self.stack(rest),
                (_, Rings::Events) => side_band(kind, misc, rest),
                // Only that one was lost; how many the events themselves tell.
                (_, Rings::Stacks) => Some(unused()),
            };
            Some(Record { event, ..record? })
        });
        Record { bytes: (HEAD_BYTES + bytes.len()) as u64, ..decoded.unwrap_or(unreadable) }
    }

    /// Splits the event's number off.
    fn split<'a>(&self, kind: u32, bytes: &'a [u8]) -> Option<(u64, &'a [u8])> {
        const BYTES: usize = size_of::<u64>();
        match (self.numbers, kind) {
            (Numbers::Absent, _) => Some((0, bytes)),
            (Numbers::Carried, sys::PERF_RECORD_SAMPLE) => Some((u64_at(bytes, 0)?, &bytes[BYTES..])),
            (Numbers::Carried, _) => {
                let (rest, number) = bytes.split_at_checked(bytes.len().checked_sub(BYTES)?)?;
                Some((u64_at(number, 0)?, rest))
            }
        }
    }

    fn sample(&self, bytes: &[u8]) -> Option<Record> {
        match &self.samples {
            Samples::Tracepoints(layout) => layout.sample(bytes),
            Samples::Software => software_fault(bytes),
        }
    }
}

impl Decoder {
    /// A sample with a stack: what it is of, then the addresses, or three registers and a copy.
    fn stack(&self, bytes: &[u8]) -> Option<Record> {
        let method = self.method?;
        let (head, mut input) = match &self.samples {
            Samples::Tracepoints(_) => (None, Fields(bytes)),
            Samples::Software => (Some(()), Fields(bytes.get(8..)?)),
        };
        let (_, tid) = (input.word32()?, input.word32()?);
        let time_ns = input.word()?;
        let mut of = match head {
            Some(()) => Some(Of::Fault { address: input.word()? }),
            None => None,
        };
        let mut followed = Vec::new();
        if method == StackMethod::FramePointers {
            let nr = input.word()?;
            for _ in 0..nr {
                followed.push(input.word()?);
            }
        }
        if let Samples::Tracepoints(layout) = &self.samples {
            let len = input.word32()? as usize;
            of = layout.of(input.bytes(len)?);
        }
        let stack = match method {
            StackMethod::FramePointers => Stack::Followed(calls_of(&followed)),
            StackMethod::Dwarf => Stack::Copied(Box::new(copied(&mut input)?)),
        };
        let body = of.map_or(Body::Unused, |of| Body::Stack(Box::new(Caught { of, stack })));
        Some(Record { event: 0, tid, time_ns, bytes: 0, body })
    }
}

/// Fields of a record, one after the other.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(head)
    }

    fn word32(&mut self) -> Option<u32> {
        u32_at(self.bytes(4)?, 0)
    }

    fn word(&mut self) -> Option<u64> {
        u64_at(self.bytes(8)?, 0)
    }
}

/// Which registers, if any; the registers; the size of the copy; the copy; how much of it the stack really had.
fn copied(input: &mut Fields<'_>) -> Option<Copied> {
    let has_registers = input.word()? != 0;
    let [bp, sp, ip] = if has_registers { [input.word()?, input.word()?, input.word()?] } else { [0; 3] };
    let len = input.word()? as usize;
    let bytes = input.bytes(len)?;
    let nr_real = if len == 0 { 0 } else { input.word()? as usize };
    Some(Copied { ip, sp, bp, bytes: bytes.get(..nr_real)?.to_vec() })
}

/// Returns addresses inside the calls: the kernel gives those behind them, after the innermost, and marks between them.
fn calls_of(followed: &[u64]) -> Vec<u64> {
    const MARKS: u64 = -4095i64 as u64;
    let addresses = followed.iter().copied().filter(|&address| address < MARKS);
    addresses.enumerate().map(|(place, address)| if place == 0 { address } else { address.wrapping_sub(1) }).collect()
}

fn unused() -> Record {
    Record { event: 0, tid: 0, time_ns: 0, bytes: 0, body: Body::Unused }
}

/// A sample of the software event: ip, pid, tid, time, address.
fn software_fault(bytes: &[u8]) -> Option<Record> {
    let sample = Sample::SoftwareFault { address: u64_at(bytes, 24)?, ip: u64_at(bytes, 0)? };
    let body = Body::Sample(Context::default(), sample);
    Some(Record { tid: u32_at(bytes, 12)?, time_ns: u64_at(bytes, 16)?, bytes: 0, event: 0, body })
}

impl TracepointLayout {
    fn new(points: &Tracepoints) -> io::Result<Self> {
        Ok(Self {
            flags: points.sys_enter.offset("common_flags")?,
            outer_tid: points.sys_enter.offset("common_pid")?,
            fault_user: FaultLayout::new(&points.fault_user)?,
            fault_kernel: FaultLayout::new(&points.fault_kernel)?,
            new_task: pair(&points.new_task, "pid", "clone_flags")?,
            sys_enter: pair(&points.sys_enter, "id", "args")?,
            sys_exit: pair(&points.sys_exit, "id", "ret")?,
            waking: (points.waking.id, points.waking.offset("pid")?),
            switch: SwitchLayout::new(&points.switch),
        })
    }

    /// A sample of a tracepoint: pid, tid, time, the raw record's size, the raw record.
    fn sample(&self, bytes: &[u8]) -> Option<Record> {
        let raw = bytes.get(20..)?;
        let (id, time_ns) = (u16_at(raw, 0)?, u64_at(bytes, 8)?);
        if id == WAKING_THE_READER {
            return Some(Record { time_ns, ..unused() });
        }
        if let Some(switch) = self.switch.as_ref().filter(|switch| switch.id == id) {
            let (tid, body) = switch.read(raw)?;
            return Some(Record { tid, time_ns, bytes: 0, event: 0, body });
        }
        let body = Body::Sample(self.context(raw)?, self.point(id, raw)?);
        Some(Record { tid: u32_at(bytes, 4)?, time_ns, bytes: 0, event: 0, body })
    }

    /// Returns what a stack is of.
    fn of(&self, raw: &[u8]) -> Option<Of> {
        match self.point(u16_at(raw, 0)?, raw)? {
            Sample::Enter { number, .. } => numbers::call_of(number).map(Of::Call),
            Sample::UserFault { address, .. } => Some(Of::Fault { address }),
            _ => None,
        }
    }

    fn context(&self, raw: &[u8]) -> Option<Context> {
        const HARD_INTERRUPT: u8 = 0x08;
        const SOFT_INTERRUPT: u8 = 0x10;
        const NMI: u8 = 0x40;
        let is_interrupt = *raw.get(self.flags)? & (HARD_INTERRUPT | SOFT_INTERRUPT | NMI) != 0;
        Some(Context { outer_tid: u32_at(raw, self.outer_tid)?, is_interrupt })
    }

    fn point(&self, id: u16, raw: &[u8]) -> Option<Sample> {
        if id == self.fault_user.id {
            let (address, ip, error_code) = self.fault_user.read(raw)?;
            Some(Sample::UserFault { address, ip, error_code })
        } else if id == self.fault_kernel.id {
            let (address, ip, error_code) = self.fault_kernel.read(raw)?;
            Some(Sample::KernelFault { address, ip, error_code })
        } else if id == self.sys_enter.0 {
            self.enter(raw)
        } else if id == self.sys_exit.0 {
            let (number, result) = (u64_at(raw, self.sys_exit.1)?, u64_at(raw, self.sys_exit.2)?);
            Some(Sample::Exit { number: number as i64, result: result as i64 })
        } else if id == self.new_task.0 {
            Some(Sample::NewTask { outer_tid: u32_at(raw, self.new_task.1)?, flags: u64_at(raw, self.new_task.2)? })
        } else if id == self.waking.0 {
            Some(Sample::Waking { outer_tid: u32_at(raw, self.waking.1)? })
        } else {
            None
        }
    }

    fn enter(&self, raw: &[u8]) -> Option<Sample> {
        let mut args = [0; 6];
        for (place, arg) in args.iter_mut().enumerate() {
            *arg = u64_at(raw, self.sys_enter.2 + place * 8)?;
        }
        Some(Sample::Enter { number: u64_at(raw, self.sys_enter.1)? as i64, args })
    }
}

impl FaultLayout {
    fn new(format: &Format) -> io::Result<Self> {
        let [address, ip, error_code] = ["address", "ip", "error_code"].map(|field| format.offset(field));
        Ok(Self { id: format.id, address: address?, ip: ip?, error_code: error_code? })
    }

    fn read(&self, raw: &[u8]) -> Option<(u64, u64, u32)> {
        Some((u64_at(raw, self.address)?, u64_at(raw, self.ip)?, u64_at(raw, self.error_code)? as u32))
    }
}

impl SwitchLayout {
    fn new(format: &Format) -> Option<Self> {
        let [prev_pid, prev_state, next_pid] =
            ["prev_pid", "prev_state", "next_pid"].map(|field| format.offset(field).ok());
        Some(Self { id: format.id, prev_pid: prev_pid?, prev_state: prev_state?, next_pid: next_pid? })
    }

    /// Returns who got or left the CPU. Who leaves it while it could run on was preempted, as perf's records say too.
    fn read(&self, raw: &[u8]) -> Option<(u32, Body)> {
        match u32_at(raw, self.prev_pid)? {
            0 => Some((u32_at(raw, self.next_pid)?, Body::SwitchedIn)),
            tid => Some((tid, Body::SwitchedOut { is_preempted: u64_at(raw, self.prev_state)? == 0 })),
        }
    }
}

fn pair(format: &Format, first: &str, second: &str) -> io::Result<(u16, usize, usize)> {
    Ok((format.id, format.offset(first)?, format.offset(second)?))
}

/// Decodes what is not a sample.
fn side_band(kind: u32, misc: u16, bytes: &[u8]) -> Option<Record> {
    let (body, trailer) = bytes.split_at_checked(bytes.len().checked_sub(TRAILER_BYTES)?)?;
    let body = match kind {
        sys::PERF_RECORD_MMAP2 => mapped(body)?,
        sys::PERF_RECORD_COMM => named(body, misc)?,
        sys::PERF_RECORD_FORK => Body::Forked(forked(body)?),
        sys::PERF_RECORD_EXIT => Body::Exited { tid: u32_at(body, 8)? },
        sys::PERF_RECORD_SWITCH | sys::PERF_RECORD_SWITCH_CPU_WIDE => switched(misc),
        sys::PERF_RECORD_LOST => Body::Lost { records: u64_at(body, 8)? },
        sys::PERF_RECORD_LOST_SAMPLES => Body::Lost { records: u64_at(body, 0)? },
        sys::PERF_RECORD_THROTTLE => Body::Lost { records: 1 },
        _ => Body::Unused,
    };
    Some(Record { tid: u32_at(trailer, 4)?, time_ns: u64_at(trailer, 8)?, bytes: 0, event: 0, body })
}

/// pid, tid, address, length, offset, major, minor, inode, generation, rights, flags, name.
fn mapped(body: &[u8]) -> Option<Body> {
    Some(Body::Mapped(Box::new(Mapping {
        start: u64_at(body, 8)?,
        len_bytes: u64_at(body, 16)?,
        file_offset: u64_at(body, 24)?,
        identity: Identity {
            major: u32_at(body, 32)?,
            minor: u32_at(body, 36)?,
            inode: u64_at(body, 40)?,
            generation: u64_at(body, 48)?,
        },
        prot: u32_at(body, 56)?,
        flags: u32_at(body, 60)?,
        path: text(body.get(64..)?),
    })))
}

/// pid, tid, name.
fn named(body: &[u8], misc: u16) -> Option<Body> {
    let is_exec = u32::from(misc) & sys::PERF_RECORD_MISC_COMM_EXEC != 0;
    Some(Body::Named { tid: u32_at(body, 4)?, is_exec, name: text(body.get(8..)?) })
}

/// pid, parent's pid, tid, parent's tid, time.
fn forked(body: &[u8]) -> Option<Forked> {
    Some(Forked {
        pid: u32_at(body, 0)?,
        parent_pid: u32_at(body, 4)?,
        tid: u32_at(body, 8)?,
        parent_tid: u32_at(body, 12)?,
    })
}

fn switched(misc: u16) -> Body {
    let misc = u32::from(misc);
    if misc & sys::PERF_RECORD_MISC_SWITCH_OUT == 0 {
        return Body::SwitchedIn;
    }
    Body::SwitchedOut { is_preempted: misc & sys::PERF_RECORD_MISC_SWITCH_OUT_PREEMPT != 0 }
}

fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

fn u16_at(bytes: &[u8], place: usize) -> Option<u16> {
    bytes.get(place..)?.first_chunk().copied().map(u16::from_ne_bytes)
}

fn u32_at(bytes: &[u8], place: usize) -> Option<u32> {
    bytes.get(place..)?.first_chunk().copied().map(u32::from_ne_bytes)
}

fn u64_at(bytes: &[u8], place: usize) -> Option<u64> {
    bytes.get(place..)?.first_chunk().copied().map(u64::from_ne_bytes)
}
