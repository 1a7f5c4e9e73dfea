//! The file's outer shape: a prelude, then blocks, each with its checksums.
//!
//! # Guarantee
//! A block that is handed out is, byte for byte and at its place, the one that was written.
//!
//! # Invariants
//! - F1 the prelude's checksum covers every byte before it
//! - F2 a block's head checksum covers the head and, through the previous block's head checksum, all that came before;
//!   so blocks can be neither changed nor dropped, doubled nor reordered unnoticed
//! - F3 a block's payload checksum, itself covered by the head, covers the payload
//! - F4 no allocation is larger than [`MAX_RAW_BYTES`] or than what the file really holds, whatever a length says
//!
//! `FORMAT.md` beside this crate's manifest describes every byte.

use std::io::{self, Read, Write};

use crate::error::ReadError;

/// The latest format version that this crate reads, and the one it writes where processes were joined after the
/// recording's begin.
pub const VERSION: u16 = 4;

/// The version of traces with call chains in which all was joined at once.
pub(crate) const CHAINS_VERSION: u16 = 3;

/// The version of traces with a snapshot and without call chains.
pub(crate) const JOINED_VERSION: u16 = 2;

/// The version of traces with neither, which readers of that version understand.
pub(crate) const PLAIN_VERSION: u16 = 1;

/// The largest payload of a block, uncompressed.
pub(crate) const MAX_RAW_BYTES: usize = 16 << 20;

const MAGIC: [u8; 8] = *b"\x89FLTR\r\n\x1a";
const PRELUDE_BYTES: usize = 16;
const HEAD_BYTES: usize = 17;
/// zstd's level: higher ones gain under 2 % on recorded traces.
const LEVEL: i32 = 15;

/// What a block holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockKind {
    /// The header.
    Header = b'H' as isize,
    /// A part of the thread table.
    Threads = b'T' as isize,
    /// A part of the file table.
    Files = b'F' as isize,
    /// A part of the snapshot.
    Snapshot = b'S' as isize,
    /// A part of the call chains.
    Stacks = b'K' as isize,
    /// Events.
    Events = b'E' as isize,
    /// The end marker, with the total counts.
    End = b'Z' as isize,
}

impl BlockKind {
    const ALL: [BlockKind; 7] =
        [Self::Header, Self::Threads, Self::Files, Self::Snapshot, Self::Stacks, Self::Events, Self::End];

    fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|&kind| kind as u8 == byte)
    }

    /// Returns what a message calls it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Header => "the header",
            Self::Threads => "the thread table",
            Self::Files => "the file table",
            Self::Snapshot => "the snapshot",
            Self::Stacks => "the call chains",
            Self::Events => "a block of events",
            Self::End => "the end marker",
        }
    }
}

/// A block as read.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) kind: BlockKind,
    pub(crate) offset: u64,
    pub(crate) payload: Vec<u8>,
}

impl Block {
    /// Returns the error that says that this block's content makes no sense.
    pub(crate) fn damaged(&self) -> ReadError {
        ReadError::Damaged { offset: self.offset, part: self.kind.name() }
    }
}

/// Writes the outer shape.
#[derive(Debug)]
pub(crate) struct FrameWriter<W> {
    out: W,
    chain: u32,
    written: u64,
}

impl<W: Write> FrameWriter<W> {
    /// Writes the prelude of a trace of this version.
    pub(crate) fn new(mut out: W, version: u16) -> io::Result<Self> {
        let mut prelude = [0; PRELUDE_BYTES];
        prelude[..8].copy_from_slice(&MAGIC);
        prelude[8..10].copy_from_slice(&version.to_le_bytes());
        let chain = crc32fast::hash(&prelude[..12]);
        prelude[12..].copy_from_slice(&chain.to_le_bytes());
        out.write_all(&prelude)?;
        Ok(Self { out, chain, written: PRELUDE_BYTES as u64 })
    }

    /// Writes one block; the caller keeps `raw` within [`MAX_RAW_BYTES`].
    pub(crate) fn block(&mut self, kind: BlockKind, raw: &[u8]) -> io::Result<()> {
        self.raw_block(kind as u8, raw, LEVEL)
    }

    /// Writes one block of any kind, compressed so well.
    pub(crate) fn raw_block(&mut self, kind: u8, raw: &[u8], level: i32) -> io::Result<()> {
        let stored = zstd::bulk::compress(raw, level)?;
        let mut head = [0; HEAD_BYTES];
        head[0] = kind;
        head[1..5].copy_from_slice(&(stored.len() as u32).to_le_bytes());
        head[5..9].copy_from_slice(&(raw.len() as u32).to_le_bytes());
        head[9..13].copy_from_slice(&crc32fast::hash(&stored).to_le_bytes());
        self.chain = chained(self.chain, &head[..13]);
        head[13..].copy_from_slice(&self.chain.to_le_bytes());
        self.out.write_all(&head)?;
        self.out.write_all(&stored)?;
        self.written += (HEAD_BYTES + stored.len()) as u64;
        Ok(())
    }

    /// Flushes and returns what is below, and how many bytes went there.
    pub(crate) fn finish(mut self) -> io::Result<(W, u64)> {
        self.out.flush()?;
        Ok((self.out, self.written))
    }
}

/// Reads the outer shape.
#[derive(Debug)]
pub(crate) struct FrameReader<R> {
    input: R,
    chain: u32,
    offset: u64,
}

impl<R: Read> FrameReader<R> {
    /// Reads and checks the prelude.
    pub(crate) fn new(mut input: R) -> Result<Self, ReadError> {
        let mut prelude = [0; PRELUDE_BYTES];
        let got = read_up_to(&mut input, &mut prelude)?;
        let chain = check_prelude(&prelude[..got])?;
        Ok(Self { input, chain, offset: PRELUDE_BYTES as u64 })
    }

    /// Reads the next block.
    pub(crate) fn block(&mut self) -> Result<Block, ReadError> {
        let offset = self.offset;
        let head = self.head()?;
        let damaged = |part| ReadError::Damaged { offset, part };
        let kind = BlockKind::from_byte(head[0]).ok_or(damaged("a block's head"))?;
        let stored_len = u32_at(&head, 1) as usize;
        let raw_len = u32_at(&head, 5) as usize;
        if raw_len > MAX_RAW_BYTES || stored_len > zstd::zstd_safe::compress_bound(MAX_RAW_BYTES) {
            return Err(damaged("a block's head"));
        }
        let stored = self.payload(stored_len)?;
        if crc32fast::hash(&stored) != u32_at(&head, 9) {
            return Err(damaged(kind.name()));
        }
        let payload = zstd::bulk::decompress(&stored, raw_len).map_err(|_| damaged(kind.name()))?;
        if payload.len() != raw_len {
            return Err(damaged(kind.name()));
        }
        Ok(Block { kind, offset, payload })
    }

    /// Confirms that the file ends here.
    pub(crate) fn end(&mut self) -> Result<(), ReadError> {
        match read_up_to(&mut self.input, &mut [0])? {
            0 => Ok(()),
            _ => Err(ReadError::Damaged { offset: self.offset, part: "what follows the end marker" }),
        }
    }

    fn head(&mut self) -> Result<[u8; HEAD_BYTES], ReadError> {
        let mut head = [0; HEAD_BYTES];
        let got = read_up_to(&mut self.input, &mut head)?;
        if got < HEAD_BYTES {
            return Err(ReadError::Cut { offset: self.offset + got as u64 });
        }
        self.chain = chained(self.chain, &head[..13]);
        if self.chain != u32_at(&head, 13) {
            return Err(ReadError::Damaged { offset: self.offset, part: "a block's head" });
        }
        self.offset += HEAD_BYTES as u64;
        Ok(head)
    }

    /// Reads `len` bytes, growing with what really comes (F4).
    fn payload(&mut self, len: usize) -> Result<Vec<u8>, ReadError> {
        let mut stored = Vec::new();
        self.input.by_ref().take(len as u64).read_to_end(&mut stored)?;
        self.offset += stored.len() as u64;
        if stored.len() < len {
            return Err(ReadError::Cut { offset: self.offset });
        }
        Ok(stored)
    }
}

/// Returns the prelude's checksum if `prelude` is one that this version reads.
fn check_prelude(prelude: &[u8]) -> Result<u32, ReadError> {
    if prelude.is_empty() {
        return Err(ReadError::Empty);
    }
    let known = prelude.len().min(MAGIC.len());
    if prelude[..known] != MAGIC[..known] {
        return Err(ReadError::Foreign);
    }
    if prelude.len() < PRELUDE_BYTES {
        return Err(ReadError::Cut { offset: prelude.len() as u64 });
    }
    let sum = crc32fast::hash(&prelude[..12]);
    if sum != u32_at(prelude, 12) {
        return Err(ReadError::Damaged { offset: 0, part: "the prelude" });
    }
    match u16::from_le_bytes([prelude[8], prelude[9]]) {
        version if version > VERSION => Err(ReadError::Newer { version }),
        PLAIN_VERSION..=VERSION => Ok(sum),
        _ => Err(ReadError::Damaged { offset: 8, part: "the prelude" }),
    }
}

/// Returns the checksum of `bytes` as the continuation of `previous` (F2).
fn chained(previous: u32, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&previous.to_le_bytes());
    hasher.update(bytes);
    hasher.finalize()
}

/// Reads until `buffer` is full or the input ends; returns how much came.
fn read_up_to(input: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut got = 0;
    while got < buffer.len() {
        match input.read(&mut buffer[got..]) {
            Ok(0) => break,
            Ok(more) => got += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(got)
}

/// Returns the little-endian integer at `place`; the caller's slice is long enough.
fn u32_at(bytes: &[u8], place: usize) -> u32 {
    u32::from_le_bytes([bytes[place], bytes[place + 1], bytes[place + 2], bytes[place + 3]])
}
