//! Sequences as bytes, for a fuzzer to change.
//!
//! # Guarantee
//! Any bytes are a sequence that may run: [`decode`] never fails, and leaves out operations that could strike the
//! machine or the process that runs them. What [`encode`] makes of a sequence decodes to it. Small numbers and
//! addresses in the window are short, so that a changed byte most often changes one argument to another that means
//! something.
//!
//! # Layout
//! ```text
//! head     user and bits of the limits that are set, then each limit: pages, 2 bytes
//! each op  call and thread, 1 byte each; then each argument: how it is written, 1 byte, and its bytes
//! ```

use crate::kernel::{Bounds, Call, Op, PAGE, Sequence, User, WINDOW};

use super::settled::settle;
use super::{families, is_allowed};

/// Most operations of a sequence: what a short list of them can't show, a long one hardly does.
const MOST_OPS: usize = 128;

/// How an argument is written; numbers modulo 4.
mod shape {
    /// A byte.
    pub(super) const SMALL: u8 = 0;
    /// Pages, two bytes.
    pub(super) const PAGES: u8 = 1;
    /// A place in the window, three bytes.
    pub(super) const WINDOW: u8 = 2;
    /// Anything, eight bytes.
    pub(super) const WIDE: u8 = 3;
}

/// Bytes that are read; behind their end there are zeros.
struct Tape<'a>(&'a [u8]);

impl Tape<'_> {
    fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    fn number(&mut self, nr_bytes: u32) -> u64 {
        (0..nr_bytes).fold(0, |sum, place| sum | u64::from(self.byte()) << (8 * place))
    }

    fn argument(&mut self) -> u64 {
        match self.byte() % 4 {
            shape::SMALL => self.number(1),
            shape::PAGES => self.number(2) * PAGE,
            shape::WINDOW => WINDOW + self.number(3),
            _ => self.number(8),
        }
    }

    fn bound(&mut self, is_set: bool) -> Option<u64> {
        is_set.then(|| self.number(2) * PAGE)
    }
}

/// Returns the sequence of some bytes.
pub fn decode(bytes: &[u8]) -> Sequence {
    let mut tape = Tape(bytes);
    let head = tape.byte();
    let user = if head & 1 == 0 { User::Nobody } else { User::Root };
    let bounds = Bounds {
        address_space: tape.bound(head & 2 != 0),
        data: tape.bound(head & 4 != 0),
        locked: tape.bound(head & 8 != 0),
        stack: tape.bound(head & 16 != 0),
    };
    let mut ops = Vec::new();
    while !tape.0.is_empty() && ops.len() < MOST_OPS {
        let op = operation(&mut tape);
        if is_allowed(&op) {
            ops.push(op);
        }
    }
    families::close(&mut ops);
    settle(&mut ops);
    ops.push(Op::new(Call::Look, &[]));
    Sequence { user, bounds, ops }
}

fn operation(tape: &mut Tape<'_>) -> Op {
    let call = Call::ALL[usize::from(tape.byte()) % Call::ALL.len()];
    tape.byte();
    let mut op = Op::new(call, &[]);
    for place in 0..call.arguments().len() {
        op.args[place] = tape.argument();
    }
    op
}

/// Returns bytes of a sequence of one thread; limits are rounded down to pages.
pub fn encode(sequence: &Sequence) -> Vec<u8> {
    let Bounds { address_space, data, locked, stack } = sequence.bounds;
    let bounds = [address_space, data, locked, stack];
    let set = bounds.iter().enumerate().filter(|(_, bound)| bound.is_some());
    let mut bytes = vec![set.fold(u8::from(sequence.user.is_root()), |bits, (place, _)| bits | 2 << place)];
    for bound in bounds.into_iter().flatten() {
        bytes.extend_from_slice(&((bound / PAGE).min(0xffff) as u16).to_le_bytes());
    }
    for op in &sequence.ops {
        let number = Call::ALL.iter().position(|call| *call == op.call).unwrap_or(0);
        bytes.extend_from_slice(&[number as u8, op.thread]);
        op.args[..op.call.arguments().len()].iter().for_each(|&value| push(&mut bytes, value));
    }
    bytes
}

fn push(bytes: &mut Vec<u8>, value: u64) {
    let (shape, number, nr_bytes) = match value {
        0..=0xff => (shape::SMALL, value, 1),
        _ if value.is_multiple_of(PAGE) && value / PAGE <= 0xffff => (shape::PAGES, value / PAGE, 2),
        _ if (WINDOW..WINDOW + (1 << 24)).contains(&value) => (shape::WINDOW, value - WINDOW, 3),
        _ => (shape::WIDE, value, 8),
    };
    bytes.push(shape);
    bytes.extend_from_slice(&number.to_le_bytes()[..nr_bytes]);
}

#[cfg(test)]
mod tests {
    use super::super::{Profile, sequence};
    use super::*;

    #[test]
    fn what_was_encoded_decodes_to_itself() {
        for number in 0..200 {
            let drawn = sequence(5, Profile::ALL[number as usize % 2], User::Root, number, 40);
            let mut expected = drawn.clone();
            // Decoding looks around at the end of its own accord.
            expected.ops.push(Op::new(Call::Look, &[]));
            assert_eq!(decode(&encode(&drawn)), expected, "{drawn}");
        }
    }

    #[test]
    fn any_bytes_are_a_sequence_that_may_run() {
        let mut draw = super::super::Draw::new(9);
        for _ in 0..500 {
            let bytes: Vec<u8> = (0..draw.below(300)).map(|_| draw.next() as u8).collect();
            let sequence = decode(&bytes);
            assert!(sequence.harmful().is_none() && sequence.ops.len() <= MOST_OPS + 1, "{sequence}");
        }
        assert_eq!(decode(&[]).to_string(), "user; look");
    }
}
