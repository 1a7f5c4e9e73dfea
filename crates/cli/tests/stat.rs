//! Counting as a user does it: what is printed, what is not supported, bad input.

mod support;

use std::process::{Output, Stdio};

use faultless_machine::designs::DESIGNS;
use serde_json::Value;
use support::{err, faultless, interruptible, out};

fn stat(arguments: &[&str]) -> Output {
    faultless().arg("stat").args(arguments).output().expect("the command runs")
}

fn example(name: &str) -> String {
    format!("{}/../../examples/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// Returns the count on an event's line.
fn count(text: &str, event: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.split_whitespace().nth(1) == Some(event))?;
    line.split_whitespace().next()?.replace(',', "").parse().ok()
}

#[test]
fn counts_are_printed_as_perf_stat_does_and_add_up() {
    let events = "faults,speculative-faults,spf-failed,pagefault:*";
    let output = stat(&["-e", events, "malloc1", "--design", "spf-v11", "--cpus", "2", "-d", "50ms"]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let text = out(&output);
    assert!(text.contains(" Performance counter stats for 'malloc1' under spf-v11"), "{text}");
    assert!(text.contains("seconds time elapsed"), "{text}");
    let of = |event: &str| count(&text, event).unwrap_or_else(|| panic!("{event} is missing:\n{text}"));
    let reasons = ["vma_changed", "vma_noanon", "vma_notsup", "vma_access", "pmd_changed"];
    let given_up: u64 = reasons.iter().map(|reason| of(&format!("pagefault:spf_{reason}"))).sum();
    assert!(of("faults") > 0 && of("spf") > 0, "{text}");
    assert_eq!(of("spf-failed"), given_up, "every give-up has one reason:\n{text}");
    assert_eq!(of("faults"), of("spf") + given_up, "two threads always try first:\n{text}");
    assert!(text.contains("<not supported>      pagefault:spf_pte_lock"), "{text}");
}

#[test]
fn what_a_design_or_the_host_never_counts_is_not_supported() {
    let output = stat(&["-e", "faults,spf,pagefault:*,cow", "malloc1", "--design", "mmap-sem,linux", "-d", "20ms"]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let text = out(&output);
    let (classic, host) = text.split_once("under linux").expect("two blocks");
    assert!(count(classic, "faults").is_some_and(|faults| faults > 0), "{text}");
    for block in [classic, host] {
        let has_none = block.contains("<not supported>      pagefault:spf_vma_changed");
        assert!(has_none && block.contains("<not supported>      spf") || block == host, "{text}");
    }
    assert!(classic.lines().any(|line| line.trim_start().starts_with("0") && line.contains("cow")), "{text}");
    assert!(host.contains("<not supported>      cow"), "{text}");
    let faults = count(host, "faults");
    assert!(faults.is_some_and(|faults| faults > 0) || host.contains("<not supported>      faults"), "{text}");
}

#[test]
fn a_trace_is_counted_on_the_host_too() {
    let output = stat(&["-e", "faults,spf-failed", &example("python.trace"), "--design", "linux"]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let text = out(&output);
    let faults = count(&text, "faults");
    assert!(faults.is_some_and(|faults| faults > 0) || text.contains("<not supported>      faults"), "{text}");
}

#[test]
fn runs_have_a_spread_and_machine_formats_every_sample() {
    let arguments = ["-e", "faults,cow", &example("python.trace"), "--design", "spf-v11", "-r", "3"];
    let human = stat(&arguments);
    assert!(out(&human).contains("(3 runs; mean +- standard deviation)"), "{}", out(&human));
    assert!(out(&human).contains("( +-  0.00% )"), "a replay faults alike each time: {}", out(&human));
    let json = stat(&[&arguments[..], &["--format", "json"]].concat());
    let set: Value = serde_json::from_str(&out(&json)).expect("JSON");
    assert_eq!((&set["schema"], &set["command"]), (&"faultless/1".into(), &"stat".into()));
    let results = set["results"].as_array().expect("a list");
    let metrics: Vec<&str> = results.iter().filter_map(|result| result["metric"].as_str()).collect();
    assert_eq!(metrics, ["elapsed_ns", "faults", "cow"]);
    assert!(results.iter().all(|result| result["samples"].as_array().is_some_and(|samples| samples.len() == 3)));
    let workload = stat(&["mmap1", "--design", "mmap-sem", "-d", "5ms", "-e", "faults", "--format", "json"]);
    let set: Value = serde_json::from_str(&out(&workload)).expect("JSON");
    let first = &set["results"][0];
    assert_eq!((&first["metric"], &first["unit"]), (&"ops_per_s".into(), &"ops/s".into()), "its time is given");
    for format in ["csv", "markdown"] {
        let printed = stat(&[&arguments[..], &["--format", format]].concat());
        assert!(printed.status.success() && out(&printed).contains("faults"), "{format}: {}", err(&printed));
    }
}

#[test]
fn vmstat_s_form_is_a_name_and_a_number_a_line() {
    let output = stat(&["--vmstat", &example("python.trace"), "--design", "spf-v11"]);
    let text = out(&output);
    assert!(text.lines().all(|line| {
        line.split_once(' ').is_some_and(|(name, count)| !name.is_empty() && count.parse::<u64>().is_ok())
    }));
    assert!(text.contains("\nspeculative_pgfault ") && text.starts_with("pgfault "), "{text}");
}

#[test]
fn locks_are_shown_with_their_callers() {
    let arguments = ["--locks", &example("mapper.trace"), "--design", "mmap-sem", "-e", "faults", "-r", "2"];
    let text = out(&stat(&arguments));
    let headings = ["UTIL", "CON", "HOLD", "WAIT", "MEAN", "MAX", "% CPU", "TOTAL", "NOWAIT", "RJECT", "NAME"];
    headings.iter().for_each(|word| assert!(text.contains(word), "{word}:\n{text}"));
    let of = |name: &str| {
        let line = text.lines().find(|line| line.contains(name)).unwrap_or_else(|| panic!("{name}:\n{text}"));
        line.split_whitespace().find(|word| word.contains(',')).map(|word| word.replace(',', "")).unwrap_or_default()
    };
    let faults = count(&text, "faults").expect("counted");
    // Each fault reads the semaphore once at least, and takes its table's lock.
    let readers: u64 = of("  mmap_sem (read)").parse().expect("a number");
    assert!(readers >= 2 * faults, "{readers} {faults}\n{text}");
    assert!(text.contains("    vm/fault/classic.rs:") && text.contains("  page_table"), "{text}");
    let json = stat(&[&arguments[..], &["--format", "json"]].concat());
    let set: Value = serde_json::from_str(&out(&json)).expect("JSON");
    let locks = set["locks"][0]["locks"].as_array().expect("a list");
    assert!(locks.iter().any(|line| line["lock"] == "mmap_sem (write)" && line["caller"].is_string()), "{set}");
    let metrics: Vec<&str> =
        set["results"].as_array().expect("a list").iter().filter_map(|r| r["metric"].as_str()).collect();
    assert!(metrics.contains(&"locks.mmap_sem.read.utilisation"), "{metrics:?}");
}

/// In a memory of 4 GiB, of which a CPU may keep 4 MiB.
#[test]
fn a_loop_that_maps_touches_and_unmaps_128_mib_meets_the_zones_lock_less_than_once_in_500_pages() {
    let words = ["--locks", "page_fault1 --region 128M", "--memory", "4G", "--cpus", "1", "-d", "300ms"];
    let output = stat(&[&words[..], &["--design", &DESIGNS.join(","), "--format", "json"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let set: Value = serde_json::from_str(&out(&output)).expect("JSON");
    for &design in DESIGNS {
        let of_design = |list: &str| set[list].as_array().expect("a list").iter().filter(|row| row["design"] == design);
        let ops = of_design("results").find(|row| row["metric"] == "ops").expect("counted");
        let ops = ops["samples"][0].as_f64().expect("a number");
        let locks = of_design("locks").flat_map(|row| row["locks"].as_array().expect("a list"));
        let is_zone = |lock: &&Value| lock["lock"] == "zone" && lock["caller"].is_null();
        let nr_taken: f64 = locks.filter(is_zone).map(|lock| lock["total"].as_f64().expect("a number")).sum();
        assert!(nr_taken > 0.0 && ops > 500.0 * nr_taken, "{design}: {nr_taken} times for {ops} pages");
    }
}

#[test]
fn a_stream_has_a_line_for_each_event_that_is_counted() {
    let output =
        stat(&["--trace", "-e", "faults,pagefault:spf_vma_noanon", &example("mapper.trace"), "--design", "spf-v11"]);
    let text = out(&output);
    let nr_lines =
        |event: &str| text.lines().filter(|line| line.starts_with('[') && line.contains(event)).count() as u64;
    for event in ["faults", "pagefault:spf_vma_noanon"] {
        assert_eq!(Some(nr_lines(event)), count(&text, event), "{event}");
    }
    let first = text.lines().find(|line| line.starts_with('[')).expect("a line");
    assert!(first.contains(" cpu ") && first.contains(" thread ") && first.contains(" address 0x"), "{first}");
    let json = stat(&["--trace", "-e", "cow", &example("python.trace"), "--format", "json"]);
    assert!(serde_json::from_str::<Value>(&out(&json)).is_ok(), "the stream stays out of the document");
    assert!(err(&json).contains(" cow "), "{}", err(&json));
}

#[test]
fn bad_input_gets_the_list_and_the_nearest_name() {
    let cases = [
        (&["-e", "fault", "malloc1"][..], "did you mean faults?"),
        (&["-e", "pagefault:x*", "malloc1"][..], "pagefault:spf_vma_changed"),
        (&["-e", "", "malloc1"][..], "there are: faults"),
        (&["maloc1"][..], "did you mean malloc1?"),
        (&["malloc1", "--design", "spf-v12"][..], "did you mean spf-v11?"),
        (&["malloc1", "--semaphore", "x"][..], "rwsem-v8"),
        (&["malloc1", "--machine", "x"][..], "native"),
        (&["malloc1", "-r", "0"][..], "-r"),
        (&["malloc1", "--cpus", "0"][..], "--cpus"),
        (&[][..], "required"),
    ];
    for (arguments, word) in cases {
        let refused = stat(arguments);
        assert_eq!(refused.status.code(), Some(2), "{arguments:?}: {}", err(&refused));
        assert!(err(&refused).contains(word) && out(&refused).is_empty(), "{arguments:?}: {}", err(&refused));
    }
    let missing = stat(&["./missing.trace"]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(err(&missing).contains("missing.trace"), "{}", err(&missing));
}

#[test]
fn a_workload_that_finds_no_memory_fails_alone() {
    let output = stat(&["page_fault1", "--design", "spf-v11,linux", "--memory", "8M", "-d", "20ms", "-e", "faults"]);
    assert_eq!(output.status.code(), Some(1), "{}", out(&output));
    assert!(err(&output).contains("--memory") && !err(&output).contains("panicked"), "{}", err(&output));
    assert!(out(&output).contains("under linux"), "{}", out(&output));
}

#[test]
fn every_give_up_has_one_reason_that_is_shown() {
    let mut nr_that_try = 0;
    for design in DESIGNS {
        let arguments = ["corten-pf --high", "--design", design, "--cpus", "2", "-d", "200ms"];
        let output = stat(&[&arguments[..], &["-e", "spf-failed,pagefault:*"]].concat());
        let shown = out(&output);
        // Not supported where no fault is tried without the lock first.
        let Some(failed) = count(&shown, "spf-failed") else { continue };
        nr_that_try += 1;
        let reasons = shown.lines().filter_map(|line| line.split_whitespace().nth(1));
        let reasons: Vec<&str> = reasons.filter(|name| name.starts_with("pagefault:")).collect();
        let sum: u64 = reasons.iter().filter_map(|name| count(&shown, name)).sum();
        assert_eq!(failed, sum, "{shown}");
    }
    assert_eq!(nr_that_try, DESIGNS.len() - 1, "all but mmap-sem");
}

#[test]
fn a_store_to_a_private_file_page_is_a_copy() {
    let shown = out(&stat(&["page_fault2", "--design", "mmap-sem", "--cpus", "1", "-d", "20ms", "-e", "faults,cow"]));
    assert!(count(&shown, "cow").is_some_and(|copies| copies > 0), "{shown}");
    assert_eq!(count(&shown, "cow"), count(&shown, "faults"), "{shown}");
}

#[test]
fn what_was_counted_before_an_interrupt_is_printed() {
    let mut command = interruptible();
    command.args(["stat", "malloc1", "--design", "mmap-sem", "-d", "100ms", "-r", "600", "-e", "faults"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    std::thread::sleep(std::time::Duration::from_millis(700));
    // SAFETY: the call takes integers only; the child has not been waited for.
    unsafe { libc::kill(child.id() as i32, libc::SIGINT) };
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(130), "{}", err(&output));
    assert!(count(&out(&output), "faults").is_some_and(|faults| faults > 0), "{}", out(&output));
}
