//! Arguments that nobody would mean.
//!
//! # Guarantee
//! Any number may come, but for what would strike the machine or the process itself; see [`super::is_allowed`].

use crate::kernel::{Call, Kind, Op, PAGE, USER_END, WINDOW, WINDOW_BYTES};

use super::arguments::SITES;
use super::draw::Draw;

/// Addresses at the edges of everything.
const ADDRESSES: [u64; 18] = [
    0,
    1,
    PAGE - 1,
    PAGE,
    0xf000,
    0xffff,
    WINDOW,
    WINDOW + WINDOW_BYTES - PAGE,
    WINDOW + WINDOW_BYTES - 1,
    USER_END - 1,
    USER_END,
    1 << 47,
    (1 << 47) - 1,
    1 << 63,
    (1 << 63) + WINDOW,
    u64::MAX << 12,
    u64::MAX,
    0xffff_8000_0000_0000,
];

const LENGTHS: [u64; 16] = [
    0,
    1,
    PAGE - 1,
    PAGE,
    PAGE + 1,
    2 * PAGE,
    WINDOW_BYTES,
    WINDOW_BYTES + 1,
    1 << 30,
    1 << 46,
    1 << 47,
    USER_END,
    1 << 63,
    u64::MAX - PAGE + 1,
    u64::MAX - PAGE + 2,
    u64::MAX,
];

/// Draws the arguments of a call, each by what it is.
pub(super) fn op(draw: &mut Draw, call: Call) -> Op {
    let mut op = Op::new(call, &[]);
    for (arg, (_, kind)) in op.args.iter_mut().zip(call.arguments()) {
        *arg = argument(draw, *kind);
    }
    if call.makes_process() {
        op.args[0] = draw.below(5);
    }
    op
}

fn argument(draw: &mut Draw, kind: Kind) -> u64 {
    match kind {
        Kind::Address => address(draw),
        Kind::Length => {
            let near = draw.below(30) * PAGE + draw.below(2) * draw.below(PAGE);
            if draw.chance(600) { near } else { draw.one(&LENGTHS) }
        }
        Kind::Rights => sparse(draw, &[1, 2, 4, 8, 0x0100_0000, 0x0200_0000]),
        Kind::MapFlags => sparse(draw, &[0x2, 0x10, 0x20, 0x1, 0x10_0000, 0x100, 0x2000, 0x4000, 0x8000, 0x8_0000]),
        Kind::RemapFlags => sparse(draw, &[1, 2, 4, 1, 2]),
        Kind::Advice => {
            if draw.chance(900) {
                draw.below(26)
            } else {
                draw.below(110)
            }
        }
        Kind::SyncFlags => draw.below(10),
        // Making all pages that there are, the process's own too, costs much.
        Kind::LockAllFlags => draw.one(&[0, 1, 2, 2, 2, 3, 4, 5, 6, 6, 7, 8, 9]),
        Kind::LockFlags => draw.below(4),
        Kind::File => draw.below(8),
        Kind::Number => {
            if draw.chance(800) {
                draw.below(40)
            } else {
                draw.next() >> draw.below(64)
            }
        }
    }
}

fn address(draw: &mut Draw) -> u64 {
    let site = SITES[draw.below(2) as usize].clone();
    let near = WINDOW + draw.within(site) * PAGE;
    match draw.below(10) {
        0..6 => near,
        6 => near + draw.below(PAGE),
        _ => draw.one(&ADDRESSES),
    }
}

/// Returns some of the bits, and now and then one of all.
fn sparse(draw: &mut Draw, bits: &[u64]) -> u64 {
    let mut flags = bits.iter().filter(|_| draw.chance(350)).fold(0, |sum, bit| sum | bit);
    if draw.chance(80) {
        flags |= 1 << draw.below(64);
    }
    flags
}
