//! The programs, one for each tracepoint.
//!
//! # Guarantee
//! Each writes the record of its tracepoint for processes that are watched, and does nothing for others.
//!
//! # Steps of each
//! Leave if nothing is to be written; take a slot of the CPU's ring; lay the record out there, as perf would and as the
//! tracepoint's [`Format`] says; publish it. `S6` holds the program's context: the tracepoint's arguments, 64 bits
//! each. `S7` holds the running process's number and thread, high and low. `S9` holds the slot.

use std::io;
use std::os::fd::RawFd;

use super::assembly::Comparison::{Above, Equal, Less, NotAbove, NotEqual};
use super::assembly::Operation::{Add, And, Set, ShiftLeft, ShiftRight, Subtract};
use super::assembly::Register::{A1, A2, A3, A4, A5, Frame, R0, S6, S7, S8, S9};
use super::assembly::{Assembly, Instruction};
use super::slots::{HEAD_BYTES, LOST, RETURNED, SLOT_BYTES, Slots, TAKEN};
use super::types::Types;
use super::{CALLS, NR_CALLS, NR_PROCESSES, PROCESSES};
use crate::tracefs::Format;

/// The kernel's helpers, by their numbers.
const MAP_LOOKUP: i32 = 1;
const KTIME_GET_NS: i32 = 5;
const GET_SMP_PROCESSOR_ID: i32 = 8;
const GET_CURRENT_PID_TGID: i32 = 14;
const PERF_EVENT_OUTPUT: i32 = 25;
const GET_CURRENT_TASK_BTF: i32 = 158;
const TASK_PT_REGS: i32 = 175;

/// Where `struct pt_regs` of x86-64 has the arguments of a system call, its number, and the instruction.
const ARGUMENTS: [usize; 6] = [112, 104, 96, 56, 72, 64];
const CALL_NUMBER: usize = 120;
const INSTRUCTION: usize = 128;

/// A kernel stack is no larger.
const STACK_BYTES: i32 = 16 << 10;

const WORD_BYTES: usize = size_of::<u64>();

/// Where a slot has perf's head of a sample: type, misc and size; the event's number; process and thread; time; the
/// size of the rest; and the rest.
const PERF_HEAD: i16 = 8;
const PERF_EVENT: i16 = 16;
const PERF_PROCESS: i16 = 24;
const PERF_THREAD: i16 = 28;
const PERF_TIME: i16 = 32;
const PERF_RAW_BYTES: i16 = 40;
const PERF_RAW: i16 = 44;

/// Perf's number for samples.
const SAMPLE: i32 = 9;

/// Where the frame keeps the CPU, the time, and the slot's place.
const KEPT_CPU: i16 = -4;
const KEPT_TIME: i16 = -16;
const KEPT_PLACE: i16 = -24;
const KEPT_NOTHING: i16 = -32;

/// Which faults are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// All.
    Anywhere,
    /// Those at addresses that can be a user's: all page tables' user halves end at 2^56 or earlier.
    OfUsers,
}

/// What all programs know.
#[derive(Debug)]
pub(super) struct Writer {
    outlets: RawFd,
    shared: RawFd,
    slots: RawFd,
    nr_slots: usize,
    nr_most: usize,
    /// Where a task has its thread's number and its process's.
    pid: usize,
    tgid: usize,
}

/// A record in a slot.
struct SlotLayout<'a> {
    format: &'a Format,
    bytes: usize,
}

impl SlotLayout<'_> {
    /// Returns where a field lies, from the slot's beginning.
    fn place(&self, field: &str) -> io::Result<i16> {
        Ok(self.format.offset(field)? as i16 + PERF_RAW)
    }

    /// Returns the size of perf's record, which ends at a whole word.
    fn perf_bytes(&self) -> usize {
        (PERF_RAW - PERF_HEAD) as usize + self.raw_bytes()
    }

    fn raw_bytes(&self) -> usize {
        self.bytes + WORD_BYTES - PERF_RAW as usize % WORD_BYTES
    }
}

impl Writer {
    pub(super) fn new(types: &Types, outlets: RawFd, shared: RawFd, slots: &Slots) -> io::Result<Self> {
        let (nr_slots, nr_most, slots) = (slots.nr_slots(), slots.nr_most(), slots.fd());
        Ok(Self { outlets, shared, slots, nr_slots, nr_most, pid: types.field("pid")?, tgid: types.field("tgid")? })
    }

    /// A page fault: address, registers, error code.
    pub(super) fn fault(&self, format: &Format, kind: Kind) -> io::Result<Vec<Instruction>> {
        const USER_BITS: i32 = 56;
        let (mut code, layout) = begin(format, "error_code")?;
        if kind == Kind::OfUsers {
            code.load(A1, S6, 0);
            code.apply_constant(ShiftRight, A1, USER_BITS);
            code.leave_if(A1, NotEqual, 0);
        }
        self.leave_unless_watched(&mut code);
        self.head(&mut code, &layout);
        code.load(A1, S6, 0);
        code.store(S9, layout.place("address")?, A1);
        code.load(A1, S6, WORD_BYTES);
        code.load(A1, A1, INSTRUCTION);
        code.store(S9, layout.place("ip")?, A1);
        code.load(A1, S6, 2 * WORD_BYTES);
        code.store(S9, layout.place("error_code")?, A1);
        self.write(&mut code);
        Ok(code.finish())
    }

    /// The beginning of a system call: registers, number.
    pub(super) fn enter(&self, format: &Format) -> io::Result<Vec<Instruction>> {
        let (mut code, layout) = begin_sized(format, format.offset("args")? + ARGUMENTS.len() * WORD_BYTES)?;
        code.load(S8, S6, WORD_BYTES);
        self.leave_unless_about_memory(&mut code);
        self.leave_unless_watched(&mut code);
        self.head(&mut code, &layout);
        code.store(S9, layout.place("id")?, S8);
        code.load(A1, S6, 0);
        for (number, argument) in ARGUMENTS.into_iter().enumerate() {
            code.load(A2, A1, argument);
            code.store(S9, layout.place("args")? + (number * WORD_BYTES) as i16, A2);
        }
        self.write(&mut code);
        Ok(code.finish())
    }

    /// The end of a system call: registers, result.
    pub(super) fn exit(&self, format: &Format) -> io::Result<Vec<Instruction>> {
        let (mut code, layout) = begin(format, "ret")?;
        code.load(A1, S6, 0);
        code.load(S8, A1, CALL_NUMBER);
        self.leave_unless_about_memory(&mut code);
        self.leave_unless_watched(&mut code);
        self.head(&mut code, &layout);
        code.store(S9, layout.place("id")?, S8);
        code.load(A1, S6, WORD_BYTES);
        code.store(S9, layout.place("ret")?, A1);
        self.write(&mut code);
        Ok(code.finish())
    }

    /// A new task, and clone's flags. Who is made by a watched process is watched, before it runs.
    pub(super) fn new_task(&self, format: &Format) -> io::Result<Vec<Instruction>> {
        let (mut code, layout) = begin(format, "clone_flags")?;
        self.leave_unless_watched(&mut code);
        self.head(&mut code, &layout);
        code.load(A1, S6, 0);
        code.load_half(A2, A1, self.pid);
        code.store_half(S9, layout.place("pid")?, A2);
        code.load(A2, S6, WORD_BYTES);
        code.store(S9, layout.place("clone_flags")?, A2);
        code.load_half(A1, A1, self.tgid);
        self.word_of(&mut code, NR_PROCESSES);
        code.apply_constant(Set, A1, 1);
        code.apply(ShiftLeft, A1, A2);
        code.set_bits(A3, PROCESSES * WORD_BYTES, A1);
        self.write(&mut code);
        Ok(code.finish())
    }

    /// A wake: the task that is woken. Only what a watched process does in a system call counts, not what an interrupt
    /// does meanwhile.
    pub(super) fn waking(&self, format: &Format) -> io::Result<Vec<Instruction>> {
        let (mut code, layout) = begin(format, "pid")?;
        leave_unless_in_call(&mut code);
        self.leave_unless_watched(&mut code);
        code.load(S8, S6, 0);
        code.load_half(A1, S8, self.tgid);
        self.leave_unless_set(&mut code, PROCESSES, NR_PROCESSES);
        self.head(&mut code, &layout);
        code.load_half(A1, S8, self.pid);
        code.store_half(S9, layout.place("pid")?, A1);
        self.write(&mut code);
        Ok(code.finish())
    }

    /// A switch: whether it was forced, who leaves the CPU, who gets it, and the state of the former. Two records, each
    /// of one of them; the other's number is 0.
    pub(super) fn switch(&self, format: &Format) -> io::Result<Vec<Instruction>> {
        let (mut code, layout) = begin(format, "next_pid")?;
        let places = ["prev_pid", "prev_state", "next_pid"].map(|field| layout.place(field));
        let [prev_pid, prev_state, next_pid] = places;
        let (prev_pid, prev_state, next_pid) = (prev_pid?, prev_state?, next_pid?);
        code.call(GET_CURRENT_PID_TGID);
        code.apply(Set, S7, R0);
        code.part(|code| {
            code.apply(Set, A1, S7);
            code.apply_constant(ShiftRight, A1, 32);
            self.leave_unless_set(code, PROCESSES, NR_PROCESSES);
            self.head(code, &layout);
            code.store_half(S9, prev_pid, S7);
            code.load(A2, S6, 3 * WORD_BYTES);
            code.part(|code| {
                code.load(A1, S6, 0);
                code.leave_if(A1, Equal, 0);
                code.apply_constant(Set, A2, 0);
            });
            code.store(S9, prev_state, A2);
            self.write(code);
        });
        code.load(S8, S6, 2 * WORD_BYTES);
        code.load_half(A1, S8, self.tgid);
        self.leave_unless_set(&mut code, PROCESSES, NR_PROCESSES);
        self.head(&mut code, &layout);
        code.store_half_constant(S9, prev_pid, 0);
        code.load_half(A1, S8, self.pid);
        code.store_half(S9, next_pid, A1);
        self.write(&mut code);
        Ok(code.finish())
    }

    /// Leaves unless `S8` is the number of a call that is recorded.
    fn leave_unless_about_memory(&self, code: &mut Assembly) {
        code.leave_if(S8, Above, NR_CALLS as i32 - 1);
        code.apply(Set, A1, S8);
        self.leave_unless_set(code, CALLS, NR_CALLS);
    }

    /// Leaves unless the running process is watched; notes who it is.
    fn leave_unless_watched(&self, code: &mut Assembly) {
        code.call(GET_CURRENT_PID_TGID);
        code.apply(Set, S7, R0);
        code.apply(Set, A1, R0);
        code.apply_constant(ShiftRight, A1, 32);
        self.leave_unless_set(code, PROCESSES, NR_PROCESSES);
    }

    /// Leaves unless the bit is set whose number `A1` holds.
    fn leave_unless_set(&self, code: &mut Assembly, first: usize, nr_bits: usize) {
        self.word_of(code, nr_bits);
        code.load(A3, A3, first * WORD_BYTES);
        code.apply(ShiftRight, A3, A2);
        code.apply_constant(And, A3, 1);
        code.leave_if(A3, Equal, 0);
    }

    /// Turns a bit's number in `A1` into the address of its word, less where the bits begin, in `A3`, and its place
    /// there, in `A2`.
    fn word_of(&self, code: &mut Assembly, nr_bits: usize) {
        code.apply_constant(And, A1, nr_bits as i32 - 1);
        code.apply(Set, A2, A1);
        code.apply_constant(ShiftRight, A1, 6);
        code.apply_constant(ShiftLeft, A1, 3);
        code.load_value(A3, self.shared);
        code.apply(Add, A3, A1);
        code.apply_constant(And, A2, 63);
    }

    /// Takes a slot, and writes what all records begin with: perf's head, which tracepoint, and the thread.
    fn head(&self, code: &mut Assembly, layout: &SlotLayout<'_>) {
        self.take_slot(code);
        code.store_half_constant(S9, PERF_HEAD, SAMPLE);
        code.store_half_constant(S9, PERF_HEAD + 4, (layout.perf_bytes() << 16) as i32);
        code.store_constant(S9, PERF_EVENT, 0);
        code.apply(Set, A1, S7);
        code.apply_constant(ShiftRight, A1, 32);
        code.store_half(S9, PERF_PROCESS, A1);
        code.store_half(S9, PERF_THREAD, S7);
        code.load_kept(A1, KEPT_TIME);
        code.store(S9, PERF_TIME, A1);
        code.store_half_constant(S9, PERF_RAW_BYTES, layout.raw_bytes() as i32);
        code.store_half_constant(S9, PERF_RAW, i32::from(layout.format.id));
        code.store_half(S9, PERF_RAW + 4, S7);
    }

    /// Takes a slot of this CPU, and notes the time; counts a record as lost if there is none.
    fn take_slot(&self, code: &mut Assembly) {
        code.call(GET_SMP_PROCESSOR_ID);
        code.store_half(Frame, KEPT_CPU, R0);
        code.call(KTIME_GET_NS);
        code.store(Frame, KEPT_TIME, R0);
        code.load_map(A1, self.slots);
        code.apply(Set, A2, Frame);
        code.apply_constant(Add, A2, i32::from(KEPT_CPU));
        code.call(MAP_LOOKUP);
        code.leave_if(R0, Equal, 0);
        code.apply(Set, S9, R0);
        code.load(A1, S9, TAKEN);
        code.load(A2, S9, RETURNED);
        code.apply(Subtract, A1, A2);
        code.apply_constant(Set, A2, 1);
        code.part(|code| {
            code.leave_if(A1, NotAbove, self.nr_most as i32);
            code.fetch_add(S9, LOST, A2);
            code.apply_constant(Set, A2, 0);
        });
        code.leave_if(A2, Equal, 0);
        code.fetch_add(S9, TAKEN, A2);
        code.store(Frame, KEPT_PLACE, A2);
        code.apply_constant(And, A2, self.nr_slots as i32 - 1);
        code.apply_constant(ShiftLeft, A2, SLOT_BYTES.trailing_zeros() as i32);
        code.apply(Add, S9, A2);
        code.apply_constant(Add, S9, HEAD_BYTES as i32);
    }

    /// Publishes the record. The reader is woken by another, of perf's, whenever a quarter of the ring was filled.
    fn write(&self, code: &mut Assembly) {
        code.load_kept(A1, KEPT_PLACE);
        code.apply_constant(Add, A1, 1);
        code.store(S9, 0, A1);
        code.part(|code| {
            code.apply_constant(And, A1, self.nr_slots as i32 / 4 - 1);
            code.leave_if(A1, NotEqual, 0);
            code.store_constant(Frame, KEPT_NOTHING, 0);
            code.apply(Set, A1, S6);
            code.load_map(A2, self.outlets);
            code.set_half_ones(A3);
            code.apply(Set, A4, Frame);
            code.apply_constant(Add, A4, i32::from(KEPT_NOTHING));
            code.apply_constant(Set, A5, WORD_BYTES as i32);
            code.call(PERF_EVENT_OUTPUT);
        });
    }
}

/// Begins the program of a tracepoint whose record need go no further than such a field.
fn begin<'a>(format: &'a Format, last: &str) -> io::Result<(Assembly, SlotLayout<'a>)> {
    begin_sized(format, format.offset(last)? + WORD_BYTES)
}

fn begin_sized(format: &Format, bytes: usize) -> io::Result<(Assembly, SlotLayout<'_>)> {
    let head = ["common_type", "common_flags", "common_pid"].map(|field| format.offset(field).ok());
    if head != [Some(0), Some(2), Some(4)] {
        return Err(io::Error::other("the tracepoints' records begin in an unknown way"));
    }
    let mut code = Assembly::default();
    code.apply(Set, S6, A1);
    Ok((code, SlotLayout { format, bytes: bytes.next_multiple_of(WORD_BYTES) }))
}

/// Leaves if the running thread is not inside a system call, or an interrupt runs on another stack. The context lies on
/// the stack that is in use; an interrupt of user code runs on the thread's, but then no call has a number.
fn leave_unless_in_call(code: &mut Assembly) {
    code.call(GET_CURRENT_TASK_BTF);
    code.apply(Set, A1, R0);
    code.call(TASK_PT_REGS);
    code.load(A1, R0, CALL_NUMBER);
    code.leave_if(A1, Less, 0);
    code.apply(Subtract, R0, S6);
    code.leave_if(R0, Above, STACK_BYTES);
}
