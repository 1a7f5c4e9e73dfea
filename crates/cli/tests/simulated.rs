//! Simulated machines under `bench`, `replay` and `stat`: the same bytes for the same seed, whatever runs beside, and
//! clear errors.

use std::collections::BTreeSet;
use std::process::{Child, Command, Output, Stdio};

fn faultless(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_faultless"));
    command.args(words);
    command
}

fn output(mut command: Command) -> Output {
    command.output().expect("the command runs")
}

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}", stderr(output));
    String::from_utf8(output.stdout.clone()).expect("text")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn json(output: &Output) -> serde_json::Value {
    serde_json::from_str(&stdout(output)).expect("JSON")
}

const BENCH: &[&str] = &[
    "bench",
    "page_fault1",
    "malloc1",
    "ebizzy -mTt 64",
    "--machine",
    "skylake-192",
    "--cpus",
    "1,48",
    "--design",
    "mmap-sem,spf-v11,vma-lock",
    "-r",
    "2",
    "-d",
    "300us",
    "--format",
    "json",
    "--seed",
    "5",
];

/// Runs the command twice, in processes with other jobs and another environment, which moves the stack: the same bytes.
fn same_bytes(words: &[&str]) -> String {
    let randomised = std::fs::read_to_string("/proc/sys/kernel/randomize_va_space").expect("Linux");
    assert_eq!(randomised.trim(), "2", "without address randomisation this test shows nothing");
    let first = output({
        let mut command = faultless(words);
        command.args(["--jobs", "1"]);
        command
    });
    let second = output({
        let mut command = faultless(words);
        command.args(["--jobs", "2"]).env("FAULTLESS_UNUSED", "x".repeat(5000));
        command
    });
    assert_eq!(stdout(&first), stdout(&second));
    stdout(&first)
}

#[test]
fn a_seed_gives_the_same_bytes_in_any_process_and_beside_any_other_run() {
    let first: serde_json::Value = serde_json::from_str(&same_bytes(BENCH)).expect("JSON");
    let other = output({
        let mut command = faultless(&BENCH[..BENCH.len() - 1]);
        command.arg("6");
        command
    });
    assert_ne!(json(&other)["results"], first["results"]);
}

const MAPPER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/mapper.trace");
/// `examples/programs/crowd.c`, recorded on two CPUs: 64 threads, each with a region of its own.
const CROWD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/crowd.trace");

#[test]
fn a_replay_gives_the_same_bytes_too() {
    let words =
        ["replay", MAPPER, "--machine", "epyc-384", "--cpus", "6", "-r", "2", "--format", "json", "--seed", "3"];
    assert!(same_bytes(&words).contains("\"simulated\": true"));
}

#[test]
fn results_say_that_they_are_simulated_and_with_which_parameters() {
    let words = ["bench", "mmap1", "--machine", "epyc-384", "--cpus", "2", "--design", "mmap-sem", "-d", "100us"];
    let human = stdout(&output(faultless(&words)));
    for part in ["epyc-384 (simulated)", "seeds 1 to 5", "median [least, most]", "rmw_ns 6.5,", "wake_ns 1000.0*"] {
        assert!(human.contains(part), "{part:?} is missing in\n{human}");
    }
    let machine = &json(&output({
        let mut command = faultless(&words);
        command.args(["--format", "json"]);
        command
    }))["machine"];
    assert_eq!((&machine["simulated"], &machine["cpus"]), (&true.into(), &384.into()));
    assert!(machine["parameters"]["read.remote_ns"]["source"].as_str().is_some_and(|source| !source.is_empty()));
}

#[test]
fn a_program_of_64_threads_recorded_on_two_cpus_replays_on_64() {
    let time_of = |cpus: &str| {
        let words = [
            &["replay", CROWD, "--machine", "power8-80", "--cpus", cpus, "--pace", "recorded", "-r", "1"][..],
            &["--design", "vma-lock", "--format", "json"],
        ];
        let result = json(&output(faultless(&words.concat())));
        assert_eq!(result["machine"]["simulated"], true);
        assert_eq!(result["checks"]["mismatches"], 0);
        assert_eq!(result["checks"]["faults_recorded"], result["checks"]["faults_replayed"]);
        let results = result["results"].as_array().expect("results");
        let time = results.iter().find(|result| result["metric"] == "elapsed_ns").expect("a time");
        time["samples"][0].as_f64().expect("a number")
    };
    let (two, many) = (time_of("2"), time_of("64"));
    assert!(many * 4.0 < two, "{two} ns on 2 CPUs, {many} ns on 64");
}

#[test]
fn a_machine_of_192_cpus_takes_little_memory_beyond_the_frames() {
    let words =
        ["bench", "page_fault1", "--machine", "skylake-192", "--cpus", "192", "--design", "vma-lock", "-r", "1"];
    let mut command = faultless(&words);
    command.args(["-d", "4ms", "--jobs", "1", "--format", "json"]).stdout(Stdio::piped());
    let child = command.spawn().expect("the command runs");
    let (text, peak_kib) = wait(child);
    let result: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let results = result["results"].as_array().expect("results");
    let frames = results.iter().find(|result| result["metric"] == "peak_rss_bytes").expect("resident frames");
    let frames_kib = frames["samples"][0].as_f64().expect("a number") / 1024.0;
    println!("{peak_kib} KiB resident at most, of which frames in use {frames_kib} KiB");
    assert!(frames_kib > 10_000.0, "{frames_kib} KiB");
    // Stacks, lists of each CPU for each node, and a page of metadata for each 4 MiB of memory, of which there are 12
    // GiB; besides, what is known of each line that was touched: the more lines, the further the run gets.
    let most_kib = 100.0 * 1024.0 + 0.6 * frames_kib;
    assert!(peak_kib - frames_kib <= most_kib, "{peak_kib} KiB, of which frames {frames_kib} KiB");
}

/// Waits for a child; returns what it printed, and the most memory that it had, in KiB.
fn wait(mut child: Child) -> (String, f64) {
    let mut text = String::new();
    std::io::Read::read_to_string(child.stdout.as_mut().expect("piped"), &mut text).expect("text");
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    let mut status = 0;
    // SAFETY: both places are ours; the child was not waited for yet.
    let waited = unsafe { libc::wait4(child.id() as i32, &raw mut status, 0, usage.as_mut_ptr()) };
    assert_eq!((waited, status), (child.id() as i32, 0));
    // SAFETY: zeroed, and filled by the kernel.
    (text, unsafe { usage.assume_init() }.ru_maxrss as f64)
}

/// Returns the throughput's results of a `bench` of mmap1 on one and two CPUs.
fn throughputs(more: &[&str]) -> (Vec<serde_json::Value>, serde_json::Value) {
    let words = ["bench", "mmap1", "--machine", "epyc-384", "--design", "mmap-sem", "-r", "1", "--format", "json"];
    let mut set = json(&output(faultless(&[&words, more].concat())));
    let checks = set["checks"].take();
    let mut results = set["results"].as_array().expect("results").clone();
    results.retain(|result| result["metric"] == "ops_per_s");
    (results, checks)
}

#[test]
fn a_run_goes_on_until_its_halves_agree_and_says_so_if_they_do_not() {
    let (settled, checks) = throughputs(&["--cpus", "1"]);
    assert_eq!((&settled[0]["converged"], &checks["not_converged_runs"]), (&[true][..].into(), &0.into()));
    assert!(settled[0]["window_ns"][0].as_u64() >= Some(4_000_000), "{}", settled[0]);
    // Threads of one space that begin together: which short windows do not agree depends on what a call costs.
    let limits = ["30us", "50us", "70us", "100us", "150us", "200us", "300us"];
    let moving = |limit: &&&str| throughputs(&["--cpus", "2", "--at-most", limit]).1["not_converged_runs"] == 1;
    let limit = limits.iter().find(moving).expect("a window that does not agree");
    let (moving, _) = throughputs(&["--cpus", "2", "--at-most", limit]);
    assert_eq!(moving[0]["converged"], serde_json::json!([false]));
    let words = ["bench", "mmap1", "--machine", "epyc-384", "--design", "mmap-sem", "-r", "1", "--cpus", "2"];
    let human = stdout(&output(faultless(&[&words[..], &["--at-most", limit]].concat())));
    assert!(human.contains("] not converged\n") && human.contains("judge nothing by them"), "{human}");
    let (asked, _) = throughputs(&["--cpus", "2", "-d", "50us"]);
    assert_eq!(asked[0]["converged"], serde_json::Value::Null, "a window that was asked for is not judged");
}

#[test]
fn the_ceiling_is_one_cpus_rate_on_all_cores() {
    let (results, _) = throughputs(&["--cpus", "4", "-d", "300us", "--processes", "--ceiling"]);
    let rate = |place: usize| results[place]["samples"][0].as_f64().expect("a rate");
    let linear = results[1]["linear"]["ops_per_s"].as_f64().expect("a ceiling");
    assert_eq!((&results[0]["cpus"], &results[1]["cpus"]), (&1.into(), &4.into()));
    assert!((linear / rate(0) - 4.0).abs() < 1e-9, "{linear} {}", rate(0));
    let reached = results[1]["linear"]["reached"].as_f64().expect("a share");
    assert!((reached - rate(1) / linear).abs() < 1e-9 && reached > 0.5, "{reached}");
    let native = output(faultless(&["bench", "mmap1", "--ceiling", "--cpus", "1"]));
    assert_eq!(native.status.code(), Some(2));
    assert!(stderr(&native).contains("--ceiling is for simulated machines"), "{}", stderr(&native));
}

#[test]
fn the_line_that_all_cpus_write_is_named_and_the_books_balance() {
    let words = ["bench", "page_fault1", "--machine", "skylake-192", "--cpus", "16", "-r", "1", "-d", "500us"];
    let told = json(&output(faultless(&[&words[..], &["--design", "mmap-sem,vma-lock", "--format", "json"]].concat())));
    let rates = told["results"].as_array().expect("results").iter().filter(|result| result["metric"] == "ops_per_s");
    let books: Vec<(&str, &serde_json::Value)> =
        rates.map(|rate| (rate["design"].as_str().expect("a name"), &rate["profile"])).collect();
    let hottest = |design: &str| {
        let (_, profile) = books.iter().find(|(name, _)| *name == design).expect("a design");
        let ns = |value: &serde_json::Value| value["ns"].as_u64().expect("ns");
        let lines = profile["lines"].as_array().expect("lines");
        let waits = profile["waits"].as_array().expect("waits");
        let other = ["bus_ns", "interrupted_ns"].map(|key| profile[key].as_u64().expect("ns"));
        let parts: u64 = lines.iter().chain(waits).map(ns).chain(other).sum();
        let all = profile["thread_ns"].as_u64().expect("ns");
        assert!(all >= 16 * 480_000 && parts > 0 && parts < all, "{design}: {parts} of {all}");
        lines[0].clone()
    };
    let names = [
        ("mmap-sem", "the address-space lock (its count of readers and writers)"),
        ("vma-lock", "an area's lock (its count of readers)"),
    ];
    for (design, name) in names {
        let line = hottest(design);
        let ns = |value: &serde_json::Value| value["ns"].as_f64().expect("ns");
        assert_eq!((&line["name"], &line["hottest"]["writers"]), (&name.into(), &16.into()), "{design}: {line}");
        assert!(ns(&line["hottest"]) > 0.9 * ns(&line), "one line: {line}");
    }
    let told = told["verdict"].as_str().expect("a verdict");
    assert!(told.contains(" fetching one line that all 16 CPUs write: an area's lock (its count of"), "{told}");
}

#[test]
fn stat_counts_on_a_simulated_machine() {
    let words =
        ["stat", "-e", "faults,spf", "page_fault1", "--machine", "xeon-40", "--cpus", "40", "--locks", "-d", "500us"];
    let human = stdout(&output(faultless(&words)));
    assert!(human.contains("simulated on xeon-40") && human.contains("Lock statistics"), "{human}");
}

#[test]
fn what_does_not_fit_a_machine_is_told_with_the_number() {
    let too_many = output(faultless(&["bench", "mmap1", "--machine", "xeon-40", "--cpus", "8,41"]));
    assert_eq!(too_many.status.code(), Some(2));
    assert!(stderr(&too_many).contains("41 CPUs were asked for: machine xeon-40 has 1 to 40"), "{}", stderr(&too_many));
    let unknown = output(faultless(&["replay", "x.trace", "--machine", "xeon-4O"]));
    assert_eq!(unknown.status.code(), Some(1), "the trace is looked for first");
    let unknown = output(faultless(&["bench", "mmap1", "--machine", "xeon-4O"]));
    assert_eq!(unknown.status.code(), Some(2));
    assert!(stderr(&unknown).contains("did you mean xeon-40?"), "{}", stderr(&unknown));
    let host = output(faultless(&["bench", "mmap1", "--machine", "xeon-40", "--design", "linux", "--cpus", "1"]));
    assert_eq!(host.status.code(), Some(2), "{}", stderr(&host));
}

#[test]
fn a_wrong_machine_file_is_told_with_key_and_value() {
    let path = std::env::temp_dir().join(format!("faultless-wrong-{}.toml", std::process::id()));
    let good = stdout(&output(faultless(&["machines", "xeon-40", "--file"])));
    let name = path.to_str().expect("plain");
    for (from, to, words) in [
        ("sockets = { value = 4", "sockets = { value = 0", "topology.sockets = 0"),
        ("[scheduler]", "[sheduler]", "sheduler"),
        ("local_ns = { value = 110", "local_ns = { value = -1", "memory.local_ns = -1"),
    ] {
        assert!(good.contains(from), "{good}");
        std::fs::write(&path, good.replacen(from, to, 1)).expect("a file");
        let wrong = output(faultless(&["bench", "mmap1", "--machine", name]));
        assert_eq!(wrong.status.code(), Some(2));
        assert!(stderr(&wrong).contains(words) && stderr(&wrong).contains(name), "{}", stderr(&wrong));
    }
    std::fs::write(&path, good).expect("a file");
    let words = ["bench", "mmap1", "--machine", name, "--cpus", "2", "-d", "50us", "-r", "1", "--design", "mmap-sem"];
    stdout(&output(faultless(&words)));
    std::fs::remove_file(&path).expect("removed");
}

#[test]
fn published_tables_are_listed_and_found_by_their_beginning() {
    let list = stdout(&output(faultless(&["reproduce", "--list"])));
    assert!(list.contains("spf-2018-lkp-v9") && list.contains("spf-2017-ebizzy"), "{list}");
    assert!(list.contains("kmap-2002"), "{list}");
    let unknown = output(faultless(&["reproduce", "spf-2019"]));
    assert_eq!(unknown.status.code(), Some(2));
    assert!(stderr(&unknown).contains("spf-2018-ebizzy"), "{}", stderr(&unknown));
}

#[test]
fn kernel_maps_have_a_curve_for_each_scheme_and_say_what_was_typed() {
    let words = "bench kmap --scheme pool,all --machine numaq-16 --cpus 1,4 --frames 300 --slots 64 --hold 1us -d 1ms -r 2 --format json";
    let set = json(&output(faultless(&words.split(' ').collect::<Vec<_>>())));
    let results = set["results"].as_array().expect("results");
    assert_eq!(results.len(), 16, "eight schemes, two numbers of CPUs");
    let of = |scheme: &str, cpus: u64| {
        let name = format!("kmap --scheme {scheme} --frames 300 --hold 1us --slots 64");
        let found = results.iter().find(|result| result["workload"] == name.as_str() && result["cpus"] == cpus);
        found.unwrap_or_else(|| panic!("no {name} on {cpus} CPUs in {set:#}"))
    };
    let rate = |scheme: &str, cpus| of(scheme, cpus)["samples"][0].as_f64().expect("a rate");
    assert!(rate("local", 4) > 3.8 * rate("local", 1) && rate("pool", 4) < rate("pool", 1));
    let pool = of("pool", 4);
    assert_eq!((&pool["params"]["scheme"], &pool["params"]["slots"]), (&"pool".into(), &64.into()));
    assert!(pool["counters"]["flushes"].as_u64() > Some(0) && pool["counters"]["interrupts"].as_u64() > Some(0));
    let refused = output(faultless(&["bench", "kmap"]));
    assert!(
        refused.status.code() == Some(2) && stderr(&refused).contains("--machine numaq-16"),
        "{}",
        stderr(&refused)
    );
    for (flags, wanted) in [
        ("--scheme pool,atomic --sleepers 2", "under atomic nobody sleeps while holding a map"),
        ("--scheme pool --hold 1h", "--hold 1h is longer than a run, which is 40.0 ms"),
    ] {
        for command in ["bench", "stat"] {
            let words = format!("{command} kmap --machine numaq-16 --cpus 2 {flags}");
            let refused = output(faultless(&words.split(' ').collect::<Vec<_>>()));
            let said = stderr(&refused);
            assert!(refused.status.code() == Some(2) && said.contains(wanted), "{words}: {said}");
        }
    }
    for (flags, wanted) in [
        ("--section 1h -d 2ms", "--section 1h is longer than a run, which is 2.00 ms"),
        ("--grid -d 9us", "--grid's section of 10us is longer than a run, which is 9.00 us"),
    ] {
        let words = format!("bench rwsem --machine xeon-40 --cpus 2 {flags}");
        let refused = output(faultless(&words.split(' ').collect::<Vec<_>>()));
        let said = stderr(&refused);
        assert!(refused.status.code() == Some(2) && said.contains(wanted), "{words}: {said}");
    }
    let unknown = output(faultless(&["bench", "kmap", "--scheme", "pol", "--machine", "numaq-16"]));
    assert!(unknown.status.code() == Some(2) && stderr(&unknown).contains("pool"), "{}", stderr(&unknown));
}

#[test]
fn a_flag_that_would_change_nothing_is_refused_by_its_name() {
    let of_maps = "--design vma-lock|--semaphore handoff|--ceiling|--at-most 1ms|--grid|--readers 3:1|--tables high";
    let of_semaphores = "--design vma-lock|--ceiling|--at-most 1ms|--processes|--pin|--memory 1G|--variant anon|--tables high|--slots 8";
    let of_tables = "--ceiling|--at-most 1ms|--placement spread|--filter c|--memory 1G|--variant anon";
    let measured = [("kmap", of_maps), ("rwsem", of_semaphores), ("compile --tables high", of_tables)];
    for (name, flags) in measured {
        for flag in flags.split('|') {
            let words = format!("bench {name} --machine numaq-16 --cpus 2 -r 1 {flag}");
            let refused = output(faultless(&words.split(' ').collect::<Vec<_>>()));
            let said = stderr(&refused);
            assert_eq!(refused.status.code(), Some(2), "{words}: {said}");
            assert!(said.contains(flag.split(' ').next().expect("a word")), "{words}: {said}");
        }
    }
    for alone in ["kmap", "rwsem"] {
        let refused = output(faultless(&["bench", "malloc1", alone]));
        assert!(refused.status.code() == Some(2) && stderr(&refused).contains("name it alone"), "{}", stderr(&refused));
    }
    let refused = output(faultless(&["stat", "kmap", "--machine", "numaq-16", "--design", "vma-lock"]));
    assert!(refused.status.code() == Some(2) && stderr(&refused).contains("--design"), "{}", stderr(&refused));
    let listed = stdout(&output(faultless(&["workloads"])));
    assert!(listed.contains("\nrwsem ") && listed.contains("\nkmap "), "{listed}");
}

#[test]
fn the_grid_of_semaphores_has_twenty_cells_and_counts_those_that_are_lost() {
    let words = ["bench", "rwsem", "--grid", "--machine", "xeon-40", "--cpus", "2", "-r", "2", "-d", "200us"];
    let words = [&words[..], &["--semaphore", "rwsem-2012,handoff"]].concat();
    let human = stdout(&output(faultless(&words)));
    let cells = human.lines().filter(|line| line.trim_start().starts_with("10000:1")).count();
    assert_eq!(cells, 8, "four loads, rates and waits:\n{human}");
    let verdict = human.lines().find(|line| line.starts_with("handoff")).expect("a line of verdicts");
    assert_eq!(verdict.split_whitespace().nth(1), Some("20"), "{verdict}");
    let set = json(&output(faultless(&[&words[..], &["--format", "json"]].concat())));
    let results = set["results"].as_array().expect("results");
    let rates: Vec<_> = results.iter().filter(|result| result["metric"] == "ops_per_s").collect();
    assert_eq!(rates.len(), 40);
    let twice =
        |result: &&&serde_json::Value| result["workload"].as_str().is_some_and(|of| of.ends_with("--threads 2"));
    assert_eq!((rates.iter().filter(twice).count(), &rates[39]["workers"]), (20, &4.into()));
    let refused = output(faultless(&[&words[..], &["--readers", "1:1"]].concat()));
    assert_eq!(refused.status.code(), Some(2), "the grid says what readers there are");
}

/// Returns the callers of a lock in a table of lock statistics, each with its attempts.
fn callers(table: &str, lock: &str) -> Vec<(String, u64)> {
    let mut lines = table.lines().skip_while(|line| !line.ends_with(&format!("  {lock}"))).skip(1);
    let of = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let &[.., attempts, _, _, _, name] = words.as_slice() else { panic!("no line of a lock: {line}") };
        (name.to_owned(), attempts.replace(',', "").parse().expect("a number"))
    };
    std::iter::from_fn(|| lines.next().filter(|line| line.contains("    "))).take(2).map(of).collect()
}

#[test]
fn the_pool_s_lock_is_shown_with_its_two_callers() {
    for subject in ["kmap --scheme pool -d 1ms", "compile --tables high --scheme pool"] {
        let words = format!("stat --locks {subject} --machine numaq-16 --cpus 2");
        let table = stdout(&output(faultless(&words.split(' ').collect::<Vec<_>>())));
        let mut found = callers(&table, "kmap_lock");
        found.sort();
        let names: Vec<&str> = found.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, ["kmap_high", "kunmap_high"], "{table}");
        let (map, unmap) = (found[0].1, found[1].1);
        assert!(map > 100 && map.abs_diff(unmap) <= 4, "as many maps as unmaps: {table}");
    }
    let alone = output(faultless(&["stat", "malloc1", "--scheme", "pool", "--machine", "numaq-16", "--cpus", "2"]));
    assert!(alone.status.code() == Some(2) && stderr(&alone).contains("--tables"), "{}", stderr(&alone));
}

#[test]
fn the_locks_of_several_schemes_are_shown_one_after_the_other() {
    for subject in ["kmap --scheme pool,local -d 1ms", "compile --tables high --scheme pool,local --design mmap-sem"] {
        let words = format!("stat --locks {subject} --machine numaq-16 --cpus 2");
        let table = stdout(&output(faultless(&words.split(' ').collect::<Vec<_>>())));
        let blocks: Vec<&str> = table.split("Lock statistics of").skip(1).collect();
        assert_eq!(blocks.len(), 2, "{table}");
        assert!(blocks[0].contains("--scheme pool") && blocks[0].contains("kmap_lock"), "{table}");
        assert!(blocks[1].contains("--scheme local") && !blocks[1].contains("kmap_lock"), "{table}");
        let words = format!("{words} --format json");
        let set = json(&output(faultless(&words.split(' ').collect::<Vec<_>>())));
        let schemes: BTreeSet<&str> = set["results"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|result| result["params"]["scheme"].as_str())
            .collect();
        assert_eq!(schemes.into_iter().collect::<Vec<_>>(), ["local", "pool"]);
        assert_eq!(set["locks"].as_array().unwrap().len(), 2);
    }
}

#[test]
fn flags_are_part_of_the_workload_as_typed_and_an_object_beside_it() {
    let first = |words: &str| {
        let words = format!("{words} --machine numaq-16 --cpus 1 --format json");
        let set = json(&output(faultless(&words.split(' ').collect::<Vec<_>>())));
        let result = &set["results"][0];
        (result["workload"].as_str().expect("a name").to_owned(), result["params"].clone())
    };
    let (name, params) = first("stat compile --tables high --scheme pool --slots 64 --design mmap-sem");
    assert_eq!(name, "compile --tables high --scheme pool --slots 64");
    assert_eq!((&params["scheme"], &params["slots"], &params["tables"]), (&"pool".into(), &64.into(), &true.into()));
    let (name, params) = first("stat kmap --scheme local --frames 300 -d 1ms");
    assert_eq!(name, "kmap --scheme local --frames 300");
    assert_eq!((&params["scheme"], &params["frames"]), (&"local".into(), &300.into()));
    let (name, params) = first("bench refpage --variant refpage --design mmap-sem -r 1 -d 200us");
    assert_eq!(name, "refpage --variant refpage --touch one");
    assert_eq!(params, serde_json::json!({ "variant": "refpage", "touch": "one" }));
    let (_, params) = first("bench mmap1 --placement spread --design mmap-sem -r 1 -d 200us");
    assert_eq!(params, serde_json::json!({ "placement": "spread" }));
}

#[test]
fn page_tables_in_high_memory_cost_what_their_scheme_costs() {
    let words = "bench compile --tables high --scheme pool,local,per-process --slots 64 --machine numaq-16 --cpus 8 -r 1 --format json";
    let set = json(&output(faultless(&words.split(' ').collect::<Vec<_>>())));
    let results = set["results"].as_array().expect("results");
    let rate = |workload: &str| {
        let found = results.iter().find(|result| result["workload"] == workload);
        let result = found.unwrap_or_else(|| panic!("no {workload} in {set:#}"));
        (result["samples"][0].as_f64().expect("a rate"), result["counters"]["maps"].as_u64().expect("a count"))
    };
    let (plain, none) = rate("compile");
    let (pool, pool_maps) = rate("compile --tables high --scheme pool --slots 64");
    let (local, local_maps) = rate("compile --tables high --scheme local --slots 64");
    assert!(none == 0 && pool_maps > 10_000 && pool_maps.abs_diff(local_maps) < pool_maps / 50, "{set:#}");
    assert!(pool < 0.5 * plain && local > 0.9 * plain, "pool {pool}, local {local}, no maps {plain}");
    let (own, _) = rate("compile --tables high --scheme per-process --slots 64");
    assert!(own > 0.9 * plain, "processes with maps of their own {own}, no maps {plain}");
    let refused = output(faultless(&["bench", "compile", "--tables", "high"]));
    assert!(refused.status.code() == Some(2) && stderr(&refused).contains("numaq-16"), "{}", stderr(&refused));
    let sleeper = "bench compile --tables high --scheme pool --design vma-lock --machine numaq-16 --cpus 1 -r 1";
    let refused = output(faultless(&sleeper.split(' ').collect::<Vec<_>>()));
    assert!(!refused.status.success() && stderr(&refused).contains("mmap-sem"), "{}", stderr(&refused));
}

#[test]
fn reference_pages_keep_their_promises_in_virtual_time() {
    let variants = ["bench", "refpage", "--variant", "anon,memset,refpage,pattern", "--machine", "here", "--cpus", "1"];
    let human = stdout(&output(faultless(&[&variants[..], &["-r", "1", "--design", "faultless"]].concat())));
    let section = |heading: &str| {
        let text = human.split_once(heading).unwrap_or_else(|| panic!("no '{heading}' in {human}")).1;
        text.split("\n\n").next().unwrap_or_default().lines().skip(2).map(str::to_owned).collect::<Vec<_>>()
    };
    let gains = section("against memset, a round");
    assert_eq!(gains.len(), 6, "three rows of version 5, for a reference page and for a pattern: {human}");
    for row in gains {
        let found = row.split_once("us  ").and_then(|(_, rest)| rest.rsplit_once("us  ")).expect("a row").1;
        let share: f64 = found.trim().split(' ').next().and_then(|share| share.parse().ok()).expect("a share");
        assert!(share >= 0.9, "{row}");
    }
    let renderer = section("the recorded renderer, a pass");
    for row in renderer.iter().filter(|row| !row.contains("memset")) {
        let share = row.split_whitespace().rev().nth(1).and_then(|share| share.parse::<f64>().ok());
        assert!(share.is_some_and(|share| share < 50.0), "half of memset's overhead: {row}");
    }
    assert_eq!((renderer.len(), section("the share of pages touched").len()), (3, 8), "{human}");
    assert_eq!(section("programs that load first").len(), 2, "{human}");
    // Sizes: anon / memset / refpage / pattern of the renderer.
    let times = section("reference pages: 1000 rounds");
    let sizes = times.iter().find(|row| row.contains(" renderer ")).expect("a row of times");
    let kib: Vec<u64> = sizes.split(" / ").skip(1).filter_map(|part| part.split(' ').next()?.parse().ok()).collect();
    assert!(kib[2] == kib[0] && kib[1] > kib[0], "{sizes}");
    assert_eq!(human.matches("at a time").count(), 1, "one size for all variants: {human}");
    let two = ["bench", "refpage", "--variant", "anon,memset", "--machine", "here", "--cpus", "1", "-r", "1"];
    let markdown = stdout(&output(faultless(&[&two[..], &["--design", "faultless", "--format", "markdown"]].concat())));
    for row in ["| design | CPUs | touched | anon | memset |", "| faultless | 1 | renderer | ", "computes besides"] {
        assert!(markdown.contains(row), "no '{row}' in {markdown}");
    }
    let table = stdout(&output(faultless(&["reproduce", "refpage-v3", "-r", "1"])));
    assert!(table.contains("44 % published") && table.contains("107128 KiB"), "{table}");
}
