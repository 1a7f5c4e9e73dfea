//! A mapping as plain numbers: what an allocator keeps in its own tables.
//!
//! # Guarantee
//! `address` and `len` are whole pages. Who holds a `RawMapping` from a map call owns the range,
//! until it is given back by [`RefPage::unmap_raw`](crate::RefPage::unmap_raw).

use crate::tile::Tile;

/// Where a mapping's pattern comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// From tiles: pages cost memory only when they are written.
    Tiled,
    /// It was written into anonymous memory, since tiles were impossible.
    Filled,
    /// The pattern is zero, so plain anonymous memory has it.
    Zero,
}

/// A mapping as plain numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawMapping {
    pub(crate) address: *mut u8,
    pub(crate) len: usize,
    pub(crate) kind: Kind,
    /// The length of the tiles that it was made from (its pieces are at least so long).
    pub(crate) tile_len: usize,
}

// SAFETY: plain numbers; using the range is unsafe and the user's to justify.
unsafe impl Send for RawMapping {}
// SAFETY: as for Send.
unsafe impl Sync for RawMapping {}

impl RawMapping {
    /// Returns the first address.
    pub fn address(&self) -> *mut u8 {
        self.address
    }

    /// Returns the length, in whole pages.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether it has no bytes, which no mapping has.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns where the pattern comes from.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the length of its tiles, if it has any.
    pub fn tile_len(&self) -> Option<usize> {
        (self.kind == Kind::Tiled).then_some(self.tile_len)
    }

    /// Returns a mapping from what the other functions here returned of it: for a caller that packs
    /// its books tightly. The calls that use the mapping are the unsafe ones.
    pub fn from_parts(address: *mut u8, len: usize, kind: Kind, tile_len: usize) -> RawMapping {
        RawMapping { address, len, kind, tile_len }
    }

    /// Returns how many areas it was counted with: an upper bound of what it holds.
    pub(crate) fn areas(&self) -> usize {
        match self.kind {
            Kind::Tiled => Tile::areas(self.len, self.tile_len),
            Kind::Filled | Kind::Zero => 0,
        }
    }
}
