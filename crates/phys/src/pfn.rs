//! The number of a frame.

use faultless_platform::PAGE_BYTES;

/// A physical address: what page-table entries and the processor's registers hold. No pointer: where a frame can be
/// reached is its source's business ([`FrameSource::frame`](crate::FrameSource::frame)).
///
/// ```
/// use faultless_phys::{Pfn, PhysAddr};
///
/// let address = PhysAddr::new(0x5123);
/// assert_eq!(Pfn::containing(address), Some(Pfn::new(5)));
/// assert_eq!((Pfn::new(5).address(), address.get()), (PhysAddr::new(0x5000), 0x5123));
/// assert_eq!(format!("{address}"), "0x5123");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct PhysAddr(u64);

impl PhysAddr {
    /// Returns the address with this number.
    #[inline]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Returns the number.
    #[inline]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl core::fmt::Display for PhysAddr {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(out, "{:#x}", self.0)
    }
}

/// The number of a frame: its distance from the region's first byte, in frames.
///
/// Having one tells you nothing about who owns the frame; [`Memory::alloc`](crate::Memory::alloc) does. A number fits
/// 32 bits, so that one region holds at most [`Pfn::LIMIT`] frames (16 TiB).
///
/// ```
/// use faultless_phys::{Pfn, PhysAddr};
///
/// let pfn = Pfn::new(2);
/// assert_eq!((pfn.get(), pfn.index(), pfn.address()), (2, 2, PhysAddr::new(0x2000)));
/// assert_eq!(Pfn::containing(PhysAddr::new(Pfn::LIMIT as u64 * 4096)), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pfn(u32);

impl Pfn {
    /// One more than the largest number that a frame can have.
    pub const LIMIT: usize = u32::MAX as usize;

    /// Returns frame number `number`; whether a memory holds it is not checked here.
    #[inline]
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// Returns the number.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Returns the number as an index.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Returns the frame of an index that [`Pfn::index`] gave.
    #[inline]
    pub(crate) const fn of_index(index: usize) -> Self {
        Self(index as u32)
    }

    /// Returns the physical address of the frame, as page-table entries hold it.
    #[inline]
    pub const fn address(self) -> PhysAddr {
        PhysAddr(self.0 as u64 * PAGE_BYTES as u64)
    }

    /// Returns the frame that holds `address`, if its number fits.
    #[inline]
    pub const fn containing(address: PhysAddr) -> Option<Self> {
        let number = address.0 / PAGE_BYTES as u64;
        if number < Self::LIMIT as u64 { Some(Self(number as u32)) } else { None }
    }
}

impl core::fmt::Display for Pfn {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(out, "frame {:#x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_lead_back_to_the_frame() {
        for number in [0, 1, 77, u32::MAX - 1] {
            let pfn = Pfn::new(number);
            assert_eq!(Pfn::containing(pfn.address()), Some(pfn));
            assert_eq!(Pfn::containing(PhysAddr::new(pfn.address().get() + PAGE_BYTES as u64 - 1)), Some(pfn));
        }
        assert_eq!(Pfn::containing(PhysAddr::new(Pfn::LIMIT as u64 * PAGE_BYTES as u64)), None);
        assert_eq!(Pfn::containing(PhysAddr::new(u64::MAX)), None);
    }
}
