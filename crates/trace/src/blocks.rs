//! A trace taken apart into its blocks, and put together again with checksums made anew: for tests of readers.
//!
//! # Guarantee
//! What was taken apart and is put together unchanged reads back equal. Whatever else is put together passes every
//! checksum, so that a reader meets its content.

use std::io::Read;

use crate::error::ReadError;
use crate::frame::{BlockKind, FrameReader, FrameWriter};

/// A block: what kind it says it is, and what it holds, uncompressed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawBlock {
    /// The kind's byte; `FORMAT.md` lists those that there are.
    pub kind: u8,
    /// At most 16 MiB.
    pub payload: Vec<u8>,
}

/// Returns a trace's version and its blocks.
///
/// # Errors
/// If a checksum is wrong or the end marker is missing.
pub fn take_apart(bytes: &[u8]) -> Result<(u16, Vec<RawBlock>), ReadError> {
    let mut input = bytes;
    let mut frame = FrameReader::new(input.by_ref())?;
    let mut blocks = Vec::new();
    loop {
        let block = frame.block()?;
        let is_last = block.kind == BlockKind::End;
        blocks.push(RawBlock { kind: block.kind as u8, payload: block.payload });
        if is_last {
            return Ok((u16::from_le_bytes([bytes[8], bytes[9]]), blocks));
        }
    }
}

/// Returns the trace that these blocks are.
pub fn put_together(version: u16, blocks: &[RawBlock]) -> Vec<u8> {
    let mut out = Vec::new();
    // Writing into memory does not fail.
    let Ok(mut frame) = FrameWriter::new(&mut out, version) else { return Vec::new() };
    for block in blocks {
        let _ = frame.raw_block(block.kind, &block.payload, zstd::DEFAULT_COMPRESSION_LEVEL);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Header, Thread, Trace};

    #[test]
    fn what_is_put_together_unchanged_is_the_same() {
        let header = Header { command: vec!["true".into()], ..Header::default() };
        let trace = Trace { header, threads: vec![Thread::default()], ..Trace::default() };
        let mut bytes = Vec::new();
        trace.write(&mut bytes).expect("a trace");
        let (version, mut blocks) = take_apart(&bytes).expect("blocks");
        assert_eq!(Trace::read(&put_together(version, &blocks)[..]).expect("a trace"), trace);
        blocks[0].payload.push(0);
        let error = Trace::read(&put_together(version, &blocks)[..]).expect_err("damaged");
        assert!(error.to_string().contains("the header"), "{error}");
    }
}
