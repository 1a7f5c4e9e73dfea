//! Faults that something unseen may explain: keys, files that are cut, a `userfaultfd` or `io_uring` of the process,
//! pages that the kernel pins.

mod support;

use faultless_plan::classes::Class;
use faultless_trace::*;
use support::{PAGE, READ, Story, WRITE, WRITE_PRESENT, class, planned};

const HEAP: u64 = 0x7f00_0000_0000;
/// A store that a key forbids.
const BY_KEY: u32 = WRITE_PRESENT | Fault::KEY;

/// Returns each fault's class, and which of them nothing explains.
fn seen<const N: usize>(story: &Story, faults: [u32; N]) -> ([Option<Class>; N], Vec<u32>) {
    (faults.map(|fault| class(story, fault).0), planned(&story.done()).surprises)
}

#[test]
fn where_a_key_may_forbid_an_access_nothing_is_certain() {
    let mut story = Story::new(1);
    story.map(0, HEAP, 4);
    story.map(0, HEAP + 16 * PAGE, 1);
    story.call(0, Call::PkeyMprotect, [HEAP, 2 * PAGE, 3, 1, 0, 0], 0);
    // Refused, and so it made no page.
    let (refused, made) = (story.fault(0, HEAP, WRITE), story.fault(0, HEAP, WRITE));
    let (elsewhere, again) = (story.fault(0, HEAP + 3 * PAGE, WRITE), story.fault(0, HEAP + 3 * PAGE, WRITE));
    let (classes, surprises) = seen(&story, [refused, made, elsewhere, again]);
    assert_eq!(classes, [Some(Class::Ambiguous), Some(Class::Ambiguous), None, None]);
    assert_eq!(surprises, [again], "without a key all is as ever");
    // A key of 0 is everybody's; a fault that tells of a key is believed.
    story.call(0, Call::PkeyMprotect, [HEAP + 16 * PAGE, PAGE, 3, 0, 0, 0], 0);
    let (first, second) = (story.fault(0, HEAP + 16 * PAGE, WRITE), story.fault(0, HEAP + 16 * PAGE, BY_KEY));
    let third = story.fault(0, HEAP + 16 * PAGE, WRITE);
    assert_eq!(seen(&story, [first, second, third]).0, [None, Some(Class::Ambiguous), Some(Class::Ambiguous)]);
    // What is mapped there anew has no key.
    story.unmap(0, HEAP, 2);
    story.map(0, HEAP, 2);
    let (first, second) = (story.fault(0, HEAP, WRITE), story.fault(0, HEAP, WRITE));
    assert_eq!(seen(&story, [first, second]), ([None, None], vec![again, second]));
}

#[test]
fn memory_that_may_be_executed_alone_has_a_key() {
    let load_with = |rights: u64| {
        let mut story = Story::new(1);
        story.map(0, HEAP, 2);
        story.fault(0, HEAP, WRITE);
        story.protect(0, HEAP, 1, rights);
        let load = story.fault(0, HEAP, READ | Fault::PRESENT);
        class(&story, load)
    };
    assert_eq!(load_with(4), (Some(Class::Ambiguous), false));
    assert_eq!(load_with(0), (None, true), "memory without rights has none");
}

#[test]
fn private_copies_of_a_file_go_when_it_is_cut() {
    const TRUNCATE: u64 = 0o1000;
    const COLLAPSE: u64 = 8;
    let calls = [
        (Call::Ftruncate, [3, PAGE, 0, 0, 0, 0]),
        (Call::Creat, [0; 6]),
        (Call::Open, [0, TRUNCATE, 0, 0, 0, 0]),
        (Call::Openat, [0, 0, TRUNCATE, 0, 0, 0]),
        (Call::Fallocate, [3, COLLAPSE, 0, PAGE, 0, 0]),
    ];
    calls.into_iter().for_each(|(call, args)| copies_go_when_it_is_cut_by(call, args));
}

fn copies_go_when_it_is_cut_by(call: Call, args: [u64; 6]) {
    let mut story = Story::new(1);
    let file = story.file("/tmp/x");
    story.map_file(0, HEAP, 4, 3, file);
    story.map(0, HEAP + 16 * PAGE, 1);
    story.map_file(0, HEAP + 64 * PAGE, 4, 3, file);
    for page in [0, 1, 2, 16, 65] {
        story.fault(0, HEAP + page * PAGE, WRITE);
    }
    let before = story.fault(0, HEAP, WRITE);
    story.call(0, call, args, 0);
    let [load, store, other] = [
        story.fault(0, HEAP + PAGE, READ),
        story.fault(0, HEAP + PAGE, WRITE_PRESENT),
        story.fault(0, HEAP + 2 * PAGE, WRITE),
    ];
    let memory = story.fault(0, HEAP + 16 * PAGE, WRITE);
    // A load beside it maps a page of the file in the place of the copy.
    let (beside, copy) = (story.fault(0, HEAP + 64 * PAGE, READ), story.fault(0, HEAP + 65 * PAGE, WRITE_PRESENT));
    let (classes, surprises) = seen(&story, [before, load, store, other, memory, beside, copy]);
    let (reclaimed, ambiguous) = (Some(Class::Reclaimed), Some(Class::Ambiguous));
    assert_eq!(classes, [None, reclaimed, ambiguous, ambiguous, None, None, reclaimed]);
    assert_eq!(surprises, [before, memory], "no copy went before, and none of memory that is no file's");
    // A copy made since is there.
    story.map_file(0, HEAP + 32 * PAGE, 1, 3, file);
    story.fault(0, HEAP + 32 * PAGE, WRITE);
    let later = story.fault(0, HEAP + 32 * PAGE, WRITE);
    assert_eq!(seen(&story, [later]), ([None], vec![before, memory, later]));
}

#[test]
fn a_process_that_lets_others_change_its_memory_explains_what_nothing_else_does() {
    const DIRECT: u64 = 0o40000;
    let opening = [(Call::Open, [0, DIRECT, 0, 0, 0, 0]), (Call::Openat, [0, 0, DIRECT, 0, 0, 0])];
    let others = [Call::Userfaultfd, Call::IoUringSetup, Call::Vmsplice].map(|call| (call, [0; 6]));
    let dropping = (Call::ProcessMadvise, [3, 0, 1, 4, 0, 0]);
    for (call, args) in opening.into_iter().chain(others).chain([dropping]) {
        let mut story = Story::new(1);
        story.map(0, HEAP, 4);
        let first = story.fault(0, HEAP, WRITE);
        story.call(0, call, args, -1);
        let refused = story.fault(0, HEAP, WRITE);
        story.call(0, call, args, 3);
        let as_ever = story.fault(0, HEAP + PAGE, WRITE);
        let (gone, then) = (story.fault(0, HEAP + PAGE, READ), story.fault(0, HEAP + PAGE, WRITE_PRESENT));
        let (classes, surprises) = seen(&story, [first, refused, as_ever, gone, then]);
        let ambiguous = Some(Class::Ambiguous);
        assert_eq!(classes, [None, None, None, ambiguous, ambiguous], "{}", call.name());
        assert_eq!(surprises, [refused], "{}", call.name());
    }
}

#[test]
fn a_process_that_another_reads_may_have_got_pages() {
    for call in [Call::ProcessVmReadv, Call::ProcessVmWritev] {
        let mut story = Story::new(3);
        story.trace.threads[2].pid = 2;
        // A fork before would explain as much.
        story.clone_task(0, 2, CloneTask::VM | CloneTask::VFORK);
        story.push(2, EventKind::Exec);
        story.map(2, HEAP, 4);
        story.map(0, HEAP, 4);
        story.spawn(0, 1);
        let before = story.fault(1, HEAP, WRITE_PRESENT);
        story.call(2, call, [1, 0, 0, 0, 0, 0], 4096);
        let after = [0, 1].map(|thread| story.fault(thread, HEAP + (1 + u64::from(thread)) * PAGE, WRITE_PRESENT));
        let reader = story.fault(2, HEAP + 3 * PAGE, WRITE_PRESENT);
        let populated = Some(Class::Populated);
        let (classes, surprises) = seen(&story, [after[0], after[1]]);
        assert_eq!(classes, [populated; 2], "{}", call.name());
        assert_eq!(surprises, [before, reader], "{}", call.name());
    }
}
