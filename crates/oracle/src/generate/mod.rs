//! Sequences, drawn from a seed.
//!
//! # Guarantee
//! A sequence is drawn from seed, profile, user and number alone. None of its operations can reach memory of the
//! process that runs it, or strike the machine.

mod arguments;
mod bytes;
mod draw;
mod families;
mod hostile;
mod model;
mod predict;
mod settled;

use crate::kernel::{Bounds, Call, Harm, Op, PAGE, Sequence, User};

use arguments::{Arguments, SITES};
pub use bytes::{decode, encode};
pub(crate) use draw::Draw;
use model::Model;

/// What kind of sequences are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Profile {
    /// Operations that know what is mapped; some 15 % fail or get a signal.
    Usual,
    /// Wild addresses, lengths and flags.
    Hostile,
    /// Two or three threads at once.
    Threads,
}

impl Profile {
    /// All profiles.
    pub const ALL: [Self; 3] = [Self::Usual, Self::Hostile, Self::Threads];

    /// Returns the name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Usual => "usual",
            Self::Hostile => "hostile",
            Self::Threads => "threads",
        }
    }
}

/// How often each call is drawn.
const WEIGHTS: &[(Call, u64)] = &[
    (Call::Mmap, 130),
    (Call::Munmap, 60),
    (Call::Mprotect, 80),
    (Call::Mremap, 70),
    (Call::Madvise, 110),
    (Call::Mincore, 20),
    (Call::Msync, 16),
    (Call::Mlock, 16),
    (Call::Mlock2, 14),
    (Call::Munlock, 14),
    (Call::Mlockall, 8),
    (Call::Munlockall, 9),
    (Call::Brk, 30),
    (Call::RemapFilePages, 14),
    (Call::Fork, 11),
    (Call::Vfork, 10),
    (Call::Snapshot, 6),
    (Call::Load, 100),
    (Call::Store, 120),
    (Call::Fetch, 15),
    (Call::Fill, 70),
    (Call::Output, 10),
    (Call::Input, 10),
    (Call::Discard, 6),
    (Call::Truncate, 18),
    (Call::Look, 12),
    (Call::Resident, 14),
];

/// Draws the sequence of a number.
pub fn sequence(seed: u64, profile: Profile, user: User, number: u64, nr_ops: usize) -> Sequence {
    let salt =
        Profile::ALL.iter().position(|&other| other == profile).unwrap_or(0) as u64 * 2 + u64::from(user.is_root());
    let mut draw = Draw::nth(seed ^ salt << 60, number);
    let bounds = bounds(&mut draw);
    let mut sequence = Sequence { user, bounds, ops: Vec::with_capacity(nr_ops + 16) };
    match profile {
        Profile::Usual => usual(&mut draw, &mut sequence, nr_ops),
        Profile::Hostile => wild(&mut draw, &mut sequence, nr_ops),
        Profile::Threads => threads(&mut draw, &mut sequence),
    }
    settled::settle(&mut sequence.ops);
    sequence.ops.push(Op::new(Call::Look, &[]));
    sequence
}

fn bounds(draw: &mut Draw) -> Bounds {
    let mut bounds = Bounds::default();
    if draw.chance(60) {
        bounds.address_space = Some(draw.within(0..200) * PAGE);
    }
    if draw.chance(50) {
        bounds.data = Some(draw.within(0..100) * PAGE);
    }
    if draw.chance(120) {
        bounds.locked = Some(if draw.chance(150) { 0 } else { draw.within(1..40) * PAGE });
    }
    if draw.chance(60) {
        bounds.stack = Some(draw.within(1..300) * PAGE);
    }
    bounds
}

fn usual(draw: &mut Draw, sequence: &mut Sequence, nr_ops: usize) {
    let mut model = Model::new(sequence);
    let site = SITES[draw.weighted(&[(0, 45), (1, 20), (2, 15), (3, 20)])].clone();
    let seals = draw.chance(120);
    while sequence.ops.len() < nr_ops {
        let place = sequence.ops.len();
        model.arrive(place);
        let call = match () {
            // Something to work with, at first.
            () if model.pieces.is_empty() && draw.chance(700) => Call::Mmap,
            () if seals && draw.chance(80) => Call::Mseal,
            () => draw.weighted(WEIGHTS),
        };
        let op = informed(draw, &model, call, &site);
        if is_allowed(&op) {
            if !model.fails(&op) {
                model.learn(&op, place);
            }
            sequence.ops.push(op);
        }
    }
    families::close(&mut sequence.ops);
}

/// Draws an operation that most often will succeed.
fn informed(draw: &mut Draw, model: &Model, call: Call, site: &std::ops::Range<u64>) -> Op {
    const TRIES: usize = 16;
    let (is_spoilt, is_blind) = (draw.chance(40), draw.chance(240));
    let mut arguments = Arguments { draw, model, site: site.clone() };
    let mut op = arguments.op(call);
    for _ in 0..TRIES {
        if is_blind || is_allowed(&op) && !model.fails(&op) {
            break;
        }
        op = arguments.op(call);
    }
    if is_spoilt {
        arguments.spoil(&mut op);
    }
    op
}

fn wild(draw: &mut Draw, sequence: &mut Sequence, nr_ops: usize) {
    let mut model = Model::new(sequence);
    while sequence.ops.len() < nr_ops {
        let call = draw.weighted(WEIGHTS);
        let op = match draw.chance(250) {
            true => Arguments { draw: &mut *draw, model: &model, site: SITES[0].clone() }.op(Call::Mmap),
            false => hostile::op(draw, call),
        };
        if is_allowed(&op) {
            model.learn(&op, sequence.ops.len());
            sequence.ops.push(op);
        }
    }
    families::close(&mut sequence.ops);
}

/// Calls that are atomic, so that orders can explain them.
const AT_ONCE: &[(Call, u64)] = &[
    (Call::Mmap, 15),
    (Call::Munmap, 15),
    (Call::Mprotect, 15),
    (Call::Mremap, 8),
    (Call::Madvise, 10),
    (Call::Load, 20),
    (Call::Store, 30),
    (Call::Brk, 4),
];

fn threads(draw: &mut Draw, sequence: &mut Sequence) {
    let mut model = Model::new(sequence);
    let site = 500..508;
    let nr_threads = draw.within(2..4);
    let nr_each = if nr_threads == 2 { 4 } else { 2 };
    let nr_before = draw.within(3..10) as usize;
    while sequence.ops.len() < nr_before {
        let call = draw.one(&[Call::Mmap, Call::Mmap, Call::Store, Call::Fill, Call::Mprotect]);
        let op = Arguments { draw: &mut *draw, model: &model, site: site.clone() }.op(call);
        if is_allowed(&op) {
            model.learn(&op, sequence.ops.len());
            sequence.ops.push(op);
        }
    }
    while sequence.ops.len() < nr_before + (nr_threads * nr_each) as usize {
        let thread = (1 + (sequence.ops.len() - nr_before) as u64 / nr_each) as u8;
        let call = draw.weighted(AT_ONCE);
        let op = Arguments { draw: &mut *draw, model: &model, site: site.clone() }.op(call);
        if is_allowed(&op) && is_atomic(&op) {
            sequence.ops.push(Op { thread, ..op });
        }
    }
}

/// Says whether the call happens at one instant: not those that fault pages in after they have let go of the lock.
fn is_atomic(op: &Op) -> bool {
    match op.call {
        Call::Mmap => op.args[3] & (libc::MAP_POPULATE | libc::MAP_LOCKED) as u64 == 0,
        Call::Madvise => op.args[1] <= PAGE && !matches!(op.args[2], 22 | 23 | 3 | 9),
        _ => true,
    }
}

/// Says whether an operation may be drawn.
fn is_allowed(op: &Op) -> bool {
    op.harm() == Harm::None && !strikes(op)
}

/// Says whether an operation would strike the machine, or ask for what depends on its configuration.
fn strikes(op: &Op) -> bool {
    match op.call {
        // Poison real memory; huge pages: how many there are is the machine's business.
        Call::Madvise => matches!(op.args[2] as u32, 100 | 101 | 14 | 15 | 25),
        Call::Mmap | Call::RemapFilePages => {
            let flags = if op.call == Call::Mmap { op.args[3] } else { op.args[4] };
            flags & libc::MAP_HUGETLB as u64 != 0
        }
        _ => false,
    }
}
