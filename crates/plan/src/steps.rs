//! What a plan is: plain data.

use std::collections::BTreeMap;
use std::fmt;

use faultless_trace::{Access, Call, Side, ThreadIndex};

use super::classes::Class;
use super::ids::{EventIndex, GateIndex, ObjectIndex, SpaceIndex};
use super::memory_calls::{MemoryCall, Reason, Verdict};
use super::regions::PAGE;
use super::space_users::Departure;

/// How to replay the time between events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pace {
    /// Not at all.
    #[default]
    None,
    /// As on-CPU time, with the recorded wakes.
    Recorded,
}

/// Whether a trace that lost records may be replayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Losses {
    /// It may not.
    #[default]
    Refused,
    /// It may; its result is then that of another program.
    Allowed,
}

/// How to plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The pace.
    pub pace: Pace,
    /// What to do with losses.
    pub losses: Losses,
}

/// A plan.
#[derive(Debug, Default)]
pub struct Plan {
    /// What each thread does, by the trace's thread index.
    pub programs: Vec<Program>,
    /// Threads that no other one starts.
    pub roots: Vec<ThreadIndex>,
    /// The number of address spaces.
    pub nr_spaces: u32,
    /// Whether the recording lacks what decides the details of faults and calls.
    pub is_blind: bool,
    /// Whether several threads run in one space at some time.
    pub has_shared_spaces: bool,
    /// The number of gates: steps that other threads wait for.
    pub nr_gates: u32,
    /// The largest size to which a region grew down, in bytes.
    pub stack_bytes: u64,
    /// The lowest address that a call mapped.
    pub lowest_mapped: u64,
    /// What stands behind mappings.
    pub objects: Vec<ObjectPlan>,
    /// The map calls.
    pub calls: Vec<CallPlan>,
    /// How the spaces are made that stood before the first event.
    pub restorations: Vec<Restoration>,
    /// Pages that faults on neighbours mapped, by their first addresses.
    pub arounds: Vec<Vec<u64>>,
    /// What one pass over the trace holds.
    pub totals: Totals,
    /// What it needs.
    pub demand: Demand,
    /// Faults without a class that the recording's own events do not explain.
    pub surprises: Vec<EventIndex>,
}

/// What one thread does.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// In order.
    pub steps: Vec<Step>,
    /// The gates that the steps wait for, in their order.
    pub waits: Vec<GateIndex>,
    /// The space it begins in; nothing for a thread whose first step makes one.
    pub home: Option<SpaceIndex>,
}

/// One step of a thread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// The event it replays; the number that a mismatch is reported with. The trace's length for one that it lacks.
    pub event: EventIndex,
    /// How many of the program's waits are its own.
    pub nr_waits: u32,
    /// The computing before it.
    pub work_ns: u64,
    /// The gate that it opens, if some thread waits for it.
    pub gate: Option<GateIndex>,
    /// What to do.
    pub action: Action,
}

/// What a step does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Action {
    /// Touches memory.
    Access(Touch),
    /// Makes a map call: a place in [`Plan::calls`].
    Call(u32),
    /// Makes a space as it was before the first event: a place in [`Plan::restorations`].
    Restore(u32),
    /// Makes a child with a copy of the space.
    Fork {
        /// The child's thread.
        child: ThreadIndex,
        /// Its space.
        space: SpaceIndex,
    },
    /// Makes a thread in the same space.
    Spawn {
        /// The new thread.
        child: ThreadIndex,
    },
    /// Goes on in a new and empty space.
    Renew {
        /// What it leaves.
        old: Option<Departure>,
        /// What it gets.
        new: SpaceIndex,
    },
    /// Ends.
    Leave(Departure),
    /// Reads bytes of an object or writes them, by a call and without a mapping. No recorded event has one:
    /// [`files`](super::files) adds them.
    File {
        /// Which object.
        object: ObjectIndex,
        /// From which byte on.
        offset: u64,
        /// How many.
        len_bytes: u32,
    },
    /// Nothing: it only keeps time and order.
    Pass,
}

/// One access for one recorded fault.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Touch {
    /// Where.
    pub address: u64,
    /// How.
    pub access: Access,
    /// From which side of the kernel boundary.
    pub side: Side,
    /// The fault's recorded present bit.
    pub is_present: bool,
    /// What the access must end in.
    pub outcome: Outcome,
    /// Why the fault may differ; if nothing, it must not.
    pub class: Option<Class>,
    /// Whether the page is strict.
    pub is_strict: bool,
    /// What the page holds before.
    pub before: Before,
    /// The pages beside it that the fault mapped too, as later faults show: a place in [`Plan::arounds`]; `NONE` if
    /// none is known.
    pub around: u32,
}

/// What an access ends in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is done.
    Done,
    /// A signal, or an error if the kernel did it.
    Refused,
}

/// What a page holds before an access, as far as the trace determines it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Before {
    /// Not determined.
    Unknown,
    /// Zeros everywhere.
    Zeros,
    /// A token that a store left.
    Token {
        /// The event that the store replayed.
        event: EventIndex,
        /// Which of the page's words holds it.
        word: u16,
    },
    /// The object's own content: nobody stored into this page.
    Content {
        /// Which object.
        object: ObjectIndex,
        /// Which page of it.
        page_index: u32,
        /// Whether every store into the page is ordered behind this access. Otherwise the object must have none.
        is_ordered: bool,
    },
}

/// An object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObjectPlan {
    /// Whether it is memory that lives nowhere else: shared anonymous memory, tmpfs.
    pub is_memory: bool,
    /// Whether a driver puts its pages in when it is mapped, or when it likes.
    pub is_drivers: bool,
    /// Whether some mapping lets stores reach it.
    pub has_stores: bool,
    /// How many calls map it. One that is mapped once goes with its last mapping.
    pub nr_maps: u32,
}

/// A map call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallPlan {
    /// Which; nothing for a mapping that the kernel made by itself.
    pub call: Option<Call>,
    /// What to do.
    pub memory_call: MemoryCall,
    /// What about the result.
    pub verdict: Verdict,
}

/// What one pass holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Events of the trace.
    pub events: u64,
    /// Recorded faults.
    pub faults: u64,
    /// Faults on strict pages.
    pub strict: u64,
    /// Faults that may differ, by class.
    pub may_differ: BTreeMap<Class, u64>,
    /// Faults at addresses where nothing was known to be mapped.
    pub outside: u64,
    /// Faults that the map forbade.
    pub forbidden: u64,
    /// Map calls that are executed.
    pub calls: u64,
    /// Results taken from the recording, by what they depend on.
    pub imposed: BTreeMap<Reason, u64>,
    /// Events that the state holds already from which the replay begins.
    pub applied: u64,
    /// Of these, faults.
    pub faults_applied: u64,
    /// Events that are not executed, by kind.
    pub skipped: BTreeMap<&'static str, u64>,
    /// Records that the recording lost.
    pub lost: u64,
    /// Waits of one thread for another.
    pub waits: u64,
}

/// What a pass needs at most, whatever the order in which threads run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// Pages of the spaces, each at its largest, with those that it shares with its parent.
    pub own_pages: u64,
    /// Pages that spaces have got of their own, as if none had ever been given back.
    pub made_pages: u64,
    /// Frames of page tables.
    pub table_pages: u64,
    /// Pages of objects.
    pub object_pages: u64,
    /// Map calls that may leave an area behind.
    pub areas: u64,
}

impl Demand {
    /// Returns the frames that it needs at most.
    pub fn frames(&self) -> u64 {
        self.own_pages.min(self.made_pages) + self.table_pages + self.object_pages
    }

    /// Returns the physical memory that is surely enough.
    pub fn bytes(&self) -> u64 {
        const AREA_BYTES: u64 = 512;
        const SLACK_BYTES: u64 = 64 << 20;
        let bytes = self.frames().saturating_mul(PAGE).saturating_add(self.areas * AREA_BYTES);
        // A quarter more: page metadata, the lists of each CPU, what waits for a grace period.
        (bytes + bytes / 4).saturating_add(SLACK_BYTES)
    }
}

/// Why a trace can't be planned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanError {
    /// It lost records, and that was not allowed.
    Lost {
        /// How many.
        records: u64,
    },
    /// It has more events than a plan can number.
    TooLong {
        /// How many.
        events: usize,
    },
    /// Its machine had pages of another size.
    PageSize {
        /// Theirs.
        bytes: u64,
    },
    /// The pace was asked for, and the trace has none.
    NoPace,
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost { records } => write!(
                f,
                "the recording lost {records} records, so this is not what the program did; record it again with a larger buffer, or replay it all the same with --allow-lost"
            ),
            Self::TooLong { events } => {
                write!(f, "the trace has {events} events, and a replay takes {}; record a shorter run", u32::MAX - 1)
            }
            Self::PageSize { bytes } => {
                write!(f, "the trace is of a machine with pages of {bytes} bytes, and a replay has pages of {PAGE}")
            }
            Self::NoPace => write!(
                f,
                "the trace holds no pace (it was recorded with --no-pace); replay it with --pace none or record it again"
            ),
        }
    }
}

impl std::error::Error for PlanError {}

/// How a space is made as it was when the snapshot was complete.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restoration {
    /// Which space.
    pub space: SpaceIndex,
    /// What to do in the empty space, in order. None of it may fail.
    pub memory_calls: Vec<MemoryCall>,
}
