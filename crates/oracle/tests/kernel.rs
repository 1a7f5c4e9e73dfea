//! What the kernel answers, through the judged process.

use std::time::Duration;

use faultless_oracle::kernel::{Host, NoAnswer, Outcome, Room, Sequence, User};

fn host(user: User) -> Host {
    Host::start(user, Room::default(), Duration::from_secs(20)).unwrap_or_else(|error| panic!("{error}"))
}

fn run(host: &mut Host, line: &str) -> Vec<String> {
    let sequence: Sequence = line.parse().expect("a sequence");
    let answers = host.run(&[sequence]).expect("the host lives");
    answers[0].as_ref().unwrap_or_else(|why| panic!("{why}")).iter().map(Outcome::to_string).collect()
}

#[test]
fn accesses_tell_value_or_signal() {
    let mut host = host(User::Nobody);
    let line = "user; mmap w+0x0 0x2000 rw private|anon|fixed - 0; store w+0x5 7; load w+0x5; load w+0x2000; \
                mprotect w+0x0 0x1000 r; store w+0x6 1; fetch w+0x0; mprotect w+0x0 0x1000 rx; fetch w+0x0; fetch w+0x2001; munmap w+0x1 1";
    let byte = "0x56";
    let segv = |code: &str, at: u64| format!("SEGV_{code} at {:#x}", 0x10_0000_0000 + at);
    let expected = [
        "0x1000000000".to_owned(),
        "0x0".into(),
        byte.into(),
        segv("MAPERR", 0x2000),
        "0x0".into(),
        segv("ACCERR", 6),
        segv("ACCERR", 0),
        "0x0".into(),
        "0x0".into(),
        segv("MAPERR", 0x2001),
        "EINVAL".into(),
    ];
    assert_eq!(run(&mut host, line), expected);
}

#[test]
fn nothing_is_left_for_the_next_sequence() {
    let mut host = host(User::Nobody);
    let dirty = "user as=0x100000; mmap 0 0x3000 rw private|anon - 0; brk w+0x300000; mlockall current|future; truncate rw 1; \
                 mmap w+0x0 0x1000 rw shared|fixed rw 0; store w+0x0 9; look";
    let probe = "user; look; brk 0; mmap w+0x0 0x8000 rw shared|fixed rw 0; load w+0x4321; load w+0x6000; mseal w+0x0 0x1000 0; munmap w+0x0 0x8000";
    let first = run(&mut host, probe);
    run(&mut host, dirty);
    assert_eq!(run(&mut host, probe), first);
    assert!(first[0].starts_with("0 areas") && first[4].starts_with("BUS_ADRERR") && first[6] == "EPERM", "{first:?}");
}

#[test]
fn children_and_threads_run_in_their_place() {
    let mut host = host(User::Nobody);
    let line = "user; mmap w+0x0 0x1000 rw private|anon|fixed - 0; store w+0x0 1; fork 3; load w+0x0; store w+0x0 2; look; load w+0x0; \
                vfork 1; store w+0x0 3; load w+0x0; t1 store w+0x0 4; t2 load w+0x1000; load w+0x0; fork 2; fork 1; store w+0x0 9; load w+0x0";
    let answers = run(&mut host, line);
    let loads: Vec<&str> = [3, 6, 9, 12, 16].iter().map(|&place| answers[place].as_str()).collect();
    assert_eq!(loads, ["0x50", "0x50", "0x52", "0x53", "0x53"], "{answers:?}");
    assert!(answers[5].starts_with("1 areas") && answers[11].starts_with("SEGV_MAPERR"), "{answers:?}");
}

#[test]
fn placement_without_fixed_falls_into_the_window_or_fails() {
    let mut host = host(User::Nobody);
    let answers = run(
        &mut host,
        "user; mmap 0 0x1000 r private|anon - 0; mmap 0 0x400000 r private|anon - 0; mmap 0x5000000 1 r private|anon - 0",
    );
    assert_eq!(answers, ["0x10003ff000", "ENOMEM", "0x10003fe000"]);
}

#[test]
fn what_hangs_or_is_harmful_is_said() {
    let mut host = host(User::Nobody);
    let sequence =
        Sequence { ops: vec!["munmap 0x400000 0x1000".parse().expect("an operation")], ..line("user; look") };
    let answers = host.run(&[sequence, line("user; look")]).expect("the host lives");
    assert!(matches!(answers[0], Err(NoAnswer::Harmful(_))) && answers[1].is_ok());
    let mut host = Host::start(User::Nobody, Room { ops: 4, areas: 1 }, Duration::from_secs(20)).expect("a host");
    let list = "mmap w+0x0 1 r private|anon|fixed - 0; mmap w+0x2000 1 r private|anon|fixed - 0; look";
    let answers =
        host.run(&[line(&format!("user; {list}")), line("user; look; look; look; look; look"), line("user; look")]);
    let answers = answers.expect("the host lives");
    assert_eq!((&answers[0], &answers[1]), (&Err(NoAnswer::TooLarge), &Err(NoAnswer::TooLarge)));
    assert!(answers[2].is_ok());
}

fn line(text: &str) -> Sequence {
    text.parse().expect("a sequence")
}
