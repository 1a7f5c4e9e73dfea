//! Operations that belong to processes which others make.
//!
//! # Guarantee
//! After [`close`] the operations of each process end inside its maker's, no process has a great-grandparent that still
//! runs, and a child of fork that does anything looks around at its end: what it alone can see would be gone with it.

use std::ops::Range;

use crate::kernel::{Call, Op};

/// Processes inside each other.
const DEEPEST: usize = 2;

/// Gives each process operations of its own.
pub(super) fn close(ops: &mut Vec<Op>) {
    nest(ops);
    for place in (0..ops.len()).rev() {
        let inner = inner(ops, place);
        if ops[place].call == Call::Fork && !inner.is_empty() && !ends_with_look(ops, inner.clone()) {
            let makers = (0..=place).filter(|&maker| maker == place || self::inner(ops, maker).contains(&place));
            makers.collect::<Vec<_>>().into_iter().for_each(|maker| ops[maker].args[0] += 1);
            ops.insert(inner.end, Op::new(Call::Look, &[]));
        }
    }
}

/// Lets operations end inside their maker's, and nobody make processes too deep inside.
fn nest(ops: &mut [Op]) {
    let mut open: Vec<usize> = Vec::new();
    for place in 0..ops.len() {
        open.retain(|&end| place < end);
        let most = open.last().copied().unwrap_or(ops.len()) - place - 1;
        let op = &mut ops[place];
        if op.call.makes_process() {
            let most = if open.len() >= DEEPEST { 0 } else { most };
            op.args[0] = op.args[0].min(most as u64);
            open.push(place + 1 + op.args[0] as usize);
        }
    }
}

/// Returns the places of the operations that belong to the process which the one at `place` makes.
fn inner(ops: &[Op], place: usize) -> Range<usize> {
    let nr_ops = if ops[place].call.makes_process() { ops[place].args[0] as usize } else { 0 };
    place + 1..place + 1 + nr_ops
}

/// Says whether the last operation that belongs to a process itself is a look.
fn ends_with_look(ops: &[Op], own: Range<usize>) -> bool {
    let (mut at, mut last) = (own.start, own.start);
    while at < own.end {
        (last, at) = (at, inner(ops, at).end);
    }
    ops[last].call == Call::Look
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Sequence;

    fn closed(line: &str) -> String {
        let mut sequence: Sequence = line.parse().expect("a sequence");
        close(&mut sequence.ops);
        let once = sequence.to_string();
        close(&mut sequence.ops);
        assert_eq!(sequence.to_string(), once, "what is closed stays as it is");
        once
    }

    #[test]
    fn a_child_of_fork_looks_around_at_its_end() {
        assert_eq!(closed("root; fork 1; load w+0x0; look"), "root; fork 0x2; load w+0x0; look; look");
        assert_eq!(closed("root; fork 2; load w+0x0; look"), "root; fork 0x2; load w+0x0; look");
        assert_eq!(closed("root; fork 0; look"), "root; fork 0x0; look");
        assert_eq!(closed("root; vfork 1; load w+0x0"), "root; vfork 0x1; load w+0x0");
        let both = "root; fork 0x4; fork 0x2; load w+0x0; look; look";
        assert_eq!(closed("root; fork 2; fork 1; load w+0x0"), both);
    }

    #[test]
    fn operations_end_inside_their_makers() {
        assert_eq!(closed("root; snapshot 9; load w+0x0"), "root; snapshot 0x1; load w+0x0");
        let deep = "root; vfork 0x3; snapshot 0x2; fork 0x0; load w+0x0";
        assert_eq!(closed("root; vfork 3; snapshot 9; fork 5; load w+0x0"), deep);
    }
}
