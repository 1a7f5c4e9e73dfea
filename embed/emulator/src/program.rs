//! A program from its file to its end.

use crate::calls::{Host, Outcome};
use crate::hart::{Hart, Trap};
use crate::load::{self, LoadError};
use crate::memory::{Cpu, Memory};
use faultless_phys::{Memory as Frames, Options as FrameOptions};
use faultless_platform::native::{HostRegion, Machine};
use faultless_vm::{Limits, Reason, Vm};
use std::fmt;
use std::io::Write;
use std::pin::Pin;

const SIGILL: i32 = 4;
const SIGTRAP: i32 = 5;
const SIGBUS: i32 = 7;
const SIGKILL: i32 = 9;
const SIGSEGV: i32 = 11;
/// Instructions between two looks at what other CPUs took away.
const TURN: u64 = 1 << 16;

/// What a program gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Bytes of memory for its pages, tables and areas.
    pub memory_bytes: usize,
    /// It is ended after so many instructions.
    pub instructions_most: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { memory_bytes: 1 << 30, instructions_most: u64::MAX }
    }
}

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// As a shell says it: its status, or 128 and a signal.
    pub status: i32,
    /// Instructions that it ran.
    pub nr_instructions: u64,
}

/// Why a program was not run, or not to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunError {
    /// The host has no room.
    NoMemory(String),
    /// It can't be loaded.
    Load(LoadError),
    /// It ran as long as it may.
    TooLong(u64),
}

impl fmt::Display for RunError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoMemory(what) => write!(out, "no memory for the program: {what}; --memory asks for less"),
            Self::Load(error) => error.fmt(out),
            Self::TooLong(most) => write!(out, "the program was ended after {most} instructions"),
        }
    }
}

impl std::error::Error for RunError {}

/// Runs a program with these arguments, the first of which is its name.
pub fn run(
    file: &[u8],
    arguments: &[String],
    options: Options,
    output: &mut dyn Write,
    error: &mut dyn Write,
) -> Result<Ended, RunError> {
    let no_memory = |what: &dyn fmt::Display| RunError::NoMemory(what.to_string());
    let region = HostRegion::reserve(options.memory_bytes).map_err(|error| no_memory(&error))?;
    Machine::new(1).attach(|| {
        // SAFETY: the region is zeroed, ours alone, and outlives the instance.
        let frames = unsafe { Frames::<Cpu>::new(region.base(), region.len_bytes(), 1, FrameOptions::default()) };
        let vm: Pin<Box<Vm<Cpu>>> =
            Vm::new(frames.map_err(|error| no_memory(&error))?).map_err(|error| no_memory(&error))?;
        let space = vm.create_space(Limits::default()).map_err(|error| no_memory(&error))?;
        let mut memory = Memory::new(&space);
        let start = load::load(&mut memory, file, arguments).map_err(RunError::Load)?;
        let mut hart = Hart::new(start.pc, start.stack);
        let mut host = Host::new(output, error);
        let status = go(&mut hart, &mut memory, &mut host, options.instructions_most)?;
        Ok(Ended { status, nr_instructions: hart.nr_instructions })
    })
}

/// Runs to the end; returns the status.
fn go(hart: &mut Hart, memory: &mut Memory<'_>, host: &mut Host<'_>, most: u64) -> Result<i32, RunError> {
    while hart.nr_instructions < most {
        let signal = match hart.run(memory, TURN.min(most - hart.nr_instructions)) {
            Ok(()) => {
                memory.poll();
                continue;
            }
            Err(Trap::Call) => {
                let arguments = std::array::from_fn(|place| hart.x[10 + place]);
                match host.call(memory, hart.x[17], arguments) {
                    Outcome::Value(value) => {
                        hart.x[10] = value as u64;
                        hart.skip_call();
                        hart.nr_instructions += 1;
                        continue;
                    }
                    Outcome::Exit(status) => return Ok(status),
                    Outcome::Signal(signal) => signal,
                }
            }
            Err(Trap::Memory(fault)) => match fault.reason {
                Reason::BusAdrErr => SIGBUS,
                Reason::OutOfMemory(_) => SIGKILL,
                Reason::MapErr | Reason::AccErr | Reason::PkuErr => SIGSEGV,
            },
            Err(Trap::Illegal(_)) => SIGILL,
            Err(Trap::Break) => SIGTRAP,
        };
        return Ok(128 + signal);
    }
    Err(RunError::TooLong(most))
}
