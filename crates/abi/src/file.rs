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

/// An open file, as mmap sees it: a kernel makes one of what its table of descriptors holds, for one call.
///
/// ```
/// use faultless_abi::{Calls, Errno, File, FileMode};
/// use faultless_vm::{ObjectSpec, WriteNotice, ZeroSource};
/// # use faultless_phys::{Memory, Options};
/// # use faultless_platform::native::{HostRegion, Machine, Native};
/// # use faultless_vm::{Limits, Vm};
/// # let region = HostRegion::reserve(64 << 20)?;
/// # Machine::new(1).attach(|| {
/// #     // SAFETY: the region is zeroed, ours alone, and outlives the instance.
/// #     let memory = unsafe { Memory::<Native>::new(region.base(), region.len_bytes(), 1, Options::default()) }?;
/// #     let vm = Vm::<Native>::new(memory)?;
/// #     let space = vm.create_space(Limits::default())?;
/// #     let calls = Calls::new(&space);
///
/// // What memfd_create gives.
/// let spec = ObjectSpec { identity: 1, size_bytes: 8192, source: &ZeroSource, write_notice: WriteNotice::None };
/// let object = vm.create_object(&spec)?;
/// let shared = [0, 8192, 3, 1, 3, 0];
/// let open = File::new(&object, FileMode::READ | FileMode::WRITE);
/// assert!(calls.mmap(shared, Some(open)).is_ok());
/// assert_eq!(calls.mmap(shared, Some(File::new(&object, FileMode::READ))), Err(Errno::EACCES));
/// // A pipe, and no file at all.
/// assert_eq!(calls.mmap(shared, Some(File::unmappable(FileMode::READ | FileMode::WRITE))), Err(Errno::ENODEV));
/// assert_eq!(calls.mmap(shared, None), Err(Errno::EBADF));
/// #     Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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
