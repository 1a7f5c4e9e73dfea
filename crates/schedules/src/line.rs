//! A schedule as one line: what to run, and every switch.
//!
//! ```text
//! schedule-1:DESIGN:SEMAPHORE:WORLD:MUTANT:PROGRAM:FIRST:SWITCHES
//! ```
//! A number behind `schedule-` other than [`VERSION`] is another version's, whose worlds and steps may differ.

use std::fmt;

use faultless_sim::explore::{Switch, SwitchesError, parse_switches, write_switches};
use faultless_vm::registry::DESIGNS;

use super::ops::{self, Program};
use super::worlds::{WORLDS, World};
use faultless_machine::designs::SEMAPHORES;

/// The version of the lines that this program writes and reads.
pub const VERSION: u32 = 1;

const PREFIX: &str = "schedule-";
/// Stands where a mutant's name would.
const NO_MUTANT: &str = "-";

/// A schedule.
#[derive(Clone, Debug)]
pub struct Line {
    /// The design.
    pub design: String,
    /// The semaphore beneath it.
    pub semaphore: String,
    /// The world.
    pub world: &'static World,
    /// The bug that was put back, by name.
    pub mutant: Option<String>,
    /// What the threads do.
    pub program: Program,
    /// Who begins.
    pub first: usize,
    /// When to switch.
    pub switches: Vec<Switch>,
}

/// A line can't be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LineError {
    /// It is no schedule at all.
    NotASchedule,
    /// It was written by another version.
    OtherVersion(String),
    /// It has too few parts, or too many.
    Parts(usize),
    /// A part names nothing that there is: which kind, what it says, what there is.
    Unknown(&'static str, String, Vec<&'static str>),
    /// An operation is none of the world's.
    Operation(String),
    /// The switches can't be read.
    Switches(SwitchesError),
}

impl fmt::Display for LineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotASchedule => write!(f, "this is no schedule: they begin with {PREFIX}{VERSION}:"),
            Self::OtherVersion(version) => write!(
                f,
                "the schedule is of version {version}, this program replays version {VERSION}: use the program that printed it"
            ),
            Self::Parts(count) => write!(f, "the schedule has {count} parts instead of 8: copy the whole line"),
            Self::Unknown(kind, name, known) => {
                write!(f, "there is no {kind} {name:?}; there are {}", known.join(", "))
            }
            Self::Operation(op) => write!(f, "{op:?} is no operation of the schedule's world"),
            Self::Switches(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for LineError {}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mutant = self.mutant.as_deref().unwrap_or(NO_MUTANT);
        let switches = write_switches(self.first, &self.switches);
        let Self { design, semaphore, world, program, .. } = self;
        write!(f, "{PREFIX}{VERSION}:{design}:{semaphore}:{}:{mutant}:{program}:{switches}", world.name)
    }
}

/// Reads what a [`Line`] was written as.
pub fn parse(text: &str) -> Result<Line, LineError> {
    let text = text.trim();
    let rest = text.strip_prefix(PREFIX).ok_or(LineError::NotASchedule)?;
    let (version, _) = rest.split_once(':').unwrap_or((rest, ""));
    if version != VERSION.to_string() {
        return Err(LineError::OtherVersion(version.to_owned()));
    }
    let parts: Vec<&str> = text.splitn(8, ':').collect();
    let &[_, design, semaphore, world, mutant, program, first, switches] = parts.as_slice() else {
        return Err(LineError::Parts(parts.len()));
    };
    let world = World::named(world)
        .ok_or_else(|| unknown("world", world, &WORLDS.iter().map(|world| world.name).collect::<Vec<_>>()))?;
    let switches = parse_switches(&format!("{first}:{switches}")).map_err(LineError::Switches)?;
    Ok(Line {
        design: known("design", design, DESIGNS)?,
        semaphore: known("semaphore", semaphore, SEMAPHORES)?,
        world,
        mutant: (mutant != NO_MUTANT).then(|| mutant.to_owned()),
        program: parse_program(program, world)?,
        first: switches.0,
        switches: switches.1,
    })
}

fn known(kind: &'static str, name: &str, all: &[&'static str]) -> Result<String, LineError> {
    if all.contains(&name) { Ok(name.to_owned()) } else { Err(unknown(kind, name, all)) }
}

fn unknown(kind: &'static str, name: &str, all: &[&'static str]) -> LineError {
    LineError::Unknown(kind, name.to_owned(), all.to_vec())
}

fn parse_program(text: &str, world: &World) -> Result<Program, LineError> {
    let program = ops::parse_program(text).map_err(LineError::Operation)?;
    let outside = program.parts.iter().flat_map(|part| &part.ops).find(|op| !world.has_room_for(op));
    match outside {
        Some(op) => Err(LineError::Operation(op.to_string())),
        None if program.parts.len() > 16 => Err(LineError::Operation(format!("{} threads", program.parts.len()))),
        None => Ok(program),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "schedule-1:spf-v11:rwsem-v8:zap:-:W+s0+l1_d0-1:1:0@15-1,1@33-0";

    #[test]
    fn a_line_is_read_as_it_is_written() {
        assert_eq!(parse(LINE).map(|line| line.to_string()), Ok(LINE.to_owned()));
        let with_mutant = LINE.replace(":-:", ":gathers-ignored:");
        assert_eq!(parse(&with_mutant).expect("a line").mutant.as_deref(), Some("gathers-ignored"));
    }

    #[test]
    fn bad_lines_say_what_is_wrong() {
        let error = |text: &str| parse(text).expect_err(text).to_string();
        assert!(error("hello").contains("schedule-1"));
        assert!(error(&LINE.replace("schedule-1", "schedule-7")).contains("version 7"));
        assert!(error("schedule-1:spf-v11").contains("2 parts"));
        assert!(error(&LINE.replace("spf-v11", "spf")).contains("no design \"spf\""));
        assert!(error(&LINE.replace("rwsem-v8", "x")).contains("no semaphore"));
        assert!(error(&LINE.replace("zap", "zip")).contains("no world \"zip\""));
        assert!(error(&LINE.replace("l1", "l7")).contains("\"l7\""));
        assert!(error(&LINE.replace("l1", "l1.9")).contains("\"l1.9\""));
        assert!(error(&LINE.replace("l1", "k1")).contains("\"k1\""));
        assert!(error(&LINE.replace("1@33-0", "1@33")).contains("1@33"));
    }
}
