//! From the spooled records to the trace file.
//!
//! # Guarantee
//! The file is whole and obeys the format's invariants, or nothing is handed out.
//!
//! The records are gone through twice: the header and the tables stand before the events in the file, and what was lost
//! and how threads were called last is known only at the end. The second pass takes the same steps as the first.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufWriter, Seek};

use faultless_trace::{Event, Header, HugePages, Missing, Tables, WriteError, Writer};

use crate::company::Company;
use crate::cut;
use crate::error::RecordError;
use crate::host;
use crate::merge::Merge;
use crate::spool::{Rings, Spool};
use crate::stacks::StackOptions;
use crate::tally::{ChainTally, Tally};
use crate::trace_builder::{Setting, Sink, Summary, TraceBuilder};
use crate::wire::Decoder;

/// What is converted.
pub(crate) struct Material<'a> {
    pub(crate) spool: &'a mut Spool,
    pub(crate) decoder: &'a Decoder,
    /// How call chains were recorded, if they were.
    pub(crate) stacks: Option<StackOptions>,
    /// Call chains that found no room.
    pub(crate) stacks_lost: u64,
    pub(crate) setting: Setting,
    /// The running processes that were joined, if the recording begins with such.
    pub(crate) company: Option<&'a Company>,
    /// Records that found no room, by the events' own count.
    pub(crate) lost: u64,
    /// When the recording ended: of later records some are not there. [`convert`] brings it forward to a quiet instant.
    pub(crate) until_ns: u64,
    /// But not before this: when what was awaited had ended, whose last moments are in the trace, whoever it left
    /// behind, and whatever others did meanwhile.
    pub(crate) awaited_ns: u64,
    /// Told the share of the work that is done, in thousandths.
    pub(crate) progress: &'a dyn Fn(u64),
}

/// What came of it.
pub(crate) struct Converted {
    pub(crate) header: Header,
    pub(crate) tally: Tally,
    pub(crate) bytes: u64,
    pub(crate) still_running: usize,
    pub(crate) chains: Option<ChainTally>,
    /// The processes in the trace.
    pub(crate) pids: HashSet<u32>,
}

/// Writes the trace into `out`; `header` is completed with what only the records tell.
pub(crate) fn convert(material: &mut Material<'_>, mut header: Header, out: &File) -> Result<Converted, RecordError> {
    let mut tally = Tally::default();
    if material.awaited_ns < material.until_ns {
        material.until_ns = find_cut(material).map_err(RecordError::Spool)?;
    }
    let summary = tell(material, 0, Pass::First, &mut |event| tally.count(&event))?;
    if tally.events == 0 && material.company.is_none() {
        return Err(RecordError::NothingSeen);
    }
    header.lost = material.lost.max(summary.lost);
    if summary.has_huge_advice && material.company.is_some() && host::advises_huge_pages() {
        header.huge_pages = HugePages::AsSystem;
    }
    if summary.has_foreign_calls {
        header.missing.push(Missing::ForeignCalls);
    }
    if summary.has_elevated_programs {
        header.missing.push(Missing::ElevatedPrograms);
    }
    let bytes = match write(material, &header, &summary, out) {
        Err(RecordError::Write(WriteError::Inconsistent(_))) if header.lost == 0 => {
            header.lost = 1;
            write_again(material, &header, &summary, out)?
        }
        result => result?,
    };
    let (chains, still_running) = (summary.stacks.as_ref().map(ChainTally::of), summary.still_running);
    let pids = summary.threads.iter().map(|thread| thread.pid).collect();
    Ok(Converted { header, tally, bytes, still_running, chains, pids })
}

fn find_cut(material: &mut Material<'_>) -> io::Result<u64> {
    let tail = events_of(material.spool.rewind_to_tail()?);
    cut::find(&mut Merge::new(tail, material.decoder)?, material.until_ns, material.awaited_ns)
}

fn write(material: &mut Material<'_>, header: &Header, summary: &Summary, out: &File) -> Result<u64, RecordError> {
    let out = BufWriter::new(out);
    let (snapshot, stacks) = (Some(&summary.snapshot), summary.stacks.as_ref());
    let tables = Tables { threads: &summary.threads, files: &summary.files, snapshot, stacks };
    let mut writer = Writer::with(out, header, &tables)?;
    let mut result: Result<(), WriteError> = Ok(());
    let mut push = |event: Event| {
        if result.is_ok() {
            result = writer.push(&event);
        }
    };
    tell(material, 500, Pass::Second, &mut push)?;
    result?;
    Ok(writer.finish()?.1)
}

/// Writes the trace anew: the kernel's records contradicted each other, so one of them is missing (`lost` is 1 now).
fn write_again(
    material: &mut Material<'_>,
    header: &Header,
    summary: &Summary,
    mut out: &File,
) -> Result<u64, RecordError> {
    out.rewind()?;
    out.set_len(0)?;
    write(material, header, summary, out)
}

/// How often the records have been gone through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pass {
    /// Call chains are looked for.
    First,
    /// They are known.
    Second,
}

fn events_of(files: Vec<(Rings, File)>) -> Vec<(Rings, File)> {
    files.into_iter().filter(|(rings, _)| *rings == Rings::Events).collect()
}

/// Tells the whole recording to the sink.
fn tell(material: &mut Material<'_>, done: u64, pass: Pass, sink: Sink<'_>) -> Result<Summary, RecordError> {
    let mut files = material.spool.rewind().map_err(RecordError::Spool)?;
    let stacks = material.stacks.filter(|_| pass == Pass::First);
    if stacks.is_none() {
        files = events_of(files);
    }
    let mut merge = Merge::new(files, material.decoder).map_err(RecordError::Spool)?;
    let mut builder = match material.company {
        None => TraceBuilder::new(material.setting, stacks),
        Some(company) => TraceBuilder::joining(material.setting, company, stacks),
    };
    let total_bytes = material.spool.bytes().max(1);
    let (mut bytes, mut told) = (0, done);
    while let Some(record) = merge.next().map_err(RecordError::Spool)? {
        if record.time_ns > material.until_ns {
            break;
        }
        bytes += record.bytes;
        let now = done + 500 * bytes / total_bytes;
        if now > told {
            told = now;
            (material.progress)(now);
        }
        builder.take(record, sink);
    }
    Ok(builder.finish(material.stacks_lost, sink))
}

impl From<io::Error> for RecordError {
    fn from(error: io::Error) -> Self {
        Self::System { what: "recording", error }
    }
}
