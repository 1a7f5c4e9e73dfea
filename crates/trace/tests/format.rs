//! The file format: what was written comes back, and whatever happens to a file is noticed.

mod support;

use faultless_trace::*;
use proptest::prelude::*;
use support::{any_trace, bytes_of, header, small};

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_was_written_comes_back(trace in any_trace(300)) {
        prop_assert_eq!(Trace::read(&bytes_of(&trace)[..]).unwrap(), trace);
    }

    #[test]
    fn arbitrary_bytes_behind_the_magic_are_an_error(tail in prop::collection::vec(any::<u8>(), 0..300)) {
        let mut bytes = bytes_of(&small())[..16].to_vec();
        bytes.extend(tail);
        prop_assert!(Trace::read(&bytes[..]).is_err());
    }
}

#[test]
fn one_event_of_every_kind_comes_back() {
    let trace = small();
    assert_eq!(Trace::read(&bytes_of(&trace)[..]).unwrap(), trace);
}

#[test]
fn a_trace_of_many_blocks_comes_back() {
    let trace = long(3 * 4096 + 17);
    let bytes = bytes_of(&trace);
    assert_eq!(Trace::read(&bytes[..]).unwrap(), trace);
}

#[test]
fn every_changed_byte_is_noticed() {
    let trace = small();
    let bytes = bytes_of(&trace);
    for place in 0..bytes.len() {
        for mask in [0x01, 0x80, 0xff] {
            let mut changed = bytes.clone();
            changed[place] ^= mask;
            let prefix = Trace::read_prefix(&changed[..]);
            assert!(prefix.error.is_some(), "byte {place} ^ {mask:#x} went unnoticed");
            assert!(trace.events.starts_with(&prefix.trace.events), "byte {place} ^ {mask:#x} gave false events");
        }
    }
}

#[test]
fn every_cut_is_noticed() {
    let trace = small();
    let bytes = bytes_of(&trace);
    for len in 0..bytes.len() {
        let prefix = Trace::read_prefix(&bytes[..len]);
        match prefix.error.expect("a cut trace is an error") {
            ReadError::Empty => assert_eq!(len, 0),
            ReadError::Cut { offset } => assert_eq!(offset, len as u64),
            other => panic!("cut at {len}: {other}"),
        }
        assert!(trace.events.starts_with(&prefix.trace.events));
    }
}

#[test]
fn appended_bytes_are_noticed() {
    let mut bytes = bytes_of(&small());
    let end = bytes.len() as u64;
    bytes.push(0);
    assert!(matches!(Trace::read(&bytes[..]), Err(ReadError::Damaged { offset, .. }) if offset == end));
}

#[test]
fn all_events_before_the_damaged_block_are_read() {
    let trace = long(3 * 4096);
    let mut bytes = bytes_of(&trace);
    let place = bytes.len() - 100;
    bytes[place] ^= 1;
    let prefix = Trace::read_prefix(&bytes[..]);
    assert!(matches!(prefix.error, Some(ReadError::Damaged { .. })));
    assert_eq!(prefix.trace.events, trace.events[..2 * 4096]);
    assert_eq!((prefix.trace.header, prefix.trace.threads), (trace.header, trace.threads));
}

#[test]
fn dropped_doubled_and_swapped_blocks_are_noticed() {
    let bytes = bytes_of(&long(3 * 4096));
    let blocks = blocks_of(&bytes);
    let events: Vec<_> = (0..blocks.len()).filter(|&place| bytes[blocks[place].start] == b'E').collect();
    let rebuilt = |order: &[usize]| {
        let mut out = bytes[..16].to_vec();
        order.iter().for_each(|&place| out.extend_from_slice(&bytes[blocks[place].clone()]));
        Trace::read(&out[..])
    };
    let whole: Vec<_> = (0..blocks.len()).collect();
    assert!(rebuilt(&whole).is_ok(), "the blocks in their order are the trace");
    let mut dropped = whole.clone();
    dropped.remove(events[1]);
    let mut doubled = whole.clone();
    doubled.insert(events[1], events[1]);
    let mut swapped = whole.clone();
    swapped.swap(events[1], events[2]);
    for order in [dropped, doubled, swapped] {
        assert!(matches!(rebuilt(&order), Err(ReadError::Damaged { .. })), "order {order:?} went unnoticed");
    }
}

#[test]
fn foreign_empty_and_newer_files_are_told_apart() {
    assert!(matches!(Trace::read(&b""[..]), Err(ReadError::Empty)));
    assert!(matches!(Trace::read(&b"\x7fELF and so on and on"[..]), Err(ReadError::Foreign)));
    let mut newer = bytes_of(&small());
    newer[8..10].copy_from_slice(&(VERSION + 1).to_le_bytes());
    let sum = crc32fast::hash(&newer[..12]);
    newer[12..16].copy_from_slice(&sum.to_le_bytes());
    assert!(matches!(Trace::read(&newer[..]), Err(ReadError::Newer { version }) if version == VERSION + 1));
}

#[test]
fn a_huge_length_with_a_right_checksum_is_refused_before_anything_is_read_or_allocated() {
    for (stored, raw) in [(u32::MAX, 10), (10, u32::MAX), (10, (16 << 20) + 1)] {
        let mut bytes = bytes_of(&small())[..16].to_vec();
        let mut head = vec![b'H'];
        head.extend_from_slice(&u32::to_le_bytes(stored));
        head.extend_from_slice(&u32::to_le_bytes(raw));
        head.extend_from_slice(&[0; 4]);
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&bytes[12..16]);
        hasher.update(&head);
        head.extend_from_slice(&hasher.finalize().to_le_bytes());
        bytes.extend(head);
        match Trace::read(&bytes[..]) {
            Err(ReadError::Damaged { offset: 16, part }) => assert_eq!(part, "a block's head"),
            other => panic!("{stored} {raw}: {other:?}"),
        }
    }
}

#[test]
fn a_list_that_breaks_an_invariant_is_not_written() {
    let mut broken = Vec::new();
    let mut change = |what: &'static str, change: &dyn Fn(&mut Trace)| {
        let mut trace = small();
        change(&mut trace);
        broken.push((what, trace));
    };
    change("(I1)", &|trace| trace.events[3].time_ns = 0);
    change("(I2)", &|trace| trace.events[3].thread = 2);
    change("(I2)", &|trace| trace.events[9].kind = EventKind::Wake { woken: 9 });
    change("(I2)", &|trace| trace.files.clear());
    change("(I3)", &|trace| {
        trace.events.remove(0);
    });
    change("(I3)", &|trace| {
        trace.events.remove(5);
    });
    change("(I3)", &|trace| trace.events[9].kind = trace.events[5].kind);
    change("(I4)", &|trace| trace.events[9].kind = trace.events[8].kind);
    change("(I4)", &|trace| trace.events[5].kind = trace.events[4].kind);
    change("(I4)", &|trace| {
        trace.events[8].kind = EventKind::CallExit(CallExit { call: Call::Brk, result: 0 });
    });
    change("(I5)", &|trace| trace.events[12].kind = EventKind::Exit);
    change("(I6)", &|trace| {
        trace.events[12].kind = EventKind::CallEnter(CallEnter { call: Call::Brk, args: [0, 1, 0, 0, 0, 0] });
    });
    change("(I7)", &|trace| trace.header.pace = Pace::Absent);
    change("(I8)", &|trace| {
        trace.events[3].kind = EventKind::Fault(Fault { address: 1 << 60, ip: 0, error_code: 4, side: Side::User });
    });
    change("(I9)", &|trace| trace.events[3].on_cpu_ns += 1);
    change("(I9)", &|trace| trace.header.time_unit_ns = 1000);
    for (place, (what, trace)) in broken.iter().enumerate() {
        match trace.write(Vec::new()) {
            Err(WriteError::Inconsistent(told)) => assert!(told.what.contains(what), "{place}: {told} is not {what}"),
            other => panic!("change {place}, {what}: {other:?}"),
        }
        assert!(trace.check().is_err());
    }
}

#[test]
fn a_trace_with_losses_may_have_gaps_but_no_wild_indices() {
    let mut trace = small();
    trace.header.lost = 3;
    trace.events.remove(4);
    trace.events.remove(0);
    assert_eq!(Trace::read(&bytes_of(&trace)[..]).unwrap(), trace);
    trace.events[2].thread = 9;
    assert!(trace.write(Vec::new()).is_err());
}

#[test]
fn the_reader_hands_out_events_one_by_one() {
    let trace = long(5000);
    let bytes = bytes_of(&trace);
    let mut reader = Reader::new(&bytes[..]).unwrap();
    assert_eq!(reader.header(), &trace.header);
    assert_eq!((reader.threads(), reader.files()), (&trace.threads[..], &trace.files[..]));
    let events: Vec<_> = reader.by_ref().collect::<Result<_, _>>().unwrap();
    assert_eq!(events, trace.events);
    assert!(reader.next_event().unwrap().is_none());
}

/// Returns a trace of one thread that faults along, `nr_events` long.
fn long(nr_events: u64) -> Trace {
    let fault = |place| Fault {
        address: 0x7000_0000 + place * 4096,
        ip: 0x40_0000 + place % 7,
        error_code: 6,
        side: Side::User,
    };
    let kind = |place| if place == 0 { EventKind::Exec } else { EventKind::Fault(fault(place)) };
    let event =
        |place| Event { thread: 0, time_ns: place * place % 97 * 10 + place * 1000, on_cpu_ns: 0, kind: kind(place) };
    Trace {
        header: header(Pace::Absent),
        threads: vec![Thread { pid: 1, tid: 1, name: "one".into() }],
        events: (0..nr_events).map(event).collect(),
        ..Trace::default()
    }
}

/// Returns where each block stands, heads included.
fn blocks_of(bytes: &[u8]) -> Vec<std::ops::Range<usize>> {
    let mut blocks = Vec::new();
    let mut place = 16;
    while place < bytes.len() {
        let stored = u32::from_le_bytes(bytes[place + 1..place + 5].try_into().unwrap()) as usize;
        blocks.push(place..place + 17 + stored);
        place += 17 + stored;
    }
    blocks
}

#[test]
fn a_snapshot_comes_back_and_its_threads_run_from_the_beginning() {
    let trace = joined();
    let bytes = bytes_of(&trace);
    assert_eq!(bytes[8], 2, "a trace with a snapshot is of version 2");
    assert_eq!(Trace::read(&bytes[..]).unwrap(), trace);
    assert_eq!(bytes_of(&small())[8], 1, "readers of version 1 still read a plain trace");
}

#[test]
fn only_a_thread_of_the_snapshot_may_leave_a_call_that_it_never_entered_and_only_once() {
    let mut trace = joined();
    trace.events.push(trace.events[0]);
    assert!(trace.check().is_err(), "its second exit lacks its enter");
    let mut trace = joined();
    trace.snapshot.spaces[0].threads.clear();
    assert!(trace.check().is_err(), "nobody says that thread 0 runs");
    let mut trace = joined();
    trace.snapshot.spaces[0].areas[1].start = 0;
    assert!(matches!(trace.write(Vec::new()), Err(WriteError::Inconsistent(_))), "areas overlap");
}

#[test]
fn a_process_that_was_joined_later_comes_back() {
    let mut trace = joined();
    let window = Window { began_ns: 2500, ended_ns: 2600 };
    let late = SpaceState { threads: vec![1], joined_ns: 2400, window, ..SpaceState::default() };
    trace.threads.push(Thread { pid: 2, tid: 2, name: "two".into() });
    trace.snapshot.spaces.push(late);
    let bytes = bytes_of(&trace);
    assert_eq!(bytes[8], 4, "readers of version 3 know no late space");
    assert_eq!(Trace::read(&bytes[..]).unwrap(), trace);
    assert_eq!((trace.snapshot.ended_ns(), trace.snapshot.spaces[1].ended_ns()), (1700, 2600));
    trace.snapshot.spaces[1].joined_ns = 2501;
    assert!(matches!(trace.write(Vec::new()), Err(WriteError::Inconsistent(_))), "it was looked at before");
}

/// Returns a trace that joined a process of one thread, which was inside a call.
fn joined() -> Trace {
    let run = |page: u64, nr_pages, state, is_huge| PageRun { start: page << 12, nr_pages, state, is_huge };
    let runs = (0..10_000).map(|place| run(16 + 2 * place, 1, PageState::ALL[place as usize % 5], place == 7));
    let areas = vec![
        Area { start: 1 << 16, end: 1 << 28, prot: 3, runs: runs.collect(), ..Area::default() },
        Area { start: 1 << 30, end: 1 << 31, flags: Area::SHARED, file_offset: 4096, ..Area::default() },
    ];
    let window = Window { began_ns: 500, ended_ns: 1700 };
    let space = SpaceState { threads: vec![0], heap: 0x1234..0x2000, joined_ns: 0, window, areas };
    let exit = EventKind::CallExit(CallExit { call: Call::Munmap, result: 0 });
    Trace {
        header: header(Pace::Absent),
        threads: vec![Thread { pid: 1, tid: 1, name: "one".into() }],
        snapshot: Snapshot { spaces: vec![space] },
        events: vec![Event { thread: 0, time_ns: 0, on_cpu_ns: 0, kind: exit }],
        ..Trace::default()
    }
}

#[test]
fn call_chains_come_back_and_old_readers_are_told_the_version() {
    let trace = with_chains();
    let bytes = bytes_of(&trace);
    assert_eq!(bytes[8], 3, "a trace with call chains is of version 3");
    let read = Trace::read(&bytes[..]).unwrap();
    assert_eq!(read, trace);
    let sample = read.stacks.samples[1];
    let names: Vec<_> = read.stacks.frames_of(sample.chain).map(|frame| frame.function.as_deref()).collect();
    assert_eq!(names, [None, Some("main")]);
}

#[test]
fn chains_that_belong_to_nothing_are_refused() {
    type Damage = fn(&mut Stacks);
    let damages: [(&str, Damage); 6] = [
        ("K1", |stacks| stacks.frames[1].file = Some(9)),
        ("K2", |stacks| stacks.chains[0].frame = 7),
        ("K2", |stacks| stacks.chains[0].caller = Some(0)),
        ("K3", |stacks| stacks.samples[0].chain = 2),
        ("K4", |stacks| stacks.samples[0].event = stacks.samples[1].event),
        ("K4", |stacks| stacks.samples[9_999].event = 1 << 40),
    ];
    for (name, damage) in damages {
        let mut trace = with_chains();
        damage(&mut trace.stacks);
        assert!(trace.check().is_err_and(|error| error.what.starts_with(name)), "{name}");
        assert!(matches!(trace.write(Vec::new()), Err(WriteError::Inconsistent(_))), "{name}");
    }
}

/// Returns a trace with more chains than one block of its table holds.
fn with_chains() -> Trace {
    let main = Frame { function: Some("main".into()), file: Some(0), address: 0x1139 };
    let sample = |place: u64| stacks::Sample {
        event: 3 * place + 1,
        chain: (place % 2) as u32,
        reach: if place.is_multiple_of(5) { stacks::Reach::Cut } else { stacks::Reach::Whole },
    };
    let stacks = Stacks {
        method: Some(stacks::StackMethod::Dwarf),
        fault_period: 101,
        lost: 3,
        frames: vec![main, Frame { address: 1 << 40, ..Frame::default() }],
        chains: vec![Chain { frame: 0, caller: None }, Chain { frame: 1, caller: Some(0) }],
        samples: (0..10_000).map(sample).collect(),
    };
    let files = vec![File { inode: 7, path: "/bin/x".into(), ..File::default() }];
    Trace { files, stacks, ..long(30_010) }
}
