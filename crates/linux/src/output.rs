//! The place where a trace or a result goes.
//!
//! # Guarantee
//! A regular file at that place is replaced by a whole one or not at all, and keeps its permissions; what fails leaves nothing
//! behind. A link keeps pointing where it does: what it names is replaced. Something that is not a regular file (a pipe,
//! `/dev/null`) is written to, never replaced.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

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

    /// Says what [`Output::create`] would: whether an output can be opened there. Leaves everything as it is, and opens no pipe,
    /// which would wait for its reader.
    pub fn check(target: &Path) -> io::Result<()> {
        match fs::metadata(target) {
            Ok(found) if !found.is_file() && !found.is_dir() => Ok(()),
            _ => Self::create(target).map(drop),
        }
    }

    /// Returns the folder where the trace is being written, for other files that may grow large.
    pub fn folder(&self) -> PathBuf {
        let parent = self.partial.as_ref().and_then(|partial| partial.parent());
        match parent {
            Some(parent) if parent.as_os_str().is_empty() => PathBuf::from("."),
            Some(parent) => parent.to_owned(),
            None => std::env::temp_dir(),
        }
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

impl Drop for Output {
    fn drop(&mut self) {
        if let Some(partial) = &self.partial {
            let _ = fs::remove_file(partial);
        }
    }
}
