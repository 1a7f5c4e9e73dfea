//! Every shipped trace replays without a mismatch, under every design and semaphore.

use std::path::PathBuf;
use std::process::Command;

fn examples() -> Vec<PathBuf> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let entries = folder.read_dir().expect("the folder of examples");
    let mut traces: Vec<PathBuf> = entries.map(|entry| entry.expect("readable").path()).collect();
    traces.retain(|path| path.extension().is_some_and(|extension| extension == "trace"));
    traces.sort();
    traces
}

#[test]
fn shipped_traces_are_few_small_and_those_that_are_promised() {
    let traces = examples();
    assert!(traces.len() >= 3 && traces.iter().any(|path| path.ends_with("gcc.trace")), "{traces:?}");
    let bytes: u64 = traces.iter().map(|path| path.metadata().expect("readable").len()).sum();
    assert!(bytes <= 2 << 20, "{bytes} bytes of examples, 2 MiB at most");
}

#[test]
fn every_shipped_trace_replays_as_recorded_under_every_design() {
    for trace in examples() {
        let output = Command::new(env!("CARGO_BIN_EXE_faultless"))
            .args(["replay", "-r", "1", "--format", "json", "--semaphore", "rwsem-2012,rwsem-v8"])
            .arg(&trace)
            .output()
            .expect("the command runs");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{}: {}", trace.display(), String::from_utf8_lossy(&output.stderr));
        let report: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(report["schema"], "faultless/1");
        let checks = &report["checks"];
        assert_eq!(checks["mismatches"], 0, "{}", trace.display());
        assert_eq!(checks["skipped"], serde_json::json!({}), "{}", trace.display());
        assert_eq!(checks["lost"], 0);
        assert!(checks["strict"].as_u64() > Some(1000), "{}: {checks}", trace.display());
        for design in ["mmap-sem", "spf-v11"] {
            let results = report["results"].as_array().expect("a list");
            assert!(results.iter().any(|result| result["design"] == design), "{design} is missing");
        }
    }
}
