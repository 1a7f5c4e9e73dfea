//! User call chains: which functions a thread was inside of at some of the events.
//!
//! # Guarantee
//! Stacks that were read without an error obey K1..K4.
//!
//! # Invariants
//! - K1 a frame's file lies inside the trace's file table
//! - K2 a chain's frame lies inside the table of frames, and its caller is a chain that stands before it
//! - K3 a sample's chain lies inside the table of chains
//! - K4 samples are in the order of their events, at most one for each, and every event is one of the trace's
//!
//! Chains form a tree, since most of them begin alike:
//! ```text
//! frames   0 main   1 grow   2 mmap   3 shrink   4 munmap
//! chains   0 main   1 grow<-0   2 mmap<-1   3 shrink<-0   4 munmap<-3
//! samples  event 17: chain 2    event 40: chain 4
//! ```

use crate::event::FileIndex;
use crate::varint::{Cursor, Malformed, put, put_text};

/// The place of a frame in [`Stacks::frames`].
pub type FrameIndex = u32;

/// The place of a chain in [`Stacks::chains`].
pub type ChainIndex = u32;

/// Samples in one entry of the table are at most this many.
const SAMPLES_MOST: usize = 4096;

/// All call chains of a trace; empty in one that was recorded without.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stacks {
    /// How they were found.
    pub method: Option<StackMethod>,
    /// Of a thread's faults each so manieth was to get a chain; 0 if none was.
    pub fault_period: u64,
    /// Chains that found no room while recording.
    pub lost: u64,
    /// The frames, each once.
    pub frames: Vec<Frame>,
    /// The chains, callers before callees.
    pub chains: Vec<Chain>,
    /// Which event has which chain.
    pub samples: Vec<Sample>,
}

/// How call chains were found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StackMethod {
    /// By frame pointers. Code that was compiled without them is left out or ends the chain.
    FramePointers,
    /// By the unwinding tables of the files, from a copy of the stack's top.
    Dwarf,
}

impl StackMethod {
    /// Every method, in the order of the format's codes, which begin at 1.
    pub const ALL: [Self; 2] = [Self::FramePointers, Self::Dwarf];

    /// Returns the name in options and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::FramePointers => "fp",
            Self::Dwarf => "dwarf",
        }
    }
}

/// A place in a program's code.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Frame {
    /// The function, if the file names one there.
    pub function: Option<String>,
    /// The file that holds the code; `None` for code that a program made itself.
    pub file: Option<FileIndex>,
    /// The address inside the call (or of the instruction, in the innermost frame): as the file counts, or without a
    /// file the process's own.
    pub address: u64,
}

/// A function and whoever called it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Chain {
    /// The innermost function.
    pub frame: FrameIndex,
    /// The chain of its caller; `None` for the outermost.
    pub caller: Option<ChainIndex>,
}

/// The chain of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The event's place in the trace.
    pub event: u64,
    /// Where its thread was.
    pub chain: ChainIndex,
    /// Whether the chain was followed to its end.
    pub reach: Reach,
}

/// Whether a chain was followed to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Its outermost frame began the thread, as far as can be known.
    Whole,
    /// Its callers are unknown: the copy of the stack ended, or no table tells.
    Cut,
}

impl Stacks {
    /// Returns whether the trace was recorded without.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the frames of a chain, from the innermost to the outermost.
    pub fn frames_of(&self, chain: ChainIndex) -> impl Iterator<Item = &Frame> {
        let caller_of = |chain: &ChainIndex| self.chains.get(*chain as usize)?.caller;
        let chains = std::iter::successors(Some(chain), caller_of);
        chains.filter_map(|chain| self.frames.get(self.chains.get(chain as usize)?.frame as usize))
    }

    /// Checks K1 to K4, the last one for a trace of so many events.
    pub fn check(&self, nr_files: usize, nr_events: u64) -> Result<(), &'static str> {
        let has_file = |frame: &Frame| frame.file.is_none_or(|file| (file as usize) < nr_files);
        let is_known = |(place, chain): (usize, &Chain)| {
            let is_behind_caller = chain.caller.is_none_or(|caller| (caller as usize) < place);
            (chain.frame as usize) < self.frames.len() && is_behind_caller
        };
        if !self.frames.iter().all(has_file) {
            return Err("K1: a frame's file is not in the table");
        }
        if !self.chains.iter().enumerate().all(is_known) {
            return Err("K2: a chain's frame or caller is not known");
        }
        if self.samples.iter().any(|sample| sample.chain as usize >= self.chains.len()) {
            return Err("K3: a sample's chain is not known");
        }
        let is_sorted = self.samples.is_sorted_by(|one, next| one.event < next.event);
        if !is_sorted || self.samples.last().is_some_and(|last| last.event >= nr_events) {
            return Err("K4: a sample's event is not in its place");
        }
        Ok(())
    }
}

/// A part of a table of stacks.
#[derive(Clone, Debug)]
pub(crate) enum StackEntry {
    About { method: Option<StackMethod>, fault_period: u64, lost: u64 },
    Frame(Frame),
    Chain(Chain),
    Samples(Vec<Sample>),
}

/// Returns the entries of a table, none for no stacks.
pub(crate) fn entries(stacks: &Stacks) -> Vec<StackEntry> {
    if stacks.is_empty() {
        return Vec::new();
    }
    let Stacks { method, fault_period, lost, .. } = *stacks;
    let mut entries = vec![StackEntry::About { method, fault_period, lost }];
    entries.extend(stacks.frames.iter().cloned().map(StackEntry::Frame));
    entries.extend(stacks.chains.iter().copied().map(StackEntry::Chain));
    entries.extend(stacks.samples.chunks(SAMPLES_MOST).map(|samples| StackEntry::Samples(samples.to_vec())));
    entries
}

/// Puts entries together.
pub(crate) fn assemble(entries: Vec<StackEntry>) -> Result<Stacks, Malformed> {
    let mut stacks = Stacks::default();
    for (place, entry) in entries.into_iter().enumerate() {
        match entry {
            StackEntry::About { method, fault_period, lost } if place == 0 => {
                stacks = Stacks { method, fault_period, lost, ..Stacks::default() };
            }
            StackEntry::Frame(frame) if place > 0 => stacks.frames.push(frame),
            StackEntry::Chain(chain) if place > 0 => stacks.chains.push(chain),
            StackEntry::Samples(samples) if place > 0 => stacks.samples.extend(samples),
            _ => return Err(Malformed),
        }
    }
    Ok(stacks)
}

/// Appends one entry.
pub(crate) fn put_entry(out: &mut Vec<u8>, entry: &StackEntry) {
    match entry {
        StackEntry::About { method, fault_period, lost } => {
            out.push(0);
            put(out, method.map_or(0, |method| method as u64 + 1));
            put(out, *fault_period);
            put(out, *lost);
        }
        StackEntry::Frame(frame) => {
            out.push(1);
            put_text(out, frame.function.as_deref().unwrap_or_default());
            put_index(out, frame.file);
            put(out, frame.address);
        }
        StackEntry::Chain(chain) => {
            out.push(2);
            put(out, u64::from(chain.frame));
            put_index(out, chain.caller);
        }
        StackEntry::Samples(samples) => put_samples(out, samples),
    }
}

fn put_index(out: &mut Vec<u8>, index: Option<u32>) {
    put(out, index.map_or(0, |index| u64::from(index) + 1));
}

fn put_samples(out: &mut Vec<u8>, samples: &[Sample]) {
    out.push(3);
    put(out, samples.len() as u64);
    let mut reached = 0;
    for sample in samples {
        put(out, sample.event.wrapping_sub(reached));
        put(out, u64::from(sample.chain) * 2 + u64::from(sample.reach == Reach::Cut));
        reached = sample.event;
    }
}

/// Reads a block of entries.
pub(crate) fn decode_entries(bytes: &[u8]) -> Result<Vec<StackEntry>, Malformed> {
    let mut input = Cursor::new(bytes);
    let mut entries = Vec::new();
    while input.remaining() > 0 {
        entries.push(match input.byte()? {
            0 => about(&mut input)?,
            1 => StackEntry::Frame(frame(&mut input)?),
            2 => StackEntry::Chain(Chain { frame: input.int32()?, caller: index(&mut input)? }),
            3 => StackEntry::Samples(samples(&mut input)?),
            _ => return Err(Malformed),
        });
    }
    Ok(entries)
}

fn about(input: &mut Cursor<'_>) -> Result<StackEntry, Malformed> {
    let method = match input.int()? {
        0 => None,
        code => Some(*usize::try_from(code - 1).ok().and_then(|place| StackMethod::ALL.get(place)).ok_or(Malformed)?),
    };
    Ok(StackEntry::About { method, fault_period: input.int()?, lost: input.int()? })
}

fn frame(input: &mut Cursor<'_>) -> Result<Frame, Malformed> {
    let function = Some(input.text()?).filter(|function| !function.is_empty());
    Ok(Frame { function, file: index(input)?, address: input.int()? })
}

fn index(input: &mut Cursor<'_>) -> Result<Option<u32>, Malformed> {
    match input.int()? {
        0 => Ok(None),
        index => u32::try_from(index - 1).map(Some).map_err(|_| Malformed),
    }
}

/// Reads samples whose number stands before them; each takes at least two bytes, so no number can make this allocate
/// much.
fn samples(input: &mut Cursor<'_>) -> Result<Vec<Sample>, Malformed> {
    let count = input.int()?;
    if count > input.remaining() as u64 {
        return Err(Malformed);
    }
    let mut reached = 0u64;
    let mut samples = Vec::with_capacity(count as usize);
    for _ in 0..count {
        let event = reached.wrapping_add(input.int()?);
        let code = input.int()?;
        let chain = u32::try_from(code / 2).map_err(|_| Malformed)?;
        samples.push(Sample { event, chain, reach: if code % 2 == 1 { Reach::Cut } else { Reach::Whole } });
        reached = event;
    }
    Ok(samples)
}
