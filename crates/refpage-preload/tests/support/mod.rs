//! What the tests of this crate share: the preload, and running programs with it.

#![allow(dead_code, reason = "no test file uses all of it")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// Builds the preload, once, as a user does, and returns its path.
pub fn preload() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
        let built = Command::new(env!("CARGO"))
            .args(["build", "--release", "-p", "faultless-refpage-preload", "--target-dir"])
            .arg(target)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .output()
            .unwrap();
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        target.join("release/libfaultless_refpage_preload.so")
    })
}

/// Returns an empty folder of the tests.
pub fn folder(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}

/// Returns whether a program is installed; says so if not.
pub fn has(program: &str, argument: &str) -> bool {
    let found = Command::new(program).arg(argument).output().is_ok_and(|o| o.status.success());
    if !found {
        println!("skipped: {program} is not installed");
    }
    found
}

/// Compiles a C file of `tests/c`.
pub fn compile(name: &str, flags: &[&str]) -> PathBuf {
    let program = folder(&format!("c-{name}-{}", flags.len())).join(name);
    let source = format!("{}/tests/c/{name}.c", env!("CARGO_MANIFEST_DIR"));
    let gcc = Command::new("gcc")
        .args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-fno-builtin", "-pthread"])
        .args(["-Wno-alloc-size-larger-than", "-Wno-use-after-free"])
        .args(flags)
        .arg(&source)
        .arg("-o")
        .arg(&program)
        .args(["-ldl"])
        .output()
        .unwrap();
    assert!(gcc.status.success(), "{}", String::from_utf8_lossy(&gcc.stderr));
    program
}

/// Runs a command with the preload and these variables.
pub fn run_with(command: &mut Command, variables: &[(&str, &str)]) -> Output {
    command.env("LD_PRELOAD", preload()).envs(variables.iter().copied());
    command.output().unwrap()
}

/// What a program did, as a reader sees it.
pub fn seen(output: &Output) -> String {
    format!(
        "{}\n--- stdout\n{}\n--- stderr\n{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// Panics unless the program printed `ok` and nothing else.
#[track_caller]
pub fn assert_ok(output: &Output) {
    assert_eq!(seen(output), "exit status: 0\n--- stdout\nok\n\n--- stderr\n");
}

/// Returns a counter of a file's first line, such as `FAULTLESS_STATS` makes them.
pub fn counter(file: &Path, name: &str) -> u64 {
    let text = std::fs::read_to_string(file).unwrap();
    let word = text.split_whitespace().find_map(|word| word.strip_prefix(name)).unwrap();
    word.parse().unwrap()
}
