//! The oracle's corpus, and a few hundred sequences of each kind, under every design.

use std::fs;
use std::path::Path;

use faultless_lab::experiment::DESIGNS;
use faultless_lab::oracle::{self, Checking, Outcomes, Profile, Settings};
use faultless_linux::oracle::{Host, Sequence, User};

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
fn the_same_seed_draws_the_same_sequences_whatever_the_jobs() {
    let one = settings(&[Profile::Usual], 96, 5, Checking::EachSequence);
    let outcomes = oracle::run(&Settings { jobs: 1, ..one.clone() }, &|_| ()).expect("a host");
    let again = oracle::run(&Settings { jobs: 3, ..one }, &|_| ()).expect("a host");
    assert_eq!(outcomes.tally.operations, again.tally.operations);
    assert_eq!(outcomes.tally.calls.keys().collect::<Vec<_>>(), again.tally.calls.keys().collect::<Vec<_>>());
}
