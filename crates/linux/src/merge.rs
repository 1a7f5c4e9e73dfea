//! All CPUs' records as one list in time.
//!
//! # Guarantee
//! Records of one CPU keep their order; between CPUs the earlier comes first. The times handed out never go back on
//! one CPU, and so never go back at all.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read};

use crate::spool::Rings;
use crate::wire::{Decoder, HEAD_BYTES, Record};

const BUFFER_BYTES: usize = 256 << 10;

/// A merge under way.
pub(crate) struct Merge<'a> {
    streams: Vec<Stream<'a>>,
    /// The next record's time, and the stream that holds it.
    heads: BinaryHeap<Reverse<(u64, usize)>>,
}

/// One CPU's records.
struct Stream<'a> {
    rings: Rings,
    input: BufReader<File>,
    decoder: &'a Decoder,
    buffer: Vec<u8>,
    next: Option<Record>,
    time_ns: u64,
}

impl<'a> Merge<'a> {
    /// Begins to merge the files, each of one ring.
    pub(crate) fn new(files: Vec<(Rings, File)>, decoder: &'a Decoder) -> io::Result<Self> {
        let streams = files.into_iter().map(|(rings, file)| Stream::new(rings, file, decoder)).collect();
        let mut merge = Self { streams, heads: BinaryHeap::new() };
        (0..merge.streams.len()).try_for_each(|place| merge.fetch(place))?;
        Ok(merge)
    }

    /// Returns the next record.
    pub(crate) fn next(&mut self) -> io::Result<Option<Record>> {
        let Some(Reverse((_, place))) = self.heads.pop() else { return Ok(None) };
        let record = self.streams[place].next.take();
        self.fetch(place)?;
        Ok(record)
    }

    fn fetch(&mut self, place: usize) -> io::Result<()> {
        let stream = &mut self.streams[place];
        stream.next = stream.read()?;
        if stream.next.is_some() {
            self.heads.push(Reverse((stream.time_ns, place)));
        }
        Ok(())
    }
}

impl<'a> Stream<'a> {
    fn new(rings: Rings, file: File, decoder: &'a Decoder) -> Self {
        let input = BufReader::with_capacity(BUFFER_BYTES, file);
        Self { rings, input, decoder, buffer: Vec::new(), next: None, time_ns: 0 }
    }

    fn read(&mut self) -> io::Result<Option<Record>> {
        let mut head = [0; HEAD_BYTES];
        match self.input.read_exact(&mut head) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
            result => result?,
        }
        let [k0, k1, k2, k3, m0, m1, s0, s1] = head;
        let body_bytes = usize::from(u16::from_ne_bytes([s0, s1])).saturating_sub(head.len());
        self.buffer.resize(body_bytes, 0);
        match self.input.read_exact(&mut self.buffer) {
            // The recorder was killed while it wrote this.
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
            result => result?,
        }
        let kind = u32::from_ne_bytes([k0, k1, k2, k3]);
        let mut record = self.decoder.decode(self.rings, kind, u16::from_ne_bytes([m0, m1]), &self.buffer);
        self.time_ns = self.time_ns.max(record.time_ns);
        record.time_ns = self.time_ns;
        Ok(Some(record))
    }
}
