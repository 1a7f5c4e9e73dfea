//! Memory that the judged process and its keeper share: sequences go in, answers come out.
//!
//! # Invariants
//! * I1 while a batch runs, the child alone writes; before and after, the keeper alone. The bytes on the two pipes
//!   order both.
//! * I2 everything is plain numbers, so that a child gone wild can make them wrong, never invalid.

use std::io;
use std::ptr;

use super::answer::{Answer, AreaSeen, Behind, Outcome, Seen};
use super::op::{Call, Op};
use super::sequence::{Bounds, Sequence, User};

/// Most sequences of a batch.
pub(super) const MOST_SEQUENCES: usize = 64;

/// Words of an area in the stream.
const AREA_WORDS: usize = 7;

/// How much a block holds.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// Operations of a batch, or of one sequence.
    pub ops: usize,
    /// Lines of area lists, all lists of a batch together.
    pub areas: usize,
}

impl Default for Room {
    fn default() -> Self {
        Self { ops: 1 << 13, areas: 1 << 15 }
    }
}

/// How far a sequence came.
pub(super) mod state {
    /// It waits.
    pub(in super::super) const WAITING: u64 = 0;
    /// It runs.
    pub(in super::super) const RUNNING: u64 = 1;
    /// It is done.
    pub(in super::super) const DONE: u64 = 2;
    /// A process of it ended as none should.
    pub(in super::super) const BROKEN: u64 = 3;
    /// What the last one left could not be removed.
    pub(in super::super) const NOT_CLEAN: u64 = 4;
    /// The lists don't fit.
    pub(in super::super) const NO_ROOM: u64 = 5;
}

/// What the child must know of a sequence, and tell.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Head {
    pub(super) first_op: u64,
    pub(super) nr_ops: u64,
    /// Limits in the order of [`Bounds`]; `u64::MAX` is none.
    pub(super) bounds: [u64; 4],
    pub(super) state: u64,
}

/// An outcome in numbers.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct RawOutcome {
    pub(super) kind: u32,
    pub(super) code: i32,
    /// Value, address, or first word in the stream.
    pub(super) value: u64,
    /// Signal number, or number of areas.
    pub(super) number: u64,
    /// When it ended, where others ran beside it.
    pub(super) ended: u64,
}

impl RawOutcome {
    /// Returns an outcome of this kind; the numbers mean what the kind says.
    pub(super) const fn new(kind: u32, code: i32, value: u64, number: u64) -> Self {
        Self { kind, code, value, number, ended: 0 }
    }
}

pub(super) mod kind {
    pub(in super::super) const NOT_RUN: u32 = 0;
    pub(in super::super) const VALUE: u32 = 1;
    pub(in super::super) const ERRNO: u32 = 2;
    pub(in super::super) const SIGNAL: u32 = 3;
    pub(in super::super) const LIST: u32 = 4;
}

/// An operation in numbers.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct RawOp {
    pub(super) call: u8,
    pub(super) thread: u8,
    pub(super) args: [u64; 6],
}

impl RawOp {
    /// Returns the operation; unknown calls are looks, which harm nobody.
    pub(super) fn op(&self) -> Op {
        let call = Call::from_number(self.call).unwrap_or(Call::Look);
        Op { call, thread: self.thread, args: self.args }
    }
}

/// What stands at the beginning.
#[repr(C)]
pub(super) struct Control {
    pub(super) nr_sequences: u64,
    pub(super) nr_words: u64,
    /// Pages that the empty process has mapped, and those of them that count as data.
    pub(super) baseline_pages: u64,
    pub(super) baseline_data: u64,
    /// Lowest number of areas outside the zones.
    pub(super) has_heap: u64,
    heads: [Head; MOST_SEQUENCES],
}

/// The shared memory.
#[derive(Clone, Copy)]
pub(super) struct Block {
    base: *mut u8,
    room: Room,
}

impl Block {
    fn bytes(room: Room) -> usize {
        let sizes = [size_of::<Control>(), room.ops * size_of::<RawOp>(), room.ops * size_of::<RawOutcome>()];
        sizes.iter().sum::<usize>() + room.areas * AREA_WORDS * 8
    }

    /// Maps a block.
    pub(super) fn new(room: Room) -> io::Result<Self> {
        let (rights, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping, placed by the kernel.
        let base = unsafe { libc::mmap(ptr::null_mut(), Self::bytes(room), rights, flags, -1, 0) };
        if base == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(Self { base: base.cast(), room }) }
    }

    /// Unmaps the block.
    ///
    /// # Safety
    /// Nobody uses it or a copy of it any more.
    pub(super) unsafe fn unmap(self) {
        // SAFETY: the mapping that `new` made.
        unsafe { libc::munmap(self.base.cast(), Self::bytes(self.room)) };
    }

    /// Returns first address and length.
    pub(super) fn range(self) -> (u64, u64) {
        (self.base as u64, Self::bytes(self.room) as u64)
    }

    pub(super) fn room(self) -> Room {
        self.room
    }

    pub(super) fn control(&self) -> *mut Control {
        self.base.cast()
    }

    fn head_place(&self, place: usize) -> *mut Head {
        assert!(place < MOST_SEQUENCES);
        // SAFETY: the place is inside the array.
        unsafe { (&raw mut (*self.control()).heads).cast::<Head>().add(place) }
    }

    /// Returns the head of a sequence.
    pub(super) fn head(&self, place: usize) -> Head {
        // SAFETY: plain numbers, and one side at a time writes (I1, I2).
        unsafe { self.head_place(place).read_volatile() }
    }

    /// Replaces the head of a sequence.
    pub(super) fn set_head(&self, place: usize, head: Head) {
        // SAFETY: as in `head`.
        unsafe { self.head_place(place).write_volatile(head) };
    }

    fn ops(&self) -> *mut RawOp {
        // SAFETY: behind the control structure, inside the mapping.
        unsafe { self.base.add(size_of::<Control>()).cast() }
    }

    fn outcomes(&self) -> *mut RawOutcome {
        // SAFETY: behind the operations, inside the mapping.
        unsafe { self.ops().add(self.room.ops).cast() }
    }

    fn words(&self) -> *mut u64 {
        // SAFETY: behind the outcomes, inside the mapping.
        unsafe { self.outcomes().add(self.room.ops).cast() }
    }

    /// Returns an operation of the batch.
    pub(super) fn op(&self, place: usize) -> RawOp {
        assert!(place < self.room.ops);
        // SAFETY: the place is inside; plain numbers.
        unsafe { self.ops().add(place).read_volatile() }
    }

    /// Notes what came of an operation.
    pub(super) fn set_outcome(&self, place: usize, outcome: RawOutcome) {
        assert!(place < self.room.ops);
        // SAFETY: as in `op`.
        unsafe { self.outcomes().add(place).write_volatile(outcome) };
    }

    /// Appends an area to the stream; `None` if it is full.
    pub(super) fn push_area(&self, area: &AreaSeen) -> Option<()> {
        let control = self.control();
        // SAFETY: one process at a time writes (I1); the place is checked.
        unsafe {
            let place = (*control).nr_words as usize;
            if place + AREA_WORDS > self.room.areas * AREA_WORDS {
                return None;
            }
            let kind = u64::from(area.is_shared);
            let words = [area.start, area.end, area.rights, kind, area.offset, area.behind as u64, area.digest];
            self.words().add(place).cast::<[u64; AREA_WORDS]>().write_volatile(words);
            (*control).nr_words = (place + AREA_WORDS) as u64;
        }
        Some(())
    }

    /// Returns how many words the stream has.
    pub(super) fn nr_words(&self) -> u64 {
        // SAFETY: a plain number.
        unsafe { (*self.control()).nr_words }
    }

    /// Puts a batch in; returns how many of the sequences fit.
    pub(super) fn load(&self, sequences: &[Sequence]) -> usize {
        let (mut next, mut taken) = (0, 0);
        for sequence in sequences.iter().take(MOST_SEQUENCES) {
            if next + sequence.ops.len() > self.room.ops {
                break;
            }
            self.load_one(taken, next, sequence);
            (next, taken) = (next + sequence.ops.len(), taken + 1);
        }
        // SAFETY: the child waits (I1).
        unsafe {
            (*self.control()).nr_sequences = taken as u64;
            (*self.control()).nr_words = 0;
        }
        taken
    }

    fn load_one(&self, place: usize, first: usize, sequence: &Sequence) {
        for (at, op) in sequence.ops.iter().enumerate() {
            let raw = RawOp { call: op.call as u8, thread: op.thread, args: op.args };
            // SAFETY: the caller has checked that the operations fit; the child waits (I1).
            unsafe { self.ops().add(first + at).write_volatile(raw) };
            self.set_outcome(first + at, RawOutcome::new(kind::NOT_RUN, 0, 0, 0));
        }
        let Bounds { address_space, data, locked, stack } = sequence.bounds;
        let bounds = [address_space, data, locked, stack].map(|bound| bound.unwrap_or(u64::MAX));
        let nr_ops = sequence.ops.len() as u64;
        self.set_head(place, Head { first_op: first as u64, nr_ops, bounds, state: state::WAITING });
    }

    /// Returns what came of a sequence.
    pub(super) fn answer(&self, place: usize) -> Answer {
        let head = self.head(place);
        let (first, nr_ops) = (head.first_op as usize, head.nr_ops as usize);
        let last = first.saturating_add(nr_ops).min(self.room.ops);
        // SAFETY: the places are inside; plain numbers.
        let raw = (first..last).map(|at| unsafe { self.outcomes().add(at).read_volatile() });
        let (outcomes, ended) = raw.map(|raw| (self.outcome(raw), raw.ended)).unzip();
        Answer { outcomes, ended }
    }

    fn outcome(&self, raw: RawOutcome) -> Outcome {
        match raw.kind {
            kind::VALUE => Outcome::Value(raw.value),
            kind::ERRNO => Outcome::Errno(raw.code),
            kind::SIGNAL => Outcome::Signal(Seen { signo: raw.number as i32, code: raw.code, address: raw.value }),
            kind::LIST => Outcome::List(self.areas(raw.value as usize, raw.number as usize)),
            _ => Outcome::NotRun,
        }
    }

    fn areas(&self, first_word: usize, nr_areas: usize) -> Vec<AreaSeen> {
        let places = (0..nr_areas).map(|area| first_word.saturating_add(area.saturating_mul(AREA_WORDS)));
        let inside = places.take_while(|place| place + AREA_WORDS <= self.room.areas * AREA_WORDS);
        // SAFETY: the place is inside; plain numbers.
        inside
            .map(|place| area(unsafe { self.words().add(place).cast::<[u64; AREA_WORDS]>().read_volatile() }))
            .collect()
    }
}

fn area([start, end, rights, kind, offset, behind, digest]: [u64; AREA_WORDS]) -> AreaSeen {
    let behind = match behind {
        1 => Behind::ReadWrite,
        2 => Behind::Empty,
        3 => Behind::Shared,
        4 => Behind::Reference,
        _ => Behind::Anonymous,
    };
    AreaSeen { start, end, rights, is_shared: kind != 0, offset, behind, digest }
}

impl User {
    /// Says whether the sequence runs with all rights.
    pub fn is_root(self) -> bool {
        self == Self::Root
    }
}
