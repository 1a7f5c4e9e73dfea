//! Chains meet their events, whichever comes first.

use faultless_trace::{CallEnter, CallExit, Fault, Side};

use super::*;

const OPTIONS: StackOptions = StackOptions { method: StackMethod::FramePointers, copied_bytes: 0, fault_period: 7 };

fn event(kind: EventKind) -> Event {
    Event { thread: 0, time_ns: 0, on_cpu_ns: 0, kind }
}

fn enter() -> Event {
    event(EventKind::CallEnter(CallEnter { call: Call::Mmap, args: [0; 6] }))
}

fn exit() -> Event {
    event(EventKind::CallExit(CallExit { call: Call::Mmap, result: 0 }))
}

fn fault(address: u64) -> Event {
    event(EventKind::Fault(Fault { address, ip: 1, error_code: 6, side: Side::User }))
}

fn caught(of: Of, addresses: &[u64]) -> Caught {
    Caught { of, stack: Stack::Followed(addresses.to_vec()) }
}

#[test]
fn a_chain_meets_its_event_before_and_behind_it_and_no_other() {
    let (mut keeper, code) = (Keeper::new(OPTIONS), Code::default());
    keeper.pass(&enter());
    keeper.take(0, &code, &caught(Of::Call(Call::Mmap), &[3, 2, 1]));
    keeper.pass(&exit());
    keeper.take(0, &code, &caught(Of::Call(Call::Mmap), &[4, 2, 1]));
    keeper.pass(&enter());
    keeper.pass(&exit());
    // Its chain found no room, and the next one is of another event.
    keeper.pass(&enter());
    keeper.pass(&exit());
    keeper.pass(&fault(0x5000));
    keeper.pass(&fault(0x6000));
    keeper.take(0, &code, &caught(Of::Fault { address: 0x6000 }, &[3, 2, 1]));
    let stacks = keeper.finish(2);
    let events: Vec<_> = stacks.samples.iter().map(|sample| sample.event).collect();
    assert_eq!((events, stacks.lost), (vec![0, 2, 7], 2));
    assert_eq!(stacks.check(0, 8), Ok(()));
    assert_eq!(stacks.samples[0].chain, stacks.samples[2].chain, "a chain is kept once");
    assert_eq!((stacks.chains.len(), stacks.frames.len()), (4, 4));
    let addresses: Vec<_> = stacks.frames_of(stacks.samples[1].chain).map(|frame| frame.address).collect();
    assert_eq!(addresses, [4, 2, 1]);
}

#[test]
fn a_chain_that_finds_no_event_is_dropped() {
    let (mut keeper, code) = (Keeper::new(OPTIONS), Code::default());
    keeper.take(0, &code, &caught(Of::Fault { address: 0x5000 }, &[1]));
    keeper.pass(&fault(0x6000));
    keeper.pass(&fault(0x5000));
    assert_eq!(keeper.finish(0).samples, []);
}
