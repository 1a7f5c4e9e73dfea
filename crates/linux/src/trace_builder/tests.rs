//! Stories told from records made by hand, for what real programs do too rarely to wait for.

use faultless_trace::Checker;

use super::joined::LATE_COPY_NS;
use super::*;
use crate::files::Identity;

const ROOT: u32 = 10;

/// Records made by hand, and what came of them.
struct Told {
    summary: Summary,
    events: Vec<Event>,
}

impl Told {
    /// Returns thread and kind of each event.
    fn kinds(&self) -> Vec<(ThreadIndex, EventKind)> {
        self.events.iter().map(|event| (event.thread, event.kind)).collect()
    }

    /// Checks the invariants that a trace without losses promises.
    fn check(&self) {
        assert_eq!(self.summary.lost, 0);
        let header = faultless_trace::Header { pace: Pace::Stored, time_unit_ns: 10, ..Default::default() };
        let mut checker = Checker::new(&header, self.summary.threads.len(), self.summary.files.len());
        self.events.iter().for_each(|event| checker.admit(event).expect("the invariants hold"));
    }
}

fn tell(mode: Mode, records: Vec<Record>) -> Told {
    let mut builder = TraceBuilder::new(Setting { root: ROOT, mode, pace: Pace::Stored, time_unit_ns: 10 }, None);
    let mut events = Vec::new();
    for record in records {
        builder.take(record, &mut |event| events.push(event));
    }
    let summary = builder.finish(0, &mut |event| events.push(event));
    Told { summary, events }
}

fn record(tid: u32, time_ns: u64, body: Body) -> Record {
    Record { event: 0, tid, time_ns, bytes: 0, body }
}

fn exec(tid: u32, time_ns: u64) -> Record {
    record(tid, time_ns, Body::Named { tid, is_exec: true, name: format!("program {tid}") })
}

fn sample(tid: u32, time_ns: u64, sample: Sample) -> Record {
    record(tid, time_ns, Body::Sample(Context { outer_tid: 1000 + tid, is_interrupt: false }, sample))
}

fn fault(tid: u32, time_ns: u64) -> Record {
    sample(tid, time_ns, Sample::UserFault { address: 0x5000, ip: 0x400, error_code: 6 })
}

fn fork(parent: u32, pid: u32, tid: u32, time_ns: u64) -> Record {
    record(parent, time_ns, Body::Forked(Forked { pid, tid, parent_pid: ROOT, parent_tid: parent }))
}

fn new_task(parent: u32, tid: u32, time_ns: u64) -> Record {
    let flags = CloneTask::VM | CloneTask::THREAD;
    sample(parent, time_ns, Sample::NewTask { outer_tid: 1000 + tid, flags })
}

fn is_fault(kind: &EventKind) -> bool {
    matches!(kind, EventKind::Fault(_))
}

#[test]
fn nothing_counts_before_the_program_begins() {
    let told = tell(Mode::Privileged, vec![fault(ROOT, 100), exec(99, 150), exec(ROOT, 200), fault(ROOT, 345)]);
    told.check();
    assert_eq!(told.events.len(), 2);
    assert_eq!((told.events[0].time_ns, told.events[0].kind), (0, EventKind::Exec));
    assert_eq!((told.events[1].time_ns, told.events[1].on_cpu_ns), (140, 140), "rounded down to the unit");
}

#[test]
fn a_threads_events_that_arrive_before_its_making_wait_for_it() {
    let records = vec![
        exec(ROOT, 100),
        record(11, 5000, Body::SwitchedIn),
        fault(11, 5010),
        fork(ROOT, ROOT, 11, 5020),
        new_task(ROOT, 11, 5030),
        fault(11, 5040),
    ];
    let told = tell(Mode::Privileged, records);
    told.check();
    let threads: Vec<_> = told.events.iter().map(|event| event.thread).collect();
    assert_eq!(threads, [0, 0, 1, 1, 1]);
    assert!(matches!(told.events[1].kind, EventKind::Clone(CloneTask { child: 1, .. })));
    assert_eq!(told.summary.threads[1].name, "program 10", "a thread begins with its maker's name");
}

#[test]
fn a_thread_whose_making_was_lost_marks_the_trace() {
    let told = tell(Mode::Privileged, vec![exec(ROOT, 100), fault(11, 200), fault(ROOT, 2_000_000)]);
    assert_eq!(told.summary.lost, 1);
    assert_eq!(told.events.iter().filter(|event| event.thread == 1).count(), 1);
    let told = tell(Mode::Privileged, vec![exec(ROOT, 100), fork(ROOT, ROOT, 11, 200), fault(11, 300)]);
    assert_eq!(told.summary.lost, 1, "the clone's flags were lost");
    assert_eq!(told.summary.threads.len(), 2);
    let told = tell(Mode::Privileged, vec![exec(ROOT, 100), new_task(ROOT, 11, 200)]);
    assert_eq!(told.summary.lost, 1, "the fork was lost");
}

#[test]
fn switching_after_the_end_is_no_life() {
    let end = record(ROOT, 200, Body::Exited { tid: ROOT });
    let switch = record(ROOT, 210, Body::SwitchedOut { is_preempted: false });
    let told = tell(Mode::Privileged, vec![exec(ROOT, 100), end, switch]);
    told.check();
    assert_eq!(told.kinds(), [(0, EventKind::Exec), (0, EventKind::Exit)]);
}

#[test]
fn a_number_that_is_used_again_names_a_new_thread() {
    let mut records = vec![exec(ROOT, 100)];
    for time in [200, 400] {
        records.extend([fork(ROOT, 11, 11, time), new_task(ROOT, 11, time + 10), fault(11, time + 20)]);
        records.push(record(11, time + 30, Body::Exited { tid: 11 }));
    }
    let told = tell(Mode::Privileged, records);
    told.check();
    assert_eq!(told.summary.threads.len(), 3);
    let faults: Vec<_> = told.events.iter().filter(|event| is_fault(&event.kind)).map(|event| event.thread).collect();
    assert_eq!(faults, [1, 2]);
}

#[test]
fn exec_outside_the_first_thread_takes_over_the_process_number() {
    let records = vec![
        exec(ROOT, 100),
        fork(ROOT, ROOT, 11, 200),
        new_task(ROOT, 11, 210),
        record(ROOT, 300, Body::Exited { tid: ROOT }),
        exec(ROOT, 400),
        fault(ROOT, 500),
    ];
    let told = tell(Mode::Privileged, records);
    told.check();
    assert_eq!(told.kinds()[3], (1, EventKind::Exec));
    assert!(told.events[4].thread == 1 && is_fault(&told.events[4].kind));
}

#[test]
fn what_a_thread_does_under_the_process_number_before_its_exec_is_told_is_its_own() {
    let records = vec![
        exec(ROOT, 100),
        fork(ROOT, ROOT, 11, 200),
        new_task(ROOT, 11, 210),
        record(ROOT, 300, Body::Exited { tid: ROOT }),
        record(ROOT, 350, Body::SwitchedIn),
        sample(ROOT, 400, Sample::Waking { outer_tid: 77 }),
        record(ROOT, 450, Body::SwitchedOut { is_preempted: true }),
        record(ROOT, 9_000_000, Body::SwitchedIn),
        exec(ROOT, 9_000_100),
    ];
    let told = tell(Mode::Privileged, records);
    told.check();
    let preempted = EventKind::SwitchOut(SwitchReason::Preempted);
    let expected = [EventKind::SwitchIn, preempted, EventKind::SwitchIn, EventKind::Exec].map(|kind| (1, kind));
    assert_eq!(told.kinds()[3..], expected);
}

#[test]
fn a_call_that_was_refused_or_is_no_memory_call_is_left_out() {
    let enter = |number, first| Sample::Enter { number, args: [first, 1, 2, 3, 4, 5] };
    let exit = |number| Sample::Exit { number, result: -1 };
    let records = vec![
        exec(ROOT, 100),
        sample(ROOT, 200, exit(libc::SYS_mprotect)),
        sample(ROOT, 210, enter(libc::SYS_prctl, 15)),
        sample(ROOT, 220, exit(libc::SYS_prctl)),
        sample(ROOT, 230, enter(libc::SYS_brk, 7)),
        sample(ROOT, 240, exit(libc::SYS_brk)),
    ];
    let told = tell(Mode::Privileged, records);
    told.check();
    let enter = CallEnter { call: Call::Brk, args: [7, 0, 0, 0, 0, 0] };
    let exit = CallExit { call: Call::Brk, result: -1 };
    assert_eq!(told.kinds()[1..], [(0, EventKind::CallEnter(enter)), (0, EventKind::CallExit(exit))]);
}

#[test]
fn a_task_that_was_not_made_is_a_call_that_failed() {
    let exit = |number, result| Sample::Exit { number, result };
    let records = vec![
        exec(ROOT, 100),
        sample(ROOT, 200, exit(libc::SYS_clone, 7)),
        sample(ROOT, 210, exit(libc::SYS_clone3, -11)),
        sample(ROOT, 220, exit(libc::SYS_getpid, -11)),
    ];
    let told = tell(Mode::Privileged, records);
    told.check();
    let (enter, exit) = (CallEnter { call: Call::Clone, args: [0; 6] }, CallExit { call: Call::Clone, result: -11 });
    assert_eq!(told.kinds()[1..], [(0, EventKind::CallEnter(enter)), (0, EventKind::CallExit(exit))]);
}

#[test]
fn a_call_inside_a_call_marks_the_trace() {
    let enter = Sample::Enter { number: libc::SYS_brk, args: [0; 6] };
    let told = tell(Mode::Privileged, vec![exec(ROOT, 100), sample(ROOT, 200, enter), sample(ROOT, 300, enter)]);
    assert_eq!(told.summary.lost, 1);
}

#[test]
fn a_32_bit_programs_calls_are_not_misread() {
    let vdso = |start| {
        let identity = Identity { major: 0, minor: 0, inode: 0, generation: 0 };
        let (len_bytes, file_offset, prot, flags, path) = (8192, start, 5, 2, "[vdso]".into());
        let mapping = Mapping { start, len_bytes, file_offset, prot, flags, identity, path };
        record(ROOT, 150, Body::Mapped(Box::new(mapping)))
    };
    let link = Sample::Enter { number: libc::SYS_mmap, args: [0; 6] };
    let told = tell(Mode::Privileged, vec![exec(ROOT, 100), vdso(0xf7f0_0000), sample(ROOT, 200, link)]);
    told.check();
    assert!(told.summary.has_foreign_calls);
    assert_eq!(told.events.len(), 2);
    let told = tell(Mode::Privileged, vec![exec(ROOT, 100), vdso(0x7fff_0000_0000), sample(ROOT, 200, link)]);
    assert!(!told.summary.has_foreign_calls);
    assert_eq!(told.events.len(), 3);
}

#[test]
fn time_off_the_cpu_is_not_counted() {
    let records = vec![
        exec(ROOT, 0),
        fault(ROOT, 100),
        record(ROOT, 130, Body::SwitchedOut { is_preempted: false }),
        record(ROOT, 5000, Body::SwitchedIn),
        fault(ROOT, 5070),
    ];
    let told = tell(Mode::Privileged, records);
    told.check();
    let on_cpu: Vec<_> = told.events.iter().map(|event| event.on_cpu_ns).collect();
    assert_eq!(on_cpu, [0, 100, 30, 0, 70]);
}

#[test]
fn wakes_count_between_recorded_threads_and_never_from_interrupts() {
    let waking = |outer_tid, is_interrupt| {
        let context = Context { outer_tid: 1000 + ROOT, is_interrupt };
        record(ROOT, 300, Body::Sample(context, Sample::Waking { outer_tid }))
    };
    let records = vec![
        exec(ROOT, 100),
        fork(ROOT, ROOT, 11, 200),
        new_task(ROOT, 11, 210),
        waking(1011, false),
        waking(1011, true),
        waking(77, false),
        waking(1000 + ROOT, false),
    ];
    let told = tell(Mode::Privileged, records);
    told.check();
    let wakes: Vec<_> = told.kinds().into_iter().filter(|(_, kind)| matches!(kind, EventKind::Wake { .. })).collect();
    assert_eq!(wakes, [(0, EventKind::Wake { woken: 1 })]);
}

#[test]
fn a_thread_that_told_nothing_yet_is_woken_by_its_number() {
    let waking = |time_ns, numbers: u32| {
        let context = Context { outer_tid: numbers + ROOT, is_interrupt: false };
        of(1, record(ROOT, time_ns, Body::Sample(context, Sample::Waking { outer_tid: numbers + 11 })))
    };
    for (numbers, woken) in [(0, vec![(0, EventKind::Wake { woken: 1 })]), (1000, Vec::new())] {
        let told = tell_of(&[ROOT, 11], [].into(), Vec::new(), vec![waking(BEGAN_NS + 100, numbers)]);
        assert_eq!(told.kinds(), woken, "the outermost namespace's numbers are {numbers} more");
    }
}

#[test]
fn without_privilege_a_fork_needs_no_tracepoint() {
    let records = vec![exec(ROOT, 100), fork(ROOT, ROOT, 11, 200), fork(ROOT, 12, 12, 300)];
    let told = tell(Mode::Unprivileged, records);
    told.check();
    let shares = |place: usize| match told.events[place].kind {
        EventKind::Clone(clone) => clone.shares_memory(),
        _ => panic!("a clone is expected"),
    };
    assert_eq!((shares(1), shares(2)), (true, false));
}

#[test]
fn lost_and_unreadable_records_are_counted() {
    let lost = record(ROOT, 200, Body::Lost { records: 5 });
    let told = tell(Mode::Privileged, vec![exec(ROOT, 100), lost, record(0, 0, Body::Unreadable)]);
    assert_eq!(told.summary.lost, 6);
}

/// When all events of the joined thread were open, when it was listed with all others, and when its recording begins.
const OPEN_NS: u64 = 8_000;
const COMPLETE_NS: u64 = 9_000;
const BEGAN_NS: u64 = 10_000;

/// Tells the recording of one joined thread, to which event 1 belongs; event 2 was opened for one that ended before it
/// could be listed.
fn tell_joined(records: Vec<Record>) -> Told {
    tell_with(Vec::new(), records)
}

/// The same, of a thread that was seen asleep in a munmap.
fn tell_asleep(records: Vec<Record>) -> Told {
    tell_of(&[ROOT], [(ROOT, (libc::SYS_munmap, [7, 8, 9, 0, 0, 0]))].into(), Vec::new(), records)
}

/// The same, with others that were joined later.
fn tell_with(late: Vec<crate::company::Company>, records: Vec<Record>) -> Told {
    tell_of(&[ROOT], [].into(), late, records)
}

fn tell_of(
    tids: &[u32],
    inside: HashMap<u32, crate::target::NumberedCall>,
    late: Vec<crate::company::Company>,
    records: Vec<Record>,
) -> Told {
    use crate::company::Company;
    use crate::joining::{Joined, Member};
    use crate::snapshot::Seen;

    let member = |&tid| Member { pid: ROOT, tid, name: "old".into() };
    let owners = [(1, ROOT), (2, 77)].into_iter().collect();
    let joined = Joined {
        open_ns: OPEN_NS,
        complete_ns: COMPLETE_NS,
        began_ns: BEGAN_NS,
        members: tids.iter().map(member).collect(),
        owners,
        inside,
    };
    let company = Company { joined, seen: vec![Seen { pid: ROOT, ..Seen::default() }], late };
    let setting = Setting { root: 0, mode: Mode::Privileged, pace: Pace::Stored, time_unit_ns: 10 };
    let (mut builder, mut events) = (TraceBuilder::joining(setting, &company, None), Vec::new());
    records.into_iter().for_each(|record| builder.take(record, &mut |event| events.push(event)));
    Told { summary: builder.finish(0, &mut |event| events.push(event)), events }
}

fn of(event: u64, record: Record) -> Record {
    Record { event, ..record }
}

/// Returns whose faults a recording has.
fn faulters(told: &Told) -> Vec<u32> {
    let faulted = told.events.iter().filter(|event| is_fault(&event.kind));
    faulted.map(|event| told.summary.threads[event.thread as usize].tid).collect()
}

#[test]
fn a_thread_made_once_all_events_were_open_is_followed_once_and_nothing_counts_as_lost() {
    let told = tell_joined(vec![
        of(1, fault(ROOT, BEGAN_NS - 500)),
        of(1, fork(ROOT, ROOT, 77, BEGAN_NS - 400)),
        of(1, new_task(ROOT, 77, BEGAN_NS - 390)),
        of(2, fault(77, BEGAN_NS + 10)),
        of(1, fault(77, BEGAN_NS + 10)),
        of(1, fork(ROOT, ROOT, 78, BEGAN_NS + 100)),
        of(1, new_task(ROOT, 78, BEGAN_NS + 110)),
        of(1, fault(78, BEGAN_NS + 200)),
        of(1, fault(ROOT, BEGAN_NS + 5_000_000)),
    ]);
    assert_eq!(faulters(&told), [77, 78, ROOT], "one fault came before, and one was told of twice");
    assert_eq!(told.summary.lost, 0);
}

#[test]
fn a_thread_made_before_all_events_were_open_is_no_part_of_the_story() {
    let enter = Sample::Enter { number: libc::SYS_brk, args: [0; 6] };
    let told = tell_joined(vec![
        of(1, fork(ROOT, ROOT, 77, COMPLETE_NS - 400)),
        of(1, sample(77, COMPLETE_NS - 300, enter)),
        of(1, sample(77, COMPLETE_NS - 200, enter)),
        of(1, fault(77, BEGAN_NS + 10)),
        of(1, record(77, BEGAN_NS + 20, Body::Exited { tid: 77 })),
        of(1, fault(ROOT, BEGAN_NS + 5_000_000)),
    ]);
    assert_eq!((faulters(&told), told.summary.lost, told.summary.threads.len()), (vec![ROOT], 0, 1));
}

/// The flags of the fork that made a process: a process's own.
fn flags(time_ns: u64, pid: u32) -> Record {
    of(1, sample(ROOT, time_ns, Sample::NewTask { outer_tid: 1000 + pid, flags: 0 }))
}

#[test]
fn a_copy_of_memory_that_was_not_read_yet_is_not_followed_but_a_later_one_is() {
    let late_ns = BEGAN_NS + LATE_COPY_NS;
    let told = tell_joined(vec![
        of(1, fork(ROOT, 80, 80, BEGAN_NS + 100)),
        flags(BEGAN_NS + 110, 80),
        of(1, fault(80, BEGAN_NS + 200)),
        of(1, fork(ROOT, 81, 81, late_ns + 100)),
        flags(late_ns + 110, 81),
        of(1, fault(81, late_ns + 200)),
    ]);
    assert_eq!((faulters(&told), told.summary.lost), (vec![81], 0));
}

#[test]
fn a_copy_of_a_program_that_began_in_the_story_is_followed_at_once() {
    let told = tell_joined(vec![
        of(1, exec(ROOT, BEGAN_NS + 50)),
        of(1, fork(ROOT, 80, 80, BEGAN_NS + 100)),
        flags(BEGAN_NS + 110, 80),
        of(1, fault(80, BEGAN_NS + 200)),
    ]);
    assert_eq!((faulters(&told), told.summary.lost), (vec![80], 0));
}

#[test]
fn a_copy_that_is_not_followed_is_from_its_exec_on() {
    let told = tell_joined(vec![
        of(1, fork(ROOT, 80, 80, BEGAN_NS + 100)),
        flags(BEGAN_NS + 110, 80),
        of(1, fault(80, BEGAN_NS + 200)),
        of(1, exec(80, BEGAN_NS + 300)),
        of(1, fault(80, BEGAN_NS + 400)),
    ]);
    assert_eq!((faulters(&told), told.summary.lost), (vec![80], 0), "one fault came before the exec");
    assert!(told.events.iter().any(|event| event.kind == EventKind::Exec));
}

#[test]
fn a_story_begins_with_the_calls_that_its_threads_are_inside_of() {
    let enter = |time_ns, number| of(1, sample(ROOT, time_ns, Sample::Enter { number, args: [7, 8, 9, 0, 0, 0] }));
    let exit = |time_ns, number| of(1, sample(ROOT, time_ns, Sample::Exit { number, result: 0 }));
    let told = tell_joined(vec![
        enter(COMPLETE_NS + 100, libc::SYS_mprotect),
        exit(COMPLETE_NS + 200, libc::SYS_mprotect),
        enter(COMPLETE_NS + 300, libc::SYS_munmap),
        exit(BEGAN_NS + 100, libc::SYS_munmap),
    ]);
    let entered = CallEnter { call: Call::Munmap, args: [7, 8, 0, 0, 0, 0] };
    let left = CallExit { call: Call::Munmap, result: 0 };
    assert_eq!(told.kinds(), [(0, EventKind::CallEnter(entered)), (0, EventKind::CallExit(left))]);
    assert_eq!((told.events[0].time_ns, told.summary.lost), (0, 0));
    let told = tell_joined(vec![enter(OPEN_NS - 300, libc::SYS_munmap), exit(BEGAN_NS + 100, libc::SYS_munmap)]);
    assert_eq!(told.kinds(), [(0, EventKind::CallExit(left))], "its exit might not have been seen");
    let told = tell_asleep(vec![exit(BEGAN_NS + 100, libc::SYS_munmap)]);
    assert_eq!(told.kinds(), [(0, EventKind::CallEnter(entered)), (0, EventKind::CallExit(left))]);
    let told = tell_asleep(vec![exit(OPEN_NS + 100, libc::SYS_munmap), of(1, fault(ROOT, BEGAN_NS + 100))]);
    assert_eq!(told.kinds().len(), 1, "it had left the call before the beginning: {:?}", told.kinds());
}

/// A process of one thread that was joined this long after the others.
fn newcomer(pid: u32, after_ns: u64) -> crate::company::Company {
    use crate::joining::{Joined, Member};
    use crate::snapshot::Seen;

    let (complete_ns, began_ns) = (COMPLETE_NS + after_ns, BEGAN_NS + after_ns);
    let members = vec![Member { pid, tid: pid, name: "new".into() }];
    let window = faultless_trace::Window { began_ns, ended_ns: began_ns + 100 };
    let seen = vec![Seen { pid, window, ..Seen::default() }];
    crate::company::Company {
        joined: Joined { open_ns: complete_ns, complete_ns, began_ns, members, ..Joined::default() },
        seen,
        late: vec![],
    }
}

const LATER_NS: u64 = 3_000_000;

#[test]
fn who_is_joined_later_is_followed_from_then_on() {
    let enter = Sample::Enter { number: libc::SYS_munmap, args: [7, 8, 0, 0, 0, 0] };
    let told = tell_with(
        vec![newcomer(90, LATER_NS)],
        vec![
            fault(90, BEGAN_NS + 100),
            fault(90, COMPLETE_NS + LATER_NS - 100),
            sample(90, COMPLETE_NS + LATER_NS + 100, enter),
            fault(90, COMPLETE_NS + LATER_NS + 200),
            fork(90, 90, 91, COMPLETE_NS + LATER_NS + 300),
            new_task(90, 91, COMPLETE_NS + LATER_NS + 310),
            fault(91, COMPLETE_NS + LATER_NS + 400),
            of(1, fault(ROOT, BEGAN_NS + LATER_NS - 50)),
            fault(90, BEGAN_NS + LATER_NS + 100),
            fork(90, 92, 92, BEGAN_NS + LATER_NS + 200),
            sample(90, BEGAN_NS + LATER_NS + 210, Sample::NewTask { outer_tid: 1092, flags: 0 }),
            fault(92, BEGAN_NS + LATER_NS + 300),
        ],
    );
    assert_eq!(faulters(&told), [ROOT, 90], "the last one's memory was copied while it was read");
    assert_eq!(told.summary.lost, 0);
    let entered = told.events.iter().find(|event| matches!(event.kind, EventKind::CallEnter(_))).expect("it is inside");
    assert_eq!((told.summary.threads[entered.thread as usize].tid, entered.time_ns), (90, LATER_NS + 100));
    let [_, late] = &told.summary.snapshot.spaces[..] else { panic!("two were joined") };
    assert_eq!((late.threads.as_slice(), late.joined_ns, late.window.ended_ns), (&[1][..], LATER_NS, LATER_NS + 100));
}

#[test]
fn who_is_made_in_memory_that_is_still_to_be_read_begins_with_the_others() {
    const THREAD: u64 = CloneTask::VM | CloneTask::THREAD;
    for (whose, event, after_ns) in [(ROOT, 1, 0), (90, 0, LATER_NS)] {
        let (complete_ns, began_ns) = (COMPLETE_NS + after_ns, BEGAN_NS + after_ns);
        let made = |pid, tid, time_ns, flags| {
            let new_task = Sample::NewTask { outer_tid: 1000 + tid, flags };
            [fork(whose, pid, tid, time_ns), sample(whose, time_ns + 1, new_task)]
        };
        let enter = Sample::Enter { number: libc::SYS_munmap, args: [7, 8, 0, 0, 0, 0] };
        let exit = Sample::Exit { number: libc::SYS_munmap, result: 0 };
        let records: [Vec<Record>; 8] = [
            // What the first unmaps, one that was found may map anew, before anybody tells of it.
            made(whose, 91, complete_ns + 100, THREAD).into(),
            vec![sample(91, complete_ns + 110, enter), sample(91, complete_ns + 120, exit)],
            vec![fault(91, complete_ns + 130), record(91, complete_ns + 140, Body::Exited { tid: 91 })],
            // The second is inside of a call when the memory's part begins.
            made(whose, 92, complete_ns + 200, THREAD).into(),
            vec![sample(92, complete_ns + 210, enter)],
            // The third leaves for memory of its own.
            made(93, 93, complete_ns + 300, CloneTask::VM).into(),
            vec![fault(93, complete_ns + 310), exec(93, complete_ns + 320), fault(93, complete_ns + 330)],
            vec![sample(92, began_ns + 100, exit), fault(92, began_ns + 200)],
        ];
        let records = records.into_iter().flatten().map(|record| of(event, record)).collect();
        let told = tell_with(vec![newcomer(90, LATER_NS)], records);
        assert_eq!((faulters(&told), told.summary.lost), (vec![93, 92], 0));
        let is_call = |event: &&Event| matches!(event.kind, EventKind::CallEnter(_) | EventKind::CallExit(_));
        let who = |event: &Event| told.summary.threads[event.thread as usize].tid;
        let calls: Vec<_> = told.events.iter().filter(is_call).map(who).collect();
        assert_eq!(calls, [92, 92]);
        let ends = told.events.iter().filter(|event| event.kind == EventKind::Exit);
        assert_eq!(ends.map(who).collect::<Vec<_>>(), [91]);
    }
}

#[test]
fn who_is_in_the_story_already_is_not_joined_again() {
    let told = tell_with(
        vec![newcomer(80, LATER_NS), newcomer(81, 2 * LATER_NS)],
        vec![
            of(1, fork(ROOT, 80, 80, BEGAN_NS + 100)),
            of(1, sample(ROOT, BEGAN_NS + 110, Sample::NewTask { outer_tid: 1080, flags: 0 })),
            of(1, exec(80, BEGAN_NS + 200)),
            of(1, fault(80, COMPLETE_NS + LATER_NS + 100)),
            of(1, fault(80, BEGAN_NS + LATER_NS + 100)),
        ],
    );
    assert_eq!(faulters(&told), [80, 80]);
    assert_eq!(
        (told.summary.snapshot.spaces.len(), told.summary.threads.len()),
        (1, 2),
        "the second came after the end"
    );
}
