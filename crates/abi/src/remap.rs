//! mremap(2): where a remapped range goes.

use crate::errno::Errno;
use crate::flags::RemapFlags;
use crate::range::range;
use faultless_vm::{RemapPlacement, RemapRequest, VirtAddr};

/// Returns what mremap's registers ask of the library: old address, old length, new length, flags, new address.
///
/// ```
/// use faultless_abi::{Errno, remap_request};
/// use faultless_vm::RemapPlacement;
///
/// // mremap(0x1000, 0x1000, 0x2000, MREMAP_MAYMOVE)
/// let request = remap_request([0x1000, 0x1000, 0x2000, 1, 0])?;
/// assert_eq!(request.placement, RemapPlacement::MayMove);
/// // MREMAP_FIXED without MREMAP_MAYMOVE
/// assert_eq!(remap_request([0x1000, 0x1000, 0x2000, 2, 0x8000]).err(), Some(Errno::EINVAL));
/// # Ok::<(), Errno>(())
/// ```
pub fn remap_request([old_start, old_len_bytes, new_len_bytes, flags, new]: [u64; 5]) -> Result<RemapRequest, Errno> {
    let flags = RemapFlags::from_bits(flags).ok_or(Errno::EINVAL)?;
    let keeps_source = flags.contains(RemapFlags::DONTUNMAP);
    let placement = match () {
        () if !flags.contains(RemapFlags::MAYMOVE) && !flags.is_empty() => return Err(Errno::EINVAL),
        () if flags.contains(RemapFlags::FIXED) => RemapPlacement::Fixed(VirtAddr::new(new)),
        () if keeps_source => RemapPlacement::Hint(VirtAddr::new(new)),
        () if flags.contains(RemapFlags::MAYMOVE) => RemapPlacement::MayMove,
        () => RemapPlacement::InPlace,
    };
    Ok(RemapRequest { old: range(old_start, old_len_bytes), new_len_bytes, placement, keeps_source })
}
