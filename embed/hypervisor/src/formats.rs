//! Which tables the processor walks, and how it is made to forget them.
//!
//! # Guarantee
//! A processor that sets no accessed and dirty bits refuses the first store to a page that is not dirty, so that the
//! library sets the bits and no store goes unnoticed.

use faultless_phys::{Memory, Pfn};
use faultless_platform::Platform;
use faultless_vm::{Embedding, Entry, EntryFlags, Ept, PageRange, SpaceId, TableFormat};
use std::marker::PhantomData;

/// What only the processor can do.
pub trait Hardware: 'static {
    /// The tables that it walks.
    type Format: TableFormat;
    /// `invept`, or less: the calling CPU forgets translations of a space: of a range, or all; of every space, if it
    /// is 0.
    fn forget(space: SpaceId, range: Option<PageRange>);
}

/// The name of what guest-physical memory is made of, on some hardware.
pub struct Tables<H>(PhantomData<fn() -> H>);

impl<P: Platform, H: Hardware> Embedding<P> for Tables<H> {
    type Frames = Memory<P>;
    type Format = H::Format;

    fn flush(space: SpaceId, range: Option<PageRange>) {
        H::forget(space, range);
    }
}

/// [`Ept`] of a processor that sets no accessed and dirty bits: it is told not to, or it can't.
///
/// Bits 8 and 9, which it ignores then, are the library's own; a page that is not dirty may not be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EptWithoutBits;

const WRITE: u64 = 1 << 1;

// SAFETY: as `Ept`, which keeps what the flags say in bits of its own; the processor changes nothing (T4), and may
// write where `encode` says that the page is dirty. T6: without the used bits, of which WRITE is one, it may not.
unsafe impl TableFormat for EptWithoutBits {
    const LEVELS: u32 = Ept::LEVELS;
    const USED: u64 = Ept::USED | WRITE;

    fn encode(entry: Entry) -> u64 {
        let bits = Ept::encode(entry);
        if entry.has(EntryFlags::DIRTY) { bits } else { bits & !WRITE }
    }

    fn decode(bits: u64) -> Entry {
        Ept::decode(bits)
    }

    fn table(table: Pfn) -> u64 {
        Ept::table(table)
    }
}
