//! The oracle's corpus, and a few hundred sequences of each kind, under every design; and what thousands of them hold.

use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use faultless_machine::designs::DESIGNS;
use faultless_oracle as oracle;
use faultless_oracle::kernel::{Host, Sequence, User};
use faultless_oracle::{Checking, Outcomes, Profile, Settings, Tally};

fn settings(profiles: &[Profile], sequences: u64, seed: u64, checking: Checking) -> Settings {
    let users = [User::Root, User::Nobody].into_iter().filter(|&user| Host::can_be(user)).collect();
    Settings {
        designs: DESIGNS.to_vec(),
        users,
        profiles: profiles.to_vec(),
        sequences,
        nr_ops: 64,
        seed,
        jobs: 2,
        checking,
        high: None,
    }
}

fn assert_clean(outcomes: &Outcomes) {
    let found: Vec<String> =
        outcomes.kept.iter().map(|found| format!("{}\n{}: {}", found.sequence, found.design, found.finding)).collect();
    assert_eq!(outcomes.differences, 0, "{}", found.join("\n\n"));
}

#[test]
fn what_was_found_once_stays_the_same_as_linux() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let mut sequences: Vec<Sequence> = Vec::new();
    for file in fs::read_dir(folder).expect("the corpus") {
        let text = fs::read_to_string(file.expect("a file").path()).expect("text");
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        sequences.extend(lines.map(|line| line.parse().unwrap_or_else(|error| panic!("{line}: {error}"))));
    }
    let total = sequences.len();
    sequences.retain(|sequence| Host::can_be(sequence.user));
    if sequences.len() < total {
        println!("skipped: {} sequences that need root", total - sequences.len());
    }
    let outcomes = oracle::replay(&settings(&[], 0, 0, Checking::EachOperation), &sequences).expect("a host");
    assert_clean(&outcomes);
    assert_eq!(outcomes.sequences, sequences.len() as u64);
}

#[test]
fn hundreds_of_sequences_are_the_same_as_linux() {
    let settings = settings(&[Profile::Usual, Profile::Hostile, Profile::Threads], 576, 3, Checking::EachSequence);
    let outcomes = oracle::run(&settings, &|_| ()).expect("a host");
    assert_clean(&outcomes);
    assert_eq!(outcomes.sequences, 576);
}

#[test]
fn memory_without_addresses_is_the_same_as_linux() {
    let kinds =
        [("local", "vma-lock", 32), ("local", "spf-v11", 16), ("local", "faultless", 32), ("pool", "mmap-sem", 16)];
    for (high, design, count) in kinds {
        let settings = settings(&[Profile::Usual, Profile::Threads], count, 5, Checking::EachSequence);
        let outcomes = oracle::run(&Settings { designs: vec![design], high: Some(high), ..settings }, &|_| ());
        let outcomes = outcomes.expect("a host");
        assert_clean(&outcomes);
        assert_eq!(outcomes.sequences, count);
    }
}

#[test]
fn the_same_seed_draws_the_same_sequences_whatever_the_jobs() {
    let one = settings(&[Profile::Usual], 96, 5, Checking::EachSequence);
    let outcomes = oracle::run(&Settings { jobs: 1, ..one.clone() }, &|_| ()).expect("a host");
    let again = oracle::run(&Settings { jobs: 3, ..one }, &|_| ()).expect("a host");
    assert_eq!(outcomes.tally.operations, again.tally.operations);
    assert_eq!(outcomes.tally.calls.keys().collect::<Vec<_>>(), again.tally.calls.keys().collect::<Vec<_>>());
}

/// Returns what some thousand sequences hold, in the command's own mixture.
fn thousands() -> &'static Tally {
    static TALLY: OnceLock<Tally> = OnceLock::new();
    TALLY.get_or_init(|| {
        let mixture = [Profile::Usual, Profile::Usual, Profile::Usual, Profile::Hostile, Profile::Threads];
        let settings = settings(&mixture, 4800, 11, Checking::EachBatch);
        let outcomes = oracle::run(&Settings { designs: vec!["mmap-sem"], ..settings }, &|_| ()).expect("a host");
        assert_clean(&outcomes);
        outcomes.tally
    })
}

#[test]
fn each_call_is_half_a_percent_of_the_operations() {
    let tally = thousands();
    for call in CALLS.iter().map(|(call, _)| *call) {
        let count: u64 = tally.calls.get(call).map_or(0, |outcomes| outcomes.values().sum());
        assert!(count * 200 >= tally.operations, "{call}: {count} of {} operations", tally.operations);
    }
}

#[test]
fn a_seventh_of_the_usual_operations_fails() {
    let settings = settings(&[Profile::Usual], 960, 12, Checking::EachBatch);
    let outcomes = oracle::run(&Settings { designs: vec!["mmap-sem"], ..settings }, &|_| ()).expect("a host");
    let share = outcomes.tally.errors() as f64 / outcomes.tally.operations as f64;
    assert!((0.12..0.18).contains(&share), "{share}");
}

/// The calls, and the errors that their manual pages list (man-pages 6.03; mseal: the kernel's documentation).
const CALLS: &[(&str, &[&str])] = &[
    (
        "mmap",
        &[
            "EACCES",
            "EAGAIN",
            "EBADF",
            "EEXIST",
            "EINVAL",
            "ENFILE",
            "ENODEV",
            "ENOMEM",
            "EOVERFLOW",
            "EPERM",
            "ETXTBSY",
        ],
    ),
    ("munmap", &["EINVAL", "ENOMEM"]),
    ("mprotect", &["EACCES", "EFAULT", "EINVAL", "ENOMEM"]),
    ("mremap", &["EAGAIN", "EFAULT", "EINVAL", "ENOMEM"]),
    ("madvise", &["EACCES", "EAGAIN", "EBADF", "EBUSY", "EFAULT", "EHWPOISON", "EINVAL", "EIO", "ENOMEM", "EPERM"]),
    ("mincore", &["EAGAIN", "EFAULT", "EINVAL", "ENOMEM"]),
    ("msync", &["EBUSY", "EINVAL", "ENOMEM"]),
    ("mlock", &["EAGAIN", "EINVAL", "ENOMEM", "EPERM"]),
    ("mlock2", &["EAGAIN", "EINVAL", "ENOMEM", "EPERM"]),
    ("munlock", &["EAGAIN", "EINVAL", "ENOMEM", "EPERM"]),
    ("mlockall", &["EAGAIN", "EINVAL", "ENOMEM", "EPERM"]),
    ("munlockall", &["EPERM"]),
    ("brk", &["ENOMEM"]),
    ("remap_file_pages", &["EINVAL"]),
    ("mseal", &["EINVAL", "ENOMEM", "EPERM"]),
    ("fork", &["EAGAIN", "ENOMEM", "ENOSYS", "ERESTARTNOINTR"]),
    ("vfork", &["EAGAIN", "ENOMEM", "ENOSYS", "ERESTARTNOINTR"]),
    ("exit", &[]),
];

#[test]
fn every_error_of_the_manual_pages_is_reached_or_named_with_its_reason() {
    if !Host::can_be(User::Root) {
        println!("skipped: without root some errors can't be reached");
        return;
    }
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/oracle.md");
    let docs = fs::read_to_string(docs).expect("the documentation");
    let (_, named) = docs.split_once("# Errors of the manual pages that are not reached").expect("the table");
    let section = named.lines().take_while(|line| !line.starts_with('#'));
    let rows: Vec<&str> = section.filter(|line| line.starts_with('|')).collect();
    assert!(!rows.is_empty(), "the table of docs/oracle.md is gone");
    let tally = thousands();
    for (call, errors) in CALLS {
        for error in *errors {
            let is_reached = tally.calls.get(*call).is_some_and(|outcomes| outcomes.contains_key(*error));
            let is_named = rows.iter().any(|row| {
                let cell = row.split('|').nth(1).unwrap_or_default();
                let words = |wanted: &str| cell.split([' ', ',', '`', ':']).any(|word| word == wanted);
                words(call) && words(error)
            });
            assert!(is_reached != is_named, "{call} {error}: reached {is_reached}, in the table {is_named}");
        }
    }
}
