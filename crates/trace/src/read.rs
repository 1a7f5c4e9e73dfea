//! Reading a trace, whole or event by event.
//!
//! # Guarantee
//! Every event that is handed out was written as it is, and obeys the invariants of [`crate::event`] together with
//! those before it. Only when all events are out and the end marker agrees is the trace known to be whole.

use std::collections::VecDeque;
use std::fs;
use std::io::{BufReader, Read};
use std::path::Path;

use crate::Trace;
use crate::check::Checker;
use crate::columns::{Clock, decode_block};
use crate::error::{Inconsistent, ReadError};
use crate::event::Event;
use crate::frame::{Block, BlockKind, FrameReader};
use crate::header::{File, Header, Thread};
use crate::meta;
use crate::snapshot::Snapshot;
use crate::stacks::{self, Stacks};
use crate::standing;
use crate::varint::{Cursor, Malformed};

/// Reads a trace from `R`, which should be buffered.
///
/// As an iterator it yields the events in order; an error is its last item.
pub struct Reader<R: Read> {
    frame: FrameReader<R>,
    header: Header,
    threads: Vec<Thread>,
    files: Vec<File>,
    snapshot: Snapshot,
    stacks: Stacks,
    checker: Checker,
    pending: VecDeque<Event>,
    stage: Stage,
}

/// Where a reader stands once the pending events are out.
enum Stage {
    /// Before this block.
    Before(Block),
    /// Before a block that is still in the file.
    Fetch,
    /// Behind the end marker, or behind an error.
    Done,
}

impl<R: Read> Reader<R> {
    /// Reads all that stands before the events.
    pub fn new(input: R) -> Result<Self, ReadError> {
        let mut frame = FrameReader::new(input)?;
        let block = frame.block()?;
        if block.kind != BlockKind::Header {
            return Err(block.damaged());
        }
        let header = meta::decode_header(&block.payload).map_err(|Malformed| block.damaged())?;
        let mut next = frame.block()?;
        let threads = read_table(&mut frame, &mut next, BlockKind::Threads, meta::decode_threads)?;
        let files = read_table(&mut frame, &mut next, BlockKind::Files, meta::decode_files)?;
        let entries = read_table(&mut frame, &mut next, BlockKind::Snapshot, standing::decode_entries)?;
        let snapshot = standing::assemble(entries).map_err(|Malformed| next.damaged())?;
        let entries = read_table(&mut frame, &mut next, BlockKind::Stacks, stacks::decode_entries)?;
        let stacks = stacks::assemble(entries).map_err(|Malformed| next.damaged())?;
        stacks.check(files.len(), u64::MAX).map_err(|what| Inconsistent { event: 0, what })?;
        let checker = Checker::new(&header, threads.len(), files.len()).join(&snapshot)?;
        Ok(Self {
            frame,
            header,
            threads,
            files,
            snapshot,
            stacks,
            checker,
            pending: VecDeque::new(),
            stage: Stage::Before(next),
        })
    }

    /// Returns what the trace says about itself.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the thread table.
    pub fn threads(&self) -> &[Thread] {
        &self.threads
    }

    /// Returns the file table.
    pub fn files(&self) -> &[File] {
        &self.files
    }

    /// Returns what stood when the recording began.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Returns which functions threads were inside of.
    pub fn stacks(&self) -> &Stacks {
        &self.stacks
    }

    /// Returns the next event, or `None` when the trace is known to be whole (and after an error).
    pub fn next_event(&mut self) -> Result<Option<Event>, ReadError> {
        let result = self.advance();
        if result.is_err() {
            self.pending.clear();
            self.stage = Stage::Done;
        }
        result
    }

    fn advance(&mut self) -> Result<Option<Event>, ReadError> {
        while self.pending.is_empty() {
            let block = match std::mem::replace(&mut self.stage, Stage::Fetch) {
                Stage::Before(block) => block,
                Stage::Fetch => self.frame.block()?,
                Stage::Done => {
                    self.stage = Stage::Done;
                    return Ok(None);
                }
            };
            self.decode(block)?;
        }
        let event = self.pending.pop_front();
        event.iter().try_for_each(|event| self.checker.admit(event))?;
        Ok(event)
    }

    fn decode(&mut self, block: Block) -> Result<(), ReadError> {
        match block.kind {
            BlockKind::Events => {
                self.pending =
                    decode_block(&block.payload, Clock::new(&self.header)).map_err(|Malformed| block.damaged())?.into();
                Ok(())
            }
            BlockKind::End => {
                self.check_end(&block)?;
                self.stage = Stage::Done;
                Ok(())
            }
            _ => Err(block.damaged()),
        }
    }

    fn check_end(&mut self, block: &Block) -> Result<(), ReadError> {
        let mut counts = Cursor::new(&block.payload);
        for expected in [self.threads.len() as u64, self.files.len() as u64, self.checker.admitted()] {
            if counts.int() != Ok(expected) {
                return Err(block.damaged());
            }
        }
        counts.end().map_err(|Malformed| block.damaged())?;
        let nr_events = self.checker.admitted();
        let checked = self.stacks.check(self.files.len(), nr_events);
        checked.map_err(|what| Inconsistent { event: nr_events, what })?;
        self.frame.end()
    }
}

impl<R: Read> Iterator for Reader<R> {
    type Item = Result<Event, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_event().transpose()
    }
}

/// Reads blocks of one table until another kind of block comes, and leaves that in `next`.
fn read_table<R: Read, T>(
    frame: &mut FrameReader<R>,
    next: &mut Block,
    kind: BlockKind,
    decode: impl Fn(&[u8]) -> Result<Vec<T>, Malformed>,
) -> Result<Vec<T>, ReadError> {
    let mut entries = Vec::new();
    while next.kind == kind {
        entries.extend(decode(&next.payload).map_err(|Malformed| next.damaged())?);
        *next = frame.block()?;
    }
    Ok(entries)
}

/// What could be read of a trace.
#[derive(Debug)]
pub struct Prefix {
    /// The header and tables, if they could be read, and all events before the error.
    pub trace: Trace,
    /// What ended the reading before the end.
    pub error: Option<ReadError>,
}

impl Trace {
    /// Reads a trace, or nothing.
    pub fn read(input: impl Read) -> Result<Trace, ReadError> {
        let prefix = Self::read_prefix(input);
        prefix.error.map_or(Ok(prefix.trace), Err)
    }

    /// Reads the trace in the file `path`, or nothing.
    pub fn open(path: &Path) -> Result<Trace, ReadError> {
        Self::read(BufReader::new(fs::File::open(path)?))
    }

    /// Reads as much of a trace as there is.
    pub fn read_prefix(input: impl Read) -> Prefix {
        let mut trace = Trace::default();
        let error = trace.fill(input).err();
        Prefix { trace, error }
    }

    fn fill(&mut self, input: impl Read) -> Result<(), ReadError> {
        let mut reader = Reader::new(input)?;
        self.header = reader.header.clone();
        self.threads = reader.threads.clone();
        self.files = reader.files.clone();
        self.snapshot = reader.snapshot.clone();
        self.stacks = std::mem::take(&mut reader.stacks);
        while let Some(event) = reader.next_event()? {
            self.events.push(event);
        }
        Ok(())
    }

    /// Checks that the trace obeys the invariants of [`crate::event`]; what was read without an error does.
    pub fn check(&self) -> Result<(), Inconsistent> {
        let mut checker = Checker::new(&self.header, self.threads.len(), self.files.len()).join(&self.snapshot)?;
        self.events.iter().try_for_each(|event| checker.admit(event))?;
        let nr_events = checker.admitted();
        let checked = self.stacks.check(self.files.len(), nr_events);
        checked.map_err(|what| Inconsistent { event: nr_events, what })
    }
}
