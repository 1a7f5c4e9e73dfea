//! Lines on stderr, or where counters go.
//!
//! # Guarantee
//! A line is put together on the stack and written by one call.

use std::fmt::{Arguments, Write};

/// A line on the stack; what does not fit is cut off.
pub(crate) struct Line {
    pub(crate) bytes: [u8; 512],
    pub(crate) len: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let room = self.bytes.len() - self.len;
        let part = &text.as_bytes()[..text.len().min(room)];
        self.bytes[self.len..self.len + part.len()].copy_from_slice(part);
        self.len += part.len();
        Ok(())
    }
}

/// Writes a line to a descriptor.
pub(crate) fn write_line(fd: i32, text: Arguments) {
    let mut line = Line { bytes: [0; 512], len: 0 };
    // A line never refuses text.
    let _ = writeln!(line, "faultless-refpage-preload: {text}");
    // SAFETY: the line is readable. A stderr that is closed loses it.
    unsafe { libc::write(fd, line.bytes.as_ptr().cast(), line.len) };
}

/// Says something on stderr.
pub(crate) fn say(text: Arguments) {
    write_line(libc::STDERR_FILENO, text);
}
