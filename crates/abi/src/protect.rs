//! mprotect(2): which rights, and where the change begins and ends.

use crate::errno::Errno;
use crate::flags::Prot;
use crate::range::range;
use faultless_vm::design::Design;
use faultless_vm::{AddressRange, CallError, PAGE, Protection, Space, System, VirtAddr, page_ceil};

/// What mprotect's registers ask of the library.
///
/// ```
/// use faultless_abi::{Errno, ProtectRequest};
/// use faultless_vm::{AddressRange, Protection, VirtAddr};
///
/// // mprotect(0x1000, 0x2000, PROT_READ | PROT_GROWSDOWN)
/// let range = AddressRange::new(VirtAddr::new(0x1000), 0x2000);
/// assert_eq!(ProtectRequest::decode(0x1000, 0x2000, 0x0100_0001), Ok(ProtectRequest::Stack(range, Protection::READ)));
/// // A range that wraps around is refused before unknown rights are.
/// assert_eq!(ProtectRequest::decode(0x1000, u64::MAX - 4095, 0x10), Err(Errno::ENOMEM));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtectRequest {
    /// Nothing: the length is 0.
    Nothing,
    /// The rights of a range.
    Range(AddressRange, Protection),
    /// As `Range`, from the start of the stack that holds its first address (`PROT_GROWSDOWN`).
    Stack(AddressRange, Protection),
    /// An area that grows upwards, of which x86-64 has none (`PROT_GROWSUP`).
    GrowsUp(VirtAddr),
}

impl ProtectRequest {
    /// Returns what the registers ask for.
    pub fn decode(start: u64, len: u64, prot: u64) -> Result<Self, Errno> {
        const GROWS: Prot = Prot::GROWSDOWN.union(Prot::GROWSUP);
        const KNOWN: Prot = Prot::RIGHTS.union(Prot::SEM);
        let prot = Prot::from_bits_retain(prot);
        let (grows, rest) = (prot & GROWS, prot & !GROWS);
        if grows == GROWS || !start.is_multiple_of(PAGE) {
            return Err(Errno::EINVAL);
        }
        if len == 0 {
            return Ok(Self::Nothing);
        }
        if page_ceil(len).and_then(|len| start.checked_add(len)).is_none_or(|end| end <= start) {
            return Err(Errno::ENOMEM);
        }
        match () {
            () if !KNOWN.contains(rest) => Err(Errno::EINVAL),
            () if grows.is_empty() => Ok(Self::Range(range(start, len), rest.protection())),
            () if grows == Prot::GROWSDOWN => Ok(Self::Stack(range(start, len), rest.protection())),
            () => Ok(Self::GrowsUp(VirtAddr::new(start))),
        }
    }

    /// Does it: [`Calls::mprotect`](crate::Calls::mprotect) calls it, and a replay, once it has changed the rights.
    pub fn apply<P: System, D: Design<P>>(self, space: &Space<P, D>) -> Result<(), CallError> {
        match self {
            Self::Nothing => Ok(()),
            Self::Range(range, protection) => space.mprotect(range, protection),
            Self::Stack(range, protection) => space.mprotect_stack(range, protection),
            // Linux first finds out whether there is an area at all.
            Self::GrowsUp(address) if is_mapped(space, address) => Err(CallError::Invalid("no area grows upwards")),
            Self::GrowsUp(address) => Err(CallError::Unmapped { address }),
        }
    }
}

fn is_mapped<P: System, D: Design<P>>(space: &Space<P, D>, address: VirtAddr) -> bool {
    let mut is_mapped = false;
    space.for_each_area(|line| is_mapped |= line.range.contains(address));
    is_mapped
}
