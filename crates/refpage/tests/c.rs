//! The C interface, as a user meets it: installed by the script, found by pkg-config, compiled by
//! gcc, linked both ways.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Returns whether a program is installed; says so if not.
fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok();
    if !found {
        println!("skipped: {program} is not installed");
    }
    found
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}\n{text}\n{errors}");
    text
}

/// Installs the library once into the tests' folder and returns the prefix.
fn prefix() -> &'static Path {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    PREFIX.get_or_init(|| {
        let prefix = Path::new(env!("CARGO_TARGET_TMPDIR")).join("installed");
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
        // By a relative name, which must lead to where the caller stands.
        run(Command::new("sh")
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/install.sh"))
            .arg("installed")
            .current_dir(env!("CARGO_TARGET_TMPDIR"))
            .env("CARGO_ARGS", format!("--target-dir {}", target.display())));
        prefix
    })
}

fn pkg_config(words: &[&str]) -> Vec<String> {
    let output = run(Command::new("pkg-config")
        .args(words)
        .arg("faultless-refpage")
        .env("PKG_CONFIG_PATH", prefix().join("lib/pkgconfig")));
    output.split_whitespace().map(str::to_owned).collect()
}

fn compile(name: &str, libraries: &[String]) -> PathBuf {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    run(Command::new("gcc")
        .args(["-std=c99", "-O1", "-Wall", "-Wextra", "-Werror", "-pedantic", "-pthread"])
        .args(pkg_config(&["--cflags"]))
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/c/check.c"))
        .args(["-o".as_ref(), program.as_os_str()])
        .args(libraries));
    program
}

#[test]
fn a_c_program_links_dynamically() {
    if !has("gcc") || !has("pkg-config") {
        return;
    }
    let program = compile("check-dynamic", &pkg_config(&["--libs"]));
    let found = Command::new(program).env("LD_LIBRARY_PATH", prefix().join("lib")).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&found.stdout), "ok\n");
}

#[test]
fn a_program_that_links_the_library_has_it_under_the_preload_too() {
    if !has("gcc") || !has("pkg-config") || !has("readelf") {
        return;
    }
    let preload = prefix().join("lib/libfaultless_refpage_preload.so");
    let text = run(Command::new("readelf").arg("-d").arg(&preload));
    assert!(text.contains("soname: [libfaultless_refpage_preload.so]"), "{text}");
    let program = compile("check-preloaded", &pkg_config(&["--libs"]));
    let lib = prefix().join("lib");
    let found = Command::new(program).env("LD_LIBRARY_PATH", lib).env("LD_PRELOAD", preload).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&found.stdout), "ok\n", "{}", String::from_utf8_lossy(&found.stderr));
}

#[test]
fn the_shared_library_has_a_versioned_name() {
    if !has("readelf") {
        return;
    }
    let library = prefix().join("lib/libfaultless_refpage.so");
    assert_eq!(std::fs::read_link(&library).unwrap().to_str(), Some("libfaultless_refpage.so.0"));
    let text = run(Command::new("readelf").arg("-d").arg(library));
    assert!(text.contains("soname: [libfaultless_refpage.so.0]"), "{text}");
}

#[test]
fn a_c_program_links_statically() {
    if !has("gcc") || !has("pkg-config") {
        return;
    }
    let archive = prefix().join("lib/libfaultless_refpage.a").display().to_string();
    let others = pkg_config(&["--static", "--libs-only-l"]);
    let others = others.into_iter().filter(|word| word != "-lfaultless_refpage");
    let program = compile("check-static", &[archive].into_iter().chain(others).collect::<Vec<_>>());
    assert_eq!(run(&mut Command::new(program)), "ok\n");
}

#[test]
fn the_header_is_cplusplus_too() {
    if !has("g++") || !has("pkg-config") {
        return;
    }
    let header = prefix().join("include/faultless_refpage.h");
    run(Command::new("g++").args(["-std=c++11", "-Wall", "-Werror", "-fsyntax-only", "-x", "c++"]).arg(header));
}

fn symbols(words: &[&str], file: &Path) -> BTreeSet<String> {
    let text = run(Command::new("nm").args(words).arg("--defined-only").arg(file));
    let defined = text.lines().filter_map(|line| line.split_whitespace().nth(2));
    defined.map(|name| name.split('@').next().unwrap().to_owned()).collect()
}

fn libc_names() -> BTreeSet<String> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let path = maps.split_whitespace().find(|word| word.contains("/libc.so")).unwrap();
    symbols(&["-D"], Path::new(path))
}

#[test]
fn the_libraries_export_no_name_of_libc() {
    if !has("nm") {
        return;
    }
    let libc = libc_names();
    assert!(libc.contains("malloc") && libc.contains("mmap"));
    let shared = symbols(&["-D"], &prefix().join("lib/libfaultless_refpage.so"));
    let archive = symbols(&["-g"], &prefix().join("lib/libfaultless_refpage.a"));
    assert!(shared.contains("refpage_create"), "{shared:?}");
    assert!(shared.iter().all(|name| name.starts_with("refpage_")), "{shared:?}");
    assert!(shared.is_subset(&archive));
    assert_eq!(archive.intersection(&libc).collect::<Vec<_>>(), Vec::<&String>::new());
}

#[test]
fn the_preload_exports_the_allocator_and_nothing_else() {
    if !has("nm") {
        return;
    }
    let names = symbols(&["-D"], &prefix().join("lib/libfaultless_refpage_preload.so"));
    let wanted = ["malloc", "calloc", "realloc", "aligned_alloc", "posix_memalign", "free", "malloc_usable_size"];
    assert_eq!(names, wanted.map(str::to_owned).into());
}

#[test]
fn every_exported_function_is_in_the_header() {
    if !has("nm") {
        return;
    }
    let header = include_str!("../include/faultless_refpage.h");
    let exported = symbols(&["-D"], &prefix().join("lib/libfaultless_refpage.so"));
    assert!(exported.len() >= 12, "{exported:?}");
    for name in exported {
        assert!(header.contains(&format!("{name}(")), "{name}");
    }
}
