//! Programs that once were replayed with a false alarm: recorded for real, and replayed under every design.

mod support;

use std::process::Command;

use faultless_machine::designs::design_lines;
use serde_json::Value;
use support::{Place, err, faultless, has_tracepoints, out};

/// Records one of the programs beside these tests and replays it under all designs, the host's kernel among them.
fn replays_cleanly(name: &str) {
    if !has_tracepoints() {
        return;
    }
    let place = Place::new(name);
    let program = place.compile(name);
    if Command::new(&program).current_dir(&place.folder).status().unwrap().code() == Some(77) {
        println!("skipped: this kernel lacks what {name} uses");
        return;
    }
    place.record_ok(&[], &[program.to_str().unwrap()]);
    finds_nothing(&place, name);
}

/// Replays the recording of a place under all designs.
fn finds_nothing(place: &Place, name: &str) {
    let designs: Vec<&str> = design_lines().map(|line| line.name).collect();
    let output =
        faultless().args(["replay", "-r", "1", "--design", &designs.join(",")]).arg(place.trace()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{name}: {}", err(&output));
    assert!(out(&output).contains("mismatches 0"), "{name}: {}", out(&output));
}

/// Returns the share of faults that were checked one by one, in thousandths, and of those that were otherwise and that
/// a class explains.
fn shares(place: &Place) -> (u64, u64) {
    let out_path = place.path("result.json");
    let mut command = faultless();
    command.args(["replay", "-r", "1", "--design", "vma-lock", "--format", "json", "--out"]).arg(&out_path);
    let output = command.arg(place.trace()).output().unwrap();
    assert!(output.status.success(), "{}", err(&output));
    let result: Value = serde_json::from_str(&std::fs::read_to_string(&out_path).unwrap()).unwrap();
    let checks = &result["checks"];
    let number = |key: &str| checks[key].as_u64().unwrap_or_else(|| panic!("{key}: {checks:#}"));
    let explained: u64 = checks["classified"].as_object().map_or(0, |all| all.values().filter_map(Value::as_u64).sum());
    (number("strict") * 1000 / number("faults_recorded"), explained * 1000 / number("faults_recorded"))
}

#[test]
fn shared_pages_are_checked_one_by_one() {
    if !has_tracepoints() {
        return;
    }
    replays_cleanly("shared");
    let place = Place::new("shared-shares");
    let program = place.compile("shared");
    place.record_ok(&[], &[program.to_str().unwrap()]);
    let (strict, explained) = shares(&place);
    assert!(strict >= 900 && explained <= 20, "{strict} of 1000 faults are strict, {explained} explained");
}

#[test]
fn stores_to_a_files_shared_pages_fault_as_its_file_system_asks() {
    replays_cleanly("stores");
}

#[test]
fn forks_that_fail_have_taken_the_right_to_store() {
    replays_cleanly("unborn");
}

#[test]
fn memory_that_other_threads_change_beside_forks() {
    replays_cleanly("besideforks");
}

#[test]
fn areas_that_are_cut_after_a_neighbour_mapped_their_pages() {
    replays_cleanly("windows");
}

#[test]
fn calls_at_random() {
    if !has_tracepoints() {
        return;
    }
    let place = Place::new("atrandom");
    let program = place.compile("atrandom");
    for seed in ["1", "2", "3", "4"] {
        place.record_ok(&[], &[program.to_str().unwrap(), seed, "1500"]);
        finds_nothing(&place, &format!("atrandom {seed}"));
    }
}

#[test]
fn calls_of_every_kind_at_random() {
    if !has_tracepoints() {
        return;
    }
    const ALL_KINDS: &str = "15";
    let place = Place::new("anything");
    let program = place.compile("anything");
    for seed in ["1", "2", "3", "4"] {
        place.record_ok(&[], &[program.to_str().unwrap(), seed, "1500", ALL_KINDS, "1"]);
        finds_nothing(&place, &format!("anything {seed}"));
    }
}

#[test]
fn what_is_done_to_memory_unseen() {
    replays_cleanly("unseen");
}

#[test]
fn what_the_kernel_reaches_without_a_fault() {
    replays_cleanly("reached");
}

#[test]
fn memory_that_comes_and_goes_under_other_names() {
    replays_cleanly("likened");
}

#[test]
fn stacks_beyond_the_limit_of_the_recordings_beginning() {
    replays_cleanly("raised");
}

#[test]
fn children_whose_makers_get_a_descriptor() {
    replays_cleanly("pidfd");
}

#[test]
fn calls_that_stop_at_a_sealed_area() {
    replays_cleanly("sealed");
}

#[test]
fn jumps_into_memory_that_may_not_be_executed() {
    replays_cleanly("jumps");
}

#[test]
fn rings_and_files_in_another_order() {
    replays_cleanly("rings");
}

#[test]
fn mappings_that_grow_into_room_that_another_thread_just_left() {
    replays_cleanly("growth");
}

#[test]
fn breaks_of_four_threads() {
    replays_cleanly("breaks");
}

#[test]
fn guard_pages() {
    replays_cleanly("guards");
}

#[test]
fn more_shared_memory_than_a_process_may_open_files() {
    replays_cleanly("objects");
}

#[test]
fn moves_that_keep_their_source() {
    replays_cleanly("keeps");
}

#[test]
fn what_linux_refuses_is_refused() {
    replays_cleanly("refused");
}

#[test]
fn a_debugger_fills_pages_of_the_process_that_it_traces() {
    replays_cleanly("traced");
}

#[test]
fn a_driver_puts_pages_in_when_it_is_mapped() {
    replays_cleanly("driver");
}
