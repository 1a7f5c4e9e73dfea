//! Damaged traces whose checksums are right.
//!
//! # Guarantee
//! Whatever a reader accepts obeys the format's invariants, is written and read back equal, and is planned and replayed
//! without a panic, a broken invariant of the instance, or a leak. Mismatches are to be expected.

use fastrand::Rng;
use faultless_trace::blocks::{RawBlock, put_together, take_apart};
use faultless_trace::{Trace, pair_calls};

use super::damage;
use faultless_machine::designs::DESIGNS;
use faultless_plan::{Losses, Options, Pace, plan};
use faultless_replay::patterned::{Filling, Patterned, Way};
use faultless_replay::{Checking, ReplayError, Settings, pass_natively};

/// A program with threads and children, and a process that was joined while it ran.
const GOOD: [&[u8]; 2] = [include_bytes!("seeds/program.trace"), include_bytes!("seeds/joined.trace")];

/// A trace that needs more memory is read and planned, and not replayed.
const MOST_MEMORY: u64 = 192 << 20;

const NR_CPUS: usize = 2;

pub(super) fn start() -> impl FnMut(&mut Rng) {
    let good: Vec<_> = GOOD.iter().map(|bytes| take_apart(bytes).unwrap_or_else(|error| panic!("{error}"))).collect();
    move |random: &mut Rng| {
        let (version, blocks) = &good[random.usize(0..good.len())];
        let bytes = damaged(random, *version, blocks);
        try_bytes(random, &bytes);
    }
}

fn damaged(random: &mut Rng, version: u16, blocks: &[RawBlock]) -> Vec<u8> {
    let mut blocks = blocks.to_vec();
    let at = random.usize(0..blocks.len());
    match random.u32(0..20) {
        0 => drop(blocks.remove(at)),
        1 => blocks.insert(at, blocks[at].clone()),
        2 => blocks[at].kind = random.u8(..),
        _ => damage::bytes(random, &mut blocks[at].payload),
    }
    let version = if random.u32(0..60) == 0 { random.u16(0..4) } else { version };
    let mut bytes = put_together(version, &blocks);
    if random.u32(0..20) == 0 {
        damage::bytes(random, &mut bytes);
    }
    bytes
}

/// Takes the first two bytes as the choice of a good trace and of one of its blocks, the others as what that block
/// holds.
pub(super) fn try_payload(bytes: &[u8]) {
    let [trace, block, payload @ ..] = bytes else { return };
    let (version, mut blocks) =
        take_apart(GOOD[*trace as usize % GOOD.len()]).unwrap_or_else(|error| panic!("{error}"));
    let at = *block as usize % blocks.len();
    blocks[at].payload = payload.to_vec();
    try_bytes(&mut Rng::with_seed(bytes.len() as u64), &put_together(version, &blocks));
}

fn try_bytes(random: &mut Rng, bytes: &[u8]) {
    let prefix = Trace::read_prefix(bytes);
    if let Some(error) = prefix.error {
        assert!(!error.to_string().is_empty());
        return;
    }
    let trace = prefix.trace;
    trace.check().unwrap_or_else(|error| panic!("what was read is inconsistent: {error}"));
    let mut written = Vec::new();
    trace.write(&mut written).unwrap_or_else(|error| panic!("what was read can't be written: {error}"));
    let again = Trace::read(&written[..]).unwrap_or_else(|error| panic!("what was written can't be read: {error}"));
    assert!(again == trace, "what was written and read again differs");
    assert_eq!(pair_calls(&trace.events).len(), trace.events.len());
    let pace = if random.bool() { Pace::None } else { Pace::Recorded };
    if let Ok(plan) = plan(&trace, Options { pace, losses: Losses::Allowed })
        && plan.demand.bytes() <= MOST_MEMORY
    {
        replay(random, &trace, &plan);
    }
}

/// Draws what mappings start as: now and then something else than zeros.
fn filling(random: &mut Rng) -> Option<Filling> {
    let what = Patterned { byte: random.u8(..), threshold_bytes: random.u64(0..1 << 20) };
    Way::ALL.get(random.usize(0..8)).map(|&way| Filling { way, what })
}

fn replay(random: &mut Rng, trace: &Trace, plan: &faultless_plan::Plan) {
    let settings = Settings {
        design: DESIGNS[random.usize(0..DESIGNS.len())].to_owned(),
        semaphore: "rwsem-v8".into(),
        memory_bytes: plan.demand.bytes() as usize,
        limits: trace.header.limits,
        checking: Checking::AtEnd,
        filling: filling(random),
    };
    let result = pass_natively(NR_CPUS, plan, &settings);
    if let Err(error @ (ReplayError::Broken { .. } | ReplayError::Leak { .. })) = result {
        panic!("{error}");
    }
}
