//! What the tests of this crate share: child processes, and what /proc says.

#![allow(dead_code, reason = "no test file uses all of it")]

use std::fs;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

static HOOK: Once = Once::new();
static IS_CHILD: AtomicBool = AtomicBool::new(false);

/// The harness would keep a panic's words in memory, which goes with the child. The hook is set by
/// the parent, since its lock may be another thread's when the child is forked.
fn install_hook() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| match IS_CHILD.load(Ordering::Relaxed) {
        true => write_to_stderr(&format!("in the child: {info}\n")),
        false => usual(info),
    }));
}

/// Runs `work` in a forked child and returns whether it neither panicked nor was killed; limits
/// and filters that it sets go with it.
pub fn in_child(work: impl FnOnce()) -> bool {
    HOOK.call_once(install_hook);
    // SAFETY: the child runs `work` and leaves; libc's allocator is fit for fork.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        // SAFETY: ends a child that hangs.
        unsafe { libc::alarm(60) };
        IS_CHILD.store(true, Ordering::Relaxed); // Relaxed: this thread is the child's only one
        let is_ok = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).is_ok();
        // SAFETY: ends the child.
        unsafe { libc::_exit(if is_ok { 0 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: `status` is writable.
    unsafe { libc::waitpid(child, &mut status, 0) };
    status == 0
}

/// Says why a test cannot run here.
pub fn skip(reason: &str) {
    write_to_stderr(&format!("skipped: {reason}\n"));
}

fn write_to_stderr(text: &str) {
    // SAFETY: the text is readable.
    unsafe { libc::write(2, text.as_ptr().cast(), text.len()) };
}

/// Sets a soft limit of this process.
pub fn limit(resource: libc::__rlimit_resource_t, soft: u64) {
    let mut limits = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limits` is writable, then readable.
    unsafe {
        assert_eq!(libc::getrlimit(resource, &mut limits), 0);
        limits.rlim_cur = soft;
        assert_eq!(libc::setrlimit(resource, &limits), 0);
    }
}

/// Returns the descriptors of this process that lead to tiles.
pub fn tile_descriptors() -> Vec<i32> {
    let entries = fs::read_dir("/proc/self/fd").unwrap().map(|entry| entry.unwrap().path());
    entries
        .filter(|path| fs::read_link(path).is_ok_and(|to| to.to_string_lossy().contains("faultless-refpage")))
        .map(|path| path.file_name().unwrap().to_str().unwrap().parse().unwrap())
        .collect()
}

/// Returns a line of /proc/self/smaps_rollup, in KiB.
pub fn rollup(name: &str) -> usize {
    let text = fs::read_to_string("/proc/self/smaps_rollup").unwrap();
    let line = text.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Returns how much memory the mapping of `bytes` takes (its proportional size), in KiB. The whole
/// process's would not do: a child's share of what it has from its parent grows when the parent's
/// other tests free theirs.
pub fn pss_kib(bytes: &[u8]) -> usize {
    let bytes = bytes.as_ptr_range();
    let text = fs::read_to_string("/proc/self/smaps").unwrap();
    let (mut is_inside, mut sum) = (false, 0);
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let first = words.next().unwrap();
        if let Some((start, end)) = first.split_once('-') {
            let [start, end] = [start, end].map(|address| usize::from_str_radix(address, 16).unwrap());
            is_inside = start < bytes.end.addr() && bytes.start.addr() < end;
        } else if is_inside && first == "Pss:" {
            sum += words.next().unwrap().parse::<usize>().unwrap();
        }
    }
    sum
}

/// Returns how many areas this process has.
pub fn areas() -> usize {
    fs::read_to_string("/proc/self/maps").unwrap().lines().count()
}

/// Returns a pattern of `len` bytes of which none is zero.
pub fn content(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i % 251 + 1) as u8).collect()
}

/// Panics unless `bytes`, of which the first is byte `offset`, are the pattern.
#[track_caller]
pub fn assert_pattern(bytes: &[u8], content: &[u8], offset: usize) {
    let wrong = (0..bytes.len()).find(|i| bytes[*i] != content[(offset + i) % content.len()]);
    if let Some(i) = wrong {
        panic!("byte {} is {:#x}, of a pattern of {} bytes", offset + i, bytes[i], content.len());
    }
}

/// Lets the kernel refuse system calls in this process from now on: each rule is a call's number
/// (or all from that number on), the bits that its argument of that index must have, and the errno.
pub fn refuse(rules: &[Rule]) {
    let mut program = vec![statement(LOAD, 0)];
    for rule in rules {
        let jump = if rule.and_later { JUMP_GE } else { JUMP_EQ };
        let skipped = if rule.argument.is_some() { 4 } else { 1 };
        program.push(jump_unless(jump, rule.call as u32, skipped));
        if let Some((index, bits)) = rule.argument {
            program.push(statement(LOAD, 16 + 8 * index));
            program.push(jump_unless(JUMP_SET, bits, 1));
        }
        program.push(statement(RETURN, libc::SECCOMP_RET_ERRNO | rule.errno as u32));
        if rule.argument.is_some() {
            program.push(statement(LOAD, 0));
        }
    }
    program.push(statement(RETURN, libc::SECCOMP_RET_ALLOW));
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the filter points to a program of that length.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &filter), 0);
    }
}

/// A refused call.
#[derive(Default)]
pub struct Rule {
    pub call: i64,
    pub and_later: bool,
    pub argument: Option<(u32, u32)>,
    pub errno: i32,
}

const LOAD: u16 = 0x20;
const JUMP_EQ: u16 = 0x15;
const JUMP_GE: u16 = 0x35;
const JUMP_SET: u16 = 0x45;
const RETURN: u16 = 0x06;

fn statement(code: u16, k: u32) -> libc::sock_filter {
    libc::sock_filter { code, jt: 0, jf: 0, k }
}

fn jump_unless(code: u16, k: u32, skipped: u8) -> libc::sock_filter {
    libc::sock_filter { code, jt: 0, jf: skipped, k }
}
