//! Writing a trace, event by event.
//!
//! # Guarantee
//! What was finished without an error is read back equal. What was not finished is recognised as cut.

use std::io::Write;

use crate::Trace;
use crate::check::Checker;
use crate::columns::{BLOCK_EVENTS, BlockEncoder, Clock};
use crate::error::{Inconsistent, WriteError};
use crate::event::Event;
use crate::frame::{BlockKind, CHAINS_VERSION, FrameWriter, JOINED_VERSION, MAX_RAW_BYTES, PLAIN_VERSION, VERSION};
use crate::header::{File, Header, Thread};
use crate::meta;
use crate::snapshot::Snapshot;
use crate::stacks::{self, Stacks};
use crate::standing;
use crate::varint::put;

/// Table entries are gathered into blocks of about this size.
const TABLE_BLOCK_BYTES: usize = 64 << 10;

/// Writes a trace to `W`, which should be buffered.
pub struct Writer<W: Write> {
    frame: FrameWriter<W>,
    block: BlockEncoder,
    checker: Checker,
    nr_threads: u64,
    nr_files: u64,
    stacks: Stacks,
}

/// All that stands in a trace between its header and its events.
#[derive(Clone, Debug, Default)]
pub struct Tables<'a> {
    /// The threads.
    pub threads: &'a [Thread],
    /// The files.
    pub files: &'a [File],
    /// What stood when the recording began, if it joined running processes.
    pub snapshot: Option<&'a Snapshot>,
    /// Which functions threads were inside of, if that was recorded.
    pub stacks: Option<&'a Stacks>,
}

impl<W: Write> Writer<W> {
    /// Writes all that stands before the events, of a recording from a program's start.
    pub fn new(out: W, header: &Header, threads: &[Thread], files: &[File]) -> Result<Self, WriteError> {
        Self::with(out, header, &Tables { threads, files, ..Tables::default() })
    }

    /// Writes all that stands before the events.
    pub fn with(out: W, header: &Header, tables: &Tables<'_>) -> Result<Self, WriteError> {
        let Tables { threads, files, .. } = *tables;
        let (snapshot, stacks) =
            (tables.snapshot.cloned().unwrap_or_default(), tables.stacks.cloned().unwrap_or_default());
        let checker = Checker::new(header, threads.len(), files.len()).join(&snapshot)?;
        let version = match (stacks.is_empty(), snapshot.is_empty()) {
            _ if snapshot.has_late() => VERSION,
            (false, _) => CHAINS_VERSION,
            (true, false) => JOINED_VERSION,
            (true, true) => PLAIN_VERSION,
        };
        let mut frame = FrameWriter::new(out, version)?;
        put_block(&mut frame, BlockKind::Header, &meta::encode_header(header))?;
        put_table(&mut frame, BlockKind::Threads, threads, meta::put_thread)?;
        put_table(&mut frame, BlockKind::Files, files, meta::put_file)?;
        put_table(&mut frame, BlockKind::Snapshot, &standing::entries(&snapshot), standing::put_entry)?;
        put_table(&mut frame, BlockKind::Stacks, &stacks::entries(&stacks), stacks::put_entry)?;
        Ok(Self {
            frame,
            block: BlockEncoder::new(Clock::new(header)),
            checker,
            nr_threads: threads.len() as u64,
            nr_files: files.len() as u64,
            stacks,
        })
    }

    /// Appends an event, unless it breaks an invariant of [`crate::event`].
    pub fn push(&mut self, event: &Event) -> Result<(), WriteError> {
        self.checker.admit(event)?;
        self.block.push(event);
        if self.block.count() == BLOCK_EVENTS {
            self.flush_events()?;
        }
        Ok(())
    }

    /// Writes the end marker; returns what was written to, and how many bytes went there.
    ///
    /// # Errors
    /// Also if the call chains break an invariant of [`crate::stacks`].
    pub fn finish(mut self) -> Result<(W, u64), WriteError> {
        check_stacks(&self.stacks, self.nr_files, self.checker.admitted())?;
        if self.block.count() > 0 {
            self.flush_events()?;
        }
        let mut end = Vec::new();
        for count in [self.nr_threads, self.nr_files, self.checker.admitted()] {
            put(&mut end, count);
        }
        put_block(&mut self.frame, BlockKind::End, &end)?;
        Ok(self.frame.finish()?)
    }

    fn flush_events(&mut self) -> Result<(), WriteError> {
        let bytes = self.block.take();
        put_block(&mut self.frame, BlockKind::Events, &bytes)
    }
}

impl Trace {
    /// Writes the trace; returns how many bytes it took.
    pub fn write(&self, out: impl Write) -> Result<u64, WriteError> {
        let Trace { threads, files, .. } = self;
        let tables = Tables { threads, files, snapshot: Some(&self.snapshot), stacks: Some(&self.stacks) };
        let mut writer = Writer::with(out, &self.header, &tables)?;
        self.events.iter().try_for_each(|event| writer.push(event))?;
        Ok(writer.finish()?.1)
    }
}

fn check_stacks(stacks: &Stacks, nr_files: u64, nr_events: u64) -> Result<(), Inconsistent> {
    stacks.check(nr_files as usize, nr_events).map_err(|what| Inconsistent { event: nr_events, what })
}

fn put_block<W: Write>(frame: &mut FrameWriter<W>, kind: BlockKind, raw: &[u8]) -> Result<(), WriteError> {
    if raw.len() > MAX_RAW_BYTES {
        return Err(WriteError::TooLarge { part: kind.name(), bytes: raw.len() });
    }
    Ok(frame.block(kind, raw)?)
}

/// Writes a table as as many blocks as it needs.
fn put_table<W: Write, T>(
    frame: &mut FrameWriter<W>,
    kind: BlockKind,
    entries: &[T],
    put_entry: impl Fn(&mut Vec<u8>, &T),
) -> Result<(), WriteError> {
    let mut raw = Vec::new();
    for entry in entries {
        put_entry(&mut raw, entry);
        if raw.len() >= TABLE_BLOCK_BYTES {
            put_block(frame, kind, &std::mem::take(&mut raw))?;
        }
    }
    if raw.is_empty() { Ok(()) } else { put_block(frame, kind, &raw) }
}
