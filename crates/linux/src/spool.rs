//! Raw records put aside while the program runs.
//!
//! # Guarantee
//! What was put aside comes back unchanged, ring by ring. All that happened before the last [`Spool::mark`] is in the
//! files, even if this process is killed at the next instruction.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;

/// Records this much older than the recording's end are not given up for a quiet instant.
pub(crate) const QUIET_WITHIN_NS: u64 = 100_000_000;

/// The last records are those of at least so long.
const TAIL_NS: u64 = 2 * QUIET_WITHIN_NS;

/// What a ring holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rings {
    /// What becomes the trace's events.
    Events,
    /// Call chains.
    Stacks,
}

/// One file for each ring.
#[derive(Debug)]
pub(crate) struct Spool {
    files: Vec<(Rings, File)>,
    /// Where marks go; `None` if the recording has ended.
    mark: Option<File>,
    bytes: u64,
    /// How long each file was.
    lens: Vec<u64>,
    /// How long they were at the last marks, the oldest first. Its records are all from before what follows in the
    /// files.
    recent: VecDeque<(u64, Vec<u64>)>,
}

impl Spool {
    /// Returns a spool that writes into these empty files.
    pub(crate) fn new(files: Vec<(Rings, File)>, mark: File) -> Self {
        let lens = vec![0; files.len()];
        Self { files, mark: Some(mark), bytes: 0, recent: VecDeque::from([(0, lens.clone())]), lens }
    }

    /// Returns the spool that a killed recorder left in these files.
    pub(crate) fn reopened(files: Vec<(Rings, File)>) -> io::Result<Self> {
        let sizes = files.iter().map(|(_, file)| file.metadata().map(|found| found.len()));
        let bytes = sizes.sum::<io::Result<u64>>()?;
        let lens = vec![0; files.len()];
        Ok(Self { files, mark: None, bytes, recent: VecDeque::from([(0, lens.clone())]), lens })
    }

    /// Appends what came from one ring.
    pub(crate) fn append(&mut self, ring: usize, bytes: &[u8]) -> io::Result<()> {
        self.bytes += bytes.len() as u64;
        self.lens[ring] += bytes.len() as u64;
        self.files[ring].1.write_all(bytes)
    }

    /// Notes that all records up to `until_ns` were appended, and how many were lost by then.
    pub(crate) fn mark(&mut self, until_ns: u64, lost: u64) -> io::Result<()> {
        self.recent.push_back((until_ns, self.lens.clone()));
        while self.recent.get(1).is_some_and(|(second_ns, _)| second_ns + TAIL_NS <= until_ns) {
            self.recent.pop_front();
        }
        let words = [until_ns.to_ne_bytes(), lost.to_ne_bytes()];
        self.mark.as_ref().map_or(Ok(()), |mark| mark.write_all_at(words.as_flattened(), 0))
    }

    /// Returns how much was put aside.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the files, each at its beginning.
    pub(crate) fn rewind(&mut self) -> io::Result<Vec<(Rings, File)>> {
        let open = |(rings, file): &mut (Rings, File)| Ok((*rings, file.rewind().and_then(|()| file.try_clone())?));
        self.files.iter_mut().map(open).collect()
    }

    /// Returns the files, each at a record's beginning that is at least [`TAIL_NS`] away from the end, or at the first.
    pub(crate) fn rewind_to_tail(&mut self) -> io::Result<Vec<(Rings, File)>> {
        let Some((_, lens)) = self.recent.front() else { return self.rewind() };
        let open = |((rings, file), len): (&mut (Rings, File), &u64)| {
            file.seek(SeekFrom::Start(*len)).and_then(|_| Ok((*rings, file.try_clone()?)))
        };
        self.files.iter_mut().zip(lens).map(open).collect()
    }
}
