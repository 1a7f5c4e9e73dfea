//! `faultless trace info` and `trace dump`, on whole traces and on broken ones.

mod support;

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use faultless_trace::*;
use support::{Place, err, faultless, out};

#[test]
fn dump_prints_one_line_for_each_event() {
    let place = Place::new("dump");
    write(&place.trace(), 50);
    let output = dump(&place.trace(), "human");
    assert!(output.status.success(), "{}", err(&output));
    assert_eq!(out(&output).lines().count(), 50);
    assert!(out(&output).lines().nth(1).unwrap().contains("address=0x7000001234"), "{}", out(&output));
}

#[test]
fn dump_as_json_gives_an_object_a_line() {
    let place = Place::new("json");
    write(&place.trace(), 3);
    let output = dump(&place.trace(), "json");
    let objects: Vec<serde_json::Value> =
        out(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(objects.len(), 3);
    assert_eq!(objects[0]["kind"], "exec");
    assert_eq!(objects[1]["event"], 1);
    assert_eq!(objects[1]["time_ns"], 1000);
    assert_eq!(objects[1]["address"], "0x7000001234");
    assert_eq!(objects[1]["access"], "write");
    assert_eq!(objects[1]["tid"], 42);
}

#[test]
fn dump_as_csv_and_markdown_gives_as_many_fields_a_row_as_headings() {
    let place = Place::new("csv");
    write(&place.trace(), 5);
    let csv = out(&dump(&place.trace(), "csv"));
    let widths: Vec<_> = csv.lines().map(|line| line.split(',').count()).collect();
    assert_eq!(widths.len(), 6);
    assert!(widths.iter().all(|&width| width == widths[0]), "{csv}");
    let markdown = out(&dump(&place.trace(), "markdown"));
    let widths: Vec<_> = markdown.lines().map(|line| line.split('|').count()).collect();
    assert_eq!(widths.len(), 7);
    assert!(widths.iter().all(|&width| width == widths[0]), "{markdown}");
}

#[test]
fn dump_of_a_damaged_trace_prints_what_precedes_the_damage_then_fails() {
    let place = Place::new("damaged");
    write(&place.trace(), 10_000);
    let mut bytes = fs::read(place.trace()).unwrap();
    let place_of_damage = bytes.len() - 100;
    bytes[place_of_damage] ^= 4;
    fs::write(place.trace(), &bytes).unwrap();
    let output = dump(&place.trace(), "human");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(out(&output).lines().count(), 8192);
    assert!(err(&output).contains("is damaged in a block of events"), "{}", err(&output));
}

#[test]
fn dump_of_a_cut_trace_prints_what_is_left_then_fails() {
    let place = Place::new("cut");
    write(&place.trace(), 100);
    let bytes = fs::read(place.trace()).unwrap();
    fs::write(place.trace(), &bytes[..bytes.len() - 1]).unwrap();
    let output = dump(&place.trace(), "human");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(out(&output).lines().count(), 100);
    assert!(err(&output).contains("is cut"), "{}", err(&output));
}

#[test]
fn broken_files_are_told_apart() {
    let place = Place::new("broken");
    let mut newer = Vec::new();
    trace(1).write(&mut newer).unwrap();
    newer[8] = 9;
    let sum = crc32fast::hash(&newer[..12]);
    newer[12..16].copy_from_slice(&sum.to_le_bytes());
    for (name, bytes, told) in [
        ("empty", &b""[..], "is empty"),
        ("foreign", b"#!/bin/sh\necho hello\n", "not a trace"),
        ("newer", &newer, "format version 9"),
    ] {
        let path = place.path(name);
        fs::write(&path, bytes).unwrap();
        for command in ["dump", "info"] {
            let output = faultless().args(["trace", command]).arg(&path).output().unwrap();
            assert_eq!(output.status.code(), Some(1), "{name}");
            assert!(out(&output).is_empty());
            assert!(err(&output).contains(told), "{name}: {}", err(&output));
            assert!(err(&output).contains(name), "the message names the file: {}", err(&output));
        }
    }
    let output = dump(&place.path("absent"), "human");
    assert_eq!(output.status.code(), Some(1));
    assert!(err(&output).contains("No such file"), "{}", err(&output));
    assert_eq!(dump(&place.folder, "human").status.code(), Some(1), "a folder is no trace");
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let place = Place::new("pipe");
    write(&place.trace(), 100_000);
    let mut child = faultless()
        .args(["trace", "dump"])
        .arg(place.trace())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let head = Command::new("head").arg("-1").stdin(child.stdout.take().unwrap()).output().unwrap();
    assert_eq!(out(&head).lines().count(), 1);
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), err(&output)), (Some(0), String::new()));
}

#[test]
fn info_tells_the_same_in_every_format() {
    let place = Place::new("info");
    write(&place.trace(), 50);
    let info = |format: &str| {
        let output = faultless().args(["trace", "info", "--format", format]).arg(place.trace()).output().unwrap();
        assert!(output.status.success(), "{}", err(&output));
        out(&output)
    };
    let document: serde_json::Value = serde_json::from_str(&info("json")).unwrap();
    assert_eq!(document["schema"], "faultless/1");
    assert_eq!(document["trace"]["events"], 50);
    assert_eq!(document["trace"]["user_faults"], 49);
    assert_eq!(document["trace"]["lost"], 3);
    assert_eq!(document["trace"]["missing"][0], "write-bit");
    assert_eq!(document["trace"]["limits"]["overcommit"], 1);
    for format in ["human", "csv", "markdown"] {
        let text = info(format);
        let line = text.lines().find(|line| line.contains("user_faults")).unwrap_or_else(|| panic!("{text}"));
        assert!(line.contains("49"), "{line}");
    }
}

fn dump(path: &Path, format: &str) -> Output {
    faultless().args(["trace", "dump", "--format", format]).arg(path).output().unwrap()
}

fn write(path: &Path, nr_events: u64) {
    trace(nr_events).write(fs::File::create(path).unwrap()).unwrap();
}

/// Returns a trace of one thread that faults along.
fn trace(nr_events: u64) -> Trace {
    let fault = |place: u64| Fault {
        address: 0x70_0000_1234 + (place - 1) * 8192,
        ip: place * place * 77,
        error_code: Fault::USER | Fault::WRITE,
        side: Side::User,
    };
    let kind = |place| if place == 0 { EventKind::Exec } else { EventKind::Fault(fault(place)) };
    let header = Header {
        command: vec!["prog".into()],
        missing: vec![Missing::WriteBit],
        lost: 3,
        limits: Limits { overcommit: Some(1), ..Limits::default() },
        ..Header::default()
    };
    let event = |place| Event { thread: 0, time_ns: place * 1000, on_cpu_ns: 0, kind: kind(place) };
    Trace {
        header,
        threads: vec![Thread { pid: 42, tid: 42, name: "prog".into() }],
        events: (0..nr_events).map(event).collect(),
        ..Trace::default()
    }
}
