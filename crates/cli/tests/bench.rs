//! Benchmarks as a user makes them: formats, bad input, too little memory, Ctrl-C.

mod support;

use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use support::{Place, err, faultless, interruptible, out};

const QUICK: [&str; 6] = ["-r", "2", "-w", "0", "-d", "5ms"];

fn bench(arguments: &[&str]) -> Output {
    faultless().arg("bench").args(arguments).output().expect("the command runs")
}

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{}", err(output));
    serde_json::from_str(&out(output)).expect("JSON")
}

#[test]
fn every_workload_runs_on_a_design_and_on_the_host_both_ways() {
    for mode in [&["--cpus", "2"][..], &["--processes", "--cpus", "2"]] {
        let arguments = ["--filter", "*", "--design", "vma-lock,linux", "-r", "1", "-w", "0", "-d", "2ms"];
        let set = json(&bench(&[&arguments[..], mode, &["--format", "json"]].concat()));
        let results = set["results"].as_array().expect("a list");
        let rates: Vec<&Value> = results.iter().filter(|result| result["metric"] == "ops_per_s").collect();
        let listed = out(&bench(&["--filter", "*", "--list"]));
        assert_eq!(rates.len(), 2 * listed.lines().count(), "{mode:?}");
        for rate in rates {
            let has_own_spaces = mode.len() == 3 || rate["workload"] == "compile";
            let wanted = if has_own_spaces { "processes" } else { "threads" };
            assert_eq!((&rate["mode"], &rate["unit"], &rate["cpus"]), (&wanted.into(), &"ops/s".into(), &2.into()));
            assert!(rate["samples"][0].as_f64().expect("a number") > 0.0, "{rate}");
        }
    }
}

#[test]
fn results_hold_every_sample_the_counters_and_what_disturbed() {
    let set = json(&bench(&[&["page_fault1", "--format", "json", "--cpus", "1"][..], &QUICK].concat()));
    assert_eq!((&set["schema"], &set["command"]), (&"faultless/1".into(), &"bench".into()));
    assert_eq!(set["machine"]["simulated"], false);
    let results = set["results"].as_array().expect("a list");
    let names: Vec<&str> = results.iter().filter_map(|result| result["metric"].as_str()).collect();
    for metric in ["ops_per_s", "op_p50_ns", "op_p99_ns", "op_p999_ns", "lock_wait_share", "peak_rss_bytes"] {
        assert!(names.contains(&metric), "{metric} is missing");
    }
    for result in results {
        assert_eq!(result["samples"].as_array().map(Vec::len), Some(2), "{result}");
        assert_eq!(result["disturbed"].as_array().map(Vec::len), Some(2), "{result}");
        assert!(result["run_delay_ns"][0].is_u64(), "{result}");
        let (faults, ops) = (result["counters"]["faults"].as_u64(), result["ops"].as_array());
        let ops: u64 = ops.expect("a list").iter().filter_map(Value::as_u64).sum();
        // An operation is a fault; the kernel's counter may see some of each run's own, its stack's and the clock's.
        let faults = faults.expect("counted");
        assert!(faults.abs_diff(ops) <= 64 + ops / 100, "{faults} faults, {ops} operations: {result}");
        assert_eq!(result["semaphore"].is_null(), result["design"] == "linux");
    }
}

#[test]
fn a_semaphore_answers_to_its_other_name() {
    let output = bench(&[
        "rwsem",
        "--machine",
        "xeon-40",
        "--cpus",
        "2",
        "-r",
        "1",
        "-d",
        "100us",
        "--semaphore",
        "rwsem-v8-p8",
    ]);
    assert!(output.status.success() && out(&output).contains("rwsem-v8-no-optspin"), "{}", err(&output));
}

#[test]
fn each_design_stands_on_what_it_is_made_for_unless_told() {
    let designs = ["malloc1", "--machine", "xeon-40", "--cpus", "2", "-r", "1", "-d", "100us", "--format", "json"];
    let beneath = |more: &[&str]| {
        let output = bench(&[&designs[..], &["--design", "mmap-sem,faultless"], more].concat());
        let set: Value = serde_json::from_str(&out(&output)).expect("JSON");
        let rates = set["results"].as_array().unwrap().iter().filter(|result| result["metric"] == "ops_per_s");
        let pair = |result: &Value| (result["semaphore"].clone(), result["params"]["placement"].clone());
        rates.map(pair).collect::<Vec<_>>()
    };
    let (linux, auto) = ((Value::from("rwsem-v8"), Value::Null), (Value::from("rwsem-v8+bravo"), Value::from("auto")));
    assert_eq!(beneath(&[]), [linux, auto.clone()]);
    let told = (Value::from("handoff"), Value::Null);
    assert_eq!(beneath(&["--semaphore", "handoff", "--placement", "linux"]), [told.clone(), told]);
    assert_eq!(beneath(&["--semaphore", "rwsem-v8+bravo", "--placement", "auto"]), [auto.clone(), auto]);
}

#[test]
fn unknown_names_end_with_the_nearest_and_the_list() {
    for (arguments, words) in [
        (&["maloc1"][..], &["maloc1", "malloc1", "page_fault1"][..]),
        (&["malloc1", "--design", "vmalock"], &["vmalock", "vma-lock", "linux"]),
        (&["malloc1", "--semaphore", "rwsem"], &["rwsem-v8", "rwsem-2012"]),
        (&["ebizzy -q"], &["-q", "-m"]),
        (&["--filter", "nothing"], &["nothing", "malloc1"]),
        (&["malloc1", "-d", "5"], &["300ms"]),
        (&["malloc1", "--cpus", "0"], &["--cpus"]),
        (&["malloc1", "-r", "0"], &["-r", "0"]),
        (&["--", "-m"], &["workload"]),
    ] {
        let output = bench(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", err(&output));
        assert!(output.stdout.is_empty());
        words.iter().for_each(|word| assert!(err(&output).contains(word), "{word} is not in: {}", err(&output)));
    }
}

#[test]
fn the_list_shows_what_would_run() {
    let all = out(&bench(&["--list", "--filter", "*"]));
    for name in ["page_fault1", "page_fault3", "malloc2", "brk2", "tlb_flush3", "read2", "ebizzy", "corten-pf", "fork"]
    {
        assert!(all.lines().any(|line| line.starts_with(name)), "{name} is missing");
    }
    let some = out(&bench(&["--list", "--filter", "mmap?"]));
    assert_eq!(some.lines().count(), 2, "{some}");
    assert_eq!(out(&bench(&["--list", "--filter", "_fault"])).lines().count(), 3);
    let named = out(&bench(&["--list", "ebizzy", "--", "-mT", "-t", "16"]));
    assert!(named.starts_with("ebizzy -mT -t 16"), "{named}");
}

#[test]
fn a_workload_that_runs_out_of_frames_says_so_and_the_others_go_on() {
    // Long enough to use up the frames, whatever else the machine does.
    let long = ["-r", "2", "-w", "0", "-d", "100ms"];
    let output = bench(&[&["page_fault1", "mmap1", "--memory", "6M", "--cpus", "1"][..], &long].concat());
    assert_eq!(output.status.code(), Some(1), "{}", err(&output));
    let (said, shown) = (err(&output), out(&output));
    assert!(said.contains("page_fault1 under mmap-sem") && said.contains("out of frames") && said.contains("--memory"));
    assert!(!said.contains("mmap1 under") && !said.contains("panicked"), "{said}");
    let line = |name: &str| shown.lines().find(|line| line.starts_with(name)).expect("a row").to_owned();
    assert!(line("page_fault1").contains("failed") && line("page_fault1").contains("/s"), "{shown}");
    assert!(!line("mmap1").contains("failed"), "{shown}");
}

#[test]
fn more_cpus_than_there_are_is_a_warning_and_shows_in_the_result() {
    // Workers that never sleep: those of page_fault1 mostly wait for the semaphore, and so for no CPU.
    let arguments = ["malloc2", "--cpus", "64", "--design", "mmap-sem", "-r", "1", "-w", "0", "-d", "20ms"];
    let output = bench(&[&arguments[..], &["--format", "json"]].concat());
    assert!(err(&output).contains("warning: 64 CPUs"), "{}", err(&output));
    let set = json(&output);
    assert_eq!(set["results"][0]["disturbed"][0], true, "{set}");
    assert!(set["results"][0]["run_delay_ns"][0].as_u64() > Some(1_000_000), "{set}");
}

#[test]
fn threads_take_turns_where_there_are_more_of_them_than_cpus() {
    let arguments = ["ebizzy -mTt 16", "--cpus", "2", "--design", "spf-v11,linux", "-r", "1", "-w", "0", "-d", "60ms"];
    let set = json(&bench(&[&arguments[..], &["--format", "json"]].concat()));
    for result in set["results"].as_array().expect("a list") {
        assert_eq!((&result["workers"], &result["cpus"]), (&16.into(), &2.into()));
    }
}

#[test]
fn an_interrupt_prints_and_saves_what_was_measured() {
    let place = Place::new("interrupted");
    for design in ["mmap-sem", "linux"] {
        let mut command = interruptible();
        command.env("FAULTLESS_RESULTS", place.path("results"));
        command.args(["bench", "mmap1", "--design", design, "-r", "1000", "-w", "0", "-d", "200ms", "--save", design]);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command runs");
        std::thread::sleep(Duration::from_millis(1500));
        let since = Instant::now();
        Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill runs");
        let output = child.wait_with_output().expect("it ends");
        assert!(since.elapsed() < Duration::from_secs(10));
        assert_eq!(output.status.code(), Some(130), "{}", err(&output));
        let shown = out(&output);
        assert!(shown.contains("interrupted") && shown.contains("/s ±"), "{shown}");
        let saved = std::fs::read(place.path(&format!("results/{design}.json"))).expect("saved");
        let set: Value = serde_json::from_slice(&saved).expect("JSON");
        let samples = set["results"][0]["samples"].as_array().expect("a list").len();
        assert!((1..1000).contains(&samples) && set["interrupted"] == true, "{samples}");
    }
}

/// Lets a command work for a while, and interrupts it.
fn interrupted(place: &Place, arguments: &[&str]) -> Output {
    let mut command = interruptible();
    command.env("FAULTLESS_RESULTS", place.path("results")).args(arguments);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command runs");
    std::thread::sleep(Duration::from_millis(1500));
    Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill runs");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(130), "{}", err(&output));
    output
}

#[test]
fn an_interrupted_run_counts_for_what_it_has_done_warm_up_or_not() {
    let place = Place::new("cut-short");
    for (warm_ups, design) in [("0", "vma-lock"), ("1", "vma-lock"), ("1", "linux")] {
        let arguments = ["bench", "malloc1", "--design", design, "-w", warm_ups, "-d", "60s", "--format", "json"];
        let set: Value = serde_json::from_str(&out(&interrupted(&place, &arguments))).expect("JSON");
        let rate = set["results"][0]["samples"][0].as_f64().expect("a run");
        assert!(rate > 0.0 && set["interrupted"] == true, "{set}");
    }
    let arguments = ["stat", "malloc1", "--design", "vma-lock,linux", "-d", "60s", "-e", "faults"];
    let output = interrupted(&place, &arguments);
    assert!(out(&output).contains("faults") && out(&output).contains("seconds time elapsed"), "{}", out(&output));
    assert!(err(&output).contains("interrupted before it began"), "{}", err(&output));
}

#[test]
fn a_result_goes_where_a_link_points_and_into_a_pipe_and_where_it_cannot_go_is_known_first() {
    use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
    let place = Place::new("out");
    let run = |target: &std::path::Path| {
        let path = target.to_str().expect("a plain name");
        bench(&[&["mmap1", "--design", "vma-lock", "--cpus", "1", "--out", path][..], &QUICK].concat())
    };
    std::fs::write(place.path("private.txt"), "old").expect("writable");
    std::fs::set_permissions(place.path("private.txt"), std::fs::Permissions::from_mode(0o600)).expect("ours");
    symlink("private.txt", place.path("link.txt")).expect("writable");
    assert!(run(&place.path("link.txt")).status.success());
    assert!(std::fs::symlink_metadata(place.path("link.txt")).expect("there").is_symlink());
    assert!(std::fs::read_to_string(place.path("private.txt")).expect("there").contains("mmap1"));
    assert_eq!(std::fs::metadata(place.path("private.txt")).expect("there").permissions().mode() & 0o777, 0o600);

    Command::new("mkfifo").arg(place.path("pipe")).status().expect("mkfifo runs");
    let pipe = place.path("pipe");
    let reader = std::thread::spawn(move || std::fs::read_to_string(pipe).expect("readable"));
    assert!(run(&place.path("pipe")).status.success());
    assert!(reader.join().expect("read").contains("mmap1"));
    assert!(std::fs::metadata(place.path("pipe")).expect("there").file_type().is_fifo());

    let since = Instant::now();
    let missing = place.path("missing/x.json");
    let path = missing.to_str().expect("a plain name");
    let refused = bench(&["mmap1", "--design", "vma-lock", "-d", "30s", "--out", path]);
    assert_eq!(refused.status.code(), Some(1), "{}", err(&refused));
    assert!(err(&refused).contains("missing/x.json") && since.elapsed() < Duration::from_secs(20), "{}", err(&refused));
    assert_eq!(place.names(), ["link.txt", "pipe", "private.txt"]);
}

#[test]
fn what_is_made_anew_between_rounds_is_counted_neither_as_time_nor_as_events() {
    for mode in [&[][..], &["--processes"]] {
        let arguments =
            ["corten-munmap", "corten-pf", "--cpus", "2", "--design", "vma-lock,spf-v11,linux", "-d", "100ms"];
        let set = json(&bench(&[&arguments[..], mode, &["-r", "1", "-w", "0", "--format", "json"]].concat()));
        let results = set["results"].as_array().expect("a list");
        for result in results.iter().filter(|result| result["metric"] == "ops_per_s") {
            let (ops, faults) = (result["ops"][0].as_u64().expect("a number"), &result["counters"]["faults"]);
            let faults = faults.as_u64().expect("a number");
            let wanted = if result["workload"] == "corten-pf" { ops } else { 0 };
            // The host's loop has a few of its own.
            assert!(
                ops > 0 && faults.abs_diff(wanted) <= 50 + ops / 50,
                "{faults} faults of {ops} operations: {result}"
            );
        }
    }
}

#[test]
fn a_negative_number_is_refused_as_the_value_of_its_option() {
    for words in
        ["bench page_fault1 --cpus -1", "bench page_fault1 --seed -7", "replay --seed -7 x", "stat x --cpus -2"]
    {
        let refused = faultless().args(words.split(' ')).output().expect("the command runs");
        let option = words.split(' ').find(|word| word.starts_with("--")).expect("an option");
        let said = err(&refused);
        assert!(refused.status.code() == Some(2) && said.contains(option), "{words}: {said}");
    }
}

#[test]
fn what_the_host_has_no_room_for_is_refused_and_a_workload_named_twice_runs_once() {
    let arguments = ["ebizzy -mTt 1025", "ebizzy -n 1000000", "mmap1", "mmap1", "--design", "vma-lock,linux"];
    let output = bench(&[&arguments[..], &["-r", "1", "-w", "0", "-d", "5ms"]].concat());
    let (said, shown) = (err(&output), out(&output));
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("1025 threads: of one process at most 1024") && !said.contains("panicked"), "{said}");
    for design in ["vma-lock", "linux"] {
        assert!(said.contains(&format!("ebizzy -n 1000000 under {design}")) && said.contains("MiB left"), "{said}");
    }
    assert_eq!(shown.lines().filter(|line| line.starts_with("mmap1")).count(), 2, "rate and latency: {shown}");
}

#[test]
fn the_lists_name_everything() {
    let list = |what: &str, format: &str| {
        let output = faultless().args([what, "--format", format]).output().expect("the command runs");
        assert!(output.status.success(), "{}", err(&output));
        out(&output)
    };
    let workloads: Value = serde_json::from_str(&list("workloads", "json")).expect("JSON");
    assert!(workloads.as_array().expect("a list").iter().any(|entry| entry["workload"] == "corten-munmap_virt"));
    let designs: Value = serde_json::from_str(&list("designs", "json")).expect("JSON");
    let names: Vec<&str> = designs.as_array().expect("a list").iter().filter_map(|d| d["design"].as_str()).collect();
    assert!(names.contains(&"mmap-sem") && names.contains(&"vma-lock") && names.last() == Some(&"linux"), "{names:?}");
    for format in ["human", "csv", "markdown"] {
        assert!(list("designs", format).contains("vma-lock"));
    }
}

#[test]
fn a_trace_is_replayed_by_the_hosts_kernel_too() {
    let trace = format!("{}/../../examples/gcc.trace", env!("CARGO_MANIFEST_DIR"));
    let arguments = ["replay", &trace, "--design", "mmap-sem,linux", "-r", "1", "--format", "json"];
    let output = faultless().args(arguments).output().expect("the command runs");
    let set = json(&output);
    assert_eq!(set["checks"]["mismatches"], 0);
    let host: Vec<&Value> =
        set["results"].as_array().expect("a list").iter().filter(|result| result["design"] == "linux").collect();
    assert!(host.iter().any(|result| result["metric"] == "elapsed_ns" && result["samples"][0].as_f64() > Some(0.0)));
    assert!(host.iter().all(|result| result["semaphore"].is_null() && result["metric"] != "lock_wait_share"));
}
