//! malloc and its kin keep their promises under the preload, and fresh memory is the pattern.

mod support;

use std::process::Command;
use std::sync::OnceLock;
use support::{assert_ok, has, run_with};

fn program() -> Option<&'static std::path::Path> {
    static PROGRAM: OnceLock<Option<std::path::PathBuf>> = OnceLock::new();
    PROGRAM.get_or_init(|| has("gcc", "--version").then(|| support::compile("heap", &[]))).as_deref()
}

/// Settings: the pattern in hex, the threshold, whether small ones are filled, and more variables.
struct Case(&'static str, usize, bool, &'static [(&'static str, &'static str)]);

const DEFAULT: Case = Case("aa", 128 << 10, false, &[]);
const CASES: [Case; 6] = [
    DEFAULT,
    Case("0102030405060708090a0b0c", 4096, true, &[]),
    Case("deadbeef", 1 << 20, true, &[("FAULTLESS_CACHE", "0")]),
    Case("aabbcc", 100_000, false, &[("FAULTLESS_CACHE", "0")]),
    Case("aa", 128 << 10, true, &[("FAULTLESS_LARGE", "fill")]),
    Case("0000", 128 << 10, false, &[]),
];

#[track_caller]
fn check(case: &Case, test: &str) {
    let Some(program) = program() else { return };
    let Case(pattern, threshold, fills_small, more) = case;
    let mut command = Command::new(program);
    command.args([pattern, threshold.to_string().as_str()]);
    command.args([if *fills_small { "1" } else { "0" }, test]);
    // The defaults are tested by saying nothing.
    if threshold != &DEFAULT.1 {
        command.env("FAULTLESS_THRESHOLD", threshold.to_string());
    }
    if pattern != &DEFAULT.0 {
        command.env("FAULTLESS_PATTERN", format!("0x{pattern}"));
    }
    if *fills_small {
        command.env("FAULTLESS_SMALL", "fill");
    }
    assert_ok(&run_with(&mut command, more));
}

fn check_all(test: &str) {
    CASES.iter().for_each(|case| check(case, test));
}

#[test]
fn fresh_memory_is_the_pattern_also_when_it_is_reused() {
    check_all("malloc");
}

#[test]
fn calloc_gives_zeros() {
    check_all("calloc");
}

#[test]
fn realloc_keeps_what_was_and_patterns_what_is_new() {
    CASES[..4].iter().for_each(|case| check(case, "realloc"));
}

#[test]
fn growing_step_by_step_keeps_everything() {
    check_all("growth");
}

#[test]
fn alignments_are_kept() {
    CASES[..3].iter().for_each(|case| check(case, "aligned"));
}

#[test]
fn pointers_of_other_allocators_pass_through() {
    check_all("foreign");
}

#[test]
fn threads_do_not_disturb_each_other() {
    CASES[..4].iter().for_each(|case| check(case, "threads"));
}

#[test]
fn children_of_a_threaded_program_go_on() {
    CASES[..4].iter().for_each(|case| check(case, "fork"));
}

#[test]
fn closed_and_reused_descriptors_do_no_harm() {
    CASES[..4].iter().for_each(|case| check(case, "descriptors"));
}

#[test]
fn without_descriptors_memory_is_filled() {
    check(&DEFAULT, "limit-of-descriptors");
}

#[test]
fn a_program_that_exhausts_its_address_space_survives() {
    check(&DEFAULT, "exhausted-space");
    check(&CASES[3], "exhausted-space");
    check(&DEFAULT, "exhausted-data");
    check(&CASES[3], "exhausted-data");
}

#[test]
fn without_areas_memory_is_filled_and_that_is_said_once() {
    check(&DEFAULT, "areas");
    let Some(program) = program() else { return };
    let mut command = Command::new(program);
    let output = run_with(command.args(["aa", "131072", "0", "areas"]), &[("FAULTLESS_WARN", "1")]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.stdout.as_slice(), said.lines().count()), (&b"ok\n"[..], 1), "{said}");
    assert!(said.contains("filling instead of mapping: the process has no area left (vm.max_map_count is"), "{said}");
}

#[test]
fn a_program_that_reserves_four_tebibytes_survives() {
    check(&DEFAULT, "greed");
}

#[test]
fn more_allocations_than_areas_are_patterned() {
    check(&DEFAULT, "many");
}

/// The tests of this file would pass anything if they could not fail.
#[test]
fn the_checker_sees_a_missing_pattern() {
    let Some(program) = program() else { return };
    let output = Command::new(program).args(["aa", "131072", "0", "malloc"]).output().unwrap();
    assert!(!output.status.success());
}
