//! Programs that tests run.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

/// A shell that runs a script in a process group of its own; killed when it is dropped.
pub(crate) struct Shell(Child);

impl Shell {
    pub(crate) fn new(script: &str) -> Self {
        Self(Command::new("sh").args(["-c", script]).process_group(0).spawn().expect("a shell"))
    }

    pub(crate) fn pid(&self) -> i32 {
        self.0.id().cast_signed()
    }

    pub(crate) fn tell(&self, signal: i32) {
        // SAFETY: a call without memory; the group is ours until its leader is waited for.
        unsafe { libc::kill(-self.pid(), signal) };
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        self.tell(libc::SIGKILL);
        let _ = self.0.wait();
    }
}
