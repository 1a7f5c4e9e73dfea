//! The environment variables: what they do, and what is said about wrong ones.

mod support;

use std::process::{Command, Output};
use support::{compile, counter, folder, has, run_with, seen};

/// Runs a program that allocates 3 MB.
fn run(variables: &[(&str, &str)]) -> Output {
    run_with(Command::new("perl").args(["-e", "my $x = 'x' x 3000000; print length $x"]), variables)
}

#[track_caller]
fn assert_says(variables: &[(&str, &str)], words: &str) {
    let output = run(variables);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains(words), "{}", seen(&output));
    assert_eq!(said.lines().count(), 1, "{said}");
    assert_eq!(output.stdout, b"3000000");
}

#[test]
fn wrong_values_are_named_and_the_defaults_stand() {
    if !has("perl", "-v") {
        return;
    }
    for (name, value, words) in [
        ("FAULTLESS_PATTERN", "AA", "0x and an even number of hex digits"),
        ("FAULTLESS_PATTERN", "0xABC", "0x and an even number of hex digits"),
        ("FAULTLESS_PATTERN", "0x", "0x and an even number of hex digits"),
        ("FAULTLESS_PATTERN", "", "0x and an even number of hex digits"),
        ("FAULTLESS_THRESHOLD", "lots", "a size such as 128K"),
        ("FAULTLESS_THRESHOLD", "0", "a size such as 128K"),
        ("FAULTLESS_SMALL", "map", "pass or fill"),
        ("FAULTLESS_LARGE", "tile", "map, fill or pass"),
        ("FAULTLESS_CACHE", "-1", "a size such as 32M, or 0"),
        ("FAULTLESS_AHEAD", "much", "a size such as 8M, or 0"),
        ("FAULTLESS_WARN", "yes", "0 or 1"),
    ] {
        assert_says(&[(name, value)], words);
        assert_says(&[(name, value)], name);
    }
    assert_says(&[("FAULTLESS_STATS", "/nowhere/file")], "cannot append counters");
}

#[test]
fn right_values_say_nothing() {
    if !has("perl", "-v") {
        return;
    }
    for variables in [
        &[("FAULTLESS_PATTERN", "0xAA"), ("FAULTLESS_THRESHOLD", "1M")][..],
        &[("FAULTLESS_SMALL", "fill"), ("FAULTLESS_LARGE", "pass")],
        &[("FAULTLESS_AHEAD", "0")],
        &[("FAULTLESS_CACHE", "0"), ("FAULTLESS_WARN", "1"), ("FAULTLESS_STATS", "")],
    ] {
        let output = run(variables);
        assert_eq!(seen(&output), "exit status: 0\n--- stdout\n3000000\n--- stderr\n");
    }
}

#[test]
fn filling_is_said_once_on_request() {
    if !has("perl", "-v") {
        return;
    }
    let script = "ulimit -f 1; exec perl -e 'my @x = map { chr($_) x 3000000 } 65..70; print scalar @x'";
    let run = |variables: &[(&str, &str)]| {
        let mut variables = variables.to_vec();
        variables.push(("FAULTLESS_THRESHOLD", "1M"));
        run_with(Command::new("sh").args(["-c", script]), &variables)
    };
    let quiet = run(&[]);
    assert_eq!(seen(&quiet), "exit status: 0\n--- stdout\n6\n--- stderr\n");
    let loud = run(&[("FAULTLESS_WARN", "1")]);
    let said = String::from_utf8_lossy(&loud.stderr).into_owned();
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("filling instead of mapping: the file-size limit (ulimit -f)"), "{said}");
}

#[test]
fn counters_are_appended_at_exit() {
    if !has("perl", "-v") {
        return;
    }
    let file = folder("counters").join("counters");
    for round in 1..=2 {
        run(&[("FAULTLESS_STATS", file.to_str().unwrap())]);
        let text = std::fs::read_to_string(&file).unwrap();
        assert_eq!(text.lines().count(), round);
    }
    let number = |name: &str| counter(&file, name);
    assert!(number("allocated_bytes=") > number("patterned_bytes="));
    assert!(number("patterned_bytes=") >= 3_000_000);
    assert!(number("tiled_bytes=") >= 3_000_000);
    assert!(number("calls=") > 100);
    assert_eq!(number("filled_bytes="), 0);
    std::fs::remove_file(&file).unwrap();
    run(&[("FAULTLESS_STATS", file.to_str().unwrap()), ("FAULTLESS_LARGE", "fill")]);
    assert!(number("filled_bytes=") >= 3_000_000);
    assert_eq!(number("tiled_bytes="), 0);
}

#[test]
fn a_program_may_write_over_its_environment() {
    if !has("gcc", "--version") {
        return;
    }
    let file = folder("overwritten").join("counters");
    let output = run_with(&mut Command::new(compile("overwrite", &[])), &[("FAULTLESS_STATS", file.to_str().unwrap())]);
    assert_eq!(seen(&output), "exit status: 0\n--- stdout\n\n--- stderr\n");
    assert!(counter(&file, "patterned_bytes=") >= 2_000_000);
}

#[test]
fn a_program_that_uses_little_of_what_it_allocates_gets_all_of_it() {
    if !has("gcc", "--version") {
        return;
    }
    let file = folder("sparse").join("counters");
    let variables = [("FAULTLESS_STATS", file.to_str().unwrap()), ("FAULTLESS_WARN", "1")];
    let output = run_with(&mut Command::new(compile("sparse", &[])), &variables);
    let shown = seen(&output);
    assert!(output.status.success(), "{shown}");
    println!("{shown}");
    let figures = String::from_utf8_lossy(&output.stdout).into_owned();
    let figures: Vec<u64> = figures.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [patterned, private_mib] = figures[..] else { panic!("{shown}") };
    // A sixteenth of what is available is filled at most, and nothing of what passes is touched.
    let filled_mib = counter(&file, "filled_bytes=") >> 20;
    assert!(private_mib < filled_mib + 200, "{shown}");
    assert!(patterned >= 1_000, "{shown}");
    assert!(counter(&file, "passed_bytes=") > 0 && shown.contains("pass without the pattern"), "{shown}");
}
