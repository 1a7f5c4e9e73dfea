//! Where the kernel describes its tracepoints.
//!
//! # Guarantee
//! A [`Format`] is the running kernel's own description; offsets are never assumed.
//!
//! The description lies in tracefs. Where that is not mounted, a mount of its own is made that only this process can
//! reach and that ends with it.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::PathBuf;

/// Where tracefs usually is.
const USUAL: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// An open tracefs.
#[derive(Debug)]
pub(crate) struct Tracefs {
    root: PathBuf,
    /// Keeps a mount of our own alive.
    _mount: Option<OwnedFd>,
}

impl Tracefs {
    /// Finds tracefs, or mounts it for this process alone.
    pub(crate) fn find() -> io::Result<Self> {
        let usual = USUAL.iter().map(PathBuf::from).find(|root| root.join("events/raw_syscalls").is_dir());
        if let Some(root) = usual {
            return Ok(Self { root, _mount: None });
        }
        let mount = mount_detached()?;
        let root = PathBuf::from(format!("/proc/self/fd/{}", mount.as_raw_fd()));
        Ok(Self { root, _mount: Some(mount) })
    }

    /// Reads the description of a tracepoint, named as `group/name`.
    pub(crate) fn format(&self, name: &str) -> io::Result<Format> {
        let text = fs::read_to_string(self.root.join("events").join(name).join("format"))?;
        Format::parse(&text).ok_or_else(|| io::Error::other(format!("the kernel's description of {name} is unknown")))
    }
}

/// Mounts tracefs nowhere: the descriptor is the only way to it.
fn mount_detached() -> io::Result<OwnedFd> {
    const FSCONFIG_CMD_CREATE: libc::c_uint = 6;
    const CLOEXEC: libc::c_uint = 1;
    let none = std::ptr::null::<libc::c_char>();
    // SAFETY: the name is a C string; the call touches no other memory of ours.
    let context = owned(unsafe { libc::syscall(libc::SYS_fsopen, c"tracefs".as_ptr(), CLOEXEC) })?;
    // SAFETY: this command takes no key and no value; null pointers are what it asks for.
    let made = unsafe { libc::syscall(libc::SYS_fsconfig, context.as_raw_fd(), FSCONFIG_CMD_CREATE, none, none, 0) };
    if made != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call takes integers only.
    owned(unsafe { libc::syscall(libc::SYS_fsmount, context.as_raw_fd(), CLOEXEC, 0) })
}

fn owned(fd: libc::c_long) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor for us; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// A tracepoint's description: its number, and where its fields lie.
#[derive(Clone, Debug, Default)]
pub(crate) struct Format {
    /// The number that perf and the records know it by.
    pub(crate) id: u16,
    offsets: HashMap<String, usize>,
    /// The kernel's words.
    pub(crate) text: String,
}

impl Format {
    /// Returns where a field lies in the raw record.
    pub(crate) fn offset(&self, field: &str) -> io::Result<usize> {
        let missing = || io::Error::other(format!("tracepoint {} has no field '{field}'", self.id));
        self.offsets.get(field).copied().ok_or_else(missing)
    }

    /// Finds the description of a tracepoint among several, each of which begins with `name:`.
    pub(crate) fn named(text: &str, name: &str) -> io::Result<Self> {
        let mut parts = text.split("name: ").filter(|part| part.lines().next() == Some(name));
        let found = parts.next().and_then(|part| Self::parse(&format!("name: {part}")));
        found.ok_or_else(|| io::Error::other(format!("it holds no description of {name}")))
    }

    fn parse(text: &str) -> Option<Self> {
        let id = text.lines().find_map(|line| line.strip_prefix("ID: "))?.trim().parse().ok()?;
        let offsets = text.lines().filter_map(parse_field).collect();
        Some(Self { id, offsets, text: text.to_owned() })
    }
}

/// Parses a line such as `field:unsigned long args[6]; offset:16; size:48; signed:0;`.
fn parse_field(line: &str) -> Option<(String, usize)> {
    let (declaration, rest) = line.trim().strip_prefix("field:")?.split_once(';')?;
    let name = declaration.split_whitespace().last()?.split('[').next()?;
    let offset = rest.trim().strip_prefix("offset:")?.split(';').next()?.parse().ok()?;
    Some((name.to_owned(), offset))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_gives_number_and_offsets() {
        let text = "name: sys_enter\nID: 443\nformat:\n\
                    \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n\
                    \tfield:unsigned long args[6];\toffset:16;\tsize:48;\tsigned:0;\n";
        let format = Format::parse(text).expect("it is well formed");
        assert_eq!(format.id, 443);
        assert_eq!(format.offset("args").ok(), Some(16));
        assert_eq!(format.offset("common_type").ok(), Some(0));
        assert!(format.offset("ret").is_err());
        assert!(Format::parse("name: x\n").is_none());
    }
}
