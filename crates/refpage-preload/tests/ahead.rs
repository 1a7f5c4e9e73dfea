//! Fresh memory is copied ahead of the first store where what came before was written, within limits.

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use support::{assert_ok, counter, folder, has, run_with};

const MIB: u64 = 1 << 20;

fn program() -> Option<&'static Path> {
    static PROGRAM: OnceLock<Option<PathBuf>> = OnceLock::new();
    PROGRAM.get_or_init(|| has("gcc", "--version").then(|| support::compile("ahead", &[]))).as_deref()
}

/// Runs the program and returns how many bytes were copied ahead; it checks the pattern, and that its
/// private memory stays within `most_mib`.
#[track_caller]
fn ahead_bytes(mode: &str, most_mib: &str, variables: &[(&str, &str)]) -> Option<u64> {
    let file = folder(&format!("ahead-{mode}-{most_mib}-{}", variables.len())).join("counters");
    let mut command = Command::new(program()?);
    command.args([mode, most_mib]).env("FAULTLESS_STATS", &file);
    assert_ok(&run_with(&mut command, variables));
    Some(counter(&file, "ahead_bytes="))
}

#[test]
fn buffers_that_follow_written_ones_are_copied_ahead() {
    let Some(ahead) = ahead_bytes("dense", "50", &[]) else { return };
    // The first of 40 shows it.
    assert!((15 * MIB..=16 * MIB).contains(&ahead), "{ahead}");
}

#[test]
fn the_limit_is_the_users() {
    for (limit, most) in [("0", 0), ("3M", 3 * MIB), ("1G", 39 * MIB)] {
        let Some(ahead) = ahead_bytes("dense", "50", &[("FAULTLESS_AHEAD", limit)]) else { return };
        assert!(ahead <= most && ahead + MIB > most, "{limit}: {ahead}");
    }
}

#[test]
fn buffers_that_are_hardly_written_cost_nothing() {
    let Some(ahead) = ahead_bytes("sparse", "2", &[]) else { return };
    assert_eq!(ahead, 0);
}

#[test]
fn a_program_that_changes_its_ways_pays_no_more_than_the_limit() {
    let Some(ahead) = ahead_bytes("turn", "22", &[]) else { return };
    assert!(ahead <= 16 * MIB + 4 * MIB, "{ahead}");
}

#[test]
fn what_comes_back_unwritten_ends_it() {
    let Some(ahead) = ahead_bytes("proven", "12", &[]) else { return };
    assert!((MIB..8 * MIB).contains(&ahead), "{ahead}");
}

#[test]
fn what_was_written_and_freed_is_no_longer_unproven() {
    let variables = [("FAULTLESS_AHEAD", "12M"), ("FAULTLESS_CACHE", "1M")];
    let Some(ahead) = ahead_bytes("again", "30", &variables) else { return };
    // Ten buffers five times; a few are reused, and the first is not guessed.
    assert!(ahead > 30 * MIB, "{ahead}");
}

#[test]
fn pages_that_were_left_empty_are_seen_when_they_are_reused() {
    let Some(ahead) = ahead_bytes("lazy", "6", &[]) else { return };
    assert_eq!(ahead, 0);
}

#[test]
fn what_realloc_copies_is_no_guess() {
    let Some(ahead) = ahead_bytes("realloc", "40", &[("FAULTLESS_AHEAD", "4096")]) else { return };
    // 1, 2, 4 and 8 MiB are copied into fresh memory of twice the length.
    assert_eq!(ahead, 15 * MIB);
}

#[test]
fn a_kernel_without_the_call_does_without() {
    let Some(ahead) = ahead_bytes("old", "50", &[]) else { return };
    assert_eq!(ahead, 0);
}
