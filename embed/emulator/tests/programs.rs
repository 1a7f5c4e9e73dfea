//! Static C programs, compiled here, on the emulator and on the host: the same output, the same end.

use faultless_embed_emulator::{LoadError, Options, RunError, run};
use std::path::{Path, PathBuf};
use std::process::Command;

const CROSS: &str = "riscv64-linux-gnu-gcc";

/// What became of a program.
#[derive(Debug, PartialEq, Eq)]
struct End {
    status: i32,
    output: String,
}

/// A program of `tests/programs`, compiled for both.
struct Compiled {
    cross: Vec<u8>,
    host: PathBuf,
}

/// Compiles a program for both processors; nothing, said so, where there is no cross compiler.
fn compiled(name: &str, folder: &Path) -> Option<Compiled> {
    if Command::new(CROSS).arg("--version").output().is_err() {
        println!("skipped: {CROSS} is not installed");
        return None;
    }
    let source = format!("{}/tests/programs/{name}.c", env!("CARGO_MANIFEST_DIR"));
    let build = |compiler: &str, more: &[&str]| {
        let program = folder.join(format!("{name}.{compiler}"));
        // Neither may fuse what the other doesn't.
        let flags = ["-O2", "-ffp-contract=off", "-o"];
        let status = Command::new(compiler).args(flags).arg(&program).arg(&source).args(more).status();
        assert!(status.expect("a compiler").success(), "{compiler} {source}");
        program
    };
    let cross = build(CROSS, &["-static", "-lm"]);
    Some(Compiled { cross: std::fs::read(cross).expect("just made"), host: build("gcc", &["-lm"]) })
}

fn on_emulator(program: &[u8], arguments: &[&str]) -> End {
    let arguments: Vec<String> = ["program"].iter().chain(arguments).map(ToString::to_string).collect();
    let (mut output, mut error) = (Vec::new(), Vec::new());
    let options = Options { memory_bytes: 256 << 20, ..Options::default() };
    let ended = run(program, &arguments, options, &mut output, &mut error).expect("it can be run");
    End { status: ended.status, output: String::from_utf8_lossy(&output).into_owned() }
}

fn on_host(program: &Path, arguments: &[&str]) -> End {
    use std::os::unix::process::ExitStatusExt;
    let done = Command::new(program).args(arguments).output().expect("it can be run");
    let status = done.status.code().or(done.status.signal().map(|signal| 128 + signal)).expect("it ended");
    End { status, output: String::from_utf8_lossy(&done.stdout).into_owned() }
}

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&folder).expect("room");
    folder
}

fn ends_alike(name: &str, arguments: &[&[&str]]) {
    let Some(program) = compiled(name, &folder(name)) else { return };
    for arguments in arguments {
        assert_eq!(on_emulator(&program.cross, arguments), on_host(&program.host, arguments), "{name} {arguments:?}");
    }
}

#[test]
fn memory_calls_and_malloc() {
    ends_alike("memory", &[&[]]);
}

#[test]
fn integers_and_floating_point() {
    ends_alike("numbers", &[&[]]);
}

#[test]
fn atomic_operations() {
    ends_alike("atomics", &[&[]]);
}

#[test]
fn deaths_are_linuxs() {
    let ways = ["null", "unmapped", "read-only", "none", "moved", "fetch", "stack", "abort", "nothing"];
    let arguments: Vec<[&str; 1]> = ways.iter().map(|&way| [way]).collect();
    ends_alike("death", &arguments.iter().map(<[&str; 1]>::as_slice).collect::<Vec<_>>());
}

#[test]
fn files_are_the_hosts() {
    let folder = folder("files");
    let Some(program) = compiled("files", &folder) else { return };
    let place = |name: &str| folder.join(name).to_str().expect("UTF-8").to_owned();
    let (input, ours, theirs) = (place("in"), place("ours"), place("theirs"));
    std::fs::write(&input, "one\ntwo\nthree\n").expect("room");
    assert_eq!(on_emulator(&program.cross, &[&input, &ours]), on_host(&program.host, &[&input, &theirs]));
    assert_eq!(std::fs::read(ours).ok(), std::fs::read(theirs).ok());
}

#[test]
fn what_is_no_program_is_refused() {
    let refusal =
        |file: &[u8]| run(file, &[], Options::default(), &mut Vec::new(), &mut Vec::new()).expect_err("refused");
    for file in [&b"#!/bin/sh\necho a script is no program\n"[..], b"", b"\x7fELF"] {
        let refusal = refusal(file);
        assert!(matches!(refusal, RunError::Load(LoadError::Damaged(_))), "{refusal:?}");
    }
    let own = std::fs::read(std::env::current_exe().expect("this program")).expect("readable");
    let refused = refusal(&own);
    assert!(matches!(refused, RunError::Load(LoadError::NotRunnable(_))), "{refused:?}");
}

#[test]
fn a_program_without_memory_is_ended_as_linux_does() {
    let Some(program) = compiled("memory", &folder("small")) else { return };
    let ran = |memory_bytes| {
        let options = Options { memory_bytes, ..Options::default() };
        run(&program.cross, &["program".to_owned()], options, &mut Vec::new(), &mut Vec::new())
    };
    // Maybe not even its segments; then not its heap.
    assert_ne!(ran(300 << 10).map(|ended| ended.status), Ok(0));
    assert_eq!(ran(4 << 20).map(|ended| ended.status), Ok(137), "SIGKILL");
}

/// Any byte of a program may be wrong: it is refused, or ends somehow.
#[test]
fn damaged_programs_do_no_harm() {
    let Some(program) = compiled("atomics", &folder("damaged")) else { return };
    let mut state = 1_u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 33) as usize % below
    };
    for turn in 0..200 {
        let mut file = program.cross.clone();
        // The headers, or anything.
        let end = if turn % 2 == 0 { 512 } else { file.len() };
        for _ in 0..=random(4) {
            file[random(end)] ^= 1 << random(8);
        }
        file.truncate(if turn % 10 == 0 { random(file.len()) } else { file.len() });
        let options = Options { memory_bytes: 64 << 20, instructions_most: 1_000_000 };
        let _ = run(&file, &["program".to_owned()], options, &mut Vec::new(), &mut Vec::new());
    }
}
