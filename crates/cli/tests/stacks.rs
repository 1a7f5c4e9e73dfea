//! `faultless record --stacks`: which functions led to memory calls and faults.

mod support;

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::Command;

use faultless_trace::stacks::{Reach, StackMethod};
use faultless_trace::*;
use serde_json::Value;
use support::{Place, assert_replayed, err, faultless, has_tracepoints, out};

/// Compiles the program of chains so.
fn compile(place: &Place, options: &[&str]) -> PathBuf {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/chains.c");
    let program = place.path("chains");
    let status = Command::new("gcc").args(options).args(["-pthread", "-o"]).arg(&program).arg(source).status();
    assert!(status.expect("gcc is installed").success());
    program
}

/// Returns the functions that led to each event that has a chain, from the innermost.
fn chains(trace: &Trace) -> HashMap<u64, Vec<String>> {
    let names = |sample: &stacks::Sample| {
        let frames = trace.stacks.frames_of(sample.chain);
        (sample.event, frames.map(|frame| frame.function.clone().unwrap_or_default()).collect())
    };
    trace.stacks.samples.iter().map(names).collect()
}

/// Returns the places of the calls of a thread.
fn calls_of(trace: &Trace, thread: u32) -> Vec<u64> {
    let is_call = |event: &Event| event.thread == thread && matches!(event.kind, EventKind::CallEnter(_));
    (0..).zip(&trace.events).filter(|(_, event)| is_call(event)).map(|(place, _)| place).collect()
}

/// Returns which share of the calls has a chain with this function in it.
fn share_through(trace: &Trace, thread: u32, function: &str) -> f64 {
    let chains = chains(trace);
    let calls = calls_of(trace, thread);
    let has = |place: &&u64| chains.get(place).is_some_and(|names| names.iter().any(|name| name == function));
    assert!(calls.len() >= 400, "{} calls", calls.len());
    calls.iter().filter(has).count() as f64 / calls.len() as f64
}

fn record(place: &Place, options: &[&str], program: PathBuf) -> Trace {
    let output = place.record(options, &[program.to_str().unwrap()]);
    assert!(output.status.success(), "{}", err(&output));
    assert!(err(&output).contains("stacks"), "{}", err(&output));
    place.open()
}

fn replays(place: &Place) {
    let mut command = faultless();
    let output = command.args(["replay", "--design", "vma-lock", "-r", "1"]).arg(place.trace()).output().unwrap();
    assert_replayed(&output);
}

#[test]
fn calls_of_a_program_without_frame_pointers_reach_main_by_its_tables() {
    if !has_tracepoints() {
        return;
    }
    let place = Place::new("stacks-dwarf");
    let trace = record(&place, &["--stacks=dwarf"], compile(&place, &["-O2", "-fomit-frame-pointer"]));
    assert_eq!((trace.header.lost, trace.stacks.method), (0, Some(StackMethod::Dwarf)));
    let (main, other) = (share_through(&trace, 0, "main"), share_through(&trace, 1, "work"));
    assert!(main >= 0.95 && other >= 0.95, "{main:.3} reach main, {other:.3} reach work");
    let whole = trace.stacks.samples.iter().filter(|sample| sample.reach == Reach::Whole).count();
    assert!(whole * 100 >= trace.stacks.samples.len() * 95, "{whole} of {}", trace.stacks.samples.len());
    let chains = chains(&trace);
    let deep = chains.values().filter(|names| names.iter().filter(|name| *name == "grow").count() == 7).count();
    assert!(deep >= 40, "every seventh round goes down by seven calls: {deep}");
    replays(&place);
}

#[test]
fn some_faults_have_a_chain_and_it_is_theirs() {
    if !has_tracepoints() {
        return;
    }
    let place = Place::new("stacks-faults");
    let options = ["--stacks=dwarf", "--stack-faults", "10"];
    let trace = record(&place, &options, compile(&place, &["-O2", "-fomit-frame-pointer"]));
    let chains = chains(&trace);
    let faults = (0..).zip(&trace.events).filter(|(_, event)| matches!(event.kind, EventKind::Fault(_)));
    let (mut nr_faults, mut nr_known, mut nr_touches) = (0, 0, 0);
    for (place, _) in faults {
        nr_faults += 1;
        let Some(names) = chains.get(&place) else { continue };
        nr_known += 1;
        nr_touches += usize::from(names.first().is_some_and(|name| name == "touch"));
    }
    assert!((nr_faults / 11..=nr_faults / 9).contains(&nr_known), "{nr_known} of {nr_faults}");
    assert!(nr_touches * 100 >= nr_known * 95, "{nr_touches} of {nr_known} touch memory");
}

#[test]
fn frame_pointers_suffice_where_there_are_some() {
    if !has_tracepoints() {
        return;
    }
    let place = Place::new("stacks-fp");
    let options = ["-O2", "-fno-omit-frame-pointer", "-mno-omit-leaf-frame-pointer", "-fno-optimize-sibling-calls"];
    let trace = record(&place, &["--stacks=fp"], compile(&place, &options));
    assert_eq!(trace.stacks.method, Some(StackMethod::FramePointers));
    let share = share_through(&trace, 0, "main");
    assert!(share >= 0.95, "{share:.3} reach main");
}

#[test]
fn without_privilege_faults_have_chains() {
    let place = Place::new("stacks-unprivileged");
    let options = ["--mode", "unprivileged", "--stacks=dwarf", "--stack-faults", "50"];
    let output = place.record(&options, &[compile(&place, &["-O2"]).to_str().unwrap()]);
    if !output.status.success() {
        println!("skipped: {}", err(&output));
        return;
    }
    let trace = place.open();
    let nr_touches = chains(&trace).values().filter(|names| names.iter().any(|name| name == "touch")).count();
    assert!(nr_touches >= 100, "{nr_touches} chains: {}", err(&output));
}

#[test]
fn top_names_the_call_sites_and_folded_the_whole_paths() {
    if !has_tracepoints() {
        return;
    }
    let place = Place::new("stacks-top");
    let trace = record(&place, &["--stacks=dwarf"], compile(&place, &["-O2", "-fomit-frame-pointer"]));
    let top = |options: &[&str]| {
        let output = faultless().args(["trace", "top"]).args(options).arg(place.trace()).output().unwrap();
        assert!(output.status.success(), "{}", err(&output));
        out(&output)
    };
    let rows: Value = serde_json::from_str(&top(&["--format", "json"])).unwrap();
    let rows = rows["rows"].as_array().unwrap();
    let of = |site: &str| rows.iter().find(|row| row["site"] == site && row["area"] == "anonymous").unwrap();
    assert_eq!((of("grow")["calls"].as_u64(), of("give_back")["calls"].as_u64()), (Some(400), Some(400)));
    assert_eq!(of("grow")["bytes"].as_u64(), Some(400 * 64 * 4096));
    assert!(of("grow")["kernel_ns"].as_u64() > Some(0));
    let calls: u64 = rows.iter().map(|row| row["calls"].as_u64().unwrap()).sum();
    assert_eq!(calls as usize, (0..2).map(|thread| calls_of(&trace, thread).len()).sum::<usize>());
    let folded = top(&["--folded"]);
    let line = folded.lines().find(|line| line.contains(";main;") && line.contains(";give_back;")).unwrap();
    assert!(line.ends_with(";munmap;munmap (anonymous) 200"), "{line}");
    assert!(folded.lines().any(|line| line.contains(";touch;fault (anonymous) ")), "{folded}");
    assert!(top(&[]).contains("give_back"), "people read it, too");
}
