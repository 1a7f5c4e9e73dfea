//! `faultless check oracle`: what is printed, the JSON's keys, and the exit codes.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::{env, fs, process};

use serde_json::Value;

const NOBODY: u32 = 65534;

fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_faultless"));
    command.args(["check", "oracle"]);
    command
}

fn oracle(args: &[&str]) -> Output {
    command().args(args).output().expect("the command runs")
}

fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
    (text(&output.stdout), text(&output.stderr))
}

fn document(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).expect("one document")
}

fn is_root() -> bool {
    // SAFETY: the call only returns a number.
    unsafe { libc::geteuid() == 0 }
}

/// A folder that goes with its end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = env::temp_dir().join(format!("faultless-oracle-{name}-{}", process::id()));
        fs::create_dir_all(&path).expect("a folder");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("rights");
        Self(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left lies in the folder for temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn sequences_that_agree_end_well_and_the_json_has_all_keys() {
    let args = ["--sequences", "200", "--seed", "4711", "--design", "mmap-sem,vma-lock", "--format", "json"];
    let output = oracle(&args);
    let (_, err) = texts(&output);
    assert_eq!(output.status.code(), Some(0), "{err}");
    let value = document(&output);
    assert_eq!(
        (&value["schema"], &value["command"], &value["seed"]),
        (&"faultless/1".into(), &"check oracle".into(), &4711.into())
    );
    assert_eq!((&value["machine"]["name"], &value["machine"]["simulated"]), (&"native".into(), &false.into()));
    assert!(value["commit"].is_string() && value["results"].is_array());
    let checks = &value["checks"];
    assert_eq!((&checks["sequences"], &checks["differences"]), (&200.into(), &0.into()));
    for rule in ["area_history", "dropped_clean"] {
        assert!(checks["exempted"][rule].is_u64(), "{rule}");
    }
    let sum =
        |outcomes: &Value| -> u64 { outcomes.as_object().expect("outcomes").values().filter_map(Value::as_u64).sum() };
    let calls = checks["calls"].as_object().expect("calls");
    let exits = sum(&calls["exit"]);
    assert_eq!(checks["operations"].as_u64(), Some(calls.values().map(sum).sum::<u64>() - exits));
    assert!(calls["mmap"]["ok"].as_u64() > Some(0) && calls["munmap"]["EINVAL"].as_u64() > Some(0));
    let signals = checks["signals"].as_object().expect("signals");
    assert!(signals["SEGV_MAPERR"].as_u64() > Some(0) && signals.contains_key("SEGV_ACCERR"));
}

#[test]
fn the_same_seed_holds_the_same() {
    let args =
        ["--sequences", "96", "--seed", "9", "--design", "mmap-sem", "--profile", "usual,hostile", "--format", "json"];
    let (first, second) = (oracle(&args), oracle(&[&args[..], &["--jobs", "1"]].concat()));
    assert_eq!(document(&first)["checks"], document(&second)["checks"]);
}

#[test]
fn what_can_not_be_compared_is_a_difference() {
    // Lists of 34 areas, more often than there is room for.
    let areas: String =
        (0..34).map(|page| format!("; mmap w+{:#x} 0x1000 none private|anon|fixed - 0x0", page * 0x2000)).collect();
    let folder = Folder::new("too-large");
    let file = folder.file("long.txt");
    fs::write(&file, format!("user{areas}{}\n", "; look".repeat(1000))).expect("a file");
    let file = file.to_str().expect("a name");
    let output = oracle(&["--replay", file, "--design", "mmap-sem", "--show", "0", "--format", "json"]);
    let (_, err) = texts(&output);
    assert_eq!(output.status.code(), Some(1), "{err}");
    let checks = &document(&output)["checks"];
    assert_eq!((&checks["sequences"], &checks["differences"]), (&0.into(), &1.into()));
    let finding = checks["found"][0]["finding"].as_str().expect("a finding");
    assert!(finding.contains("not compared") && finding.contains("more operations or areas"), "{finding}");
}

#[test]
fn a_line_or_a_file_of_lines_can_be_replayed() {
    let line =
        "user; mmap w+0x0 0x2000 rw private|anon|fixed - 0x0; store w+0x1000 0x5; load w+0x1000; load w+0x2000; look";
    let output = oracle(&["--replay", line, "--format", "json"]);
    assert_eq!(output.status.code(), Some(0), "{}", texts(&output).1);
    let checks = &document(&output)["checks"];
    assert_eq!((&checks["sequences"], &checks["operations"]), (&1.into(), &5.into()));
    assert_eq!(checks["signals"], serde_json::json!({"SEGV_MAPERR": 1}));
    let folder = Folder::new("replay");
    let file = folder.file("found.txt");
    fs::write(&file, format!("# two of them\n{line}\n\nuser; brk 0x0; look\n")).expect("a file");
    let output = oracle(&["--replay", file.to_str().expect("a name"), "--invariants", "--format", "json"]);
    assert_eq!((output.status.code(), &document(&output)["checks"]["sequences"]), (Some(0), &2.into()));
    fs::write(&file, "# comment\nuser; look\nuser; glance\n").expect("a file");
    let output = oracle(&["--replay", file.to_str().expect("a name")]);
    assert_eq!(output.status.code(), Some(2));
    assert!(texts(&output).1.contains("found.txt, line 3: `glance`"), "{}", texts(&output).1);
}

#[test]
fn every_format_tells_the_differences() {
    for (format, what) in
        [("human", "Differences: 0"), ("csv", "all,differences,0"), ("markdown", "| all | differences | 0 |")]
    {
        let output = oracle(&["--sequences", "48", "--design", "vma-lock", "--format", format]);
        assert_eq!(output.status.code(), Some(0));
        assert!(texts(&output).0.contains(what), "{format}");
    }
}

#[test]
fn the_result_goes_to_a_file_that_is_asked_for() {
    let folder = Folder::new("out");
    let file = folder.file("oracle.json");
    let output = oracle(&[
        "--sequences",
        "48",
        "--design",
        "mmap-sem",
        "--format",
        "json",
        "--out",
        file.to_str().expect("a name"),
    ]);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(0), 0));
    let value: Value = serde_json::from_slice(&fs::read(&file).expect("the file")).expect("one document");
    assert_eq!(value["checks"]["sequences"], 48);
}

#[test]
fn what_was_not_understood_is_an_error_of_usage_that_says_what() {
    for (args, what) in [
        (&["--design", "spf-v12"][..], "spf-v12"),
        (&["--profile", "kind"], "kind"),
        (&["--user", "daemon"], "daemon"),
        (&["--sequences", "0"], "0"),
        (&["--sequences", "many"], "many"),
        (&["--ops", "5000"], "5000"),
        (&["--jobs", "0"], "0"),
        (&["--format", "xml"], "xml"),
        (&["--replay", "somebody; look"], "somebody"),
        (&["--replay", "user; mmapp 0 0"], "mmapp"),
        (&["--replay", "user; munmap 0x400000 0x1000"], "where the process that runs it lives"),
        (&["--replay", "/no/such.txt"], "there is no file '/no/such.txt' to read: No such file or directory"),
        (&["--replay", "found.txt/"], "there is no file 'found.txt/' to read: No such file or directory"),
        (&["--no-such-flag"], "--no-such-flag"),
    ] {
        let output = oracle(args);
        let (out, err) = texts(&output);
        assert_eq!((output.status.code(), out.as_str()), (Some(2), ""), "{args:?}: {err}");
        assert!(err.contains(what), "{args:?}: {err}");
    }
}

/// Returns a copy of the program that everybody may run.
fn for_everybody(folder: &Folder) -> PathBuf {
    let copy = folder.file("faultless");
    fs::copy(Path::new(env!("CARGO_BIN_EXE_faultless")), &copy).expect("a copy");
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).expect("rights");
    copy
}

#[test]
fn without_root_it_says_what_it_skips() {
    if !is_root() {
        println!("skipped: only root can become somebody else");
        return;
    }
    let folder = Folder::new("nobody");
    let program = for_everybody(&folder);
    let run = |args: &[&str]| {
        let mut command = Command::new(&program);
        command.args(["check", "oracle", "--design", "mmap-sem"]).args(args).current_dir("/");
        command.uid(NOBODY).gid(NOBODY).output().expect("the command runs")
    };
    let output = run(&["--sequences", "96", "--format", "json"]);
    let (_, err) = texts(&output);
    assert_eq!(output.status.code(), Some(0), "{err}");
    assert!(err.contains("skipped: sequences as root"), "{err}");
    assert_eq!(document(&output)["users"], serde_json::json!(["user"]));
    let output = run(&["--user", "root"]);
    assert_eq!(output.status.code(), Some(1), "{}", texts(&output).1);
    assert!(texts(&output).1.contains("rights of root"));
}
