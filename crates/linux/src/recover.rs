//! A trace from what a killed recorder left.
//!
//! # Guarantee
//! As for [`record()`](crate::record()): a whole trace stands at the output, or the output is as it was. The trace
//! holds everything up to the recorder's last look at the rings, and says that it is a part: it is marked as
//! interrupted and lacks [`Missing::LastMoments`]. The raw records stay.

use std::fs;
use std::path::Path;

use faultless_trace::{Ending, Missing};

use crate::convert::{Material, convert};
use crate::error::RecordError;
use crate::output::Output;
use crate::raw::Left;
use crate::record::Recording;
use crate::trace_builder::Setting;
use crate::wire::{Decoder, Numbers};

/// Makes a trace of the raw records in `folder`; `progress` is told in thousandths how much is done.
pub fn recover(folder: &Path, target: &Path, progress: &dyn Fn(u64)) -> Result<Recording, RecordError> {
    let output_error = |error| RecordError::Output { path: target.to_owned(), error };
    let Left { mut header, company, root, sources, stacks, mut spool, until_ns, lost } = Left::open(folder)?;
    header.is_interrupted = true;
    header.ending = Ending::Unknown;
    header.missing.push(Missing::LastMoments);
    let output = Output::create(target).map_err(output_error)?;
    let decoder = Decoder::new(&sources, if company.is_some() { Numbers::Carried } else { Numbers::Absent }, stacks)?;
    let root = if company.is_some() { 0 } else { root };
    let setting = Setting { root, mode: header.mode, pace: header.pace, time_unit_ns: header.time_unit_ns() };
    let company = company.as_ref();
    let (spool, decoder, stacks_lost) = (&mut spool, &decoder, 0);
    let awaited_ns = 0;
    let mut material =
        Material { spool, decoder, stacks, stacks_lost, setting, company, lost, until_ns, awaited_ns, progress };
    let converted = convert(&mut material, header, output.file())?;
    output.complete().map_err(output_error)?;
    // The killed recorder's own output, which is empty, has the folder's name.
    let _ = fs::remove_file(folder.with_extension("partial"));
    Ok(converted.into())
}
