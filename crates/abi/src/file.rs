//! What mmap looks at in a file descriptor.

use bitflags::bitflags;
use faultless_vm::{MAX_OBJECT_BYTES, ObjectHandle, ReferenceHandle, System};

bitflags! {
    /// What an open file description allows.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct FileMode: u32 {
        /// Opened for reading (`FMODE_READ`).
        const READ = 1;
        /// Opened for writing (`FMODE_WRITE`).
        const WRITE = 2;
        /// Lies where nothing may be executed (`path_noexec`).
        const NO_EXEC = 4;
    }
}

/// Where a file's pages come from.
#[derive(Clone, Copy)]
pub(crate) enum Pages<'a, P: System> {
    /// An object.
    Object(&'a ObjectHandle<'a, P>),
    /// A reference page.
    Reference(&'a ReferenceHandle<'a, P>),
}

/// An open file, as mmap sees it.
#[derive(Clone, Copy)]
pub struct File<'a, P: System> {
    pub(crate) pages: Option<Pages<'a, P>>,
    pub(crate) mode: FileMode,
    pub(crate) max_bytes: u64,
}

impl<'a, P: System> File<'a, P> {
    /// Returns a file whose pages are `object`'s.
    pub fn new(object: &'a ObjectHandle<'a, P>, mode: FileMode) -> Self {
        Self { pages: Some(Pages::Object(object)), mode, max_bytes: MAX_OBJECT_BYTES }
    }

    /// Returns the file that `refpage_create` makes of a reference page: open for reading alone.
    pub fn reference(handle: &'a ReferenceHandle<'a, P>) -> Self {
        let pages = Some(Pages::Reference(handle));
        Self { pages, mode: FileMode::READ, max_bytes: MAX_OBJECT_BYTES }
    }

    /// Returns a file without pages, such as a pipe: mmap answers ENODEV once all else is right.
    pub fn unmappable(mode: FileMode) -> Self {
        Self { pages: None, mode, max_bytes: u64::MAX }
    }
}
