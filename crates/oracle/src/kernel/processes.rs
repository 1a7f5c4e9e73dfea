//! Operations that make processes: children with memory of their own, or their parent's, that run operations or look
//! on.
//!
//! # Guarantee
//! Whoever makes a process waits for its end, so a sequence leaves none behind.

use core::ops::Range;

use super::attempt::Slot;
use super::block::state;
use super::child::{Child, NR_SLOTS};
use super::op::Call;
use super::steps::{self, answered, value};
use super::sys::{exit, raw, spawn};

/// Exit code of a child that came to its end.
const EXIT_DONE: i32 = 0;
/// Exit code of a child that did not.
pub(super) const EXIT_BROKEN: i32 = 92;
/// Exit code of a child whose lists did not fit.
const EXIT_NO_ROOM: i32 = 93;

/// Makes a process as the operation at `place` says, whose operations are `inner`; returns the sequence's state.
pub(super) fn make(child: &mut Child, place: usize, call: Call, inner: Range<usize>, depth: usize) -> u64 {
    match call {
        Call::Fork => fork(child, place, inner, depth),
        Call::Snapshot => snapshot(child, place, inner, depth),
        _ => share(child, place, inner, depth),
    }
}

fn fork(child: &mut Child, place: usize, inner: Range<usize>, depth: usize) -> u64 {
    let forked = fork_process(child, inner, depth);
    let outcome = answered(forked.map(|_| 0));
    child.start.block.set_outcome(place, outcome);
    forked.unwrap_or(state::DONE)
}

/// Lets a child wait while its parent goes on, and then look.
fn snapshot(child: &mut Child, place: usize, inner: Range<usize>, depth: usize) -> u64 {
    let mut ends = [0_i32; 2];
    // SAFETY: the kernel writes the two descriptors. The stack is private memory, so the new process has a copy of its
    // own.
    let forked = unsafe {
        raw!(libc::SYS_pipe2, ends.as_mut_ptr(), libc::O_CLOEXEC).and_then(|_| raw!(libc::SYS_clone, libc::SIGCHLD))
    };
    let pid = match forked {
        Ok(0) => look_when_told(child, place, ends, depth),
        Ok(pid) => pid,
        Err(_) => return state::BROKEN,
    };
    let result = steps::run(child, inner, depth);
    // SAFETY: one byte of ours, and descriptors of ours.
    let told = unsafe {
        let told = raw!(libc::SYS_write, ends[1], ends.as_ptr(), 1);
        let _ = (raw!(libc::SYS_close, ends[0]), raw!(libc::SYS_close, ends[1]));
        told
    };
    let looked = wait(pid);
    match (result, told) {
        (state::DONE, Ok(1)) => looked,
        (state::DONE, _) => state::BROKEN,
        _ => result,
    }
}

/// The child of [`snapshot`].
fn look_when_told(child: &mut Child, place: usize, ends: [i32; 2], depth: usize) -> ! {
    let mut byte = 0_u8;
    // SAFETY: one byte of ours. Without the other end, which is the parent's, the parent's death is the pipe's end.
    let told = unsafe {
        let _ = raw!(libc::SYS_close, ends[1]);
        raw!(libc::SYS_read, ends[0], &raw mut byte, 1)
    };
    if told != Ok(1) {
        exit(EXIT_BROKEN);
    }
    child.reopen_maps();
    leave(steps::look(child, place, child.slot(depth)))
}

/// Runs operations in a task that shares our memory, while we wait.
fn share(child: &mut Child, place: usize, inner: Range<usize>, depth: usize) -> u64 {
    if depth + 1 >= NR_SLOTS {
        return state::BROKEN;
    }
    let mut task = Task { child, range: inner, depth: depth + 1, result: state::BROKEN };
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    let top = task.child_slot().stack_top();
    // SAFETY: the slot is nobody's; the kernel holds us until the new task has ended, so what it uses stays.
    let pid = unsafe { spawn(flags as u64, top, core::ptr::null_mut(), run_task, &raw mut task as u64) };
    let (result, block) = (task.result, child.start.block);
    if pid < 0 {
        block.set_outcome(place, answered(Err(-pid as i32)));
        return state::DONE;
    }
    let _ = wait(pid as u64);
    block.set_outcome(place, value(0));
    result
}

/// Runs operations in a process of their own.
pub(super) fn in_child(child: &mut Child, range: Range<usize>) -> u64 {
    fork_process(child, range, 0).unwrap_or(state::BROKEN)
}

/// Runs operations in a process of their own; returns their state.
fn fork_process(child: &mut Child, range: Range<usize>, depth: usize) -> Result<u64, i32> {
    // SAFETY: the stack is private memory, so the child has a copy of its own.
    let pid = unsafe { raw!(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) }?;
    if pid == 0 {
        child.reopen_maps();
        leave(steps::run(child, range, depth));
    }
    Ok(wait(pid))
}

/// Ends a process with the code for a state.
fn leave(result: u64) -> ! {
    exit(match result {
        state::DONE => EXIT_DONE,
        state::NO_ROOM => EXIT_NO_ROOM,
        _ => EXIT_BROKEN,
    })
}

/// Waits for a process; returns the state that its end means.
fn wait(pid: u64) -> u64 {
    let mut status = 0_i32;
    loop {
        // SAFETY: the kernel writes the status.
        match unsafe { raw!(libc::SYS_wait4, pid, &raw mut status, 0, 0) } {
            Err(libc::EINTR) => {}
            Err(_) => return state::BROKEN,
            Ok(_) => break,
        }
    }
    match (libc::WIFEXITED(status), libc::WEXITSTATUS(status)) {
        (true, EXIT_DONE) => state::DONE,
        (true, EXIT_NO_ROOM) => state::NO_ROOM,
        _ => state::BROKEN,
    }
}

/// What a task that shares our memory does.
struct Task {
    child: *mut Child,
    range: Range<usize>,
    depth: usize,
    result: u64,
}

impl Task {
    fn child_slot(&self) -> Slot {
        // SAFETY: the child outlives its tasks.
        unsafe { &*self.child }.slot(self.depth)
    }
}

unsafe extern "C" fn run_task(task: u64) {
    // SAFETY: the starter waits until we have ended, and touches the task only then.
    let task = unsafe { &mut *(task as *mut Task) };
    task.child_slot().adopt();
    // SAFETY: as above.
    task.result = steps::run(unsafe { &mut *task.child }, task.range.clone(), task.depth);
}
