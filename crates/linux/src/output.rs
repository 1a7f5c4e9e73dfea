//! The place where a trace or a result goes.
//!
//! # Guarantee
//! A regular file at that place is replaced by a whole one or not at all, and keeps its permissions; what fails leaves
//! nothing behind. A link keeps pointing where it does: what it names is replaced. Something that is not a regular file
//! (a pipe, `/dev/null`) is written to, never replaced.

use std::fs::{self, File};
use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, RawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::perf::check;

/// An output that was opened and not yet completed.
#[derive(Debug)]
pub struct Output {
    file: File,
    target: PathBuf,
    /// The file that is written and then renamed; `None` when the target is written to directly.
    partial: Option<PathBuf>,
}

impl Output {
    /// Opens the output, so that what is wrong with it is known before the program runs.
    pub fn create(target: &Path) -> io::Result<Self> {
        match fs::metadata(target) {
            Ok(found) if found.is_dir() => Err(io::Error::from(io::ErrorKind::IsADirectory)),
            Ok(found) if !found.is_file() => {
                let file = fs::OpenOptions::new().write(true).open(target)?;
                Ok(Self { file, target: target.into(), partial: None })
            }
            _ => Self::beside(target),
        }
    }

    /// Takes standard output for what is written, so that nobody else writes there: what this process and its children
    /// print from now on goes to standard error. Refused if that is the same file, or a terminal is to show what is
    /// written.
    pub fn standard() -> io::Result<Self> {
        let refused = |why: String| io::Error::new(io::ErrorKind::InvalidInput, why);
        if io::stdout().is_terminal() {
            return Err(refused("standard output is a terminal: send it to a file or a program".into()));
        }
        if let Some(sharer) = sharer_of_stdout()? {
            let why = "the program would write into the same file: send one of the two elsewhere";
            return Err(refused(format!("standard output is also descriptor {sharer}, and {why}")));
        }
        let file = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        // SAFETY: both numbers are descriptors of this process's standard streams; the call touches no memory.
        check(unsafe { libc::dup2(libc::STDERR_FILENO, libc::STDOUT_FILENO) })?;
        Ok(Self { file, target: "-".into(), partial: None })
    }

    /// Says what [`Output::create`] would: whether an output can be opened there. Leaves everything as it is, and opens
    /// no pipe, which would wait for its reader.
    pub fn check(target: &Path) -> io::Result<()> {
        match fs::metadata(target) {
            Ok(found) if !found.is_file() && !found.is_dir() => Ok(()),
            _ => Self::create(target).map(drop),
        }
    }

    /// Returns a name of this process's own beside the place where the output is being written, without an ending: for
    /// what may grow large meanwhile.
    pub fn sibling(&self) -> PathBuf {
        let elsewhere = || std::env::temp_dir().join(format!("faultless.{}", std::process::id()));
        self.partial.as_ref().map_or_else(elsewhere, |partial| partial.with_extension(""))
    }

    /// Returns the file to write to.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Makes what was written appear at its place.
    pub fn complete(mut self) -> io::Result<()> {
        let Some(partial) = self.partial.take() else { return Ok(()) };
        if let Ok(replaced) = fs::metadata(&self.target) {
            self.file.set_permissions(replaced.permissions())?;
        }
        self.file.sync_all()?;
        fs::rename(&partial, &self.target).inspect_err(|_| self.partial = Some(partial))
    }

    fn beside(target: &Path) -> io::Result<Self> {
        let target = fs::canonicalize(target).unwrap_or_else(|_| target.to_owned());
        let name = target.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let mut partial_name = name.to_owned();
        partial_name.push(format!(".{}.partial", std::process::id()));
        let partial = target.with_file_name(partial_name);
        Ok(Self { file: File::create(&partial)?, target, partial: Some(partial) })
    }
}

/// Returns another descriptor, inherited by children and open for writing, that leads where standard output does.
/// Devices don't count: several may write to /dev/null.
fn sharer_of_stdout() -> io::Result<Option<RawFd>> {
    let identity = |fd: RawFd| {
        let found = fs::metadata(format!("/proc/self/fd/{fd}"))?;
        io::Result::Ok((!found.file_type().is_char_device()).then(|| (found.dev(), found.ino())))
    };
    let Some(own) = identity(libc::STDOUT_FILENO)? else { return Ok(None) };
    let entries = fs::read_dir("/proc/self/fd")?.filter_map(Result::ok);
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<RawFd>().ok());
    let mut others = numbers.filter(|&fd| fd > libc::STDOUT_FILENO && is_writable_by_children(fd));
    Ok(others.find(|&fd| identity(fd).is_ok_and(|found| found == Some(own))))
}

fn is_writable_by_children(fd: RawFd) -> bool {
    // SAFETY: both calls take integers only.
    let (flags, access) = unsafe { (libc::fcntl(fd, libc::F_GETFD), libc::fcntl(fd, libc::F_GETFL)) };
    flags >= 0 && flags & libc::FD_CLOEXEC == 0 && access >= 0 && access & libc::O_ACCMODE != libc::O_RDONLY
}

impl Drop for Output {
    fn drop(&mut self) {
        if let Some(partial) = &self.partial {
            let _ = fs::remove_file(partial);
        }
    }
}
