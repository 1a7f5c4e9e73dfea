//! `refpage_create`, as posted in 2020 and as version 5 has it; Linux has no such call.
//!
//! # Guarantee
//! Arguments are checked in the posted order, and the descriptor is taken last: a caller without a free one answers
//! EMFILE or ENFILE, and nothing is left of the page. The file is opened with [`REFPAGE_OPEN_FLAGS`], which whoever
//! keeps the table of descriptors is told.

use crate::calls::Answer;
use faultless_vm::design::Design;
use faultless_vm::{ReferenceHandle, SpaceRef, System};

/// How the file of a reference page is opened, as open(2) has it: `O_RDONLY | O_CLOEXEC`. Passed to whoever installs
/// it.
pub const REFPAGE_OPEN_FLAGS: u64 = 0o2_000_000;

/// `refpage_create(content, flags)`: makes a reference page of the page at `content`.
///
/// `install` puts the file into the caller's table of descriptors, opened as its second argument says
/// ([`REFPAGE_OPEN_FLAGS`]): for reading alone, and closed on exec. It answers with the descriptor. EINVAL, ENOMEM,
/// EFAULT, or what `install` answers.
///
/// ```
/// use faultless_abi::{Calls, Errno, File, refpage_create};
/// # use faultless_phys::{Memory, Options};
/// # use faultless_platform::native::{HostRegion, Machine, Native};
/// # use faultless_sync::Rwsem;
/// # use faultless_vm::{Guest, Limits, Vm, design::VmaLock};
/// # let region = HostRegion::reserve(64 << 20)?;
/// # Machine::new(1).attach(|| {
/// # // SAFETY: the region is zeroed, ours alone, and outlives the instance.
/// # let memory = unsafe { Memory::<Native>::new(region.base(), region.len_bytes(), 1, Options::default()) }?;
/// # let vm = Vm::<Native, VmaLock<Rwsem<Native>>>::new(memory)?;
/// # let space = vm.create_space(Limits::default())?;
/// # let calls = Calls::new(&space);
/// # let content = calls.mmap([0, 4096, 3, 0x22, u64::MAX, 0], None).expect("room");
/// # let guest = Guest::new(&space);
/// guest.store(content.into(), 0xaaaa)?;
/// let mut files = Vec::new();
/// let descriptor = refpage_create(&space, [content, 0], |handle, open_flags| {
///     files.push((handle, open_flags));
///     Ok(files.len() as u64 + 2)
/// });
/// assert_eq!(descriptor, Ok(3));
/// // mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE, 3, 4096)
/// let start = calls.mmap([0, 8192, 3, 2, 3, 4096], Some(File::reference(&files[0].0))).expect("room");
/// files.clear();
/// assert_eq!(guest.load((start + 4096).into())?.0, 0xaaaa);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn refpage_create<'vm, P: System, D: Design<P>>(
    space: &SpaceRef<'vm, P, D>,
    [content, flags]: [u64; 2],
    install: impl FnOnce(ReferenceHandle<'vm, P>, u64) -> Answer,
) -> Answer {
    install(space.refpage_create(content, flags)?, REFPAGE_OPEN_FLAGS)
}

/// `refpage_create(content, size, flags)` of version 5: makes a reference page that repeats `size` bytes.
///
/// A kernel of version 5 calls it with three registers. As [`refpage_create`]; a size or an address that does not fit
/// is EINVAL here, and comes before EFAULT and ENOMEM.
pub fn refpage_create_sized<'vm, P: System, D: Design<P>>(
    space: &SpaceRef<'vm, P, D>,
    [content, size, flags]: [u64; 3],
    install: impl FnOnce(ReferenceHandle<'vm, P>, u64) -> Answer,
) -> Answer {
    // An unsigned int.
    install(space.refpage_create_sized(content, size as u32, flags)?, REFPAGE_OPEN_FLAGS)
}
